#include "lab/accumulator/on_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

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
    double *fed = nd_calloc(p->n_rows * p->n_terms, sizeof *fed);
    if (fed == NULL)
        nd_experiment_check(e, nd_fail_memory(e->err));
    for (size_t i = 0; fed != NULL && i < p->n_rows * p->n_terms; i++)
        fed[i] = (double)p->x[i];
    const double *answers = nd_product_ask(e, &product, fed, 1);
    for (size_t i = 0; answers != NULL && i < p->n_rows; i++)
        y[i] = (float)answers[i];
    free(fed);
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
    struct nd_accumulator_fingerprint f = {.n_sheets = 0};
    enum nd_status status = take(bench, n_vectors, &f, err);
    if (status == ND_OK)
        *out = f;
    else
        nd_accumulator_fingerprint_deinit(&f);
    return status;
}

void nd_accumulator_fingerprint_deinit(struct nd_accumulator_fingerprint *f)
{
    for (size_t i = 0; i < ND_N_ACCUMULATOR_FORMS; i++)
        sheet_deinit(&f->sheets[i]);
    for (size_t i = 0; i < f->n_long; i++)
        nd_experiment_end(&f->longer[i].asked);
}
