/* Which samples have another top-1 class on a test than on the reference, and what the outputs say there. The
 * comparison itself only counts them. docs/reference/metrics.md#top-1. */
#include <math.h>

#include "compare/findings/top1_classes.h"
#include "core/items.h"

/* Of one read of a capture: enough that whole chunks are decoded, and little beside what a comparison needs. */
enum { READ_BYTES = 32 << 20 };

/* One device at one output. */
struct side {
    const struct nd_capture *capture; /* NULL: it has no values there */
    size_t tensor, probe, n_samples;
    struct nd_layout layout;
    int64_t *classes; /* [n_samples] */
};

struct look {
    const struct nd_comparison *comparison;
    struct nd_top1 *row;
    const struct nd_kernels *kernels;
    struct side *sides; /* [n_devices] */
    const int64_t *labels;
};

/* ---- the classes ---- */

static enum nd_status read_classes(const struct look *look, struct side *side, struct nd_error *err)
{
    size_t bytes = side->layout.sample_bytes, n_block = bytes > 0 ? READ_BYTES / bytes : 1;
    n_block = n_block < 1 ? 1 : n_block > side->n_samples ? side->n_samples : n_block;
    ND_FREED unsigned char *block = nd_calloc(n_block, bytes + 64);
    side->classes = nd_calloc(side->n_samples, sizeof *side->classes);
    ND_TRY_MEMORY(block != NULL && side->classes != NULL, err);
    for (size_t at = 0; at < side->n_samples; at += n_block) {
        size_t n = side->n_samples - at < n_block ? side->n_samples - at : n_block;
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){side->capture, side->probe, side->tensor}, at,
                                        n, block, err));
        for (size_t i = 0; i < n; i++) {
            struct nd_best best = {.index = -1};
            nd_best_offer(&best, &side->layout, look->kernels, block + i * bytes, 0, side->layout.n_elems);
            side->classes[at + i] = best.index;
        }
    }
    return ND_OK;
}

static enum nd_status open_side(const struct look *look, const struct nd_capture *capture, size_t device,
                                struct side *side, struct nd_error *err)
{
    const struct nd_top1 *row = look->row;
    if (!row->devices[device].exists)
        return ND_OK;
    side->tensor = nd_capture_find_tensor(capture, look->comparison->tensors[row->tensor].name);
    side->probe = nd_capture_find_probe(capture, look->comparison->probes[row->probe].name);
    if (side->tensor == SIZE_MAX || side->probe == SIZE_MAX)
        return ND_OK;
    side->capture = capture;
    side->n_samples = nd_capture_probe(capture, side->probe)->n_samples;
    ND_TRY(nd_layout_make(nd_capture_tensor(capture, side->tensor), &side->layout, err));
    return side->n_samples > 0 ? read_classes(look, side, err) : ND_OK;
}

static bool is_changed_on(const struct look *look, size_t test, size_t sample)
{
    const struct nd_top1_pair *pair = &look->row->pairs[test - 1];
    const struct side *ref = &look->sides[0], *side = &look->sides[test];
    return pair->exists && sample < pair->n_samples && sample < ref->n_samples && sample < side->n_samples &&
           ref->classes[sample] != side->classes[sample];
}

static bool is_changed(const struct look *look, size_t sample)
{
    for (size_t t = 1; t < look->comparison->n_devices; t++)
        if (is_changed_on(look, t, sample))
            return true;
    return false;
}

/* Whether a test is wrong where the reference is right. */
static bool is_lost(const struct look *look, size_t sample)
{
    return look->labels != NULL && look->sides[0].classes[sample] == look->labels[sample];
}

/* ---- what is kept of a sample ---- */

static void show_class(struct nd_changed_sample *kept, int64_t class)
{
    if (class < 0 || kept->n_shown == ND_CHANGED_SHOWN)
        return;
    for (size_t i = 0; i < kept->n_shown; i++)
        if (kept->shown[i] == class)
            return;
    kept->shown[kept->n_shown++] = class;
}

static double value_at(const struct look *look, const struct side *side, const unsigned char *bytes,
                       size_t index)
{
    double x[ND_BLOCK];
    if (index >= side->layout.n_elems)
        return NAN;
    nd_layout_load(&side->layout, look->kernels, bytes + index * side->layout.elem_bytes, index, 1, x);
    return side->layout.unit * x[0];
}

