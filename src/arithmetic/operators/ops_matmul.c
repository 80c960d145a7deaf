/* Products of matrices: MatMul, Gemm and Einsum. */
#include <ctype.h>
#include <string.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/kernels/short_products.h"
#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"

/* c = a b for matrices n x inner and inner x m that lie in C order; each element is added up in order of inner.
 */
static void nd_matrix_product(const double *a, const double *b, double *c, size_t n, size_t inner, size_t m)
{
    /* As many columns of as many rows of b as stay in the second-level cache: 256 KiB; chosen. */
    enum { MAX_COLUMNS = 192, MAX_TERMS = 170 };
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    if (n * m > 0)
        memset(c, 0, n * m * sizeof *c);
    for (size_t j = 0; j < m; j += MAX_COLUMNS)
        for (size_t k = 0; k < inner; k += MAX_TERMS) {
            const struct nd_gemm gemm = {.n = n,
                                         .n_k = inner - k < MAX_TERMS ? inner - k : MAX_TERMS,
                                         .m = m - j < MAX_COLUMNS ? m - j : MAX_COLUMNS,
                                         .a = a + k,
                                         .b = b + k * m + j,
                                         .c = c + j,
                                         .a_row = inner,
                                         .b_row = m,
                                         .c_row = m};
            kernels->add(&gemm);
        }
}

/* A matrix n x m of its transpose. */
static void transpose(const double *from, double *to, size_t n, size_t m)
{
    for (size_t j = 0; j < m; j++)
        for (size_t i = 0; i < n; i++)
            to[i * m + j] = from[j * n + i];
}

/* One operand of MatMul as a stack of matrices; a vector becomes a row (left) or a column. */
static struct nd_array as_matrices(const struct nd_array *array, bool is_left)
{
    struct nd_array made = *array;
    if (array->shape.rank != 1)
        return made;
    made.shape.rank = 2;
    made.shape.dims[is_left ? 1 : 0] = array->shape.dims[0];
    made.shape.dims[is_left ? 0 : 1] = 1;
    return made;
}

static struct nd_shape stack_of(const struct nd_array *array)
{
    struct nd_shape stack = array->shape;
    stack.rank -= 2;
    return stack;
}

/* The result's shape: the stack, and the matrix without the axes that vectors were given. */
static struct nd_shape product_shape(const struct nd_op_call *call, struct nd_shape stack, int64_t n, int64_t m)
{
    if (call->inputs[0]->shape.rank > 1)
        stack.dims[stack.rank++] = n;
    if (call->inputs[1]->shape.rank > 1)
        stack.dims[stack.rank++] = m;
    return stack;
}

enum nd_status nd_op_matmul(const struct nd_op_call *call, struct nd_error *err)
{
    if (call->inputs[0]->shape.rank == 0 || call->inputs[1]->shape.rank == 0)
        return nd_op_misfit(call, err, "a scalar");
    struct nd_array a = as_matrices(call->inputs[0], true), b = as_matrices(call->inputs[1], false);
    struct nd_array a_stack = {.shape = stack_of(&a)}, b_stack = {.shape = stack_of(&b)};
    int64_t n = a.shape.dims[a.shape.rank - 2], inner = a.shape.dims[a.shape.rank - 1];
    int64_t m = b.shape.dims[b.shape.rank - 1];
    if (b.shape.dims[b.shape.rank - 2] != inner)
        return nd_op_misfit(call, err, "matrices of %lld columns and %lld rows", (long long)inner,
                            (long long)b.shape.dims[b.shape.rank - 2]);
    struct nd_shape stack = a_stack.shape;
    ND_TRY(nd_op_broadcast(call, &b_stack.shape, &stack, err));
    struct nd_shape shape = product_shape(call, stack, n, m);
    ND_TRY(nd_op_make(call, 0, call->inputs[0]->dtype, &shape, err));
    struct nd_walk walk = {0};
    for (int axis = 0; axis < stack.rank; axis++)
        nd_walk_axis(&walk, stack.dims[axis], nd_broadcast_stride(&a_stack, &stack, axis) * n * inner,
                     nd_broadcast_stride(&b_stack, &stack, axis) * inner * m, 0);
    double *c = call->outputs[0]->x;
    const struct nd_short_factors shorts = {.a = &a,
                                            .b = call->shorts,
                                            .n = inner > 0 ? a.n / (size_t)inner : 0,
                                            .inner = (size_t)inner,
                                            .m = (size_t)m};
    if (call->shorts != NULL && c != NULL && b.shape.rank == 2 && nd_short_product(&shorts, c))
        return nd_op_wrap(call, call->outputs[0], err);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n && c != NULL; i++, c += n * m)
            nd_matrix_product(a.x + walk.at[0] + i * walk.step[0], b.x + walk.at[1] + i * walk.step[1], c,
                              (size_t)n, (size_t)inner, (size_t)m);
    return nd_op_wrap(call, call->outputs[0], err);
}

