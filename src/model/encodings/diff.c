#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/encodings/building.h"

/* The zero point counted from the lowest quantised value, which does not depend on whether quantised values are
 * signed. */
static int64_t zero_from_low(const struct nd_encoding *item, size_t i)
{
    size_t at = item->quant.n == 1 ? 0 : i;
    int64_t low = nd_dtype_is_signed_integer(item->dtype) ? -((int64_t)1 << (item->bits - 1)) : 0;
    return item->quant.zero_point[at] - low;
}

static double scale_of(const struct nd_encoding *item, size_t i)
{
    return (double)item->quant.scale[item->quant.n == 1 ? 0 : i];
}

static void compare_numbers(struct nd_encoding_difference *d, double rtol)
{
    size_t n_ref = d->ref->quant.n, n_test = d->test->quant.n, n = n_ref > n_test ? n_ref : n_test;
    d->is_same = n_ref == n_test && d->ref->bits == d->test->bits;
    d->min_ratio = INFINITY;
    d->largest_ratio = 0;
    for (size_t i = 0; i < n; i++) {
        double ref = scale_of(d->ref, i), test = scale_of(d->test, i), ratio = test / ref;
        int64_t zero = zero_from_low(d->test, i) - zero_from_low(d->ref, i);
        d->min_ratio = ratio < d->min_ratio ? ratio : d->min_ratio;
        d->largest_ratio = ratio > d->largest_ratio ? ratio : d->largest_ratio;
        if (llabs(zero) > llabs(d->zero_point_difference))
            d->zero_point_difference = zero;
        d->is_same = d->is_same && zero == 0 && fabs(test - ref) <= rtol * ref;
    }
}

static struct nd_encoding_difference compare_pair(const struct nd_encoding *ref, const struct nd_encoding *test,
                                                  double rtol)
{
    struct nd_encoding_difference d = {
        .ref = ref, .test = test, .min_ratio = (double)NAN, .largest_ratio = (double)NAN};
    if (ref == NULL || test == NULL)
        return d;
    if (ref->unhandled != NULL || test->unhandled != NULL) {
        d.is_same =
            ref->unhandled != NULL && test->unhandled != NULL && strcmp(ref->unhandled, test->unhandled) == 0;
        return d;
    }
    d.is_comparable = ref->quant.n == test->quant.n || ref->quant.n == 1 || test->quant.n == 1;
    if (d.is_comparable)
        compare_numbers(&d, rtol);
    return d;
}

static void append(struct nd_encodings_diff *diff, const struct nd_encoding *ref,
                   const struct nd_encoding *test, double rtol)
{
    struct nd_encoding_difference *item = &diff->items[diff->n_items++];
    *item = compare_pair(ref, test, rtol);
    if (test == NULL)
        diff->n_only_ref++;
    else if (ref == NULL)
        diff->n_only_test++;
    else if (item->is_same)
        diff->n_same++;
    else
        diff->n_different++;
}

enum nd_status nd_encodings_compare(const struct nd_encodings *ref, const struct nd_encodings *test,
                                    double rtol, struct nd_encodings_diff *out, struct nd_error *err)
{
    size_t n;
    struct nd_encodings_diff diff = {0};
    if (!nd_size_add(ref->n, test->n, &n))
        return nd_fail_memory(err);
    diff.items = nd_calloc(n, sizeof *diff.items);
    if (diff.items == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < ref->n; i++) {
        size_t other = nd_encodings_find(test, ref->items[i].name);
        append(&diff, &ref->items[i], other != SIZE_MAX ? &test->items[other] : NULL, rtol);
    }
    for (size_t i = 0; i < test->n; i++)
        if (nd_encodings_find(ref, test->items[i].name) == SIZE_MAX)
            append(&diff, NULL, &test->items[i], rtol);
    *out = diff;
    return ND_OK;
}

void nd_encodings_diff_deinit(struct nd_encodings_diff *diff)
{
    free(diff->items);
    *diff = (struct nd_encodings_diff){0};
}
