/* Asking a device about sums of products of uint16 codes. */
#include "fingerprint/linear_u16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/ask.h"

enum { UNIT = 256, GREATEST_CODE = 65535 };

/* One product: x [rows][terms] of uint16 codes, weights [terms][columns]. */
struct product {
    enum nd_linear_form form;
    size_t n_rows, n_terms, n_columns;
    const uint8_t *weights;
    float scale_x, scale_w, scale_y;
    int64_t zero_x, zero_w, zero_y;
};

static struct nd_shape shape_of(const struct product *p, size_t n_columns)
{
    if (p->form == ND_FORM_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, (int64_t)n_columns, 1, (int64_t)p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {(int64_t)p->n_rows, (int64_t)n_columns}};
}

/* Where element (row, column) of a table of so many rows and columns is in the operator's tensor. */
static size_t place(const struct product *p, size_t row, size_t column, size_t n_rows, size_t n_columns)
{
    return p->form == ND_FORM_CONV ? column * n_rows + row : row * n_columns + column;
}

static void fill_ask(const struct product *p, uint8_t *weights, struct nd_ask *out)
{
    for (size_t t = 0; t < p->n_terms; t++)
        for (size_t c = 0; c < p->n_columns; c++)
            weights[place(p, t, c, p->n_terms, p->n_columns)] = p->weights[t * p->n_columns + c];
    *out = (struct nd_ask){.op_type = nd_linear_form_name(p->form),
                           .dtype = ND_DTYPE_U16,
                           .x = shape_of(p, p->n_terms),
                           .y = shape_of(p, p->n_columns),
                           .scale_x = p->scale_x,
                           .scale_y = p->scale_y,
                           .zero_x = p->zero_x,
                           .zero_y = p->zero_y,
                           .n_operands = 1};
    struct nd_ask_operand *w = &out->operands[0];
    *w = (struct nd_ask_operand){.dtype = ND_DTYPE_U8, .data = weights, .scale = p->scale_w, .zero = p->zero_w};
    if (p->form == ND_FORM_CONV)
        w->shape = (struct nd_shape){.rank = 4, .dims = {(int64_t)p->n_columns, (int64_t)p->n_terms, 1, 1}};
    else
        w->shape = (struct nd_shape){.rank = 2, .dims = {(int64_t)p->n_terms, (int64_t)p->n_columns}};
}

/* Runs the product on x [n_samples][n_rows][n_terms]; *codes [n_samples][n_rows][n_columns] is freed by the
 * caller, and NULL where the device failed. */
static enum nd_status run_product(struct nd_bench *bench, const struct product *p, const double *x,
                                  size_t n_samples, struct nd_word_fingerprint *out, double **codes,
                                  struct nd_error *err)
{
    size_t n_x = p->n_rows * p->n_terms, n_y = p->n_rows * p->n_columns;
    uint8_t *weights = nd_calloc(p->n_terms, p->n_columns);
    double *fed = nd_calloc(n_samples * n_x, sizeof *fed);
    struct nd_trial_result result = {0};
    struct nd_ask ask;
    *codes = nd_calloc(n_samples * n_y, sizeof **codes);
    enum nd_status status = weights != NULL && fed != NULL && *codes != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        fill_ask(p, weights, &ask);
        for (size_t i = 0; i < n_samples * n_x; i++) {
            size_t s = i / n_x, r = i % n_x / p->n_terms, t = i % p->n_terms;
            fed[s * n_x + place(p, r, t, p->n_rows, p->n_terms)] = x[i];
        }
        status = nd_ask_device(bench, &ask, fed, n_samples, &result, err);
    }
    if (status == ND_OK) {
        memcpy(out->provider, result.provider, sizeof out->provider);
        out->has_failed = result.has_failed;
        if (result.has_failed)
            out->failure = result;
        else
            out->is_on_npu = out->is_on_npu && result.is_on_npu;
        for (size_t i = 0; !result.has_failed && i < n_samples * n_y; i++) {
            size_t s = i / n_y, r = i % n_y / p->n_columns, c = i % p->n_columns;
            (*codes)[i] = result.x[s * n_y + place(p, r, c, p->n_rows, p->n_columns)];
        }
        nd_trial_deinit(result.has_failed ? &(struct nd_trial_result){0} : &result);
    }
    if (status != ND_OK || out->has_failed) {
        free(*codes);
        *codes = NULL;
    }
    free(weights);
    free(fed);
    return status;
}

