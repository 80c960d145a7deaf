/* A capture: the index as it is, whatever its digests say, every value, and what verify says. */
#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "npudiff/capture/capture.h"

enum { MAX_SAMPLE_BYTES = 1 << 20 };

static void read_values(const struct nd_capture *capture, void *room)
{
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
            const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
            size_t bytes;
            const struct nd_probe_values item = {capture, p, e};
            if (nd_shape_size_bytes(&tensor->shape, tensor->dtype, &bytes, NULL) == ND_OK &&
                bytes <= MAX_SAMPLE_BYTES)
                nd_capture_read_outputs(&item, 0, 1, room, NULL);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_capture *capture = NULL;
    struct nd_capture_verification found = {.struct_size = sizeof found};
    void *room = malloc(MAX_SAMPLE_BYTES);
    if (room != NULL && nd_capture_open_unchecked(fuzz_file("x.h5", data, size), &capture, NULL) == ND_OK) {
        read_values(capture, room);
        nd_capture_verify(capture, &found, NULL);
        nd_capture_close(&capture);
    }
    free(room);
    return 0;
}
