/* Other ways of computing a layer: which of them predict the device's values, and what they are called. */
#include "explain/floats/floats.h"

#include <math.h>
#include <stdio.h>

#include "arithmetic/variants/attributes.h"
#include "core/memory.h"
#include "core/statistics/series.h"

/* Chosen, as in diagnosis/look.c: the share that is predicted; of the squares what remains. */
static const double min_explained = 0.99, max_rest = 1.0 / 16;

enum nd_status nd_ways_make_room(struct nd_ways *s, struct nd_error *err)
{
    size_t n_all = s->n_samples * s->n;
    s->expected = nd_calloc(3 * n_all + s->n, sizeof *s->expected);
    ND_TRY_MEMORY(s->expected != NULL, err);
    s->captured = s->expected + n_all;
    s->bound = s->captured + n_all;
    s->scratch = s->bound + n_all;
    return ND_OK;
}

static bool is_far(const struct nd_ways *s, size_t i)
{
    return isfinite(s->expected[i]) && !(fabs(s->captured[i] - s->expected[i]) <= s->bound[i]);
}

void nd_ways_count(struct nd_ways *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n_samples; i++) {
        size_t n_far = 0;
        for (size_t k = 0; k < s->n; k++)
            n_far += is_far(s, i * s->n + k);
        s->n_far += n_far;
        s->worst = n_far > 0 && n_far >= most ? i : s->worst;
        most = n_far > most ? n_far : most;
    }
}

/* ---- one other way ---- */

/* One value may be off beside the fault. */
static bool is_hopeless(const struct nd_ways *s, const struct nd_way_score *score)
{
    return (double)(score->n_far - score->n_right) > 1 + (1 - min_explained) * (double)s->n_far ||
           (double)score->n_broken > (1 - min_explained) * (double)(s->n_samples * s->n);
}

static void count_sample(const struct nd_ways *s, size_t sample, const double *made, const double *bound,
                         struct nd_way_score *score)
{
    for (size_t k = 0; k < s->n; k++) {
        size_t i = sample * s->n + k;
        double y = s->captured[i], off = fabs(y - made[k]), before = fabs(y - s->expected[i]);
        bool is_right = isfinite(y) ? off <= bound[k] : isnan(y) ? isnan(made[k]) : y == made[k];
        if (!isfinite(s->expected[i]))
            continue;
        score->n_far += is_far(s, i);
        score->n_right += is_far(s, i) && is_right;
        score->n_broken += !is_far(s, i) && !is_right && !(off <= s->bound[i]);
        score->before += is_far(s, i) && isfinite(before) ? before * before : 0;
        score->after += is_far(s, i) && is_right && isfinite(off) ? off * off : 0;
    }
}

static bool try_sample(struct nd_ways *s, const struct nd_float_way *way, size_t sample,
                       struct nd_way_score *score)
{
    struct nd_array made = {0};
    memset(s->scratch, 0, s->n * sizeof *s->scratch);
    bool is_made = s->make(s->context, way, &made) && s->bound_made(s->context, way, &made, s->scratch);
    if (is_made)
        count_sample(s, sample, made.x, s->scratch, score);
    nd_array_deinit(&made);
    return is_made && !is_hopeless(s, score);
}

/* The sample that tells most first: most ways fail there. */
static enum nd_status find_score(struct nd_ways *s, const struct nd_float_way *way, struct nd_way_score *score,
                                 bool *holds, struct nd_error *err)
{
    *score = (struct nd_way_score){0};
    enum nd_status status = s->go_to(s->context, s->worst, err);
    *holds = status == ND_OK && try_sample(s, way, s->worst, score);
    for (size_t i = 0; i < s->n_samples && *holds && status == ND_OK; i++) {
        status = i == s->worst ? ND_OK : s->go_to(s->context, i, err);
        *holds = status == ND_OK && (i == s->worst || try_sample(s, way, i, score));
    }
    *holds = *holds && score->n_right >= s->min_far && score->after <= max_rest * score->before;
    return status;
}

void nd_tell_way(struct nd_ways *s, const struct nd_way_score *score, enum nd_fault_kind kind, double amount,
                 const char *fmt, ...)
{
    double explained = (double)score->n_right / (double)score->n_far;
    *s->out = (struct nd_float_fault){.is_found = true,
                                      .may_be_arithmetic = kind == ND_FAULT_NARROW_TYPE && !s->is_whole,
                                      .is_exact = true,
                                      .finding = {kind, SIZE_MAX, -1, amount, explained, score->n_far, "", 0}};
    ND_PRINT_ARGUMENTS(s->out->finding.text, fmt);
}

