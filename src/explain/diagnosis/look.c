/* What is counted of evidence once, and the questions that every recogniser asks of an element. */
#include "explain/diagnosis/look.h"

#include <limits.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"
#include "core/statistics/series.h"
#include "core/text/strbuf.h"

/* Chosen: far off is an eighth of the reference's spread and four steps. Healthy devices, with 8 bits through
 * some sixty layers, stay below in nearly every element. */
static const double far_of_spread = 1.0 / 8, far_steps = 4;

static const struct nd_criteria criteria[ND_N_MEASURES] = {
    [ND_MEASURE_EXACT] = {.min_explained = 0.99,
                          .min_far = 3,
                          .min_window = 3,
                          .largest_window = 1,
                          .min_filled = 0,
                          .is_room_for_steps = true},
    [ND_MEASURE_WHOLE] = {.min_explained = 1.0 / 3,
                          .min_far = ND_MIN_DECISIVE,
                          .min_window = ND_MIN_DECISIVE,
                          .largest_window = 0.5,
                          .min_filled = 0.25,
                          .is_room_for_steps = false},
};

static bool is_within(const struct nd_look *look, double qvalue)
{
    return qvalue > look->lowest && qvalue < look->highest;
}

bool nd_is_inside(const struct nd_look *look, size_t i)
{
    return nd_is_known(look, i) && is_within(look, look->e->captured[i]) &&
           is_within(look, look->e->expected[i]);
}

bool nd_has_far_qvalues(const struct nd_look *look)
{
    enum {
        MIN_FAR = 16
    }; /* elements; chosen, as are two steps and a quarter: chance is then out of the question */
    size_t n_far = 0;
    for (size_t i = 0; i < look->n_total; i++)
        n_far += nd_is_known(look, i) && fabs(look->e->captured[i] - look->e->expected[i]) > 2;
    return n_far >= MIN_FAR && n_far * 4 >= look->n_wrong;
}

double nd_zero_point(const struct nd_look *look, size_t j)
{
    const struct nd_quant *quant = look->e->quant;
    if (quant == NULL || quant->n == 0)
        return 0;
    if (quant->n == 1)
        return (double)quant->zero_point[0];
    size_t inner = 1;
    for (int k = quant->axis + 1; k < look->e->shape.rank; k++)
        inner *= (size_t)look->e->shape.dims[k];
    return (double)quant->zero_point[j / inner % quant->n];
}

bool nd_is_zero(const struct nd_look *look, double x)
{
    return x == 0 || x == nd_zero_point(look, 0);
}

double nd_clip(const struct nd_look *look, double qvalue)
{
    return nd_is_exact(look) ? fmin(fmax(qvalue, look->lowest), look->highest) : qvalue;
}

static int mantissa_bits(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return 10;
    case ND_DTYPE_BF16:
        return 7;
    case ND_DTYPE_F64:
        return 52;
    case ND_DTYPE_F8E4M3FN:
        return 3;
    case ND_DTYPE_F8E5M2:
        return 2;
    default:
        return 23;
    }
}

double nd_unit_at(double x, int bits, int min_exponent)
{
    int exponent = 0;
    frexp(x, &exponent);
    exponent = exponent - 1 > min_exponent ? exponent - 1 : min_exponent;
    return ldexp(1, exponent - bits);
}

double nd_spacing(enum nd_dtype dtype, double step, double x)
{
    if (step > 0 || !nd_dtype_is_float(dtype))
        return step > 0 ? step : 1;
    return x == 0 ? 0 : nd_unit_at(x, mantissa_bits(dtype), INT_MIN / 2);
}

double nd_share_of_far(const struct nd_look *look, size_t n_far)
{
    return look->n_far > 0 ? (double)n_far / (double)look->n_far : 0;
}

size_t nd_channel_of(const struct nd_axis *axis, size_t j)
{
    return j / axis->inner % axis->n;
}

struct nd_axis nd_axis_at(const struct nd_shape *shape, int axis)
{
    struct nd_axis at = {axis, (size_t)shape->dims[axis], 1};
    for (int k = axis + 1; k < shape->rank; k++)
        at.inner *= (size_t)shape->dims[k];
    return at;
}

size_t nd_channel_axes(const struct nd_look *look, struct nd_axis out[ND_CHANNEL_AXES])
{
    const struct nd_shape *shape = &look->e->shape;
    const struct nd_quant *quant = look->e->quant;
    int axes[ND_CHANNEL_AXES] = {quant != NULL && quant->n > 1 ? quant->axis : -1, 1, shape->rank - 1};
    size_t n = 0;
    for (int a = 0; a < ND_CHANNEL_AXES; a++) {
        bool is_new = axes[a] >= 0 && axes[a] < shape->rank && shape->dims[axes[a]] > 1;
        for (size_t k = 0; k < n; k++)
            is_new = is_new && out[k].axis != axes[a];
        if (is_new)
            out[n++] = nd_axis_at(shape, axes[a]);
    }
    return n;
}

