/* Samples of a plan, in blocks, by several threads. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/items.h"
#include "core/processes/parallel.h"
#include "explain/plan/plan.h"
#include "explain/plan/read_tensor.h"
#include "explain/plan/replay.h"

/* Tensors of captures that are read several times, by several stages and threads, and are decoded once. */

/* So many samples at most are held, so that many samples take no more memory than few: twice as many as the
 * first look at captures reads. Chosen. */
enum { MAX_DECODED = 8 };

/* One tensor of a device and of those with the same quantised values. */
struct piece {
    size_t device, step;
};

struct team_decoded {
    struct nd_plan *plan;
    struct piece *pieces;
    size_t n_pieces;
};

static unsigned char **decoded_of(const struct nd_plan *plan, size_t device, size_t step)
{
    return &plan->decoded[plan->sources[device].same_as * plan->n_steps + step];
}

static bool is_first(const struct nd_plan *plan, size_t device)
{
    return !plan->sources[device].is_failed && plan->sources[device].same_as == device;
}

/* Those with the fewest bytes first: a chunk of a capture holds many samples of them, and is decoded for each
 * sample that is read by itself. */
static int by_size(const void *a, const void *b, void *context)
{
    const struct nd_plan *plan = context;
    const struct piece *x = a, *y = b;
    size_t size_x = plan->sources[x->device].sample_bytes[x->step],
           size_y = plan->sources[y->device].sample_bytes[y->step];
    if (size_x != size_y)
        return size_x < size_y ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->device < y->device ? -1 : 1;
}

static void list_pieces(struct team_decoded *team_decoded, double limit_bytes)
{
    const struct nd_plan *plan = team_decoded->plan;
    size_t n = 0;
    double bytes = 0;
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && is_first(plan, d); s++)
            if (plan->sources[d].tensors[s] != SIZE_MAX)
                team_decoded->pieces[n++] = (struct piece){d, s};
    qsort_r(team_decoded->pieces, n, sizeof *team_decoded->pieces, by_size, team_decoded->plan);
    while (team_decoded->n_pieces < n) {
        const struct piece *piece = &team_decoded->pieces[team_decoded->n_pieces];
        bytes += (double)plan->sources[piece->device].sample_bytes[piece->step] * (double)plan->n_decoded;
        if (bytes > limit_bytes)
            break;
        team_decoded->n_pieces++;
    }
}

/* Captures with the same quantised values are read, too, so that what is damaged is found. */
static enum nd_status read_piece(void *context, size_t worker, size_t task, struct nd_error *err)
{
    (void)worker;
    struct team_decoded *team_decoded = context;
    const struct nd_plan *plan = team_decoded->plan;
    const struct piece piece = team_decoded->pieces[task];
    size_t bytes;
    if (!nd_size_mul(plan->sources[piece.device].sample_bytes[piece.step], plan->n_decoded, &bytes))
        return nd_fail_memory(err);
    unsigned char *decoded = nd_tensor_room(bytes);
    enum nd_status status = decoded != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = piece.device; d < plan->n_devices && status == ND_OK; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        if (!source->is_failed && source->same_as == piece.device && source->tensors[piece.step] != SIZE_MAX)
            status = nd_capture_read_verified(
                &(struct nd_probe_values){source->capture, source->probe, source->tensors[piece.step]}, 0,
                plan->n_decoded, decoded, err);
    }
    if (status == ND_OK)
        *decoded_of(plan, piece.device, piece.step) = decoded;
    else
        free(decoded);
    return status;
}

enum nd_status nd_plan_hold(struct nd_plan *plan, struct nd_error *err)
{
    struct team_decoded team_decoded = {
        .plan = plan, .pieces = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team_decoded.pieces)};
    plan->decoded = nd_calloc(plan->n_devices * plan->n_steps, sizeof *plan->decoded);
    struct nd_error introduced = {0};
    if (team_decoded.pieces == NULL || plan->decoded == NULL) {
        free(team_decoded.pieces);
        return nd_fail_memory(err);
    }
    plan->n_decoded = plan->n_samples < MAX_DECODED ? plan->n_samples : MAX_DECODED;
    list_pieces(&team_decoded, plan->decoded_bytes);
    enum nd_status status =
        nd_parallel_for(plan->n_threads, team_decoded.n_pieces, read_piece, &team_decoded, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    free(team_decoded.pieces);
    return status;
}

