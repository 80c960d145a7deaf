/* What the commands around the golden store share: telling problems, and capturing again with a new runtime. */
#pragma once

#include "cli/options/help.h"
#include "cli/terminal/terminal.h"
#include "npudiff/judge/judge.h"

/* The options of `npudiff golden`; which command takes which: golden.c. */
struct golden_values {
    const char *note;
    const char *by;
    const char *runtime;
    const char *model;
    struct cli_list probes;
    const char *output;
    size_t jobs;
    size_t keep;
    bool digest_only;
    bool blame;
    bool dry_run;
    bool force;
    bool resume;
    bool verbose;
    struct cli_answer answer;
    const char *report;
};

/* Tells damaged entries on stderr; ND_EXIT_TROUBLE when there are any, else 0. */
int golden_tell_problems(const char *path, const struct nd_golden *store);
