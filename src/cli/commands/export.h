/* What 'npudiff export' writes for other tools. */
#ifndef ND_CLI_EXPORT_H
#define ND_CLI_EXPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/terminal/terminal.h"

struct export_values {
    const char *output;
    const char *probe;
    bool inputs;
    bool outputs;
    bool force;
    struct cli_answer answer;
};

/* operands: the model, and the captures or results. Returns the exit code. */
int cli_export_model_explorer(const struct export_values *values, const char *const *operands, size_t n);

#endif
