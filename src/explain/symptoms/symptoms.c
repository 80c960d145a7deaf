/* What the values of a comparison show (npudiff/explain.h): reads a window of samples of every tensor that
 * differs, as real numbers, and has them diagnosed; looks at the runs of each device, and at errors over depth.
 * What comes out is the comparison's `diagnoses` and `depths`. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/operators/array.h"
#include "compare/findings/top1_classes.h"
#include "core/memory.h"
#include "explain/diagnosis/values.h"
#include "npudiff/explain/explain.h"

/* Samples [first, first + n) of the first run; with repeat > 0 that run of one sample. */
struct nd_diagnose_range {
    size_t first, n, repeat;
};

/* A tensor of one of the two captures. */
struct nd_diagnose_side {
    const struct nd_capture *capture;
    size_t probe, tensor; /* of the capture */
    struct nd_diagnose_range range;
};

static enum nd_status nd_diagnose_read(const struct nd_capture *capture, size_t probe, size_t tensor,
                                       const struct nd_diagnose_range *range, double *x, struct nd_error *err);
static enum nd_status nd_diagnose_read_as(const struct nd_diagnose_side *side, enum nd_dtype dtype,
                                          size_t n_held, double *x, struct nd_error *err);

/* The diagnoses of a comparison, as they are kept. */

