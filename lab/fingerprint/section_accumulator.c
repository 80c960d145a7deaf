/* Sums of half precision products, and how wide sums of integer products are: asking a device for them, and
 * what is said of it (docs/reference/datasheet.md). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "lab/accumulator/on_device.h"
#include "lab/fingerprint/long_sums.h"
#include "lab/fingerprint/section.h"

enum { CONFIRM_SEED = 20261123 };

struct products {
    size_t n_rows, n_terms;
    const float *w; /* [n_terms] */
    const float *x; /* [n_rows][n_terms] */
};

/* y [n_rows] = the products of x [n_rows][n_terms] and w [n_terms], where the device goes on. */
static void run(struct nd_experiment *e, enum nd_accumulator_form form, const struct products *p, float *y)
{
    const struct nd_product product = {.form = form == ND_ACCUMULATOR_CONV ? ND_FORM_CONV : ND_FORM_MATMUL,
                                       .dtype = ND_DTYPE_F32,
                                       .has_fed_weights = form == ND_ACCUMULATOR_MATMUL_OF_INPUTS,
                                       .n_rows = p->n_rows,
                                       .n_terms = p->n_terms,
                                       .n_columns = 1,
                                       .weights = p->w};
    ND_FREED double *fed = nd_calloc(p->n_rows * p->n_terms, sizeof *fed);
    if (fed == NULL)
        nd_experiment_check(e, nd_fail_memory(e->err));
    for (size_t i = 0; fed != NULL && i < p->n_rows * p->n_terms; i++)
        fed[i] = (double)p->x[i];
    const double *answers = nd_product_ask(e, &product, fed, 1);
    for (size_t i = 0; answers != NULL && i < p->n_rows; i++)
        y[i] = (float)answers[i];
}

/* ---- the battery ---- */

static bool has_answers(const struct nd_experiment *e)
{
    return nd_experiment_goes_on(e) && e->is_on_npu;
}

static void ask_battery(enum nd_accumulator_form form, struct nd_accumulator_sheet *sheet)
{
    struct nd_experiment *e = &sheet->asked;
    struct nd_accumulator_battery battery;
    float *outputs[ND_BATTERY_BLOCKS] = {NULL};
    if (!nd_experiment_check(e, nd_accumulator_battery_init(&battery, e->err)))
        return;
    for (size_t b = 0; has_answers(e) && b < ND_BATTERY_BLOCKS; b++) {
        const struct nd_accumulator_block *block = &battery.blocks[b];
        const struct products p = {block->n_rows, ND_BATTERY_TERMS, block->w, block->x};
        outputs[b] = nd_experiment_alloc(e, block->n_rows, sizeof *outputs[b]);
        if (outputs[b] != NULL)
            run(e, form, &p, outputs[b]);
        if (!has_answers(e))
            break;
        struct nd_digest parts[2] = {sheet->answers,
                                     nd_digest_bytes(outputs[b], block->n_rows * sizeof *outputs[b])};
        sheet->answers = nd_digest_bytes(parts, sizeof parts);
    }
    const float *const borrowed[] = {outputs[0], outputs[1]};
    if (has_answers(e))
        nd_experiment_check(e, nd_accumulator_identify(&battery, borrowed, NULL, 0, &sheet->found, e->err));
    nd_accumulator_battery_deinit(&battery);
}

/* ---- random products ---- */

struct asking {
    struct nd_experiment *e;
    enum nd_accumulator_form form;
};

/* A nd_accumulator_device. One that fails ends what asks it: that is no error of the experiment. */
static enum nd_status answer(void *context, const float w[ND_BATTERY_TERMS], const float *x, size_t n_rows,
                             float *out, struct nd_error *err)
{
    const struct asking *asking = context;
    const struct products p = {n_rows, ND_BATTERY_TERMS, w, x};
    run(asking->e, asking->form, &p, out);
    if (asking->e->has_failed)
        return nd_fail(err, ND_E_RUNTIME_CALL, "y", "%s", asking->e->failure.failure.message);
    return asking->e->status;
}

