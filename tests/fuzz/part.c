/* What earlier tasks of a campaign left: the statistics of a comparison, and what a task took. */
#include "fuzz/fuzz.h"
#include "judge/task.h"
#include "npudiff/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_parts *parts = NULL;
    struct nd_took_list took = {0};
    const char *path = fuzz_file("x.took", data, size);
    if (nd_parts_read(&path, 1, &parts, NULL) == ND_OK)
        nd_parts_destroy(&parts);
    nd_took_read_folder(fuzz_folder(), &took, NULL);
    nd_took_list_deinit(&took);
    return 0;
}
