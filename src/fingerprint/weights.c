/* Asking a device about weights that do not fit 8 bits with a sign. */
#include "fingerprint/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/fresh.h"

enum { GREATEST_CODE = 255, ZERO_X = 128 };

bool nd_weight_fingerprint_is_confirmed(const struct nd_weight_fingerprint *f)
{
    return !f->has_failed && f->has_rest && f->found.n_programs > 0 &&
           nd_fresh_is_enough(f->n_fresh, f->n_right);
}

void nd_weight_fingerprint_deinit(struct nd_weight_fingerprint *f)
{
    nd_trial_deinit(&f->failure);
    free(f->found.programs);
    f->found = (struct nd_weight_findings){0};
}

/* ---- one question ---- */

/* What was asked, and what came back. Fixed in place once it is asked: answers point into it. */
struct question {
    struct nd_weight_answers answers;
    int16_t *weights;
    uint8_t *x;
    double *w, *codes;
    float scale_w;
};

static void deinit_question(struct question *q)
{
    free(q->weights);
    free(q->x);
    free(q->w);
    free(q->codes);
    *q = (struct question){.weights = NULL};
}

static enum nd_status init_question(struct question *q, size_t n_rows, size_t n_terms, size_t n_columns,
                                    struct nd_error *err)
{
    *q = (struct question){.weights = nd_calloc(n_columns * n_terms, sizeof *q->weights),
                           .x = nd_calloc(n_rows, n_terms),
                           .w = nd_calloc(n_columns * n_terms, sizeof *q->w)};
    q->answers.about = (struct nd_columns){.n_rows = n_rows,
                                           .n_terms = n_terms,
                                           .n_columns = n_columns,
                                           .weights = q->weights,
                                           .zero_x = ZERO_X,
                                           .n_scales_w = 1};
    return q->weights != NULL && q->x != NULL && q->w != NULL ? ND_OK : nd_fail_memory(err);
}

/* All bits of the multiplier are in the scale of x. */
static void set_multiplier(struct question *q, double multiplier)
{
    int exponent;
    double mantissa = frexp(multiplier, &exponent);
    q->answers.about.scale_x = (float)ldexp(mantissa, -5);
    q->scale_w = 0x1p-7F;
    q->answers.about.scale_y = (float)ldexp(1, -12 - exponent);
}

/* q->codes stays NULL where the device failed. */
static enum nd_status ask(struct nd_bench *bench, struct question *q, struct nd_weight_fingerprint *out,
                          struct nd_error *err)
{
    struct nd_trial_result result;
    struct nd_columns *about = &q->answers.about;
    about->scales_w = &q->scale_w;
    enum nd_status status = nd_columns_ask(bench, about, q->x, &result, err);
    if (status != ND_OK)
        return status;
    memcpy(out->provider, result.provider, sizeof out->provider);
    out->has_failed = result.has_failed;
    if (result.has_failed) {
        out->failure = result;
        return ND_OK;
    }
    out->is_on_npu = out->is_on_npu && result.is_on_npu;
    q->codes = result.x;
    result.x = NULL;
    nd_trial_deinit(&result);
    for (size_t i = 0; i < about->n_columns * about->n_terms; i++)
        q->w[i] = (double)(q->weights[i] - about->zero_w);
    q->answers.x = q->x;
    q->answers.w = q->w;
    q->answers.codes = q->codes;
    q->answers.multiplier = (double)about->scale_x * (double)q->scale_w / (double)about->scale_y;
    return ND_OK;
}

/* ---- equal weights ---- */

enum { EQUAL_TERMS = 17, MOST_SUM = EQUAL_TERMS * 127, EQUAL_ROWS = 2 * MOST_SUM + 1 };

