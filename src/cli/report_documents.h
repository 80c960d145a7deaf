/* The results that a report is made of, from captures: what compare, explain, placement and latency would
 * print. */
#ifndef ND_CLI_REPORT_DOCUMENTS_H
#define ND_CLI_REPORT_DOCUMENTS_H

#include "npudiff/report.h"

enum {
    CLI_REPORT_DOCUMENTS = 512,
    CLI_REPORT_SAMPLES = 50 /* samples with a changed prediction that a report shows of each probe: chosen */
};

struct report_documents {
    struct nd_report_document items[CLI_REPORT_DOCUMENTS];
    char *texts[CLI_REPORT_DOCUMENTS]; /* of the items */
    size_t n;
};

/* What is reported besides the captures. All nullable, borrowed. */
struct report_sources {
    const char *quantised, *float_model; /* paths */
    const char *model;                   /* the name of a campaign's model */
    size_t n_threads;
    bool quiet;
};

/* Takes over json (NULL with a status: adds nothing) and returns the status. */
enum nd_status report_documents_add(struct report_documents *documents, const char *name, const char *model,
                                    enum nd_status status, char *json, struct nd_error *err);

/* Adds what these captures give: a comparison of two or more, with the images of changed samples; with a model
 * an explanation and the placement; latencies. */
enum nd_status report_documents_of_captures(struct report_documents *documents, const char *const *paths,
                                            size_t n, const struct report_sources *sources,
                                            struct nd_error *err);
void report_documents_deinit(struct report_documents *documents);

/* What a comparison prints as JSON, and the images of its changed samples, for the report of `npudiff compare`.
 */
enum nd_status report_documents_of_comparison(struct report_documents *documents, const char *model,
                                              struct nd_comparison *comparison,
                                              const struct nd_capture *const *captures, struct nd_error *err);

#endif
