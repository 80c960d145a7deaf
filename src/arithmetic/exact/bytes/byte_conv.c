/* Convolutions on bytes: whole numbers are added up, and rounded while they are in the caches. */
#include "arithmetic/exact/bytes/byte_internal.h"
#include "core/error.h"

/* Where the sums of a group go. */
struct rounding {
    struct nd_byte_runner *runner;
    const struct nd_byte_conv *conv;
    double zero, low, high; /* of the output */
    size_t channel;         /* the first of the group, or the next */
    uint8_t *out;           /* of the sample */
};

/* n sums of one channel. */
static void round_row(const struct rounding *r, size_t channel, const double *sums, size_t n, uint8_t *out)
{
    struct nd_quick quick = r->conv->lines;
    quick.lines += channel;
    quick.factors += channel;
    quick.biases += channel;
    quick.n_lines = 1;
    for (size_t i = 0; i < n; i += ND_BYTE_ROOM) {
        size_t m = n - i < ND_BYTE_ROOM ? n - i : ND_BYTE_ROOM;
        if (nd_quick_round_line(&quick, sums + i, r->zero - r->low, m, out + i))
            continue;
        quick.x = sums + i;
        quick.n = quick.n_inner = m;
        nd_quick_round(&quick, r->zero, r->low, r->high, r->runner->qvalues);
        nd_gemm_kernels()->narrow(r->runner->qvalues, r->low, m, out + i);
    }
}

static void take_sums(void *context, const struct nd_sums_block *block)
{
    struct rounding *r = context;
    size_t n_out = (size_t)r->conv->window.n_out;
    for (size_t c = 0; c < block->n_channels; c++)
        round_row(r, r->channel + block->first_channel + c, block->sums + c * block->row, block->n,
                  r->out + (r->channel + block->first_channel + c) * n_out + block->from);
}

/* Of planes: one channel a call. */
static void take_plane(void *context, const struct nd_sums_block *block)
{
    struct rounding *r = context;
    take_sums(context, block);
    r->channel++;
}

static bool run_groups(struct rounding *r, const struct nd_byte_conv *conv, const int16_t *shorts,
                       const uint8_t *in)
{
    const struct nd_window *w = &conv->window;
    struct nd_conv_planes planes;
    ND_CLEANUP(nd_conv_shorts_end) struct nd_conv_shorts room = {.in = NULL};
    struct nd_conv_group group = {
        .w = w, .n_in = conv->n_in, .n_out = conv->n_out, .short_weight = shorts, .range = conv->range};
    bool is_by_planes = conv->floats != NULL, is_made = false;
    is_made = is_by_planes ? nd_conv_planes_begin(&planes, w) : nd_conv_shorts_begin(&room, &group);
    for (size_t g = 0; g < conv->n_groups && is_made; g++) {
        size_t first = g * conv->n_out * conv->n_in * (size_t)w->n_kernel;
        const struct nd_byte_sums bytes = {.in = in + g * conv->n_in * (size_t)w->n_in,
                                           .zero = conv->zero,
                                           .take = is_by_planes ? take_plane : take_sums,
                                           .context = r};
        group.short_weight = shorts + first;
        r->channel = g * conv->n_out;
        is_made = is_by_planes ? nd_conv_planes_each(&planes, &group, conv->floats + first, &bytes)
                               : nd_conv_shorts_each(&room, &group, &bytes);
    }
    if (is_by_planes)
        nd_conv_planes_end(&planes);
    return is_made;
}

/* Of weights that fit bytes. */
static bool run_bytes(struct rounding *r, const struct nd_byte_conv *conv, const uint8_t *in)
{
    struct nd_conv_bytes room;
    if (!nd_conv_bytes_begin(&room, &conv->bytes))
        return false;
    for (size_t g = 0; g < conv->n_groups; g++) {
        const struct nd_byte_sums bytes = {
            .in = in + g * conv->n_in * (size_t)conv->window.n_in, .take = take_sums, .context = r};
        r->channel = g * conv->n_out;
        nd_conv_bytes_each(&room, g, &bytes);
    }
    nd_conv_bytes_end(&room);
    return true;
}

enum nd_status nd_byte_convolve(struct nd_byte_runner *runner, const struct nd_byte_layer *layer,
                                const uint8_t *in, uint8_t *out, struct nd_error *err)
{
    const struct nd_byte_conv *conv = &layer->conv;
    const struct nd_exact_graph *g = runner->layers->graph;
    const struct nd_node_quant *quant = &g->quants[layer->quantize];
    struct rounding r = {.runner = runner, .conv = conv, .zero = (double)quant->quant.zero_point[0]};
    size_t n_in = conv->n_groups * conv->n_in * (size_t)conv->window.n_in;
    size_t n_out = conv->n_groups * conv->n_out * (size_t)conv->window.n_out;
    nd_qvalue_range(quant->dtype, &r.low, &r.high);
    bool is_made = true, is_by_bytes = conv->bytes.quads != NULL;
    if (!is_by_bytes && !nd_exact_run_holds(&runner->run, conv->weights)) {
        if (err != NULL)
            *err = runner->run.decoded->error;
        return runner->run.decoded->status;
    }
    for (size_t i = 0; i < conv->n_samples && is_made; i++) {
        r.out = out + i * n_out;
        is_made = is_by_bytes ? run_bytes(&r, conv, in + i * n_in)
                              : run_groups(&r, conv, g->shorts[conv->weights], in + i * n_in);
    }
    nd_exact_run_release(&runner->run);
    return is_made ? ND_OK : nd_fail_memory(err);
}
