/* .npy, and .npz with all its arrays. */
#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "record/probes/npz.h"

enum { MAX_BYTES = 16 << 20 };

static void read_array(struct nd_source *source)
{
    struct nd_npy npy;
    char text[256];
    if (nd_npy_open(source, &npy, NULL) != ND_OK)
        return;
    nd_npy_format_shape(&npy, text, sizeof text);
    nd_npy_format_dtype(&npy, text, sizeof text);
    void *out = npy.dtype != ND_DTYPE_NONE && npy.size_bytes <= MAX_BYTES ? malloc(npy.size_bytes + 1) : NULL;
    if (out != NULL)
        nd_npy_read(source, &npy, out, NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_source source;
    struct nd_npz *npz = NULL;
    const char *path = fuzz_file("x.npz", data, size);
    if (nd_source_open(&source, path, NULL) == ND_OK) {
        read_array(&source);
        nd_source_close(&source);
    }
    if (nd_npz_open(path, &npz, NULL) != ND_OK)
        return 0;
    for (size_t i = 0; i < nd_npz_n_arrays(npz); i++)
        if (nd_npz_source(npz, i, &source, NULL) == ND_OK) {
            read_array(&source);
            nd_source_close(&source);
        }
    nd_npz_close(&npz);
    return 0;
}
