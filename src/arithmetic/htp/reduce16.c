/* ReduceSum and ReduceMean: a sum of quantised values times a multiplier of 15 bits.
 * docs/science/htp-arithmetic.md#sums. */
#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"

enum { MAX_AXES = 4 };

/* Which axes are reduced; false: none, or too many. */
static bool mark_axes(const struct nd_htp_job *job, bool reduced[MAX_AXES])
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    const struct nd_array *given = nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL;
    const int64_t *axes = NULL;
    size_t n = given != NULL ? given->n : nd_op_ints(&op_call, "axes", &axes);
    memset(reduced, 0, MAX_AXES * sizeof reduced[0]);
    for (size_t i = 0; i < n; i++) {
        int64_t axis = given != NULL ? (int64_t)given->x[i] : axes[i];
        axis += axis < 0 ? shape->rank : 0;
        if (axis < 0 || axis >= shape->rank || axis >= MAX_AXES)
            return false;
        reduced[axis] = true;
    }
    return n > 0 && shape->rank <= MAX_AXES;
}

/* The same of tensors that were looked at. */
static bool find_axes(const struct nd_htp_job *job, bool reduced[MAX_AXES])
{
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    bool is_known = shape->rank >= 2 && (shape->rank == 2 || shape->dims[0] == 1) && mark_axes(job, reduced);
    return is_known && !reduced[0]; /* the first one was not looked at */
}

bool nd_htp_is_plane_mean(const struct nd_htp_job *job)
{
    bool reduced[MAX_AXES];
    if (job->call->n_inputs == 0 || job->call->inputs[0].values == NULL ||
        strcmp(job->call->node->op_type, "ReduceMean") != 0 || !find_axes(job, reduced))
        return false;
    int rank = job->call->inputs[0].values->shape.rank;
    if (rank == MAX_AXES && nd_htp_is_laid_out(job, 0))
        return !reduced[1] && reduced[2] && reduced[3];
    bool all = rank > 2 && !reduced[rank - 1];
    for (int i = 1; i < rank - 1; i++)
        all = all && reduced[i];
    return all;
}

/* Multipliers that the formulas were held against. */
static const float least = 0x1p-12F, most = 8;

/* s_x over s_y, of a mean s_x / n over s_y, a hundred thousandth smaller: each step a float32. Read out of 91
 * models whose multiplier lies next to a half (gen3, QAIRT 2.51.0). */
static bool make_factor(float scale, float scale_y, struct nd_htp_factor *out)
{
    static const float shrunk = 0.99999F;
    float value = nd_htp_quotient(scale, scale_y);
    return value >= least && value <= most && nd_htp_factor_init(out, value * shrunk);
}

/* Of the sum of quantised values less zero points. The sum and what the zero points add lose their lowest bits
 * before one is taken from the other: of multipliers below a half few, and the rest is cut one step too high.
 */
static int64_t scale(const struct nd_htp_sums *s, int64_t sum)
{
    int right = ND_HTP_FACTOR_BITS - s->factor.exponent, first = right;
    int64_t m = s->factor.m, moved = s->count * s->zero_x;
    if (s->factor.exponent < 0) {
        int log;
        frexp((double)s->count, &log); /* floor(log2(count)) + 1 */
        first = log > -s->factor.exponent ? log : -s->factor.exponent;
    }
    int64_t rest = nd_htp_shift((sum + moved) * m, first) - ((moved * m) >> first);
    return (rest >> (right - first)) + (first < right) + s->zero_y;
}

bool nd_htp_is_byte_mean(const struct nd_htp_job *job, size_t count, bool *is_apart)
{
    enum { BATCH, HEIGHT, WIDTH, DEPTH, MAX_TOGETHER = 4 };
    static const int as_they_are[] = {BATCH, HEIGHT, WIDTH, DEPTH}, laid_out[] = {BATCH, DEPTH, HEIGHT, WIDTH};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    bool reduced[MAX_AXES], kept[MAX_AXES] = {false}, gone[MAX_AXES] = {false};
    if (!mark_axes(job, reduced) || (shape->rank == MAX_AXES && shape->dims[0] != 1))
        return false;
    bool is_laid_out = shape->rank == MAX_AXES && nd_htp_is_laid_out(job, 0);
    for (int i = 0; i < shape->rank; i++) {
        int axis = (is_laid_out ? laid_out : as_they_are)[MAX_AXES - shape->rank + i];
        kept[axis] = shape->dims[i] > 1 && !reduced[i];
        gone[axis] = shape->dims[i] > 1 && reduced[i];
    }
    bool is_plane = !gone[DEPTH] && !kept[HEIGHT] && !kept[WIDTH];
    bool is_short = !gone[HEIGHT] && !gone[WIDTH] && count <= MAX_TOGETHER;
    *is_apart = !is_plane && !is_short;
    return true;
}

bool nd_htp_is_byte_sum(const struct nd_htp_job *job)
{
    bool reduced[MAX_AXES];
    return job->layer->dtype == ND_DTYPE_U8 && find_axes(job, reduced);
}

bool nd_htp_sums_init(struct nd_htp_sums *s, const struct nd_htp_job *job, size_t count, double multiplier)
{
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    if (!(multiplier >= least && multiplier <= most))
        return false;
    *s = (struct nd_htp_sums){.count = (int64_t)count, .zero_x = x->zero_point[0], .zero_y = y->zero_point[0]};
    double mantissa = frexp(multiplier, &s->factor.exponent);
    s->factor.m = (int64_t)floor(mantissa * INT16_MAX + 0.5);
    return true;
}

int64_t nd_htp_scale_bytes(const struct nd_htp_sums *s, int64_t sum)
{
    int right = ND_HTP_FACTOR_BITS - s->factor.exponent;
    int64_t m = s->factor.m, moved = s->factor.exponent >= 0 ? s->count * s->zero_x : 0;
    return nd_htp_shift((sum + moved) * m, right) - ((moved * m) >> right) + s->zero_y;
}

static enum nd_status scale_all(const struct nd_htp_job *job, const struct nd_array *values, double factor,
                                struct nd_htp_sums *s, struct nd_error *err)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &values->shape, err);
    for (size_t i = 0; status == ND_OK && i < values->n; i++) {
        double qvalue = (double)scale(s, llrint(values->x[i] * factor));
        job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_htp_reduce16(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MAX_COUNT = 2048 }; /* that was looked at */
    struct nd_array x = {0}, reduced = {0};
    bool axes[MAX_AXES];
    double largest;
    if (job->call->n_inputs > 2 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        job->call->inputs[0].values->n == 0 || nd_htp_is_plane_mean(job) || !find_axes(job, axes))
        return ND_OK;
    const struct nd_array *inputs[] = {&x, nd_linear_has(job->call, 1) ? job->call->inputs[1].values : NULL};
    enum nd_status status = nd_linear_packed_weights(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &reduced, err);
    if (status == ND_OK && reduced.n > 0) {
        bool is_mean = strcmp(job->call->node->op_type, "ReduceMean") == 0;
        const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
        struct nd_htp_sums s = {
            .count = (int64_t)(x.n / reduced.n), .zero_x = from->zero_point[0], .zero_y = to->zero_point[0]};
        float count = is_mean ? (float)s.count : 1;
        if (s.count <= MAX_COUNT && make_factor(from->scale[0] / count, to->scale[0], &s.factor))
            /* The mean of whole numbers is within some ulp: times their count it rounds to their sum. */
            status = scale_all(job, &reduced, (double)count, &s, err);
    }
    nd_array_deinit(&x);
    nd_array_deinit(&reduced);
    return status;
}
