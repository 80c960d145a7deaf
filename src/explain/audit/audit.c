/* What a capture says of its model, against the model. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"
#include "capture/read/view.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "npudiff/explain/audit.h"
#include "npudiff/model/model.h"

static enum nd_status nd_audit_exact(const struct nd_capture *capture, const struct nd_model *model,
                                     struct nd_audit_check *check, struct nd_error *err);
static void nd_audit_not_done(struct nd_audit_check *check, const char *fmt, ...);
static void nd_audit_wrong(struct nd_audit_check *check, const char *fmt, ...);

/* A different model is the caller's mistake, not damage. */
static enum nd_status nd_audit_model(const struct nd_capture *capture, const struct nd_model *model,
                                     struct nd_audit_check *check, struct nd_error *err)
{
    const char *sha256 = nd_capture_string(capture, "model", "sha256"), *path = nd_capture_path(capture);
    if (model == NULL)
        nd_audit_not_done(check, "no --model");
    else if (sha256 == NULL)
        nd_audit_not_done(check, "the capture does not say the digest of its model");
    else if (strcmp(sha256, nd_model_sha256(model)) != 0)
        return nd_fail(err, ND_E_COMPARE_MODEL, path,
                       "'%s' is a capture of a different model than '%s': sha256 %s and %s", path,
                       nd_model_path(model), sha256, nd_model_sha256(model));
    else
        check->n = 1;
    return ND_OK;
}

static bool is_known(const struct nd_shape *shape)
{
    bool is = shape->rank >= 0;
    for (int i = 0; is && i < shape->rank; i++)
        is = shape->dims[i] >= 0;
    return is;
}

static bool has_same_scales(const struct nd_quant *a, const struct nd_quant *b)
{
    return a->n == b->n &&
           (a->n == 0 || (memcmp(a->scale, b->scale, a->n * sizeof *a->scale) == 0 &&
                          memcmp(a->zero_point, b->zero_point, a->n * sizeof *a->zero_point) == 0));
}

static void compare_tensor(const struct nd_tensor *recorded, const struct nd_tensor *own,
                           struct nd_audit_check *check)
{
    check->n++;
    if (own == NULL)
        nd_audit_wrong(check, "the model has no tensor '%s'", recorded->onnx_name);
    else if (strcmp(recorded->name, own->name) != 0)
        nd_audit_wrong(check, "tensor '%s' is called '%s' in the capture", own->name, recorded->name);
    else if (nd_dtype_is_integer(own->dtype) && own->quant.n > 0 && recorded->dtype != own->dtype)
        nd_audit_wrong(check, "tensor '%s' is %s in the capture, %s in the model", own->name,
                       nd_dtype_name(recorded->dtype), nd_dtype_name(own->dtype));
    else if (is_known(&own->shape) && is_known(&recorded->shape) &&
             !nd_shape_equal(&own->shape, &recorded->shape))
        nd_audit_wrong(check, "tensor '%s' has a different shape in the capture", own->name);
    else if (recorded->quant.n > 0 && !has_same_scales(&recorded->quant, &own->quant))
        nd_audit_wrong(check, "tensor '%s' has different scales in the capture", own->name);
}

static enum nd_status nd_audit_tensors(const struct nd_capture *capture, const struct nd_model *model,
                                       struct nd_audit_check *check, struct nd_error *err)
{
    ND_CLEANUP(nd_names_deinit) struct nd_names names = {0};
    if (model == NULL) {
        nd_audit_not_done(check, "no --model");
        return ND_OK;
    }
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        const char *tensor = nd_model_tensor(model, e)->onnx_name;
        if (nd_names_find(&names, tensor) == SIZE_MAX && !nd_names_add(&names, tensor, e))
            return nd_fail_memory(err);
    }
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        const struct nd_tensor *recorded = nd_capture_tensor(capture, e);
        size_t own = nd_names_find(&names, recorded->onnx_name);
        compare_tensor(recorded, own != SIZE_MAX ? nd_model_tensor(model, own) : NULL, check);
    }
    return ND_OK;
}

/* What a capture says, against what else it says. */

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