void nd_plan_release(struct nd_plan *plan)
{
    ND_FREE_ITEMS(plan->decoded, plan->n_devices * plan->n_steps);
    plan->decoded = NULL;
}

enum nd_status nd_plan_read(const struct nd_plan *plan, const struct nd_plan_values *tensor, size_t first,
                            size_t n, void *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[tensor->device];
    size_t sample_bytes = source->sample_bytes[tensor->step];
    const unsigned char *held = source->carried[tensor->step];
    if (held == NULL && plan->decoded != NULL && first + n <= plan->n_decoded)
        held = *decoded_of(plan, tensor->device, tensor->step);
    if (held == NULL)
        return nd_capture_read_verified(
            &(struct nd_probe_values){source->capture, source->probe, source->tensors[tensor->step]}, first, n,
            out, err);
    memcpy(out, held + first * sample_bytes, n * sample_bytes);
    return ND_OK;
}

/* Reads one tensor of one sample of a capture, as an array. */

static enum nd_status make_bytes(const struct nd_shape *shape, enum nd_dtype dtype, unsigned char **bytes,
                                 struct nd_error *err)
{
    size_t size_bytes;
    enum nd_status status = nd_shape_size_bytes(shape, dtype, &size_bytes, err);
    *bytes = status == ND_OK ? nd_tensor_room(size_bytes) : NULL;
    return status == ND_OK && *bytes == NULL ? nd_fail_memory(err) : status;
}

enum nd_status nd_read_tensor(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                              struct nd_array *out, struct nd_error *err)
{
    const struct nd_shape *shape = &nd_capture_tensor(place->capture, place->tensor)->shape;
    ND_FREED unsigned char *bytes = NULL;
    ND_TRY(make_bytes(shape, dtype, &bytes, err));
    ND_TRY(nd_capture_read_verified(place, sample, 1, bytes, err));
    ND_TRY(nd_array_make_room(out, dtype, shape, err));
    nd_array_load(dtype, bytes, out->n, out->x);
    return ND_OK;
}

enum nd_status nd_read_input(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                             struct nd_array *out, struct nd_error *err)
{
    ND_FREED unsigned char *bytes = NULL;
    ND_TRY(make_bytes(&out->shape, dtype, &bytes, err));
    ND_TRY(nd_capture_read_inputs(place, sample, 1, bytes, err));
    nd_array_load(dtype, bytes, out->n, out->x);
    return ND_OK;
}

struct nd_array nd_no_array(void)
{
    return (struct nd_array){.shape.rank = -1};
}

enum nd_status nd_inputs_create(const struct nd_model *model, struct nd_array **inputs, struct nd_error *err)
{
    size_t n = nd_model_n_inputs(model);
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *made = nd_calloc(n + 1, sizeof *made);
    *inputs = NULL;
    ND_TRY_MEMORY(made != NULL, err);
    made[n] = nd_no_array();
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *io = nd_model_input(model, i);
        ND_TRY(nd_array_make(&made[i], io->dtype, &io->shape, err));
    }
    *inputs = made;
    made = NULL;
    return ND_OK;
}

void nd_inputs_destroy(struct nd_array **inputs)
{
    for (size_t i = 0; *inputs != NULL && (*inputs)[i].shape.rank >= 0; i++)
        nd_array_deinit(&(*inputs)[i]);
    free(*inputs);
    *inputs = NULL;
}

enum nd_status nd_exact_let_go(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    (void)context;
    (void)tensor;
    (void)why;
    (void)err;
    return ND_OK;
}

/* ---- room ---- */

