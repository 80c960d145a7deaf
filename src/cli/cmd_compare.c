#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/compare_setup.h"
#include "cli/rows.h"
#include "cli/terminal.h"
#include "npudiff/explain.h"

static enum nd_status open_all(const char *const *paths, size_t n, struct nd_capture **captures,
                               struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = nd_capture_open(paths[i], &captures[i], err);
    return status;
}

static enum nd_status print(const struct compare_values *values, const struct compare_setup *setup,
                            const struct nd_capture *ref, const struct nd_comparison *comparison,
                            struct nd_error *err)
{
    const struct nd_report_options options = {.struct_size = sizeof options,
                                              .all_edges = values->all_edges,
                                              .details = values->verbose,
                                              .worst = values->worst.is_given,
                                              .width = cli_text_width(values->width),
                                              .matrices = setup->matrices,
                                              .n_matrices = values->matrices.n,
                                              .is_brief = !values->all_edges && !values->verbose,
                                              .model = nd_capture_string(ref, "model", "file")};
    char *text = NULL;
    enum nd_status status;
    if (comparison->cut != ND_CUT_NONE)
        status = nd_compare_part_format(comparison, &text, err);
    else if (values->json)
        status = nd_report_json(comparison, &text, err);
    else
        status = nd_report_text(comparison, &options, &text, err);
    if (status == ND_OK && (values->json || comparison->cut != ND_CUT_NONE))
        cli_print_document(text);
    else if (status == ND_OK && cli_is_markdown(values->format))
        cli_print_markdown(text);
    else if (status == ND_OK)
        cli_print_text(text, values->color);
    free(text);
    return status;
}

static enum nd_status check_matrices(const struct compare_setup *setup, size_t n,
                                     const struct nd_comparison *comparison, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = nd_matrix_check(&setup->matrices[i], comparison, err);
    return status;
}

