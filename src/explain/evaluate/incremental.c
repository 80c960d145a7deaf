/* After a change of one tensor, computes again only what depends on it. */
#include "explain/evaluate/incremental.h"

#include "core/items.h"

enum nd_status nd_incremental_find_layers(const struct nd_plan *plan, struct nd_byte_layers **out,
                                          struct nd_error *err)
{
    enum {
        OF_TABLES = 32
    }; /* a part of the memory: 512 tables of two quantised values with the default; chosen */
    size_t n_tensors = nd_model_n_tensors(plan->model);
    ND_FREED struct nd_shape *shapes = nd_calloc(n_tensors, sizeof *shapes);
    ND_TRY_MEMORY(shapes != NULL, err);
    for (size_t e = 0; e < n_tensors; e++)
        shapes[e].rank = -1;
    for (size_t s = 0; s < plan->n_steps; s++)
        shapes[plan->steps[s].tensor] = plan->shapes[s];
    return nd_byte_layers_create(plan->graph, shapes, nd_plan_share(plan, OF_TABLES), out, err);
}

enum nd_status nd_incremental_init(struct nd_incremental *r, const struct nd_plan *plan,
                                   const struct nd_byte_layers *layers, struct nd_error *err)
{
    *r = (struct nd_incremental){.plan = plan, .layers = layers};
    r->made = nd_calloc(plan->n_steps, sizeof *r->made);
    r->changed = nd_calloc(plan->n_steps, sizeof(struct nd_packed *));
    r->first_reader = nd_calloc(plan->n_steps, sizeof *r->first_reader);
    r->last_reader = nd_calloc(plan->n_steps, sizeof *r->last_reader);
    r->touched = nd_calloc(plan->n_steps, sizeof *r->touched);
    ND_TRY_MEMORY(r->made != NULL && r->changed != NULL && r->first_reader != NULL && r->last_reader != NULL &&
                      r->touched != NULL,
                  err);
    for (size_t s = 0; s < plan->n_steps; s++)
        r->first_reader[s] = r->last_reader[s] = SIZE_MAX;
    for (size_t u = 0; u < nd_byte_layers_count(layers); u++) {
        const size_t *tensors;
        size_t n = nd_byte_layer_inputs(layers, u, &tensors);
        for (size_t i = 0; i < n; i++) {
            size_t step = plan->step_of_tensor[tensors[i]];
            r->first_reader[step] = r->first_reader[step] == SIZE_MAX ? u : r->first_reader[step];
            r->last_reader[step] = u;
        }
    }
    return nd_byte_runner_create(layers, &r->runner, err);
}

void nd_incremental_deinit(struct nd_incremental *r)
{
    for (size_t s = 0; r->made != NULL && s < r->plan->n_steps; s++)
        nd_packed_deinit(&r->made[s]);
    ND_FREE_ALL(r->made, r->changed, r->first_reader, r->last_reader, r->touched);
    nd_byte_runner_destroy(&r->runner);
    *r = (struct nd_incremental){.plan = NULL};
}

static size_t step_made(const struct nd_incremental *r, size_t layer)
{
    return r->plan->step_of_tensor[nd_byte_layer_tensor(r->layers, layer)];
}

static const struct nd_packed *current(const struct nd_incremental *r, size_t tensor)
{
    size_t step = r->plan->step_of_tensor[tensor];
    return r->changed[step] != NULL ? r->changed[step] : &r->reference[step];
}

static bool is_reached(const struct nd_incremental *r, size_t layer)
{
    const size_t *tensors;
    size_t n = nd_byte_layer_inputs(r->layers, layer, &tensors);
    for (size_t i = 0; i < n; i++)
        if (r->changed[r->plan->step_of_tensor[tensors[i]]] != NULL)
            return true;
    return false;
}

/* By the options of the changes, whatever it reads. */
static bool is_made_anew(const struct nd_incremental *r, size_t layer)
{
    return r->change != NULL && r->change->is_changed[nd_byte_layer_tensor(r->layers, layer)];
}

