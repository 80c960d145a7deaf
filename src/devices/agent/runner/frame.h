/* What npudiff and a runner say to each other, one frame after the other (docs/reference/runner.md):
 *
 *   "NDR1" | bytes of the JSON u32 | bytes of the data u64 | JSON object | data         all little endian
 */
#ifndef ND_RUNNER_FRAME_H
#define ND_RUNNER_FRAME_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

/* Chosen: a model of 100 000 tensors fits. */
enum { ND_FRAME_MAX_JSON_BYTES = 64 << 20 };

/* A frame that was read, and the room for the next one's data. Zeroed is empty. */
struct nd_frame {
    json_t *message;
    unsigned char *data;
    size_t data_bytes, capacity;
};
void nd_frame_deinit(struct nd_frame *frame);

/* Data that goes with a message; borrowed. */
struct nd_frame_part {
    const void *data;
    size_t n_bytes;
};

/* Why a frame could not be written or read. */
enum nd_frame_end {
    ND_FRAME_WHOLE,
    ND_FRAME_CLOSED,   /* the other side is gone, before the frame or in it */
    ND_FRAME_LATE,     /* it did not come within the time */
    ND_FRAME_RUBBISH,  /* these bytes are no frame; `problem` has the first of them, printable */
    ND_FRAME_JSON,     /* the message is not JSON, or no object; `problem` says where */
    ND_FRAME_TOO_MUCH, /* it announces more than it may have; `problem` says how much */
    ND_FRAME_MEMORY,
};
enum { ND_FRAME_PROBLEM_BYTES = 200 };

/* A time of nd_clock_ns that never comes. */
#define ND_FRAME_NO_END UINT64_MAX

/* Reads one frame into `frame`, in place of what it held. Until end_ns, of nd_clock_ns, it has to be whole. */
enum nd_frame_end nd_frame_read(int fd, uint64_t end_ns, uint64_t max_data_bytes, struct nd_frame *frame,
                                char problem[ND_FRAME_PROBLEM_BYTES]);

#endif
