/* What a runner sends: frames, one after the other, until one is not whole. */
#include <stdlib.h>
#include <unistd.h>

#include "devices/agent/runner/connection.h"
#include "fuzz/fuzz.h"

enum { MAX_BYTES = 60000, MAX_DATA_BYTES = 1 << 20 }; /* a pipe holds 64 KiB */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    struct nd_frame frame = {0};
    char problem[ND_FRAME_PROBLEM_BYTES];
    size = size < MAX_BYTES ? size : MAX_BYTES;
    if (pipe(ends) != 0 || write(ends[1], data, size) != (ssize_t)size)
        abort();
    close(ends[1]);
    while (nd_frame_read(ends[0], ND_FRAME_NO_END, MAX_DATA_BYTES, &frame, problem) == ND_FRAME_WHOLE)
        ;
    close(ends[0]);
    nd_frame_deinit(&frame);
    return 0;
}
