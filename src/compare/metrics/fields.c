/* The fields of states of metrics: empty, merged without an order, written to parts and read from them.
 * docs/reference/metrics.md#parts. */
#include "compare/metrics/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

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

/* Entries of the field, and where entry i lies in the state. */
static size_t field_count(const struct nd_metric_field *field)
{
    return field->n > 0 ? field->n : 1;
}

static size_t field_offset(const struct nd_metric_field *field, size_t i)
{
    return field->offset + i * sizes[field->kind];
}

void nd_fields_init(const struct nd_metric_field *fields, size_t n, void *state)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < field_count(&fields[f]); i++) {
            char *at = (char *)state + field_offset(&fields[f], i);
            double real = fields[f].kind == ND_METRIC_FIELD_REAL_MIN ? INFINITY : -INFINITY;
            if (fields[f].kind == ND_METRIC_FIELD_REAL_MIN || fields[f].kind == ND_METRIC_FIELD_REAL_MAX)
                memcpy(at, &real, sizeof real);
        }
}

void nd_fields_deinit(const struct nd_metric_field *fields, size_t n, void *state)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < field_count(&fields[f]); i++) {
            void *at = (char *)state + field_offset(&fields[f], i);
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
        for (size_t i = 0; i < field_count(&fields[f]); i++) {
            size_t offset = field_offset(&fields[f], i);
            ND_TRY_MEMORY(merge_field(fields[f].kind, (char *)state + offset, (const char *)other + offset),
                          err);
        }
    return ND_OK;
}

/* The text form of states, for the parts of a comparison: words with a space before each. Doubles are
 * hexadecimal, so that every bit comes back. */

static void put_count(struct nd_strbuf *out, uint64_t value)
{
    nd_strbuf_printf(out, " %" PRIu64, value);
}

static void put_real(struct nd_strbuf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    nd_strbuf_printf(out, " %016" PRIx64, bits);
}

static void put_text(struct nd_strbuf *out, char *text)
{
    nd_strbuf_printf(out, " %s", text != NULL ? text : "");
    out->failed = out->failed || text == NULL;
    free(text);
}

/* "64:0-3,7" : 64 bits of which 0 to 3 and 7 are set. */
static void put_bitset(struct nd_strbuf *out, const struct nd_bitset *set)
{
    const char *separator = ":";
    nd_strbuf_printf(out, " %zu", set->n_bits);
    for (size_t i = 0; i < set->n_bits;) {
        size_t first = i;
        while (i < set->n_bits && set->words[i / 64] >> (i % 64) & 1)
            i++;
        if (i > first) {
            nd_strbuf_printf(out, "%s%zu-%zu", separator, first, i - 1);
            separator = ",";
        }
        i++;
    }
}

static void put_worst(struct nd_strbuf *out, const struct nd_worst_list *list)
{
    put_count(out, list->n);
    for (size_t i = 0; i < list->n; i++) {
        const struct nd_worst *item = &list->items[i];
        put_count(out, item->place.probe);
        put_count(out, item->place.sample);
        put_count(out, item->place.index);
        for (size_t d = 0; d < ND_MAX_RANK; d++)
            put_count(out, (uint64_t)item->place.coordinates[d]);
        put_real(out, item->abs_error);
        put_real(out, item->ref);
        put_real(out, item->test);
        put_real(out, item->ref_real);
        put_real(out, item->test_real);
    }
}

static void put_field(struct nd_strbuf *out, enum nd_metric_field_kind kind, const void *at)
{
    const struct nd_first *first = at;
    const struct nd_stride *stride = at;
    switch (kind) {
    case ND_METRIC_FIELD_COUNT:
    case ND_METRIC_FIELD_MAX:
        put_count(out, *(const uint64_t *)at);
        break;
    case ND_METRIC_FIELD_REAL_MAX:
    case ND_METRIC_FIELD_REAL_MIN:
        put_real(out, *(const double *)at);
        break;
    case ND_METRIC_FIELD_SUM:
        put_text(out, nd_exact_format(at));
        break;
    case ND_METRIC_FIELD_HISTOGRAM:
        put_text(out, nd_log_histogram_format(at));
        break;
    case ND_METRIC_FIELD_FIRST:
        nd_strbuf_printf(out, " %d %d", first->is_set, first->has_index);
        put_count(out, first->probe);
        put_count(out, first->sample);
        put_count(out, first->index);
        put_count(out, first->note);
        break;
    case ND_METRIC_FIELD_STRIDE:
        nd_strbuf_printf(out, " %d", stride->is_set);
        put_count(out, stride->first);
        put_count(out, stride->last);
        put_count(out, stride->divisor);
        break;
    case ND_METRIC_FIELD_BITSET:
        put_bitset(out, at);
        break;
    case ND_METRIC_FIELD_WORST:
        put_worst(out, at);
        break;
    }
}

void nd_fields_format(const struct nd_metric_field *fields, size_t n, const void *state, struct nd_strbuf *out)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < field_count(&fields[f]); i++)
            put_field(out, fields[f].kind, (const char *)state + field_offset(&fields[f], i));
}

