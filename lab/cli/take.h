/* Taking one datasheet, alone or as a cell of a campaign. */
#ifndef ND_CLI_FINGERPRINT_TAKE_H
#define ND_CLI_FINGERPRINT_TAKE_H

#include <jansson.h>

#include "cli/options/help.h"
#include "cli/terminal/terminal.h"
#include "npudiff/lab/fingerprint.h"

/* What the command line says. */
struct fingerprint_values {
    struct cli_list devices, runtimes, sections, merge;
    struct cli_part part;
    const char *campaign; /* the folder */
    const char *output, *answers, *agent;
    double time_limit_s;
    bool diff, force, verbose;
    struct cli_answer answer;
};

struct cli_progress;

struct fingerprint_order {
    const struct nd_device *device;
    const char *label;        /* of the line that shows the progress */
    const char *answers;      /* folder; NULL: they are not kept */
    struct cli_list sections; /* none: all */
    struct cli_progress *progress;
    size_t index; /* of the line */
};

/* The datasheet as text, which the caller frees. Signals stop it (ND_ERR_CANCELLED). */
enum nd_status fingerprint_take(const struct fingerprint_values *values, const struct fingerprint_order *order,
                                char **text, struct nd_error *err);

/* A device that failed in every operator has no arithmetic that the datasheet could state: said on stderr, and
 * exit code 5. Else 0. */
int fingerprint_judge(const json_t *sheet, const char *device);

/* The text of a datasheet's file, which the caller frees; NULL, and said on stderr, when it cannot be read. */
char *fingerprint_read(const char *path);

#endif