/* A column for each weight but 0, that of the zero point; the sum of x sweeps in steps of 1. */
static enum nd_status ask_equal(struct nd_bench *bench, double multiplier, int64_t zero_w, int64_t zero_y,
                                struct question *q, struct nd_weight_fingerprint *out, struct nd_error *err)
{
    enum nd_status status = init_question(q, EQUAL_ROWS, EQUAL_TERMS, GREATEST_CODE, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < EQUAL_ROWS; i++) {
        int64_t rest = (int64_t)i - MOST_SUM;
        for (int64_t t = 0; t < EQUAL_TERMS; t++) {
            int64_t share = rest / (EQUAL_TERMS - t);
            q->x[(size_t)t * EQUAL_ROWS + i] = (uint8_t)(ZERO_X + share);
            rest -= share;
        }
    }
    for (size_t i = 0; i < (size_t)GREATEST_CODE * EQUAL_TERMS; i++) {
        int64_t code = (int64_t)(i / EQUAL_TERMS);
        q->weights[i] = (int16_t)(code >= zero_w ? code + 1 : code);
    }
    q->answers.about.zero_w = zero_w;
    q->answers.about.zero_y = zero_y;
    set_multiplier(q, multiplier);
    return ask(bench, q, out, err);
}

static enum nd_status find_ratio(struct nd_bench *bench, struct nd_weight_fingerprint *out,
                                 struct nd_error *err)
{
    static const struct {
        float mantissa;
        int exponent;
        int64_t zero_w, zero_y;
    } chosen[] = {{1.2345679F, -11, 0, 128},
                  {1.2345679F, -11, GREATEST_CODE, 128},
                  {1.7320508F, -12, 0, 77},
                  {1.6180340F, -12, GREATEST_CODE, 150}};
    enum { N_CHOSEN = sizeof chosen / sizeof chosen[0] };
    struct question questions[N_CHOSEN] = {{.weights = NULL}};
    struct nd_weight_answers answers[N_CHOSEN];
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_CHOSEN; i++) {
        status = ask_equal(bench, ldexp((double)chosen[i].mantissa, chosen[i].exponent), chosen[i].zero_w,
                           chosen[i].zero_y, &questions[i], out, err);
        answers[i] = questions[i].answers;
        out->n_codes += (uint64_t)GREATEST_CODE * EQUAL_ROWS;
    }
    if (status == ND_OK && !out->has_failed)
        status = nd_weight_solve_ratio(&out->rest, answers, N_CHOSEN, &out->found, err);
    for (size_t i = 0; i < N_CHOSEN; i++)
        deinit_question(&questions[i]);
    return status;
}

/* ---- one great weight and another ---- */

enum { SPLIT = 9, TABLE_TERMS = SPLIT + 8, TABLE_ROWS = 384, MOST_TABLES = 8 };

struct tables {
    struct question items[MOST_TABLES];
    size_t n;
};

/* A column for each code behind a great weight, of the code `great`. */
static enum nd_status ask_table(struct nd_bench *bench, int64_t zero_w, int64_t great, struct tables *tables,
                                struct nd_weight_fingerprint *out, struct nd_error *err)
{
    struct question *q = &tables->items[tables->n++];
    uint64_t seed = 4711 + (uint64_t)great;
    enum nd_status status = init_question(q, TABLE_ROWS, TABLE_TERMS, GREATEST_CODE + 1, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < (size_t)TABLE_TERMS * TABLE_ROWS; i++)
        q->x[i] = (uint8_t)nd_random_next(&seed);
    for (size_t i = 0; i < (size_t)(GREATEST_CODE + 1) * TABLE_TERMS; i++)
        q->weights[i] = (int16_t)(i % TABLE_TERMS < SPLIT ? great : (int64_t)(i / TABLE_TERMS));
    q->answers.about.zero_w = zero_w;
    q->answers.about.zero_y = 128;
    set_multiplier(q, 0x1.1cp-10);
    return ask(bench, q, out, err);
}

