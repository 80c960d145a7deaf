/* Writes the HTML report of a command that has --report. */
#include "cli/commands/report_documents.h"

#include <stdlib.h>
#include <string.h>

#include "cli/terminal/output.h"

/* A report is made to be made again; a capture whose name was given by mistake is not. */
static bool is_other_file(const char *path)
{
    static const char start[] = "<!DOCTYPE html>";
    char found[sizeof start] = "";
    size_t n = cli_peek(path, found, sizeof start - 1);
    return n > 0 && memcmp(found, start, sizeof start - 1) != 0;
}

int cli_report_check(const char *path)
{
    if (path == NULL)
        return 0;
    if (is_other_file(path))
        return cli_fail(CLI_E_FILE_EXISTS, path,
                        "'%s' exists and is no report: give the report a different name", path);
    return cli_check_text_output(path, true, "");
}

int cli_report_write(const char *path, const struct nd_report_document *documents, size_t n, const char *title)
{
    struct nd_error err = {0};
    char *page = NULL;
    if (nd_report_page(documents, n, title, &page, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_write_text(path, page, true);
    free(page);
    return exit_code;
}

int cli_report_write_one(const char *path, const char *command, enum nd_status status, char *json,
                         const struct nd_error *err)
{
    const struct nd_report_document document = {.json = json, .name = command};
    int exit_code = 0;
    if (path != NULL)
        exit_code = status == ND_OK ? cli_report_write(path, &document, 1, NULL) : cli_report_error(err);
    free(json);
    return exit_code;
}
