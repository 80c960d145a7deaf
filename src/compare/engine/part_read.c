/* Reading parts, and putting them together. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "compare/engine/part.h"

struct nd_parts {
    size_t n;
    json_t **roots; /* in order of part */
    char **paths;   /* of each, for messages */
};

void nd_part_name(const char *name, char *digits)
{
    struct nd_digest digest = nd_digest_bytes(name, strlen(name));
    snprintf(digits, 40, "%016llx%016llx", (unsigned long long)digest.high, (unsigned long long)digest.low);
}

void nd_parts_destroy(struct nd_parts **parts)
{
    if (*parts == NULL)
        return;
    for (size_t i = 0; i < (*parts)->n; i++) {
        if ((*parts)->roots != NULL)
            json_decref((*parts)->roots[i]);
        if ((*parts)->paths != NULL)
            free((*parts)->paths[i]);
    }
    free((*parts)->roots);
    free((*parts)->paths);
    free(*parts);
    *parts = NULL;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Nothing but the digest shows that a count was changed. */
static enum nd_status check_whole(const json_t *root, const char *path, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    if (integer_of(root, "npudiff_part") != ND_PART_FORMAT)
        return nd_fail(err, ND_E_COMPARE_PART, path,
                       "'%s' is not a part of a comparison that this version reads", path);
    const char *stated = json_string_value(json_object_get(root, "digest"));
    enum nd_status status = nd_json_digest(root, hex, err);
    if (status == ND_OK && (stated == NULL || strcmp(stated, hex) != 0))
        status = nd_fail(err, ND_E_COMPARE_PART, path,
                         "'%s' is damaged: the digest of its content is %s, and it states '%s'", path, hex,
                         stated != NULL ? stated : "");
    return status;
}

static enum nd_status read_one(struct nd_parts *parts, const char *path, struct nd_error *err)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL && json_error_code(&where) == json_error_cannot_open_file)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s'", path);
    if (root == NULL)
        return nd_fail(err, ND_E_COMPARE_PART, path, "'%s' is not a part of a comparison: line %d, %s", path,
                       where.line, where.text);
    json_int_t part = integer_of(root, "part"), n = integer_of(root, "parts");
    enum nd_status status = check_whole(root, path, err);
    if (status == ND_OK && (n < 1 || part < 0 || part >= n || (size_t)n != parts->n))
        status = nd_fail(err, ND_E_COMPARE_PART, path, "'%s' is part %lld of %lld, and %zu files were given",
                         path, (long long)part + 1, (long long)n, parts->n);
    else if (status == ND_OK && parts->roots[part] != NULL)
        status = nd_fail(err, ND_E_COMPARE_PART, path, "'%s' and '%s' are the same part: %lld of %lld",
                         parts->paths[part], path, (long long)part + 1, (long long)n);
    else if (status == ND_OK && (parts->paths[part] = strdup(path)) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        parts->roots[part] = json_incref(root);
    json_decref(root);
    return status;
}

enum nd_status nd_parts_read(const char *const *paths, size_t n, struct nd_parts **out, struct nd_error *err)
{
    if (n == 0)
        return nd_fail(err, ND_E_COMPARE_PART, NULL, "there are no parts");
    struct nd_parts *parts = nd_calloc(1, sizeof *parts);
    if (parts == NULL)
        return nd_fail_memory(err);
    parts->n = n;
    parts->roots = nd_calloc(n, sizeof(json_t *));
    parts->paths = nd_calloc(n, sizeof(char *));
    enum nd_status status = parts->roots != NULL && parts->paths != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = read_one(parts, paths[i], err); /* n of n without a repetition: none is missing */
    if (status == ND_OK)
        *out = parts;
    else
        nd_parts_destroy(&parts);
    return status;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_name(const json_t *value, const char *name)
{
    char digits[40];
    nd_part_name(name, digits);
    return is_text(value, digits);
}

/* What a part was made of, as text; NULL when it fits. */
static const char *find_mismatch(const json_t *root, const struct nd_comparison *c)
{
    const json_t *captures = json_object_get(root, "captures"), *probes = json_object_get(root, "probes");
    const json_t *edges = json_object_get(root, "edges");
    if (json_array_size(captures) != c->n_devices)
        return "a different number of captures";
    for (size_t i = 0; i < c->n_devices; i++)
        if (!is_text(json_array_get(captures, i), c->devices[i].content_digest))
            return "other captures";
    if (integer_of(root, "pairs") != (json_int_t)c->n_pairs ||
        integer_of(root, "worst") != (json_int_t)c->n_worst ||
        !is_text(json_object_get(root, "ulp_in"), nd_dtype_name(c->ulp_in)))
        return "other options";
    if (json_array_size(probes) != c->n_probes || json_array_size(edges) != c->n_edges)
        return "other tensors or probes";
    for (size_t i = 0; i < c->n_probes; i++)
        if (!is_name(json_array_get(probes, i), c->probes[i].name))
            return "other probes";
    for (size_t e = 0; e < c->n_edges; e++) {
        const json_t *edge = json_array_get(edges, e);
        if (!is_name(json_object_get(edge, "name"), c->edges[e].name))
            return "other tensors";
        if (!is_text(json_object_get(edge, "gate"), c->edges[e].gate))
            return "other gates";
    }
    return NULL;
}

enum nd_status nd_parts_check(const struct nd_parts *parts, const struct nd_comparison *described,
                              struct nd_error *err)
{
    for (size_t i = 0; i < parts->n; i++) {
        const char *mismatch = find_mismatch(parts->roots[i], described);
        if (mismatch != NULL)
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[i], "'%s' was made with %s", parts->paths[i],
                           mismatch);
        const json_t *cut = json_object_get(parts->roots[i], "cut");
        if (!json_is_string(cut) || !is_text(json_object_get(parts->roots[0], "cut"), json_string_value(cut)))
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[i], "'%s' and '%s' were cut in different ways",
                           parts->paths[0], parts->paths[i]);
    }
    return ND_OK;
}

