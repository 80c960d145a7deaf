#include "compare/findings/predicate.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* Of longer names the first ones are used (chosen). */
enum { MAX_PARTS = 64 };

enum nd_status nd_cells_add(struct nd_cells *cells, size_t cell, enum nd_fact_kind kind, const char *key,
                            size_t n_key, int64_t number, struct nd_error *err)
{
    char *copy = nd_calloc(n_key + 1, 1);
    if (copy == NULL ||
        !nd_grow((void **)&cells->facts, &cells->capacity, cells->n_facts + 1, sizeof *cells->facts)) {
        free(copy);
        return nd_fail_memory(err);
    }
    memcpy(copy, key, n_key);
    cells->facts[cells->n_facts++] =
        (struct nd_fact){.kind = kind, .key = copy, .number = number, .cell = cell};
    return ND_OK;
}

void nd_cells_deinit(struct nd_cells *cells)
{
    for (size_t i = 0; i < cells->n_facts; i++)
        free(cells->facts[i].key);
    free(cells->facts);
    cells->facts = NULL;
    cells->n_facts = cells->capacity = 0;
}

/* Letters or digits that stand together in a name. */
struct part {
    const char *text;
    size_t n;
    bool is_number;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Every byte of a character outside ASCII counts as a letter. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static size_t split(const char *name, struct part parts[MAX_PARTS])
{
    size_t n = 0;
    for (const char *at = name; *at != '\0' && n < MAX_PARTS;) {
        bool is_number = is_digit(*at);
        const char *end = at;
        while (is_number ? is_digit(*end) : is_letter(*end))
            end++;
        if (end > at)
            parts[n++] = (struct part){.text = at, .n = (size_t)(end - at), .is_number = is_number};
        at = end > at ? end : at + 1;
    }
    return n;
}

/* Whether the letters of part p stand before another number already. */
static bool is_used(const struct part *parts, size_t p)
{
    for (size_t i = 0; i < p; i++)
        if (parts[i].n == parts[p].n && memcmp(parts[i].text, parts[p].text, parts[p].n) == 0 &&
            parts[i + 1].is_number)
            return true;
    return false;
}

enum nd_status nd_cells_add_name(struct nd_cells *cells, size_t cell, const char *name, struct nd_error *err)
{
    enum { MAX_DIGITS = 18 }; /* that fit into the number */
    struct part parts[MAX_PARTS];
    size_t n = split(name, parts);
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < n && status == ND_OK; p++) {
        const struct part *part = &parts[p];
        if (!part->is_number)
            status = nd_cells_add(cells, cell, ND_FACT_NAME_PART, part->text, part->n, 0, err);
        else if (p > 0 && !parts[p - 1].is_number && part->n <= MAX_DIGITS && !is_used(parts, p - 1))
            status = nd_cells_add(cells, cell, ND_FACT_NAME_NUMBER, parts[p - 1].text, parts[p - 1].n,
                                  strtoll(part->text, NULL, 10), err);
        if (status == ND_OK && p + 1 < n)
            status = nd_cells_add(cells, cell, ND_FACT_NAME_BEGIN, name, (size_t)(part->text + part->n - name),
                                  0, err);
        if (status == ND_OK && p > 0)
            status = nd_cells_add(cells, cell, ND_FACT_NAME_END, part->text, strlen(part->text), 0, err);
    }
    return status;
}