/* Appends it with a copy of its text. */
static enum nd_status append(struct nd_comparison *c, struct nd_compared_diagnosis diagnosis,
                             struct nd_error *err)
{
    char *text = nd_strdup(diagnosis.text);
    struct nd_compared_diagnosis *grown =
        text != NULL ? realloc(c->diagnoses, (c->n_diagnoses + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(text);
        return nd_fail_memory(err);
    }
    diagnosis.text = text;
    c->diagnoses = grown;
    grown[c->n_diagnoses++] = diagnosis;
    return ND_OK;
}

/* Appends to comparison->diagnoses. ND_ERR_MEMORY. */
static enum nd_status nd_diagnose_add(struct nd_comparison *c, size_t device, size_t tensor,
                                      const struct nd_finding *finding, bool is_of_runs, struct nd_error *err)
{
    return append(c,
                  (struct nd_compared_diagnosis){.device = device,
                                                 .tensor = tensor,
                                                 .kind = nd_fault_name(finding->kind),
                                                 .text = (char *)finding->text,
                                                 .is_note = nd_fault_is_note(finding->kind),
                                                 .is_of_runs = is_of_runs,
                                                 .amount = finding->amount,
                                                 .explained = finding->explained,
                                                 .chance = finding->chance < 0 ? finding->chance : NAN},
                  err);
}

/* Fills n_later of all. */
static void nd_diagnose_count_later(struct nd_comparison *c)
{
    for (size_t i = 0; i < c->n_diagnoses; i++)
        for (size_t k = i + 1; k < c->n_diagnoses; k++)
            c->diagnoses[i].n_later += c->diagnoses[k].device == c->diagnoses[i].device &&
                                       strcmp(c->diagnoses[k].kind, c->diagnoses[i].kind) == 0;
}

/* Those of device `from`, but for the ones of its runs, hold of `to` as well: the two are bit-equal.
 * ND_ERR_MEMORY. */
static enum nd_status nd_diagnose_copy(struct nd_comparison *c, size_t from, size_t to, struct nd_error *err)
{
    for (size_t i = 0, n = c->n_diagnoses; i < n; i++) {
        struct nd_compared_diagnosis copy = c->diagnoses[i];
        copy.device = to;
        if (c->diagnoses[i].device == from && !copy.is_of_runs)
            ND_TRY(append(c, copy, err));
    }
    return ND_OK;
}

/* Wrong types of floats: the bytes of one side, read as another type, are what the other side has. */

static void say(const struct nd_diagnose_side *wrong, bool is_test, enum nd_dtype dtype,
                struct nd_findings *found)
{
    enum nd_dtype own = nd_capture_tensor(wrong->capture, wrong->tensor)->dtype;
    const char *called = nd_dtype_name(own), *other = is_test ? "reference's" : "test's";
    size_t size = nd_dtype_size_bytes(dtype), own_size = nd_dtype_size_bytes(own), n = own_size / size;
    struct nd_finding f = {.kind = ND_FAULT_WRONG_TYPE, .channel = SIZE_MAX, .axis = -1, .explained = 1};
    int at = snprintf(f.text, sizeof f.text,
                      "%scalled %s, but the bytes are %s: ", is_test ? "" : "the reference's are ", called,
                      nd_dtype_name(dtype));
    char *rest = f.text + at;
    size_t room = sizeof f.text - (size_t)at;
    if (size == own_size)
        snprintf(rest, room, "read so the values are the %s", other);
    else if (n > 1)
        snprintf(rest, room, "the first %s of the buffer holds all of the %s values, %zu in each %s",
                 n == 2   ? "half"
                 : n == 4 ? "quarter"
                          : "part",
                 other, n, called);
    else
        snprintf(rest, room, "the buffer holds the first of the %s values, each in %zu of its elements", other,
                 size / own_size);
    *found = (struct nd_findings){.n = 1, .n_gross = 1, .far_share = found->far_share, .items = {f}};
}

/* The side's values as they are called, and those of the other side. */
struct values {
    const double *own, *right;
    size_t n;
    bool is_test;
};

/* Whether the bytes, read as that type, are the other side's values: as many of each sample as there are. */
static enum nd_status is_reading(const struct nd_diagnose_side *side, const struct values *v,
                                 enum nd_dtype dtype, bool *out, struct nd_error *err)
{
    size_t n_samples = side->range.n, n = v->n / n_samples, size = nd_dtype_size_bytes(dtype);
    size_t n_held = n * nd_dtype_size_bytes(nd_capture_tensor(side->capture, side->tensor)->dtype) / size;
    n_held = n_held < n ? n_held : n;
    double *x = nd_calloc(2 * n_samples * n, sizeof *x), *right = x + n_samples * n;
    ND_TRY_MEMORY(x != NULL, err);
    enum nd_status status = nd_diagnose_read_as(side, dtype, n_held, x, err);
    for (size_t s = 0; s < n_samples; s++)
        memcpy(right + s * n_held, v->right + s * n, n_held * sizeof *right);
    *out = status == ND_OK && nd_values_is_reading(right, x, n_samples * n_held);
    free(x);
    return status;
}

static enum nd_status try_side(const struct nd_diagnose_side *side, const struct values *v,
                               struct nd_findings *found, struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_capture_tensor(side->capture, side->tensor);
    bool is_found = !nd_values_may_be_mislabelled(v->right, v->own, v->n);
    for (size_t t = 0; t < ND_N_READINGS && !is_found; t++) {
        enum nd_dtype dtype = nd_readings[t];
        bool is_same_size = nd_dtype_size_bytes(dtype) == nd_dtype_size_bytes(tensor->dtype);
        /* Integers beside integers of one size: compare's own labels say it. */
        if (dtype == tensor->dtype || (!nd_dtype_is_float(dtype) && !nd_dtype_is_float(tensor->dtype) &&
                                       (is_same_size || tensor->quant.n > 0)))
            continue;
        ND_TRY(is_reading(side, v, dtype, &is_found, err));
        if (is_found)
            say(side, v->is_test, dtype, found);
    }
    return ND_OK;
}

/* Replaces what was found by ND_FAULT_WRONG_TYPE where the bytes of the test, else of the reference, are floats
 * (or are called so) and read as another type are what the other side has: n values each. ND_ERR_MEMORY, or
 * what reading returns. */
static enum nd_status nd_diagnose_readings(const struct nd_diagnose_side sides[2], const double *ref,
                                           const double *test, size_t n, struct nd_findings *found,
                                           struct nd_error *err)
{
    enum nd_status status = try_side(&sides[1], &(struct values){test, ref, n, true}, found, err);
    bool is_found = found->n > 0 && found->items[0].kind == ND_FAULT_WRONG_TYPE;
    return status == ND_OK && !is_found ? try_side(&sides[0], &(struct values){ref, test, n, false}, found, err)
                                        : status;
}

/* Repeats of one device that differ, and how its error grows over the tensors. */

enum { MAX_RUNS = 8, MAX_ELEMENTS = 1 << 20 };

/* The first sample of which runs differ, and its runs that can be read: their numbers. */
static size_t find_runs(const struct nd_capture *capture, size_t probe, size_t tensor, size_t *sample,
                        size_t runs[MAX_RUNS])
{
    const struct nd_capture_probe *p = nd_capture_probe(capture, probe);
    for (size_t s = 0; s < p->n_samples; s++) {
        size_t n = 0;
        bool differs = false;
        for (size_t r = 0, n_runs = nd_capture_n_runs(capture, probe, tensor, s); r < n_runs; r++) {
            struct nd_digest digest = nd_capture_digest(capture, probe, tensor, s, r);
            differs = differs || !nd_digest_equal(digest, nd_capture_digest(capture, probe, tensor, s, 0));
            if (n < MAX_RUNS)
                runs[n++] = r;
        }
        *sample = s;
        if (differs)
            return n;
    }
    return 0;
}

static enum nd_status compare_runs(const struct nd_capture *capture, size_t probe, size_t tensor, size_t n,
                                   struct nd_findings *found, struct nd_error *err)
{
    const struct nd_tensor *e = nd_capture_tensor(capture, tensor);
    size_t runs[MAX_RUNS], sample, n_runs = find_runs(capture, probe, tensor, &sample, runs);
    ND_FREED double *x = n_runs > 1 ? nd_calloc(n_runs * n, sizeof *x) : NULL;
    const double *launches[MAX_RUNS];
    if (n_runs < 2)
        return ND_OK;
    ND_TRY_MEMORY(x != NULL, err);
    for (size_t k = 0; k < n_runs; k++) {
        bool is_first = nd_digest_equal(nd_capture_digest(capture, probe, tensor, sample, runs[k]),
                                        nd_capture_digest(capture, probe, tensor, sample, 0));
        const struct nd_diagnose_range range = {sample, 1, is_first ? 0 : runs[k]};
        launches[k] = x + k * n;
        ND_TRY(nd_diagnose_read(capture, probe, tensor, &range, x + k * n, err));
    }
    double step = nd_dtype_is_integer(e->dtype) ? 1 : 0;
    for (size_t c = 0; c < e->quant.n && step > 0; c++)
        step = fmax(c == 0 ? 0 : step, fabs((double)e->quant.scale[c]));
    nd_values_compare_launches(launches, n_runs, n, step, found);
    return ND_OK;
}

/* Later tensors inherit what the first unstable one has: it alone is looked at, with those of the graph's
 * outputs. */
static enum nd_status nd_diagnose_runs(struct nd_comparison *comparison,
                                       const struct nd_capture *const *captures, size_t device,
                                       struct nd_error *err)
{
    const struct nd_capture *capture = captures[device];
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        size_t tensor = nd_capture_find_tensor(capture, comparison->tensors[e].name), size_bytes;
        if (tensor == SIZE_MAX || comparison->tensors[e].devices[device].n_unstable == 0)
            continue;
        const struct nd_tensor *captured = nd_capture_tensor(capture, tensor);
        if (nd_shape_size_bytes(&captured->shape, captured->dtype, &size_bytes, NULL) != ND_OK)
            continue;
        size_t n = size_bytes / nd_dtype_size_bytes(captured->dtype);
        for (size_t p = 0; p < nd_capture_n_probes(capture) && n > 0 && n <= MAX_ELEMENTS; p++) {
            struct nd_findings found = {0};
            if (!nd_capture_has_outputs(capture, p, tensor))
                continue;
            ND_TRY(compare_runs(capture, p, tensor, n, &found, err));
            if (found.n == 0)
                continue;
            ND_TRY(nd_diagnose_add(comparison, device, e, &found.items[0], true, err));
            break;
        }
    }
    return ND_OK;
}

