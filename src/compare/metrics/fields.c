#include "compare/metrics/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

static const size_t sizes[] = {
    [ND_METRIC_FIELD_COUNT] = sizeof(uint64_t),
    [ND_METRIC_FIELD_MAX] = sizeof(uint64_t),
    [ND_METRIC_FIELD_REAL_MAX] = sizeof(double),
    [ND_METRIC_FIELD_REAL_MIN] = sizeof(double),
    [ND_METRIC_FIELD_SUM] = sizeof(struct nd_exact_sum),
    [ND_METRIC_FIELD_HISTOGRAM] = sizeof(struct nd_log_histogram),
    [ND_METRIC_FIELD_FIRST] = sizeof(struct nd_first),
    [ND_METRIC_FIELD_STRIDE] = sizeof(struct nd_stride),
    [ND_METRIC_FIELD_BITSET] = sizeof(struct nd_bitset),
    [ND_METRIC_FIELD_WORST] = sizeof(struct nd_worst_list),
};

size_t nd_field_count(const struct nd_metric_field *field)
{
    return field->n > 0 ? field->n : 1;
}

size_t nd_field_offset(const struct nd_metric_field *field, size_t i)
{
    return field->offset + i * sizes[field->kind];
}

void nd_fields_init(const struct nd_metric_field *fields, size_t n, void *state)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < nd_field_count(&fields[f]); i++) {
            char *at = (char *)state + nd_field_offset(&fields[f], i);
            double real = fields[f].kind == ND_METRIC_FIELD_REAL_MIN ? INFINITY : -INFINITY;
            if (fields[f].kind == ND_METRIC_FIELD_REAL_MIN || fields[f].kind == ND_METRIC_FIELD_REAL_MAX)
                memcpy(at, &real, sizeof real);
        }
}

void nd_fields_deinit(const struct nd_metric_field *fields, size_t n, void *state)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < nd_field_count(&fields[f]); i++) {
            void *at = (char *)state + nd_field_offset(&fields[f], i);
            if (fields[f].kind == ND_METRIC_FIELD_HISTOGRAM)
                nd_log_histogram_deinit(at);
            else if (fields[f].kind == ND_METRIC_FIELD_BITSET)
                free(((struct nd_bitset *)at)->words);
            else if (fields[f].kind == ND_METRIC_FIELD_WORST)
                free(((struct nd_worst_list *)at)->items);
        }
}

bool nd_place_is_before(const struct nd_difference_place *a, const struct nd_difference_place *b)
{
    if (a->probe != b->probe)
        return a->probe < b->probe;
    return a->sample != b->sample ? a->sample < b->sample : a->index < b->index;
}

void nd_first_note(struct nd_first *first, struct nd_first candidate)
{
    if (!candidate.is_set)
        return;
    const struct nd_difference_place old = {.probe = first->probe,
                                            .sample = first->sample,
                                            .index = first->index},
                                     new = {.probe = candidate.probe,
                                            .sample = candidate.sample,
                                            .index = candidate.index};
    if (!first->is_set || nd_place_is_before(&new, &old))
        *first = candidate;
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void nd_stride_add(struct nd_stride *stride, uint64_t position)
{
    if (!stride->is_set) {
        *stride = (struct nd_stride){true, position, position, 0};
        return;
    }
    uint64_t distance = position > stride->first ? position - stride->first : stride->first - position;
    if (stride->divisor != 1)
        stride->divisor = greatest_divisor(distance, stride->divisor);
    stride->first = position < stride->first ? position : stride->first;
    stride->last = position > stride->last ? position : stride->last;
}

/* All distances within `other` are multiples of its divisor, so one of its positions stands for all. */
static void merge_stride(struct nd_stride *stride, const struct nd_stride *other)
{
    if (!other->is_set)
        return;
    uint64_t divisor = other->divisor;
    nd_stride_add(stride, other->first);
    nd_stride_add(stride, other->last);
    stride->divisor = greatest_divisor(stride->divisor, divisor);
}

bool nd_bitset_reserve(struct nd_bitset *set, size_t n_bits)
{
    if (set->n_bits >= n_bits)
        return true;
    set->words = nd_calloc((n_bits + 63) / 64, sizeof *set->words); /* it only ever grows from nothing */
    if (set->words == NULL)
        return false;
    set->n_bits = n_bits;
    return true;
}

static bool merge_bitset(struct nd_bitset *set, const struct nd_bitset *other)
{
    if (other->n_bits == 0)
        return true;
    if (!nd_bitset_reserve(set, other->n_bits))
        return false;
    for (size_t i = 0; i < other->n_bits; i++)
        if (other->words[i / 64] >> (i % 64) & 1)
            nd_bitset_add(set, i);
    return true;
}

static bool is_mismatch(const struct nd_worst *item)
{
    return !isfinite(item->ref_real) || !isfinite(item->test_real);
}

/* An error that overflows is as infinite as that of a mismatch, but comes after it. */
static bool is_worse(const struct nd_worst *a, const struct nd_worst *b)
{
    if (is_mismatch(a) != is_mismatch(b))
        return is_mismatch(a);
    return a->abs_error != b->abs_error ? a->abs_error > b->abs_error
                                        : nd_place_is_before(&a->place, &b->place);
}

void nd_worst_offer(struct nd_worst_list *list, const struct nd_worst *item)
{
    size_t at = list->n;
    while (at > 0 && is_worse(item, &list->items[at - 1]))
        at--;
    if (at == list->capacity)
        return;
    list->n += list->n < list->capacity;
    memmove(&list->items[at + 1], &list->items[at], (list->n - 1 - at) * sizeof *list->items);
    list->items[at] = *item;
}

/* False when out of memory. */
static bool merge_field(enum nd_metric_field_kind kind, void *at, const void *other)
{
    uint64_t *whole = at;
    double *real = at;
    const struct nd_worst_list *worst = other;
    switch (kind) {
    case ND_METRIC_FIELD_COUNT:
        *whole += *(const uint64_t *)other;
        break;
    case ND_METRIC_FIELD_MAX:
        *whole = *whole > *(const uint64_t *)other ? *whole : *(const uint64_t *)other;
        break;
    case ND_METRIC_FIELD_REAL_MAX:
        *real = *real > *(const double *)other ? *real : *(const double *)other;
        break;
    case ND_METRIC_FIELD_REAL_MIN:
        *real = *real < *(const double *)other ? *real : *(const double *)other;
        break;
    case ND_METRIC_FIELD_SUM:
        nd_exact_merge(at, other);
        break;
    case ND_METRIC_FIELD_HISTOGRAM:
        nd_log_histogram_merge(at, other);
        return !((struct nd_log_histogram *)at)->failed;
    case ND_METRIC_FIELD_FIRST:
        nd_first_note(at, *(const struct nd_first *)other);
        break;
    case ND_METRIC_FIELD_STRIDE:
        merge_stride(at, other);
        break;
    case ND_METRIC_FIELD_BITSET:
        return merge_bitset(at, other);
    case ND_METRIC_FIELD_WORST:
        for (size_t i = 0; i < worst->n; i++)
            nd_worst_offer(at, &worst->items[i]);
        break;
    }
    return true;
}

enum nd_status nd_fields_merge(const struct nd_metric_field *fields, size_t n, void *state, const void *other,
                               struct nd_error *err)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < nd_field_count(&fields[f]); i++) {
            size_t offset = nd_field_offset(&fields[f], i);
            if (!merge_field(fields[f].kind, (char *)state + offset, (const char *)other + offset))
                return nd_fail_memory(err);
        }
    return ND_OK;
}