static enum nd_status read_values(const struct look *look, size_t device, struct nd_changed_sample *kept,
                                  struct nd_error *err)
{
    const struct side *side = &look->sides[device];
    double *values = kept->values + device * kept->n_shown;
    for (size_t i = 0; i < kept->n_shown; i++)
        values[i] = NAN;
    if (side->capture == NULL || kept->sample >= side->n_samples)
        return ND_OK;
    ND_FREED unsigned char *bytes = nd_calloc(1, side->layout.sample_bytes + ND_BLOCK * 8);
    ND_TRY_MEMORY(bytes != NULL, err);
    ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){side->capture, side->probe, side->tensor},
                                    kept->sample, 1, bytes, err));
    for (size_t i = 0; i < kept->n_shown; i++)
        values[i] = value_at(look, side, bytes, (size_t)kept->shown[i]);
    return ND_OK;
}

static enum nd_status keep(const struct look *look, size_t sample, struct nd_error *err)
{
    size_t n_devices = look->comparison->n_devices;
    struct nd_changed_sample *kept = &look->row->changed[look->row->n_changed_kept++];
    *kept =
        (struct nd_changed_sample){.sample = sample, .label = look->labels != NULL ? look->labels[sample] : -1};
    kept->classes = nd_calloc(n_devices, sizeof *kept->classes);
    ND_TRY_MEMORY(kept->classes != NULL, err);
    show_class(kept, kept->label);
    for (size_t d = 0; d < n_devices; d++) {
        const struct side *side = &look->sides[d];
        kept->classes[d] = side->classes != NULL && sample < side->n_samples ? side->classes[sample] : -1;
        show_class(kept, kept->classes[d]);
    }
    kept->values = nd_calloc(n_devices * kept->n_shown, sizeof *kept->values);
    ND_TRY_MEMORY(kept->values != NULL, err);
    for (size_t d = 0; d < n_devices; d++)
        ND_TRY(read_values(look, d, kept, err));
    return ND_OK;
}

/* Those that the reference has right come first. */
static enum nd_status keep_some(const struct look *look, size_t n_max, struct nd_error *err)
{
    size_t n = look->sides[0].n_samples;
    for (size_t i = 0; i < n; i++)
        look->row->n_changed += is_changed(look, i);
    look->row->changed = nd_calloc(n_max + 1, sizeof *look->row->changed);
    ND_TRY_MEMORY(look->row->changed != NULL, err);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n && look->row->n_changed_kept < n_max; i++)
            if (is_changed(look, i) && is_lost(look, i) == (pass == 0))
                ND_TRY(keep(look, i, err));
    return ND_OK;
}

static enum nd_status look_at_row(struct look *look, const struct nd_capture *const *captures, size_t n_max,
                                  struct nd_error *err)
{
    size_t n_devices = look->comparison->n_devices;
    enum nd_status status = ND_OK;
    look->sides = nd_calloc(n_devices, sizeof *look->sides);
    ND_TRY_MEMORY(look->sides != NULL, err);
    for (size_t d = 0; status == ND_OK && d < n_devices; d++)
        status = open_side(look, captures[d], d, &look->sides[d], err);
    const struct side *ref = &look->sides[0];
    if (status == ND_OK && ref->capture != NULL && ref->classes != NULL) {
        /* The comparison has seen that no two captures contradict each other, and that every sample has a
         * label. */
        const struct nd_capture_probe *best = NULL;
        for (size_t d = 0; look->row->has_labels && d < look->comparison->n_devices; d++) {
            const struct side *side = &look->sides[d];
            const struct nd_capture_probe *probe =
                side->capture != NULL ? nd_capture_probe(side->capture, side->probe) : NULL;
            if (probe != NULL && probe->labels != NULL && (best == NULL || probe->n_samples > best->n_samples))
                best = probe;
        }
        look->labels = best != NULL && best->n_samples >= look->sides[0].n_samples ? best->labels : NULL;
        status = keep_some(look, n_max, err);
        look->row->has_changed = status == ND_OK;
    }
    ND_FREE_EACH(look->sides, n_devices, .classes);
    return status;
}

enum nd_status nd_find_changed_samples(struct nd_comparison *comparison,
                                       const struct nd_capture *const *captures, size_t n_max,
                                       struct nd_error *err)
{
    struct look look = {.comparison = comparison};
    ND_TRY(nd_kernels_choose(NULL, &look.kernels, err));
    for (size_t i = 0; i < comparison->n_top1; i++) {
        look.row = &comparison->top1[i];
        if (!look.row->has_changed)
            ND_TRY(look_at_row(&look, captures, n_max, err));
    }
    return ND_OK;
}
