/* The outputs of the untouched model against those that a capture recorded. docs/science/theory.md#observer. */
#include "record/sessions/untouched.h"

#include <math.h>

#include "arithmetic/operators/array.h"
#include "capture/read/environment.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* Of one output, over all samples. */
struct nd_untouched_output {
    size_t n_values, n_differing, n_samples, n_changed;
    double largest; /* steps of a quantised output, else the difference itself */
    size_t counted; /* 1 + the sample that was counted last: pieces of one sample follow one another */
    bool is_changed;
};

enum nd_status nd_untouched_open(const char *path, const struct nd_tensor *tensors, size_t n_tensors,
                                 size_t n_samples, struct nd_untouched *out, struct nd_error *err)
{
    ND_CLEANUP(nd_untouched_deinit)
    struct nd_untouched opened = {.tensors = tensors,
                                  .n_tensors = n_tensors,
                                  .n_samples = n_samples,
                                  .outputs = nd_calloc(n_tensors, sizeof *opened.outputs),
                                  .samples = nd_calloc(n_samples, 1)};
    ND_TRY_MEMORY(opened.outputs != NULL && opened.samples != NULL, err);
    ND_TRY(nd_capture_open(path, &opened.capture, err));
    *out = opened;
    opened = (struct nd_untouched){0};
    return ND_OK;
}

void nd_untouched_deinit(struct nd_untouched *untouched)
{
    nd_capture_close(&untouched->capture);
    ND_FREE_ALL(untouched->outputs, untouched->samples, untouched->raw);
    *untouched = (struct nd_untouched){0};
}

static bool repeats_itself(const struct nd_probe_values *place, size_t sample)
{
    const struct nd_digest first = nd_capture_digest(place->capture, place->probe, place->tensor, sample, 0);
    bool is_same = true;
    for (size_t r = 1; r < nd_capture_n_runs(place->capture, place->probe, place->tensor, sample); r++)
        is_same = is_same && nd_digest_equal(first, nd_capture_digest(place->capture, place->probe,
                                                                      place->tensor, sample, r));
    return is_same;
}

/* The sample of the untouched run, in untouched->raw. *is_there is false where it has none to compare with: of
 * another shape, or neither of the same type nor floats of quantised values with one scale. */
static enum nd_status read_sample(struct nd_untouched *untouched, const struct nd_untouched_piece *piece,
                                  const struct nd_tensor **theirs, bool *is_there, struct nd_error *err)
{
    const struct nd_tensor *mine = &untouched->tensors[piece->tensor];
    const struct nd_capture *capture = untouched->capture;
    struct nd_probe_values place = {capture, nd_capture_find_probe(capture, piece->probe),
                                    nd_capture_find_tensor(capture, mine->name)};
    size_t n_bytes = 0;
    *is_there = false;
    if (place.probe == SIZE_MAX || place.tensor == SIZE_MAX ||
        piece->sample >= nd_capture_probe(capture, place.probe)->n_samples)
        return ND_OK;
    *theirs = nd_capture_tensor(capture, place.tensor);
    bool is_alike =
        (*theirs)->dtype == mine->dtype ||
        (nd_dtype_is_integer(mine->dtype) && nd_dtype_is_float((*theirs)->dtype) && mine->quant.n == 1);
    if (!is_alike || !nd_shape_equal(&(*theirs)->shape, &mine->shape))
        return ND_OK;
    *is_there = true;
    if (piece->offset_bytes > 0) /* it is read already */
        return ND_OK;
    untouched->is_unsteady = untouched->is_unsteady || !repeats_itself(&place, piece->sample);
    ND_TRY(nd_shape_size_bytes(&mine->shape, (*theirs)->dtype, &n_bytes, err));
    if (n_bytes > untouched->raw_bytes) {
        free(untouched->raw);
        untouched->raw = nd_calloc(n_bytes, 1);
        ND_TRY_MEMORY(untouched->raw != NULL, err);
        untouched->raw_bytes = n_bytes;
    }
    return nd_capture_read_outputs(&place, piece->sample, 1, untouched->raw, err);
}

/* Floats of the untouched model stand for the quantised values nearest to them. */
static double difference_of(const struct nd_tensor *mine, bool is_same_type, double a, double b)
{
    if (!is_same_type)
        b = rint(b / (double)mine->quant.scale[0]) + (double)mine->quant.zero_point[0];
    bool is_equal = a == b || (isnan(a) && isnan(b));
    return is_equal ? 0 : isnan(a - b) ? (double)INFINITY : fabs(a - b);
}

