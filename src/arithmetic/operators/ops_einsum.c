/* Einsum of one or two tensors. */
#include "arithmetic/operators/ops_shared.h"

#include <ctype.h>
#include <string.h>

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

enum nd_status nd_op_einsum(const struct nd_op_call *call, struct nd_error *err)
{
    struct equation equation = {0};
    struct nd_walk walk = {0};
    enum nd_status status = read_equation(call, &equation, err);
    if (status != ND_OK)
        return status;
    struct nd_shape shape = {.rank = equation.output.n};
    for (int axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = equation.dims[equation.output.labels[axis]];
    status = nd_op_make(call, 0, call->inputs[0]->dtype, &shape, err);
    if (status != ND_OK)
        return status;
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