double nd_look_quantile(double *x, size_t n, double part)
{
    if (n == 0)
        return NAN;
    nd_series_sort(x, n);
    return x[(size_t)(part * (double)(n - 1))];
}

double nd_look_spread(const double *x, const double *y, size_t n)
{
    double sum = 0, squares = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++) {
        double z = y != NULL ? x[i] - y[i] : x[i];
        n_known += isfinite(z) ? 1 : 0;
        sum += isfinite(z) ? z : 0;
    }
    double mean = n_known > 0 ? sum / (double)n_known : 0;
    for (size_t i = 0; i < n; i++) {
        double z = (y != NULL ? x[i] - y[i] : x[i]) - mean;
        squares += isfinite(z) ? z * z : 0;
    }
    return n_known > 0 ? sqrt(squares / (double)n_known) : 0;
}

struct nd_fault nd_fault_of(enum nd_fault_kind kind, double amount, nd_predict predict)
{
    return (struct nd_fault){
        .kind = kind, .channel = SIZE_MAX, .axis = -1, .amount = amount, .predict = predict};
}

static void count(struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    look->low = HUGE_VAL;
    look->high = -HUGE_VAL;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i))
            continue;
        bool is_finite = isfinite(e->captured[i]);
        look->n_known++;
        look->n_wrong += nd_is_wrong(look, i);
        look->n_far += nd_is_far(look, i);
        look->n_lost += !is_finite;
        if (is_finite) {
            look->low = fmin(look->low, e->captured[i]);
            look->high = fmax(look->high, e->captured[i]);
        }
    }
}

enum nd_status nd_look_open(const struct nd_evidence *e, double noise, struct nd_findings *out,
                            struct nd_look *look, struct nd_error *err)
{
    enum nd_measure measure = e->exact != NULL ? ND_MEASURE_EXACT : ND_MEASURE_WHOLE;
    *look = (struct nd_look){.e = e,
                             .measure = measure,
                             .criteria = &criteria[measure],
                             .n_total = e->n_samples * e->n,
                             .noise = noise,
                             .out = out};
    look->spread = nd_look_spread(e->expected, NULL, look->n_total);
    double step = fmax(nd_spacing(e->dtype, e->step, look->spread), e->ref_step);
    look->far = e->bound != NULL ? 0 : fmax(far_of_spread * look->spread, far_steps * step);
    for (size_t i = 0; e->bound != NULL && i < look->n_total; i++)
        look->far = fmax(look->far, isfinite(e->bound[i]) ? e->bound[i] : 0);
    if (nd_is_exact(look)) {
        nd_qvalue_range(e->dtype, &look->lowest, &look->highest);
        nd_measure_arithmetic(look);
    }
    count(look);
    size_t n_arrays =
        nd_is_exact(look) ? 4 : 2; /* scale.c lists two intervals of two numbers for each quantised value */
    if (look->n_wrong == 0)
        return ND_OK;
    look->scratch = nd_calloc(n_arrays * look->n_total, sizeof *look->scratch);
    ND_TRY_MEMORY(look->scratch != NULL, err);
    look->scratch2 = look->scratch + look->n_total;
    return ND_OK;
}

void nd_look_close(struct nd_look *look)
{
    free(look->scratch);
    look->scratch = look->scratch2 = NULL;
}

/* How well a fault predicts what was captured, by the measure of the evidence. */

/* An arithmetic that rounds twice, or through a multiplier of few bits, misses the nearest quantised value only
 * where the value is this close to a tie (with 8 bits 1/512). Quantised values within it prove nothing about
 * the value. */
static const double slack = 1.0 / 256;
/* Chosen: a value that a fault predicts lies within a quarter of the distance between its prediction and the
 * reference; then chance gives less than one in four. */
static const double near_of_distance = 1.0 / 4;
/* Chosen: the share that a fault must explain of the far elements for which it predicts something. */
static const double min_explained = 0.95;
/* Chosen: a fault is given up early when it misses so many elements, and more than it gets right (exact), or a
 * quarter (whole). */
enum { HOPELESS_MISSES = 32 };

/* Chosen: what cannot be predicted must stay an exception: of the wrong (far) elements a fault says something
 * of a quarter. */
enum { PREDICTED_PART = 4 };

struct nd_span nd_exactly(double x)
{
    return (struct nd_span){!isnan(x), x, x};
}

struct nd_span nd_qvalues_of(const struct nd_look *look, double value)
{
    double low = ceil(value - look->below - slack), high = floor(value + look->above + slack);
    return (struct nd_span){true, nd_clip(look, low), nd_clip(look, high)};
}

