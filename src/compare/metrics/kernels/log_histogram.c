/* How often values of which size were seen, quantiles of them, and their text in parts.
 * docs/reference/metrics.md#errors and #parts. */
#include "compare/metrics/kernels/log_histogram.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

/* Bins in one row: the exponent 2047 (infinity) has none. */
enum { N_BINS = 2047 * ND_LOG_BINS };

static const uint64_t max_count = (uint64_t)1 << 63;

/* Ways have 32 bits. */
static const uint64_t most_recent = (uint64_t)1 << 31;

static bool has_slots(const struct nd_log_histogram *h, size_t number)
{
    return h->slots != NULL && number >= ND_SLOT_FOLDER && number < ND_SLOT_FOLDER + ND_SLOT_FOLDERS;
}

static struct nd_log_folder *make_folder(struct nd_log_histogram *h, size_t number)
{
    struct nd_log_folder *folder = &h->folder[number];
    if (folder->n == NULL && has_slots(h, number))
        folder->n = h->slots + 1 + (number - ND_SLOT_FOLDER) * ND_LOG_IN_FOLDER;
    else if (folder->n == NULL)
        folder->n = nd_calloc(ND_LOG_IN_FOLDER, sizeof *folder->n);
    h->failed |= folder->n == NULL;
    return folder->n != NULL ? folder : NULL;
}

/* The least value of a bin. */
static double edge_of(uint32_t bin)
{
    uint64_t bits = (uint64_t)bin << ND_BIN_SHIFT;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool has_more(struct nd_log_histogram *h, struct nd_log_folder *folder)
{
    if (folder->more == NULL)
        folder->more = nd_calloc(ND_LOG_IN_FOLDER, sizeof *folder->more);
    h->failed |= folder->more == NULL;
    return folder->more != NULL;
}

static uint64_t count_of(const struct nd_log_folder *folder, size_t bin)
{
    uint64_t n = folder->more != NULL ? folder->more[bin] : 0;
    for (size_t method = 0; method < ND_LOG_METHODS; method++)
        n += folder->n[bin][method];
    return n;
}

/* The first bin from `bin` on that is not empty, or N_BINS. */
static uint32_t next_bin(const struct nd_log_histogram *h, uint32_t bin, uint64_t *n)
{
    while (bin < N_BINS) {
        const struct nd_log_folder *folder = &h->folder[bin / ND_LOG_IN_FOLDER];
        if (folder->n == NULL) {
            bin = (bin / ND_LOG_IN_FOLDER + 1) * ND_LOG_IN_FOLDER;
            continue;
        }
        *n = count_of(folder, bin % ND_LOG_IN_FOLDER);
        if (*n > 0)
            return bin;
        bin++;
    }
    return N_BINS;
}

/* By number, since the lowest value of the first bin is 0, which counts as a zero. */
static void add_to_bin(struct nd_log_histogram *h, uint32_t bin, uint64_t n)
{
    struct nd_log_folder *folder = make_folder(h, bin / ND_LOG_IN_FOLDER);
    if (folder == NULL)
        return;
    if (n <= most_recent - h->n_recent) {
        h->n_recent += n;
        folder->n[bin % ND_LOG_IN_FOLDER][0] += (uint32_t)n;
        return;
    }
    if (has_more(h, folder))
        folder->more[bin % ND_LOG_IN_FOLDER] += n;
}

void nd_log_histogram_add_many(struct nd_log_histogram *h, double value, uint64_t n)
{
    assert(value >= 0);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value == 0)
        h->n_zero += n;
    else if (value == HUGE_VAL)
        h->n_inf += n;
    else if (n != 0)
        add_to_bin(h, (uint32_t)(bits >> ND_BIN_SHIFT & (ND_LOG_FOLDERS * ND_LOG_IN_FOLDER - 1)), n);
}

