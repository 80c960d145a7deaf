/* What a layer gives when two products of 8 bit quantised values are added in 16 bits before they reach the
 * accumulator. pairs.h has the formula. */
#include "arithmetic/variants/pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_values.h"
#include "arithmetic/operators/window.h"
#include "core/error.h"
#include "core/memory.h"

/* ---- the ways ---- */

#define ORDERED(order)                                                                                         \
    {false, true, 1, order}, {true, false, 8, order}, {true, true, 1, order}, {false, true, 8, order},         \
        {true, false, 1, order}, {true, true, 8, order}, {false, false, 1, order},                             \
    {                                                                                                          \
        false, false, 8, order                                                                                 \
    }
static const struct nd_pair_sum pair_sums[ND_N_PAIR_SUMS] = {
    ORDERED(ND_PAIR_CHANNELS_FASTEST), ORDERED(ND_PAIR_POSITIONS_FASTEST), ORDERED(ND_PAIR_CHANNELS_PADDED)};

const struct nd_pair_sum *nd_pair_sums(void)
{
    return pair_sums;
}

const char *nd_pair_sum_text(const struct nd_pair_sum *sum, bool has_orders, char buf[ND_PAIR_SUM_TEXT_BYTES])
{
    static const char *const orders[] = {[ND_PAIR_CHANNELS_FASTEST] = "; k counts channels fastest",
                                         [ND_PAIR_POSITIONS_FASTEST] = "; k counts kernel positions fastest",
                                         [ND_PAIR_CHANNELS_PADDED] =
                                             "; k counts the channels of one kernel position"};
    const char *known = sum->is_unsigned && !sum->is_wrapping && sum->distance == 1 ? ", as on x86 without VNNI"
                        : !sum->is_unsigned && sum->is_wrapping && sum->distance == 8
                            ? ", as smull with smlal does"
                            : "";
    snprintf(buf, ND_PAIR_SUM_TEXT_BYTES, "two products (k and k + %d) are added in 16 bits and %s%s%s",
             sum->distance, sum->is_wrapping ? "wrap" : "saturate", known,
             has_orders ? orders[sum->order] : "");
    return buf;
}

/* ---- the operands, as matrices of raw quantised values ---- */

enum { LOWEST = -32768, HIGHEST = 32767 };

/* out[row][column] += left[term][row] right[term][column], at out + first + row * row_step + column *
 * column_step. */
struct block {
    size_t n_terms, n_rows, n_columns;
    int16_t *left, *right;
    size_t first, row_step, column_step;
};

struct pairs {
    const struct nd_exact_layer *layer;
    const struct nd_rounding_rule *usual;
    size_t n_channels, n_positions; /* of the terms; n_positions is 1 of matrices */
    size_t n_outputs, n_inner;      /* channels of the output, and elements that follow each other in one */
    double alpha;
    size_t n_blocks;
    struct block *blocks;
    struct nd_linear_result exact; /* without bounds */
    double *added;                 /* [exact.n]: what overflows add to the accumulator */
};

static void pairs_deinit(struct pairs *p)
{
    for (size_t b = 0; p->blocks != NULL && b < p->n_blocks; b++) {
        free(p->blocks[b].left);
        free(p->blocks[b].right);
    }
    free(p->blocks);
    free(p->added);
    nd_linear_deinit(&p->exact);
}

