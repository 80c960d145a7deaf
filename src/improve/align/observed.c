/* What real inputs multiply the weights of layers with. docs/science/align.md. */
#include "improve/align/align_stages.h"

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/operators/window.h"
#include "core/memory.h"
#include "core/random.h"
#include "explain/plan/replay.h"

/* All chosen. A layer's rows take 4 MiB at most. */
enum { MAX_SAMPLES = 8, MAX_ROWS = 2048, MAX_VALUES = 1 << 20 };

struct watcher {
    struct nd_observed *observed;
    size_t n_samples;
};

void nd_observed_destroy(struct nd_observed **observed)
{
    struct nd_observed *old = *observed;
    for (size_t e = 0; old != NULL && old->layers != NULL && e < old->n_tensors; e++)
        free(old->layers[e].rows);
    if (old != NULL)
        free(old->layers);
    free(old);
    *observed = NULL;
}

/* Room for the rows of all samples, when the first one comes. */
static enum nd_status make_room(struct nd_observed_layer *layer, size_t n_samples, struct nd_error *err)
{
    size_t n_values = layer->n_groups * layer->n_terms, room = MAX_VALUES / n_values;
    if (layer->rows != NULL)
        return ND_OK;
    room = room < n_samples ? n_samples : room > MAX_ROWS ? MAX_ROWS : room;
    layer->n_room = room / n_samples * n_samples;
    layer->rows = nd_calloc(layer->n_room * n_values, sizeof *layer->rows);
    return layer->rows != NULL ? ND_OK : nd_fail_memory(err);
}

/* The place of the i-th of n rows of this sample, of n_places: all of them in turn, or drawn. */
static size_t draw_place(struct nd_observed_layer *layer, size_t i, size_t n, size_t n_places)
{
    return n == n_places ? i : nd_splitmix_below(&layer->state, n_places);
}

/* ---- Conv ---- */

/* What one window reads of the planes of a group. */
static void copy_window(const struct nd_window *w, size_t place, const double *planes,
                        const struct nd_quant *quant, const struct nd_observed_layer *layer, float *to)
{
    const ptrdiff_t at = (ptrdiff_t)place;
    const ptrdiff_t o[ND_WINDOW_AXES] = {at / (w->out[1] * w->out[2]), at / w->out[2] % w->out[1],
                                         at % w->out[2]};
    for (size_t t = 0; t < layer->n_terms; t++) {
        ptrdiff_t tap = (ptrdiff_t)t % w->n_kernel, i[ND_WINDOW_AXES];
        const ptrdiff_t k[ND_WINDOW_AXES] = {tap / (w->kernel[1] * w->kernel[2]),
                                             tap / w->kernel[2] % w->kernel[1], tap % w->kernel[2]};
        bool is_inside = true;
        for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
            i[axis] = o[axis] * w->stride[axis] + k[axis] * w->dilation[axis] - w->pad_begin[axis];
            is_inside = is_inside && i[axis] >= 0 && i[axis] < w->in[axis];
        }
        const double *plane = planes + (ptrdiff_t)t / w->n_kernel * w->n_in;
        to[t] = 0;
        if (is_inside)
            to[t] = (float)((plane[(i[0] * w->in[1] + i[1]) * w->in[2] + i[2]] - (double)quant->zero_point[0]) *
                            (double)quant->scale[0]);
    }
}

static enum nd_status watch_conv(const struct watcher *watcher, const struct nd_linear_call *call,
                                 struct nd_observed_layer *layer, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0].values, *weight = call->inputs[1].values;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    int64_t n_groups = nd_op_i(&op_call, "group", 1);
    struct nd_error ignored = {0};
    struct nd_window w;
    if (x->shape.rank < 3 || weight->shape.rank != x->shape.rank || n_groups < 1 || x->n == 0 ||
        weight->n == 0 || nd_window_read(&op_call, &x->shape, &weight->shape.dims[2], &w, &ignored) != ND_OK ||
        nd_window_fit(&op_call, &w, &ignored) != ND_OK || w.n_out == 0 ||
        x->shape.dims[1] != weight->shape.dims[1] * n_groups || weight->shape.dims[0] % n_groups != 0)
        return ND_OK;
    size_t n_in = (size_t)weight->shape.dims[1], n_places = (size_t)(x->shape.dims[0] * w.n_out);
    layer->n_groups = (size_t)n_groups;
    layer->n_columns = (size_t)(weight->shape.dims[0] / n_groups);
    layer->n_terms = layer->column_step = n_in * (size_t)w.n_kernel;
    layer->term_step = 1;
    enum nd_status status = make_room(layer, watcher->n_samples, err);
    size_t n = layer->n_room / watcher->n_samples;
    n = n < n_places ? n : n_places;
    for (size_t i = 0; i < n && status == ND_OK; i++, layer->n_rows++) {
        size_t place = draw_place(layer, i, n, n_places), sample = place / (size_t)w.n_out;
        for (size_t g = 0; g < layer->n_groups; g++)
            copy_window(&w, place % (size_t)w.n_out,
                        x->x + (sample * layer->n_groups + g) * n_in * (size_t)w.n_in, call->inputs[0].quant,
                        layer, layer->rows + (g * layer->n_room + layer->n_rows) * layer->n_terms);
    }
    return status;
}

