/* What the options of `npudiff compare` come to, and which of them contradict each other. */
#include "cli/options/compare_setup.h"

#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"

int compare_check(const struct compare_values *values)
{
    if (values->cut != NULL && values->part.n_parts == 0)
        return cli_usage_error("compare", "--cut needs --part");
    if (values->part.n_parts > 0 && !values->answer.json)
        return cli_usage_error("compare", "--part needs --json");
    if (values->part.n_parts > 0 && values->merge.n > 0)
        return cli_usage_error("compare", "--part and --merge cannot be given together");
    if (values->part.n_parts > 0 && values->answer.quiet)
        return cli_usage_error("compare", "--part and --quiet cannot be given together");
    if (values->verify_digests && values->trust_digests)
        return cli_usage_error("compare", "--verify-digests and --trust-digests cannot be given together");
    return 0;
}

static enum nd_status parse_gates(const struct compare_values *values, struct nd_gates *gates,
                                  struct nd_error *err)
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

static enum nd_status parse_matrices(const struct compare_values *values, struct compare_setup *setup,
                                     struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < values->matrices.n; i++)
        status = nd_matrix_parse(values->matrices.items[i], &setup->matrices[i], err);
    return status;
}

static void fill_options(const struct compare_values *values, struct nd_compare_options *options)
{
    const char *cpu_cap = getenv("NPUDIFF_CPU");
    options->tensors = values->tensors;
    options->probes = values->probes.items;
    options->n_probes = values->probes.n;
    options->allow_different_models = values->different_models;
    options->all_pairs = values->all_pairs || values->matrices.n > 0;
    options->verify_digests = values->verify_digests;
    options->trust_digests = values->trust_digests;
    if (values->ulp_in != NULL)
        options->ulp_in = nd_dtype_from_name(values->ulp_in);
    if (values->worst.is_given)
        options->n_worst = (size_t)values->worst.value;
    options->per_channel = values->channel_axis.is_given;
    options->channel_axis = (int)values->channel_axis.value;
    options->n_threads = values->n_threads;
    options->memory_bytes = values->memory_mib << 20;
    options->cpu_cap = cpu_cap != NULL && cpu_cap[0] != '\0' ? cpu_cap : NULL;
    if (values->part.n_parts > 0) {
        options->part = values->part.part;
        options->n_parts = values->part.n_parts;
        bool is_by_tensor = values->cut != NULL && strcmp(values->cut, "tensors") == 0;
        options->cut = is_by_tensor ? ND_CUT_TENSORS : ND_CUT_SAMPLES;
    }
}

enum nd_status compare_setup_init(const struct compare_values *values, struct compare_setup *out,
                                  struct nd_error *err)
{
    *out = (struct compare_setup){.options = nd_compare_options_default()};
    enum nd_status status = nd_gates_create(&out->gates, err);
    if (status == ND_OK)
        status = parse_gates(values, out->gates, err);
    if (status != ND_OK)
        return status;
    out->matrices = calloc(values->matrices.n + 1, sizeof *out->matrices);
    if (out->matrices == NULL)
        return cli_memory_error(err);
    status = parse_matrices(values, out, err);
    if (status == ND_OK && values->merge.n > 0)
        status = nd_parts_read(values->merge.items, values->merge.n, &out->parts, err);
    fill_options(values, &out->options);
    out->options.gates = out->gates;
    out->options.merge = out->parts;
    return status;
}

void compare_setup_deinit(struct compare_setup *setup)
{
    nd_parts_destroy(&setup->parts);
    nd_gates_destroy(&setup->gates);
    free(setup->matrices);
    *setup = (struct compare_setup){0};
}