static enum nd_status make_block(struct block *block, struct nd_error *err)
{
    size_t n_left, n_right;
    ND_TRY_MEMORY(nd_size_mul(block->n_terms, block->n_rows, &n_left) &&
                      nd_size_mul(block->n_terms, block->n_columns, &n_right),
                  err);
    block->left = nd_calloc(n_left, sizeof *block->left);
    block->right = nd_calloc(n_right, sizeof *block->right);
    return block->left != NULL && block->right != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status make_blocks(struct pairs *p, size_t n, struct nd_error *err)
{
    p->n_blocks = n;
    p->blocks = nd_calloc(n, sizeof *p->blocks);
    return p->blocks != NULL ? ND_OK : nd_fail_memory(err);
}

/* A matrix of terms x places from elements that are that far apart. */
static void copy_matrix(const double *from, size_t term_step, size_t place_step, size_t n_terms,
                        size_t n_places, int16_t *to)
{
    for (size_t k = 0; k < n_terms; k++)
        for (size_t i = 0; i < n_places; i++)
            to[k * n_places + i] = (int16_t)from[k * term_step + i * place_step];
}

static bool is_true(const struct nd_linear_call *call, const char *name)
{
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    return nd_op_i(&op_call, name, 0) != 0;
}

/* A stack of matrices times one matrix, or times a stack of the same shape. False: something else. */
static bool is_stack(const struct nd_shape *left, const struct nd_shape *right)
{
    bool is_fit = left->rank >= 2 && right->rank >= 2 && (right->rank == 2 || right->rank == left->rank);
    for (int axis = 0; is_fit && right->rank > 2 && axis < left->rank - 2; axis++)
        is_fit = left->dims[axis] == right->dims[axis];
    return is_fit;
}

static enum nd_status read_matrices(struct pairs *p, bool *is_covered, struct nd_error *err)
{
    const struct nd_linear_call *call = p->layer->call;
    const struct nd_array *left = call->inputs[0].values, *right = call->inputs[1].values;
    const struct nd_shape *l = &left->shape, *r = &right->shape;
    if (!is_stack(l, r))
        return ND_OK;
    bool is_gemm = strcmp(call->node->op_type, "Gemm") == 0, is_stacked = r->rank > 2;
    bool turns_left = is_gemm && is_true(call, "transA"), turns_right = is_gemm && is_true(call, "transB");
    size_t rows = (size_t)l->dims[l->rank - 2], terms = (size_t)l->dims[l->rank - 1];
    size_t r_rows = (size_t)r->dims[r->rank - 2], r_columns = (size_t)r->dims[r->rank - 1];
    size_t n_terms = turns_left ? rows : terms, n_columns = turns_right ? r_rows : r_columns;
    if (n_terms == 0 || n_columns == 0 || left->n == 0 || n_terms != (turns_right ? r_columns : r_rows))
        return ND_OK;
    size_t n_rows = is_stacked ? rows : left->n / n_terms;
    enum nd_status status = make_blocks(p, is_stacked ? left->n / (rows * terms) : 1, err);
    for (size_t b = 0; b < p->n_blocks && status == ND_OK; b++) {
        struct block *block = &p->blocks[b];
        *block = (struct block){.n_terms = n_terms,
                                .n_rows = n_rows,
                                .n_columns = n_columns,
                                .first = b * n_rows * n_columns,
                                .row_step = n_columns,
                                .column_step = 1};
        status = make_block(block, err);
        if (status != ND_OK)
            break;
        copy_matrix(left->x + b * n_rows * n_terms, turns_left ? n_rows : 1, turns_left ? 1 : n_terms, n_terms,
                    n_rows, block->left);
        copy_matrix(right->x + b * n_terms * n_columns, turns_right ? 1 : n_columns, turns_right ? n_terms : 1,
                    n_terms, n_columns, block->right);
    }
    p->n_channels = n_terms;
    p->n_positions = p->n_inner = 1;
    p->n_outputs = n_columns;
    *is_covered = true;
    return status;
}

/* One row of the windows: what tap k reads of a plane at every place of the output. */
static void copy_tap(const struct nd_window *w, const ptrdiff_t k[ND_WINDOW_AXES], const double *plane,
                     double padding, int16_t *to)
{
    ptrdiff_t o[ND_WINDOW_AXES], i[ND_WINDOW_AXES];
    for (o[0] = 0; o[0] < w->out[0]; o[0]++)
        for (o[1] = 0; o[1] < w->out[1]; o[1]++)
            for (o[2] = 0; o[2] < w->out[2]; o[2]++) {
                bool is_inside = true;
                for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
                    i[axis] = o[axis] * w->stride[axis] + k[axis] * w->dilation[axis] - w->pad_begin[axis];
                    is_inside = is_inside && i[axis] >= 0 && i[axis] < w->in[axis];
                }
                *to++ = (int16_t)(is_inside ? plane[(i[0] * w->in[1] + i[1]) * w->in[2] + i[2]] : padding);
            }
}

