/* Asking a device for grids, and holding the programs that these leave against fresh pairs. */
#include "fingerprint/elementwise.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fingerprint/fresh.h"

enum { MOST_GRIDS = ND_ELEMENTWISE_GRIDS + 10, SIDE = 256 };

static enum nd_status compose(const struct nd_elementwise_scales *s, const struct nd_shape *shape,
                              struct nd_compose **out, struct nd_error *err)
{
    float scales[3] = {s->s1, s->s2, s->sy};
    int64_t zeros[3] = {s->z1, s->z2, s->zy};
    struct nd_quant quants[3];
    for (size_t i = 0; i < 3; i++)
        quants[i] = (struct nd_quant){.n = 1, .axis = -1, .scale = &scales[i], .zero_point = &zeros[i]};
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(21, &c, err);
    if (status != ND_OK)
        return status;
    nd_compose_input(c, "a", ND_DTYPE_U8, shape);
    nd_compose_input(c, "b", ND_DTYPE_U8, shape);
    nd_compose_dequantize(c, "a", "a_real", &quants[0], ND_DTYPE_U8);
    nd_compose_dequantize(c, "b", "b_real", &quants[1], ND_DTYPE_U8);
    nd_compose_node(c, nd_elementwise_op_name(s->op), (const char *[]){"a_real", "b_real", NULL}, "result");
    nd_compose_quantize(c, "result", "y", &quants[2], ND_DTYPE_U8);
    nd_compose_output(c, "y", ND_DTYPE_U8, shape);
    *out = c;
    return ND_OK;
}

/* The codes of pairs (a, b) [256][columns]: *codes is freed by the caller, and NULL where the device failed. */
static enum nd_status ask(struct nd_bench *bench, const struct nd_elementwise_scales *s, int64_t columns,
                          const uint8_t *a, const uint8_t *b, struct nd_elementwise_fingerprint *out,
                          uint8_t **codes, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 2, .dims = {SIDE, columns}};
    const struct nd_trial_input inputs[] = {{"a", ND_DTYPE_U8, shape, a}, {"b", ND_DTYPE_U8, shape, b}};
    struct nd_compose *model = NULL;
    struct nd_trial_result result;
    enum nd_status status = compose(s, &shape, &model, err);
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 2, .inputs = inputs};
    *codes = NULL;
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, &result, err);
    nd_compose_destroy(&model);
    if (status != ND_OK)
        return status;
    memcpy(out->provider, result.provider, sizeof out->provider);
    out->has_failed = result.has_failed;
    if (result.has_failed) {
        out->failure = result;
        return ND_OK;
    }
    out->is_on_npu = out->is_on_npu && result.is_on_npu;
    *codes = nd_calloc(result.n, 1);
    if (*codes == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < result.n; i++)
        (*codes)[i] = (uint8_t)result.x[i];
    nd_trial_deinit(&result);
    return status;
}

struct grids {
    struct nd_elementwise_grid items[MOST_GRIDS];
    size_t n;
};

static enum nd_status ask_grid(struct nd_bench *bench, const struct nd_elementwise_scales *s,
                               struct grids *grids, struct nd_elementwise_fingerprint *out,
                               struct nd_error *err)
{
    uint8_t *a = nd_calloc(ND_ELEMENTWISE_CODES, 1), *b = nd_calloc(ND_ELEMENTWISE_CODES, 1), *codes = NULL;
    enum nd_status status = a != NULL && b != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < ND_ELEMENTWISE_CODES; i++) {
        a[i] = (uint8_t)(i / SIDE);
        b[i] = (uint8_t)(i % SIDE);
    }
    if (status == ND_OK)
        status = ask(bench, s, SIDE, a, b, out, &codes, err);
    if (status == ND_OK && codes != NULL)
        grids->items[grids->n++] = (struct nd_elementwise_grid){*s, codes};
    free(a);
    free(b);
    return status;
}

static enum nd_status solve(const struct grids *grids, struct nd_elementwise_fingerprint *out,
                            struct nd_error *err)
{
    nd_elementwise_findings_deinit(&out->found);
    out->n_grids = grids->n;
    return nd_elementwise_solve(grids->items, grids->n, &out->found, err);
}

/* Chained, so that it can be taken grid by grid. */
static void digest(struct nd_elementwise_fingerprint *out, const uint8_t *codes)
{
    struct nd_digest parts[2] = {out->answers, nd_digest_bytes(codes, ND_ELEMENTWISE_CODES)};
    out->answers = nd_digest_bytes(parts, sizeof parts);
}

