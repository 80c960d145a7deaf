/* Identification of programs of emulated devices; `npudiff explain --identify` does it for captures.
 *
 *     identify_programs list                        the table, one name a line
 *     identify_programs study MODEL SAMPLES PROBE FIRST STEP EPS   devices: programs FIRST, FIRST + STEP, ...
 * of the table on ties and the first SAMPLES of PROBE (a file of inputs), every code of which is one more or
 * less with the probability EPS. One JSON object a line, for every layer, operator type and the device: what is
 * true, what is in the set and how far from the truth it is identify_programs unknown MODEL SAMPLES PROBE EPS
 * the same of devices whose programs are not in the table
 *
 * Exit code 2: something cannot be read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "devices/emulator/emulate.h"
#include "explain/identify/identify.h"
#include "npudiff/record/probe.h"

/* What is known of one tensor. */
struct layer {
    struct nd_wide *steps;
    size_t n_steps;
    bool is_conv, is_layer;
    struct nd_identify_tally tally;
};

struct study {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    size_t n_tensors, n_inputs;
    struct layer *layers;   /* [n_edges] */
    struct nd_array *given; /* [n_edges] */
    struct nd_array *inputs;
    uint64_t sample;
    size_t truth; /* of the table, or SIZE_MAX */
};

static void stop(const struct nd_error *err)
{
    fprintf(stderr, "identify_programs: %s\n", err->message);
    exit(2);
}

/* ---- one sample ---- */

static const size_t half_even = 0;

static size_t truth_of(const struct study *s, size_t tensor)
{
    size_t n;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    if (s->truth != SIZE_MAX && nd_arithmetic_needs_accumulator(&arithmetics[s->truth]) &&
        s->layers[tensor].n_steps == 0)
        return half_even;
    return s->truth;
}

static enum nd_status round_layer(void *context, const struct nd_exact_values *values, struct nd_array *qvalues,
                                  struct nd_error *err)
{
    struct study *s = context;
    struct layer *layer = &s->layers[values->tensor];
    size_t truth = truth_of(s, values->tensor);
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        qvalues->x[i] = nd_qvalue_of_ratio(&values->v[i], (double)values->quant->zero_point[channel],
                                           values->dtype, ND_ROUND_HALF_EVEN);
    }
    if (!layer->is_layer || s->given[values->tensor].n != values->n)
        return ND_OK;
    const struct nd_identify_sample sample = {.values = values,
                                              .given = s->given[values->tensor].x,
                                              .key = s->sample,
                                              .steps = layer->steps,
                                              .n_steps = layer->n_steps,
                                              .is_conv = layer->is_conv,
                                              .against = truth != SIZE_MAX ? truth : half_even};
    return nd_identify_layer(&layer->tally, &sample, err);
}

static enum nd_status let_go(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    (void)context;
    (void)tensor;
    (void)why;
    (void)err;
    return ND_OK;
}

static void examine(struct study *s)
{
    struct nd_error err = {0};
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .round = round_layer, .given = s->given, .missed = let_go};
    if (nd_exact_graph_run(s->graph, s->inputs, &options, NULL, s, &err) != ND_OK)
        stop(&err);
    s->sample++;
}

/* ---- the model ---- */

static void open_model(struct study *s, const char *path)
{
    struct nd_error err = {0};
    if (nd_model_load(path, &s->model, &err) != ND_OK ||
        nd_exact_graph_create(s->model, &s->graph, &err) != ND_OK)
        stop(&err);
    s->n_tensors = nd_model_n_tensors(s->model);
    s->n_inputs = nd_model_n_inputs(s->model);
    s->layers = nd_calloc(s->n_tensors, sizeof *s->layers);
    s->given = nd_calloc(s->n_tensors, sizeof *s->given);
    s->inputs = nd_calloc(s->n_inputs, sizeof *s->inputs);
    if (s->layers == NULL || s->given == NULL || s->inputs == NULL)
        exit(2);
    for (size_t u = 0; u < nd_model_n_layers(s->model); u++)
        s->layers[nd_model_layer(s->model, u)->tensor].is_layer = true;
    for (size_t e = 0; e < s->n_tensors; e++) {
        struct nd_error ignored = {0};
        struct layer *layer = &s->layers[e];
        layer->is_conv = strstr(nd_model_tensor(s->model, e)->op_types, "Conv") != NULL;
        if (layer->is_layer)
            nd_exact_accumulator_steps(s->graph, e, &layer->steps, &layer->n_steps, &ignored);
        s->given[e].shape.rank = -1;
    }
    for (size_t i = 0; i < s->n_inputs; i++) {
        const struct nd_model_io *io = nd_model_input(s->model, i);
        if (nd_array_make(&s->inputs[i], io->dtype, &io->shape, &err) != ND_OK)
            stop(&err);
    }
}