static void copy_windows(const struct nd_window *w, const double *planes, double padding, struct block *block)
{
    size_t n_channels = block->n_terms / (size_t)w->n_kernel;
    int16_t *to = block->left;
    for (size_t c = 0; c < n_channels; c++) {
        ptrdiff_t k[ND_WINDOW_AXES];
        for (k[0] = 0; k[0] < w->kernel[0]; k[0]++)
            for (k[1] = 0; k[1] < w->kernel[1]; k[1]++)
                for (k[2] = 0; k[2] < w->kernel[2]; k[2]++, to += block->n_rows)
                    copy_tap(w, k, planes + c * (size_t)w->n_in, padding, to);
    }
}

/* One block for each sample of the batch and group. */
static enum nd_status read_conv(struct pairs *p, bool *is_covered, struct nd_error *err)
{
    const struct nd_linear_call *call = p->layer->call;
    const struct nd_array *x = call->inputs[0].values, *weight = call->inputs[1].values;
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    int64_t n_groups = nd_op_i(&op_call, "group", 1);
    struct nd_error ignored = {0};
    struct nd_window w;
    if (x->shape.rank < 3 || weight->shape.rank != x->shape.rank || n_groups < 1 ||
        nd_window_read(&op_call, &x->shape, &weight->shape.dims[2], &w, &ignored) != ND_OK ||
        nd_window_fit(&op_call, &w, &ignored) != ND_OK ||
        x->shape.dims[1] != weight->shape.dims[1] * n_groups || weight->shape.dims[0] % n_groups != 0 ||
        x->n == 0 || weight->n == 0)
        return ND_OK;
    size_t groups = (size_t)n_groups, n_out = (size_t)weight->shape.dims[0] / groups;
    size_t n_terms = weight->n / (n_out * groups), n_rows = (size_t)w.n_out;
    p->n_channels = (size_t)weight->shape.dims[1];
    p->n_positions = (size_t)w.n_kernel;
    p->n_outputs = n_out * groups;
    p->n_inner = n_rows;
    ND_TRY(make_blocks(p, (size_t)x->shape.dims[0] * groups, err));
    for (size_t b = 0; b < p->n_blocks; b++) {
        struct block *block = &p->blocks[b];
        *block = (struct block){.n_terms = n_terms,
                                .n_rows = n_rows,
                                .n_columns = n_out,
                                .first = b * n_out * n_rows,
                                .row_step = 1,
                                .column_step = n_rows};
        ND_TRY(make_block(block, err));
        copy_windows(&w, x->x + b * p->n_channels * (size_t)w.n_in,
                     (double)call->inputs[0].quant->zero_point[0], block);
        copy_matrix(weight->x + b % groups * n_out * n_terms, 1, n_terms, n_terms, n_out, block->right);
    }
    *is_covered = true;
    return ND_OK;
}

static bool has_bytes(const struct nd_linear_input *input)
{
    return input->values != NULL && input->quant != NULL &&
           (input->values->dtype == ND_DTYPE_U8 || input->values->dtype == ND_DTYPE_I8);
}

static enum nd_status read_operands(struct pairs *p, bool *is_covered, struct nd_error *err)
{
    const struct nd_linear_call *call = p->layer->call;
    *is_covered = false;
    if (call->node == NULL || call->n_inputs < 2 || nd_onnx_domain(call->node->domain)[0] != 0 ||
        !has_bytes(&call->inputs[0]) || !has_bytes(&call->inputs[1]) || call->inputs[0].quant->n != 1)
        return ND_OK;
    const char *op_type = nd_onnx_text(call->node->op_type);
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    bool is_gemm = strcmp(op_type, "Gemm") == 0;
    p->alpha = is_gemm ? nd_op_f(&op_call, "alpha", 1) : 1;
    if (is_gemm || strcmp(op_type, "MatMul") == 0)
        return read_matrices(p, is_covered, err);
    return strcmp(op_type, "Conv") == 0 ? read_conv(p, is_covered, err) : ND_OK;
}