/* ---- staircases: x in multiples of 256 about 2^15 ---- */

enum { N_LARGE = 8, N_TERMS = N_LARGE + 1, LARGE = 127, ROWS = 4096, MOST_SUM = N_LARGE * LARGE * LARGE };

static void spread(int64_t q, double x[N_TERMS])
{
    int64_t coarse = q / LARGE, fine = q % LARGE;
    for (int64_t i = 0; i < N_LARGE; i++) {
        int64_t share = coarse / (N_LARGE - i);
        x[i] = (double)(UNIT * (128 + share));
        coarse -= share;
    }
    x[N_LARGE] = (double)(UNIT * (128 + fine));
}

struct stairs {
    struct nd_staircase items[ND_STAIRCASE_MULTIPLIERS];
    size_t n;
};

static enum nd_status climb(struct nd_bench *bench, double multiplier, double zero_y, struct stairs *stairs,
                            struct nd_word_fingerprint *out, struct nd_error *err)
{
    enum { MOST_SAMPLES = 24 };
    int exponent;
    double mantissa = frexp(multiplier, &exponent);
    uint8_t weights[N_TERMS];
    memset(weights, LARGE, N_LARGE);
    weights[N_LARGE] = 1;
    const struct product product = {.form = out->form,
                                    .n_rows = ROWS,
                                    .n_terms = N_TERMS,
                                    .n_columns = 1,
                                    .weights = weights,
                                    .scale_x = (float)ldexp(mantissa, -5), /* all bits of the multiplier */
                                    .scale_w = 0x1p-7F,
                                    .scale_y = (float)ldexp(1, -4 - exponent),
                                    .zero_x = UNIT * 128,
                                    .zero_y = (int64_t)zero_y};
    struct nd_staircase s = {.multiplier = multiplier, .zero_point = zero_y, .high = GREATEST_CODE};
    double range = fmin(GREATEST_CODE / multiplier, MOST_SAMPLES * ROWS);
    size_t n_samples = (size_t)ceil(range / ROWS);
    s.n = n_samples * ROWS;
    s.first = floor(fmax((-zero_y - 2) / multiplier, -(double)s.n / 2));
    double *x = nd_calloc(s.n, N_TERMS * sizeof *x), *codes = NULL;
    if (x == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < s.n; i++)
        spread((int64_t)s.first + (int64_t)i, x + i * N_TERMS);
    enum nd_status status = run_product(bench, &product, x, n_samples, out, &codes, err);
    free(x);
    s.codes = codes;
    if (status == ND_OK && codes != NULL)
        stairs->items[stairs->n++] = s;
    return status;
}

static enum nd_status solve(const struct stairs *stairs, struct nd_word_fingerprint *out, struct nd_error *err)
{
    nd_staircase_findings_deinit(&out->stairs);
    out->n_staircases = stairs->n;
    return nd_staircase_solve(stairs->items, stairs->n, &out->stairs, err);
}

/* Multipliers of q: small ones show a granule, large ones the bits of the multiplier. */
static enum nd_status climb_all(struct nd_bench *bench, struct stairs *stairs, struct nd_word_fingerprint *out,
                                struct nd_error *err)
{
    static const struct {
        float mantissa;
        int exponent;
        double zero_y;
    } chosen[] = {{1.4142135F, -1, 32768}, {1.2345679F, 0, 30011}, {1.118034F, -9, 128},
                  {1.7320508F, -10, 77},   {1.5811388F, -3, 9000}, {1.8392868F, -12, 50000},
                  {1, -2, 16001}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < sizeof chosen / sizeof chosen[0]; i++)
        status = climb(bench, ldexp((double)chosen[i].mantissa, chosen[i].exponent), chosen[i].zero_y, stairs,
                       out, err);
    return status == ND_OK && !out->has_failed ? solve(stairs, out, err) : status;
}

