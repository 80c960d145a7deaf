/* The profiles of ONNX Runtime (JSON) and of Qualcomm's provider (CSV). */
#include "compare/placement/profiles.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_qnn_csv csv;
    struct nd_ort_profile profile;
    if (nd_qnn_csv_read("x.csv", (const char *)data, size, &csv, NULL) == ND_OK)
        nd_qnn_csv_deinit(&csv);
    if (nd_ort_profile_read("x.json", (const char *)data, size, &profile, NULL) == ND_OK)
        nd_ort_profile_deinit(&profile);
    return 0;
}
