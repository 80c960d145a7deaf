#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "npudiff/report.h"

struct values {
    struct cli_list bitwise, lsb, ulp, atol, rtol;
    bool different_models;
    bool all_edges;
    size_t width;
    bool json;
    bool quiet;
};

static enum nd_status parse_gates(const struct values *values, struct nd_gates *gates, struct nd_error *err)
{
    const struct {
        enum nd_gate_kind kind;
        const struct cli_list *texts;
    } lists[] = {{ND_GATE_BITWISE, &values->bitwise},
                 {ND_GATE_LSB, &values->lsb},
                 {ND_GATE_ULP, &values->ulp},
                 {ND_GATE_ATOL, &values->atol},
                 {ND_GATE_RTOL, &values->rtol}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (size_t k = 0; status == ND_OK && k < lists[i].texts->n; k++)
            status = nd_gates_parse(gates, lists[i].kind, lists[i].texts->items[k], err);
    return status;
}

static enum nd_status open_all(const char *const *paths, size_t n, struct nd_capture **captures,
                               struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = nd_capture_open(paths[i], &captures[i], err);
    return status;
}

static enum nd_status print(const struct values *values, const struct nd_comparison *comparison,
                            struct nd_error *err)
{
    const struct nd_report_options options = {
        .struct_size = sizeof options, .all_edges = values->all_edges, .width = values->width};
    char *text = NULL;
    enum nd_status status = values->json ? nd_report_json(comparison, &text, err)
                                         : nd_report_text(comparison, &options, &text, err);
    if (status == ND_OK)
        fputs(text, stdout);
    free(text);
    return status;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_gates *gates = NULL;
    struct nd_comparison *comparison = NULL;
    struct nd_capture **captures = calloc(n_operands, sizeof(struct nd_capture *));
    if (captures == NULL)
        return ND_EXIT_TROUBLE;
    enum nd_status status = nd_gates_create(&gates, &err);
    if (status == ND_OK)
        status = parse_gates(values, gates, &err);
    if (status == ND_OK)
        status = open_all(operands, n_operands, captures, &err);
    const struct nd_compare_options options = {
        .struct_size = sizeof options, .allow_different_models = values->different_models, .gates = gates};
    if (status == ND_OK)
        status = nd_compare_captures((const struct nd_capture *const *)captures, n_operands, &options,
                                     &comparison, &err);
    if (status == ND_OK && !values->quiet)
        status = print(values, comparison, &err);
    int exit_code = status == ND_OK ? (int)nd_verdict_exit_code(comparison->verdict) : cli_report_error(&err);
    nd_comparison_destroy(&comparison);
    for (size_t i = 0; i < n_operands; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    nd_gates_destroy(&gates);
    return exit_code;
}

#define GATE(gate, what)                                                                                       \
    {                                                                                                          \
        .name = #gate, .kind = CLI_LIST, .offset = offsetof(struct values, gate), .argument = "N[,NAME:N...]", \
        .help = what                                                                                           \
    }

static const struct cli_option options[] = {
    {.name = "bitwise",
     .kind = CLI_OPTIONAL,
     .offset = offsetof(struct values, bitwise),
     .argument = "[=NAME,...]",
     .help = "gate: not one bit may differ, in any tensor or in those of that name or pattern"},
    GATE(lsb, "gate for codes: at most N steps apart; NAME:N is for the tensors of that name or pattern"),
    GATE(ulp, "gate for floats: at most N floats apart"),
    GATE(atol, "gate: |test - ref| <= atol + rtol * |ref|, in real units"),
    GATE(rtol, "gate: see --atol"),
    {.name = "allow-different-models",
     .kind = CLI_FLAG,
     .offset = offsetof(struct values, different_models),
     .help = "compare captures of different model files"},
    {.name = "all",
     .letter = 'a',
     .kind = CLI_FLAG,
     .offset = offsetof(struct values, all_edges),
     .help = "list bit-equal edges too, and never cut a list"},
    {.name = "width",
     .kind = CLI_NUMBER,
     .offset = offsetof(struct values, width),
     .argument = "N",
     .help = "columns of the text (120)",
     .min = 80,
     .max = 1000},
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(struct values, json), .help = "print JSON"},
    {.name = "quiet",
     .letter = 'q',
     .kind = CLI_FLAG,
     .offset = offsetof(struct values, quiet),
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
        "Exit code 0: same or within the gates; 1: differs; 2: trouble; 3: not comparable; 5: a device had "
        "failed.",
    .options = options,
    .min_operands = 2,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
