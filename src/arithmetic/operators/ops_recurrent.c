/* RNN, GRU and LSTM: a state that each step of a sequence changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"

enum { MAX_GATES = 4, MAX_FUNCTIONS = 3, MAX_DIRECTIONS = 2, MAX_PEEPHOLES = 3 };
enum { X = 0, W = 1, R = 2, B = 3, LENGTHS = 4, H0 = 5, C0 = 6, P = 7 }; /* inputs */

typedef double function(double x);

struct recurrent {
    const struct nd_op_call *call;
    size_t n_gates, n_functions, n_steps, n_batch, n_in, n_hidden, n_directions;
    function *functions[MAX_DIRECTIONS][MAX_FUNCTIONS];
    double clip;
    bool is_batch_first, is_linear_before_reset, has_input_forget;
    double *sums;  /* [2][n_gates][n_hidden] of one step: what the input gives, what the state gives */
    double *h, *c; /* [n_hidden] the state */
};

/* ---- functions ---- */

static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static double softsign(double x)
{
    return x / (1 + fabs(x));
}

static double softplus(double x)
{
    return relu(x) + log1p(exp(-fabs(x)));
}

/* Those that take parameters are not covered. */
static function *find_function(const char *name, size_t n)
{
    static const struct {
        const char *name;
        function *function;
    } known[] = {
        {"Sigmoid", sigmoid}, {"Tanh", tanh}, {"Relu", relu}, {"Softsign", softsign}, {"Softplus", softplus}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].name) == n && strncmp(known[i].name, name, n) == 0)
            return known[i].function;
    return NULL;
}

static enum nd_status read_functions(struct recurrent *m, struct nd_error *err)
{
    const Onnx__AttributeProto *names = nd_onnx_attribute(m->call->node, "activations");
    size_t n_wanted = m->n_functions * m->n_directions;
    for (size_t d = 0; d < m->n_directions; d++)
        for (size_t k = 0; k < m->n_functions; k++)
            m->functions[d][k] = m->n_functions > 1 && k == 0 ? sigmoid : tanh;
    if (nd_onnx_attribute(m->call->node, "activation_alpha") != NULL ||
        nd_onnx_attribute(m->call->node, "activation_beta") != NULL)
        return nd_op_unsupported(m->call, err, "activations with parameters");
    if (names == NULL || names->n_strings == 0)
        return ND_OK;
    if (names->n_strings != n_wanted)
        return nd_op_misfit(m->call, err, "%zu activations in place of %zu", names->n_strings, n_wanted);
    for (size_t i = 0; i < n_wanted; i++) {
        const char *text = (const char *)names->strings[i].data;
        size_t n = names->strings[i].len;
        function *found = find_function(text, n);
        if (found == NULL)
            return nd_op_unsupported(m->call, err, "activation '%.*s'", (int)(n < 64 ? n : 64), text);
        m->functions[i / m->n_functions][i % m->n_functions] = found;
    }
    return ND_OK;
}

/* ---- shapes ---- */

static bool has_shape(const struct nd_array *array, int rank, const size_t *dims)
{
    if (array == NULL)
        return true;
    for (int i = 0; i < rank && array->shape.rank == rank; i++)
        if (array->shape.dims[i] != (int64_t)dims[i])
            return false;
    return array->shape.rank == rank;
}

static enum nd_status read_shapes(struct recurrent *m, struct nd_error *err)
{
    const struct nd_op_call *call = m->call;
    const struct nd_shape *x = &call->inputs[X]->shape, *r = &call->inputs[R]->shape;
    char direction[16];
    nd_op_text(call, "direction", direction, sizeof direction);
    m->n_directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    m->is_batch_first = nd_op_i(call, "layout", 0) != 0;
    if (x->rank != 3 || r->rank != 3)
        return nd_op_misfit(call, err, "an input or weights without 3 dimensions");
    m->n_steps = (size_t)x->dims[m->is_batch_first ? 1 : 0];
    m->n_batch = (size_t)x->dims[m->is_batch_first ? 0 : 1];
    m->n_in = (size_t)x->dims[2];
    m->n_hidden = (size_t)r->dims[2];
    size_t d = m->n_directions, n = m->n_hidden, rows = m->n_gates * n;
    const size_t state[2][3] = {{d, m->n_batch, n}, {m->n_batch, d, n}};
    if (!has_shape(call->inputs[W], 3, (size_t[]){d, rows, m->n_in}) ||
        !has_shape(call->inputs[R], 3, (size_t[]){d, rows, n}) ||
        !has_shape(nd_op_in(call, B), 2, (size_t[]){d, 2 * rows}) ||
        !has_shape(nd_op_in(call, LENGTHS), 1, &m->n_batch) ||
        !has_shape(nd_op_in(call, H0), 3, state[m->is_batch_first]) ||
        !has_shape(nd_op_in(call, C0), 3, state[m->is_batch_first]) ||
        !has_shape(nd_op_in(call, P), 2, (size_t[]){d, MAX_PEEPHOLES * n}))
        return nd_op_misfit(call, err, "weights or states that do not fit to the input");
    return ND_OK;
}