/* ---- runs that are another capture's ---- */

/* Elements that such a run changes, about: a few may be alike by chance. */
static bool has_many_changes(const struct nd_comparison *c, size_t device)
{
    enum { MIN_CHANGED = 12 }; /* chosen, as for other faults */
    double n = 0;
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_tensor_on_device *on = &c->tensors[e].devices[device];
        if (on->noise != NULL && on->n_repeats_unequal > 0)
            n += (double)on->noise->n_differing / (double)on->n_repeats_unequal;
    }
    return n >= MIN_CHANGED;
}

static enum nd_status count_runs_of(const struct nd_comparison *c, const struct nd_capture *const *captures,
                                    size_t device, size_t other, struct nd_runs_of *runs, struct nd_error *err)
{
    ND_FREED size_t *tensors = nd_calloc(2 * c->n_tensors, sizeof *tensors);
    ND_TRY_MEMORY(tensors != NULL, err);
    *runs = (struct nd_runs_of){.own = captures[device],
                                .other = captures[other],
                                .own_tensors = tensors,
                                .other_tensors = tensors + c->n_tensors,
                                .n_tensors = c->n_tensors};
    for (size_t e = 0; e < c->n_tensors; e++) {
        tensors[e] = nd_capture_find_tensor(runs->own, c->tensors[e].name);
        tensors[c->n_tensors + e] = nd_capture_find_tensor(runs->other, c->tensors[e].name);
    }
    for (; runs->own_probe < nd_capture_n_probes(runs->own); runs->own_probe++) {
        runs->other_probe =
            nd_capture_find_probe(runs->other, nd_capture_probe(runs->own, runs->own_probe)->name);
        if (runs->other_probe != SIZE_MAX)
            ND_TRY(nd_repeats_count_of(runs, err));
    }
    return ND_OK;
}