/* The operand of Gemm as it is multiplied: rows x columns in C order, transposed into *scratch if need be. */
static enum nd_status gemm_operand(const struct nd_op_call *call, size_t input, const char *attribute,
                                   const double **out, double **scratch, struct nd_error *err)
{
    const struct nd_array *array = call->inputs[input];
    *out = array->x;
    if (nd_op_i(call, attribute, 0) == 0 || array->n == 0)
        return ND_OK;
    *scratch = nd_calloc(array->n, sizeof **scratch);
    ND_TRY_MEMORY(*scratch != NULL, err);
    transpose(array->x, *scratch, (size_t)array->shape.dims[1], (size_t)array->shape.dims[0]);
    *out = *scratch;
    return ND_OK;
}

/* y = alpha y + beta c. */
static void scale_and_add(const struct nd_op_call *call, const struct nd_array *c, struct nd_array *y)
{
    double alpha = nd_op_f(call, "alpha", 1), beta = nd_op_f(call, "beta", 1);
    for (size_t i = 0; i < y->n && alpha != 1; i++)
        y->x[i] *= alpha;
    if (c == NULL)
        return;
    struct nd_walk walk = {0};
    for (int axis = 0; axis < 2; axis++)
        nd_walk_axis(&walk, y->shape.dims[axis], axis == 0 ? (ptrdiff_t)y->shape.dims[1] : 1,
                     nd_broadcast_stride(c, &y->shape, axis), 0);
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            y->x[walk.at[0] + i * walk.step[0]] += beta * c->x[walk.at[1] + i * walk.step[1]];
}

/* The shape of the product, and the length of its sums. */
static enum nd_status gemm_shape(const struct nd_op_call *call, struct nd_shape *shape, size_t *inner,
                                 struct nd_error *err)
{
    const struct nd_array *a = call->inputs[0], *b = call->inputs[1], *c = nd_op_in(call, 2);
    if (a->shape.rank != 2 || b->shape.rank != 2)
        return nd_op_misfit(call, err, "an operand that is no matrix");
    int rows = nd_op_i(call, "transA", 0) != 0 ? 1 : 0, columns = nd_op_i(call, "transB", 0) != 0 ? 0 : 1;
    struct nd_shape made = {.rank = 2, .dims = {a->shape.dims[rows], b->shape.dims[columns]}}, sum = made;
    if (a->shape.dims[1 - rows] != b->shape.dims[1 - columns])
        return nd_op_misfit(call, err, "matrices of %lld columns and %lld rows",
                            (long long)a->shape.dims[1 - rows], (long long)b->shape.dims[1 - columns]);
    ND_TRY(c != NULL ? nd_op_broadcast(call, &c->shape, &sum, err) : ND_OK);
    if (!nd_shape_equal(&sum, &made))
        return nd_op_misfit(call, err, "what is added is larger than the product");
    *shape = made;
    *inner = (size_t)a->shape.dims[1 - rows];
    return ND_OK;
}

/* False: not that way. */
static bool multiply_shorts(const struct nd_op_call *call, const struct nd_shape *shape, size_t inner)
{
    struct nd_array *y = call->outputs[0];
    const struct nd_short_factors shorts = {.a = call->inputs[0],
                                            .b = call->shorts,
                                            .is_transposed = nd_op_i(call, "transB", 0) != 0,
                                            .n = (size_t)shape->dims[0],
                                            .inner = inner,
                                            .m = (size_t)shape->dims[1]};
    return call->shorts != NULL && y->n > 0 && nd_op_i(call, "transA", 0) == 0 &&
           nd_short_product(&shorts, y->x);
}

/* A row of a, or a few, times the transpose of b as it lies there: to transpose it first costs more than the
 * product. Each sum in order of its terms, as nd_matrix_product has it. False: not that way. */
static bool multiply_few_rows(const struct nd_op_call *call, const struct nd_shape *shape, size_t inner)
{
    enum { MAX_ROWS = 3, AT_ONCE = 8 }; /* chosen */
    const struct nd_array *a = call->inputs[0], *b = call->inputs[1], *y = call->outputs[0];
    size_t n = (size_t)shape->dims[0], m = (size_t)shape->dims[1];
    if (n > MAX_ROWS || y->n == 0 || nd_op_i(call, "transA", 0) != 0 || nd_op_i(call, "transB", 0) == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j += AT_ONCE) {
            size_t left = m - j < AT_ONCE ? m - j : AT_ONCE;
            double sums[AT_ONCE] = {0};
            const double *row = a->x + i * inner, *columns = b->x + j * inner;
            for (size_t k = 0; k < inner; k++)
                for (size_t c = 0; c < left; c++)
                    sums[c] += row[k] * columns[c * inner + k];
            memcpy(y->x + i * m + j, sums, left * sizeof *sums);
        }
    return true;
}