static enum nd_status ask_chosen(struct nd_bench *bench, struct grids *grids,
                                 struct nd_elementwise_fingerprint *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < ND_ELEMENTWISE_GRIDS; i++) {
        struct nd_elementwise_scales s = nd_elementwise_choose(out->op, i);
        status = ask_grid(bench, &s, grids, out, err);
        if (status == ND_OK && !out->has_failed)
            digest(out, grids->items[i].codes);
    }
    return status == ND_OK && !out->has_failed ? solve(grids, out, err) : status;
}

/* More grids while programs are left that these tell apart; one that told nothing apart is followed by few
 * others. */
static enum nd_status ask_more(struct nd_bench *bench, struct grids *grids,
                               struct nd_elementwise_fingerprint *out, struct nd_error *err)
{
    enum { PATIENCE = 3 };
    uint64_t seed = 80;
    enum nd_status status = ND_OK;
    int n_idle = 0;
    struct nd_elementwise_scales s;
    while (status == ND_OK && !out->has_failed && grids->n < MOST_GRIDS && n_idle < PATIENCE &&
           out->found.n_programs > 1 && nd_elementwise_next(out->op, &out->found, &seed, &s)) {
        size_t before = out->found.n_programs;
        status = ask_grid(bench, &s, grids, out, err);
        if (status == ND_OK && !out->has_failed)
            status = solve(grids, out, err);
        n_idle = out->found.n_programs < before ? 0 : n_idle + 1;
    }
    return status;
}

/* ---- fresh codes ---- */

enum { FRESH_COLUMNS = 64, N_FRESH = SIDE * FRESH_COLUMNS, N_FRESH_MODELS = 8 };

static enum nd_status ask_fresh(struct nd_bench *bench, uint64_t *seed, struct nd_elementwise_fingerprint *out,
                                uint64_t *n_right, struct nd_error *err)
{
    struct nd_elementwise_scales s = nd_elementwise_draw(out->op, seed);
    uint8_t *a = nd_calloc(N_FRESH, 1), *b = nd_calloc(N_FRESH, 1), *codes = NULL;
    enum nd_status status = a != NULL && b != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < N_FRESH; i++) {
        a[i] = (uint8_t)nd_random_next(seed);
        b[i] = (uint8_t)nd_random_next(seed);
    }
    if (status == ND_OK)
        status = ask(bench, &s, FRESH_COLUMNS, a, b, out, &codes, err);
    if (status == ND_OK && codes != NULL) {
        out->n_fresh += N_FRESH;
        for (size_t p = 0; p < out->found.n_programs; p++) {
            struct nd_elementwise_ready r;
            if (!nd_elementwise_prepare(&out->found.programs[p], &s, &r))
                continue;
            for (size_t i = 0; i < N_FRESH; i++)
                n_right[p] += nd_elementwise_code(&r, a[i], b[i]) == codes[i];
        }
    }
    free(a);
    free(b);
    free(codes);
    return status;
}

static enum nd_status confirm(struct nd_bench *bench, struct nd_elementwise_fingerprint *out,
                              struct nd_error *err)
{
    uint64_t seed = 20261122, *n_right = nd_calloc(out->found.n_programs, sizeof *n_right);
    enum nd_status status = n_right != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && !out->has_failed && i < N_FRESH_MODELS; i++)
        status = ask_fresh(bench, &seed, out, n_right, err);
    if (status == ND_OK && !out->has_failed)
        out->found.n_programs = nd_fresh_keep_best(out->found.programs, sizeof *out->found.programs,
                                                   out->found.n_programs, n_right, &out->n_right);
    free(n_right);
    return status;
}

enum nd_status nd_elementwise_take(struct nd_bench *bench, enum nd_elementwise_op op,
                                   struct nd_elementwise_fingerprint *out, struct nd_error *err)
{
    struct nd_elementwise_fingerprint f = {.op = op, .is_on_npu = true};
    struct grids grids = {.n = 0};
    enum nd_status status = ask_chosen(bench, &grids, &f, err);
    if (status == ND_OK && !f.has_failed)
        status = ask_more(bench, &grids, &f, err);
    if (status == ND_OK && !f.has_failed && f.found.n_programs > 0)
        status = confirm(bench, &f, err);
    for (size_t i = 0; i < grids.n; i++)
        free((void *)(uintptr_t)grids.items[i].codes);
    if (status == ND_OK)
        *out = f;
    else
        nd_elementwise_deinit(&f);
    return status;
}

void nd_elementwise_deinit(struct nd_elementwise_fingerprint *f)
{
    nd_trial_deinit(&f->failure);
    nd_elementwise_findings_deinit(&f->found);
}
