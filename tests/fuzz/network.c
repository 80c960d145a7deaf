/* What commands do with a model beyond loading it: its values in exact arithmetic and on two twins, lint, and
 * another quantisation. */
#include "arithmetic/trials/twin.h"
#include "core/memory.h"
#include "fuzz/fuzz.h"
#include "fuzz/small_model.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/lint.h"

#include <stdio.h>

static void be_twin(const struct small_model *small, const struct nd_exact_graph *graph, const char *arch,
                    bool is_hidden)
{
    struct nd_twin_chip chip;
    struct nd_twin *twin = NULL;
    bool *hidden = nd_calloc(nd_model_n_tensors(small->model), sizeof *hidden);
    for (size_t e = 0; hidden != NULL && e < nd_model_n_tensors(small->model); e++)
        hidden[e] = is_hidden;
    if (hidden != NULL && nd_twin_chip_of(arch, ND_TWIN_NEWEST_SDK, &chip) &&
        nd_twin_create(small->model, graph, &chip, hidden, &twin, NULL) == ND_OK)
        nd_twin_run(twin, small->inputs, NULL, NULL, NULL);
    nd_twin_destroy(&twin);
    free(hidden);
}

static void evaluate(const struct small_model *small)
{
    struct nd_exact_graph *graph = NULL;
    if (nd_exact_graph_create(small->model, &graph, NULL) != ND_OK)
        return;
    nd_exact_graph_run(graph, small->inputs, NULL, NULL, NULL, NULL);
    be_twin(small, graph, "v69", false);
    be_twin(small, graph, "v81", true);
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
