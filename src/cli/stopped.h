/* What a command says when Ctrl-C stopped it: what is kept, and the command that continues. */
#ifndef ND_CLI_STOPPED_H
#define ND_CLI_STOPPED_H

/* The words of this call, borrowed. main calls it once. */
void cli_stopped_set_command(int argc, char **argv);

/* Prints on stderr, if a signal came: "npudiff: stopped; KEPT", and, if `option` is not NULL, the words of this
 * call with the option (such as "--resume", or "" for none), quoted for a shell. --force goes, which would
 * overwrite what is kept. */
void cli_stopped_tell(const char *kept, const char *option);

#endif
