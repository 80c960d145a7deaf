#include "record/import/edge_match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/import/match_tensor.h"
#include "npudiff/core/parse.h"

static int compare_order(const void *a, const void *b)
{
    const struct nd_matched_tensor *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* No edge twice. */
static enum nd_status check_side(const struct nd_matched *matched, enum nd_imported_side side,
                                 struct nd_error *err)
{
    for (size_t i = 0; i < matched->n[side]; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(matched->sides[side][i].edge.name, matched->sides[side][k].edge.name) == 0)
                return nd_fail(err, ND_E_IMPORT_MISMATCH, matched->sides[side][i].edge.name,
                               "two tensors are '%s' of the model; --map says which is which, or skips one",
                               matched->sides[side][i].edge.name);
    return ND_OK;
}

/* All tensors of a side have the same number of samples; those of outputs count repeats, too. */
static enum nd_status count_samples(const struct nd_imported_tensor *tensor, size_t *n, const char **first,
                                    struct nd_error *err)
{
    if (tensor->n_samples == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, tensor->name, "%s has no samples", tensor->where);
    if (*first == NULL) {
        *first = tensor->where;
        *n = tensor->n_samples;
    }
    if (tensor->n_samples == *n)
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name, "%s has %zu samples, but %s has %zu", tensor->where,
                   tensor->n_samples, *first, *n);
}

/* One side of an import, and what all its tensors have in common. */
struct side {
    struct nd_imported *imported;
    struct nd_map *map;
    const struct nd_import_options *options;
    enum nd_imported_side side;
    size_t n_samples;
    const char *first; /* where the first tensor is from */
};

static struct nd_matching begin(const struct side *side, size_t i)
{
    struct nd_imported_tensor *tensor = &side->imported->sides[side->side].items[i];
    return (struct nd_matching){.imported = side->imported,
                                .options = side->options,
                                .side = side->side,
                                .tensor = tensor,
                                .item = nd_map_find(side->map, side->side, tensor->name)};
}

static enum nd_status match_side(struct side *side, struct nd_matched *out, struct nd_error *err)
{
    size_t n = side->imported->sides[side->side].n;
    enum nd_status status = ND_OK;
    struct nd_matched_tensor *tensors = nd_calloc(n, sizeof *tensors);
    out->sides[side->side] = tensors;
    if (tensors == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_matching m = begin(side, i);
        if (m.item != NULL)
            m.item->is_used = true;
        if (m.item != NULL && m.item->is_skipped)
            continue;
        struct nd_matched_tensor *made = &tensors[out->n[side->side]++];
        made->order = i;
        status = nd_match_tensor(&m, made, err);
        if (status == ND_OK)
            status = count_samples(m.tensor, &side->n_samples, &side->first, err);
    }
    if (status == ND_OK)
        status = check_side(out, side->side, err);
    if (status == ND_OK && out->n[side->side] > 0)
        qsort(tensors, out->n[side->side], sizeof *tensors, compare_order);
    return status;
}

static enum nd_status check_map(const struct nd_map *map, const struct nd_imported *imported,
                                struct nd_error *err)
{
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < map->sides[s].n; i++) {
            const struct nd_map_item *item = &map->sides[s].items[i];
            struct nd_strbuf list = {0};
            if (item->is_used)
                continue;
            for (size_t t = 0; t < imported->sides[s].n && list.len < 400; t++)
                nd_strbuf_printf(&list, "%s'%s'", t > 0 ? ", " : "", imported->sides[s].items[t].name);
            char *names = nd_strbuf_take(&list);
            enum nd_status status =
                nd_fail(err, ND_E_IMPORT_MAP, item->name, "%s: the files have no %s '%s'; they have %.480s",
                        item->where, s == ND_IMPORTED_OUTPUT ? "tensor" : "input", item->name,
                        names == NULL || names[0] == '\0' ? "none" : names);
            free(names);
            return status;
        }
    return ND_OK;
}