/* The usual arithmetic may be any: how far its quantised values lie from their values shows which kind it is.
 * Never taken for narrower than rounding, which a few elements would suggest. */
void nd_measure_arithmetic(struct nd_look *look)
{
    static const double more_than_half = 0.6; /* steps; chosen: between a half and one */
    const struct nd_evidence *e = look->e;
    double least = 0, most = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i) || !(e->expected[i] > look->lowest && e->expected[i] < look->highest))
            continue;
        least = fmin(least, e->expected[i] - e->exact[i]);
        most = fmax(most, e->expected[i] - e->exact[i]);
    }
    bool is_floor = least < -more_than_half && most<slack, is_ceil = most> more_than_half && least > -slack;
    look->below = is_ceil ? 0 : fmax(is_floor ? 1 : 0.5, -least);
    look->above = is_floor ? 0 : fmax(is_ceil ? 1 : 0.5, most);
}

/* ---- exact ---- */

struct exact_score {
    size_t n_right, n_missed; /* of the wrong quantised values of which something is predicted */
    size_t n_broken;          /* right quantised values that the fault would have changed */
};

/* Most faults that are tried are hopeless: soon seen. */
static bool is_hopeless(const struct nd_look *look, const struct exact_score *score)
{
    size_t n_failed = score->n_missed + score->n_broken;
    return n_failed * 100 > 2 * look->n_wrong || (n_failed > HOPELESS_MISSES && n_failed > score->n_right);
}

/* False: the fault is hopeless. */
static bool count_exact(const struct nd_look *look, struct nd_span span, size_t i, struct exact_score *score)
{
    bool is_fit = nd_span_holds(look, span, look->e->captured[i]);
    /* The fault leaves it alone, and the arithmetic may not be quite the usual one. */
    if (!is_fit && nd_span_holds(look, span, look->e->expected[i]) && !nd_is_far(look, i))
        return true;
    if (!nd_is_wrong(look, i))
        score->n_broken += !is_fit;
    else if (is_fit)
        score->n_right++;
    else
        score->n_missed++;
    return is_fit || !is_hopeless(look, score);
}

static bool holds_exactly(const struct nd_look *look, const struct exact_score *score, double *explained)
{
    size_t n = score->n_right + score->n_missed;
    if (n == 0 || n * PREDICTED_PART < look->n_wrong)
        return false;
    *explained = (double)score->n_right / (double)n;
    return score->n_missed * 100 <= n && score->n_broken * 100 <= n;
}

/* ---- whole ---- */

struct whole_score {
    size_t n_decisive, n_right;
    size_t n_beside, n_broken; /* n_broken: of n_beside, elements that the fault leaves alone */
    size_t n_far, n_explained;
    double sum, squares, rest; /* of the test in decisive elements, and of what the fault leaves */
    /* Of the reference and of what is predicted in decisive elements: alike ones are no independent evidence.
     */
    double low, high, least, most;
};

/* As many misses as holds_whole() refuses, whatever the elements hold that are not counted yet. */
static bool is_refused(const struct nd_look *look, const struct whole_score *score)
{
    size_t n_unexplained = score->n_far - score->n_explained;
    return (double)n_unexplained > (1 - min_explained) * (double)look->n_far ||
           score->n_broken * 100 > look->n_total;
}

/* False: the fault is hopeless. */
static bool count_whole(const struct nd_look *look, double predicted, size_t i, struct whole_score *score)
{
    double expected = look->e->expected[i], captured = look->e->captured[i];
    double apart = fabs(predicted - expected), off = fabs(captured - predicted);
    double far = nd_far_at(look, i);
    bool is_far = nd_is_far(look, i), is_right = off <= near_of_distance * apart;
    if (!isfinite(predicted))
        return true;
    score->n_far += is_far;
    score->n_explained += is_far && (is_right || off <= far / 2);
    if (is_refused(look, score))
        return false;
    if (!(apart > far)) {
        score->n_beside++;
        score->n_broken += off <= far ? 0 : 1;
        return true;
    }
    score->n_decisive++;
    score->n_right += is_right;
    if (isfinite(captured)) {
        score->sum += captured;
        score->squares += captured * captured;
        score->rest += is_right ? off * off : 0;
    }
    score->low = fmin(score->low, expected);
    score->high = fmax(score->high, expected);
    score->least = fmin(score->least, predicted);
    score->most = fmax(score->most, predicted);
    size_t n_missed = score->n_decisive - score->n_right;
    return n_missed <= HOPELESS_MISSES || n_missed * 4 <= score->n_decisive;
}

