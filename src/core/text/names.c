/* Maps from names to indices, and which known word a mistyped one was meant to be. */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "npudiff/core/tensor.h"

struct nd_names_slot {
    const char *name; /* NULL: free */
    uint64_t hash;
    size_t value;
};

static uint64_t hash_of(const char *name)
{
    return nd_digest_bytes(name, strlen(name)).low;
}

/* The slot that holds name, or the free one where it belongs. There is always a free one. */
static struct nd_names_slot *probe(struct nd_names_slot *slots, size_t capacity, const char *name,
                                   uint64_t hash)
{
    size_t at = (size_t)hash & (capacity - 1);
    while (slots[at].name != NULL && (slots[at].hash != hash || strcmp(slots[at].name, name) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

size_t nd_names_find(const struct nd_names *names, const char *name)
{
    if (names->n == 0)
        return SIZE_MAX;
    const struct nd_names_slot *slot = probe(names->slots, names->capacity, name, hash_of(name));
    return slot->name != NULL ? slot->value : SIZE_MAX;
}

static bool grow(struct nd_names *names)
{
    size_t capacity = 64;
    if (names->capacity > 0 && !nd_size_mul(names->capacity, 2, &capacity))
        return false;
    struct nd_names_slot *slots = nd_calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < names->capacity; i++) {
        const struct nd_names_slot *old = &names->slots[i];
        if (old->name != NULL)
            *probe(slots, capacity, old->name, old->hash) = *old;
    }
    free(names->slots);
    names->slots = slots;
    names->capacity = capacity;
    return true;
}

bool nd_names_add(struct nd_names *names, const char *name, size_t value)
{
    /* At most half full, so that probing stays short. */
    if (names->n >= names->capacity / 2 && !grow(names))
        return false;
    uint64_t hash = hash_of(name);
    struct nd_names_slot *slot = probe(names->slots, names->capacity, name, hash);
    assert(slot->name == NULL);
    *slot = (struct nd_names_slot){.name = name, .hash = hash, .value = value};
    names->n++;
    return true;
}

void nd_names_deinit(struct nd_names *names)
{
    free(names->slots);
    *names = (struct nd_names){0};
}

bool nd_has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (; *words != '\0' && n > 0; words += strspn(words, " ")) {
        size_t length = strcspn(words, " ");
        if (length == n && memcmp(words, word, n) == 0)
            return true;
        words += length;
    }
    return n == 0 && *words == '\0';
}

enum { MAX_WORD = 63 };

static size_t min_of(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's distance, one row at a time. */
size_t nd_word_distance(const char *a, const char *b)
{
    size_t n_a = strnlen(a, MAX_WORD), n_b = strnlen(b, MAX_WORD);
    size_t row[MAX_WORD + 1];
    for (size_t k = 0; k <= n_b; k++)
        row[k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            size_t exchanged = diagonal + (a[i - 1] != b[k - 1]);
            diagonal = row[k];
            row[k] = min_of(row[k] + 1, row[k - 1] + 1, exchanged);
        }
    }
    return row[n_b];
}

size_t nd_word_nearest(const char *word, const void *words, size_t n_words, size_t stride_bytes)
{
    size_t nearest = SIZE_MAX, least = SIZE_MAX;
    for (size_t i = 0; i < n_words; i++) {
        const char *const *name = (const void *)((const char *)words + i * stride_bytes);
        size_t distance = nd_word_distance(word, *name);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    return nearest;
}

static void lower(const char *word, char out[MAX_WORD + 1])
{
    size_t n = strnlen(word, MAX_WORD);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    out[n] = '\0';
}

/* Whether exchanging two neighbours in one word makes the other of it. */
static bool is_swapped(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i])
        i++;
    return a[i] != '\0' && a[i + 1] != '\0' && a[i + 1] == b[i] && a[i] == b[i + 1] &&
           strcmp(a + i + 2, b + i + 2) == 0;
}

char *nd_did_you_mean(const char *word, const void *words, size_t n_words, size_t stride_bytes, char buf[])
{
    char typed[MAX_WORD + 1], known[MAX_WORD + 1];
    const char *nearest = NULL;
    lower(word, typed);
    size_t most = strlen(typed) / 3;
    size_t least = (most > 1 ? most : 1) + 1; /* and no further */
    buf[0] = '\0';
    for (size_t i = 0; typed[0] != '\0' && i < n_words; i++) {
        const char *const *name = (const void *)((const char *)words + i * stride_bytes);
        lower(*name, known);
        size_t distance = strlen(*name) > MAX_WORD   ? SIZE_MAX
                          : is_swapped(typed, known) ? 1
                                                     : nd_word_distance(typed, known);
        if (distance > least || distance >= strlen(known) || strcmp(word, *name) == 0)
            continue;
        nearest = distance < least ? *name : NULL; /* of two that are as near none is the one */
        least = distance;
    }
    if (nearest != NULL)
        snprintf(buf, ND_DID_YOU_MEAN_BYTES, "; did you mean '%s'?", nearest);
    return buf;
}
