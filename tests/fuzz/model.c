/* An ONNX model: loading does parsing, layers, shapes and constants. */
#include "npudiff/model/model.h"
#include "fuzz/fuzz.h"
#include "npudiff/model/encodings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_model *model = NULL;
    struct nd_encodings *encodings = NULL;
    if (nd_model_load(fuzz_file("x.onnx", data, size), &model, NULL) != ND_OK)
        return 0;
    if (nd_encodings_of_model(model, &encodings, NULL) == ND_OK)
        nd_encodings_destroy(&encodings);
    nd_model_destroy(&model);
    return 0;
}