/* ---- Gemm, MatMul ---- */

static enum nd_status watch_matrix(const struct watcher *watcher, const struct nd_linear_call *call,
                                   struct nd_observed_layer *layer, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0].values, *weight = call->inputs[1].values;
    const struct nd_quant *quant = call->inputs[0].quant;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    bool is_turned = nd_op_i(&op_call, "transB", 0) != 0;
    if (weight->shape.rank != 2 || x->shape.rank < 1 || x->n == 0 || weight->n == 0 ||
        nd_op_i(&op_call, "transA", 0) != 0 || nd_op_f(&op_call, "alpha", 1) != 1 ||
        nd_op_f(&op_call, "beta", 1) != 1)
        return ND_OK;
    layer->n_groups = 1;
    layer->n_terms = (size_t)weight->shape.dims[is_turned ? 1 : 0];
    layer->n_columns = (size_t)weight->shape.dims[is_turned ? 0 : 1];
    layer->column_step = is_turned ? layer->n_terms : 1;
    layer->term_step = is_turned ? 1 : layer->n_columns;
    enum nd_status status = make_room(layer, watcher->n_samples, err);
    size_t n = layer->n_room / watcher->n_samples, n_places = x->n / layer->n_terms;
    n = n < n_places ? n : n_places;
    for (size_t i = 0; i < n && status == ND_OK; i++, layer->n_rows++) {
        const double *from = x->x + draw_place(layer, i, n, n_places) * layer->n_terms;
        for (size_t t = 0; t < layer->n_terms; t++)
            layer->rows[layer->n_rows * layer->n_terms + t] =
                (float)((from[t] - (double)quant->zero_point[0]) * (double)quant->scale[0]);
    }
    return status;
}

/* ---- all layers ---- */

/* A nd_exact_make that makes nothing. */
static enum nd_status watch(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                            bool *is_made, struct nd_error *err)
{
    const struct watcher *watcher = context;
    const struct nd_linear_call *call = layer->call;
    struct nd_observed_layer *aligned = &watcher->observed->layers[layer->tensor];
    (void)qvalues;
    *is_made = false;
    if (call->node == NULL || call->n_inputs < 2 || layer->origins[1] != ND_EXACT_FROM_CONSTANT ||
        !nd_align_is_product(nd_onnx_text(call->node->op_type)) || call->inputs[0].values == NULL ||
        call->inputs[0].quant == NULL || call->inputs[0].quant->n != 1 || call->inputs[1].values == NULL)
        return ND_OK;
    return strcmp(nd_onnx_text(call->node->op_type), "Conv") == 0 ? watch_conv(watcher, call, aligned, err)
                                                                  : watch_matrix(watcher, call, aligned, err);
}

static enum nd_status run_samples(const struct nd_align_job *job, struct watcher *watcher, struct nd_error *err)
{
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *graph = NULL;
    size_t n = nd_align_n_samples(job->options);
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = watch, .missed = nd_exact_let_go};
    ND_TRY(nd_inputs_create(job->model, &inputs, err));
    ND_TRY(nd_exact_graph_create(job->model, &graph, err));
    for (size_t i = 0; i < watcher->n_samples; i++) {
        size_t sample = i * n / watcher->n_samples;
        nd_align_load_sample(job, &sample, inputs);
        ND_TRY(nd_align_tell(job, "observe", i, watcher->n_samples, err));
        ND_TRY(nd_exact_graph_run(graph, inputs, &options, NULL, watcher, err));
    }
    return ND_OK;
}

bool nd_align_fit_options(const struct nd_align_options *options, struct nd_align_options *out)
{
    *out = *options;
    out->n_probes = options->n_fit > 0 ? options->n_fit : 1;
    out->probes = options->n_fit > 0 ? options->fit : options->probes;
    out->n_samples = 0;
    return options->n_probes > 0 || options->n_fit > 0;
}

enum nd_status nd_align_observe(const struct nd_align_job *job, struct nd_observed **out, struct nd_error *err)
{
    struct nd_align_options options;
    struct nd_align_job own = *job;
    if (!nd_align_fit_options(job->options, &options))
        return ND_OK;
    own.options = &options;
    size_t n = nd_align_n_samples(&options), n_tensors = nd_model_n_tensors(job->model);
    struct nd_observed *observed = nd_calloc(1, sizeof *observed);
    struct watcher watcher = {.observed = observed, .n_samples = n < MAX_SAMPLES ? n : MAX_SAMPLES};
    enum nd_status status = ND_OK;
    if (observed != NULL) {
        observed->n_tensors = n_tensors;
        observed->layers = nd_calloc(n_tensors, sizeof *observed->layers);
    }
    if (observed == NULL || observed->layers == NULL)
        status = nd_fail_memory(err);
    for (size_t e = 0; e < n_tensors && status == ND_OK; e++)
        observed->layers[e].state = e;
    if (status == ND_OK)
        status = run_samples(&own, &watcher, err);
    job->result->n_fit_samples = watcher.n_samples;
    size_t n_priced = job->options->n_fit == 0 ? nd_align_n_samples(job->options) : 0;
    job->result->n_fit_priced = watcher.n_samples < n_priced ? watcher.n_samples : n_priced;
    if (status != ND_OK)
        nd_observed_destroy(&observed);
    *out = observed;
    return status;
}
