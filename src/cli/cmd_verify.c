#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/rows.h"
#include "cli/terminal.h"
#include "npudiff/capture.h"

struct values {
    bool json;
    bool quiet;
};

/* Verifies one capture and adds its row; the exit code that it alone would give. */
static int verify_one(const char *path, json_t *rows)
{
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    struct nd_capture_verification found;
    enum nd_status status = nd_capture_open(path, &capture, &err);
    if (status == ND_OK)
        status = nd_capture_verify(capture, &found, &err);
    nd_capture_close(&capture);
    if (status != ND_OK) {
        json_array_append_new(rows, json_pack("{s:o, s:s, s:o}", "capture", cli_text(path), "verdict",
                                              "unreadable", "problem", cli_text(err.message)));
        return cli_report_error(&err);
    }
    bool is_sound = found.n_wrong == 0 && found.content_matches;
    const char *problem = found.n_wrong > 0       ? found.first_wrong
                          : found.content_matches ? ""
                                                  : "a name, shape, attribute or digest was changed";
    json_array_append_new(rows,
                          json_pack("{s:o, s:s, s:I, s:I, s:b, s:o}", "capture", cli_text(path), "verdict",
                                    is_sound ? "sound" : "damaged", "tensors", (json_int_t)found.n_tensors,
                                    "wrong", (json_int_t)found.n_wrong, "content_matches",
                                    found.content_matches, "problem", cli_text(problem)));
    return is_sound ? ND_EXIT_SAME : ND_EXIT_DIFFERS;
}

static json_t *rows_bad_first(const json_t *rows)
{
    json_t *sorted = json_array(), *row;
    size_t i;
    for (int is_sound = 0; is_sound < 2; is_sound++) {
        json_array_foreach(rows, i, row)
        {
            if ((strcmp(cli_text_of(row, "verdict"), "sound") == 0) == is_sound)
                json_array_append(sorted, row);
        }
    }
    return sorted;
}

static void put_headline(struct nd_report_screen *screen, const json_t *rows)
{
    size_t n = json_array_size(rows), n_bad = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row) n_bad += strcmp(cli_text_of(row, "verdict"), "sound") != 0;
    if (n_bad > 0)
        nd_report_screen_put(screen, "DAMAGED: %zu of %zu captures\n\n", n_bad, n);
    else
        nd_report_screen_put(screen, "OK: %zu capture%s as stored\n\n", n, n == 1 ? " is" : "s are");
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    json_t *rows = json_array();
    int exit_code = ND_EXIT_SAME;
    for (size_t i = 0; i < n_operands; i++) {
        exit_code = cli_worse(exit_code, verify_one(operands[i], rows));
    }
    static const struct nd_report_column columns[] = {{"capture", "CAPTURE"}, {"verdict", "VERDICT"},
                                                      {"tensors", "TENSORS"}, {"wrong", "WRONG"},
                                                      {"problem", "PROBLEM"}, {NULL, NULL}};
    if (values->quiet) {
        json_decref(rows);
        return exit_code;
    }
    int printed;
    if (values->json) {
        printed = cli_print_rows(ND_DOCUMENT_VERIFICATION, "captures", rows, columns, true);
    } else {
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        put_headline(screen, rows);
        cli_screen_rows(screen, rows_bad_first(rows), columns, "--json lists all");
        printed = cli_print_screen(screen, NULL);
        json_decref(rows);
    }
    return printed != 0 ? printed : exit_code;
}

static const struct cli_option options[] = {
    OPT_JSON(struct values),
    OPT_QUIET(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff verify captures/*.h5", "Checks captures after a copy."},
    {"npudiff verify captures/cpu.h5 -q && echo sound", "For a script: the exit code is the answer."},
    {NULL, NULL},
};

const struct cli_command cmd_verify = {
    .name = "verify",
    .summary = "check captures for damage",
    .synopsis = "CAPTURE.h5 ...",
    .details = "Reads every tensor again and compares it with the digest that was stored when it was captured. "
               "It checks names, shapes, types and attributes in the same way.\n"
               "Exit code 0: sound; 1: damaged; 2: cannot be read.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
