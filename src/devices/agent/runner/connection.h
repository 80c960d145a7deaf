/* What npudiff and a runner say to each other, one frame after the other (docs/reference/runner.md):
 *
 *   "NDR1" | bytes of the JSON u32 | bytes of the data u64 | JSON object | data         all little endian */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "devices/agent/runtime/runtime.h"

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

/* Why a frame could not be read. */
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

/* ---- a runner at work: the program, and what is said to it and by it ---- */

enum { ND_RUNNER_PROTOCOL = 2 };

struct nd_runner_connection {
    char *name; /* of the runner, as messages call it */
    pid_t pid;  /* 0: none */
    int to, from;
    struct nd_frame frame; /* what it said last */
    nd_runtime_log log;    /* nullable */
    void *log_context;
    int log_severity;
    const char *folder; /* it works there; NULL: where this process does. Borrowed */
    bool is_quiet;      /* what it prints is dropped; else it goes where this process prints its errors */
};

/* Starts the program and reads its "hello", which is in talk->frame then. ND_E_RUNNER_START: it cannot be
 * started; ND_E_RUNNER_PROTOCOL: it says nothing, something else, or speaks another version. talk->log*, folder
 * and is_quiet are set by the caller. The caller ends it with nd_runner_end, also after a failure. */
enum nd_status nd_runner_start(struct nd_runner_connection *connection, const char *path, struct nd_error *err);
void nd_runner_end(struct nd_runner_connection *connection);

/* Says it, and reads the answer, whose "message" must be `answer`, and whose "sample" and "repeat" those of the
 * question, where it has them; what the runner logs before goes to
 * talk->log. The answer is in talk->frame. doing: "load the model", for messages. ND_E_RUNNER_REPORT: the
 * runner reports an error of its own; ND_E_RUNNER_PROTOCOL: it says something else, or more than max_data_bytes
 * of data; ND_E_DEVICE_CRASH: it has ended. */
struct nd_runner_question {
    const json_t *message;
    const struct nd_frame_part *parts;
    size_t n_parts;
    const char *answer;
    uint64_t max_data_bytes;
    int timeout_ms; /* for the question and its answer; 0: none */
    const char *doing;
};
enum nd_status nd_runner_ask(struct nd_runner_connection *connection, const struct nd_runner_question *question,
                             struct nd_error *err);

/* Closes its input, and waits until it leaves. ND_E_RUNNER_PROTOCOL: it does not, or not with exit code 0. */
enum nd_status nd_runner_leave(struct nd_runner_connection *connection, struct nd_error *err);

/* The text of that key in what it said last; "" where there is none. Borrowed. */
const char *nd_runner_text(const json_t *object, const char *key);