/* ---- pairs ---- */

/* The place of the k-th term in the block (channel * n_positions + position), or SIZE_MAX: padding. */
static size_t term_at(const struct pairs *p, const struct nd_pair_sum *sum, size_t k)
{
    size_t width = p->n_channels, block = 2 * (size_t)sum->distance;
    if (sum->order == ND_PAIR_POSITIONS_FASTEST)
        return k < p->n_channels * p->n_positions ? k : SIZE_MAX;
    if (sum->order == ND_PAIR_CHANNELS_PADDED)
        width = (width + block - 1) / block * block;
    size_t position = k / width, channel = k % width;
    return position < p->n_positions && channel < p->n_channels ? channel * p->n_positions + position
                                                                : SIZE_MAX;
}

static size_t n_counted(const struct pairs *p, const struct nd_pair_sum *sum)
{
    size_t block = 2 * (size_t)sum->distance;
    size_t width =
        sum->order == ND_PAIR_CHANNELS_PADDED ? (p->n_channels + block - 1) / block * block : p->n_channels;
    return width * p->n_positions;
}

/* What a quantised value is moved by so that the kernel's type holds it. */
static int offset_of(enum nd_dtype dtype, bool is_unsigned)
{
    return dtype == ND_DTYPE_U8 ? (is_unsigned ? 0 : -128) : (is_unsigned ? 128 : 0);
}

static int cut(int sum, bool is_wrapping)
{
    if (is_wrapping)
        return ((sum - LOWEST) & 0xffff) + LOWEST;
    return sum < LOWEST ? LOWEST : sum > HIGHEST ? HIGHEST : sum;
}

/* Whether some quantised values of the left operand make the sum overflow. */
static bool can_overflow(const struct nd_pair_sum *sum, int a, int b)
{
    int least = sum->is_unsigned ? 0 : -128, most = sum->is_unsigned ? 255 : 127;
    int high = (a > 0 ? a * most : a * least) + (b > 0 ? b * most : b * least);
    int low = (a > 0 ? a * least : a * most) + (b > 0 ? b * least : b * most);
    return high > HIGHEST || low < LOWEST;
}

/* Adds what one pair of terms loses. True: it overflows somewhere. */
static bool add_pair(struct pairs *p, const struct block *block, const struct nd_pair_sum *sum, size_t first,
                     size_t second)
{
    const struct nd_linear_input *inputs = p->layer->call->inputs;
    int moved_left = offset_of(inputs[0].values->dtype, sum->is_unsigned);
    int moved_right = offset_of(inputs[1].values->dtype, false);
    const int16_t *a = block->left + first * block->n_rows, *b = block->left + second * block->n_rows;
    bool is_over = false;
    for (size_t c = 0; c < block->n_columns; c++) {
        int x = block->right[first * block->n_columns + c] + moved_right;
        int y = block->right[second * block->n_columns + c] + moved_right;
        double *added = p->added + block->first + c * block->column_step;
        if (!can_overflow(sum, x, y))
            continue;
        for (size_t r = 0; r < block->n_rows; r++) {
            int whole = (a[r] + moved_left) * x + (b[r] + moved_left) * y, kept = cut(whole, sum->is_wrapping);
            added[r * block->row_step] += kept - whole;
            is_over = is_over || kept != whole;
        }
    }
    return is_over;
}