/* Folders that are there already move in. */
static bool make_slots(struct nd_log_histogram *h)
{
    if (h->slots != NULL)
        return true;
    uint32_t(*slots)[ND_LOG_METHODS] = nd_calloc(1 + ND_SLOT_FOLDERS * ND_LOG_IN_FOLDER, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < ND_SLOT_FOLDERS; i++) {
        struct nd_log_folder *folder = &h->folder[ND_SLOT_FOLDER + i];
        if (folder->n == NULL)
            continue;
        uint32_t(*moved)[ND_LOG_METHODS] = slots + 1 + i * ND_LOG_IN_FOLDER;
        memcpy(moved, folder->n, ND_LOG_IN_FOLDER * sizeof *moved);
        free(folder->n);
        folder->n = moved;
    }
    h->slots = slots;
    return true;
}

static void add_listed_slots(uint32_t (*counts)[ND_LOG_METHODS], const uint32_t *slot, const uint16_t *list,
                             size_t n)
{
    for (size_t k = 0; k < n; k++)
        counts[slot[list[k]]][k % ND_LOG_METHODS]++;
}

static void add_all_slots(uint32_t (*counts)[ND_LOG_METHODS], const uint32_t *slot, size_t n)
{
    size_t i = 0;
    for (; i + ND_LOG_METHODS <= n; i += ND_LOG_METHODS)
#pragma GCC unroll 8
        for (size_t method = 0; method < ND_LOG_METHODS; method++)
            counts[slot[i + method]][method]++;
    for (; i < n; i++)
        counts[slot[i]][0]++;
}

bool nd_log_histogram_add_slots(struct nd_log_histogram *h, const struct nd_slots *slots, const uint16_t *list,
                                size_t n, uint64_t *n_low)
{
    if (!make_slots(h))
        return false;
    if (n > most_recent - h->n_recent) {
        for (size_t i = 0; i < ND_LOG_FOLDERS; i++) {
            struct nd_log_folder *folder = &h->folder[i];
            if (folder->n == NULL || !has_more(h, folder))
                continue;
            for (size_t bin = 0; bin < ND_LOG_IN_FOLDER; bin++)
                folder->more[bin] = count_of(folder, bin);
            memset(folder->n, 0, ND_LOG_IN_FOLDER * sizeof *folder->n);
        }
        h->n_recent = 0;
    }
    for (size_t i = 0; i < ND_SLOT_FOLDERS; i++)
        if (slots->folders >> (i + 1) & 1)
            make_folder(h, ND_SLOT_FOLDER + i);
    h->n_recent += n;
    if (list != NULL)
        add_listed_slots(h->slots, slots->slot, list, n);
    else
        add_all_slots(h->slots, slots->slot, n);
    *n_low = 0;
    for (size_t method = 0; method < ND_LOG_METHODS; method++) {
        *n_low += h->slots[0][method];
        h->slots[0][method] = 0;
    }
    return true;
}

void nd_log_histogram_merge(struct nd_log_histogram *h, const struct nd_log_histogram *other)
{
    uint64_t n;
    assert(h != other);
    for (uint32_t bin = next_bin(other, 0, &n); bin < N_BINS; bin = next_bin(other, bin + 1, &n))
        add_to_bin(h, bin, n);
    h->n_zero += other->n_zero;
    h->n_inf += other->n_inf;
    h->failed |= other->failed;
}

uint64_t nd_log_histogram_count(const struct nd_log_histogram *h)
{
    uint64_t total = h->n_zero + h->n_inf, n;
    for (uint32_t bin = next_bin(h, 0, &n); bin < N_BINS; bin = next_bin(h, bin + 1, &n))
        total += n;
    return total;
}

double nd_log_histogram_quantile(const struct nd_log_histogram *h, uint32_t num, uint32_t den,
                                 uint64_t n_zero_extra)
{
    assert(den > 0 && num <= den);
    uint64_t total = nd_log_histogram_count(h) + n_zero_extra, n;
    if (total == 0)
        return 0;
    /* ceil(num * total / den), by parts so that nothing overflows: the first product is at most total. */
    uint64_t rank = total / den * num + (total % den * num + den - 1) / den;
    rank = rank > 0 ? rank : 1;
    uint64_t seen = h->n_zero + n_zero_extra;
    if (rank <= seen)
        return 0;
    for (uint32_t bin = next_bin(h, 0, &n); bin < N_BINS; bin = next_bin(h, bin + 1, &n)) {
        seen += n;
        if (rank <= seen)
            return edge_of(bin);
    }
    return HUGE_VAL;
}