static void confirm(enum nd_accumulator_form form, uint64_t n_vectors, struct nd_accumulator_sheet *sheet)
{
    struct asking asking = {&sheet->asked, form};
    enum nd_status status =
        nd_accumulator_confirm(&sheet->found, answer, &asking, n_vectors, CONFIRM_SEED, sheet->asked.err);
    if (!sheet->asked.has_failed)
        nd_experiment_check(&sheet->asked, status);
}

/* ---- forms ---- */

static void sheet_begin(struct nd_bench *bench, enum nd_accumulator_form form, struct nd_error *err,
                        struct nd_accumulator_sheet *sheet)
{
    bool is_of_inputs = form == ND_ACCUMULATOR_MATMUL_OF_INPUTS;
    *sheet = (struct nd_accumulator_sheet){
        .asked = nd_experiment_begin(bench, form == ND_ACCUMULATOR_CONV ? "Conv" : "MatMul",
                                     is_of_inputs ? "float x float, inputs" : "float x float", err)};
}

static void sheet_deinit(struct nd_accumulator_sheet *sheet)
{
    nd_experiment_end(&sheet->asked);
    nd_accumulator_findings_deinit(&sheet->found);
}

static void take_form(enum nd_accumulator_form form, uint64_t n_vectors, struct nd_accumulator_sheet *sheet)
{
    ask_battery(form, sheet);
    if (has_answers(&sheet->asked) && sheet->found.n > 0)
        confirm(form, n_vectors, sheet);
}

/* The random products of another form by the accumulators of MatMul. */
static void try_as_matmul(enum nd_accumulator_form form, uint64_t n_vectors,
                          const struct nd_accumulator_findings *found, struct nd_accumulator_sheet *sheet)
{
    struct nd_accumulator *items = nd_calloc(found->n, sizeof *items);
    if (items == NULL) {
        nd_experiment_check(&sheet->asked, nd_fail_memory(sheet->asked.err));
        return;
    }
    memcpy(items, found->items, found->n * sizeof *items);
    sheet->found = *found;
    sheet->found.items = items;
    sheet->found.n_confirmed = sheet->found.n_failed = 0;
    confirm(form, n_vectors, sheet);
    sheet->is_as_matmul = !has_answers(&sheet->asked) || sheet->found.n_failed == 0;
}

static void take_other_form(enum nd_accumulator_form form, uint64_t n_vectors,
                            struct nd_accumulator_fingerprint *f)
{
    const struct nd_accumulator_findings *found = &f->sheets[ND_ACCUMULATOR_MATMUL].found;
    struct nd_accumulator_sheet *sheet = &f->sheets[form];
    struct nd_bench *bench = sheet->asked.bench;
    struct nd_error *err = sheet->asked.err;
    if (found->n > 0 && found->n_failed == 0)
        try_as_matmul(form, n_vectors, found, sheet);
    if (sheet->asked.status != ND_OK || sheet->is_as_matmul)
        return;
    sheet_deinit(sheet);
    sheet_begin(bench, form, err, sheet);
    take_form(form, n_vectors, sheet);
}

/* ---- longer sums ---- */

enum { N_PARTNERS = 64, N_LONG_ROWS = 2 * N_PARTNERS };

/* The first term with terms all along the sum, and the last with the same, from the other end. */
static void fill_long(float *x, size_t n_terms)
{
    for (size_t i = 0; i < N_LONG_ROWS; i++, x += n_terms) {
        size_t partner = 1 + (i % N_PARTNERS) * (n_terms - 2) / (N_PARTNERS - 1);
        bool is_from_end = i >= N_PARTNERS;
        for (size_t t = 0; t < n_terms; t++)
            x[t] = 0x1p-14F;
        x[is_from_end ? n_terms - 1 : 0] = 0x1p15F;
        x[is_from_end ? n_terms - 1 - partner : partner] = -0x1p15F;
    }
}