/* A few more, which tell apart what those left. */
static enum nd_status climb_more(struct nd_bench *bench, struct stairs *stairs, struct nd_word_fingerprint *out,
                                 struct nd_error *err)
{
    enum { MOST_MORE = 4 };
    double multipliers[ND_STAIRCASE_MULTIPLIERS];
    size_t n = out->stairs.n_programs > 1 ? nd_staircase_next_multipliers(&out->stairs, multipliers) : 0;
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < n && i < MOST_MORE; i++)
        status = climb(bench, multipliers[i], i % 2 == 0 ? 32768 : 30011, stairs, out, err);
    return status == ND_OK && !out->has_failed && n > 0 ? solve(stairs, out, err) : status;
}

/* ---- codes at random ---- */

enum { SET_ROWS = 256, SET_TERMS = 64, SET_COLUMNS = 128, SET_CODES = SET_ROWS * SET_COLUMNS, ZERO_W = 128 };

static void accumulate(const struct product *p, const double *x, double *sums, double *zeros)
{
    for (size_t r = 0; r < SET_ROWS; r++)
        for (size_t c = 0; c < SET_COLUMNS; c++) {
            int64_t sum = 0, weights = 0;
            for (size_t t = 0; t < SET_TERMS; t++) {
                int64_t w = (int64_t)p->weights[t * SET_COLUMNS + c] - ZERO_W;
                sum += (int64_t)x[r * SET_TERMS + t] * w;
                weights += w;
            }
            sums[r * SET_COLUMNS + c] = (double)sum;
            zeros[r * SET_COLUMNS + c] = (double)(p->zero_x * weights);
        }
}

static struct product draw_product(enum nd_linear_form form, const uint8_t *weights, uint64_t *seed)
{
    struct product p = {.form = form,
                        .n_rows = SET_ROWS,
                        .n_terms = SET_TERMS,
                        .n_columns = SET_COLUMNS,
                        .weights = weights,
                        .zero_w = ZERO_W};
    p.scale_x = (float)nd_random_between(seed, 0.0001, 0.0003);
    p.scale_w = (float)nd_random_between(seed, 0.004, 0.012);
    p.scale_y = p.scale_x * p.scale_w * (float)nd_random_between(seed, 400, 1200);
    p.zero_x = (int64_t)nd_random_between(seed, 20000, 45000);
    p.zero_y = (int64_t)nd_random_between(seed, 20000, 45000);
    return p;
}

/* Whether doubles and float32 make the same multiplier. */
static bool is_source_hidden(const struct product *p, const struct nd_requantise *rest)
{
    double wide = ldexp((double)p->scale_x * (double)p->scale_w / (double)p->scale_y, 8),
           narrow = ldexp((double)(p->scale_x * p->scale_w / p->scale_y), 8);
    double difference = nd_multiplier_round(wide, rest->multiplier_bits, rest->multiplier_rounding) -
                        nd_multiplier_round(narrow, rest->multiplier_bits, rest->multiplier_rounding);
    return fpclassify(difference) == FP_ZERO;
}

/* Scales that tell where the multiplier is from, if such are found soon. */
static struct product draw_telling_product(enum nd_linear_form form, const uint8_t *weights,
                                           const struct nd_requantise *rest, uint64_t *seed)
{
    enum { PATIENCE = 100000 };
    struct product p = draw_product(form, weights, seed);
    for (int i = 0; i < PATIENCE && is_source_hidden(&p, rest); i++)
        p = draw_product(form, weights, seed);
    return p;
}

struct set {
    struct nd_word_codes about;
    double *sums, *zeros, *codes; /* [SET_CODES] */
};

static void deinit_set(struct set *set)
{
    free(set->sums);
    free(set->zeros);
    free(set->codes);
    *set = (struct set){0};
}

/* Random codes and weights within -127 .. 127; set->codes is NULL where the device failed. With rest, under
 * scales that tell where the multiplier is from. */
