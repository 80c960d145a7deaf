#include "record/sessions/edge_kinds.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* FNV-1a, 64 bits. Two kinds that met in one number would only be tried together. */
static uint64_t mix(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static const uint64_t hash_start = 14695981039346656037u;

static uint64_t hash_of_unit(const struct nd_model_unit *unit)
{
    return unit != NULL ? mix(hash_start, unit->op_types, strlen(unit->op_types)) : hash_start;
}

/* The edge's own operator, those that make its inputs, in order, and those that read it, in any order. */
static void hash_edges(const struct nd_model *model, const struct nd_model_unit *const *maker, uint64_t *hashes)
{
    for (size_t e = 0; e < nd_model_n_edges(model); e++) {
        hashes[e] = hash_of_unit(maker[e]);
        for (size_t i = 0; maker[e] != NULL && i < maker[e]->n_inputs; i++) {
            uint64_t input = hash_of_unit(maker[maker[e]->inputs[i]]);
            hashes[e] = mix(hashes[e], &input, sizeof input);
        }
    }
    for (size_t u = 0; u < nd_model_n_units(model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(model, u);
        for (size_t i = 0; i < unit->n_inputs; i++)
            hashes[unit->inputs[i]] += mix(hash_of_unit(unit), &i, sizeof i);
    }
}

enum nd_status nd_edge_kinds(const struct nd_model *model, size_t **kinds, struct nd_error *err)
{
    size_t n = nd_model_n_edges(model);
    const struct nd_model_unit **maker = nd_calloc(n, sizeof *maker);
    uint64_t *hashes = nd_calloc(n, sizeof *hashes);
    size_t *out = nd_calloc(n, sizeof *out);
    enum nd_status status = maker != NULL && hashes != NULL && out != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        for (size_t u = 0; u < nd_model_n_units(model); u++)
            maker[nd_model_unit(model, u)->edge] = nd_model_unit(model, u);
        hash_edges(model, maker, hashes);
        for (size_t e = 0; e < n; e++) {
            out[e] = 0;
            while (hashes[out[e]] != hashes[e])
                out[e]++;
        }
        *kinds = out;
        out = NULL;
    }
    free(maker);
    free(hashes);
    free(out);
    return status;
}