enum nd_status nd_untouched_compare(struct nd_untouched *untouched, const struct nd_untouched_piece *piece,
                                    struct nd_error *err)
{
    enum { BLOCK = 512 };
    double a[BLOCK], b[BLOCK];
    struct nd_untouched_output *output = &untouched->outputs[piece->tensor];
    const struct nd_tensor *mine = &untouched->tensors[piece->tensor], *theirs = NULL;
    bool is_there;
    if (untouched->capture == NULL || !mine->is_model_output)
        return ND_OK;
    ND_TRY(read_sample(untouched, piece, &theirs, &is_there, err));
    if (!is_there)
        return ND_OK;
    size_t mine_bytes = nd_dtype_size_bytes(mine->dtype), their_bytes = nd_dtype_size_bytes(theirs->dtype);
    size_t n = piece->n_bytes / mine_bytes, first = piece->offset_bytes / mine_bytes,
           n_before = output->n_differing;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t n_block = n - i < BLOCK ? n - i : BLOCK;
        nd_array_load(mine->dtype, (const char *)piece->bytes + i * mine_bytes, n_block, a);
        nd_array_load(theirs->dtype, untouched->raw + (first + i) * their_bytes, n_block, b);
        for (size_t k = 0; k < n_block; k++) {
            double difference = difference_of(mine, theirs->dtype == mine->dtype, a[k], b[k]);
            output->n_differing += difference > 0;
            output->largest = fmax(output->largest, difference);
        }
    }
    unsigned char *state = &untouched->samples[piece->first_sample + piece->sample];
    size_t number = piece->first_sample + piece->sample + 1;
    bool is_new = output->counted != number, is_changed = output->n_differing > n_before;
    output->n_values += n;
    output->n_samples += is_new;
    output->n_changed += is_changed && (is_new || !output->is_changed);
    output->is_changed = is_changed || (!is_new && output->is_changed);
    output->counted = number;
    *state = is_changed || *state == 2 ? 2 : 1;
    return ND_OK;
}

/* ---- what came out ---- */

static bool add_lines(const struct nd_untouched *untouched, struct nd_strbuf *out)
{
    enum { MAX_TEXT = 60000 }; /* a text that is stored with a file has at most 64 KiB */
    for (size_t e = 0; e < untouched->n_tensors && out->len < MAX_TEXT; e++) {
        const struct nd_untouched_output *output = &untouched->outputs[e];
        if (output->n_differing == 0)
            continue;
        nd_strbuf_printf(out, "%s%s\t%zu of %zu values differ in %zu of %zu samples, by at most %.6g%s",
                         out->len > 0 ? "\n" : "", untouched->tensors[e].name, output->n_differing,
                         output->n_values, output->n_changed, output->n_samples, output->largest,
                         nd_dtype_is_integer(untouched->tensors[e].dtype) ? " LSB" : "");
    }
    return !out->failed;
}

enum nd_status nd_untouched_write(const struct nd_untouched *untouched, const char *why,
                                  struct nd_capture_writer *writer, bool *is_changed, struct nd_error *err)
{
    static const char unsteady[] = "the device gives other values in each run";
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf lines = {0};
    ND_CLEANUP(nd_attr_list_deinit) struct nd_attr_list attrs = {0};
    size_t n_compared = 0, n_changed = 0;
    for (size_t i = 0; i < untouched->n_samples; i++) {
        n_compared += untouched->samples[i] > 0;
        n_changed += untouched->samples[i] == 2;
    }
    ND_TRY_MEMORY(add_lines(untouched, &lines), err);
    why = why == NULL && untouched->is_unsteady && n_changed > 0 ? unsteady : why;
    *is_changed = why != NULL || n_changed > 0;
    bool is_whole = why == NULL || nd_attr_list_add_text(&attrs, "runtime", "untouched_unknown", why);
    if (why == NULL && n_compared > 0)
        is_whole =
            nd_attr_list_add_number(&attrs, "runtime", "untouched_samples", (int64_t)n_compared) &&
            nd_attr_list_add_number(&attrs, "runtime", "untouched_changed", (int64_t)n_changed) &&
            (n_changed == 0 || nd_attr_list_add_text(&attrs, "runtime", "untouched_differs", lines.text));
    ND_TRY_MEMORY(is_whole, err);
    for (size_t i = 0; i < attrs.n; i++)
        ND_TRY(nd_capture_writer_attr(writer, &attrs.attrs[i], err));
    return ND_OK;
}