static enum nd_status nd_op_gemm(const struct nd_op_call *call, struct nd_error *err)
{
    const double *a = NULL, *b = NULL;
    ND_FREED double *a_scratch = NULL, *b_scratch = NULL;
    struct nd_array *y = call->outputs[0];
    struct nd_shape shape;
    size_t inner = 0;
    enum nd_status status = gemm_shape(call, &shape, &inner, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, call->inputs[0]->dtype, &shape, err);
    bool is_made =
        status == ND_OK && (multiply_shorts(call, &shape, inner) || multiply_few_rows(call, &shape, inner));
    if (status == ND_OK && !is_made)
        status = gemm_operand(call, 0, "transA", &a, &a_scratch, err);
    if (status == ND_OK && !is_made)
        status = gemm_operand(call, 1, "transB", &b, &b_scratch, err);
    if (status == ND_OK && y->n > 0) {
        if (!is_made)
            nd_matrix_product(a, b, y->x, (size_t)shape.dims[0], inner, (size_t)shape.dims[1]);
        scale_and_add(call, nd_op_in(call, 2), y);
        status = nd_op_wrap(call, y, err);
    }
    return status;
}

/* ---- Einsum of one or two tensors ---- */

/* An index is a letter of the equation, or an axis that an ellipsis stands for, counted from its end. */
enum { FIRST_ELLIPSIS = 128, N_LABELS = FIRST_ELLIPSIS + ND_MAX_RANK, MAX_OPERANDS = 2 };

/* One term of the equation: its indices, the ellipsis spelt out. */
struct term {
    int n;
    int labels[ND_MAX_RANK];
};

struct equation {
    struct term inputs[MAX_OPERANDS], output;
    int n_ellipsis; /* axes that the longest ellipsis stands for */
    int64_t dims[N_LABELS];
    int n_uses[N_LABELS]; /* by inputs */
};

static bool add_label(struct term *term, int label)
{
    if (term->n == ND_MAX_RANK)
        return false;
    term->labels[term->n++] = label;
    return true;
}

/* Reads one term up to `end`; an ellipsis stands for n_ellipsis axes. */
static bool read_term(const char *text, const char *end, int n_ellipsis, struct term *term)
{
    for (; text < end; text++) {
        if (*text == '.') {
            if (end - text < 3 || strncmp(text, "...", 3) != 0)
                return false;
            text += 2;
            for (int k = n_ellipsis - 1; k >= 0; k--)
                if (!add_label(term, FIRST_ELLIPSIS + k))
                    return false;
        } else if (!isalpha((unsigned char)*text) || !add_label(term, *text)) {
            return false;
        }
    }
    return true;
}

/* Axes that the ellipsis of an input stands for: those that have no letter. */
static int count_ellipsis(const char *text, const char *end, int rank)
{
    bool has_ellipsis = memchr(text, '.', (size_t)(end - text)) != NULL;
    int n_letters = (int)(end - text) - (has_ellipsis ? 3 : 0);
    return has_ellipsis && rank > n_letters ? rank - n_letters : 0;
}

static bool read_inputs(const struct nd_op_call *call, const char *text, const char *end, struct equation *out)
{
    for (size_t i = 0; i < call->n_inputs; i++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma != NULL ? comma : end;
        int n_ellipsis = count_ellipsis(text, stop, call->inputs[i]->shape.rank);
        if ((comma == NULL) != (i + 1 == call->n_inputs) ||
            !read_term(text, stop, n_ellipsis, &out->inputs[i]) ||
            out->inputs[i].n != call->inputs[i]->shape.rank)
            return false;
        if (n_ellipsis > out->n_ellipsis)
            out->n_ellipsis = n_ellipsis;
        text = stop + 1;
    }
    return true;
}

/* Dimensions of all indices; 1 is repeated. */
static bool fit_dims(const struct nd_op_call *call, struct equation *equation)
{
    for (int label = 0; label < N_LABELS; label++)
        equation->dims[label] = 1;
    for (size_t i = 0; i < call->n_inputs; i++)
        for (int axis = 0; axis < equation->inputs[i].n; axis++) {
            int label = equation->inputs[i].labels[axis];
            int64_t dim = call->inputs[i]->shape.dims[axis], *held = &equation->dims[label];
            if (*held != 1 && dim != 1 && *held != dim)
                return false;
            *held = *held == 1 ? dim : *held;
            equation->n_uses[label]++;
        }
    return true;
}