static enum nd_status solve_table(const struct tables *tables, struct nd_weight_fingerprint *out,
                                  struct nd_error *err)
{
    struct nd_weight_answers answers[MOST_TABLES];
    out->n_entries = 0;
    for (size_t i = 0; i < tables->n; i++) {
        answers[i] = tables->items[i].answers;
        for (size_t c = 0; c <= GREATEST_CODE && out->found.n_programs > 0; c++) {
            const struct nd_weight_entry entry =
                nd_weight_read_entry(&out->rest, &out->found.programs[0], &answers[i], SPLIT, c);
            out->n_entries += entry.is_known && entry.high <= entry.low;
        }
    }
    return nd_weight_solve_table(&out->rest, answers, tables->n, SPLIT, &out->found, err);
}

/* How many weights become something else under some program that is left, next to a great one. */
static size_t count_disputed(const struct nd_weight_findings *found, double great)
{
    size_t n = 0;
    for (double w = 1; w < great; w++)
        for (size_t p = 1; p < found->n_programs; p++) {
            const struct nd_weight_program *a = &found->programs[0], *b = &found->programs[p];
            double x = nd_weight_code(a, nd_weight_ratio(a, 0, great), w),
                   y = nd_weight_code(b, nd_weight_ratio(b, 0, great), w);
            if (x < y || x > y)
                n++;
        }
    return n;
}

static double choose_great(const struct nd_weight_findings *found)
{
    double best = 0;
    size_t most = 0;
    for (double great = 128; great <= GREATEST_CODE; great++) {
        size_t n = count_disputed(found, great);
        if (n > most)
            best = great;
        most = n > most ? n : most;
    }
    return best;
}

/* First some; then those on which what is left disagrees most, while there are any. */
static enum nd_status find_table(struct nd_bench *bench, struct nd_weight_fingerprint *out,
                                 struct nd_error *err)
{
    static const struct {
        int64_t zero_w, great;
    } chosen[] = {{0, 255}, {255, 0}, {0, 190}, {60, 255}};
    enum { N_CHOSEN = sizeof chosen / sizeof chosen[0] };
    struct tables *tables = nd_calloc(1, sizeof *tables);
    enum nd_status status = tables != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_CHOSEN; i++)
        status = ask_table(bench, chosen[i].zero_w, chosen[i].great, tables, out, err);
    if (status == ND_OK && !out->has_failed)
        status = solve_table(tables, out, err);
    while (status == ND_OK && !out->has_failed && tables->n < MOST_TABLES && out->found.n_programs > 1) {
        double great = choose_great(&out->found);
        if (great < 1)
            break;
        status = ask_table(bench, 0, (int64_t)great, tables, out, err);
        if (status == ND_OK && !out->has_failed)
            status = solve_table(tables, out, err);
    }
    for (size_t i = 0; tables != NULL && i < tables->n; i++)
        deinit_question(&tables->items[i]);
    free(tables);
    return status;
}

/* ---- fresh codes ---- */

enum { FRESH_ROWS = 256, FRESH_TERMS = 64, FRESH_COLUMNS = 128, N_FRESH_MODELS = 4 };
enum { FRESH_CODES = FRESH_ROWS * FRESH_COLUMNS };

static enum nd_status ask_fresh(struct nd_bench *bench, int64_t zero_w, uint64_t *seed, struct question *q,
                                struct nd_weight_fingerprint *out, struct nd_error *err)
{
    enum nd_status status = init_question(q, FRESH_ROWS, FRESH_TERMS, FRESH_COLUMNS, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < (size_t)FRESH_ROWS * FRESH_TERMS; i++)
        q->x[i] = (uint8_t)nd_random_next(seed);
    for (size_t i = 0; i < (size_t)FRESH_COLUMNS * FRESH_TERMS; i++)
        q->weights[i] = (int16_t)(nd_random_next(seed) % 256);
    struct nd_columns *about = &q->answers.about;
    about->zero_x = (int64_t)nd_random_between(seed, 120, 136);
    about->zero_w = zero_w;
    about->zero_y = (int64_t)nd_random_between(seed, 90, 160);
    about->scale_x = (float)nd_random_between(seed, 0.01, 0.04);
    q->scale_w = (float)nd_random_between(seed, 0.004, 0.012);
    about->scale_y = about->scale_x * q->scale_w * (float)nd_random_between(seed, 700, 1500);
    return ask(bench, q, out, err);
}