static enum nd_status nd_audit_places(const struct nd_capture *capture, struct nd_audit_check *check,
                                      struct nd_error *err)
{
    const struct nd_index *index = nd_capture_index(capture);
    size_t n = 0, at = 0;
    for (size_t i = 0; i < index->n_objects; i++)
        n += index->objects[i].chunks != NULL ? index->objects[i].layout.n_chunks : 1;
    ND_FREED struct range *ranges = nd_calloc(n, sizeof *ranges);
    ND_TRY_MEMORY(ranges != NULL, err);
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
    return ND_OK;
}

/* ---- tables ---- */

static void nd_audit_scales(const struct nd_capture *capture, struct nd_audit_check *check)
{
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
        const struct nd_quant *quant = &tensor->quant;
        double low = -INFINITY, high = INFINITY;
        if (nd_dtype_is_of_qvalues(tensor->dtype))
            nd_qvalue_range(tensor->dtype, &low, &high);
        check->n++;
        bool has_axis = quant->n <= 1 || (quant->axis >= 0 && quant->axis < tensor->shape.rank &&
                                          tensor->shape.dims[quant->axis] == (int64_t)quant->n);
        bool is_sound = has_axis;
        for (size_t i = 0; is_sound && i < quant->n; i++)
            is_sound = quant->scale[i] > 0 && isfinite(quant->scale[i]) &&
                       (double)quant->zero_point[i] >= low && (double)quant->zero_point[i] <= high;
        if (!has_axis)
            nd_audit_wrong(check, "tensor '%s': %zu scales do not fit its shape", tensor->name, quant->n);
        else if (!is_sound)
            nd_audit_wrong(check, "tensor '%s': a scale is not above 0, or a zero point is outside %s",
                           tensor->name, nd_dtype_name(tensor->dtype));
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

static const struct {
    const char *name, *subject;
} kinds[ND_AUDIT_N_CHECKS] = {
    [ND_AUDIT_VALUES] = {"values", "values against their digests"},
    [ND_AUDIT_CONTENT] = {"content", "all else against its digest"},
    [ND_AUDIT_PLACES] = {"places", "places in the file"},
    [ND_AUDIT_SCALES] = {"scales", "scales and zero points"},
    [ND_AUDIT_COUNTS] = {"counts", "samples, labels, latencies"},
    [ND_AUDIT_MODEL] = {"model", "SHA-256 of the model"},
    [ND_AUDIT_TENSORS] = {"tensors", "tensors against the model"},
    [ND_AUDIT_EXACT] = {"exact", "values computed again"},
};

const char *nd_audit_name(enum nd_audit_kind kind)
{
    assert((int)kind < ND_AUDIT_N_CHECKS);
    return kinds[kind].name;
}

const char *nd_audit_subject(enum nd_audit_kind kind)
{
    assert((int)kind < ND_AUDIT_N_CHECKS);
    return kinds[kind].subject;
}

/* Counts one thing that is wrong, and keeps the words of the first. */
static void nd_audit_wrong(struct nd_audit_check *check, const char *fmt, ...)
{
    if (check->n_wrong++ > 0)
        return;
    ND_PRINT_ARGUMENTS(check->text, fmt);
}

/* Says why a check is not made. */
static void nd_audit_not_done(struct nd_audit_check *check, const char *fmt, ...)
{
    ND_PRINT_ARGUMENTS(check->text, fmt);
    check->is_done = false;
}

static enum nd_status check_digests(const struct nd_capture *capture, struct nd_audit_check *checks,
                                    struct nd_error *err)
{
    struct nd_capture_verification found = {.struct_size = sizeof found};
    ND_TRY(nd_capture_verify(capture, &found, err));
    checks[ND_AUDIT_VALUES].n = found.n_tensors;
    if (found.n_wrong > 0)
        nd_audit_wrong(&checks[ND_AUDIT_VALUES], "%s", found.first_wrong);
    checks[ND_AUDIT_VALUES].n_wrong = found.n_wrong;
    checks[ND_AUDIT_CONTENT].n = nd_capture_n_objects(capture);
    if (!found.content_matches)
        nd_audit_wrong(&checks[ND_AUDIT_CONTENT], "a name, shape, attribute or digest was changed");
    return ND_OK;
}

enum nd_status nd_capture_audit(const struct nd_capture *capture, const struct nd_model *model,
                                struct nd_audit *out, struct nd_error *err)
{
    struct nd_audit audit = {0};
    struct nd_audit_check *checks = audit.checks;
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
        checks[i].is_done = true;
    ND_TRY(check_digests(capture, checks, err));
    ND_TRY(nd_audit_places(capture, &checks[ND_AUDIT_PLACES], err));
    nd_audit_scales(capture, &checks[ND_AUDIT_SCALES]);
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        count_probe(capture, nd_capture_probe(capture, p), &checks[ND_AUDIT_COUNTS]);
    ND_TRY(nd_audit_model(capture, model, &checks[ND_AUDIT_MODEL], err));
    ND_TRY(nd_audit_tensors(capture, model, &checks[ND_AUDIT_TENSORS], err));
    ND_TRY(nd_audit_exact(capture, model, &checks[ND_AUDIT_EXACT], err));
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
        audit.n_wrong += checks[i].n_wrong > 0;
    *out = audit;
    return ND_OK;
}

/* Captures of `exact` and `float64`: what these devices compute follows from the model and the inputs, to the
 * last bit. */

struct work {
    const struct nd_capture *capture;
    const struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_exact_options options;
    struct nd_array *inputs; /* [n_inputs of the model] */
    size_t *tensor_of;       /* [n_edges of the model] the capture's; SIZE_MAX: not recorded */
    unsigned char *bytes;    /* of a computed tensor */
    size_t capacity;
    size_t probe, sample; /* at hand */
    struct nd_audit_check *check;
};

static enum nd_status find_tensors(struct work *work, struct nd_error *err)
{
    ND_CLEANUP(nd_names_deinit) struct nd_names names = {0};
    size_t n = nd_model_n_tensors(work->model);
    work->tensor_of = nd_calloc(n, sizeof *work->tensor_of);
    ND_TRY_MEMORY(work->tensor_of != NULL, err);
    for (size_t e = 0; e < nd_capture_n_tensors(work->capture); e++) {
        const char *tensor = nd_capture_tensor(work->capture, e)->onnx_name;
        if (nd_names_find(&names, tensor) == SIZE_MAX && !nd_names_add(&names, tensor, e))
            return nd_fail_memory(err);
    }
    for (size_t e = 0; e < n; e++)
        work->tensor_of[e] = nd_names_find(&names, nd_model_tensor(work->model, e)->onnx_name);
    return ND_OK;
}

/* nd_exact_found: the digests of all runs of that sample must be those of the computed values. */
static enum nd_status compare_evaluated(void *context, size_t own, const struct nd_array *values,
                                        enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct work *work = context;
    size_t tensor = work->tensor_of[own], n_bytes;
    if (tensor == SIZE_MAX)
        return ND_OK;
    const struct nd_tensor *recorded = nd_capture_tensor(work->capture, tensor);
    const struct nd_capture_probe *probe = nd_capture_probe(work->capture, work->probe);
    ND_TRY(nd_shape_size_bytes(&values->shape, recorded->dtype, &n_bytes, err));
    ND_TRY_MEMORY(nd_grow((void **)&work->bytes, &work->capacity, n_bytes > 0 ? n_bytes : 1, 1), err);
    nd_array_store(recorded->dtype, values->x, values->n, work->bytes);
    struct nd_digest digest = nd_digest_bytes(work->bytes, n_bytes);
    bool is_equal = true;
    for (size_t r = 0; r < nd_capture_n_runs(work->capture, work->probe, tensor, work->sample); r++)
        is_equal = is_equal && nd_digest_equal(digest, nd_capture_digest(work->capture, work->probe, tensor,
                                                                         work->sample, r));
    work->check->n++;
    if (!is_equal)
        nd_audit_wrong(work->check, "probe '%s', tensor '%s', sample %zu: computed again, it has other values",
                       probe->name, recorded->name, work->sample);
    return ND_OK;
}

static void *make_room(const struct nd_shape *shape, enum nd_dtype dtype, size_t *n_bytes,
                       enum nd_status *status, struct nd_error *err)
{
    *status = nd_shape_size_bytes(shape, dtype, n_bytes, err);
    void *room = *status == ND_OK ? nd_calloc(*n_bytes > 0 ? *n_bytes : 1, 1) : NULL;
    if (*status == ND_OK && room == NULL)
        *status = nd_fail_memory(err);
    return room;
}

/* The sample's inputs as the model's. ND_ERR_NOT_FOUND: the capture has not all. */
static enum nd_status load_inputs(struct work *work, struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(work->capture, work->probe);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_model_n_inputs(work->model) && status == ND_OK; i++) {
        const struct nd_model_io *input = nd_model_input(work->model, i);
        size_t k = 0, n_bytes;
        while (k < probe->n_inputs && strcmp(probe->inputs[k].name, input->name) != 0)
            k++;
        if (k == probe->n_inputs || probe->inputs[k].dtype != input->dtype ||
            !nd_shape_equal(&probe->inputs[k].shape, &input->shape))
            return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, input->name, "input '%s' of the model is not stored",
                           input->name);
        const struct nd_probe_values tensor = {work->capture, work->probe, k};
        void *room = make_room(&input->shape, input->dtype, &n_bytes, &status, err);
        if (status == ND_OK)
            status = nd_capture_read_inputs(&tensor, work->sample, 1, room, err);
        if (status == ND_OK)
            status = nd_array_make(&work->inputs[i], input->dtype, &input->shape, err);
        if (status == ND_OK)
            nd_array_load(input->dtype, room, work->inputs[i].n, work->inputs[i].x);
        free(room);
    }
    return status;
}

