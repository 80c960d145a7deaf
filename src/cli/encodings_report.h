/* What the encodings command prints. */
#ifndef ND_CLI_ENCODINGS_REPORT_H
#define ND_CLI_ENCODINGS_REPORT_H

#include <stdbool.h>

#include "npudiff/evidence.h"

/* Each prints a table, or JSON, on stdout. The exit code: 2 when memory is out. */
int encodings_print_list(const struct nd_encodings *encodings, bool is_json);
int encodings_print_diff(const struct nd_encodings_diff *diff, const struct nd_encodings *ref,
                         const struct nd_encodings *test, bool is_json);
int encodings_print_check(const struct nd_encodings_check *check, const struct nd_encodings *encodings,
                          const struct nd_capture *capture, bool is_json);

/* What was written; omissions go to stderr unless JSON tells them. */
int encodings_print_applied(const struct nd_encodings_match *match, const struct nd_encodings *encodings,
                            const char *output, bool is_json);

#endif
