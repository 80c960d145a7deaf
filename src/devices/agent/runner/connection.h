/* A runner at work: the program, and what is said to it and by it. */
#ifndef ND_RUNNER_CONNECTION_H
#define ND_RUNNER_CONNECTION_H

#include <sys/types.h>

#include "devices/agent/runner/frame.h"
#include "devices/agent/runtime/runtime.h"

enum { ND_RUNNER_PROTOCOL = 1 };

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

/* Says it, and reads the answer, whose "message" must be `answer`; what the runner logs before goes to
 * talk->log. The answer is in talk->frame. doing: "load the model", for messages. ND_E_RUNNER_REPORT: the
 * runner reports an error of its own; ND_E_RUNNER_PROTOCOL: it says something else, or more than max_data_bytes
 * of data; ND_E_DEVICE_CRASH: it has ended. */
struct nd_runner_question {
    const json_t *message;
    const struct nd_frame_part *parts;
    size_t n_parts;
    const char *answer;
    uint64_t max_data_bytes;
    int timeout_ms; /* for the answer; 0: none */
    const char *doing;
};
enum nd_status nd_runner_ask(struct nd_runner_connection *connection, const struct nd_runner_question *question,
                             struct nd_error *err);

/* Closes its input, and waits for it to leave by itself. ND_E_RUNNER_PROTOCOL: it does not, or not with exit
 * code 0. */
enum nd_status nd_runner_leave(struct nd_runner_connection *connection, struct nd_error *err);

/* The text of that key in what it said last; "" where there is none. Borrowed. */
const char *nd_runner_text(const json_t *object, const char *key);

#endif