static enum nd_status run_all(struct work *work, struct nd_error *err)
{
    for (work->probe = 0; work->probe < nd_capture_n_probes(work->capture); work->probe++)
        for (work->sample = 0; work->sample < nd_capture_probe(work->capture, work->probe)->n_samples;
             work->sample++) {
            ND_TRY(load_inputs(work, err));
            ND_TRY(nd_exact_graph_run(work->graph, work->inputs, &work->options, compare_evaluated, work, err));
        }
    return ND_OK;
}

/* Why it cannot be computed again; NULL: it can. */
static const char *reason_not_to(const struct nd_capture *capture, const struct nd_model *model,
                                 struct nd_exact_options *options)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    const char *rounding = nd_capture_string(capture, "runtime", "option_rounding");
    if (kind == NULL || (strcmp(kind, "exact") != 0 && strcmp(kind, "float64") != 0))
        return "only the devices 'exact' and 'float64' can be computed again";
    if (model == NULL)
        return "no --model";
    if (rounding != NULL && !nd_rounding_from_name(rounding, &options->rounding))
        return "the capture names a rounding that is not known here";
    return NULL;
}

static enum nd_status nd_audit_exact(const struct nd_capture *capture, const struct nd_model *model,
                                     struct nd_audit_check *check, struct nd_error *err)
{
    struct work work = {
        .capture = capture, .model = model, .options.struct_size = sizeof work.options, .check = check};
    struct nd_error why = {0};
    const char *reason = reason_not_to(capture, model, &work.options);
    if (reason != NULL) {
        nd_audit_not_done(check, "%s", reason);
        return ND_OK;
    }
    work.inputs = nd_calloc(nd_model_n_inputs(model), sizeof *work.inputs);
    enum nd_status status = work.inputs != NULL ? find_tensors(&work, &why) : nd_fail_memory(&why);
    if (status == ND_OK)
        status = nd_exact_graph_create(model, &work.graph, &why);
    if (status == ND_OK)
        status = run_all(&work, &why);
    for (size_t i = 0; work.inputs != NULL && i < nd_model_n_inputs(model); i++)
        nd_array_deinit(&work.inputs[i]);
    nd_exact_graph_destroy(&work.graph);
    ND_FREE_ALL(work.inputs, work.tensor_of, work.bytes);
    if (status == ND_ERR_MEMORY || status == ND_ERR_IO) {
        if (err != NULL)
            *err = why;
        return status;
    }
    if (status != ND_OK && check->n_wrong == 0)
        nd_audit_not_done(check, "%s", why.message);
    return ND_OK;
}