static void ask_long(bool is_one_up, struct nd_accumulator_long *out)
{
    struct nd_experiment *e = &out->asked;
    float y[N_LONG_ROWS] = {0};
    float *w = nd_experiment_alloc(e, out->n_terms, sizeof *w),
          *x = nd_experiment_alloc(e, N_LONG_ROWS * out->n_terms, sizeof *x);
    if (!nd_experiment_goes_on(e))
        return;
    for (size_t t = 0; t < out->n_terms; t++)
        w[t] = 1;
    fill_long(x, out->n_terms);
    run(e, ND_ACCUMULATOR_MATMUL, &(struct products){N_LONG_ROWS, out->n_terms, w, x}, y);
    for (size_t i = 0; nd_experiment_goes_on(e) && i < N_LONG_ROWS; i++) {
        float undone = y[i];
        if (is_one_up && !nd_accumulator_undo_one_up(&y[i], 1, &undone))
            undone = y[i];
        out->n++;
        out->n_whole += undone == (float)(out->n_terms - 2) * 0x1p-14F;
    }
}

/* Up to the first that the device does not give whole. */
static enum nd_status ask_longer(struct nd_accumulator_fingerprint *f)
{
    /* The sums of units are half precision numbers. */
    static const size_t sizes[ND_N_ACCUMULATOR_LONG] = {64, 512, 4096};
    const struct nd_accumulator_sheet *first = &f->sheets[ND_ACCUMULATOR_MATMUL];
    bool is_whole = true;
    for (size_t i = 0; is_whole && i < ND_N_ACCUMULATOR_LONG; i++) {
        struct nd_accumulator_long *l = &f->longer[f->n_long++];
        *l = (struct nd_accumulator_long){
            .n_terms = sizes[i],
            .asked = nd_experiment_begin(first->asked.bench, "MatMul", "", first->asked.err)};
        ask_long(first->found.readings.is_one_up, l);
        is_whole = has_answers(&l->asked) && l->n_whole == l->n;
        if (l->asked.status != ND_OK)
            return l->asked.status;
    }
    return ND_OK;
}

/* ---- all of it ---- */

static enum nd_status take(struct nd_bench *bench, uint64_t n_vectors, struct nd_accumulator_fingerprint *f,
                           struct nd_error *err)
{
    struct nd_accumulator_sheet *first = &f->sheets[ND_ACCUMULATOR_MATMUL];
    for (int form = 0; form < ND_N_ACCUMULATOR_FORMS; form++)
        sheet_begin(bench, (enum nd_accumulator_form)form, err, &f->sheets[form]);
    take_form(ND_ACCUMULATOR_MATMUL, n_vectors, first);
    enum nd_status status = first->asked.status;
    f->n_sheets = 1;
    if (!has_answers(&first->asked))
        return status;
    for (; status == ND_OK && f->n_sheets < ND_N_ACCUMULATOR_FORMS; f->n_sheets++) {
        take_other_form((enum nd_accumulator_form)f->n_sheets, n_vectors, f);
        status = f->sheets[f->n_sheets].asked.status;
    }
    if (status == ND_OK && first->found.readings.exact_block == ND_BATTERY_TERMS)
        status = ask_longer(f);
    return status;
}

enum nd_status nd_accumulator_fingerprint_take(struct nd_bench *bench, uint64_t n_vectors,
                                               struct nd_accumulator_fingerprint *out, struct nd_error *err)
{
    ND_CLEANUP(nd_accumulator_fingerprint_deinit) struct nd_accumulator_fingerprint f = {.n_sheets = 0};
    ND_TRY(take(bench, n_vectors, &f, err));
    *out = f;
    f = (struct nd_accumulator_fingerprint){0};
    return ND_OK;
}

void nd_accumulator_fingerprint_deinit(struct nd_accumulator_fingerprint *f)
{
    for (size_t i = 0; i < ND_N_ACCUMULATOR_FORMS; i++)
        sheet_deinit(&f->sheets[i]);
    for (size_t i = 0; i < f->n_long; i++)
        nd_experiment_end(&f->longer[i].asked);
}

enum {
    WEIGHT = 127,
    LARGE = 127,
    PRODUCT = WEIGHT * LARGE,
    N_STEPS = 8,      /* partial sums, of either sign */
    N_CANCELLING = 4, /* sums that come back */
    N_ROWS = 2 * N_STEPS + N_CANCELLING,
    TOLERANCE = 3, /* codes: what requantisation may do */
    N_PAIRED = 64,
};