static bool add_overflows(struct pairs *p, const struct nd_pair_sum *sum)
{
    size_t distance = (size_t)sum->distance, n = n_counted(p, sum);
    bool is_over = false;
    memset(p->added, 0, p->exact.n * sizeof *p->added);
    for (size_t start = 0; start < n; start += 2 * distance)
        for (size_t k = start; k < start + distance && k + distance < n; k++) {
            size_t first = term_at(p, sum, k), second = term_at(p, sum, k + distance);
            for (size_t b = 0; b < p->n_blocks && first != SIZE_MAX && second != SIZE_MAX; b++)
                is_over |= add_pair(p, &p->blocks[b], sum, first, second);
        }
    return is_over;
}

/* ---- quantised values ---- */

/* The quantised value of element i, with what overflows added to its accumulator. */
static double qvalue_of(const struct pairs *p, size_t i)
{
    const struct nd_linear_call *call = p->layer->call;
    struct nd_ratio v = p->exact.v[i];
    double zero = (double)call->out_quant->zero_point[nd_exact_channel(call->out_quant, &p->exact.shape, i)];
    if (p->added[i] != 0) {
        size_t channel = i / p->n_inner % p->n_outputs;
        struct nd_wide step =
            nd_wide_product(nd_linear_scale(&call->inputs[0], 0), nd_linear_scale(&call->inputs[1], channel));
        v.numerator = nd_wide_add(v.numerator, nd_wide_scale(nd_wide_scale(step, p->alpha), p->added[i]));
    }
    if (call->low > -HUGE_VAL && nd_wide_compare(v.numerator, nd_wide_from(call->low)) < 0)
        v.numerator = nd_wide_from(call->low);
    if (call->high < HUGE_VAL && nd_wide_compare(v.numerator, nd_wide_from(call->high)) > 0)
        v.numerator = nd_wide_from(call->high);
    return nd_rounding_rule_qvalue(p->usual, &v, zero, p->layer->dtype);
}

/* The exact values without Relu and Clip, which come after the overflow. is_covered stays false where there are
 * none. */
static enum nd_status find_exact(struct pairs *p, bool *is_covered, struct nd_error *err)
{
    struct nd_linear_call call = *p->layer->call;
    struct nd_error problem = {0};
    call.low = -HUGE_VAL;
    call.high = HUGE_VAL;
    enum nd_status status = nd_linear_layer(&call, &p->exact, &problem);
    ND_TRY_MEMORY(status != ND_ERR_MEMORY, err);
    size_t n_scales = call.inputs[1].quant->n;
    *is_covered = status == ND_OK && p->exact.n % (p->n_outputs * p->n_inner) == 0 &&
                  (n_scales == 1 || n_scales == p->n_outputs);
    if (*is_covered)
        p->added = nd_calloc(p->exact.n, sizeof *p->added);
    return !*is_covered || p->added != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status try_all(struct pairs *p, nd_pair_sum_found *found, void *context, struct nd_error *err)
{
    const struct nd_pair_sum *sums = pair_sums;
    ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {0}, plain = {0};
    ND_TRY(nd_array_make(&plain, p->layer->dtype, &p->exact.shape, err));
    ND_TRY(nd_array_make(&qvalues, p->layer->dtype, &p->exact.shape, err));
    for (size_t i = 0; i < plain.n; i++)
        plain.x[i] = qvalue_of(p, i);
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        if (p->n_positions == 1 && sums[s].order != ND_PAIR_CHANNELS_FASTEST)
            continue;
        bool is_over = add_overflows(p, &sums[s]);
        for (size_t i = 0; i < qvalues.n; i++)
            qvalues.x[i] = p->added[i] != 0 ? qvalue_of(p, i) : plain.x[i];
        ND_TRY(found(context, s, is_over ? &qvalues : &plain, err));
    }
    return ND_OK;
}

enum nd_status nd_layer_in_pairs(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                 nd_pair_sum_found *found, void *context, struct nd_error *err)
{
    ND_CLEANUP(pairs_deinit) struct pairs p = {.layer = layer, .usual = usual};
    bool is_covered = false;
    ND_TRY(read_operands(&p, &is_covered, err));
    if (is_covered)
        ND_TRY(find_exact(&p, &is_covered, err));
    return is_covered ? try_all(&p, found, context, err) : ND_OK;
}