/* All inputs of the model or none: with some missing nothing could tell what was fed. */
static enum nd_status check_inputs(const struct nd_matched *matched, const struct nd_model *model,
                                   struct nd_error *err)
{
    size_t n = matched->n[ND_IMPORTED_INPUT];
    for (size_t i = 0; model != NULL && n > 0 && i < nd_model_n_inputs(model); i++)
        if (i >= n || matched->sides[ND_IMPORTED_INPUT][i].order != i)
            return nd_fail(err, ND_E_IMPORT_NOTHING, nd_model_input(model, i)->name,
                           "input '%s' of the model is missing among the inputs",
                           nd_model_input(model, i)->name);
    return ND_OK;
}

enum nd_status nd_match_samples(struct nd_imported *imported, struct nd_map *map,
                                const struct nd_import_options *options, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (int s = ND_IMPORTED_OUTPUT; s <= ND_IMPORTED_INPUT; s++) {
        const struct side side = {imported, map, options, (enum nd_imported_side)s, 0, NULL};
        for (size_t i = 0; status == ND_OK && i < imported->sides[s].n; i++) {
            struct nd_matching m = begin(&side, i);
            if (m.item == NULL || !m.item->is_skipped)
                status = nd_match_layout(&m, err);
        }
    }
    return status;
}

/* How many samples there are, and how many there should be. */
static enum nd_status settle_samples(const struct side *outputs, const struct side *inputs,
                                     struct nd_matched *out, struct nd_error *err)
{
    const struct nd_imported *imported = outputs->imported;
    size_t n_inputs = inputs->n_samples;
    uint64_t stated = 0;
    const char *text = nd_stated(&imported->stated, ND_STATED_SAMPLES);
    out->n_repeats = imported->n_repeats > 0 ? imported->n_repeats : 1;
    out->n_samples = outputs->n_samples / out->n_repeats;
    out->n_expected = out->n_samples;
    if (text != NULL && nd_parse_u64(text, &stated)) {
        out->n_expected = (size_t)stated;
        if (stated < out->n_samples || imported->n_parts > 0) {
            char found[48];
            snprintf(found, sizeof found, "%zu", out->n_samples);
            return nd_stated_conflict(&imported->stated, ND_STATED_SAMPLES, found,
                                      imported->n_parts > 0 ? "npudiff.json" : "what was imported", err);
        }
    } else if (imported->is_failed && n_inputs > out->n_samples) {
        out->n_expected = n_inputs;
    }
    if (n_inputs > 0 && n_inputs != out->n_expected)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, NULL, "%s has %zu samples, but there are %zu", inputs->first,
                       n_inputs, out->n_expected);
    return ND_OK;
}

enum nd_status nd_match(struct nd_imported *imported, struct nd_map *map,
                        const struct nd_import_options *options, struct nd_matched *out, struct nd_error *err)
{
    struct nd_matched matched = {0};
    struct side outputs = {imported, map, options, ND_IMPORTED_OUTPUT, 0, NULL};
    struct side inputs = {imported, map, options, ND_IMPORTED_INPUT, 0, NULL};
    enum nd_status status = match_side(&outputs, &matched, err);
    if (status == ND_OK)
        status = match_side(&inputs, &matched, err);
    if (status == ND_OK)
        status = check_map(map, imported, err);
    if (status == ND_OK)
        status = check_inputs(&matched, options->model, err);
    if (status == ND_OK && matched.n[ND_IMPORTED_OUTPUT] == 0 && !imported->is_failed)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, options->paths[0], "'%s' holds no tensor to import",
                         options->paths[0]);
    if (status == ND_OK)
        status = settle_samples(&outputs, &inputs, &matched, err);
    if (status == ND_OK)
        *out = matched;
    else
        nd_matched_deinit(&matched);
    return status;
}

void nd_matched_deinit(struct nd_matched *matched)
{
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < matched->n[s]; i++)
            nd_edge_deinit(&matched->sides[s][i].edge);
        free(matched->sides[s]);
    }
    *matched = (struct nd_matched){0};
}