static void close_model(struct study *s)
{
    for (size_t e = 0; e < s->n_tensors; e++) {
        free(s->layers[e].steps);
        if (s->given[e].shape.rank >= 0)
            nd_array_deinit(&s->given[e]);
    }
    for (size_t i = 0; i < s->n_inputs; i++)
        nd_array_deinit(&s->inputs[i]);
    free(s->layers);
    free(s->given);
    free(s->inputs);
    nd_exact_graph_destroy(&s->graph);
    nd_model_destroy(&s->model);
}

/* ---- results ---- */

/* The operator that calculates: what follows it inside the layer is part of it. */
static bool is_same_type(const struct study *s, size_t a, size_t b)
{
    return s->layers[a].is_layer && s->layers[b].is_layer &&
           strcmp(nd_model_tensor(s->model, a)->op_types, nd_model_tensor(s->model, b)->op_types) == 0;
}

/* What is left of a program in all layers of the type, and in their codes together. */
static void decide_type(const struct study *s, size_t first, struct nd_identify_result *out,
                        uint64_t differs[ND_ARITHMETIC_MAX])
{
    const struct nd_identify_tally **tallies = nd_calloc(s->n_tensors, sizeof *tallies);
    struct nd_error err = {0};
    size_t n = 0;
    if (tallies == NULL)
        exit(2);
    for (size_t e = first; e < s->n_tensors; e++) {
        if (!is_same_type(s, first, e))
            continue;
        tallies[n++] = &s->layers[e].tally;
        for (size_t p = 0; p < ND_ARITHMETIC_MAX; p++)
            differs[p] += s->layers[e].tally.n_apart[p];
    }
    if (nd_identify_group(tallies, n, out, &err) != ND_OK)
        stop(&err);
    free(tallies);
}

static const char *const verdicts[] = {"too-few", "none", "several", "single"};

static void say_json(const struct study *s, const char *scope, size_t tensor,
                     const struct nd_identify_result *r, const uint64_t differs[ND_ARITHMETIC_MAX])
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    size_t n, truth = tensor != SIZE_MAX ? truth_of(s, tensor) : s->truth;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    printf("{\"scope\": \"%s\", \"name\": \"%s\", \"truth\": \"%s\", \"verdict\": \"%s\", \"n\": %llu, "
           "\"open\": %llu, \"explained\": ",
           scope, tensor != SIZE_MAX ? nd_model_tensor(s->model, tensor)->name : "",
           truth != SIZE_MAX ? nd_arithmetic_name(&arithmetics[truth], name) : "?", verdicts[r->verdict],
           (unsigned long long)r->n, (unsigned long long)r->n_open);
    if (isnan(r->explained))
        printf("null");
    else
        printf("%.6f", r->explained);
    printf(", \"applies\": %s, \"has_truth\": %s, \"true_class\": [",
           truth != SIZE_MAX && r->is_applicable[truth] ? "true" : "false",
           truth != SIZE_MAX && r->is_possible[truth] ? "true" : "false");
    const char *comma = "";
    for (size_t p = 0; p < n && truth != SIZE_MAX; p++)
        if (r->is_applicable[p] && r->class_of[p] == r->class_of[truth]) {
            printf("%s\"%s\"", comma, nd_arithmetic_name(&arithmetics[p], name));
            comma = ", ";
        }
    printf("], \"set\": {");
    comma = "";
    for (size_t p = 0; p < n; p++)
        if (r->is_applicable[p] && r->is_possible[p]) {
            printf("%s\"%s\": %llu", comma, nd_arithmetic_name(&arithmetics[p], name),
                   (unsigned long long)differs[p]);
            comma = ", ";
        }
    printf("}}\n");
}

