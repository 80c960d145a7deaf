#include "record/import/facts.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

/* An attribute takes 60000 bytes. */
enum { MAX_TEXT_BYTES = 50000 };

/* The one source of all facts of the kind, or NULL. */
static const char *only_source(const struct nd_imported *imported, const char *kind)
{
    const char *source = NULL;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const struct nd_imported_fact *fact = &imported->facts[i];
        if (strcmp(fact->kind, kind) != 0)
            continue;
        if (source != NULL && strcmp(source, fact->source) != 0)
            return NULL;
        source = fact->source;
    }
    return source;
}

static char *list_sources(const struct nd_imported *imported, const char *kind)
{
    struct nd_strbuf text = {0};
    size_t n_left = 0;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const struct nd_imported_fact *fact = &imported->facts[i];
        if (strcmp(fact->kind, kind) != 0)
            continue;
        const char *tensor = fact->tensor != NULL ? fact->tensor : "others";
        if (n_left > 0 || text.len + strlen(tensor) + strlen(fact->source) + 4 > MAX_TEXT_BYTES)
            n_left++;
        else
            nd_strbuf_printf(&text, "%s%s: %s", text.len > 0 ? "\n" : "", tensor, fact->source);
    }
    if (n_left > 0)
        nd_strbuf_printf(&text, "\nand %zu more", n_left);
    return nd_strbuf_take(&text);
}

static bool has_kind(const struct nd_import_result *result, const char *kind)
{
    for (size_t i = 0; i < result->n_facts; i++)
        if (strcmp(result->facts[i].kind, kind) == 0)
            return true;
    return false;
}

enum nd_status nd_facts_sum_up(const struct nd_imported *imported, struct nd_import_result *out,
                               struct nd_error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < imported->n_facts; i++) {
        const char *kind = imported->facts[i].kind;
        if (has_kind(out, kind))
            continue;
        if (!nd_grow((void **)&out->facts, &capacity, out->n_facts + 1, sizeof *out->facts))
            return nd_fail_memory(err);
        const char *only = only_source(imported, kind);
        struct nd_import_fact *made = &out->facts[out->n_facts++];
        *made = (struct nd_import_fact){nd_strdup(kind),
                                        only != NULL ? nd_strdup(only) : list_sources(imported, kind)};
        if (made->kind == NULL || made->source == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}