/* A part is no verdict: those who merge it have one. */
static int exit_code_of(const struct nd_comparison *comparison)
{
    return comparison->cut != ND_CUT_NONE ? ND_EXIT_SAME : (int)nd_verdict_exit_code(comparison->verdict);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct compare_values *values = context;
    struct nd_error err = {0};
    struct compare_setup setup = {0};
    struct nd_comparison *comparison = NULL;
    int exit_code = compare_check(values);
    if (exit_code != 0)
        return exit_code;
    struct nd_capture **captures = calloc(n_operands, sizeof(struct nd_capture *));
    if (captures == NULL)
        return cli_fail_memory();
    enum nd_status status = compare_setup_init(values, &setup, &err);
    if (status == ND_OK)
        status = open_all(operands, n_operands, captures, &err);
    for (size_t i = 0; status == ND_OK && values->trust_digests && i < n_operands; i++)
        nd_capture_trust(captures[i]);
    if (status == ND_OK)
        status = nd_compare_captures((const struct nd_capture *const *)captures, n_operands, &setup.options,
                                     &comparison, &err);
    if (status == ND_OK && comparison->cut == ND_CUT_NONE && !values->quiet)
        status = nd_diagnose_comparison(comparison, (const struct nd_capture *const *)captures, &err);
    if (status == ND_OK)
        status = check_matrices(&setup, values->matrices.n, comparison, &err);
    if (status == ND_OK && !values->quiet)
        status = print(values, &setup, captures[0], comparison, &err);
    exit_code = status == ND_OK ? exit_code_of(comparison) : cli_report_error(&err);
    nd_comparison_destroy(&comparison);
    for (size_t i = 0; i < n_operands; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    compare_setup_deinit(&setup);
    return exit_code;
}

static const char *const float_types[] = {"float64",       "float32",     "float16", "bfloat16",
                                          "float8_e4m3fn", "float8_e5m2", NULL};
static const char *const cuts[] = {"tensors", "samples", NULL};

#define GATE(gate, help) OPT_LIST(0, #gate, struct compare_values, gate, CLI_A_TEXT("N[,NAME:N...]"), help)

static const struct cli_option options[] = {
    OPT_OPTIONAL(0, "bitwise", struct compare_values, bitwise, "[=NAME,...]",
                 "gate: not one bit may differ, in any tensor or in those of that name or pattern"),
    GATE(lsb, "gate for codes: at most N steps apart; NAME:N is for the tensors of that name or pattern"),
    GATE(ulp, "gate for floats: at most N floats apart"),
    GATE(atol, "gate: |test - ref| <= atol + rtol * |ref|, in real units"),
    GATE(rtol, "gate: see --atol"),
    OPT_TEXT('e', "edges", struct compare_values, edges, CLI_A_TENSORS("WHICH"),
             "compare only these: outputs (of the model), or name patterns with commas (all); without it an "
             "edge that a capture lacks is not comparable"),
    OPT_FLAG(0, "allow-different-models", struct compare_values, different_models,
             "compare captures of different model files"),
    OPT_FLAG(0, "all-pairs", struct compare_values, all_pairs, "compare every test with every other, too"),
    OPT_LIST(0, "matrix", struct compare_values, matrices, CLI_A_TEXT("METRIC[:NAME]"),
             "show every device against every other at the model outputs, or at tensor NAME: share, differing, "
             "max_lsb, mean_lsb, max_ulp, max_abs, rmse, sqnr, cosine, norm_ratio, pearson, kl; --all-pairs is "
             "implied; may be repeated"),
    OPT_CHOICE(0, "ulp-in", struct compare_values, ulp_in, "TYPE", float_types,
               "count ULP also in the type that the device computes in: float64, float32, float16, bfloat16, "
               "float8_e4m3fn, float8_e5m2"),
    OPT_INTEGER(0, "worst", struct compare_values, worst, "N", 0, 1000,
                "show the N worst elements of each pair (kept for --json and -v: 5)"),
    OPT_INTEGER(0, "per-channel", struct compare_values, channel_axis, "AXIS", -ND_MAX_RANK, ND_MAX_RANK - 1,
                "statistics of each coordinate of that axis of a sample, too; -1 is the last axis"),
    OPT_FLAG(0, "verify-digests", struct compare_values, verify_digests,
             "read also the tensors whose digests are equal; other bytes are an error"),
    OPT_FLAG(0, "trust-digests", struct compare_values, trust_digests,
             "do not check the captures' tables, and the tensors that are read, against their digests"),
    OPT_THREADS(struct compare_values),
    OPT_NUMBER(0, "memory", struct compare_values, memory_mib, "MIB", 16, 1 << 20, "for buffers (512)"),
    OPT_TEXT(0, "part", struct compare_values, part, CLI_A_TEXT("K/N"),
             "make only the K-th of N parts (1/N to N/N) and print it for --merge; needs --json; exit code 0"),
    OPT_CHOICE(0, "cut", struct compare_values, cut, "tensors|samples", cuts,
               "what parts are made of (samples)"),
    OPT_LIST(0, "merge", struct compare_values, merge, CLI_A_FILE("FILE"),
             "take the statistics from that part; once for each of the N, with the captures and options that "
             "they were made with"),
    OPT_FLAG('a', "all", struct compare_values, all_edges,
             "print the tables, with the tensors that are equal, too, and every list in full"),
    OPT_FLAG(
        'v', "verbose", struct compare_values, verbose,
        "print the tables: every tensor that differs, signal, worst elements, where the differences are, and "
        "the gates that would pass"),
    OPT_WIDTH(struct compare_values),
    OPT_COLOR(struct compare_values),
    OPT_FORMAT(struct compare_values),
    OPT_JSON(struct compare_values),
    OPT_QUIET_ANSWER(struct compare_values),
    {.name = NULL},
};

const struct cli_command cmd_compare = {
    .name = "compare",
    .summary = "compare captures: bit classes, LSB and ULP, first difference, accuracy",
    .synopsis = "REF.h5 TEST.h5 ... [--bitwise] [--lsb N] [--ulp N] [--atol X] [--rtol X]",
    .details = "Aligns the captures by tensor, probe and sample and says which devices agree bit for bit, from "
               "which tensor on the others differ, by how much, and what that does to accuracy. The first "
               "capture is the reference.\nWithout a gate every differing bit counts. With gates, all of them "
               "must hold for every element.\nExit code 0: same or within the gates; 1: differs; 2: trouble; "
               "3: not comparable; 4: inconclusive, outputs are NaN on both sides; 5: a device had "
               "failed.\nNPUDIFF_CPU=scalar|avx2|avx512|neon in the environment allows no better instructions "
               "than these; the result does not depend on them.",
    .options = options,
    .min_operands = 2,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct compare_values),
    .run = run,
};
