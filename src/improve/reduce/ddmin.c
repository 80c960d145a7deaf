#include "improve/reduce/ddmin.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct search {
    size_t *parts; /* the smallest set so far */
    size_t n;
    size_t *candidate;
    nd_trial_function test;
    void *context;
    bool is_stopped;
};

/* Parts [first, last) alone, or all but these. */
static size_t choose(struct search *search, size_t first, size_t last, bool is_complement)
{
    size_t n = 0;
    for (size_t i = 0; i < search->n; i++)
        if ((i >= first && i < last) != is_complement)
            search->candidate[n++] = search->parts[i];
    return n;
}

/* One round: *has_shrunk when a smaller set does the same, which then is search->parts. */
static enum nd_status try_pieces(struct search *search, size_t n_pieces, bool is_complement, bool *has_shrunk,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n = search->n;
    *has_shrunk = false;
    for (size_t p = 0; status == ND_OK && p < n_pieces && !*has_shrunk && !search->is_stopped; p++) {
        enum nd_trial trial = ND_TRIAL_NOT;
        size_t chosen = choose(search, n * p / n_pieces, n * (p + 1) / n_pieces, is_complement);
        status = search->test(search->context, search->candidate, chosen, &trial, err);
        search->is_stopped = trial == ND_TRIAL_STOP;
        *has_shrunk = status == ND_OK && trial == ND_TRIAL_SAME;
        if (*has_shrunk) {
            memcpy(search->parts, search->candidate, chosen * sizeof *search->parts);
            search->n = chosen;
        }
    }
    return status;
}

enum nd_status nd_ddmin(size_t *parts, size_t *n, nd_trial_function test, void *context, bool *is_minimal,
                        struct nd_error *err)
{
    struct search search = {.parts = parts, .n = *n, .test = test, .context = context};
    search.candidate = nd_calloc(*n, sizeof *search.candidate);
    if (search.candidate == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    size_t n_pieces = 2;
    bool is_done = false;
    while (status == ND_OK && search.n > 1 && !is_done && !search.is_stopped) {
        bool has_shrunk = false;
        status = try_pieces(&search, n_pieces, false, &has_shrunk, err);
        if (has_shrunk) {
            n_pieces = 2;
            continue;
        }
        /* With two pieces the complements are the pieces. */
        if (status == ND_OK && n_pieces > 2)
            status = try_pieces(&search, n_pieces, true, &has_shrunk, err);
        if (has_shrunk) {
            n_pieces = n_pieces - 1 > search.n ? search.n : n_pieces - 1;
            n_pieces = n_pieces < 2 ? 2 : n_pieces;
            continue;
        }
        is_done = n_pieces >= search.n;
        n_pieces = 2 * n_pieces < search.n ? 2 * n_pieces : search.n;
    }
    free(search.candidate);
    *n = search.n;
    *is_minimal = status == ND_OK && !search.is_stopped;
    return status;
}

/* ---- what was tried ---- */

struct nd_trial_entry {
    size_t *parts;
    size_t n;
    enum nd_trial trial;
};

bool nd_trials_find(const struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial *out)
{
    for (size_t i = 0; i < trials->n; i++) {
        const struct nd_trial_entry *entry = &trials->entries[i];
        if (entry->n == n && memcmp(entry->parts, parts, n * sizeof *parts) == 0) {
            *out = entry->trial;
            return true;
        }
    }
    return false;
}

enum nd_status nd_trials_add(struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial trial,
                             struct nd_error *err)
{
    size_t *copy = nd_calloc(n, sizeof *copy);
    if (copy == NULL ||
        !nd_grow((void **)&trials->entries, &trials->capacity, trials->n + 1, sizeof *trials->entries)) {
        free(copy);
        return nd_fail_memory(err);
    }
    memcpy(copy, parts, n * sizeof *copy);
    trials->entries[trials->n++] = (struct nd_trial_entry){copy, n, trial};
    return ND_OK;
}

void nd_trials_deinit(struct nd_trials *trials)
{
    for (size_t i = 0; i < trials->n; i++)
        free(trials->entries[i].parts);
    free(trials->entries);
    *trials = (struct nd_trials){0};
}