/* One model: x [n_rows, n_terms] by n_terms weights of 127; quantised value zero_y + span stands for the sum
 * `full`. */
struct sums {
    size_t n_rows, n_terms;
    int64_t zero_x, zero_y, span;
    double full;
};

/* x: quantised values. */
static const double *ask_long_sums(struct nd_experiment *e, const struct sums *s, const double *x)
{
    uint8_t *weights = nd_experiment_alloc(e, s->n_terms, 1);
    if (weights == NULL)
        return NULL;
    memset(weights, WEIGHT, s->n_terms);
    const struct nd_product product = {.form = ND_FORM_MATMUL,
                                       .dtype = ND_DTYPE_U8,
                                       .n_rows = s->n_rows,
                                       .n_terms = s->n_terms,
                                       .n_columns = 1,
                                       .weights = weights,
                                       .scale_x = 0x1p-7F,
                                       .scale_w = 0x1p-7F,
                                       .scale_y = (float)(0x1p-14 * s->full / (double)s->span),
                                       .zero_x = s->zero_x,
                                       .zero_y = s->zero_y};
    const double *qvalues = nd_product_ask(e, &product, x, 1);
    e->is_on_npu = e->is_on_npu && e->n_elsewhere == 0;
    return qvalues;
}

static bool is_right(const struct sums *s, double qvalue, int64_t sum)
{
    return fabs(qvalue - (double)s->zero_y - (double)s->span * (double)sum / s->full) <= TOLERANCE;
}

/* ---- one sign, and cancelling ---- */

/* Signs of the terms, in runs: 0 and 1 go to three quarters and come back by one; 2 has neighbours cancel; 3
 * goes there in two steps, with the way back between them. */
static int sign_of(size_t kind, size_t term, size_t n_terms)
{
    size_t eighth = term * 8 / n_terms;
    const int signs[N_CANCELLING] = {eighth < 6 ? 1 : -1, eighth < 6 ? -1 : 1, term % 2 == 0 ? 1 : -1,
                                     eighth == 3 || eighth == 4 ? -1 : 1};
    return signs[kind];
}

static int64_t sum_of(size_t row, size_t n_terms)
{
    static const int halves[N_CANCELLING] = {1, -1, 0, 1};
    if (row >= 2 * N_STEPS)
        return halves[row - 2 * N_STEPS] * (int64_t)(n_terms / 2) * PRODUCT;
    int64_t sum = (int64_t)(n_terms * (row % N_STEPS + 1) / N_STEPS) * PRODUCT;
    return row < N_STEPS ? sum : -sum;
}

static void fill(double *x, size_t n_terms)
{
    for (size_t row = 0; row < N_ROWS; row++) {
        size_t n = (size_t)(llabs(sum_of(row, n_terms)) / PRODUCT);
        for (size_t t = 0; t < n_terms; t++) {
            int sign = row >= 2 * N_STEPS ? sign_of(row - 2 * N_STEPS, t, n_terms)
                       : t >= n           ? 0
                       : row < N_STEPS    ? 1
                                          : -1;
            x[row * n_terms + t] = 128 + sign * LARGE;
        }
    }
}

static int64_t wrapped(int64_t sum, int64_t half)
{
    int64_t rest = (sum + half) % (2 * half);
    return (rest < 0 ? rest + 2 * half : rest) - half;
}

/* Whether those beyond what the width holds came out as what is left of them, or as the most that it holds. */
static void explain(const struct sums *s, const double *qvalues, struct nd_long_sums *out)
{
    int n_bits = nd_long_sums_bits(out);
    if (n_bits == 0)
        return;
    int64_t half = (int64_t)1 << (n_bits - 1);
    for (size_t row = 0; row < 2 * N_STEPS; row++) {
        int64_t sum = sum_of(row, s->n_terms);
        if (llabs(sum) < out->wrong)
            continue;
        out->n_beyond++;
        out->n_wrapped += is_right(s, qvalues[row], wrapped(sum, half));
        out->n_saturated += is_right(s, qvalues[row], sum > 0 ? half - 1 : -half);
    }
}

