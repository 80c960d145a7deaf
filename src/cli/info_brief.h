/* The default text of `npudiff info`: what a person asks of a capture first. */
#ifndef ND_CLI_INFO_BRIEF_H
#define ND_CLI_INFO_BRIEF_H

#include <jansson.h>

/* Prints what the JSON of `npudiff info` says, but for probes and findings. */
void info_print_brief(const json_t *info);

#endif
