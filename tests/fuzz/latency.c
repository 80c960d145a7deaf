/* Lists of latencies: text, CSV, JSON, NumPy. */
#include "npudiff/compare/latency.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const columns[] = {NULL, "latency"};
    struct nd_latency_list list;
    const char *path = fuzz_file("x.csv", data, size);
    for (int i = 0; i < 2; i++)
        if (nd_latency_read(path, columns[i], "ms", &list, NULL) == ND_OK)
            nd_latency_list_deinit(&list);
    return 0;
}