/* Some runs of the device give the bits of another capture, and the others do not. */
static enum nd_status diagnose_runs_of_others(struct nd_comparison *c, const struct nd_capture *const *captures,
                                              size_t device, struct nd_error *err)
{
    size_t first = 0;
    while (first < c->n_tensors && c->tensors[first].devices[device].n_unstable == 0)
        first++;
    bool is_asked = first < c->n_tensors && has_many_changes(c, device);
    for (size_t d = 0; d < c->n_devices && is_asked; d++) {
        struct nd_runs_of runs;
        struct nd_finding f = {.kind = ND_FAULT_FALLBACK, .channel = SIZE_MAX, .axis = -1, .explained = 1};
        char times[64] = "";
        if (d == device)
            continue;
        ND_TRY(count_runs_of(c, captures, device, d, &runs, err));
        if (runs.n_other == 0)
            continue;
        double ms_other = runs.us_other / (double)runs.n_other / 1000,
               ms = runs.us / (double)(runs.n - runs.n_other) / 1000;
        if (isfinite(ms_other) && isfinite(ms))
            snprintf(times, sizeof times, " (they take %.3g ms on average, the others %.3g ms)", ms_other, ms);
        f.amount = (double)runs.n_other;
        snprintf(f.text, sizeof f.text, "%zu of %zu runs give, bit for bit, the values of '%.32s'%s: %s",
                 runs.n_other, runs.n, c->devices[d].label, times,
                 strcmp(c->devices[d].kind, "cpu") == 0 ? "a fallback to the CPU" : "two paths");
        ND_TRY(nd_diagnose_add(c, device, first, &f, true, err));
    }
    return ND_OK;
}

/* ---- depth ---- */

/* The share of quantised values that differ, of floats the relative error over the samples that differ; NaN:
 * none. */
static double error_of(const struct nd_compared_pair *pair, bool is_share)
{
    const struct nd_difference *d = &pair->total.difference;
    if (pair->total.coverage == ND_COVERAGE_NONE || !d->has_values || d->n_differing == 0 ||
        d->is_integer != is_share)
        return NAN;
    return is_share ? d->share : pow(10, -d->sqnr_db / 20);
}

static bool has_half(const struct nd_comparison *c, const struct nd_capture *capture, size_t device)
{
    for (size_t i = 0; i < c->n_diagnoses; i++)
        if (c->diagnoses[i].device == device &&
            strcmp(c->diagnoses[i].kind, nd_fault_name(ND_FAULT_FP16_GRID)) == 0)
            return true;
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
        if (nd_capture_tensor(capture, e)->dtype == ND_DTYPE_F16)
            return true;
    return false;
}

static void find_depth(const struct nd_comparison *c, size_t device, double *errors,
                       struct nd_compared_depth *depth)
{
    size_t n_qvalues = 0, n_floats = 0, n = 0;
    *depth = (struct nd_compared_depth){.device = device, .largest = NAN};
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_pair *pair = &c->tensors[e].pairs[device - 1];
        const struct nd_side *side = &pair->total.difference.ref_side;
        n_qvalues += isfinite(error_of(pair, true)) != 0;
        n_floats += isfinite(error_of(pair, false)) != 0;
        double largest = fmax(fabs(side->min), fabs(side->max));
        if (side->n_elems == 0 || !isfinite(largest) || largest <= depth->largest) /* NaN at first */
            continue;
        depth->largest = largest;
        depth->largest_tensor = e;
    }
    depth->is_share = n_qvalues > n_floats;
    for (size_t e = 0; e < c->n_tensors; e++)
        if (!c->tensors[e].is_model_input)
            errors[n++] = error_of(&c->tensors[e].pairs[device - 1], depth->is_share);
    struct nd_growth_law law;
    nd_values_find_growth(errors, n, &law);
    depth->growth = nd_growth_name(law.growth);
    depth->n_tensors = law.n;
    depth->factor = law.factor;
    depth->first = law.first;
    depth->last = law.last;
}

/* Fills comparison->depths from the differences and the diagnoses that are there. ND_ERR_MEMORY. */
static enum nd_status nd_diagnose_depths(struct nd_comparison *comparison,
                                         const struct nd_capture *const *captures, struct nd_error *err)
{
    if (comparison->n_devices < 2 || comparison->n_tensors == 0)
        return ND_OK;
    ND_FREED double *errors = nd_calloc(comparison->n_tensors, sizeof *errors);
    comparison->depths = nd_calloc(comparison->n_devices - 1, sizeof *comparison->depths);
    ND_TRY_MEMORY(errors != NULL && comparison->depths != NULL, err);
    for (size_t d = 1; d < comparison->n_devices; d++) {
        struct nd_compared_depth *depth = &comparison->depths[comparison->n_depths++];
        find_depth(comparison, d, errors, depth);
        depth->is_half = has_half(comparison, captures[d], d);
    }
    return ND_OK;
}

/* Chosen: what is read of a tensor and of those beside it, so that large captures cost seconds. */
enum {
    MAX_SAMPLES = 16,
    MAX_VALUES = 1 << 18,               /* of a tensor, all samples together; one sample is always read */
    MAX_ELEMENTS_of_symptoms = 1 << 22, /* of a sample: larger tensors are left out */
    MAX_TENSORS = 128,                  /* of a device, the first that differ */
    MAX_OTHERS = 6,                     /* tensors of the same shape, the nearest ones */
    MAX_INPUTS = 2,
};

