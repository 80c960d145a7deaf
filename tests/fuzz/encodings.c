/* JSON of AIMET and of QNN's tools. */
#include "npudiff/model/encodings.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_encodings *encodings = NULL;
    if (nd_encodings_read(fuzz_file("x.encodings", data, size), &encodings, NULL) == ND_OK)
        nd_encodings_destroy(&encodings);
    return 0;
}
