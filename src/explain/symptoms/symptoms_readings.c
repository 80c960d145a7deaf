/* Wrong types of floats: the bytes of one side, read as another type of the same size, are what the other side
 * has. */
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "explain/symptoms/symptoms.h"

static const enum nd_dtype types[] = {ND_DTYPE_F32,    ND_DTYPE_F16, ND_DTYPE_BF16, ND_DTYPE_F8E4M3FN,
                                      ND_DTYPE_F8E5M2, ND_DTYPE_U8,  ND_DTYPE_I8,   ND_DTYPE_U16,
                                      ND_DTYPE_I16,    ND_DTYPE_U32, ND_DTYPE_I32};

static void say(const struct nd_diagnose_side *wrong, bool is_test, enum nd_dtype dtype,
                struct nd_findings *found)
{
    const char *called = nd_dtype_name(nd_capture_edge(wrong->capture, wrong->edge)->dtype);
    struct nd_finding f = {.kind = ND_FAULT_WRONG_TYPE, .channel = SIZE_MAX, .axis = -1, .explained = 1};
    snprintf(f.text, sizeof f.text, "%scalled %s, but the bytes are %s: read so the values are the %s",
             is_test ? "" : "the reference's are ", called, nd_dtype_name(dtype),
             is_test ? "reference's" : "test's");
    *found = (struct nd_findings){.n = 1, .n_gross = 1, .far_share = found->far_share, .items = {f}};
}

/* The side's values as they are called, and those of the other side. */
struct values {
    const double *own, *right;
    size_t n;
    bool is_test;
};

static enum nd_status try_side(const struct nd_diagnose_side *side, const struct values *v,
                               struct nd_findings *found, struct nd_error *err)
{
    enum nd_dtype called = nd_capture_edge(side->capture, side->edge)->dtype;
    if (!nd_values_may_be_mislabelled(v->right, v->own, v->n))
        return ND_OK;
    double *x = nd_calloc(v->n, sizeof *x);
    enum nd_status status = x != NULL ? ND_OK : nd_fail_memory(err);
    bool is_found = false;
    for (size_t t = 0; t < sizeof types / sizeof types[0] && status == ND_OK && !is_found; t++) {
        bool is_other = types[t] != called && nd_dtype_size_bytes(types[t]) == nd_dtype_size_bytes(called);
        /* Integers beside integers: compare's own labels say it. */
        if (!is_other || (!nd_dtype_is_float(types[t]) && !nd_dtype_is_float(called)))
            continue;
        status = nd_diagnose_read_as(side, types[t], x, err);
        is_found = status == ND_OK && nd_values_is_reading(v->right, x, v->n);
        if (is_found)
            say(side, v->is_test, types[t], found);
    }
    free(x);
    return status;
}

enum nd_status nd_diagnose_readings(const struct nd_diagnose_side sides[2], const double *ref,
                                    const double *test, size_t n, struct nd_findings *found,
                                    struct nd_error *err)
{
    enum nd_status status = try_side(&sides[1], &(struct values){test, ref, n, true}, found, err);
    bool is_found = found->n > 0 && found->items[0].kind == ND_FAULT_WRONG_TYPE;
    return status == ND_OK && !is_found ? try_side(&sides[0], &(struct values){ref, test, n, false}, found, err)
                                        : status;
}
