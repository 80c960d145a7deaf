/* Captures of `exact` and `float64`: what these devices compute follows from the model and the inputs, to the
 * last bit. */
#include <stdlib.h>
#include <string.h>

#include "explain/audit/audit_checks.h"
#include "core/memory.h"
#include "core/text/names.h"
#include "arithmetic/exact/eval_graph.h"

struct work {
    const struct nd_capture *capture;
    const struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_exact_options options;
    struct nd_array *inputs; /* [n_inputs of the model] */
    size_t *edge_of;         /* [n_edges of the model] the capture's; SIZE_MAX: not recorded */
    unsigned char *bytes;    /* of a computed tensor */
    size_t capacity;
    size_t probe, sample; /* at hand */
    struct nd_audit_check *check;
};

static enum nd_status find_edges(struct work *work, struct nd_error *err)
{
    struct nd_names names = {0};
    size_t n = nd_model_n_edges(work->model);
    enum nd_status status = ND_OK;
    work->edge_of = nd_calloc(n, sizeof *work->edge_of);
    if (work->edge_of == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < nd_capture_n_edges(work->capture) && status == ND_OK; e++) {
        const char *tensor = nd_capture_edge(work->capture, e)->onnx_name;
        if (nd_names_find(&names, tensor) == SIZE_MAX && !nd_names_add(&names, tensor, e))
            status = nd_fail_memory(err);
    }
    for (size_t e = 0; e < n && status == ND_OK; e++)
        work->edge_of[e] = nd_names_find(&names, nd_model_edge(work->model, e)->onnx_name);
    nd_names_deinit(&names);
    return status;
}

/* nd_exact_found: the digests of all runs of that sample must be those of the computed values. */
static enum nd_status compare_edge(void *context, size_t own, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct work *work = context;
    size_t edge = work->edge_of[own], n_bytes;
    if (edge == SIZE_MAX)
        return ND_OK;
    const struct nd_edge *recorded = nd_capture_edge(work->capture, edge);
    const struct nd_capture_probe *probe = nd_capture_probe(work->capture, work->probe);
    enum nd_status status = nd_shape_size_bytes(&values->shape, recorded->dtype, &n_bytes, err);
    if (status == ND_OK && !nd_grow((void **)&work->bytes, &work->capacity, n_bytes > 0 ? n_bytes : 1, 1))
        status = nd_fail_memory(err);
    if (status != ND_OK)
        return status;
    nd_array_store(recorded->dtype, values->x, values->n, work->bytes);
    struct nd_digest digest = nd_digest_bytes(work->bytes, n_bytes);
    bool is_equal = true;
    for (size_t r = 0; r < nd_capture_n_runs(work->capture, work->probe, edge, work->sample); r++)
        is_equal = is_equal && nd_digest_equal(digest, nd_capture_digest(work->capture, work->probe, edge,
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
        const struct nd_capture_tensor tensor = {work->capture, work->probe, k};
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
    enum nd_status status = ND_OK;
    for (work->probe = 0; work->probe < nd_capture_n_probes(work->capture); work->probe++)
        for (work->sample = 0;
             status == ND_OK && work->sample < nd_capture_probe(work->capture, work->probe)->n_samples;
             work->sample++) {
            status = load_inputs(work, err);
            if (status == ND_OK)
                status = nd_exact_graph_run(work->graph, work->inputs, &work->options, compare_edge, work, err);
        }
    return status;
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

enum nd_status nd_audit_exact(const struct nd_capture *capture, const struct nd_model *model,
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
    enum nd_status status = work.inputs != NULL ? find_edges(&work, &why) : nd_fail_memory(&why);
    if (status == ND_OK)
        status = nd_exact_graph_create(model, &work.graph, &why);
    if (status == ND_OK)
        status = run_all(&work, &why);
    for (size_t i = 0; work.inputs != NULL && i < nd_model_n_inputs(model); i++)
        nd_array_deinit(&work.inputs[i]);
    nd_exact_graph_destroy(&work.graph);
    free(work.inputs);
    free(work.edge_of);
    free(work.bytes);
    if (status == ND_ERR_MEMORY || status == ND_ERR_IO) {
        if (err != NULL)
            *err = why;
        return status;
    }
    if (status != ND_OK && check->n_wrong == 0)
        nd_audit_not_done(check, "%s", why.message);
    return ND_OK;
}
