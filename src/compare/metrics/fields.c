/* The fields of states of metrics: empty, merged without an order, written to parts and read from them.
 * docs/reference/metrics.md#parts. */
#include <inttypes.h>
#include <math.h>

#include "compare/metrics/fields.h"
#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"
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

/* Whether a comes before b. */
static bool place_is_before(const struct nd_difference_place *a, const struct nd_difference_place *b)
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
    if (!first->is_set || place_is_before(&new, &old))
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

static void stride_add(struct nd_stride *stride, uint64_t position)
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
    stride_add(stride, other->first);
    stride_add(stride, other->last);
    stride->divisor = greatest_divisor(stride->divisor, divisor);
}

static bool bitset_reserve(struct nd_bitset *set, size_t n_bits)
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
    if (!bitset_reserve(set, other->n_bits))
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
    return a->abs_error != b->abs_error ? a->abs_error > b->abs_error : place_is_before(&a->place, &b->place);
}

/* Puts an item where it belongs, when it belongs among the worst. */
static void worst_offer(struct nd_worst_list *list, const struct nd_worst *item)
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
            worst_offer(at, &worst->items[i]);
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
        worst_offer(list, &item);
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

/* Where the differing elements are, and which are the worst. docs/reference/metrics.md#structure and #worst. */

static const struct nd_metric_field structure_fields[] = {
    ND_STATE_FIELD(STRIDE, nd_structure_state, stride),
    ND_STATE_FIELD(COUNT, nd_structure_state, n_runs),
    ND_STATE_FIELD(MAX, nd_structure_state, longest_run),
    {ND_METRIC_FIELD_BITSET, offsetof(struct nd_structure_state, axes), ND_MAX_RANK},
    ND_STATE_FIELD(FIRST, nd_structure_state, permutation),
};

enum { MAX_AXIS = 65536 };

const char *nd_pattern_name(enum nd_pattern pattern)
{
    static const char *const names[] = {"none",   "one element", "one coordinate", "permuted axes", "range",
                                        "stride", "from 2^k on", "scattered",      "everywhere"};
    return (size_t)pattern < sizeof names / sizeof names[0] ? names[pattern] : "unknown";
}

static enum nd_status init_structure(struct nd_pair_state *state, const struct nd_pair_context *context,
                                     struct nd_error *err)
{
    const struct nd_shape *shape = &context->ref.shape;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 0 && shape->dims[i] <= MAX_AXIS &&
            !bitset_reserve(&state->structure.axes[i], (size_t)shape->dims[i]))
            return nd_fail_memory(err);
    return ND_OK;
}

/* Leaves the bits that are followed by one `step` further on; false when none is left. */
static bool keep_followed(uint64_t *bits, size_t step)
{
    uint64_t any = 0;
    size_t words = step / 64, shift = step % 64;
    for (size_t w = 0; w < ND_BLOCK_WORDS; w++) {
        uint64_t low = w + words < ND_BLOCK_WORDS ? bits[w + words] : 0;
        uint64_t high = w + words + 1 < ND_BLOCK_WORDS ? bits[w + words + 1] : 0;
        bits[w] &= low >> shift | high << 1 << (63 - shift);
        any |= bits[w];
    }
    return any != 0;
}

/* Bits that begin `length` ones become bits that begin more of them, in steps that double, until the longest
 * run that is known is surpassed, or none is left. */
static uint64_t lengthen(uint64_t *bits, uint64_t longest)
{
    uint64_t length = 1, wanted = longest + 1;
    while (length < wanted) {
        uint64_t step = length < wanted - length ? length : wanted - length;
        if (!keep_followed(bits, step))
            return longest;
        length += step;
    }
    while (keep_followed(bits, 1))
        length++;
    return length;
}

static bool are_axes_full(const struct nd_structure_state *structure, const struct nd_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (structure->axes[i].n_set < structure->axes[i].n_bits)
            return false;
    return true;
}

static void add_row(struct nd_structure_state *structure, const struct nd_shape *shape, size_t row)
{
    for (int i = shape->rank - 2; i >= 0; i--) {
        size_t dim = (size_t)shape->dims[i];
        if (structure->axes[i].n_bits > 0)
            nd_bitset_add(&structure->axes[i], row % dim);
        row /= dim;
    }
}

/* Whether an element in [from, end) of the block differs. */
static bool has_set(const uint64_t *bits, size_t from, size_t end)
{
    uint64_t head = UINT64_MAX << from % 64, tail = UINT64_MAX >> (63 - (end - 1) % 64);
    size_t first = from / 64, last = (end - 1) / 64;
    if (first == last)
        return (bits[first] & head & tail) != 0;
    uint64_t any = (bits[first] & head) | (bits[last] & tail);
    for (size_t w = first + 1; w < last; w++)
        any |= bits[w];
    return any != 0;
}