static void judge(const struct sums *s, const double *qvalues, struct nd_long_sums *out)
{
    int64_t before = out->right;
    for (size_t row = 0; row < N_ROWS; row++) {
        int64_t sum = sum_of(row, s->n_terms), magnitude = llabs(sum);
        bool is_fine = is_right(s, qvalues[row], sum);
        out->n_qvalues++;
        out->n_wrong += !is_fine;
        if (row >= 2 * N_STEPS) {
            out->n_cancelled_wrong += !is_fine;
        } else if (is_fine) {
            out->right = magnitude > out->right ? magnitude : out->right;
        } else {
            out->wrong = out->wrong == 0 || magnitude < out->wrong ? magnitude : out->wrong;
        }
    }
    /* What is right again beyond the first that is wrong says nothing. */
    if (out->wrong > 0 && out->right >= out->wrong) {
        out->right = before < out->wrong ? before : 0;
        for (size_t row = 0; row < 2 * N_STEPS; row++) {
            int64_t magnitude = llabs(sum_of(row, s->n_terms));
            if (magnitude < out->wrong && magnitude > out->right)
                out->right = magnitude;
        }
    }
    if (out->wrong > 0)
        explain(s, qvalues, out);
}

static void ask(struct nd_experiment *e, size_t n_terms, struct nd_long_sums *out)
{
    double *x = nd_calloc(N_ROWS * n_terms, sizeof *x);
    const struct sums s = {.n_rows = N_ROWS,
                           .n_terms = n_terms,
                           .zero_x = 128,
                           .zero_y = 128,
                           .span = 120,
                           .full = (double)n_terms * PRODUCT};
    if (x != NULL)
        fill(x, n_terms);
    else
        nd_experiment_check(e, nd_fail_memory(e->err));
    const double *qvalues = ask_long_sums(e, &s, x);
    free(x);
    if (qvalues != NULL)
        judge(&s, qvalues, out);
    else
        out->n_terms_failed = n_terms;
}

/* ---- pairs ---- */

/* The first 1, 2, 3 ... of 64 terms: neighbours are pairs, and so are terms half or a quarter of all apart. */
static void ask_pairs(struct nd_experiment *e, struct nd_long_sums *out)
{
    double x[N_PAIRED * N_PAIRED];
    const struct sums s = {
        .n_rows = N_PAIRED, .n_terms = N_PAIRED, .span = 240, .full = N_PAIRED * 255.0 * WEIGHT};
    for (size_t i = 0; i < N_PAIRED * N_PAIRED; i++)
        x[i] = i % N_PAIRED <= i / N_PAIRED ? 255 : 0;
    const double *qvalues = ask_long_sums(e, &s, x);
    for (size_t row = 0; qvalues != NULL && row < N_PAIRED; row++) {
        int64_t sum = (int64_t)(row + 1) * 255 * WEIGHT;
        /* What the accumulator does not hold says nothing of pairs. */
        if (out->wrong > 0 && sum > out->right)
            break;
        out->n_pairs++;
        out->n_pairs_wrong += !is_right(&s, qvalues[row], sum);
    }
    out->has_pairs = out->n_pairs > 1;
}

/* ---- all of it ---- */

void nd_long_sums_take(struct nd_experiment *e, struct nd_long_sums *out)
{
    /* Nearly twice what 16, 20, 24, 28 and 32 bits hold. */
    static const size_t sizes[] = {4, 64, 1024, 16384, 262144};
    *out = (struct nd_long_sums){.n_terms_failed = 0};
    e->is_patient = true;
    for (size_t i = 0; nd_experiment_goes_on(e) && e->is_on_npu && out->wrong == 0 &&
                       out->n_terms_failed == 0 && i < sizeof sizes / sizeof sizes[0];
         i++)
        ask(e, sizes[i], out);
    if (nd_experiment_goes_on(e) && e->is_on_npu)
        ask_pairs(e, out);
}

