/* An emulated device at work. */
#include "devices/emulator/emulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "devices/emulator/emulate_internal.h"

/* What makes the numbers of one tensor in one run; uniform is in [0, 1). */
static uint64_t nd_emu_key(uint64_t seed, const char *name, uint64_t run)
{
    uint64_t key = nd_splitmix_hash(seed);
    for (; *name != '\0'; name++)
        key = nd_splitmix_hash(key ^ (unsigned char)*name);
    return nd_splitmix_hash(key ^ run);
}

/* What makes the numbers of one tensor in one run; uniform is in [0, 1). */
static double nd_emu_uniform(uint64_t key, uint64_t i)
{
    return nd_random_share(nd_splitmix_hash(key ^ nd_splitmix_hash(i)));
}

static double zero_point(const struct nd_exact_values *values, size_t i)
{
    return (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
}

static void flip(const struct nd_emu_scene *scene, struct nd_array *qvalues)
{
    double low, high;
    uint64_t key = nd_emu_key(scene->seed, scene->name, scene->run);
    nd_qvalue_range(scene->values->dtype, &low, &high);
    for (size_t i = 0; i < qvalues->n; i++)
        if (nd_emu_uniform(key, 2 * i) < scene->item->real) {
            double step = nd_emu_uniform(key, 2 * i + 1) < 0.5 ? -1 : 1;
            qvalues->x[i] = fmin(fmax(qvalues->x[i] + step, low), high);
        }
}

/* One cycle through all channels (Sattolo), so that none stays. */
static size_t *make_cycle(size_t n, uint64_t seed)
{
    size_t *cycle = nd_calloc(n, sizeof *cycle);
    for (size_t c = 0; cycle != NULL && c < n; c++)
        cycle[c] = c;
    for (size_t c = n; cycle != NULL && c-- > 1;) {
        size_t other = (size_t)(nd_emu_uniform(nd_splitmix_hash(seed), c) * (double)c), kept = cycle[c];
        cycle[c] = cycle[other];
        cycle[other] = kept;
    }
    return cycle;
}

/* Where element i of the faulty tensor comes from: NHWC order read as if it were NCHW. */
static size_t transposed(const struct nd_shape *shape, size_t i)
{
    int rank = shape->rank;
    size_t channels = (size_t)shape->dims[rank == 4 ? 1 : rank - 2];
    size_t inner = (size_t)shape->dims[rank - 1] * (rank == 4 ? (size_t)shape->dims[2] : 1);
    size_t block = i / (channels * inner), rest = i % (channels * inner);
    return block * channels * inner + rest % channels * inner + rest / channels;
}

/* The quantised values move; from says whence. */
static enum nd_status move(const struct nd_emu_scene *scene, struct nd_array *qvalues, struct nd_error *err)
{
    const struct nd_emu_channels *channels = &scene->channels;
    ND_CLEANUP(nd_array_deinit) struct nd_array from = {0};
    ND_FREED size_t *cycle = make_cycle(channels->n, scene->item->seed);
    enum nd_status status = cycle != NULL ? nd_array_copy(qvalues, &from, err) : nd_fail_memory(err);
    int64_t n = (int64_t)qvalues->n;
    for (size_t i = 0; status == ND_OK && i < qvalues->n; i++) {
        size_t source = i, channel = i / channels->n_inner % channels->n;
        if (scene->item->word == ND_EMU_SHIFT)
            source = (size_t)((((int64_t)i + scene->item->first % n) % n + n) % n);
        else if (scene->item->word == ND_EMU_TRANSPOSE)
            source = transposed(scene->values->shape, i);
        else
            source = i - channel * channels->n_inner + cycle[channel] * channels->n_inner;
        qvalues->x[i] = from.x[source];
    }
    return status;
}

static void overwrite(const struct nd_emu_scene *scene, struct nd_array *qvalues)
{
    const struct nd_emu_item *item = scene->item;
    double low, high;
    nd_qvalue_range(scene->values->dtype, &low, &high);
    for (size_t i = 0; i < qvalues->n; i++) {
        double *qvalue = &qvalues->x[i];
        if (item->word == ND_EMU_ZERO || (item->word == ND_EMU_CLIFF && *qvalue > (double)item->first))
            *qvalue = zero_point(scene->values, i);
        else if (item->word == ND_EMU_CLAMP)
            *qvalue = fmin(fmax(fmin(fmax(*qvalue, (double)item->first), (double)item->second), low), high);
        else if (item->word == ND_EMU_WINDOW && (int64_t)i >= item->first &&
                 (int64_t)i - item->first < item->second)
            *qvalue = 0;
    }
}

/* Applies a fault of quantised values. */
static enum nd_status nd_emu_inject_fault(const struct nd_emu_scene *scene, struct nd_array *qvalues,
                                          struct nd_error *err)
{
    switch (scene->item->word) {
    case ND_EMU_STALE:
        if (scene->before->n == qvalues->n)
            memcpy(qvalues->x, scene->before->x, qvalues->n * sizeof *qvalues->x);
        return ND_OK;
    case ND_EMU_FLIP:
        flip(scene, qvalues);
        return ND_OK;
    case ND_EMU_TRANSPOSE:
        if (qvalues->shape.rank != 3 && qvalues->shape.rank != 4)
            return nd_fail(err, ND_E_DEVICE_PROFILE, scene->item->text,
                           "item '%s': rank %d cannot be transposed, but 3 and 4", scene->item->text,
                           qvalues->shape.rank);
        return move(scene, qvalues, err);
    case ND_EMU_PERMUTE:
    case ND_EMU_SHIFT:
        return move(scene, qvalues, err);
    default:
        overwrite(scene, qvalues);
        return ND_OK;
    }
}

/* A layer on its way from values to quantised values. */
struct work {
    struct nd_emulator *emulator;
    const struct nd_exact_values *values;
    const struct nd_emu_layer *layer;
    struct nd_emu_tensor *state;
    struct nd_emu_channels channels;
    const struct nd_ratio *v; /* those of values, or own */
    struct nd_ratio *own;
    double *offsets; /* [n] beside the zero point, or NULL */
    struct nd_array before;
    size_t next_truth;
};

/* The number of the run, without those that only repeat the run before them. */
static uint64_t run_of(const struct nd_emulator *emulator)
{
    return emulator->n_again > 0 ? emulator->n_runs - 1 : emulator->n_runs;
}

static uint64_t sample_of(const struct nd_emulator *emulator)
{
    return run_of(emulator) / emulator->n_repeats;
}

/* ---- rounding ---- */

static double round_one(const struct nd_emu_arithmetic *arithmetic, const struct nd_ratio *v, uint64_t key,
                        size_t i)
{
    struct nd_place place = nd_place_of(v);
    if (arithmetic == NULL)
        return nd_round_place(&place, ND_ROUND_HALF_EVEN);
    if (!arithmetic->is_stochastic)
        return nd_rounding_rule_round(&arithmetic->rule, v, &place);
    bool is_up = !place.is_whole && nd_emu_uniform(key, i) < place.fraction;
    return place.floor + (is_up ? 1 : 0) + 0.0;
}

static double clip(const struct work *work, size_t i, double rounded)
{
    const struct nd_exact_values *values = work->values;
    double low, high;
    size_t channel = nd_exact_channel(values->quant, values->shape, i);
    double zero = (double)values->quant->zero_point[channel] + (work->offsets != NULL ? work->offsets[i] : 0);
    nd_qvalue_range(values->dtype, &low, &high);
    return fmin(fmax(rounded + zero, low), high);
}

/* The output channel of the weights: axis 1 of a convolution, else the last. */
static size_t product_channel(const struct work *work, size_t i)
{
    const struct nd_shape *shape = work->values->shape;
    bool is_conv =
        nd_emu_has_operator(nd_model_tensor(work->emulator->model, work->values->tensor)->op_types, "Conv");
    size_t n_inner = 1;
    if (shape->rank == 0 || (is_conv && shape->rank < 2))
        return 0;
    for (int d = is_conv ? 2 : shape->rank; d < shape->rank; d++)
        n_inner *= (size_t)shape->dims[d];
    return i / n_inner % (size_t)shape->dims[is_conv ? 1 : shape->rank - 1];
}

/* What element i is to an arithmetic of the table; without an accumulator the multiplier is 0. */
static struct nd_arithmetic_scaling scaling_of(const struct work *work, size_t i, double *a)
{
    const struct nd_exact_values *values = work->values;
    const struct nd_emu_tensor *state = work->state;
    size_t channel = nd_exact_channel(values->quant, values->shape, i);
    struct nd_arithmetic_scaling scaling = {.scale = (double)values->quant->scale[channel]};
    scaling.zero = (double)values->quant->zero_point[channel] + (work->offsets != NULL ? work->offsets[i] : 0);
    nd_qvalue_range(values->dtype, &scaling.low, &scaling.high);
    *a = 0;
    if (state->n_steps > 0) {
        const struct nd_wide *step = &state->steps[product_channel(work, i) % state->n_steps];
        *a = nd_arithmetic_accumulator(&work->v[i], scaling.scale, step);
        scaling.multiplier = nd_arithmetic_multiplier(scaling.scale, step);
    }
    return scaling;
}

/* A quantised value; half-even where the arithmetic is not applicable. */
static double run_of_table(const struct work *work, const struct nd_emu_arithmetic *arithmetic, uint64_t key,
                           size_t i)
{
    struct nd_arithmetic_element element = {.v = &work->v[i], .place = nd_place_of(&work->v[i])};
    const struct nd_arithmetic_scaling scaling = scaling_of(work, i, &element.a);
    struct nd_arithmetic_ready ready;
    if (!nd_arithmetic_prepare(&arithmetic->arithmetic, &scaling, false, &ready))
        return clip(work, i, nd_round_place(&element.place, ND_ROUND_HALF_EVEN));
    const struct nd_arithmetic_outcome outcome = nd_arithmetic_run(&ready, &element);
    return outcome.p > 0 && nd_emu_uniform(key, i) < outcome.p ? outcome.other : outcome.qvalue;
}

/* What an arithmetic of layers made; NULL: it does not cover it. */
static const struct nd_array *made_by(const struct work *work, const struct nd_emu_arithmetic *arithmetic)
{
    if (arithmetic == NULL || arithmetic->layer == NULL)
        return NULL;
    const struct nd_array *made =
        &work->state->made[!nd_emu_is_same_arithmetic(arithmetic, work->layer->usual)];
    return made->n == work->values->n ? made : NULL;
}

/* Moved by what faults of values do to the quantised value that is rounded half to even. */
static double move_qvalue(const struct work *work, double made, size_t i)
{
    double low, high;
    struct nd_place before = nd_place_of(&work->values->v[i]), after = nd_place_of(&work->v[i]);
    if (work->v == work->values->v)
        return made;
    const struct nd_exact_values *values = work->values;
    double zero = (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
    nd_qvalue_range(values->dtype, &low, &high);
    double plain = fmin(fmax(nd_round_place(&before, ND_ROUND_HALF_EVEN) + zero, low), high);
    double moved = clip(work, i, nd_round_place(&after, ND_ROUND_HALF_EVEN));
    return fmin(fmax(made + moved - plain, low), high);
}

static void round_all(const struct work *work, const struct nd_emu_arithmetic *arithmetic,
                      struct nd_array *qvalues)
{
    uint64_t key = 0;
    bool is_of_table = arithmetic != NULL && arithmetic->is_of_table;
    const struct nd_array *made = made_by(work, arithmetic);
    for (size_t i = 0; made != NULL && i < qvalues->n; i++)
        qvalues->x[i] = move_qvalue(work, made->x[i], i);
    if (made != NULL)
        return;
    if (arithmetic != NULL && (arithmetic->is_stochastic || is_of_table))
        key = nd_emu_key(arithmetic->seed, work->emulator->names[work->values->tensor],
                         sample_of(work->emulator));
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = is_of_table ? run_of_table(work, arithmetic, key, i)
                                    : clip(work, i, round_one(arithmetic, &work->v[i], key, i));
}

/* ---- counting ---- */

static uint64_t count_differing(const struct nd_array *a, const struct nd_array *b)
{
    uint64_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        n += a->x[i] != b->x[i];
    return n;
}

/* A fault begins: what the quantised values are until now. */
static enum nd_status begin(struct work *work, const struct nd_array *qvalues, struct nd_error *err)
{
    return nd_array_copy(qvalues, &work->before, err);
}

static void end(struct work *work, const struct nd_array *qvalues)
{
    work->emulator->truth[work->next_truth++].n_changed += count_differing(qvalues, &work->before);
}

/* ---- faults of values ---- */

static enum nd_status own_values(struct work *work, struct nd_error *err)
{
    size_t n = work->values->n;
    if (work->own != NULL)
        return ND_OK;
    work->own = nd_calloc(n, sizeof *work->own);
    work->offsets = nd_calloc(n, sizeof *work->offsets);
    ND_TRY_MEMORY(work->own != NULL && work->offsets != NULL, err);
    memcpy(work->own, work->v, n * sizeof *work->own);
    work->v = work->own;
    return ND_OK;
}

static double confine(enum nd_emu_word word, double accumulator, int64_t n_bits)
{
    double half = ldexp(1, (int)n_bits - 1);
    if (word == ND_EMU_SATURATE)
        return fmin(fmax(accumulator, -half), half - 1);
    return accumulator - 2 * half * floor((accumulator + half) / (2 * half));
}

/* A whole number, but for a bias whose float32 scale is not quite the product of the two. */
static void confine_value(const struct work *work, const struct nd_emu_item *item, size_t i, struct nd_ratio *v)
{
    const struct nd_quant *quant = work->values->quant;
    const struct nd_wide *step = &work->state->steps[product_channel(work, i) % work->state->n_steps];
    double scale = (double)quant->scale[nd_exact_channel(quant, work->values->shape, i)];
    double accumulator = rint(nd_ratio_value(v) * scale / step->parts[0]);
    double confined = confine(item->word, accumulator, item->first);
    if (confined != accumulator && isfinite(accumulator))
        *v = (struct nd_ratio){nd_wide_scale(*step, confined), nd_wide_from(scale)};
}

static void change_value(const struct work *work, const struct nd_emu_item *item, size_t i)
{
    int64_t channel = (int64_t)(i / work->channels.n_inner % work->channels.n);
    struct nd_ratio *v = &work->own[i];
    if (item->word == ND_EMU_SATURATE || item->word == ND_EMU_WRAP)
        confine_value(work, item, i, v);
    else if (item->channel >= 0 && item->channel != channel)
        return;
    else if (item->word == ND_EMU_SCALE)
        v->numerator = nd_wide_scale(v->numerator, item->real);
    else
        work->offsets[i] += (double)item->first;
}

/* ---- faults of quantised values ---- */

/* Of a stale tensor: what it should show is kept for the next sample. */
static enum nd_status remember(const struct work *work, const struct nd_array *qvalues, struct nd_error *err)
{
    if (work->emulator->n_again > 0 || work->emulator->n_runs % work->emulator->n_repeats != 0)
        return ND_OK;
    struct nd_array oldest = work->state->before;
    work->state->before = work->state->now;
    work->state->now = oldest;
    return nd_array_copy(qvalues, &work->state->now, err);
}

static enum nd_status inject_fault(const struct work *work, const struct nd_emu_item *item,
                                   struct nd_array *qvalues, struct nd_error *err)
{
    const struct nd_emulator *emulator = work->emulator;
    const struct nd_emu_scene scene = {.item = item,
                                       .name = emulator->names[work->values->tensor],
                                       .values = work->values,
                                       .channels = work->channels,
                                       .seed = emulator->seed,
                                       .run = run_of(emulator) + (emulator->n_again << 32),
                                       .before = &work->state->before};
    enum nd_status status = item->word == ND_EMU_STALE ? remember(work, qvalues, err) : ND_OK;
    return status == ND_OK ? nd_emu_inject_fault(&scene, qvalues, err) : status;
}

/* ---- a layer ---- */

static enum nd_status apply(struct work *work, const struct nd_emu_item *item, struct nd_array *qvalues,
                            struct nd_error *err)
{
    ND_TRY(begin(work, qvalues, err));
    if (nd_emu_is_of_qvalues(item->word)) {
        ND_TRY(inject_fault(work, item, qvalues, err));
    } else {
        ND_TRY(own_values(work, err));
        for (size_t i = 0; i < work->values->n; i++)
            change_value(work, item, i);
        round_all(work, work->layer->arithmetic, qvalues);
    }
    end(work, qvalues);
    return ND_OK;
}

static enum nd_status make_qvalues(struct work *work, struct nd_array *qvalues, struct nd_error *err)
{
    const struct nd_emu_layer *layer = work->layer;
    round_all(work, layer->usual, qvalues);
    if (!nd_emu_is_same_arithmetic(layer->usual, layer->arithmetic)) {
        ND_TRY(begin(work, qvalues, err));
        round_all(work, layer->arithmetic, qvalues);
        end(work, qvalues);
    }
    if (layer->reads_fused)
        ND_TRY(nd_array_copy(qvalues, &work->state->plain, err));
    for (size_t i = 0; i < layer->n_faults; i++)
        ND_TRY(apply(work, layer->faults[i], qvalues, err));
    if (!layer->is_fused)
        return ND_OK;
    ND_TRY(nd_array_copy(qvalues, &work->state->shown, err));
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = clip(work, i, nd_ratio_value(&work->v[i]));
    return ND_OK;
}

/* Who makes layers by that arithmetic of layers. */
static enum nd_status ask_twin(struct nd_emulator *emulator, const struct nd_layer_arithmetic *arithmetic,
                               const struct nd_exact_layer *layer, struct nd_array *made, struct nd_error *err)
{
    size_t n;
    bool is_made;
    struct nd_twin **twin = &emulator->twins[arithmetic - nd_layer_arithmetics(&n)];
    const struct nd_twin_chip chip = {.arithmetic = arithmetic};
    if (*twin == NULL)
        ND_TRY(nd_twin_create(emulator->model, emulator->graph, &chip, NULL, twin, err));
    return nd_twin_make(*twin, layer, made, &is_made, err);
}

/* Before it is rounded: what arithmetics of layers make of it. */
static enum nd_status make_layer(void *context, const struct nd_exact_layer *asked, struct nd_array *qvalues,
                                 bool *is_made, struct nd_error *err)
{
    (void)qvalues;
    struct nd_emulator *emulator = context;
    const struct nd_emu_layer *layer = &emulator->binding.layers[asked->tensor];
    const struct nd_emu_arithmetic *arithmetics[2] = {layer->usual, layer->arithmetic};
    *is_made = false;
    for (size_t k = 0; k < 2 && !emulator->is_recounting; k++) {
        struct nd_array *made = &emulator->tensors[asked->tensor].made[k];
        nd_array_deinit(made);
        if (!layer->is_layer || arithmetics[k] == NULL || arithmetics[k]->layer == NULL ||
            (k == 1 && nd_emu_is_same_arithmetic(arithmetics[0], arithmetics[1])))
            continue;
        ND_TRY(ask_twin(emulator, arithmetics[k]->layer, asked, made, err));
    }
    return ND_OK;
}

/* What a fault has changed is read as quantised values, whatever the layer had made of it. */
static void forget_changed(struct nd_emulator *emulator, size_t tensor, const struct nd_array *qvalues)
{
    const struct nd_emu_tensor *state = &emulator->tensors[tensor];
    if (!nd_array_is_same(qvalues, &state->made[0]) && !nd_array_is_same(qvalues, &state->made[1]))
        for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++)
            if (emulator->twins[p] != NULL)
                nd_twin_forget(emulator->twins[p], tensor);
}

/* The place of a reader of fused tensors among the truths: behind its own faults. */
static size_t truth_of_fuse(const struct nd_emu_layer *layer, const struct nd_emu_tensor *state)
{
    return state->first_truth + !nd_emu_is_same_arithmetic(layer->usual, layer->arithmetic) + layer->n_faults;
}

static enum nd_status round_layer(void *context, const struct nd_exact_values *values, struct nd_array *qvalues,
                                  struct nd_error *err)
{
    struct nd_emulator *emulator = context;
    static const struct nd_emu_layer no_layer;
    struct nd_emu_tensor *state = &emulator->tensors[values->tensor];
    struct work work = {.emulator = emulator, .values = values, .v = values->v, .state = state};
    work.layer = emulator->binding.layers[values->tensor].is_layer ? &emulator->binding.layers[values->tensor]
                                                                   : &no_layer;
    work.channels = nd_emu_channels_of(values->quant, values->shape,
                                       nd_model_tensor(emulator->model, values->tensor)->op_types);
    work.next_truth = state->first_truth;
    enum nd_status status = ND_OK;
    if (!emulator->is_recounting) {
        status = make_qvalues(&work, qvalues, err);
        forget_changed(emulator, values->tensor, qvalues);
    } else {
        round_all(&work, work.layer->arithmetic, qvalues);
        if (work.layer->reads_fused)
            emulator->truth[truth_of_fuse(work.layer, state)].n_changed +=
                count_differing(qvalues, &state->plain);
    }
    nd_array_deinit(&work.before);
    ND_FREE_ALL(work.own, work.offsets);
    return status;
}

/* ---- a run ---- */

static enum nd_status show(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct nd_emulator *emulator = context;
    const struct nd_array *shown =
        emulator->binding.layers[tensor].is_fused ? &emulator->tensors[tensor].shown : values;
    if (emulator->has_fused && nd_dtype_is_integer(nd_model_tensor(emulator->model, tensor)->dtype)) {
        ND_TRY(nd_array_copy(shown, &emulator->seen[tensor], err));
        emulator->is_seen[tensor] = !emulator->binding.layers[tensor].reads_fused;
    }
    return emulator->found(emulator->context, tensor, shown, method, err);
}

/* The readers of fused tensors once more, on codes: how many of theirs the fusion changed. */
static enum nd_status recount(struct nd_emulator *emulator, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_layer,
                                             .given = emulator->seen,
                                             .is_skipped = emulator->is_seen};
    emulator->is_recounting = true;
    enum nd_status status = nd_exact_graph_run(emulator->graph, inputs, &options, NULL, emulator, err);
    emulator->is_recounting = false;
    return status;
}

enum nd_status nd_emulator_run(struct nd_emulator *emulator, const struct nd_array *inputs,
                               nd_exact_found *found, void *context, struct nd_error *err)
{
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .round = round_layer, .make = make_layer};
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++)
        if (emulator->twins[p] != NULL)
            nd_twin_begin(emulator->twins[p]);
    emulator->n_again = emulator->is_again ? emulator->n_again + 1 : 0;
    emulator->is_again = false;
    emulator->found = found;
    emulator->context = context;
    enum nd_status status = nd_exact_graph_run(emulator->graph, inputs, &options, show, emulator, err);
    if (status == ND_OK && emulator->has_fused)
        status = recount(emulator, inputs, err);
    emulator->n_runs += emulator->n_again == 0;
    return status;
}