/* The next word in new memory; NULL when there is none or no memory. */
static char *next_word(const char **text)
{
    if (**text != ' ')
        return NULL;
    const char *start = *text + 1;
    size_t len = strcspn(start, " ");
    *text = start + len;
    return strndup(start, len);
}

static bool get_count(const char **text, uint64_t *out)
{
    ND_FREED char *word = next_word(text);
    return word != NULL && nd_parse_u64(word, out);
}

static bool get_flag(const char **text, bool *out)
{
    uint64_t value;
    if (!get_count(text, &value) || value > 1)
        return false;
    *out = value == 1;
    return true;
}

static bool get_real(const char **text, double *out)
{
    ND_FREED char *word = next_word(text);
    char *end = NULL;
    uint64_t bits = 0;
    bool is_read = word != NULL && strlen(word) == 16 && strspn(word, "0123456789abcdef") == 16;
    if (is_read) {
        bits = strtoull(word, &end, 16);
        memcpy(out, &bits, sizeof *out);
    }
    return is_read;
}

static bool parse_ranges(const char *at, struct nd_bitset *set)
{
    while (*at != '\0') {
        char *end;
        if (strspn(at + 1, "0123456789") == 0)
            return false;
        uint64_t first = strtoull(at + 1, &end, 10);
        if (*end != '-' || strspn(end + 1, "0123456789") == 0)
            return false;
        uint64_t last = strtoull(end + 1, &end, 10);
        if (first > last || last >= set->n_bits || (*end != ',' && *end != '\0'))
            return false;
        for (uint64_t i = first; i <= last; i++)
            nd_bitset_add(set, (size_t)i);
        at = end;
    }
    return true;
}

static bool get_bitset(const char **text, struct nd_bitset *set)
{
    ND_FREED char *word = next_word(text);
    char *colon = word != NULL ? strchr(word, ':') : NULL;
    uint64_t n_bits = 0;
    char empty[] = "";
    char *ranges = colon != NULL ? colon : empty;
    char number[24] = "";
    size_t len = word != NULL ? strcspn(word, ":") : 0;
    bool is_read = word != NULL && len < sizeof number;
    if (is_read) {
        memcpy(number, word, len);
        /* A state is made for its tensor before it is read: of another size, it is of another tensor. */
        is_read = nd_parse_u64(number, &n_bits) && n_bits == set->n_bits && parse_ranges(ranges, set);
    }
    return is_read;
}

static bool get_worst_item(const char **text, struct nd_worst *item)
{
    uint64_t probe, sample, index, coordinate;
    if (!get_count(text, &probe) || !get_count(text, &sample) || !get_count(text, &index))
        return false;
    *item = (struct nd_worst){
        .place = {.probe = (size_t)probe, .sample = (size_t)sample, .has_index = true, .index = (size_t)index}};
    for (size_t d = 0; d < ND_MAX_RANK; d++) {
        if (!get_count(text, &coordinate))
            return false;
        item->place.coordinates[d] = (int64_t)coordinate;
    }
    return get_real(text, &item->abs_error) && get_real(text, &item->ref) && get_real(text, &item->test) &&
           get_real(text, &item->ref_real) && get_real(text, &item->test_real);
}

static bool get_worst(const char **text, struct nd_worst_list *list)
{
    uint64_t n;
    if (!get_count(text, &n) || n > list->capacity)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        struct nd_worst item;
        if (!get_worst_item(text, &item))
            return false;
        nd_worst_offer(list, &item);
    }
    return true;
}

static bool get_field(enum nd_metric_field_kind kind, void *at, const char **text)
{
    struct nd_first *first = at;
    struct nd_stride *stride = at;
    char *word;
    bool is_read;
    switch (kind) {
    case ND_METRIC_FIELD_COUNT:
    case ND_METRIC_FIELD_MAX:
        return get_count(text, at);
    case ND_METRIC_FIELD_REAL_MAX:
    case ND_METRIC_FIELD_REAL_MIN:
        return get_real(text, at);
    case ND_METRIC_FIELD_SUM:
        word = next_word(text);
        is_read = word != NULL && nd_exact_parse(word, at);
        free(word);
        return is_read;
    case ND_METRIC_FIELD_HISTOGRAM:
        word = next_word(text);
        is_read = word != NULL && nd_log_histogram_parse(word, at);
        free(word);
        return is_read;
    case ND_METRIC_FIELD_FIRST:
        return get_flag(text, &first->is_set) && get_flag(text, &first->has_index) &&
               get_count(text, &first->probe) && get_count(text, &first->sample) &&
               get_count(text, &first->index) && get_count(text, &first->note);
    case ND_METRIC_FIELD_STRIDE:
        return get_flag(text, &stride->is_set) && get_count(text, &stride->first) &&
               get_count(text, &stride->last) && get_count(text, &stride->divisor);
    case ND_METRIC_FIELD_BITSET:
        return get_bitset(text, at);
    case ND_METRIC_FIELD_WORST:
        return get_worst(text, at);
    }
    return false;
}

bool nd_fields_parse(const struct nd_metric_field *fields, size_t n, void *state, const char **text)
{
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < field_count(&fields[f]); i++)
            if (!get_field(fields[f].kind, (char *)state + field_offset(&fields[f], i), text))
                return false;
    return true;
}