/* Row by row of the innermost dimension. */
static void add_coordinates(struct nd_structure_state *structure, const struct nd_shape *shape,
                            const struct nd_pair_block *block)
{
    if (shape->rank == 0 || are_axes_full(structure, shape))
        return;
    size_t width = (size_t)shape->dims[shape->rank - 1], row = block->first / width;
    size_t column = block->first % width;
    struct nd_bitset *columns = &structure->axes[shape->rank - 1];
    for (size_t from = 0; from < block->n; row++, column = 0) {
        size_t end = width - column < block->n - from ? from + width - column : block->n;
        if (has_set(block->bits, from, end)) {
            add_row(structure, shape, row);
            if (columns->n_set < columns->n_bits) {
                for (size_t i = from; i < end; i++)
                    if (block->bits[i / 64] >> i % 64 & 1)
                        nd_bitset_add(columns, column + i - from);
            }
        }
        from = end;
    }
}

static void update_structure(struct nd_pair_state *state, const struct nd_pair_context *context,
                             const struct nd_pair_block *block)
{
    struct nd_structure_state *structure = &state->structure;
    uint64_t bits[ND_BLOCK_WORDS], before = 0;
    memcpy(bits, block->bits, sizeof bits);
    for (size_t w = 0; w < ND_BLOCK_WORDS; w++) {
        structure->n_runs += (uint64_t)__builtin_popcountll(bits[w] & ~(bits[w] << 1 | before));
        before = bits[w] >> 63;
    }
    if (block->n_differing > structure->longest_run)
        structure->longest_run = lengthen(bits, structure->longest_run);
    add_coordinates(structure, &context->ref.shape, block);
    stride_add(&structure->stride, block->first + block->last_differing);
    stride_add(&structure->stride, block->first + block->first_differing);
    if (structure->stride.divisor == 1)
        return;
    const uint16_t *differing = nd_pair_block_differing(block);
    for (size_t k = 0; k < block->n_differing && structure->stride.divisor != 1; k++)
        stride_add(&structure->stride, block->first + differing[k]);
}

static void describe_axis(const struct nd_bitset *set, struct nd_axis_span *span)
{
    *span = (struct nd_axis_span){.is_known = set->n_bits > 0, .n = set->n_set};
    bool is_found = false;
    for (size_t i = 0; i < set->n_bits; i++) {
        if ((set->words[i / 64] >> (i % 64) & 1) == 0)
            continue;
        span->first = is_found ? span->first : i;
        span->last = i;
        is_found = true;
    }
}

static int find_single_coordinate(const struct nd_shape *shape, const struct nd_structure *structure)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 1 && structure->axes[i].is_known && structure->axes[i].n == 1)
            return i;
    return -1;
}

static enum nd_pattern classify(const struct nd_pair_state *state, const struct nd_shape *shape, size_t n_elems,
                                struct nd_structure *out)
{
    const struct nd_first *permutation = &state->structure.permutation;
    uint64_t first = out->first_index, last = out->last_index;
    out->axis = find_single_coordinate(shape, out);
    if (first == last)
        return ND_PATTERN_ONE_ELEMENT;
    if (out->axis >= 0)
        return ND_PATTERN_ONE_COORDINATE;
    if (permutation->is_set && permutation->note > 0) {
        nd_permutation_describe(shape, permutation->note, out->permutation);
        return ND_PATTERN_PERMUTED_AXES;
    }
    bool is_whole = first == 0 && last == n_elems - 1;
    if (!is_whole && state->bits.n_differing == state->bits.n_samples_differing * (last - first + 1))
        return ND_PATTERN_RANGE;
    if (out->stride > 1)
        return ND_PATTERN_STRIDE;
    if (first >= 16 && (first & (first - 1)) == 0 && last >= n_elems - n_elems / 16)
        return ND_PATTERN_FROM_POWER_OF_TWO;
    return out->n_runs > 0 && state->bits.n_differing > state->bits.n_elems / 2 ? ND_PATTERN_EVERYWHERE
                                                                                : ND_PATTERN_SCATTERED;
}

static enum nd_status finish_structure(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                       struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_structure_state *structure = &state->structure;
    const struct nd_shape *shape = &context->ref.shape;
    struct nd_structure made = {.first_index = structure->stride.first,
                                .last_index = structure->stride.last,
                                .stride = structure->stride.divisor,
                                .n_runs = structure->n_runs,
                                .longest_run = structure->longest_run,
                                .axis = -1};
    for (int i = 0; i < shape->rank; i++)
        describe_axis(&structure->axes[i], &made.axes[i]);
    if (structure->stride.is_set)
        made.pattern = classify(state, shape, context->ref.n_elems, &made);
    out->structure = made;
    return ND_OK;
}

