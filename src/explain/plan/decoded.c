/* Tensors of captures that are read several times, by several stages and threads, and are decoded once. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "explain/plan/plan.h"

/* So many samples at most are held, so that many samples take no more memory than few: twice as many as the
 * first look at captures reads. Chosen. */
enum { MAX_DECODED = 8 };

/* One tensor of a device and of those with the same quantised values. */
struct piece {
    size_t device, step;
};

struct team {
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

static void list_pieces(struct team *team, double limit_bytes)
{
    const struct nd_plan *plan = team->plan;
    size_t n = 0;
    double bytes = 0;
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps && is_first(plan, d); s++)
            if (plan->sources[d].tensors[s] != SIZE_MAX)
                team->pieces[n++] = (struct piece){d, s};
    qsort_r(team->pieces, n, sizeof *team->pieces, by_size, team->plan);
    while (team->n_pieces < n) {
        const struct piece *piece = &team->pieces[team->n_pieces];
        bytes += (double)plan->sources[piece->device].sample_bytes[piece->step] * (double)plan->n_decoded;
        if (bytes > limit_bytes)
            break;
        team->n_pieces++;
    }
}

/* Captures with the same quantised values are read, too, so that what is damaged is found. */
static enum nd_status read_piece(void *context, size_t worker, size_t task, struct nd_error *err)
{
    (void)worker;
    struct team *team = context;
    const struct nd_plan *plan = team->plan;
    const struct piece piece = team->pieces[task];
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
    struct team team = {.plan = plan,
                        .pieces = nd_calloc(plan->n_devices * plan->n_steps, sizeof *team.pieces)};
    plan->decoded = nd_calloc(plan->n_devices * plan->n_steps, sizeof *plan->decoded);
    struct nd_error introduced = {0};
    if (team.pieces == NULL || plan->decoded == NULL) {
        free(team.pieces);
        return nd_fail_memory(err);
    }
    plan->n_decoded = plan->n_samples < MAX_DECODED ? plan->n_samples : MAX_DECODED;
    list_pieces(&team, plan->decoded_bytes);
    enum nd_status status = nd_parallel_for(plan->n_threads, team.n_pieces, read_piece, &team, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    free(team.pieces);
    return status;
}

void nd_plan_release(struct nd_plan *plan)
{
    for (size_t i = 0; plan->decoded != NULL && i < plan->n_devices * plan->n_steps; i++)
        free(plan->decoded[i]);
    free(plan->decoded);
    plan->decoded = NULL;
}

enum nd_status nd_plan_read(const struct nd_plan *plan, const struct nd_plan_values *tensor, size_t first,
                            size_t n, void *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[tensor->device];
    const unsigned char *decoded =
        plan->decoded != NULL ? *decoded_of(plan, tensor->device, tensor->step) : NULL;
    size_t sample_bytes = source->sample_bytes[tensor->step];
    if (decoded == NULL || first + n > plan->n_decoded)
        return nd_capture_read_verified(
            &(struct nd_probe_values){source->capture, source->probe, source->tensors[tensor->step]}, first, n,
            out, err);
    memcpy(out, decoded + first * sample_bytes, n * sample_bytes);
    return ND_OK;
}