static bool is_in_job(const struct nd_job *job, uint64_t probe, uint64_t sample, uint64_t index)
{
    return probe == job->probe && sample < job->end_sample && index < job->n_elems;
}

/* Whether the tensor has all places that the state names: who reports them counts on it. */
static bool has_places(const struct nd_job *job, const struct nd_pair_state *state)
{
    const struct nd_first *first = &state->bits.first, *permuted = &state->structure.permutation;
    bool has_all = !first->is_set || is_in_job(job, first->probe, first->sample, first->index) ||
                   (!first->has_index && first->probe == job->probe && first->sample < job->end_sample);
    has_all = has_all && (!permuted->is_set || permuted->probe == job->probe);
    for (size_t i = 0; i < state->worst.list.n && has_all; i++) {
        const struct nd_difference_place *place = &state->worst.list.items[i].place;
        has_all = is_in_job(job, place->probe, place->sample, place->index);
    }
    return has_all;
}

static enum nd_status load_state(const struct nd_parts *parts, size_t part, const struct nd_job *job, size_t p,
                                 struct nd_job_pair *pair, struct nd_error *err)
{
    const json_t *edge = json_array_get(json_object_get(parts->roots[part], "edges"), job->edge);
    const json_t *state = json_array_get(json_array_get(json_object_get(edge, "pairs"), p), job->probe);
    if (json_is_null(state))
        return ND_OK;
    struct nd_pair_state *read = nd_pair_state_create(&pair->context, err);
    if (read == NULL)
        return ND_ERR_MEMORY;
    enum nd_status status = json_is_string(state) ? nd_pair_state_parse(read, json_string_value(state), err)
                                                  : nd_fail(err, ND_E_COMPARE_PART, NULL, "a state is missing");
    if (status == ND_OK && !has_places(job, read))
        status = nd_fail(err, ND_E_COMPARE_PART, NULL, "a state names an element that is not there");
    if (status == ND_OK)
        status = nd_pair_state_merge(pair->state, read, err);
    else
        nd_error_context(err, "reading '%s'", parts->paths[part]);
    nd_pair_state_destroy(&read);
    return status;
}

enum nd_status nd_parts_load(const struct nd_parts *parts, struct nd_job *job, size_t n_pairs,
                             struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->n_pairs; i++) {
        size_t p = 0; /* any pair of captures that this one stands for: they all have the same state */
        while (p < n_pairs && job->pair_of[p] != i)
            p++;
        for (size_t part = 0; part < parts->n && status == ND_OK; part++)
            status = load_state(parts, part, job, p, &job->pairs[i], err);
    }
    return status;
}

/* No count may exceed the samples there are. */
static bool add_counts(const json_t *array, size_t **counts, size_t n, size_t n_samples)
{
    if (json_array_size(array) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        bool is_possible = json_is_integer(value) && json_integer_value(value) >= 0 &&
                           (i == 0 || (uint64_t)json_integer_value(value) <= n_samples - *counts[i]);
        if (!is_possible)
            return false;
        *counts[i] += (size_t)json_integer_value(value);
    }
    return true;
}

static bool add_entry(const json_t *from, struct nd_top1 *entry, size_t n_devices, size_t n_samples)
{
    const json_t *devices = json_object_get(from, "devices"), *pairs = json_object_get(from, "pairs");
    bool is_read = json_array_size(devices) == n_devices && json_array_size(pairs) == n_devices - 1;
    for (size_t c = 0; c < n_devices && is_read; c++) {
        struct nd_top1_device *d = &entry->devices[c];
        size_t exists = 0, *counts[] = {&exists, &d->n_samples, &d->n_invalid, &d->n_correct};
        is_read = add_counts(json_array_get(devices, c), counts, ND_PART_DEVICE_COUNTS, n_samples);
        d->exists = d->exists || exists > 0;
    }
    for (size_t t = 1; t < n_devices && is_read; t++) {
        struct nd_top1_pair *p = &entry->pairs[t - 1];
        size_t exists = 0,
               *counts[] = {&exists, &p->n_samples, &p->n_agree, &p->n_lost, &p->n_gained, &p->n_changed_wrong};
        is_read = add_counts(json_array_get(pairs, t - 1), counts, ND_PART_PAIR_COUNTS, n_samples);
        p->exists = p->exists || exists > 0;
    }
    return is_read;
}

enum nd_status nd_parts_load_top1(const struct nd_parts *parts, struct nd_comparison *comparison,
                                  struct nd_error *err)
{
    for (size_t part = 0; part < parts->n; part++) {
        const json_t *entries = json_object_get(parts->roots[part], "top1");
        bool is_read = json_array_size(entries) == comparison->n_top1;
        for (size_t i = 0; i < comparison->n_top1 && is_read; i++)
            is_read = add_entry(json_array_get(entries, i), &comparison->top1[i], comparison->n_devices,
                                comparison->probes[comparison->top1[i].probe].n_samples);
        if (!is_read)
            return nd_fail(err, ND_E_COMPARE_PART, parts->paths[part],
                           "the accuracy counts in '%s' are malformed", parts->paths[part]);
    }
    return ND_OK;
}