static enum nd_status make_block(size_t n, size_t sample_bytes, unsigned char **out, struct nd_error *err)
{
    size_t bytes;
    if (!nd_size_mul(sample_bytes, n, &bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor is too large");
    *out = nd_tensor_room(bytes); /* written before it is read */
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* Whether one device after another has its quantised values of the step in the same room. */
static bool takes_turns(const struct nd_plan *plan, size_t step)
{
    return plan->reads_singly && !nd_plan_reads_together(plan, step);
}

/* Where a block of a step of the device is. Devices with the same quantised values share it. */
static unsigned char **raw_of(const struct nd_reader *r, size_t device, size_t step)
{
    size_t owner = takes_turns(r->plan, step) ? 0 : r->plan->sources[device].same_as;
    return &r->raw[owner * r->plan->n_steps + step];
}

/* Of a sample, in the room of the device. */
static size_t room_bytes(const struct nd_plan *plan, size_t device, size_t step)
{
    size_t most = plan->sources[device].sample_bytes[step];
    for (size_t d = 0; d < plan->n_devices && takes_turns(plan, step); d++)
        if (!plan->sources[d].is_failed && nd_plan_has(plan, d, step) &&
            plan->sources[d].sample_bytes[step] > most)
            most = plan->sources[d].sample_bytes[step];
    return most;
}

static enum nd_status make_blocks(struct nd_reader *r, struct nd_error *err)
{
    const struct nd_plan *plan = r->plan;
    ND_TRY(nd_inputs_create(plan->model, &r->inputs, err));
    for (size_t i = 0; i < nd_model_n_inputs(plan->model); i++) {
        const struct nd_model_io *io = nd_model_input(plan->model, i);
        ND_TRY(nd_shape_size_bytes(&io->shape, io->dtype, &r->input_bytes[i], err));
        ND_TRY(make_block(plan->block, r->input_bytes[i], &r->raw_inputs[i], err));
    }
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++)
            if (nd_plan_has(plan, d, s) && *raw_of(r, d, s) == NULL)
                ND_TRY(make_block(plan->block, room_bytes(plan, d, s), raw_of(r, d, s), err));
    return ND_OK;
}

/* Weights as arithmetics of layers take them: this part of the memory, of all threads together; chosen. */
enum { OF_WEIGHTS = 8 };

enum nd_status nd_reader_init(struct nd_reader *r, const struct nd_plan *plan, struct nd_error *err)
{
    size_t n_inputs = nd_model_n_inputs(plan->model), n_tensors = nd_model_n_tensors(plan->model);
    *r = (struct nd_reader){.plan = plan,
                            .raw_inputs = nd_calloc(n_inputs, sizeof *r->raw_inputs),
                            .input_bytes = nd_calloc(n_inputs, sizeof *r->input_bytes),
                            .given = nd_calloc(n_tensors, sizeof *r->given),
                            .chain = nd_calloc(n_tensors, sizeof *r->chain),
                            .is_skipped = nd_calloc(n_tensors, sizeof *r->is_skipped),
                            .is_ignored = nd_calloc(n_tensors, sizeof *r->is_ignored),
                            .raw = nd_calloc(plan->n_devices * plan->n_steps, sizeof *r->raw)};
    ND_TRY_MEMORY(r->raw_inputs != NULL && r->input_bytes != NULL && r->given != NULL && r->chain != NULL &&
                      r->is_skipped != NULL && r->is_ignored != NULL && r->raw != NULL,
                  err);
    for (size_t e = 0; e < n_tensors; e++)
        r->given[e] = nd_no_array();
    ND_TRY(nd_layer_trial_init(&r->trial, plan->model, &plan->alternatives, err));
    nd_layer_memory_limit(r->trial.memory, nd_plan_share(plan, OF_WEIGHTS * plan->n_threads));
    return make_blocks(r, err);
}

void nd_reader_deinit(struct nd_reader *r)
{
    const struct nd_plan *plan = r->plan;
    if (plan == NULL)
        return;
    for (size_t i = 0; r->raw_inputs != NULL && i < nd_model_n_inputs(plan->model); i++)
        free(r->raw_inputs[i]);
    for (size_t e = 0; r->given != NULL && e < nd_model_n_tensors(plan->model); e++)
        if (r->given[e].shape.rank >= 0)
            nd_array_deinit(&r->given[e]);
    for (size_t i = 0; r->raw != NULL && i < plan->n_devices * plan->n_steps; i++)
        free(r->raw[i]);
    nd_inputs_destroy(&r->inputs);
    ND_FREE_ALL(r->raw_inputs, r->input_bytes);
    nd_array_deinit(&r->decoded);
    ND_FREE_ALL(r->given, r->chain, r->is_skipped, r->is_ignored, r->raw);
    nd_layer_trial_deinit(&r->trial);
    r->plan = NULL;
}

/* ---- what captures hold ---- */

/* Before one device is at hand. */
static bool is_read_first(const struct nd_reader *r, size_t device, size_t step)
{
    if (r->is_wanted != NULL)
        return r->is_wanted[step] && device == r->device;
    return !takes_turns(r->plan, step);
}

/* What was not read first, of the device and of those with the same quantised values, so that what is damaged
 * is found. */
static enum nd_status read_turn(struct nd_reader *r, size_t device, struct nd_error *err)
{
    const struct nd_plan *plan = r->plan;
    if (!plan->reads_singly || r->is_wanted != NULL || r->loaded == device)
        return ND_OK;
    r->loaded = SIZE_MAX;
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++)
            if (plan->sources[d].same_as == plan->sources[device].same_as && !plan->sources[d].is_failed &&
                nd_plan_has(plan, d, s) && takes_turns(plan, s))
                ND_TRY(nd_plan_read(plan, &(struct nd_plan_values){d, s}, r->sample, 1, *raw_of(r, d, s), err));
    r->loaded = device;
    return ND_OK;
}

/* Reads a block of n <= nd_plan.block samples of the inputs and of all devices' quantised values. */
static enum nd_status nd_reader_block(struct nd_reader *r, size_t first, size_t n, struct nd_error *err)
{
    const struct nd_plan *plan = r->plan;
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    r->first = first;
    r->loaded = SIZE_MAX;
    for (size_t i = 0; i < nd_model_n_inputs(plan->model); i++)
        ND_TRY(
            nd_capture_read_inputs(&(struct nd_probe_values){leader->capture, leader->probe, plan->inputs[i]},
                                   first, n, r->raw_inputs[i], err));
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++)
            if (nd_plan_has(plan, d, s) && is_read_first(r, d, s))
                ND_TRY(nd_plan_read(plan, &(struct nd_plan_values){d, s}, first, n, *raw_of(r, d, s), err));
    return ND_OK;
}

