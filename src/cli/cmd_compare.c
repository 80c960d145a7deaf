#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/compare_setup.h"
#include "cli/rows.h"
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
                            const struct nd_comparison *comparison, struct nd_error *err)
{
    const struct nd_report_options options = {.struct_size = sizeof options,
                                              .all_edges = values->all_edges,
                                              .details = values->verbose,
                                              .worst = values->worst.is_given,
                                              .width = values->width,
                                              .matrices = setup->matrices,
                                              .n_matrices = values->matrices.n};
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
    else if (status == ND_OK)
        fputs(text, stdout);
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
        status = print(values, &setup, comparison, &err);
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

#define GATE(gate, what)                                                                                       \
    {                                                                                                          \
        .name = #gate, .kind = CLI_LIST, .offset = offsetof(struct compare_values, gate),                      \
        .argument = "N[,NAME:N...]", .help = what                                                              \
    }

static const struct cli_option options[] = {
    {.name = "bitwise",
     .kind = CLI_OPTIONAL,
     .offset = offsetof(struct compare_values, bitwise),
     .argument = "[=NAME,...]",
     .help = "gate: not one bit may differ, in any tensor or in those of that name or pattern"},
    GATE(lsb, "gate for codes: at most N steps apart; NAME:N is for the tensors of that name or pattern"),
    GATE(ulp, "gate for floats: at most N floats apart"),
    GATE(atol, "gate: |test - ref| <= atol + rtol * |ref|, in real units"),
    GATE(rtol, "gate: see --atol"),
    {.name = "edges",
     .letter = 'e',
     .kind = CLI_TEXT,
     .offset = offsetof(struct compare_values, edges),
     .argument = "WHICH",
     .help =
         "compare only these: outputs (of the model), or name patterns with commas (all); without it an edge "
         "that a capture lacks is not comparable"},
    {.name = "allow-different-models",
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, different_models),
     .help = "compare captures of different model files"},
    {.name = "all-pairs",
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, all_pairs),
     .help = "compare every test with every other, too"},
    {.name = "matrix",
     .kind = CLI_LIST,
     .offset = offsetof(struct compare_values, matrices),
     .argument = "METRIC[:NAME]",
     .help = "show every device against every other at the model outputs, or at tensor NAME: share, differing, "
             "max_lsb, mean_lsb, max_ulp, max_abs, rmse, sqnr, cosine, norm_ratio, pearson, kl; --all-pairs is "
             "implied; may be repeated"},
    {.name = "ulp-in",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct compare_values, ulp_in),
     .argument = "TYPE",
     .choices = float_types,
     .help = "count ULP also in the type that the device computes in: float64, float32, float16, bfloat16, "
             "float8_e4m3fn, float8_e5m2"},
    {.name = "worst",
     .kind = CLI_INTEGER,
     .offset = offsetof(struct compare_values, worst),
     .argument = "N",
     .help = "show the N worst elements of each pair (kept for --json and -v: 5)",
     .min = 0,
     .max = 1000},
    {.name = "per-channel",
     .kind = CLI_INTEGER,
     .offset = offsetof(struct compare_values, channel_axis),
     .argument = "AXIS",
     .help = "statistics of each coordinate of that axis of a sample, too; -1 is the last axis",
     .min = -ND_MAX_RANK,
     .max = ND_MAX_RANK - 1},
    {.name = "verify-digests",
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, verify_digests),
     .help = "read also the tensors whose digests are equal; other bytes are an error"},
    {.name = "trust-digests",
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, trust_digests),
     .help = "do not check the captures' tables, and the tensors that are read, against their digests"},
    {.name = "threads",
     .kind = CLI_NUMBER,
     .offset = offsetof(struct compare_values, n_threads),
     .argument = "N",
     .help = "0: as many as the process may use (0); the result does not depend on it",
     .min = 0,
     .max = 256},
    {.name = "memory",
     .kind = CLI_NUMBER,
     .offset = offsetof(struct compare_values, memory_mib),
     .argument = "MIB",
     .help = "for buffers (512)",
     .min = 16,
     .max = 1 << 20},
    {.name = "part",
     .kind = CLI_TEXT,
     .offset = offsetof(struct compare_values, part),
     .argument = "K/N",
     .help = "make only the K-th of N parts (1/N to N/N) and print it for --merge; needs --json; exit code 0"},
    {.name = "cut",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct compare_values, cut),
     .argument = "tensors|samples",
     .choices = cuts,
     .help = "what parts are made of (samples)"},
    {.name = "merge",
     .kind = CLI_LIST,
     .offset = offsetof(struct compare_values, merge),
     .argument = "FILE",
     .help = "take the statistics from that part; once for each of the N, with the captures and options that "
             "they were made with"},
    {.name = "all",
     .letter = 'a',
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, all_edges),
     .help = "list bit-equal edges too, and never cut a list"},
    {.name = "verbose",
     .letter = 'v',
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, verbose),
     .help = "show the worst elements, where differences are, and the gates that would pass"},
    {.name = "width",
     .kind = CLI_NUMBER,
     .offset = offsetof(struct compare_values, width),
     .argument = "N",
     .help = "columns of the text (120)",
     .min = 80,
     .max = 1000},
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(struct compare_values, json), .help = "print JSON"},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .offset = offsetof(struct compare_values, quiet),
     .help = "print nothing but errors: the exit code is the answer"},
    {.name = NULL},
};

const struct cli_command cmd_compare = {
    .name = "compare",
    .summary = "compare captures: bit classes, LSB and ULP, first difference, accuracy",
    .synopsis = "REF.h5 TEST.h5 ... [--bitwise] [--lsb N] [--ulp N] [--atol X] [--rtol X]",
    .details =
        "Aligns the captures by tensor, probe and sample and says which devices agree bit for bit, from which "
        "tensor on the others differ, by how much, and what that does to accuracy. The first capture is the "
        "reference.\n"
        "Without a gate every differing bit counts. With gates, all of them must hold for every element.\n"
        "Exit code 0: same or within the gates; 1: differs; 2: trouble; 3: not comparable; 4: inconclusive, "
        "outputs are NaN on both sides; 5: a device had failed.\n"
        "NPUDIFF_CPU=scalar|avx2|avx512|neon in the environment allows no better instructions than these; the "
        "result does not depend on them.",
    .options = options,
    .min_operands = 2,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct compare_values),
    .run = run,
};
