/* The scales of a model that a command wrote, for other quantisers. */
#ifndef ND_CLI_EXPORT_SCALES_H
#define ND_CLI_EXPORT_SCALES_H

#include <stdbool.h>

struct cli_exports {
    const char *encodings, *overrides; /* files; NULL: not wanted */
    bool force;
};

/* Before anything is done: 0, or the exit code of what is wrong. output: the model that is going to be written;
 * NULL: none, then nothing can be exported. option: how it is asked for. */
int cli_check_exports(const char *command, const struct cli_exports *exports, const char *output,
                      const char *option);

/* Writes the files: 0, or the exit code of the error, which is reported. */
int cli_export_scales(const char *model, const struct cli_exports *exports);

#endif