static enum nd_status ask_set(struct nd_bench *bench, uint64_t *seed, const struct nd_requantise *rest,
                              struct set *set, struct nd_word_fingerprint *out, struct nd_error *err)
{
    uint8_t *weights = nd_calloc(SET_TERMS, SET_COLUMNS);
    double *x = nd_calloc(SET_ROWS, SET_TERMS * sizeof *x);
    *set = (struct set){.sums = nd_calloc(SET_CODES, sizeof(double)),
                        .zeros = nd_calloc(SET_CODES, sizeof(double))};
    enum nd_status status =
        weights != NULL && x != NULL && set->sums != NULL && set->zeros != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < SET_TERMS * SET_COLUMNS; i++)
        weights[i] = (uint8_t)(1 + nd_random_next(seed) % 255);
    for (size_t i = 0; status == ND_OK && i < SET_ROWS * SET_TERMS; i++)
        x[i] = (double)(nd_random_next(seed) % 65536);
    const struct product product = rest != NULL ? draw_telling_product(out->form, weights, rest, seed)
                                                : draw_product(out->form, weights, seed);
    if (status == ND_OK) {
        accumulate(&product, x, set->sums, set->zeros);
        status = run_product(bench, &product, x, 1, out, &set->codes, err);
    }
    set->about = (struct nd_word_codes){.scale_x = product.scale_x,
                                        .scale_w = product.scale_w,
                                        .scale_y = product.scale_y,
                                        .zero_y = (double)product.zero_y,
                                        .n = SET_CODES,
                                        .sums = set->sums,
                                        .zeros = set->zeros,
                                        .codes = set->codes};
    free(weights);
    free(x);
    return status;
}

static enum nd_status solve_drops(struct nd_bench *bench, struct nd_word_fingerprint *out, struct nd_error *err)
{
    enum { N_SETS = 3 };
    struct set sets[N_SETS];
    memset(sets, 0, sizeof sets);
    struct nd_word_codes about[N_SETS];
    uint64_t seed = 16;
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_SETS; i++) {
        status = ask_set(bench, &seed, &out->stairs.programs[0], &sets[i], out, err);
        about[i] = sets[i].about;
    }
    if (status == ND_OK && !out->has_failed)
        status = nd_word_solve(out->stairs.programs, out->stairs.n_programs, about, N_SETS, &out->found, err);
    for (size_t i = 0; i < N_SETS; i++)
        deinit_set(&sets[i]);
    return status;
}

/* Those that give most of the fresh codes stay. */
static enum nd_status confirm(struct nd_bench *bench, struct nd_word_fingerprint *out, struct nd_error *err)
{
    enum { N_FRESH_MODELS = 4 };
    uint64_t seed = 20261123, *n_right = nd_calloc(out->found.n_programs, sizeof *n_right);
    enum nd_status status = n_right != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_FRESH_MODELS; i++) {
        struct set set;
        status = ask_set(bench, &seed, NULL, &set, out, err);
        for (size_t p = 0; status == ND_OK && !out->has_failed && p < out->found.n_programs; p++)
            n_right[p] += nd_word_count_right(&out->found.programs[p], &set.about, set.about.n);
        out->n_fresh += status == ND_OK && !out->has_failed ? set.about.n : 0;
        deinit_set(&set);
    }
    size_t n = 0;
    for (size_t p = 0; status == ND_OK && p < out->found.n_programs; p++)
        out->n_right = n_right[p] > out->n_right ? n_right[p] : out->n_right;
    for (size_t p = 0; status == ND_OK && p < out->found.n_programs; p++)
        if (n_right[p] == out->n_right)
            out->found.programs[n++] = out->found.programs[p];
    out->found.n_programs = n;
    free(n_right);
    return status;
}

enum nd_status nd_word_fingerprint_take(struct nd_bench *bench, enum nd_linear_form form,
                                        struct nd_word_fingerprint *out, struct nd_error *err)
{
    struct nd_word_fingerprint f = {.form = form, .is_on_npu = true};
    struct stairs stairs = {.n = 0};
    enum nd_status status = climb_all(bench, &stairs, &f, err);
    if (status == ND_OK && !f.has_failed)
        status = climb_more(bench, &stairs, &f, err);
    if (status == ND_OK && !f.has_failed && f.stairs.n_programs > 0)
        status = solve_drops(bench, &f, err);
    if (status == ND_OK && !f.has_failed && f.found.n_programs > 0)
        status = confirm(bench, &f, err);
    for (size_t i = 0; i < stairs.n; i++)
        free((void *)(uintptr_t)stairs.items[i].codes);
    if (status == ND_OK)
        *out = f;
    else
        nd_word_fingerprint_deinit(&f);
    return status;
}

void nd_word_fingerprint_deinit(struct nd_word_fingerprint *f)
{
    nd_trial_deinit(&f->failure);
    nd_staircase_findings_deinit(&f->stairs);
    free(f->found.programs);
    f->found = (struct nd_word_findings){0};
}
