/* A part of an explanation of golden/models/mul.u8.onnx that another machine has made: as it is, and with the
 * digest made right, so that what lies behind it is read. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "fuzz/fuzz.h"
#include "npudiff/explain/explain.h"

enum { N_CAPTURES = 2 };

static struct nd_model *model;
static struct nd_capture *captures[N_CAPTURES];

static void open_all(void)
{
    static const char *const paths[N_CAPTURES] = {GOLDEN "/fuzz/capture/exact.h5",
                                                  GOLDEN "/fuzz/explanation/floor.h5"};
    if (model != NULL)
        return;
    for (size_t i = 0; i < N_CAPTURES; i++)
        if (nd_capture_open(paths[i], &captures[i], NULL) != ND_OK)
            abort();
    if (nd_model_load(GOLDEN "/models/mul.u8.onnx", &model, NULL) != ND_OK)
        abort();
}

static void merge(const char *path)
{
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .n_output_effect_samples = 2, /* as the part has */
                                               .n_threads = 1,
                                               .merge = &path,
                                               .n_merge = 1};
    struct nd_explanation *explanation = NULL;
    nd_explain(model, NULL, (const struct nd_capture *const *)captures, N_CAPTURES, &options, &explanation,
               NULL);
    nd_explanation_destroy(&explanation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_all();
    merge(fuzz_file("x.json", data, size));
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_is_object(root) && nd_json_stamp(root, NULL) == ND_OK ? json_dumps(root, 0) : NULL;
    if (text != NULL)
        merge(fuzz_file("x.json", (const uint8_t *)text, strlen(text)));
    free(text);
    json_decref(root);
    return 0;
}