static void report(const struct study *s)
{
    struct nd_identify_result *types = nd_calloc(s->n_tensors, sizeof *types);
    size_t n_types = 0;
    uint64_t of_all[ND_ARITHMETIC_MAX] = {0};
    if (types == NULL)
        exit(2);
    for (size_t e = 0; e < s->n_tensors; e++) {
        if (!s->layers[e].is_layer || s->layers[e].tally.n == 0)
            continue;
        struct nd_identify_result result;
        nd_identify_decide(&s->layers[e].tally, &result);
        say_json(s, "unit", e, &result, s->layers[e].tally.n_apart);
    }
    for (size_t e = 0; e < s->n_tensors; e++) {
        bool is_first = s->layers[e].is_layer && s->layers[e].tally.n > 0;
        for (size_t before = 0; before < e && is_first; before++)
            is_first = !is_same_type(s, before, e);
        if (!is_first)
            continue;
        uint64_t differs[ND_ARITHMETIC_MAX] = {0};
        decide_type(s, e, &types[n_types], differs);
        for (size_t p = 0; p < ND_ARITHMETIC_MAX; p++)
            of_all[p] += differs[p];
        say_json(s, "type", e, &types[n_types++], differs);
    }
    struct nd_identify_result device;
    nd_identify_combine(types, n_types, &device);
    say_json(s, "device", SIZE_MAX, &device, of_all);
    free(types);
}

/* ---- emulated devices ---- */

static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct study *s = context;
    if (s->given[tensor].shape.rank < 0)
        s->given[tensor] = (struct nd_array){0};
    return nd_array_copy(values, &s->given[tensor], err);
}

/* The program in every layer, every layer contaminated. */
static void describe(const struct study *s, const char *items, double eps, uint64_t seed,
                     struct nd_emulation *emulation)
{
    struct nd_error err = {0};
    char item[512];
    if (nd_emulation_parse(items, emulation, &err) != ND_OK)
        stop(&err);
    snprintf(item, sizeof item, "seed=%llu", (unsigned long long)seed);
    enum nd_status status = nd_emulation_add(emulation, item, &err);
    for (size_t e = 0; e < s->n_tensors && eps > 0 && status == ND_OK; e++) {
        if (!s->layers[e].is_layer)
            continue;
        snprintf(item, sizeof item, "flip@%s=%g", nd_model_tensor(s->model, e)->name, eps);
        status = nd_emulation_add(emulation, item, &err);
    }
    if (status != ND_OK)
        stop(&err);
}

static void run_samples(struct study *s, struct nd_emulator *emulator, const struct nd_probe *probe,
                        size_t n_samples)
{
    struct nd_error err = {0};
    size_t n = probe->n_samples < n_samples ? probe->n_samples : n_samples;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < s->n_inputs; k++)
            nd_array_load(probe->inputs[k].dtype,
                          (const unsigned char *)probe->inputs[k].data + i * probe->inputs[k].sample_bytes,
                          s->inputs[k].n, s->inputs[k].x);
        if (nd_emulator_run(emulator, s->inputs, keep, s, &err) != ND_OK)
            stop(&err);
        examine(s);
    }
}

static void run_device(struct study *s, const char *items, double eps, uint64_t seed,
                       struct nd_probe *const probes[2], size_t n_samples)
{
    struct nd_error err = {0};
    struct nd_emulation emulation = {0};
    const struct nd_emulator_options options = {.struct_size = sizeof options};
    describe(s, items, eps, seed, &emulation);
    struct nd_emulator *emulator = NULL;
    for (size_t e = 0; e < s->n_tensors; e++)
        s->layers[e].tally = (struct nd_identify_tally){0};
    s->sample = 0;
    if (nd_emulator_create(&emulation, s->model, s->graph, &options, &emulator, &err) != ND_OK)
        stop(&err);
    run_samples(s, emulator, probes[0], SIZE_MAX);
    run_samples(s, emulator, probes[1], n_samples);
    nd_emulator_destroy(&emulator);
    report(s);
    nd_emulation_deinit(&emulation);
}