int nd_long_sums_excluded_bits(const struct nd_long_sums *sums)
{
    int n_bits = 0;
    while (n_bits < 63 && (int64_t)1 << n_bits <= sums->right)
        n_bits++;
    return n_bits;
}

int nd_long_sums_bits(const struct nd_long_sums *sums)
{
    int n_bits = nd_long_sums_excluded_bits(sums) + 1;
    bool is_below = sums->wrong > 0 && (int64_t)1 << (n_bits - 1) <= sums->wrong,
         is_only = (int64_t)1 << n_bits > sums->wrong;
    return is_below && is_only ? n_bits : 0;
}

/* ---- sums of half precision products, and how wide sums of integer products are ---- */

/* More are not listed; the text has all of their properties. */
enum { MAX_NAMES = 32 };

/* A property that those which are left do not share. */
static bool is_open(const struct nd_accumulator_findings *found, nd_accumulator_property *say)
{
    char first[ND_ACCUMULATOR_PROPERTY_BYTES], other[ND_ACCUMULATOR_PROPERTY_BYTES];
    say(&found->items[0], first);
    for (size_t i = 1; i < found->n; i++) {
        say(&found->items[i], other);
        if (strcmp(first, other) != 0)
            return true;
    }
    return false;
}

/* The terms whose sum loses nothing: 0 where not even neighbours do. *is_all: as far as was asked. */
static size_t whole_terms(const struct nd_accumulator_fingerprint *f, bool *is_all)
{
    size_t n = (size_t)f->sheets[ND_ACCUMULATOR_MATMUL].found.readings.exact_block;
    *is_all = n == ND_BATTERY_TERMS;
    for (size_t i = 0; i < f->n_long; i++) {
        const struct nd_accumulator_long *l = &f->longer[i];
        bool is_asked = !l->asked.has_failed && l->asked.is_on_npu;
        if (is_asked && l->n_whole == l->n)
            n = l->n_terms;
        *is_all = *is_all && (!is_asked || l->n_whole == l->n);
    }
    return n;
}