static enum nd_status make_outputs(const struct recurrent *m, struct nd_error *err)
{
    const struct nd_op_call *call = m->call;
    enum nd_dtype dtype = call->inputs[X]->dtype;
    int64_t s = (int64_t)m->n_steps, b = (int64_t)m->n_batch, d = (int64_t)m->n_directions,
            n = (int64_t)m->n_hidden;
    struct nd_shape all = {.rank = 4, .dims = {s, d, b, n}}, last = {.rank = 3, .dims = {d, b, n}};
    if (m->is_batch_first) {
        all = (struct nd_shape){.rank = 4, .dims = {b, s, d, n}};
        last = (struct nd_shape){.rank = 3, .dims = {b, d, n}};
    }
    for (size_t i = 0; i < call->n_outputs; i++)
        if (call->outputs[i] != NULL)
            ND_TRY(nd_op_make(call, i, dtype, i == 0 ? &all : &last, err));
    return ND_OK;
}

/* ---- a step ---- */

static double clipped(const struct recurrent *m, double x)
{
    return m->clip > 0 ? fmin(fmax(x, -m->clip), m->clip) : x;
}

/* What the input and the state give each gate, each with its own bias. */
static void add_up(const struct recurrent *m, size_t d, const double *x)
{
    const struct nd_array *bias = nd_op_in(m->call, B);
    size_t rows = m->n_gates * m->n_hidden;
    for (size_t k = 0; k < rows; k++) {
        const double *w = m->call->inputs[W]->x + (d * rows + k) * m->n_in;
        const double *r = m->call->inputs[R]->x + (d * rows + k) * m->n_hidden;
        double of_input = 0, of_state = 0;
        for (size_t i = 0; i < m->n_in; i++)
            of_input += w[i] * x[i];
        for (size_t i = 0; i < m->n_hidden; i++)
            of_state += r[i] * m->h[i];
        m->sums[k] = of_input + (bias != NULL ? bias->x[d * 2 * rows + k] : 0);
        m->sums[rows + k] = of_state + (bias != NULL ? bias->x[(d * 2 + 1) * rows + k] : 0);
    }
}

static double sum_of(const struct recurrent *m, size_t gate, size_t i)
{
    size_t k = gate * m->n_hidden + i;
    return m->sums[k] + m->sums[m->n_gates * m->n_hidden + k];
}

static void step_rnn(const struct recurrent *m, size_t d)
{
    for (size_t i = 0; i < m->n_hidden; i++)
        m->h[i] = m->functions[d][0](clipped(m, sum_of(m, 0, i)));
}

/* Gates: update, reset, hidden. Without linear_before_reset the reset comes before the product with the state.
 */
static void step_gru(const struct recurrent *m, size_t d)
{
    size_t n = m->n_hidden, rows = m->n_gates * n;
    const struct nd_array *bias = nd_op_in(m->call, B);
    double *reset = m->c; /* no second state here */
    for (size_t i = 0; i < n; i++)
        reset[i] = m->functions[d][0](clipped(m, sum_of(m, 1, i)));
    for (size_t i = 0; i < n; i++) {
        double *of_state = &m->sums[rows + 2 * n + i];
        if (m->is_linear_before_reset) {
            *of_state *= reset[i];
            continue;
        }
        const double *r = m->call->inputs[R]->x + (d * rows + 2 * n + i) * n;
        *of_state = 0;
        for (size_t k = 0; k < n; k++)
            *of_state += r[k] * reset[k] * m->h[k];
        *of_state += bias != NULL ? bias->x[(d * 2 + 1) * rows + 2 * n + i] : 0;
    }
    for (size_t i = 0; i < n; i++) {
        double update = m->functions[d][0](clipped(m, sum_of(m, 0, i)));
        double hidden = m->functions[d][1](clipped(m, sum_of(m, 2, i)));
        m->h[i] = (1 - update) * hidden + update * m->h[i];
    }
}

/* Gates: input, output, forget, cell. Peepholes: input, output, forget. */
static void step_lstm(const struct recurrent *m, size_t d)
{
    const struct nd_array *peepholes = nd_op_in(m->call, P);
    size_t n = m->n_hidden;
    for (size_t i = 0; i < n; i++) {
        double p[MAX_PEEPHOLES] = {0}, before = m->c[i];
        for (size_t k = 0; k < MAX_PEEPHOLES && peepholes != NULL; k++)
            p[k] = peepholes->x[d * MAX_PEEPHOLES * n + k * n + i];
        double in = m->functions[d][0](clipped(m, sum_of(m, 0, i) + p[0] * before));
        double forget =
            m->has_input_forget ? 1 - in : m->functions[d][0](clipped(m, sum_of(m, 2, i) + p[2] * before));
        double cell = m->functions[d][1](clipped(m, sum_of(m, 3, i)));
        m->c[i] = forget * before + in * cell;
        double out = m->functions[d][0](clipped(m, sum_of(m, 1, i) + p[1] * m->c[i]));
        m->h[i] = out * m->functions[d][2](m->c[i]);
    }
}