char *nd_log_histogram_format(const struct nd_log_histogram *h)
{
    struct nd_strbuf text = {0};
    uint64_t n;
    uint32_t expected = N_BINS; /* the bin that would go on with the current run */
    if (h->failed)
        return NULL;
    if (h->n_zero > 0)
        nd_strbuf_printf(&text, "z%" PRIu64, h->n_zero);
    if (h->n_inf > 0)
        nd_strbuf_printf(&text, "%si%" PRIu64, text.len > 0 ? ";" : "", h->n_inf);
    for (uint32_t bin = next_bin(h, 0, &n); bin < N_BINS; bin = next_bin(h, bin + 1, &n)) {
        if (bin == expected)
            nd_strbuf_printf(&text, ",%" PRIu64, n);
        else
            nd_strbuf_printf(&text, "%s%" PRIx32 ":%" PRIu64, text.len > 0 ? ";" : "", bin, n);
        expected = bin + 1;
    }
    if (text.len == 0)
        nd_strbuf_puts(&text, "0");
    return nd_strbuf_take(&text);
}

struct reader {
    const char *p;
    struct nd_log_histogram *out;
    uint64_t n_left; /* elements that there may be yet */
};

/* A count: decimal, from 1 to n_left, no leading zeros. */
static bool take_count(struct reader *reader, uint64_t *out)
{
    uint64_t value = 0;
    const char *p = reader->p;
    if (*p < '1' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (digit > reader->n_left || value > (reader->n_left - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    reader->p = p;
    reader->n_left -= value;
    *out = value;
    return true;
}

static bool take_bin(struct reader *reader, uint32_t *out)
{
    const char *p = reader->p;
    uint32_t value = 0;
    size_t n = strspn(p, "0123456789abcdef");
    if (n == 0 || n > 5 || (p[0] == '0' && n > 1))
        return false;
    for (size_t i = 0; i < n; i++)
        value = 16 * value + (uint32_t)(p[i] <= '9' ? p[i] - '0' : p[i] - 'a' + 10);
    reader->p = p + n;
    *out = value;
    return value < N_BINS;
}

/* "S:N,N,...". *next is the lowest bin that the run may begin with, and becomes that of the run after it. */
static bool take_run(struct reader *reader, uint32_t *next)
{
    uint32_t bin;
    uint64_t n;
    if (!take_bin(reader, &bin) || bin < *next || *reader->p != ':')
        return false;
    do {
        reader->p++;
        if (bin >= N_BINS || !take_count(reader, &n))
            return false;
        add_to_bin(reader->out, bin++, n);
    } while (*reader->p == ',');
    *next = bin + 1;
    return true;
}

static bool take_all(struct reader *reader)
{
    uint32_t next = 0;
    const char *marks = "zi"; /* those that may come yet */
    if (strcmp(reader->p, "0") == 0)
        return true;
    for (;; reader->p++) {
        const char *mark = *reader->p != '\0' ? strchr(marks, *reader->p) : NULL;
        if (mark != NULL) {
            reader->p++;
            if (!take_count(reader, *mark == 'z' ? &reader->out->n_zero : &reader->out->n_inf))
                return false;
            marks = mark + 1;
        } else {
            if (!take_run(reader, &next))
                return false;
            marks = "";
        }
        if (*reader->p != ';')
            return *reader->p == '\0';
    }
}

bool nd_log_histogram_parse(const char *text, struct nd_log_histogram *out)
{
    *out = (struct nd_log_histogram){0};
    struct reader reader = {.p = text, .out = out, .n_left = max_count};
    if (take_all(&reader))
        return true;
    nd_log_histogram_deinit(out);
    return false;
}

void nd_log_histogram_deinit(struct nd_log_histogram *h)
{
    for (size_t i = 0; i < ND_LOG_FOLDERS; i++) {
        free(h->folder[i].more);
        if (!has_slots(h, i))
            free(h->folder[i].n);
    }
    free(h->slots);
    *h = (struct nd_log_histogram){0};
}
