#include "fingerprint/accumulator_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { CONFIRM_SEED = 20261123 };

const char *nd_accumulator_form_operator(enum nd_accumulator_form form)
{
    return form == ND_ACCUMULATOR_CONV ? "Conv" : "MatMul";
}

/* ---- models ---- */

/* n_rows products of n_terms terms. */
struct products {
    enum nd_accumulator_form form;
    int64_t n_rows, n_terms;
    const float *w; /* [n_terms] */
    const float *x; /* [n_rows][n_terms] */
};

static struct nd_shape shape_of_x(const struct products *p)
{
    if (p->form == ND_ACCUMULATOR_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, p->n_terms, 1, p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_rows, p->n_terms}};
}

static struct nd_shape shape_of_w(const struct products *p)
{
    if (p->form == ND_ACCUMULATOR_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, p->n_terms, 1, 1}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_terms, 1}};
}

static struct nd_shape shape_of_y(const struct products *p)
{
    if (p->form == ND_ACCUMULATOR_CONV)
        return (struct nd_shape){.rank = 4, .dims = {1, 1, 1, p->n_rows}};
    return (struct nd_shape){.rank = 2, .dims = {p->n_rows, 1}};
}

static enum nd_status compose(const struct products *p, struct nd_compose **out, struct nd_error *err)
{
    const struct nd_shape x = shape_of_x(p), w = shape_of_w(p), y = shape_of_y(p);
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(21, &c, err);
    if (status != ND_OK)
        return status;
    nd_compose_input(c, "x", ND_DTYPE_F32, &x);
    if (p->form == ND_ACCUMULATOR_MATMUL_OF_INPUTS)
        nd_compose_input(c, "w", ND_DTYPE_F32, &w);
    else
        nd_compose_constant(c, "w", ND_DTYPE_F32, &w, p->w);
    nd_compose_node(c, nd_accumulator_form_operator(p->form), (const char *[]){"x", "w", NULL}, "y");
    nd_compose_output(c, "y", ND_DTYPE_F32, &y);
    *out = c;
    return ND_OK;
}

/* x as the operator has it: of a convolution with its rows along the last axis; freed by the caller. NULL: out
 * of memory. */
static float *arrange(const struct products *p)
{
    size_t n_rows = (size_t)p->n_rows, n_terms = (size_t)p->n_terms;
    float *fed = nd_calloc(n_rows * n_terms, sizeof *fed);
    if (fed == NULL)
        return NULL;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_terms; t++)
            fed[p->form == ND_ACCUMULATOR_CONV ? t * n_rows + r : r * n_terms + t] = p->x[r * n_terms + t];
    return fed;
}

static void note(struct nd_accumulator_asked *asked, struct nd_trial_result *result)
{
    asked->is_on_npu = asked->is_on_npu && result->is_on_npu;
    memcpy(asked->provider, result->provider, sizeof asked->provider);
    if (!result->has_failed)
        return;
    asked->has_failed = true;
    nd_trial_deinit(&asked->failure);
    asked->failure = *result;
    *result = (struct nd_trial_result){0};
}

/* y [n_rows], where the device did not fail. */
static enum nd_status run(struct nd_bench *bench, const struct products *p, struct nd_accumulator_asked *asked,
                          float *y, struct nd_error *err)
{
    struct nd_compose *model = NULL;
    struct nd_trial_result result = {0};
    float *fed = arrange(p);
    enum nd_status status = fed != NULL ? compose(p, &model, err) : nd_fail_memory(err);
    const struct nd_trial_input inputs[] = {{"x", ND_DTYPE_F32, shape_of_x(p), fed},
                                            {"w", ND_DTYPE_F32, shape_of_w(p), p->w}};
    const struct nd_trial trial = {.model = model,
                                   .output = "y",
                                   .n_samples = 1,
                                   .n_inputs = p->form == ND_ACCUMULATOR_MATMUL_OF_INPUTS ? 2 : 1,
                                   .inputs = inputs};
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, &result, err);
    if (status == ND_OK)
        note(asked, &result);
    if (status == ND_OK && !asked->has_failed && result.n != (size_t)p->n_rows)
        status = nd_fail(err, ND_E_DEVICE_OUTPUT, "y", "%zu products came out of a model of %zu", result.n,
                         (size_t)p->n_rows);
    if (status == ND_OK && !asked->has_failed)
        for (size_t i = 0; i < result.n; i++)
            y[i] = (float)result.x[i];
    nd_trial_deinit(&result);
    nd_compose_destroy(&model);
    free(fed);
    return status;
}

