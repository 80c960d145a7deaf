/* How npudiff and npudiff-lab begin and end. */
#ifndef ND_CLI_PROGRAM_H
#define ND_CLI_PROGRAM_H

/* What main returns: the exit code of run, or that of an error that came before or after it. */
int cli_program(int argc, char **argv, int (*run)(int argc, char **argv));

#endif
