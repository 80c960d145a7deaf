/* What `npudiff reduce` found, as text and as JSON. */
#ifndef ND_CLI_REDUCE_REPORT_H
#define ND_CLI_REDUCE_REPORT_H

#include <jansson.h>

#include "npudiff/reduce.h"

struct cli_reduce_shown {
    bool has_difference; /* a difference was looked for, not a failure */
    const char *folder;  /* of the reproducer; NULL */
};

/* NULL when memory is out. */
json_t *cli_reduce_json(const struct cli_reduce_shown *shown, const struct nd_reduction *reduction);
void cli_reduce_print(const struct cli_reduce_shown *shown, const struct nd_reduction *reduction);

#endif
