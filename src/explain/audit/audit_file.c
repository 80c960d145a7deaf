/* What a capture says, against what else it says. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "explain/audit/audit_checks.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "capture/read/view.h"
#include "arithmetic/exact/linear/rounding.h"

/* ---- places ---- */

struct range {
    uint64_t first, n;
    const char *path;
};

static int by_first(const void *a, const void *b)
{
    const struct range *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

enum nd_status nd_audit_places(const struct nd_capture *capture, struct nd_audit_check *check,
                               struct nd_error *err)
{
    const struct nd_index *index = nd_capture_index(capture);
    size_t n = 0, at = 0;
    for (size_t i = 0; i < index->n_objects; i++)
        n += index->objects[i].chunks != NULL ? index->objects[i].layout.n_chunks : 1;
    struct range *ranges = nd_calloc(n, sizeof *ranges);
    if (ranges == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < index->n_objects; i++) {
        const struct nd_index_object *object = &index->objects[i];
        if (object->is_group)
            continue;
        check->n++;
        if (object->chunks == NULL)
            ranges[at++] = (struct range){object->offset, object->stored_bytes, object->path};
        for (size_t c = 0; object->chunks != NULL && c < object->layout.n_chunks; c++)
            ranges[at++] =
                (struct range){object->chunks[c].offset, object->chunks[c].stored_bytes, object->path};
    }
    qsort(ranges, at, sizeof *ranges, by_first);
    const struct range *last = NULL; /* the one that reaches farthest so far */
    for (size_t i = 0; i < at; i++) {
        const struct range *range = &ranges[i];
        if (range->n == 0)
            continue;
        if (range->first > index->file_bytes || range->n > index->file_bytes - range->first)
            nd_audit_wrong(check, "'%s' ends beyond the end of the file", range->path);
        else if (last != NULL && range->first < last->first + last->n)
            nd_audit_wrong(check, "'%s' and '%s' share bytes of the file", last->path, range->path);
        if (last == NULL || range->first + range->n > last->first + last->n)
            last = range;
    }
    free(ranges);
    return ND_OK;
}

/* ---- tables ---- */

void nd_audit_scales(const struct nd_capture *capture, struct nd_audit_check *check)
{
    for (size_t e = 0; e < nd_capture_n_edges(capture); e++) {
        const struct nd_edge *edge = nd_capture_edge(capture, e);
        const struct nd_quant *quant = &edge->quant;
        double low = -INFINITY, high = INFINITY;
        if (nd_dtype_is_of_codes(edge->dtype))
            nd_code_range(edge->dtype, &low, &high);
        check->n++;
        bool has_axis = quant->n <= 1 || (quant->axis >= 0 && quant->axis < edge->shape.rank &&
                                          edge->shape.dims[quant->axis] == (int64_t)quant->n);
        bool is_sound = has_axis;
        for (size_t i = 0; is_sound && i < quant->n; i++)
            is_sound = quant->scale[i] > 0 && isfinite(quant->scale[i]) &&
                       (double)quant->zero_point[i] >= low && (double)quant->zero_point[i] <= high;
        if (!has_axis)
            nd_audit_wrong(check, "tensor '%s': %zu scales do not fit its shape", edge->name, quant->n);
        else if (!is_sound)
            nd_audit_wrong(check, "tensor '%s': a scale is not above 0, or a zero point is outside %s",
                           edge->name, nd_dtype_name(edge->dtype));
    }
}

static void count_probe(const struct nd_capture *capture, const struct nd_capture_probe *probe,
                        struct nd_audit_check *check)
{
    bool is_complete = nd_capture_state(capture) == ND_CAPTURE_COMPLETE;
    check->n++;
    if (is_complete ? probe->n_samples != probe->n_samples_expected
                    : probe->n_samples > probe->n_samples_expected)
        nd_audit_wrong(check, "probe '%s': %zu of %zu samples in a capture that is %s", probe->name,
                       probe->n_samples, probe->n_samples_expected,
                       nd_capture_state_name(nd_capture_state(capture)));
    for (size_t i = 0; i < probe->n_samples * probe->n_repeats; i++)
        if (probe->latency_us[i] < 0) {
            nd_audit_wrong(check, "probe '%s': run %zu took %g microseconds", probe->name, i,
                           probe->latency_us[i]);
            break;
        }
    for (size_t i = 0; probe->labels != NULL && i < probe->n_samples_expected; i++)
        if (probe->labels[i] < 0) {
            nd_audit_wrong(check, "probe '%s': sample %zu has the label %" PRId64, probe->name, i,
                           probe->labels[i]);
            break;
        }
}

void nd_audit_counts(const struct nd_capture *capture, struct nd_audit_check *check)
{
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        count_probe(capture, nd_capture_probe(capture, p), check);
}