enum nd_status nd_try_way(struct nd_ways *s, const struct nd_float_way *way, const char *name,
                          struct nd_way_names *names, struct nd_error *err)
{
    struct nd_way_score score;
    bool holds = false;
    size_t length = strlen(names->text);
    bool is_new = !s->out->is_found && strstr(names->text, name) == NULL;
    enum nd_status status = is_new ? find_score(s, way, &score, &holds, err) : ND_OK;
    if (status != ND_OK || !holds)
        return status;
    if (length == 0) {
        names->score = score;
        ND_TRY(s->keep != NULL ? s->keep(s->context, way, err) : ND_OK);
    }
    snprintf(names->text + length, sizeof names->text - length, "%s%s", length > 0 ? " or " : "", name);
    return ND_OK;
}

/* ---- a number that is another one ---- */

static void turn(const struct nd_way_number *number, double p)
{
    if (number->factor != NULL)
        *number->factor = p;
    else
        *number->attribute = (float)p;
}

/* By how much the number should be more: the median over the values that it moves most, or, once that is near,
 * the least squares. NaN: it moves none. */
static double find_step(const struct nd_ways *s, const double *made, const double *moved, double h,
                        bool is_near)
{
    double most = 0, squares = 0, products = 0;
    size_t n = 0;
    for (size_t k = 0; k < s->n; k++)
        most = fmax(most, isfinite(moved[k] - made[k]) ? fabs(moved[k] - made[k]) : 0);
    for (size_t k = 0; k < s->n && most > 0; k++) {
        double slope = (moved[k] - made[k]) / h, off = s->captured[s->worst * s->n + k] - made[k];
        if (isfinite(slope) && isfinite(off)) {
            squares += slope * slope;
            products += slope * off;
        }
        if (fabs(slope * h) >= most / 8 && isfinite(off / slope))
            s->scratch[n++] = off / slope;
    }
    if (is_near && squares > 0)
        return products / squares;
    nd_series_sort(s->scratch, n);
    return n > 0 ? s->scratch[n / 2] : (double)NAN;
}

/* Newton's method, over the sample that tells most, as far as an attribute, a float32, can be told. Of positive
 * numbers in logarithms, by at most two at once: what is far from the root is no line. */
static double solve(struct nd_ways *s, const struct nd_float_way *way, const struct nd_way_number *number,
                    double from)
{
    enum { MAX_TURNS = 40, MAX_HALVES = 3, NEAR = MAX_TURNS - 4 };
    double p = number->is_positive ? log(from) : from, step = HUGE_VAL;
    for (int i = 0; i < MAX_TURNS; i++) {
        if (fabs(step) <= 1e-7 * fmax(fabs(p), 1e-7)) {
            if (!s->is_coarse || i >= NEAR)
                break;
            i = NEAR;
        }
        struct nd_array made = {0}, moved = {0};
        double h = number->is_positive ? 1e-3 : 1e-3 * fmax(fabs(p), 1);
        turn(number, number->is_positive ? exp(p) : p);
        bool is_made = s->make(s->context, way, &made);
        turn(number, number->is_positive ? exp(p + h) : p + h);
        is_made = s->make(s->context, way, &moved) && is_made;
        step = is_made ? find_step(s, made.x, moved.x, h, i >= NEAR) : (double)NAN;
        nd_array_deinit(&made);
        nd_array_deinit(&moved);
        if (isfinite(step))
            p += number->is_positive ? fmin(fmax(step, -2), 2) : step;
        else if (i < MAX_HALVES) /* a bound that no value reaches moves none */
            p = number->is_positive ? p - log(2) : p / 2;
        else
            return (double)NAN;
    }
    return number->is_positive ? exp(p) : p;
}

enum nd_status nd_try_way_number(struct nd_ways *s, const struct nd_float_way *way,
                                 const struct nd_way_number *number, double from, double unit,
                                 enum nd_fault_kind kind, const char *before, const char *after,
                                 struct nd_error *err)
{
    enum { MAX_DIGITS = 4 };
    enum nd_status status = s->out->is_found ? ND_OK : s->go_to(s->context, s->worst, err);
    double found = status == ND_OK && !s->out->is_found ? solve(s, way, number, from) : (double)NAN;
    for (int digits = 1; digits <= MAX_DIGITS + 1 && isfinite(found) && status == ND_OK; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, found * unit);
        struct nd_way_names names = {.text = ""};
        double said = digits <= MAX_DIGITS ? strtod(text, NULL) : found * unit;
        turn(number, said / unit);
        status = nd_try_way(s, way, text, &names, err);
        if (names.text[0] != '\0')
            nd_tell_way(s, &names.score, kind, said, "%s%.6g%s", before, said, after);
    }
    return status;
}

/* ---- attributes ---- */