/* ---- the battery ---- */

/* Chained over the blocks. */
static void digest(struct nd_accumulator_sheet *sheet, const float *outputs, size_t n)
{
    struct nd_digest parts[2] = {sheet->answers, nd_digest_bytes(outputs, n * sizeof *outputs)};
    sheet->answers = nd_digest_bytes(parts, sizeof parts);
}

static bool has_answers(const struct nd_accumulator_asked *asked)
{
    return !asked->has_failed && asked->is_on_npu;
}

static enum nd_status ask_battery(struct nd_bench *bench, enum nd_accumulator_form form,
                                  struct nd_accumulator_sheet *sheet, struct nd_error *err)
{
    struct nd_accumulator_battery battery;
    float *outputs[ND_BATTERY_BLOCKS] = {NULL};
    enum nd_status status = nd_accumulator_battery_init(&battery, err);
    if (status != ND_OK)
        return status;
    for (size_t b = 0; status == ND_OK && has_answers(&sheet->asked) && b < ND_BATTERY_BLOCKS; b++) {
        const struct nd_accumulator_block *block = &battery.blocks[b];
        const struct products p = {form, (int64_t)block->n_rows, ND_BATTERY_TERMS, block->w, block->x};
        outputs[b] = nd_calloc(block->n_rows, sizeof *outputs[b]);
        status = outputs[b] != NULL ? run(bench, &p, &sheet->asked, outputs[b], err) : nd_fail_memory(err);
        if (status == ND_OK && has_answers(&sheet->asked))
            digest(sheet, outputs[b], block->n_rows);
    }
    const float *const borrowed[] = {outputs[0], outputs[1]};
    if (status == ND_OK && has_answers(&sheet->asked))
        status = nd_accumulator_identify(&battery, borrowed, NULL, 0, &sheet->found, err);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(outputs[b]);
    nd_accumulator_battery_deinit(&battery);
    return status;
}

/* ---- random products ---- */

struct asking {
    struct nd_bench *bench;
    enum nd_accumulator_form form;
    struct nd_accumulator_asked *asked;
};

/* A nd_accumulator_device. One that fails ends what asks it: that is no error of the bench. */
static enum nd_status answer(void *context, const float w[ND_BATTERY_TERMS], const float *x, size_t n_rows,
                             float *out, struct nd_error *err)
{
    const struct asking *asking = context;
    const struct products p = {asking->form, (int64_t)n_rows, ND_BATTERY_TERMS, w, x};
    enum nd_status status = run(asking->bench, &p, asking->asked, out, err);
    if (status == ND_OK && asking->asked->has_failed)
        status = nd_fail(err, ND_E_RUNTIME_CALL, "y", "%s", asking->asked->failure.failure.message);
    return status;
}

static enum nd_status confirm(struct nd_bench *bench, enum nd_accumulator_form form, uint64_t n_vectors,
                              struct nd_accumulator_sheet *sheet, struct nd_error *err)
{
    struct asking asking = {bench, form, &sheet->asked};
    enum nd_status status =
        nd_accumulator_confirm(&sheet->found, answer, &asking, n_vectors, CONFIRM_SEED, err);
    return sheet->asked.has_failed ? ND_OK : status;
}

/* ---- forms ---- */

static void sheet_deinit(struct nd_accumulator_sheet *sheet)
{
    nd_trial_deinit(&sheet->asked.failure);
    nd_accumulator_findings_deinit(&sheet->found);
    *sheet = (struct nd_accumulator_sheet){.asked.is_on_npu = true};
}

static enum nd_status take_form(struct nd_bench *bench, enum nd_accumulator_form form, uint64_t n_vectors,
                                struct nd_accumulator_sheet *sheet, struct nd_error *err)
{
    sheet_deinit(sheet);
    enum nd_status status = ask_battery(bench, form, sheet, err);
    if (status == ND_OK && has_answers(&sheet->asked) && sheet->found.n > 0)
        status = confirm(bench, form, n_vectors, sheet, err);
    return status;
}

