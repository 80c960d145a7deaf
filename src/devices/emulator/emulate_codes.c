/* Channels of a tensor, random numbers, and faults of codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "devices/emulator/emulate_internal.h"

bool nd_emu_has_operator(const char *op_types, const char *op_type)
{
    size_t n = strlen(op_type);
    if (strcmp(op_types, op_type) == 0)
        return true;
    for (const char *at = op_types; at != NULL; at = strchr(at, '+')) {
        at += *at == '+';
        if (strncmp(at, op_type, n) == 0 && (at[n] == '\0' || at[n] == '+'))
            return true;
    }
    return false;
}

struct nd_emu_channels nd_emu_channels_of(const struct nd_quant *quant, const struct nd_shape *shape,
                                          const char *op_types)
{
    bool is_conv = nd_emu_has_operator(op_types, "Conv") || nd_emu_has_operator(op_types, "ConvTranspose");
    int axis = shape->rank - 1;
    if (quant->n > 1)
        axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    else if (shape->rank == 4 || (is_conv && shape->rank >= 3))
        axis = 1;
    struct nd_emu_channels channels = {1, 1};
    if (axis < 0)
        return channels;
    channels.n = (size_t)shape->dims[axis];
    for (int d = axis + 1; d < shape->rank; d++)
        channels.n_inner *= (size_t)shape->dims[d];
    return channels;
}

uint64_t nd_emu_key(uint64_t seed, const char *name, uint64_t run)
{
    uint64_t key = nd_splitmix_hash(seed);
    for (; *name != '\0'; name++)
        key = nd_splitmix_hash(key ^ (unsigned char)*name);
    return nd_splitmix_hash(key ^ run);
}

double nd_emu_uniform(uint64_t key, uint64_t i)
{
    return nd_random_share(nd_splitmix_hash(key ^ nd_splitmix_hash(i)));
}

static double zero_point(const struct nd_exact_values *values, size_t i)
{
    return (double)values->quant->zero_point[nd_exact_channel(values->quant, values->shape, i)];
}

static void flip(const struct nd_emu_scene *scene, struct nd_array *codes)
{
    double low, high;
    uint64_t key = nd_emu_key(scene->seed, scene->name, scene->run);
    nd_code_range(scene->values->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++)
        if (nd_emu_uniform(key, 2 * i) < scene->item->real) {
            double step = nd_emu_uniform(key, 2 * i + 1) < 0.5 ? -1 : 1;
            codes->x[i] = fmin(fmax(codes->x[i] + step, low), high);
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

/* The codes move; from says whence. */
static enum nd_status move(const struct nd_emu_scene *scene, struct nd_array *codes, struct nd_error *err)
{
    const struct nd_emu_channels *channels = &scene->channels;
    struct nd_array from = {0};
    size_t *cycle = make_cycle(channels->n, scene->item->seed);
    enum nd_status status = cycle != NULL ? nd_array_copy(codes, &from, err) : nd_fail_memory(err);
    int64_t n = (int64_t)codes->n;
    for (size_t i = 0; status == ND_OK && i < codes->n; i++) {
        size_t source = i, channel = i / channels->n_inner % channels->n;
        if (scene->item->word == ND_EMU_SHIFT)
            source = (size_t)((((int64_t)i + scene->item->first % n) % n + n) % n);
        else if (scene->item->word == ND_EMU_TRANSPOSE)
            source = transposed(scene->values->shape, i);
        else
            source = i - channel * channels->n_inner + cycle[channel] * channels->n_inner;
        codes->x[i] = from.x[source];
    }
    nd_array_deinit(&from);
    free(cycle);
    return status;
}

static void overwrite(const struct nd_emu_scene *scene, struct nd_array *codes)
{
    const struct nd_emu_item *item = scene->item;
    double low, high;
    nd_code_range(scene->values->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++) {
        double *code = &codes->x[i];
        if (item->word == ND_EMU_ZERO || (item->word == ND_EMU_CLIFF && *code > (double)item->first))
            *code = zero_point(scene->values, i);
        else if (item->word == ND_EMU_CLAMP)
            *code = fmin(fmax(fmin(fmax(*code, (double)item->first), (double)item->second), low), high);
        else if (item->word == ND_EMU_WINDOW && (int64_t)i >= item->first &&
                 (int64_t)i - item->first < item->second)
            *code = 0;
    }
}

enum nd_status nd_emu_spoil(const struct nd_emu_scene *scene, struct nd_array *codes, struct nd_error *err)
{
    switch (scene->item->word) {
    case ND_EMU_STALE:
        if (scene->before->n == codes->n)
            memcpy(codes->x, scene->before->x, codes->n * sizeof *codes->x);
        return ND_OK;
    case ND_EMU_FLIP:
        flip(scene, codes);
        return ND_OK;
    case ND_EMU_TRANSPOSE:
        if (codes->shape.rank != 3 && codes->shape.rank != 4)
            return nd_fail(err, ND_E_DEVICE_PROFILE, scene->item->text,
                           "item '%s': rank %d cannot be transposed, but 3 and 4", scene->item->text,
                           codes->shape.rank);
        return move(scene, codes, err);
    case ND_EMU_PERMUTE:
    case ND_EMU_SHIFT:
        return move(scene, codes, err);
    default:
        overwrite(scene, codes);
        return ND_OK;
    }
}
