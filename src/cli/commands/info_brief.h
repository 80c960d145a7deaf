/* The default text of `npudiff info`: what a person asks of a capture first. */
#ifndef ND_CLI_INFO_BRIEF_H
#define ND_CLI_INFO_BRIEF_H

#include <jansson.h>

/* The default text of `npudiff info`. 0, or the exit code of an error. */
int info_print_brief(const json_t *info);

#endif
