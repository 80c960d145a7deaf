/* Convolution of quantised values of 8 bits by weights of as many: conv_bytes.h says how. */
#include "arithmetic/operators/kernels/conv_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

/* Products of a byte and a signed byte: so many fit 32 bits, whatever they are, with what is taken away again.
 */
enum { MAX_TERMS = 1 << 13, MIN_TERMS = 8, MIN_CHANNELS = 4, MIN_WIDE_ROW = ND_QUAD_COLUMNS / 2 };

/* ---- where things lie ---- */

/* How many elements of the padded axis windows read, and how many of each phase of the stride. */
static ptrdiff_t length_of(const struct nd_window *w, int axis)
{
    return (w->out[axis] - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1;
}

static ptrdiff_t part_of(const struct nd_window *w, int axis)
{
    return (length_of(w, axis) + w->stride[axis] - 1) / w->stride[axis];
}

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

/* The padding behind a row is also that before the next, as far as both go; windows next to each other are
 * still told apart. */
static size_t row_of(const struct nd_window *w)
{
    ptrdiff_t behind = length_of(w, 2) - w->pad_begin[2] - w->in[2];
    ptrdiff_t shared = least(least(behind, w->pad_begin[2]), length_of(w, 2) - w->out[2]);
    bool shares = w->stride[1] == 1 && w->stride[2] == 1 && shared > 0;
    return (size_t)(part_of(w, 2) - (shares ? shared : 0));
}

/* Element (y, x) of the padded plane: elements that windows next to each other read with the same tap lie next
 * to each other. */
static ptrdiff_t place_of(const struct nd_byte_weights *b, ptrdiff_t y, ptrdiff_t x)
{
    const struct nd_window *w = &b->w;
    ptrdiff_t phase = y % w->stride[1] * w->stride[2] + x % w->stride[2];
    return b->starts[phase] + y / w->stride[1] * (ptrdiff_t)b->in_row + x / w->stride[2];
}

/* Whether some tap reads elements of that phase. */
static bool is_read(const struct nd_window *w, int axis, ptrdiff_t phase)
{
    for (ptrdiff_t k = 0; k < w->kernel[axis]; k++)
        if (k * w->dilation[axis] % w->stride[axis] == phase)
            return true;
    return false;
}

static bool place_planes(struct nd_byte_weights *b)
{
    const struct nd_window *w = &b->w;
    size_t n_phases = (size_t)(w->stride[1] * w->stride[2]), n_kernel = (size_t)w->n_kernel;
    b->in_row = row_of(w);
    /* A shared row has its end behind the last. */
    size_t part = b->in_row * (size_t)part_of(w, 1) + (size_t)w->pad_begin[2];
    b->plane = n_phases * part;
    b->starts = nd_calloc(n_phases, sizeof *b->starts);
    b->offsets = nd_calloc(b->n_quads, sizeof *b->offsets);
    for (size_t i = 0; i < n_phases && b->starts != NULL; i++)
        b->starts[i] = (ptrdiff_t)(i * part);
    for (size_t q = 0; q < b->n_quads && b->starts != NULL && b->offsets != NULL; q++) {
        ptrdiff_t t = (ptrdiff_t)(q % n_kernel);
        b->offsets[q] = (ptrdiff_t)(q / n_kernel * b->plane) +
                        place_of(b, t / w->kernel[2] * w->dilation[1], t % w->kernel[2] * w->dilation[2]);
    }
    return b->starts != NULL && b->offsets != NULL;
}

/* ---- weights ---- */

/* Whether they fit signed bytes less *shift. */
static bool find_shift(const int16_t *weights, size_t n, int32_t *shift)
{
    int32_t low = weights[0], high = weights[0];
    for (size_t i = 1; i < n; i++) {
        low = weights[i] < low ? weights[i] : low;
        high = weights[i] > high ? weights[i] : high;
    }
    *shift = low >= INT8_MIN && high <= INT8_MAX ? 0 : low - INT8_MIN;
    return low >= -UINT8_MAX && high <= UINT8_MAX && high - low <= UINT8_MAX;
}

/* One output channel: row i of a tile. */
static bool pack_channel(struct nd_byte_weights *b, size_t tile, size_t i, const int16_t *weights)
{
    size_t n_kernel = (size_t)b->w.n_kernel, n = b->n_in * n_kernel;
    int8_t *quads = b->quads + tile * b->n_quads * ND_QUAD_ROWS * 4 + i * 4;
    int32_t sum = 0, shift;
    if (!find_shift(weights, n, &shift))
        return false;
    for (size_t k = 0; k < n; k++) {
        size_t channel = k / n_kernel, quad = channel / 4 * n_kernel + k % n_kernel;
        quads[quad * ND_QUAD_ROWS * 4 + channel % 4] = (int8_t)(weights[k] - shift);
        sum += weights[k] - shift;
    }
    b->start[tile * ND_QUAD_ROWS + i] = -b->zero * sum;
    b->shift[tile * ND_QUAD_ROWS + i] = shift;
    b->is_shifted = b->is_shifted || shift != 0;
    return true;
}

static size_t tiles_of(size_t n_out)
{
    return (n_out + ND_QUAD_ROWS - 1) / ND_QUAD_ROWS;
}

static bool is_possible(const struct nd_conv_group *g)
{
    const struct nd_window *w = g->w;
    size_t n = g->n_in * (size_t)w->n_kernel;
    return g->short_weight != NULL && w->in[0] == 1 && w->kernel[0] == 1 && w->out[0] == 1 &&
           w->pad_begin[0] == 0 && w->pad_begin[1] >= 0 && w->pad_begin[2] >= 0 && w->out[1] > 0 &&
           w->out[2] > 0 && n >= MIN_TERMS && n <= MAX_TERMS && g->n_out >= MIN_CHANNELS;
}

size_t nd_byte_weights_bytes(const struct nd_conv_group *g, size_t n_groups)
{
    size_t n_quads = (g->n_in + 3) / 4 * (size_t)g->w->n_kernel;
    return n_groups * tiles_of(g->n_out) * ND_QUAD_ROWS * (n_quads * 4 + 2 * sizeof(int32_t)) +
           n_quads * sizeof(ptrdiff_t);
}

bool nd_byte_weights_make(struct nd_byte_weights *b, const struct nd_conv_group *g, size_t n_groups, int zero)
{
    *b = (struct nd_byte_weights){.n_groups = n_groups, .n_in = g->n_in, .n_out = g->n_out, .zero = zero};
    if (!is_possible(g))
        return false;
    b->w = *g->w;
    b->n_planes = (g->n_in + 3) / 4;
    b->n_quads = b->n_planes * (size_t)g->w->n_kernel;
    b->n_tiles = tiles_of(g->n_out);
    b->quads = nd_calloc(n_groups * b->n_tiles * b->n_quads * ND_QUAD_ROWS, 4);
    b->start = nd_calloc(n_groups * b->n_tiles * ND_QUAD_ROWS, sizeof *b->start);
    b->shift = nd_calloc(n_groups * b->n_tiles * ND_QUAD_ROWS, sizeof *b->shift);
    bool fits = b->quads != NULL && b->start != NULL && b->shift != NULL && place_planes(b);
    for (size_t i = 0; i < n_groups * g->n_out && fits; i++)
        fits =
            pack_channel(b, i / g->n_out * b->n_tiles + i % g->n_out / ND_QUAD_ROWS,
                         i % g->n_out % ND_QUAD_ROWS, g->short_weight + i * g->n_in * (size_t)g->w->n_kernel);
    if (!fits)
        nd_byte_weights_end(b);
    return fits;
}

void nd_byte_weights_end(struct nd_byte_weights *b)
{
    free(b->quads);
    free(b->start);
    free(b->shift);
    free(b->starts);
    free(b->offsets);
    *b = (struct nd_byte_weights){.n_groups = 0};
}

/* ---- planes ---- */

enum { SLACK = 2 * ND_QUAD_COLUMNS }; /* that kernels read behind the last window */

/* Padding is the zero point, of channels that are there. */
static void fill_padding(const struct nd_conv_bytes *room)
{
    const struct nd_byte_weights *b = room->weights;
    uint8_t *last = room->planes + 4 * (b->n_planes - 1) * b->plane;
    memset(room->planes, b->zero, 4 * b->n_planes * b->plane);
    for (size_t i = 0; i < b->plane && b->n_in % 4 != 0; i++)
        memset(last + 4 * i + b->n_in % 4, 0, 4 - b->n_in % 4);
    memset(room->planes + 4 * b->n_planes * b->plane, 0, (size_t)4 * SLACK);
}

bool nd_conv_bytes_begin(struct nd_conv_bytes *room, const struct nd_byte_weights *b)
{
    *room = (struct nd_conv_bytes){.weights = b,
                                   .planes = nd_tensor_room(4 * (b->n_planes * b->plane + SLACK)),
                                   .totals = nd_tensor_room((b->plane + SLACK) * sizeof(int32_t)),
                                   .window_totals = nd_tensor_room(ND_QUAD_COLUMNS * sizeof(int32_t)),
                                   .sums = nd_tensor_room(2 * ND_QUAD_ROWS * ND_QUAD_COLUMNS * sizeof(double)),
                                   .nothing = nd_calloc((size_t)(b->w.n_in + 4 * b->w.in[2]), 1)};
    bool has_room = room->planes != NULL && room->totals != NULL && room->window_totals != NULL &&
                    room->sums != NULL && room->nothing != NULL;
    if (has_room)
        fill_padding(room);
    else
        nd_conv_bytes_end(room);
    return has_room;
}

void nd_conv_bytes_end(struct nd_conv_bytes *room)
{
    free(room->planes);
    free(room->totals);
    free(room->window_totals);
    free(room->sums);
    free(room->nothing);
    *room = (struct nd_conv_bytes){.weights = NULL};
}

/* n elements of row y of four planes, in quads, each phase for itself. */
static void put_row(const struct nd_conv_bytes *room, const uint8_t *const rows[4], ptrdiff_t y, size_t n,
                    uint8_t *plane)
{
    const struct nd_byte_weights *b = room->weights;
    const struct nd_window *w = &b->w;
    uint8_t *quads = room->nothing + w->n_in;
    if (w->stride[2] == 1) {
        nd_gemm_kernels()->make_quads(rows, n, plane + 4 * place_of(b, y, w->pad_begin[2]));
        return;
    }
    nd_gemm_kernels()->make_quads(rows, n, quads);
    for (ptrdiff_t first = 0; first < w->stride[2] && first < (ptrdiff_t)n; first++) {
        uint8_t *to = plane + 4 * place_of(b, y, first + w->pad_begin[2]);
        if (!is_read(w, 2, (first + w->pad_begin[2]) % w->stride[2]))
            continue;
        for (size_t x = (size_t)first; x < n; x += (size_t)w->stride[2], to += 4)
            memcpy(to, quads + 4 * x, 4);
    }
}

static void put_planes(const struct nd_conv_bytes *room, const uint8_t *in)
{
    const struct nd_byte_weights *b = room->weights;
    const struct nd_window *w = &b->w;
    ptrdiff_t n_rows = least(length_of(w, 1) - w->pad_begin[1], w->in[1]);
    ptrdiff_t n = least(length_of(w, 2) - w->pad_begin[2], w->in[2]);
    bool is_one_row = n == (ptrdiff_t)b->in_row && n == w->in[2] && w->stride[1] == 1 && w->stride[2] == 1;
    n *= is_one_row ? n_rows : 1;
    n_rows = is_one_row ? 1 : n_rows;
    for (size_t p = 0; p < b->n_planes; p++)
        for (ptrdiff_t y = 0; y < n_rows && n > 0; y++) {
            const uint8_t *rows[4];
            for (size_t c = 0; c < 4; c++)
                rows[c] =
                    4 * p + c < b->n_in ? in + (ptrdiff_t)(4 * p + c) * w->n_in + y * w->in[2] : room->nothing;
            if (is_read(w, 1, (y + w->pad_begin[1]) % w->stride[1]))
                put_row(room, rows, y + w->pad_begin[1], (size_t)n, room->planes + 4 * p * b->plane);
        }
    memset(room->totals, 0, (b->plane + SLACK) * sizeof *room->totals);
    for (size_t p = 0; p < b->n_planes && b->is_shifted; p++)
        nd_gemm_kernels()->total_quads(room->planes + 4 * p * b->plane, b->plane, room->totals);
}

/* ---- sums ---- */

/* Windows `from` and those behind it in the planes, of which some read over the end of a row. */
struct block {
    size_t from, n;
};

static void total_windows(const struct nd_conv_bytes *room, struct block block)
{
    const struct nd_byte_weights *b = room->weights;
    /* Of less the zero point: shift * sum of (quantised value - zero). */
    int32_t taken = -b->zero * (int32_t)(b->n_in * (size_t)b->w.n_kernel);
    for (size_t i = 0; i < ND_QUAD_COLUMNS; i++)
        room->window_totals[i] = taken;
    for (ptrdiff_t t = 0; t < b->w.n_kernel; t++) {
        const int32_t *totals = room->totals + (ptrdiff_t)block.from + b->offsets[t];
        for (size_t i = 0; i < block.n; i++)
            room->window_totals[i] += totals[i];
    }
}

/* Columns of windows, without those between rows. How many; *first: of the output. */
static size_t keep_windows(const struct nd_conv_bytes *room, struct block block, size_t n_rows, size_t *first)
{
    const struct nd_byte_weights *b = room->weights;
    size_t n_row = (size_t)b->w.out[2], n = 0, x = block.from % b->in_row, y = block.from / b->in_row;
    double *kept = room->sums + ND_QUAD_ROWS * ND_QUAD_COLUMNS;
    *first = y * n_row + (x < n_row ? x : n_row);
    for (size_t i = 0; i < block.n; x = 0) {
        size_t left = block.n - i, part = x < n_row ? n_row - x : 0;
        part = part < left ? part : left;
        for (size_t r = 0; r < n_rows && part > 0; r++)
            memcpy(kept + r * ND_QUAD_COLUMNS + n, room->sums + r * ND_QUAD_COLUMNS + i, part * sizeof *kept);
        n += part;
        i += b->in_row - x;
    }
    return n;
}

static void add_block(const struct nd_conv_bytes *room, size_t group, struct block block,
                      const struct nd_byte_sums *bytes)
{
    const struct nd_byte_weights *b = room->weights;
    bool is_plain = block.from % b->in_row + block.n <= (size_t)b->w.out[2] || b->in_row == (size_t)b->w.out[2];
    struct nd_sums_block made = {.sums = room->sums + (is_plain ? 0 : ND_QUAD_ROWS * ND_QUAD_COLUMNS),
                                 .row = ND_QUAD_COLUMNS};
    if (b->is_shifted)
        total_windows(room, block);
    for (size_t t = 0; t < b->n_tiles; t++) {
        size_t tile = group * b->n_tiles + t;
        const struct nd_quad_gemm gemm = {.n_quads = b->n_quads,
                                          .m = block.n,
                                          .a = b->quads + tile * b->n_quads * ND_QUAD_ROWS * 4,
                                          .b = room->planes + 4 * block.from,
                                          .offsets = b->offsets,
                                          .start = b->start + tile * ND_QUAD_ROWS,
                                          .step = b->shift + tile * ND_QUAD_ROWS,
                                          .totals = b->is_shifted ? room->window_totals : NULL,
                                          .c = room->sums};
        nd_gemm_kernels()->multiply_quads(&gemm);
        made.first_channel = t * ND_QUAD_ROWS;
        made.n_channels =
            b->n_out - made.first_channel < ND_QUAD_ROWS ? b->n_out - made.first_channel : ND_QUAD_ROWS;
        made.from = block.from / b->in_row * (size_t)b->w.out[2] + block.from % b->in_row;
        made.n = is_plain ? block.n : keep_windows(room, block, made.n_channels, &made.from);
        bytes->take(bytes->context, &made);
    }
}

void nd_conv_bytes_each(const struct nd_conv_bytes *room, size_t group, const struct nd_byte_sums *bytes)
{
    const struct nd_byte_weights *b = room->weights;
    size_t n_row = (size_t)b->w.out[2], n_rows = (size_t)b->w.out[1];
    bool is_by_row = n_row >= MIN_WIDE_ROW && n_row < b->in_row;
    size_t n_pieces = is_by_row ? n_rows : 1, n = is_by_row ? n_row : (n_rows - 1) * b->in_row + n_row;
    put_planes(room, bytes->in);
    for (size_t y = 0; y < n_pieces; y++)
        for (size_t i = 0; i < n; i += ND_QUAD_COLUMNS)
            add_block(room, group,
                      (struct block){y * b->in_row + i, n - i < ND_QUAD_COLUMNS ? n - i : ND_QUAD_COLUMNS},
                      bytes);
}