/* Without an arrow, the result has the ellipsis and every letter that is used once, in alphabetical order. */
static bool read_output(const char *arrow, struct equation *equation)
{
    bool is_made[N_LABELS] = {false};
    if (arrow != NULL) {
        if (!read_term(arrow + 2, arrow + strlen(arrow), equation->n_ellipsis, &equation->output))
            return false;
    } else {
        for (int k = equation->n_ellipsis - 1; k >= 0; k--)
            if (!add_label(&equation->output, FIRST_ELLIPSIS + k))
                return false;
        for (int label = 0; label < FIRST_ELLIPSIS; label++)
            if (equation->n_uses[label] == 1 && !add_label(&equation->output, label))
                return false;
    }
    for (int i = 0; i < equation->output.n; i++) {
        int label = equation->output.labels[i];
        if (is_made[label] || equation->n_uses[label] == 0)
            return false;
        is_made[label] = true;
    }
    return true;
}

/* The stride of an index in a tensor: of all axes that have it (two of them make a diagonal). */
static ptrdiff_t label_stride(const struct term *term, const struct nd_shape *shape, int label)
{
    ptrdiff_t strides[ND_MAX_RANK], sum = 0;
    nd_strides(shape, strides);
    for (int axis = 0; axis < term->n; axis++)
        if (term->labels[axis] == label && shape->dims[axis] != 1)
            sum += strides[axis];
    return sum;
}

static void add_axis(const struct nd_op_call *call, const struct equation *equation, int label,
                     struct nd_walk *walk)
{
    ptrdiff_t strides[MAX_OPERANDS] = {0};
    for (size_t i = 0; i < call->n_inputs; i++)
        strides[i] = label_stride(&equation->inputs[i], &call->inputs[i]->shape, label);
    nd_walk_axis(walk, equation->dims[label], label_stride(&equation->output, &call->outputs[0]->shape, label),
                 strides[0], strides[1]);
}

/* The output's indices outside, those that are summed inside. */
static bool plan(const struct nd_op_call *call, const struct equation *equation, struct nd_walk *walk)
{
    bool is_out[N_LABELS] = {false};
    int n_summed = 0;
    for (int i = 0; i < equation->output.n; i++) {
        is_out[equation->output.labels[i]] = true;
        add_axis(call, equation, equation->output.labels[i], walk);
    }
    for (int label = 0; label < N_LABELS; label++)
        if (equation->n_uses[label] > 0 && !is_out[label]) {
            if (++n_summed + equation->output.n > ND_WALK_RANK)
                return false;
            add_axis(call, equation, label, walk);
        }
    return true;
}

static enum nd_status read_equation(const struct nd_op_call *call, struct equation *out, struct nd_error *err)
{
    char text[128];
    size_t n = 0;
    nd_op_text(call, "equation", text, sizeof text);
    for (size_t i = 0; text[i] != '\0'; i++)
        if (text[i] != ' ')
            text[n++] = text[i];
    text[n] = '\0';
    const char *arrow = strstr(text, "->");
    if (call->n_inputs > MAX_OPERANDS || n + 1 >= sizeof text)
        return nd_op_unsupported(call, err, "%zu operands of '%s'", call->n_inputs, text);
    for (size_t i = 0; i < call->n_inputs; i++)
        if (nd_op_in(call, i) == NULL)
            return nd_op_misfit(call, err, "input %zu is missing", i);
    if (!read_inputs(call, text, arrow != NULL ? arrow : text + n, out) || !fit_dims(call, out) ||
        !read_output(arrow, out))
        return nd_op_misfit(call, err, "equation '%s' does not fit to the operands", text);
    return ND_OK;
}

static enum nd_status nd_op_einsum(const struct nd_op_call *call, struct nd_error *err)
{
    struct equation equation = {0};
    struct nd_walk walk = {0};
    ND_TRY(read_equation(call, &equation, err));
    struct nd_shape shape = {.rank = equation.output.n};
    for (int axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = equation.dims[equation.output.labels[axis]];
    ND_TRY(nd_op_make(call, 0, call->inputs[0]->dtype, &shape, err));
    if (!plan(call, &equation, &walk))
        return nd_op_unsupported(call, err, "more than %d indices", ND_WALK_RANK);
    const double one = 1, *a = call->inputs[0]->x, *b = call->n_inputs > 1 ? call->inputs[1]->x : &one;
    double *y = call->outputs[0]->x;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            y[walk.at[0] + i * walk.step[0]] +=
                a[walk.at[1] + i * walk.step[1]] * b[walk.at[2] + i * walk.step[2]];
    return nd_op_wrap(call, call->outputs[0], err);
}

/* ---- the operators ---- */

const struct nd_op nd_ops_products[] = {
    {"", "Gemm", 2, nd_op_gemm},
    {"", "MatMul", 2, nd_op_matmul},
    {"", "Einsum", 1, nd_op_einsum},
    {NULL, NULL, 0, NULL},
};