static bool holds_whole(const struct nd_look *look, const struct whole_score *score, double *explained,
                        double *chance)
{
    /* What is squeezed together far away is near every prediction that lies there: the fault must also say how
     * the test moves, but for a quarter of its variance and a step. */
    double n = (double)score->n_decisive, step = nd_spacing(look->e->dtype, look->e->step, look->high);
    double variance = n > 0 ? score->squares / n - (score->sum / n) * (score->sum / n) : 0;
    bool is_followed = score->rest <= n * (variance / 4 + step * step + 1e-12 * score->squares / fmax(n, 1));
    *explained = score->n_far > 0 ? (double)score->n_explained / (double)score->n_far : 0;
    *chance = n * log10(near_of_distance);
    if (score->n_far * PREDICTED_PART < look->n_far)
        return false;
    return score->n_decisive >= ND_MIN_DECISIVE && score->n_right * 100 >= score->n_decisive * 99 &&
           score->n_broken * 100 <= score->n_beside && *explained >= min_explained && is_followed &&
           fmax(score->high - score->low, score->most - score->least) > look->far / 2;
}

/* ---- both ---- */

static bool judge(const struct nd_look *look, const struct nd_fault *f, double *explained, double *chance)
{
    struct exact_score exact = {0};
    struct whole_score whole = {.low = HUGE_VAL, .high = -HUGE_VAL, .least = HUGE_VAL, .most = -HUGE_VAL};
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i))
            continue;
        struct nd_span span = f->predict(look, f, i / look->e->n, i % look->e->n);
        bool is_hopeful = !span.is_known || (nd_is_exact(look) ? count_exact(look, span, i, &exact)
                                                               : count_whole(look, span.low, i, &whole));
        if (!is_hopeful)
            return false;
    }
    *chance = 0;
    return nd_is_exact(look) ? holds_exactly(look, &exact, explained)
                             : holds_whole(look, &whole, explained, chance);
}

const char *nd_say_chance(double chance, char text[ND_CHANCE_BYTES])
{
    static const double min_said = -30; /* smaller powers of ten mean nothing to a reader */
    snprintf(text, ND_CHANCE_BYTES, "chance %s 10^%.0f", chance < min_said ? "below" : "about",
             fmax(chance, min_said));
    return text;
}

struct nd_few nd_few_far(const struct nd_look *look)
{
    struct nd_few few = {0};
    size_t seen = 0, stride = look->n_far / ND_FEW + 1;
    for (size_t i = 0; i < look->n_total && few.n < ND_FEW; i++)
        if (nd_is_far(look, i) && seen++ % stride == 0)
            few.at[few.n++] = i;
    return few;
}

bool nd_is_worth_trying(const struct nd_look *look, const struct nd_fault *f, const struct nd_few *few)
{
    size_t n = 0, n_nearer = 0;
    for (size_t k = 0; k < few->n; k++) {
        size_t i = few->at[k];
        struct nd_span span = f->predict(look, f, i / look->e->n, i % look->e->n);
        double x = look->e->captured[i], off = fmax(fmax(span.low - x, x - span.high), 0);
        n += span.is_known;
        n_nearer += span.is_known && off < fabs(x - look->e->expected[i]);
    }
    return n_nearer * 4 >= n * 3;
}

struct nd_finding nd_finding_of(const struct nd_look *look, enum nd_fault_kind kind, double amount,
                                double explained, double chance)
{
    return (struct nd_finding){kind, SIZE_MAX, -1, amount, explained, look->n_wrong, "", chance};
}

bool nd_is_found(const struct nd_look *look)
{
    return look->out->n > 0;
}

static void add(const struct nd_look *look, const struct nd_finding *finding)
{
    if (look->out->n < ND_MAX_FINDINGS)
        look->out->items[look->out->n++] = *finding;
}

void nd_add(const struct nd_look *look, const struct nd_finding *finding, const char *fmt, ...)
{
    struct nd_finding told = *finding;
    ND_PRINT_ARGUMENTS(told.text, fmt);
    add(look, &told);
}

bool nd_try(const struct nd_look *look, const struct nd_fault *f, const char *fmt, ...)
{
    double explained = 0, chance = 0;
    if (!judge(look, f, &explained, &chance))
        return false;
    struct nd_finding finding = nd_finding_of(look, f->kind, f->amount, explained, chance);
    finding.channel = f->channel;
    finding.axis = f->axis;
    ND_PRINT_ARGUMENTS(finding.text, fmt);
    add(look, &finding);
    return true;
}

void nd_diagnosis_add(struct nd_diagnosis *out, const struct nd_finding *finding)
{
    if (!out->is_found)
        out->best = *finding;
    else if (out->n_rivals < ND_MAX_RIVALS)
        out->rivals[out->n_rivals++] = *finding;
    out->is_found = true;
}
