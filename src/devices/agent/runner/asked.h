/* The tensors that a runner is asked for, and what it answers, checked against that. */
#pragma once

#include <stdbool.h>

#include "devices/agent/runner/connection.h"
#include "devices/agent/runtime/runtime.h"
#include "npudiff/core/tensor.h"

/* ---- floats of a device that are quantised values of a tensor, as real numbers ---- */

/* Values that are no code: between two steps, beyond the type's range, or NaN. */
struct nd_off_grid {
    size_t n;
    double largest; /* distance of the worst one from its nearest code, in steps; infinite for NaN */
};

/* A tensor as it came, and the codes that are asked for. */
struct nd_runner_grid {
    const struct nd_quant *quant; /* n >= 1 */
    const struct nd_shape *shape;
    enum nd_dtype from; /* float16, float32 or float64 */
    enum nd_dtype to;   /* an integer type */
};

struct nd_asked {
    char *name;
    enum nd_dtype dtype;    /* ND_DTYPE_NONE: any */
    struct nd_shape shape;  /* rank -1: any */
    struct nd_quant quant;  /* n 0: not quantised */
    const char *missing;    /* why it cannot be had; NULL: it can. Borrowed from the answer to the job */
    unsigned char *qvalues; /* of floats that lie on its steps */
    size_t capacity;
    bool has_come;          /* in the answer at hand */
    struct nd_off_grid off; /* over all answers */
    size_t n_values;        /* that came as floats, over all answers */
};
void nd_asked_deinit(struct nd_asked *asked);

/* Of the job's description of a tensor: {"name", "type", "shape", "scale", "zero_point", "axis"}, where all but
 * the name may be missing. ND_E_RUNNER_PROTOCOL: it is not understood. The caller frees *out, also after a
 * failure. */
enum nd_status nd_asked_read(const json_t *description, struct nd_asked *out, struct nd_error *err);

/* The most bytes that an answer with all of them may have. */
uint64_t nd_asked_max_bytes(const struct nd_asked *asked, size_t n);

/* How values are taken over. */
struct nd_answer_rules {
    const char *runner;
    bool rounds_off_grid; /* a float between the steps becomes the nearest code; else it is an error */
};

/* Checks the frame's tensors ({"outputs": [{"name", "type", "shape"}]} and their bytes one after the other) and
 * fills a view for each tensor that was asked for. Views point into the frame or into `asked`.
 * ND_E_RUNNER_PROTOCOL: another name, type, shape or size, one twice or one too few; ND_E_RUNNER_GRID: floats
 * that are no codes. */
enum nd_status nd_answer_take(const struct nd_frame *frame, const struct nd_answer_rules *rules,
                              struct nd_asked *asked, size_t n_asked, struct nd_output_view *views,
                              struct nd_error *err);