static void dequantise(const struct nd_tensor *tensor, size_t n, double *x)
{
    size_t inner = 1;
    for (int k = tensor->quant.axis + 1; tensor->quant.n > 1 && k < tensor->shape.rank; k++)
        inner *= (size_t)tensor->shape.dims[k];
    for (size_t i = 0; i < n; i++) {
        size_t c = tensor->quant.n > 1 ? i / inner % tensor->quant.n : 0;
        x[i] = (double)tensor->quant.scale[c] * (x[i] - (double)tensor->quant.zero_point[c]);
    }
}

static void load(const struct nd_tensor *tensor, enum nd_dtype dtype, size_t n, const void *bytes, double *x)
{
    nd_array_load(dtype, bytes, n, x);
    if (tensor->quant.n > 0 && nd_dtype_is_integer(dtype))
        dequantise(tensor, n, x);
}

/* The same, of bytes that are read as another type, n_held values of each sample. */
static enum nd_status nd_diagnose_read_as(const struct nd_diagnose_side *side, enum nd_dtype dtype,
                                          size_t n_held, double *x, struct nd_error *err)
{
    const struct nd_diagnose_range *range = &side->range;
    const struct nd_tensor *e = nd_capture_tensor(side->capture, side->tensor);
    size_t size_bytes, n_bytes;
    ND_TRY(nd_shape_size_bytes(&e->shape, e->dtype, &size_bytes, err));
    if (!nd_size_mul(size_bytes, range->n, &n_bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, e->name, "too many samples");
    ND_FREED unsigned char *bytes = nd_tensor_alloc(n_bytes);
    ND_TRY_MEMORY(bytes != NULL, err);
    const struct nd_probe_values tensor = {side->capture, side->probe, side->tensor};
    if (range->repeat == 0)
        ND_TRY(nd_capture_read_verified(&tensor, range->first, range->n, bytes, err));
    else
        ND_TRY(nd_capture_read_repeat_verified(&tensor, range->first, range->repeat, bytes, err));
    for (size_t k = 0; k < range->n; k++)
        load(e, dtype, n_held, bytes + k * size_bytes, x + k * n_held);
    return ND_OK;
}

/* The values of a tensor of a capture as real numbers (quantised values are dequantised), into x with room for
 * them. What reading a capture returns. */
static enum nd_status nd_diagnose_read(const struct nd_capture *capture, size_t probe, size_t tensor,
                                       const struct nd_diagnose_range *range, double *x, struct nd_error *err)
{
    const struct nd_diagnose_side side = {capture, probe, tensor, *range};
    const struct nd_tensor *e = nd_capture_tensor(capture, tensor);
    size_t n = 0;
    enum nd_status status = nd_shape_n_elems(&e->shape, &n, err);
    return status == ND_OK ? nd_diagnose_read_as(&side, e->dtype, n, x, err) : status;
}

/* One tensor of one test under examination, and what is read for it. */
struct diagnosis {
    const struct nd_capture *ref, *test;
    size_t ref_probe, test_probe, ref_tensor, test_tensor; /* of the captures */
    size_t device, tensor;                                 /* of the comparison */
    struct nd_diagnose_range range;
    bool is_part; /* there are more samples */
    size_t n;     /* elements of a sample */
    double *values[2 * (1 + MAX_OTHERS + MAX_INPUTS)];
    size_t n_values;
    struct nd_other others[MAX_OTHERS + MAX_INPUTS];
    size_t n_others;
};

static void layer_diagnosis_deinit(struct diagnosis *diagnosis)
{
    for (size_t k = 0; k < diagnosis->n_values; k++)
        free(diagnosis->values[k]);
}

static double *make_values(struct diagnosis *diagnosis)
{
    double *x = nd_calloc(diagnosis->range.n * diagnosis->n, sizeof *x);
    if (x != NULL)
        diagnosis->values[diagnosis->n_values++] = x;
    return x;
}

static enum nd_status read_pair(struct diagnosis *diagnosis, size_t ref_tensor, size_t test_tensor,
                                struct nd_error *err)
{
    double *ref = make_values(diagnosis), *test = ref != NULL ? make_values(diagnosis) : NULL;
    ND_TRY_MEMORY(test != NULL, err);
    ND_TRY(nd_diagnose_read(diagnosis->ref, diagnosis->ref_probe, ref_tensor, &diagnosis->range, ref, err));
    return nd_diagnose_read(diagnosis->test, diagnosis->test_probe, test_tensor, &diagnosis->range, test, err);
}

static enum nd_status add_other(struct diagnosis *diagnosis, const char *name, struct nd_error *err)
{
    size_t ref = nd_capture_find_tensor(diagnosis->ref, name),
           test = nd_capture_find_tensor(diagnosis->test, name);
    if (ref == SIZE_MAX || test == SIZE_MAX)
        return ND_OK;
    const struct nd_shape *shape = &nd_capture_tensor(diagnosis->ref, diagnosis->ref_tensor)->shape;
    bool is_alike = nd_shape_equal(shape, &nd_capture_tensor(diagnosis->ref, ref)->shape) &&
                    nd_shape_equal(shape, &nd_capture_tensor(diagnosis->test, test)->shape) &&
                    nd_capture_has_outputs(diagnosis->ref, diagnosis->ref_probe, ref) &&
                    nd_capture_has_outputs(diagnosis->test, diagnosis->test_probe, test);
    if (!is_alike)
        return ND_OK;
    ND_TRY(read_pair(diagnosis, ref, test, err));
    diagnosis->others[diagnosis->n_others++] = (struct nd_other){
        name, diagnosis->values[diagnosis->n_values - 2], diagnosis->values[diagnosis->n_values - 1]};
    return ND_OK;
}

/* The inputs of the probe are the same on both sides: the comparison has seen to that. */
static enum nd_status add_input(struct diagnosis *diagnosis, size_t input, struct nd_error *err)
{
    const struct nd_capture_input *in = &nd_capture_probe(diagnosis->ref, diagnosis->ref_probe)->inputs[input];
    const struct nd_tensor as_tensor = {.dtype = in->dtype, .shape = in->shape};
    size_t n = 0, size_bytes;
    if (in->dtype == ND_DTYPE_NONE || nd_shape_size_bytes(&in->shape, in->dtype, &size_bytes, NULL) != ND_OK)
        return ND_OK;
    n = size_bytes / nd_dtype_size_bytes(in->dtype);
    if (n != diagnosis->n)
        return ND_OK;
    ND_FREED unsigned char *bytes = nd_tensor_alloc(size_bytes * diagnosis->range.n);
    double *x = bytes != NULL ? make_values(diagnosis) : NULL;
    ND_TRY_MEMORY(x != NULL, err);
    if (nd_capture_read_inputs(&(struct nd_probe_values){diagnosis->ref, diagnosis->ref_probe, input},
                               diagnosis->range.first, diagnosis->range.n, bytes, NULL) == ND_OK) {
        load(&as_tensor, in->dtype, n * diagnosis->range.n, bytes, x);
        diagnosis->others[diagnosis->n_others++] = (struct nd_other){in->name, x, x};
    }
    return ND_OK;
}

/* Inputs first: what else equals them comes later. Then the nearest tensors before and after. */
static enum nd_status add_others(struct diagnosis *diagnosis, const struct nd_comparison *c,
                                 struct nd_error *err)
{
    size_t n_inputs = nd_capture_probe(diagnosis->ref, diagnosis->ref_probe)->n_inputs;
    for (size_t i = 0; i < n_inputs && diagnosis->n_others < MAX_INPUTS; i++)
        ND_TRY(add_input(diagnosis, i, err));
    size_t most = diagnosis->n_others + MAX_OTHERS;
    for (size_t k = 1; k < c->n_tensors && diagnosis->n_others < most; k++) {
        if (diagnosis->tensor >= k)
            ND_TRY(add_other(diagnosis, c->tensors[diagnosis->tensor - k].name, err));
        if (diagnosis->tensor + k < c->n_tensors && diagnosis->n_others < most)
            ND_TRY(add_other(diagnosis, c->tensors[diagnosis->tensor + k].name, err));
    }
    return ND_OK;
}

/* ---- what is looked at ---- */

/* The probe with the most samples that differ; SIZE_MAX: none whose values are stored. */
static size_t choose_probe(const struct nd_comparison *c, const struct nd_compared_pair *pair)
{
    size_t chosen = SIZE_MAX;
    uint64_t most = 0;
    for (size_t p = 0; p < c->n_probes; p++) {
        const struct nd_difference *d = &pair->probes[p].difference;
        bool is_readable = pair->probes[p].coverage != ND_COVERAGE_NONE && d->has_values && d->n_differing > 0;
        if (is_readable && d->n_samples_differing > most) {
            most = d->n_samples_differing;
            chosen = p;
        }
    }
    return chosen;
}

static bool open_layer_diagnosis(const struct nd_comparison *c, const struct nd_capture *const *captures,
                                 size_t device, size_t tensor, struct diagnosis *diagnosis)
{
    const struct nd_compared_pair *pair = &c->tensors[tensor].pairs[device - 1];
    size_t probe = choose_probe(c, pair), size_bytes;
    if (probe == SIZE_MAX)
        return false;
    const struct nd_difference *d = &pair->probes[probe].difference;
    *diagnosis =
        (struct diagnosis){.ref = captures[0], .test = captures[device], .device = device, .tensor = tensor};
    diagnosis->ref_probe = nd_capture_find_probe(diagnosis->ref, c->probes[probe].name);
    diagnosis->test_probe = nd_capture_find_probe(diagnosis->test, c->probes[probe].name);
    diagnosis->ref_tensor = nd_capture_find_tensor(diagnosis->ref, c->tensors[tensor].name);
    diagnosis->test_tensor = nd_capture_find_tensor(diagnosis->test, c->tensors[tensor].name);
    if (diagnosis->ref_probe == SIZE_MAX || diagnosis->test_probe == SIZE_MAX ||
        diagnosis->ref_tensor == SIZE_MAX || diagnosis->test_tensor == SIZE_MAX || d->n_samples == 0)
        return false;
    const struct nd_tensor *e = nd_capture_tensor(diagnosis->ref, diagnosis->ref_tensor);
    if (!nd_shape_equal(&e->shape, &nd_capture_tensor(diagnosis->test, diagnosis->test_tensor)->shape) ||
        nd_shape_size_bytes(&e->shape, e->dtype, &size_bytes, NULL) != ND_OK)
        return false;
    diagnosis->n = size_bytes / nd_dtype_size_bytes(e->dtype);
    if (diagnosis->n == 0 || diagnosis->n > MAX_ELEMENTS_of_symptoms)
        return false;
    size_t most = MAX_VALUES / diagnosis->n < 1 ? 1 : MAX_VALUES / diagnosis->n,
           first = d->has_first ? d->first.sample : 0;
    most = most < MAX_SAMPLES ? most : MAX_SAMPLES;
    diagnosis->range.n = d->n_samples < most ? (size_t)d->n_samples : most;
    diagnosis->is_part = diagnosis->range.n < d->n_samples;
    /* The sample before the first that differs may be what it holds. */
    diagnosis->range.first = most > 1 && first > 0 ? first - 1 : first;
    if (diagnosis->range.first + diagnosis->range.n > d->n_samples)
        diagnosis->range.first = (size_t)d->n_samples - diagnosis->range.n;
    return true;
}

/* Codes: the step of their scale, the largest where channels have their own; whole numbers without a scale: 1.
 */
static double step_of(const struct nd_tensor *tensor)
{
    double step = 0;
    if (!nd_dtype_is_integer(tensor->dtype))
        return nd_dtype_is_float(tensor->dtype) ? 0 : 1;
    for (size_t c = 0; c < tensor->quant.n; c++)
        step = fmax(step, fabs((double)tensor->quant.scale[c]));
    return step > 0 ? step : 1;
}

static enum nd_status examine(struct diagnosis *diagnosis, const struct nd_comparison *c,
                              struct nd_findings *found, struct nd_error *err)
{
    const struct nd_tensor *ref = nd_capture_tensor(diagnosis->ref, diagnosis->ref_tensor);
    const struct nd_tensor *test = nd_capture_tensor(diagnosis->test, diagnosis->test_tensor);
    ND_TRY(read_pair(diagnosis, diagnosis->ref_tensor, diagnosis->test_tensor, err));
    ND_TRY(add_others(diagnosis, c, err));
    const struct nd_evidence values = {.n_samples = diagnosis->range.n,
                                       .n = diagnosis->n,
                                       .first_sample = diagnosis->range.first,
                                       .is_part = diagnosis->is_part,
                                       .shape = ref->shape,
                                       .dtype = test->dtype,
                                       .step = step_of(test),
                                       .zero_point = test->quant.n > 0 ? (double)test->quant.zero_point[0] : 0,
                                       .ref_step = step_of(ref),
                                       .expected = diagnosis->values[0],
                                       .captured = diagnosis->values[1],
                                       .others = diagnosis->others,
                                       .n_others = diagnosis->n_others};
    const struct nd_diagnose_side sides[2] = {
        {diagnosis->ref, diagnosis->ref_probe, diagnosis->ref_tensor, diagnosis->range},
        {diagnosis->test, diagnosis->test_probe, diagnosis->test_tensor, diagnosis->range}};
    ND_TRY(nd_diagnose_tensor(&values, found, err));
    return nd_diagnose_readings(sides, diagnosis->values[0], diagnosis->values[1],
                                diagnosis->range.n * diagnosis->n, found, err);
}

/* The axis of x along which y holds one number; -1: y is no such tensor. The axis is gone in y, or 1. */
static int reduced_axis(const struct nd_shape *x, const struct nd_shape *y)
{
    for (int a = 0; a < x->rank; a++) {
        bool is_kept = y->rank == x->rank, is_gone = y->rank == x->rank - 1;
        for (int k = 0; k < x->rank; k++) {
            is_kept = is_kept && y->dims[k] == (k == a ? 1 : x->dims[k]);
            is_gone = is_gone && (k == a || y->dims[k < a ? k : k - 1] == x->dims[k]);
        }
        if (x->dims[a] > 1 && (is_kept || is_gone))
            return a;
    }
    return -1;
}

static bool is_finite(const double *x, size_t n)
{
    size_t k = 0;
    while (k < n && isfinite(x[k]))
        k++;
    return k == n;
}

static enum nd_status try_argmax(struct diagnosis *diagnosis, size_t ref, size_t test, int axis,
                                 struct nd_findings *found, struct nd_error *err)
{
    const struct nd_tensor *x = nd_capture_tensor(diagnosis->ref, ref);
    struct diagnosis values = *diagnosis;
    struct nd_values_argmax argmax = {x->name,
                                      diagnosis->range.n,
                                      (size_t)x->shape.dims[axis],
                                      1,
                                      diagnosis->values[0],
                                      diagnosis->values[1],
                                      NULL,
                                      NULL};
    for (int k = 0; k < x->shape.rank; k++) {
        argmax.n_outer *= k < axis ? (size_t)x->shape.dims[k] : 1;
        argmax.inner *= k > axis ? (size_t)x->shape.dims[k] : 1;
    }
    values.n_values = 0;
    values.n = diagnosis->n * argmax.n;
    if (values.n > MAX_ELEMENTS_of_symptoms)
        return ND_OK;
    enum nd_status status = read_pair(&values, ref, test, err);
    size_t n = values.n * values.range.n;
    if (status == ND_OK && is_finite(values.values[0], n) && is_finite(values.values[1], n)) {
        argmax.x_ref = values.values[0];
        argmax.x_test = values.values[1];
        nd_values_try_argmax(&argmax, found);
    }
    layer_diagnosis_deinit(&values);
    return status;
}

/* Indices beside the nearest tensors before that they may be of. */
static enum nd_status examine_indices(struct diagnosis *diagnosis, const struct nd_comparison *c,
                                      struct nd_findings *found, struct nd_error *err)
{
    const struct nd_tensor *y = nd_capture_tensor(diagnosis->ref, diagnosis->ref_tensor);
    bool is_index = nd_dtype_is_integer(y->dtype) && y->quant.n == 0;
    for (size_t k = diagnosis->tensor, n = 0; is_index && k-- > 0 && n < MAX_OTHERS && found->n == 0;) {
        size_t ref = nd_capture_find_tensor(diagnosis->ref, c->tensors[k].name);
        size_t test = nd_capture_find_tensor(diagnosis->test, c->tensors[k].name);
        if (ref == SIZE_MAX || test == SIZE_MAX)
            continue;
        const struct nd_tensor *x = nd_capture_tensor(diagnosis->ref, ref);
        int axis = reduced_axis(&x->shape, &y->shape);
        if (axis < 0 || !nd_shape_equal(&x->shape, &nd_capture_tensor(diagnosis->test, test)->shape) ||
            !nd_capture_has_outputs(diagnosis->ref, diagnosis->ref_probe, ref) ||
            !nd_capture_has_outputs(diagnosis->test, diagnosis->test_probe, test))
            continue;
        n++;
        ND_TRY(try_argmax(diagnosis, ref, test, axis, found, err));
    }
    return ND_OK;
}

/* ---- all of it ---- */

static size_t earlier_equal(const struct nd_comparison *c, size_t device)
{
    for (size_t d = 1; d < device; d++)
        if (c->devices[d].class_id >= 0 && c->devices[d].class_id == c->devices[device].class_id)
            return d;
    return SIZE_MAX;
}

static enum nd_status diagnose_device(struct nd_comparison *c, const struct nd_capture *const *captures,
                                      size_t device, struct nd_error *err)
{
    size_t n_examined = 0, same = earlier_equal(c, device);
    struct nd_values_history history = {0};
    enum nd_status status = ND_OK;
    if (same != SIZE_MAX)
        return nd_diagnose_copy(c, same, device, err);
    for (size_t e = 0; e < c->n_tensors && n_examined < MAX_TENSORS && status == ND_OK; e++) {
        struct diagnosis diagnosis;
        struct nd_findings found = {0};
        if (!open_layer_diagnosis(c, captures, device, e, &diagnosis))
            continue;
        n_examined++;
        status = examine(&diagnosis, c, &found, err);
        if (status == ND_OK && found.n == 0)
            status = examine_indices(&diagnosis, c, &found, err);
        layer_diagnosis_deinit(&diagnosis);
        for (size_t k = nd_values_skip_passed_on(&history, &found); k < found.n && status == ND_OK; k++)
            status = nd_diagnose_add(c, device, e, &found.items[k], false, err);
    }
    return status;
}

enum nd_status nd_diagnose_comparison(struct nd_comparison *comparison,
                                      const struct nd_capture *const *captures, struct nd_error *err)
{
    for (size_t d = 0; d < comparison->n_devices; d++) {
        if (d > 0)
            ND_TRY(diagnose_device(comparison, captures, d, err));
        ND_TRY(nd_diagnose_runs(comparison, captures, d, err));
        ND_TRY(diagnose_runs_of_others(comparison, captures, d, err));
    }
    ND_TRY(nd_diagnose_depths(comparison, captures, err));
    nd_diagnose_count_later(comparison);
    return ND_OK;
}
