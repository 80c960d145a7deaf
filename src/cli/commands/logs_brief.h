/* The default text of `npudiff logs`: the verdict, what failed first, and one row for equal lines. */
#ifndef ND_CLI_LOGS_BRIEF_H
#define ND_CLI_LOGS_BRIEF_H

#include <jansson.h>

#include "npudiff/capture/logs.h"

struct logs_shown {
    const struct nd_log_findings *findings;
    const json_t *logs, *cascade;
    const char *kind; /* only findings of this one; NULL: all but notes */
};

/* An exit code. */
int logs_print_brief(const struct logs_shown *shown);

/* With -v: all operators that could not be constructed, those that failed first and those nobody can place. */
void logs_print_cascade(const json_t *cascade);

#endif