static void make_probes(const struct study *s, const char *file, struct nd_probe *probes[2])
{
    struct nd_error err = {0};
    char spec[4096];
    struct nd_probe_target *targets = nd_calloc(s->n_inputs, sizeof *targets);
    if (targets == NULL)
        exit(2);
    for (size_t i = 0; i < s->n_inputs; i++) {
        const struct nd_model_io *io = nd_model_input(s->model, i);
        targets[i] = (struct nd_probe_target){.name = io->name,
                                              .dtype = io->dtype,
                                              .shape = io->shape,
                                              .quant = io->quant,
                                              .quant_dtype = io->quant_dtype};
    }
    snprintf(spec, sizeof spec, "digits=%s", file);
    if (nd_probe_create("ties", targets, s->n_inputs, &probes[0], &err) != ND_OK ||
        nd_probe_create(spec, targets, s->n_inputs, &probes[1], &err) != ND_OK)
        stop(&err);
    free(targets);
}

static size_t number(const char *text)
{
    return (size_t)strtoull(text, NULL, 10);
}

/* Programs that are not in the table, some of them between two that are. */
static const char *const unknown[] = {
    "multiplier:8+rounding:half-even",
    "multiplier:7+rounding:floor",
    "granule:6+rounding:half-even",
    "granule:4+half+rounding:floor",
    "multiplier:12+granule:4+half+rounding:half-up",
    "multiplier:9+granule:2+fold-zero+rounding:half-up",
    "fold-zero+rounding:floor",
    "multiplier:11+rounding:floor",
    "multiplier:10+granule:3+rounding:half-up",
    "granule:3+rounding:half-up+saturate:16",
};

static int study(int argc, char **argv)
{
    struct study s = {0};
    struct nd_probe *probes[2] = {NULL};
    char name[ND_ARITHMETIC_NAME_BYTES];
    size_t n;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    bool is_unknown = strcmp(argv[1], "unknown") == 0;
    open_model(&s, argv[2]);
    make_probes(&s, argv[4], probes);
    s.truth = SIZE_MAX;
    double eps = strtod(argv[argc - 1], NULL);
    for (size_t i = 0; is_unknown && i < sizeof unknown / sizeof unknown[0]; i++)
        run_device(&s, unknown[i], eps, i + 1, probes, number(argv[3]));
    for (s.truth = is_unknown ? n : number(argv[5]); s.truth < n; s.truth += number(argv[6])) {
        const struct nd_arithmetic *arithmetic = &arithmetics[s.truth];
        nd_arithmetic_name(arithmetic, name);
        if (strcmp(name, "stochastic") == 0)
            snprintf(name, sizeof name, "stochastic:%zu", s.truth);
        if (strcmp(name, "unrounded-inputs") != 0) /* devices of which are `fuse` */
            run_device(&s, name, eps, s.truth + 1, probes, number(argv[3]));
    }
    nd_probe_destroy(&probes[0]);
    nd_probe_destroy(&probes[1]);
    close_model(&s);
    return 0;
}

static int list(void)
{
    size_t n;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&n);
    char name[ND_ARITHMETIC_NAME_BYTES];
    for (size_t p = 0; p < n; p++)
        printf("%-12s %s\n", nd_arithmetic_family_name(&arithmetics[p]),
               nd_arithmetic_name(&arithmetics[p], name));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return list();
    if ((argc == 8 && strcmp(argv[1], "study") == 0) || (argc == 6 && strcmp(argv[1], "unknown") == 0))
        return study(argc, argv);
    fprintf(stderr, "usage: identify_programs list | "
                    "study MODEL SAMPLES PROBE FIRST STEP EPS | unknown MODEL SAMPLES PROBE EPS\n");
    return 2;
}
