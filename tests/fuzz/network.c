/* What commands do with a model beyond loading it: its values in exact arithmetic and in that of two NPUs,
 * lint, and another quantisation. */
#include "devices/emulator/emulate.h"
#include "fuzz/fuzz.h"
#include "fuzz/small_model.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/lint.h"

#include <stdio.h>

static enum nd_status ignore(void *context, size_t tensor, const struct nd_array *values,
                             enum nd_exact_method method, struct nd_error *err)
{
    (void)context;
    (void)tensor;
    (void)values;
    (void)method;
    (void)err;
    return ND_OK;
}

static void emulate(const struct small_model *small, const struct nd_exact_graph *graph, const char *arithmetic)
{
    struct nd_emulation emulation = {0};
    struct nd_emulator *emulator = NULL;
    const struct nd_emulator_options options = {.struct_size = sizeof options};
    if (nd_emulation_parse(arithmetic, &emulation, NULL) != ND_OK)
        return;
    if (nd_emulator_create(&emulation, small->model, graph, &options, &emulator, NULL) == ND_OK)
        nd_emulator_run(emulator, small->inputs, ignore, NULL, NULL);
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
}

static void evaluate(const struct small_model *small)
{
    struct nd_exact_graph *graph = NULL;
    if (nd_exact_graph_create(small->model, &graph, NULL) != ND_OK)
        return;
    nd_exact_graph_run(graph, small->inputs, NULL, NULL, NULL, NULL);
    emulate(small, graph, "htp-v69");
    emulate(small, graph, "htp-v73");
    nd_exact_graph_destroy(&graph);
}

static void lint(const struct small_model *small, const char *output)
{
    struct nd_lint_options options;
    struct nd_lint *found = NULL;
    nd_lint_options_init(&options);
    options.output = output;
    options.replace = true;
    nd_lint_model(small->model, &options, &found, NULL);
    nd_lint_destroy(&found);
}

static void align(const struct small_model *small, const char *output, const char *certificate)
{
    struct nd_align_options options;
    struct nd_alignment *alignment = NULL;
    nd_align_options_init(&options);
    options.output = output;
    options.certificate = certificate;
    options.replace = true;
    options.n_threads = 1;
    nd_align(small->model, &options, &alignment, NULL);
    nd_alignment_destroy(&alignment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct small_model small;
    char output[4096], certificate[4096];
    snprintf(output, sizeof output, "%s/out.onnx", fuzz_folder());
    snprintf(certificate, sizeof certificate, "%s/out.json", fuzz_folder());
    if (small_model_open(&small, data, size)) {
        evaluate(&small);
        lint(&small, output);
        align(&small, output, certificate);
    }
    small_model_close(&small);
    return 0;
}