/* w8, r and sums have room for the question. */
static uint64_t count_right(const struct question *q, const struct nd_requantise *rest,
                            const struct nd_weight_program *p, double *w8, double *r, double *sums)
{
    uint64_t right = 0;
    nd_weight_fit(p, q->w, FRESH_COLUMNS, FRESH_TERMS, w8, r);
    nd_columns_sum(&q->answers.about, q->x, w8, sums);
    for (size_t c = 0; c < FRESH_COLUMNS; c++) {
        const struct nd_requantiser s =
            nd_requantise_prepare(rest, q->answers.multiplier * r[c], (double)q->answers.about.zero_y);
        for (size_t i = c * FRESH_ROWS; i < (c + 1) * FRESH_ROWS; i++)
            right += nd_requantise_code(&s, sums[i], 0, GREATEST_CODE) == q->codes[i];
    }
    return right;
}

static enum nd_status confirm(struct nd_bench *bench, struct nd_weight_fingerprint *out, struct nd_error *err)
{
    static const int64_t zeros_w[N_FRESH_MODELS] = {0, 231, 44, 128};
    uint64_t seed = 20261124, *n_right = nd_calloc(out->found.n_programs, sizeof *n_right);
    double *w8 = nd_calloc((size_t)FRESH_COLUMNS * FRESH_TERMS, sizeof *w8),
           *r = nd_calloc(FRESH_COLUMNS, sizeof *r), *sums = nd_calloc(FRESH_CODES, sizeof *sums);
    bool has_room = n_right != NULL && w8 != NULL && r != NULL && sums != NULL;
    enum nd_status status = has_room ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_FRESH_MODELS; i++) {
        struct question q;
        status = ask_fresh(bench, zeros_w[i], &seed, &q, out, err);
        for (size_t p = 0; status == ND_OK && !out->has_failed && p < out->found.n_programs; p++)
            n_right[p] += count_right(&q, &out->rest, &out->found.programs[p], w8, r, sums);
        out->n_fresh += FRESH_CODES;
        deinit_question(&q);
    }
    if (status == ND_OK && !out->has_failed)
        out->found.n_programs = nd_fresh_keep_best(out->found.programs, sizeof *out->found.programs,
                                                   out->found.n_programs, n_right, &out->n_right);
    free(n_right);
    free(w8);
    free(r);
    free(sums);
    return status;
}

/* The program that requantises sums of weights that fit. */
static enum nd_status find_rest(struct nd_bench *bench, struct nd_weight_fingerprint *out, struct nd_error *err)
{
    struct nd_linear_fingerprint linear;
    enum nd_status status = nd_linear_fingerprint_take(bench, ND_FORM_CONV, &linear, err);
    if (status != ND_OK)
        return status;
    memcpy(out->provider, linear.provider, sizeof out->provider);
    out->is_on_npu = linear.is_on_npu;
    out->has_failed = linear.has_failed;
    out->failure.failure = linear.failure;
    out->failure.has_failed = linear.has_failed;
    out->has_rest = nd_linear_fingerprint_is_confirmed(&linear);
    if (out->has_rest)
        out->rest = linear.found.programs[0];
    nd_linear_fingerprint_deinit(&linear);
    return ND_OK;
}

enum nd_status nd_weight_fingerprint_take(struct nd_bench *bench, struct nd_weight_fingerprint *out,
                                          struct nd_error *err)
{
    struct nd_weight_fingerprint f = {.is_on_npu = true};
    enum nd_status status = find_rest(bench, &f, err);
    bool goes_on = status == ND_OK && !f.has_failed && f.has_rest;
    if (goes_on)
        status = find_ratio(bench, &f, err);
    if (goes_on && status == ND_OK && !f.has_failed)
        status = find_table(bench, &f, err);
    if (goes_on && status == ND_OK && !f.has_failed && f.found.n_programs > 0)
        status = confirm(bench, &f, err);
    if (status == ND_OK)
        *out = f;
    else
        nd_weight_fingerprint_deinit(&f);
    return status;
}