/* What all that are left have in common. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_accumulator_findings *found)
{
    char said[ND_ACCUMULATOR_PROPERTY_BYTES];
    size_t n;
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; i < n; i++)
        if (!is_open(found, p[i].say)) {
            p[i].say(&found->items[0], said);
            nd_tell_text(e, out, p[i].key, said);
        }
    if (found->readings.is_one_up)
        nd_tell_text(e, out, "conversion_to_float32", "one unit of float32 too large");
}

static void describe_long(struct nd_experiment *e, json_t *out, const struct nd_accumulator_fingerprint *f)
{
    bool is_all;
    size_t n_terms = whole_terms(f, &is_all);
    if (n_terms > 0)
        nd_tell_int(e, out, is_all ? "terms_added_exactly_at_least" : "terms_added_exactly", (int64_t)n_terms);
}

static void say_long(const struct nd_accumulator_fingerprint *f, struct nd_strbuf *text)
{
    for (size_t i = 0; i < f->n_long; i++) {
        const struct nd_accumulator_long *l = &f->longer[i];
        if (l->asked.has_failed)
            nd_strbuf_printf(text, "sums of %zu terms: the device failed: %s\n", l->n_terms,
                             l->asked.failure.failure.message);
        else if (!l->asked.is_on_npu)
            nd_strbuf_printf(text, "sums of %zu terms: not on the NPU\n", l->n_terms);
        else
            nd_strbuf_printf(text, "sums of %zu terms: nothing is lost in %zu of %zu\n", l->n_terms, l->n_whole,
                             l->n);
    }
}

/* All lines; the text ends with it. */
static void tell_lines(struct nd_experiment *e, json_t *entry, struct nd_strbuf *text)
{
    if (text->failed)
        nd_experiment_check(e, nd_fail_memory(e->err));
    nd_tell_listed(e, entry, "text", NULL);
    for (const char *line = text->text; line != NULL && *line != '\0';) {
        size_t n = strcspn(line, "\n");
        nd_tell_line(e, entry, "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    nd_strbuf_deinit(text);
}

static void tell_undecided(struct nd_experiment *e, const struct nd_accumulator_fingerprint *f,
                           enum nd_accumulator_form form, json_t *entry)
{
    const struct nd_accumulator_findings *found = &f->sheets[form].found;
    char probe[96] = "none known: what is left agreed on all random products";
    bool is_all;
    size_t n;
    if (found->n == 0) {
        nd_tell_undecided(e, entry, "the accumulator",
                          found->readings.has_tree ? "types and roundings that this version does not know"
                                                   : "orders that this version does not know");
        return;
    }
    /* The adder of all terms: what rounds once does not tell of what it keeps between two of them. */
    if (found->readings.exact_block == ND_BATTERY_TERMS) {
        snprintf(probe, sizeof probe, "sums of more than %zu terms, of which something is lost",
                 form == ND_ACCUMULATOR_MATMUL ? whole_terms(f, &is_all) : (size_t)ND_BATTERY_TERMS);
        if (found->n > 1)
            nd_tell_undecided(e, entry, "which program: they gave the same sums everywhere", probe);
        return;
    }
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; i < n; i++)
        if (is_open(found, p[i].say))
            nd_tell_undecided(e, entry, p[i].label, probe);
}

static void tell_text(struct nd_experiment *e, const struct nd_accumulator_fingerprint *f,
                      enum nd_accumulator_form form, json_t *entry)
{
    struct nd_strbuf text = {0};
    if (f->sheets[form].is_as_matmul)
        nd_strbuf_puts(&text, "the accumulator of MatMul by a constant: no random product differs\n");
    else
        nd_accumulator_findings_write(&f->sheets[form].found, &text);
    if (form == ND_ACCUMULATOR_MATMUL)
        say_long(f, &text);
    tell_lines(e, entry, &text);
}

static void tell(struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form, json_t *entries)
{
    char buf[ND_ACCUMULATOR_NAME_BYTES];
    struct nd_accumulator_sheet *sheet = &f->sheets[form];
    const struct nd_accumulator_findings *found = &sheet->found;
    struct nd_experiment *e = &sheet->asked;
    bool is_known = nd_accumulator_is_confirmed(found);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    if (!e->is_on_npu) { /* what ran elsewhere says nothing of this device */
        nd_tell_line(e, entry, "a model of floats: a device that has none leaves it to the CPU");
        return;
    }
    tell_text(e, f, form, entry);
    nd_tell_counts(e, entry,
                   ND_COUNTS({"outputs", sheet->is_as_matmul ? 0 : found->n_outputs},
                             {"accumulators", found->n_hypotheses}, {"left", found->n},
                             {"fresh", found->n_confirmed + found->n_failed}, {"right", found->n_confirmed}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n && i < MAX_NAMES; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_accumulator_name(&found->items[i], buf));
    tell_undecided(e, f, form, entry);
    if (!sheet->is_as_matmul) {
        nd_experiment_add_digest(e, sheet->answers);
        nd_tell_text(e, entry, "answers", e->answers.text);
    }
    if (found->n == 0)
        nd_tell_nearest(e, entry, nd_accumulator_name(&found->nearest, buf),
                        found->n_outputs - found->n_nearest);
    json_t *parameters = is_known ? nd_tell_object(e, entry, "parameters") : NULL;
    if (is_known)
        describe(e, parameters, found);
    if (is_known && form == ND_ACCUMULATOR_MATMUL)
        describe_long(e, parameters, f);
}

/* ---- integers ---- */

/* NULL: neither, or not known. */
static const char *behaviour_of(const struct nd_long_sums *s)
{
    if (s->n_beyond == 0 || s->n_wrapped == s->n_saturated)
        return NULL;
    return s->n_wrapped == s->n_beyond ? "wraps" : s->n_saturated == s->n_beyond ? "saturates" : NULL;
}

static void say_width(const struct nd_experiment *e, const struct nd_long_sums *s, struct nd_strbuf *out)
{
    int n_bits = nd_long_sums_bits(s);
    const char *behaviour = behaviour_of(s);
    if (s->wrong == 0)
        nd_strbuf_printf(out, "no saturation or wrapping up to %d bits\n", nd_long_sums_excluded_bits(s));
    else if (n_bits > 0)
        nd_strbuf_printf(out, "an accumulator of %d bits that %s\n", n_bits,
                         behaviour != NULL ? behaviour : "neither wraps nor saturates as a whole");
    else
        nd_strbuf_printf(out, "an accumulator of more than %d bits\n", nd_long_sums_excluded_bits(s));
    nd_strbuf_printf(out, "sums up to %" PRId64 " come out", s->right);
    if (s->wrong > 0)
        nd_strbuf_printf(out, ", from %" PRId64 " on they do not: of %zu, %zu wrapped, %zu saturated", s->wrong,
                         s->n_beyond, s->n_wrapped, s->n_saturated);
    nd_strbuf_puts(out, "\n");
    if (s->has_pairs)
        nd_strbuf_printf(out, "pairs of 255 x 127: %s\n",
                         s->n_pairs_wrong == 0 ? "no saturation" : "they saturate at 16 bits or lose more");
    if (s->n_terms_failed > 0)
        nd_strbuf_printf(out, "sums of %zu terms: the device failed: %s\n", s->n_terms_failed,
                         e->failure.failure.message);
}

static void describe_integers(struct nd_experiment *e, json_t *out, const struct nd_long_sums *s)
{
    int n_bits = nd_long_sums_bits(s);
    const char *behaviour = behaviour_of(s);
    nd_tell_int(e, out, "bits_more_than", nd_long_sums_excluded_bits(s));
    if (n_bits > 0)
        nd_tell_int(e, out, "bits", n_bits);
    if (behaviour != NULL)
        nd_tell_text(e, out, "beyond", behaviour);
    if (s->wrong > 0)
        nd_tell_int(e, out, "wrong_from", s->wrong);
    if (s->has_pairs)
        nd_tell_bool(e, out, "pairs_saturate", s->n_pairs_wrong > 0);
}

static void tell_integers(struct nd_experiment *e, const struct nd_long_sums *s, json_t *entries)
{
    struct nd_strbuf text = {0};
    json_t *entry = nd_experiment_tell_verdict(e, entries, e->is_on_npu ? "bounded" : "not on the NPU");
    if (entry == NULL || !e->is_on_npu)
        return;
    say_width(e, s, &text);
    tell_lines(e, entry, &text);
    nd_tell_counts(e, entry,
                   ND_COUNTS({"models", e->n_asked}, {"values", s->n_qvalues}, {"wrong", s->n_wrong},
                             {"pairs", s->n_pairs}, {"pairs_wrong", s->n_pairs_wrong}));
    describe_integers(e, nd_tell_object(e, entry, "parameters"), s);
    /* What is claimed, and not the quantised values, which are those of the requantisation, too. */
    const int64_t claim[] = {s->right,
                             s->wrong,
                             (int64_t)s->n_wrapped,
                             (int64_t)s->n_saturated,
                             (int64_t)s->n_cancelled_wrong,
                             (int64_t)s->n_pairs_wrong};
    nd_experiment_add_digest(e, nd_digest_bytes(claim, sizeof claim));
    nd_tell_text(e, entry, "answers", e->answers.text);
    if (s->wrong == 0)
        nd_tell_undecided(e, entry, "the width of the accumulator", "longer sums");
}

enum nd_status nd_section_accumulator_f16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_accumulator_fingerprint f;
    enum nd_status status = nd_accumulator_fingerprint_take(bench, ND_CONFIRMING_VECTORS, &f, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; status == ND_OK && i < f.n_sheets; i++) {
        tell(&f, (enum nd_accumulator_form)i, entries);
        status = f.sheets[i].asked.status;
    }
    nd_accumulator_fingerprint_deinit(&f);
    if (status != ND_OK)
        return status;
    struct nd_experiment e = nd_experiment_begin(bench, "MatMul", "u8 x u8, long sums", err);
    struct nd_long_sums sums;
    nd_long_sums_take(&e, &sums);
    tell_integers(&e, &sums, entries);
    return nd_experiment_end(&e);
}