/* Fills inputs with those of the sample, which is in the block. */
static void nd_reader_inputs(struct nd_reader *r, size_t sample)
{
    const struct nd_model *model = r->plan->model;
    r->sample = sample;
    r->in_block = sample - r->first;
    for (size_t i = 0; i < nd_model_n_inputs(model); i++)
        nd_array_load(nd_model_input(model, i)->dtype, r->raw_inputs[i] + r->in_block * r->input_bytes[i],
                      r->inputs[i].n, r->inputs[i].x);
}

const void *nd_reader_raw(const struct nd_reader *r, size_t device, size_t step)
{
    return *raw_of(r, device, step) + r->in_block * r->plan->sources[device].sample_bytes[step];
}

enum nd_status nd_reader_device(struct nd_reader *r, size_t device, struct nd_error *err)
{
    const struct nd_plan *plan = r->plan;
    const struct nd_plan_source *source = &plan->sources[device];
    enum nd_status status = read_turn(r, device, err);
    r->device = device;
    r->decoded_tensor = SIZE_MAX;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        struct nd_array *given = &r->given[plan->steps[s].tensor];
        if (given->shape.rank >= 0)
            nd_array_deinit(given);
        *given = nd_no_array();
        if (!nd_plan_has(plan, device, s) || (r->is_wanted != NULL && !r->is_wanted[s]))
            continue;
        enum nd_dtype dtype = source->tensors[s] != SIZE_MAX
                                  ? nd_capture_tensor(source->capture, source->tensors[s])->dtype
                                  : nd_plan_tensor(plan, s)->dtype;
        *given = (struct nd_array){0};
        if (r->is_lazy) {
            *given = (struct nd_array){.shape = plan->shapes[s], .dtype = dtype};
            status = nd_shape_n_elems(&given->shape, &given->n, err);
            continue;
        }
        status = nd_array_make(given, dtype, &plan->shapes[s], err);
        if (status == ND_OK)
            nd_array_load(dtype, nd_reader_raw(r, device, s), given->n, given->x);
    }
    return status;
}

void nd_reader_give(const struct nd_reader *r, size_t tensor, double *out)
{
    const struct nd_array *given = &r->given[tensor];
    nd_array_load(given->dtype, nd_reader_raw(r, r->device, r->plan->step_of_tensor[tensor]), given->n, out);
}

