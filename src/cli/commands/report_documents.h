/* The results that a report is made of, from captures: what compare, explain, placement and latency would
 * print. */
#pragma once

#include "cli/options/help.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

enum {
    CLI_REPORT_DOCUMENTS = 512,
    CLI_REPORT_SAMPLES = 50 /* samples with a changed prediction that a report shows of each probe: chosen */
};

struct report_documents {
    struct nd_report_document items[CLI_REPORT_DOCUMENTS];
    char *texts[CLI_REPORT_DOCUMENTS]; /* of the items */
    size_t n;
    char *names[CLI_REPORT_DOCUMENTS]; /* of models: report_documents_keep */
    size_t n_names;
};

/* What is reported besides the captures. All nullable, borrowed. */
struct report_sources {
    const char *quantised, *float_model; /* paths */
    const char *model;                   /* the name of a campaign's model */
    size_t n_samples;                    /* that the explanation looks at; 0: all */
    bool finds_model;                    /* without `quantised`, that of the captures is looked for */
    bool is_explained_if_possible;       /* an explanation that fails is left out, unless a file that is there
                                            cannot be read now, or memory is out */
    size_t n_threads;
    bool quiet;
    bool takes_campaigns; /* an operand may be the folder of `npudiff qualify` */
};

/* Adds what these captures give: a comparison of two or more, with the images of changed samples; with a model
 * an explanation and the placement; latencies. */
enum nd_status report_documents_of_captures(struct report_documents *documents, const char *const *paths,
                                            size_t n, const struct report_sources *sources,
                                            struct nd_error *err);

/* Adds the result.json in the folder of `npudiff qualify`, and for each model a comparison of its captures
 * there with the reference's and, where the model is still at the place that the captures state, an
 * explanation. Captures that are gone are left out. */
enum nd_status report_documents_of_campaign(struct report_documents *documents, const char *folder,
                                            const struct report_sources *sources, struct nd_error *err);

/* Adds what each operand gives: a capture (all are taken together), the folder of a campaign, or a file. */
enum nd_status report_documents_of_operands(struct report_documents *documents, const char *const *operands,
                                            size_t n, const struct report_sources *sources,
                                            struct nd_error *err);
void report_documents_deinit(struct report_documents *documents);

/* What a comparison prints as JSON, and the images of its changed samples, for the report of `npudiff compare`.
 */
enum nd_status report_documents_of_comparison(struct report_documents *documents, const char *model,
                                              struct nd_comparison *comparison,
                                              const struct nd_capture *const *captures, struct nd_error *err);

/* What nd_placement_examine says of a capture, and its device. *out is good for nd_placement_destroy of its
 * report after a failure, too. */
enum nd_status cli_place(const struct nd_model *model, struct nd_capture *capture, struct nd_placed_device *out,
                         struct nd_error *err);

/* ---- the HTML report of a command: --report FILE.html ---- */

#define OPT_REPORT(s)                                                                                          \
    OPT_TEXT(0, "report", s, report, CLI_A_FILE("FILE.html"),                                                  \
             "also write the result as a page for a browser; overwrites an older report")

/* Before the work begins: 0, or exit code 2 when there is a file of another kind, or none can be made there.
 * path NULL: no report is asked for. */
int cli_report_check(const char *path);

/* Makes the page and writes it. 0, or the exit code of the error. */
int cli_report_write(const char *path, const struct nd_report_document *documents, size_t n, const char *title);

/* The page of one result, if `path` is not NULL, and the answer: json where that is asked for, else text, which
 * may be NULL: nothing more is said. Frees both. status, err: of the writers that made them. The worst exit
 * code. */
int cli_report_tell(const char *path, const char *command, const struct cli_answer *answer,
                    enum nd_status status, char *json, char *text, const struct nd_error *err);
