/* The text form of states, for the parts of a comparison: words with a space before each. Doubles are
 * hexadecimal, so that every bit comes back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/fields.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

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
        for (size_t i = 0; i < nd_field_count(&fields[f]); i++)
            put_field(out, fields[f].kind, (const char *)state + nd_field_offset(&fields[f], i));
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
    char *word = next_word(text);
    bool is_read = word != NULL && nd_parse_u64(word, out);
    free(word);
    return is_read;
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
    char *word = next_word(text), *end = NULL;
    uint64_t bits = 0;
    bool is_read = word != NULL && strlen(word) == 16 && strspn(word, "0123456789abcdef") == 16;
    if (is_read) {
        bits = strtoull(word, &end, 16);
        memcpy(out, &bits, sizeof *out);
    }
    free(word);
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
    char *word = next_word(text);
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
    free(word);
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
        for (size_t i = 0; i < nd_field_count(&fields[f]); i++)
            if (!get_field(fields[f].kind, (char *)state + nd_field_offset(&fields[f], i), text))
                return false;
    return true;
}
