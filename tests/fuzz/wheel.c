/* A wheel or AAR that is added as a runtime. */
#include <stdlib.h>

#include "core/files/file.h"
#include "fuzz/fuzz.h"
#include "npudiff/devices/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *report = NULL;
    char *runtimes = nd_path_join(fuzz_folder(), "runtimes");
    const struct nd_runtime_adding how = {.struct_size = sizeof how, .id = "x-1"};
    const char *const sources[] = {fuzz_file("x-1.0-py3-none-any.whl", data, size)};
    setenv("NPUDIFF_RUNTIMES", runtimes, 1);
    if (nd_runtimes_add(sources, 1, &how, &report, NULL) == ND_OK)
        free(report);
    nd_dir_remove(runtimes);
    free(runtimes);
    return 0;
}