/* ---- a sequence ---- */

static size_t place_of_state(const struct recurrent *m, size_t d, size_t b)
{
    return (m->is_batch_first ? b * m->n_directions + d : d * m->n_batch + b) * m->n_hidden;
}

static void begin_state(const struct recurrent *m, size_t d, size_t b)
{
    const struct nd_array *first[] = {nd_op_in(m->call, H0), nd_op_in(m->call, C0)};
    double *state[] = {m->h, m->c};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < m->n_hidden; i++)
            state[k][i] = first[k] != NULL ? first[k]->x[place_of_state(m, d, b) + i] : 0;
}

/* Steps behind the end of a short sequence stay 0. */
static void run_sequence(const struct recurrent *m, size_t d, size_t b, size_t n_steps, bool is_backward)
{
    const struct nd_op_call *call = m->call;
    begin_state(m, d, b);
    for (size_t s = 0; s < n_steps; s++) {
        size_t t = is_backward ? n_steps - 1 - s : s;
        size_t row = m->is_batch_first ? b * m->n_steps + t : t * m->n_batch + b;
        add_up(m, d, call->inputs[X]->x + row * m->n_in);
        if (m->n_gates == 4)
            step_lstm(m, d);
        else if (m->n_gates == 3)
            step_gru(m, d);
        else
            step_rnn(m, d);
        size_t at = m->is_batch_first ? row * m->n_directions + d : (t * m->n_directions + d) * m->n_batch + b;
        if (call->outputs[0] != NULL)
            memcpy(call->outputs[0]->x + at * m->n_hidden, m->h, m->n_hidden * sizeof *m->h);
    }
    for (size_t k = 1; k < 3; k++)
        if (nd_op_out(call, k) != NULL)
            memcpy(call->outputs[k]->x + place_of_state(m, d, b), k == 1 ? m->h : m->c,
                   m->n_hidden * sizeof *m->h);
}

static enum nd_status run_all(struct recurrent *m, struct nd_error *err)
{
    const struct nd_array *lengths = nd_op_in(m->call, LENGTHS);
    char direction[16];
    nd_op_text(m->call, "direction", direction, sizeof direction);
    bool is_reverse = strcmp(direction, "reverse") == 0;
    if (m->n_hidden == 0)
        return ND_OK;
    m->sums = nd_calloc(2 * m->n_gates * m->n_hidden, sizeof *m->sums);
    m->h = nd_calloc(m->n_hidden, sizeof *m->h);
    m->c = nd_calloc(m->n_hidden, sizeof *m->c);
    enum nd_status status = m->sums != NULL && m->h != NULL && m->c != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t b = 0; b < m->n_batch && status == ND_OK; b++) {
        int64_t n = lengths != NULL ? nd_op_whole(lengths, b) : (int64_t)m->n_steps;
        if (n < 0 || n > (int64_t)m->n_steps)
            status = nd_op_misfit(m->call, err, "a sequence of %lld steps", (long long)n);
        for (size_t d = 0; d < m->n_directions && status == ND_OK; d++)
            run_sequence(m, d, b, (size_t)n, is_reverse || d == 1);
    }
    free(m->sums);
    free(m->h);
    free(m->c);
    return status;
}

static enum nd_status nd_op_recurrent(const struct nd_op_call *call, struct nd_error *err)
{
    struct recurrent m = {.call = call,
                          .n_gates = nd_op_is(call, "LSTM")  ? 4
                                     : nd_op_is(call, "GRU") ? 3
                                                             : 1,
                          .clip = nd_op_f(call, "clip", 0),
                          .is_linear_before_reset = nd_op_i(call, "linear_before_reset", 0) != 0,
                          .has_input_forget = nd_op_i(call, "input_forget", 0) != 0};
    m.n_functions = m.n_gates == 4 ? 3 : m.n_gates == 3 ? 2 : 1;
    ND_TRY(read_shapes(&m, err));
    ND_TRY(read_functions(&m, err));
    ND_TRY(make_outputs(&m, err));
    return run_all(&m, err);
}

/* ---- the operators ---- */

const struct nd_op nd_ops_recurrent[] = {
    {"", "GRU", 3, nd_op_recurrent},
    {"", "LSTM", 3, nd_op_recurrent},
    {"", "RNN", 3, nd_op_recurrent},
    {NULL, NULL, 0, NULL},
};