/* The random products of another form by the accumulators of MatMul. */
static enum nd_status try_as_matmul(struct nd_bench *bench, enum nd_accumulator_form form, uint64_t n_vectors,
                                    const struct nd_accumulator_findings *found,
                                    struct nd_accumulator_sheet *sheet, struct nd_error *err)
{
    struct nd_accumulator *items = nd_calloc(found->n, sizeof *items);
    if (items == NULL)
        return nd_fail_memory(err);
    memcpy(items, found->items, found->n * sizeof *items);
    sheet_deinit(sheet);
    sheet->found = *found;
    sheet->found.items = items;
    sheet->found.n_confirmed = sheet->found.n_failed = 0;
    enum nd_status status = confirm(bench, form, n_vectors, sheet, err);
    sheet->is_as_matmul = !has_answers(&sheet->asked) || sheet->found.n_failed == 0;
    return status;
}

static enum nd_status take_other_form(struct nd_bench *bench, enum nd_accumulator_form form, uint64_t n_vectors,
                                      struct nd_accumulator_fingerprint *f, struct nd_error *err)
{
    const struct nd_accumulator_findings *found = &f->sheets[ND_ACCUMULATOR_MATMUL].found;
    struct nd_accumulator_sheet *sheet = &f->sheets[form];
    enum nd_status status = ND_OK;
    if (found->n > 0 && found->n_failed == 0)
        status = try_as_matmul(bench, form, n_vectors, found, sheet, err);
    if (status == ND_OK && !sheet->is_as_matmul)
        status = take_form(bench, form, n_vectors, sheet, err);
    return status;
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

static enum nd_status ask_long(struct nd_bench *bench, bool is_one_up, struct nd_accumulator_long *out,
                               struct nd_error *err)
{
    float y[N_LONG_ROWS] = {0};
    float *w = nd_calloc(out->n_terms, sizeof *w), *x = nd_calloc(N_LONG_ROWS * out->n_terms, sizeof *x);
    enum nd_status status = w != NULL && x != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        for (size_t t = 0; t < out->n_terms; t++)
            w[t] = 1;
        fill_long(x, out->n_terms);
        const struct products p = {ND_ACCUMULATOR_MATMUL, N_LONG_ROWS, (int64_t)out->n_terms, w, x};
        status = run(bench, &p, &out->asked, y, err);
    }
    for (size_t i = 0; status == ND_OK && !out->asked.has_failed && i < N_LONG_ROWS; i++) {
        float undone = y[i];
        if (is_one_up && !nd_accumulator_undo_one_up(&y[i], 1, &undone))
            undone = y[i];
        out->n++;
        out->n_whole += undone == (float)(out->n_terms - 2) * 0x1p-14F;
    }
    free(w);
    free(x);
    return status;
}

/* Up to the first that the device does not give whole. */
static enum nd_status ask_longer(struct nd_bench *bench, struct nd_accumulator_fingerprint *f,
                                 struct nd_error *err)
{
    /* The sums of units are half precision numbers. */
    static const size_t sizes[ND_N_ACCUMULATOR_LONG] = {64, 512, 4096};
    enum nd_status status = ND_OK;
    bool is_whole = true;
    for (size_t i = 0; status == ND_OK && is_whole && i < ND_N_ACCUMULATOR_LONG; i++) {
        struct nd_accumulator_long *l = &f->longer[f->n_long++];
        *l = (struct nd_accumulator_long){.n_terms = sizes[i], .asked.is_on_npu = true};
        status = ask_long(bench, f->sheets[ND_ACCUMULATOR_MATMUL].found.readings.is_one_up, l, err);
        is_whole = has_answers(&l->asked) && l->n_whole == l->n;
    }
    return status;
}

/* ---- all of it ---- */

static enum nd_status take(struct nd_bench *bench, uint64_t n_vectors, struct nd_accumulator_fingerprint *f,
                           struct nd_error *err)
{
    const struct nd_accumulator_sheet *first = &f->sheets[ND_ACCUMULATOR_MATMUL];
    enum nd_status status =
        take_form(bench, ND_ACCUMULATOR_MATMUL, n_vectors, &f->sheets[ND_ACCUMULATOR_MATMUL], err);
    f->n_sheets = 1;
    if (status != ND_OK || !has_answers(&first->asked))
        return status;
    for (; status == ND_OK && f->n_sheets < ND_N_ACCUMULATOR_FORMS; f->n_sheets++)
        status = take_other_form(bench, (enum nd_accumulator_form)f->n_sheets, n_vectors, f, err);
    if (status == ND_OK && first->found.readings.exact_block == ND_BATTERY_TERMS)
        status = ask_longer(bench, f, err);
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
    for (size_t i = 0; i < ND_N_ACCUMULATOR_LONG; i++)
        nd_trial_deinit(&f->longer[i].asked.failure);
}