const struct nd_array *nd_reader_given(struct nd_reader *r, size_t tensor)
{
    const struct nd_array *given = &r->given[tensor];
    if (given->shape.rank < 0 || given->n == 0 || given->x != NULL)
        return given;
    if (r->decoded_tensor != tensor) {
        r->decoded_tensor = tensor;
        r->decoded.shape = given->shape;
        r->decoded.n = given->n;
        r->decoded.dtype = given->dtype;
        nd_reader_give(r, tensor, r->decoded.x);
    }
    return &r->decoded;
}

enum nd_status nd_reader_load(struct nd_reader *r, size_t sample, size_t n, struct nd_error *err)
{
    size_t left = n - sample;
    if (sample % r->plan->block == 0)
        ND_TRY(nd_reader_block(r, sample, left < r->plan->block ? left : r->plan->block, err));
    nd_reader_inputs(r, sample);
    return ND_OK;
}

enum nd_status nd_reader_sample(struct nd_reader *r, size_t device, size_t sample, size_t n,
                                struct nd_error *err)
{
    r->device = device;
    enum nd_status status = nd_reader_load(r, sample, n, err);
    return status == ND_OK ? nd_reader_device(r, device, err) : status;
}

enum nd_status nd_reader_try_layer(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                   bool *is_made, struct nd_error *err)
{
    (void)qvalues;
    struct nd_reader *r = context;
    *is_made = false;
    return nd_layer_trial_run(&r->trial, layer, nd_reader_given(r, layer->tensor), err);
}

void nd_round_half_even(const struct nd_exact_values *values, struct nd_array *qvalues)
{
    double low, high;
    if (values->quick != NULL) {
        nd_qvalue_range(values->dtype, &low, &high);
        nd_quick_round(values->quick, (double)values->quant->zero_point[0], low, high, qvalues->x);
        return;
    }
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        qvalues->x[i] = nd_qvalue_of_ratio(&values->v[i], (double)values->quant->zero_point[channel],
                                           values->dtype, ND_ROUND_HALF_EVEN);
    }
}

struct team {
    const struct nd_replay *replay;
    size_t block;
    atomic_size_t n_done; /* samples */
    unsigned char *states;
};

static struct nd_reader *state_of(const struct team *team, size_t worker)
{
    return (struct nd_reader *)(void *)(team->states + worker * team->replay->state_bytes);
}

static enum nd_status run_block(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    const struct nd_replay *replay = team->replay;
    struct nd_reader *r = state_of(team, worker);
    size_t skipped = task * team->block, left = replay->span.n - skipped;
    size_t first = replay->span.first + skipped, n = left < team->block ? left : team->block;
    if (r->plan == NULL) {
        ND_TRY(nd_reader_init(r, replay->plan, err));
        ND_TRY(replay->begin(r, replay->context, err));
    }
    ND_TRY(nd_reader_block(r, first, n, err));
    for (size_t i = 0; i < n; i++) {
        nd_reader_inputs(r, first + i);
        ND_TRY(replay->run(r, err));
        size_t n_done = atomic_fetch_add(&team->n_done, 1) + 1;
        if (worker == 0 && replay->progress != NULL) /* the calling thread */
            replay->progress(replay->progress_context, n_done, replay->span.n);
        if (replay->is_cancelled != NULL && replay->is_cancelled(replay->cancel_context))
            ND_TRY(nd_fail(err, ND_E_CANCELLED, NULL, "the explanation was stopped on request"));
    }
    return ND_OK;
}

enum nd_status nd_replay_run(const struct nd_replay *replay, struct nd_error *err)
{
    size_t n_workers = replay->plan->n_threads;
    size_t each = (replay->span.n + n_workers - 1) / n_workers, most = replay->plan->block;
    size_t block = each < 1 ? 1 : each < most ? each : most; /* also of few samples every thread gets some */
    size_t n_blocks = (replay->span.n + block - 1) / block;
    struct team team = {.replay = replay, .block = block, .states = nd_calloc(n_workers, replay->state_bytes)};
    struct nd_error introduced = {0};
    ND_TRY_MEMORY(team.states != NULL, err);
    enum nd_status status = nd_parallel_for(n_workers, n_blocks, run_block, &team, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    for (size_t i = 0; i < n_workers; i++) {
        struct nd_reader *r = state_of(&team, i);
        if (r->plan == NULL)
            continue;
        replay->end(r, replay->context);
        nd_reader_deinit(r);
    }
    free(team.states);
    return status;
}