enum { MAX_INPUTS = 64 };

static bool has_bytes(const struct nd_incremental *r, size_t layer, const uint8_t *inputs[MAX_INPUTS])
{
    const size_t *tensors;
    size_t n = nd_byte_layer_inputs(r->layers, layer, &tensors);
    bool has_all = nd_byte_layer_is_quick(r->layers, layer) && n <= MAX_INPUTS && !is_made_anew(r, layer) &&
                   r->reference[step_made(r, layer)].width == 1;
    for (size_t i = 0; i < n && has_all; i++) {
        inputs[i] = current(r, tensors[i])->bytes;
        has_all = current(r, tensors[i])->width == 1;
    }
    return has_all;
}

static enum nd_status run_bytes(struct nd_incremental *r, size_t layer, const uint8_t *const *inputs,
                                struct nd_error *err)
{
    size_t step = step_made(r, layer);
    struct nd_packed *made = &r->made[step];
    nd_packed_deinit(made);
    *made = (struct nd_packed){.tensor_view = r->reference[step].tensor_view, .width = 1};
    made->bytes = nd_tensor_room(made->tensor_view.n);
    return made->bytes != NULL ? nd_byte_layer_run(r->runner, layer, inputs, made->bytes, err)
                               : nd_fail_memory(err);
}

/* In doubles. */
static enum nd_status run_slowly(struct nd_incremental *r, size_t layer, struct nd_error *err)
{
    const size_t *tensors;
    size_t n = nd_byte_layer_inputs(r->layers, layer, &tensors);
    size_t step = step_made(r, layer);
    struct nd_array *inputs = nd_calloc(n, sizeof *inputs), qvalues = {.n = 0};
    enum nd_status status = inputs != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        const struct nd_packed *from = current(r, tensors[i]);
        status = nd_array_make_room(&inputs[i], from->tensor_view.dtype, &from->tensor_view.shape, err);
        if (status == ND_OK && inputs[i].n > 0)
            nd_unpack(from, inputs[i].x);
    }
    if (status == ND_OK)
        status = r->change != NULL ? nd_byte_layer_evaluate_with(r->runner, layer, r->change->options,
                                                                 r->change->context, inputs, &qvalues, err)
                                   : nd_byte_layer_evaluate(r->runner, layer, inputs, &qvalues, err);
    ND_DEINIT_EACH(nd_array_deinit, inputs, n);
    if (status == ND_OK && qvalues.n != r->reference[step].tensor_view.n)
        status = nd_fail(err, ND_E_EXACT_SHAPE, NULL, "a layer has another shape");
    if (status == ND_OK)
        status = nd_pack(&qvalues, &r->made[step], err);
    nd_array_deinit(&qvalues);
    return status;
}

static bool are_equal(const struct nd_packed *a, const struct nd_packed *b)
{
    return a->width == b->width && memcmp(a->bytes, b->bytes, a->tensor_view.n * a->width) == 0;
}

/* Whole numbers, whose squares are added exactly in any order. */
static void add_bytes(const uint8_t *a, const uint8_t *b, size_t n, struct nd_incremental_sums *sums)
{
    uint64_t n_changed = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        int d = a[i] - b[i];
        n_changed += d != 0;
        squares += (uint64_t)(d * d);
    }
    sums->n_changed += n_changed;
    sums->squares += (double)squares;
}

static enum nd_status add_up(const struct nd_packed *a, const struct nd_packed *b,
                             struct nd_incremental_sums *sums, struct nd_error *err)
{
    size_t n = a->tensor_view.n;
    if (a->width == 1 && b->width == 1) {
        add_bytes(a->bytes, b->bytes, n, sums);
        return ND_OK;
    }
    ND_FREED double *x = nd_tensor_room(n * sizeof *x), *y = nd_tensor_room(n * sizeof *y);
    bool has_room = x != NULL && y != NULL;
    if (has_room) {
        nd_unpack(a, x);
        nd_unpack(b, y);
    }
    for (size_t i = 0; i < n && has_room; i++) {
        double d = x[i] - y[i];
        sums->n_changed += d != 0;
        sums->squares += d * d;
    }
    return has_room ? ND_OK : nd_fail_memory(err);
}

