/* The HTML report of a command: --report FILE.html. */
#ifndef ND_CLI_REPORT_FILE_H
#define ND_CLI_REPORT_FILE_H

#include "cli/options/help.h"
#include "npudiff/report/report.h"

#define OPT_REPORT(s)                                                                                          \
    OPT_TEXT(0, "report", s, report, CLI_A_FILE("FILE.html"),                                                  \
             "also write the result as a page for a browser; overwrites an older report")

/* Before the work begins: 0, or exit code 2 when there is a file of another kind, or none can be made there.
 * path NULL: no report is asked for. */
int cli_report_check(const char *path);

/* Makes the page and writes it. 0, or the exit code of the error. */
int cli_report_write(const char *path, const struct nd_report_document *documents, size_t n, const char *title);

/* The same for one result, which it frees; status, err: of the writer that made json. path NULL: does nothing.
 */
int cli_report_write_one(const char *path, const char *command, enum nd_status status, char *json,
                         const struct nd_error *err);

#endif
