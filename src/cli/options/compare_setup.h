/* What the words of `npudiff compare` come to: the options of a comparison and what they borrow. */
#ifndef ND_CLI_COMPARE_SETUP_H
#define ND_CLI_COMPARE_SETUP_H

#include "cli/options/help.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

/* The options as they were given. */
struct compare_values {
    struct cli_list bitwise, lsb, ulp, atol, rtol;
    const char *tensors;
    struct cli_list probes;
    bool different_models;
    bool all_pairs;
    struct cli_list matrices;
    const char *ulp_in;
    struct cli_integer worst;
    struct cli_integer channel_axis;
    bool verify_digests;
    bool trust_digests;
    bool config;
    size_t n_threads;
    size_t memory_mib;
    struct cli_part part;
    const char *cut;
    struct cli_list merge;
    bool all_tensors;
    bool verbose;
    struct cli_answer answer;
    const char *report;
};

struct compare_setup {
    struct nd_compare_options options;
    struct nd_matrix *matrices; /* [values->matrices.n] */
    struct nd_gates *gates;
    struct nd_parts *parts;
};

/* 0, or ND_EXIT_TROUBLE after printing which options do not go together. */
int compare_check(const struct compare_values *values);

/* Turns checked values into *out, which borrows from them and from the environment. Reads the parts to be
 * merged. compare_setup_deinit frees what *out owns, also after a failure. */
enum nd_status compare_setup_init(const struct compare_values *values, struct compare_setup *out,
                                  struct nd_error *err);
void compare_setup_deinit(struct compare_setup *setup);

#endif