/* Layers are in graph order: what reads the step comes behind it. */
static void set_changed(struct nd_incremental *r, size_t step, const struct nd_packed *to)
{
    r->changed[step] = to;
    r->touched[r->n_touched++] = step;
    r->reach = r->last_reader[step] > r->reach ? r->last_reader[step] : r->reach;
}

static enum nd_status run_layer(struct nd_incremental *r, size_t layer, struct nd_incremental_sums *sums,
                                struct nd_error *err)
{
    const uint8_t *inputs[MAX_INPUTS];
    size_t step = step_made(r, layer);
    struct nd_packed *made = &r->made[step];
    enum nd_status status =
        has_bytes(r, layer, inputs) ? run_bytes(r, layer, inputs, err) : run_slowly(r, layer, err);
    if (status != ND_OK)
        return status;
    bool is_changed = !are_equal(made, &r->reference[step]);
    if (r->plan->steps[step].is_model_output && r->change != NULL)
        r->change->found(r->change->context, step, made);
    else if (is_changed && r->plan->steps[step].is_model_output)
        status = add_up(made, &r->reference[step], sums, err);
    if (is_changed && r->last_reader[step] != SIZE_MAX)
        set_changed(r, step, made);
    else
        nd_packed_deinit(made);
    return status;
}

/* Layers from that one to the last that there is to look at. */
static enum nd_status run_layers(struct nd_incremental *r, size_t from, struct nd_incremental_sums *sums,
                                 bool *is_known, struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = ND_OK;
    for (size_t u = from; u <= r->reach && u < nd_byte_layers_count(r->layers) && status == ND_OK; u++) {
        if (!is_reached(r, u) && !is_made_anew(r, u))
            continue;
        status = run_layer(r, u, sums, &why);
        const size_t *tensors;
        size_t n = nd_byte_layer_inputs(r->layers, u, &tensors);
        for (size_t i = 0; i < n; i++) {
            size_t step = r->plan->step_of_tensor[tensors[i]];
            if (r->last_reader[step] == u)
                nd_packed_deinit(&r->made[step]);
        }
    }
    for (size_t i = 0; i < r->n_touched; i++)
        r->changed[r->touched[i]] = NULL;
    *is_known = status == ND_OK;
    if (status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT)
        return ND_OK;
    if (status != ND_OK && err != NULL)
        *err = why;
    return status;
}

enum nd_status nd_incremental_run(struct nd_incremental *r, const struct nd_packed *reference, size_t step,
                                  const struct nd_packed *changed, struct nd_incremental_sums *sums,
                                  bool *is_known, struct nd_error *err)
{
    *sums = (struct nd_incremental_sums){.n_changed = 0};
    r->reference = reference;
    r->change = NULL;
    r->n_touched = r->reach = 0;
    if (r->first_reader[step] != SIZE_MAX)
        set_changed(r, step, changed);
    return run_layers(r, r->first_reader[step], sums, is_known, err);
}

enum nd_status nd_incremental_changes(struct nd_incremental *r, const struct nd_packed *reference,
                                      const struct nd_incremental_change *change, bool *is_known,
                                      struct nd_error *err)
{
    struct nd_incremental_sums sums = {.n_changed = 0};
    r->reference = reference;
    r->change = change;
    r->n_touched = r->reach = 0;
    if (change->given_step != SIZE_MAX && r->first_reader[change->given_step] != SIZE_MAX)
        set_changed(r, change->given_step, change->given);
    for (size_t u = 0; u < nd_byte_layers_count(r->layers); u++)
        r->reach = is_made_anew(r, u) && u > r->reach ? u : r->reach;
    return run_layers(r, 0, &sums, is_known, err);
}