const struct nd_metric nd_metric_structure = {
    .name = "structure",
    .offset = offsetof(struct nd_pair_state, structure),
    ND_STATE_FIELDS(structure_fields),
    .init = init_structure,
    .update = update_structure,
    .finish = finish_structure,
};

/* The worst elements. docs/reference/metrics.md#worst. */

static const struct nd_metric_field worst_fields[] = {ND_STATE_FIELD(WORST, nd_worst_state, list)};

static enum nd_status init_worst(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 struct nd_error *err)
{
    struct nd_worst_list *list = &state->worst.list;
    list->capacity = context->n_worst;
    if (list->capacity == 0)
        return ND_OK;
    list->items = nd_calloc(list->capacity, sizeof *list->items);
    return list->items != NULL ? ND_OK : nd_fail_memory(err);
}

static void offer(struct nd_worst_list *list, const struct nd_pair_context *context,
                  const struct nd_pair_block *block, size_t i, double error)
{
    size_t ref_bytes = context->ref.elem_bytes, test_bytes = context->test.elem_bytes;
    struct nd_worst item = {
        .place = {.probe = block->probe, .sample = block->sample, .has_index = true, .index = block->first + i},
        .abs_error = error,
        .ref = nd_layout_stored(&context->ref, block->ref.bytes + i * ref_bytes),
        .test = nd_layout_stored(&context->test, block->test.bytes + i * test_bytes),
        .ref_real = context->ref.unit * block->ref.x[i],
        .test_real = context->test.unit * block->test.x[i],
    };
    nd_layout_coordinates(&context->ref.shape, item.place.index, item.place.coordinates);
    worst_offer(list, &item);
}

/* Whether an element of the block may come before the last of the list although their errors are equal. */
static bool is_before_last(const struct nd_worst_list *list, const struct nd_pair_block *block)
{
    const struct nd_difference_place start = {
        .probe = block->probe, .sample = block->sample, .index = block->first};
    return list->n < list->capacity || place_is_before(&start, &list->items[list->n - 1].place);
}

static void offer_measured(struct nd_worst_list *list, const struct nd_pair_context *context,
                           const struct nd_pair_block *block, bool ties_count)
{
    const uint16_t *measured = nd_pair_block_measured(block);
    double unit = fabs(context->ref.unit);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]);
        if (list->n < list->capacity || error > list->items[list->n - 1].abs_error ||
            (ties_count && error == list->items[list->n - 1].abs_error)) {
            offer(list, context, block, i, error);
            ties_count = is_before_last(list, block); /* another one is the last now */
        }
    }
}

static void update_worst(struct nd_pair_state *state, const struct nd_pair_context *context,
                         const struct nd_pair_block *block)
{
    struct nd_worst_list *list = &state->worst.list;
    double ref[ND_BLOCK], test[ND_BLOCK];
    if (list->capacity == 0)
        return;
    for (size_t k = 0; k < block->n_unmeasured; k++) {
        size_t i = block->unmeasured[k];
        if (!isnan(block->ref.x[i]) || !isnan(block->test.x[i]))
            offer(list, context, block, i, INFINITY);
    }
    /* Of equal errors the first places count, so a block that comes after all of a full list must be worse. */
    double unit = fabs(context->ref.unit);
    bool ties_count = is_before_last(list, block);
    if (!ties_count && unit * block->sums.max_abs <= list->items[list->n - 1].abs_error)
        return;
    struct nd_pair_block loaded = *block;
    if (block->ref.x == NULL || block->test.x == NULL) {
        nd_layout_load(&context->ref, context->kernels, block->ref.bytes, block->first, block->n, ref);
        nd_layout_load(&context->test, context->kernels, block->test.bytes, block->first, block->n, test);
        loaded.ref.x = ref;
        loaded.test.x = test;
    }
    offer_measured(list, context, &loaded, ties_count);
}

static enum nd_status finish_worst(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                   struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    const struct nd_worst_list *list = &state->worst.list;
    if (list->n == 0)
        return ND_OK;
    out->worst = nd_calloc(list->n, sizeof *out->worst);
    ND_TRY_MEMORY(out->worst != NULL, err);
    memcpy(out->worst, list->items, list->n * sizeof *out->worst);
    out->n_worst = list->n;
    return ND_OK;
}

const struct nd_metric nd_metric_worst = {
    .name = "worst",
    .offset = offsetof(struct nd_pair_state, worst),
    ND_STATE_FIELDS(worst_fields),
    .init = init_worst,
    .update = update_worst,
    .finish = finish_worst,
};