static enum nd_status try_value(struct nd_ways *s, const struct nd_attribute_row *row,
                                const struct nd_changed_node *changed, struct nd_way_names *names,
                                struct nd_error *err)
{
    double value = (double)changed->ints[0];
    const struct nd_array axis = {
        .shape = {.rank = 1, .dims = {1}}, .n = 1, .dtype = ND_DTYPE_I64, .x = &value};
    bool is_operand = row->type == ND_ATTRIBUTE_AXES && s->n_inputs > 1;
    const struct nd_float_way way = {
        .proto = is_operand ? NULL : &changed->node, .operand = is_operand ? 1 : SIZE_MAX, .value = &axis};
    return nd_try_way(s, &way, row->values != NULL ? changed->text : "with begin and end exchanged", names,
                      err);
}

static enum nd_status try_real(struct nd_ways *s, const struct nd_attribute_row *row,
                               struct nd_changed_node *changed, const char *after, struct nd_error *err)
{
    char before[96];
    const struct nd_float_way way = {.proto = &changed->node, .operand = SIZE_MAX};
    const struct nd_way_number number = {.attribute = &changed->changed.f,
                                         .is_positive = strcmp(row->name, "epsilon") == 0};
    double from = isfinite(changed->changed.f) ? (double)changed->changed.f : 0;
    snprintf(before, sizeof before, "computed with %s ", row->name);
    return nd_try_way_number(s, &way, &number, from, 1, ND_FAULT_OTHER_ATTRIBUTE, before, after, err);
}

/* One row, in words that go to *all; `beside`: a change was made before. A number is told at once. */
static enum nd_status try_row(struct nd_ways *s, const Onnx__NodeProto *node,
                              const struct nd_attribute_row *row, bool is_beside, struct nd_way_names *all,
                              struct nd_error *err)
{
    char own[32], after[64] = "";
    struct nd_way_names names = {.text = ""};
    struct nd_changed_node changed;
    enum nd_status status = ND_OK;
    size_t length = strlen(all->text);
    if (nd_attribute_own(node, row, own)[0] != '\0')
        snprintf(after, sizeof after, ", not %s", own);
    for (size_t k = 0; k < ND_MAX_RANK && status == ND_OK; k++) {
        if (!nd_attribute_change(node, row, k, &changed))
            continue;
        if (row->type != ND_ATTRIBUTE_REAL)
            status = try_value(s, row, &changed, &names, err);
        else if (!is_beside && length == 0)
            status = try_real(s, row, &changed, after, err);
    }
    if (names.text[0] == '\0')
        return status;
    snprintf(all->text + length, sizeof all->text - length, "%s%s %.72s%.40s", length > 0 ? ", or with " : "",
             row->name, names.text, after);
    all->score = length == 0 ? names.score : all->score;
    all->may_be_arithmetic = row->type == ND_ATTRIBUTE_APPROXIMATION;
    return status;
}

static enum nd_status try_attributes(struct nd_ways *s, const Onnx__NodeProto *node, size_t first,
                                     const char *beside, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    struct nd_way_names all = {.text = ""};
    const struct nd_attribute_row *row;
    for (size_t at = first; status == ND_OK && (row = nd_attribute_row_of(node, &at)) != NULL; at++)
        if (!s->leaves_approximations || row->type != ND_ATTRIBUTE_APPROXIMATION)
            status = try_row(s, node, row, beside[0] != '\0', &all, err);
    if (all.text[0] == '\0' || s->out->is_found)
        return status;
    /* Of two changes at once others may give the same values. */
    nd_tell_way(s, &all.score, ND_FAULT_OTHER_ATTRIBUTE, 0, "computed %swith %s%s",
                beside[0] != '\0' ? "as " : "", all.text, beside);
    s->out->may_be_arithmetic = all.may_be_arithmetic;
    return status;
}

enum nd_status nd_try_attributes(struct nd_ways *s, struct nd_error *err)
{
    return try_attributes(s, s->node, 0, "", err);
}

/* Two of them, neither of which is solved for. */
enum nd_status nd_try_two_attributes(struct nd_ways *s, struct nd_error *err)
{
    const Onnx__NodeProto *node = s->node;
    const struct nd_attribute_row *row;
    for (size_t at = 0; (row = nd_attribute_row_of(node, &at)) != NULL; at++)
        for (size_t k = 0; !s->out->is_found && k < ND_MAX_RANK; k++) {
            struct nd_changed_node changed;
            char beside[80];
            if (row->type == ND_ATTRIBUTE_REAL || row->type == ND_ATTRIBUTE_AXES ||
                !nd_attribute_change(node, row, k, &changed))
                continue;
            snprintf(beside, sizeof beside, " and %s %s", row->name,
                     row->values != NULL ? changed.text : "with begin and end exchanged");
            ND_TRY(try_attributes(s, &changed.node, at + 1, beside, err));
        }
    return ND_OK;
}
