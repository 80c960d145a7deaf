/* An entry of a golden store, and a bundle: both are records of a capture as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "core/files/file.h"
#include "fuzz/fuzz.h"
#include "npudiff/judge/judge.h"

static struct nd_golden *open_store(void)
{
    struct nd_golden *store = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/store", fuzz_folder());
    return nd_golden_open(path, true, &store, NULL) == ND_OK ? store : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char entry[] =
        "store/entries/454d00b4e0d540940482d0ab229253c47fcfae61b66f57b7e93bb989834a8b82.json";
    struct nd_triage triage;
    struct nd_golden *store = open_store();
    nd_golden_close(&store);
    char path[4096];
    snprintf(path, sizeof path, "%s/store/entries", fuzz_folder());
    if (nd_dir_make(path, NULL) != ND_OK)
        abort();
    fuzz_file(entry, data, size);
    store = open_store();
    if (store == NULL)
        return 0;
    for (size_t i = 0; i < nd_golden_n_problems(store); i++)
        nd_golden_problem(store, i);
    if (nd_triage(store, fuzz_file("bundle.json", data, size), &triage, NULL) == ND_OK)
        nd_triage_deinit(&triage);
    nd_golden_close(&store);
    return 0;
}
