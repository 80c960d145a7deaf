/* Which of the files in wheels, folders and SDKs make a runtime, ABI by ABI. */
#include "devices/runtimes/runtimes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"

/* ---- looking into files ---- */

static bool is_ort(const char *base)
{
    static const char name[] = "libonnxruntime.so";
    size_t n = strlen(name);
    return strncmp(base, name, n) == 0 && (base[n] == '\0' || base[n] == '.');
}

static bool is_wanted(const char *base)
{
    return is_ort(base) || strcmp(base, "qnn-net-run") == 0 ||
           (strncmp(base, "lib", 3) == 0 && strstr(base, ".so") != NULL && nd_runtime_is_needed(base) &&
            strncmp(base, "libc++", 6) != 0 && strncmp(base, "libunwind", 9) != 0);
}

/* Where the bytes of a file can be read: in place, or taken out of its archive. */
static enum nd_status place(const struct nd_runtime_parts *parts, struct nd_part *part, struct nd_error *err)
{
    const struct nd_runtime_source *source = &parts->sources[part->source];
    char name[64];
    if (source->zip == NULL) {
        part->path = nd_path_join(source->path, part->name);
        return part->path != NULL ? ND_OK : nd_fail_memory(err);
    }
    snprintf(name, sizeof name, "part-%zu-%zu", part->source, part->file);
    part->path = nd_path_join(parts->folder, name);
    ND_TRY_MEMORY(part->path != NULL, err);
    enum nd_status status = nd_runtime_source_extract(source, part->file, part->path, parts->is_cancelled,
                                                      parts->cancel_context, err);
    part->is_extracted = status == ND_OK;
    return status;
}

static void free_part(struct nd_part *part)
{
    nd_elf_deinit(&part->facts);
    free(part->path);
}

/* is_needed: what is no library is an error, not something else. */
static enum nd_status add_part(struct nd_runtime_parts *parts, size_t source, size_t file, bool is_needed,
                               struct nd_error *err)
{
    struct nd_part part = {.source = source, .file = file, .name = parts->sources[source].files[file].name};
    bool is_elf = false;
    part.base = nd_path_base(part.name);
    if (!nd_is_clean_text(part.name)) {
        char *clean = nd_shown_text(part.name);
        enum nd_status refused = clean != NULL ? nd_fail(err, ND_E_RUNTIME_SOURCE, parts->sources[source].path,
                                                         "'%s' is refused: the name of '%.200s' is no UTF-8, "
                                                         "or has characters that a terminal obeys",
                                                         parts->sources[source].path, clean)
                                               : nd_fail_memory(err);
        free(clean);
        return refused;
    }
    ND_TRY_MEMORY(nd_grow((void **)&parts->items, &parts->capacity, parts->n + 1, sizeof *parts->items), err);
    enum nd_status status = place(parts, &part, err);
    if (status == ND_OK)
        status = nd_elf_read(part.path, &is_elf, &part.facts, err);
    if (status == ND_OK && !is_elf && !is_needed) { /* text that a linker reads may have a library's name */
        free_part(&part);
        return ND_OK;
    }
    if (status == ND_OK && !is_elf)
        status = nd_fail(err, ND_E_RUNTIME_LIBRARY, part.name, "it is no library or program (not an ELF file)");
    if (status != ND_OK) {
        if (status != ND_ERR_MEMORY && status != ND_ERR_IO)
            nd_error_context(err, "'%s' in '%s'", part.name, parts->sources[source].path);
        free_part(&part);
        return status;
    }
    parts->items[parts->n++] = part;
    return ND_OK;
}

/* ---- what the parts are linked with ---- */

static bool is_known(const struct nd_runtime_parts *parts, size_t source, size_t file)
{
    for (size_t i = 0; i < parts->n; i++)
        if (parts->items[i].source == source && parts->items[i].file == file)
            return true;
    return false;
}

static enum nd_status add_named(struct nd_runtime_parts *parts, const char *base, struct nd_error *err)
{
    for (size_t s = 0; s < parts->n_sources; s++)
        for (size_t f = 0; f < parts->sources[s].n; f++)
            if (strcmp(nd_path_base(parts->sources[s].files[f].name), base) == 0 && !is_known(parts, s, f))
                ND_TRY(add_part(parts, s, f, false, err));
    return ND_OK;
}

enum nd_status nd_parts_find(struct nd_runtime_parts *parts, struct nd_error *err)
{
    for (size_t s = 0; s < parts->n_sources; s++)
        for (size_t f = 0; f < parts->sources[s].n; f++) {
            const char *base = nd_path_base(parts->sources[s].files[f].name);
            parts->has_windows |= nd_ends_with(base, ".dll");
            parts->has_macos |= nd_ends_with(base, ".dylib");
            if (is_wanted(base))
                ND_TRY(add_part(parts, s, f, true, err));
        }
    /* The list grows while it is walked: what a library brings may need another one. */
    for (size_t i = 0; i < parts->n; i++)
        for (size_t k = 0; k < parts->items[i].facts.n_needed; k++)
            ND_TRY(add_named(parts, parts->items[i].facts.needed[k], err));
    return ND_OK;
}

void nd_parts_deinit(struct nd_runtime_parts *parts)
{
    ND_DEINIT_EACH(free_part, parts->items, parts->n);
    parts->items = NULL;
    parts->n = 0;
}

/* ---- choosing ---- */

/* Lengths of the folder part of a path, without the last '/'. */
static size_t folder_bytes(const struct nd_part *part)
{
    size_t n = (size_t)(part->base - part->name);
    return n > 0 ? n - 1 : 0;
}

static bool is_same_folder(const struct nd_part *a, const struct nd_part *b)
{
    return a->source == b->source && folder_bytes(a) == folder_bytes(b) &&
           strncmp(a->name, b->name, folder_bytes(a)) == 0;
}

/* Whether the folders that the two lie in have the same name: bin/aarch64-android and lib/aarch64-android. */
static bool is_like_folder(const struct nd_part *a, const struct nd_part *b)
{
    size_t n_a = 0, n_b = 0, at_a = folder_bytes(a), at_b = folder_bytes(b);
    while (at_a > n_a && a->name[at_a - n_a - 1] != '/')
        n_a++;
    while (at_b > n_b && b->name[at_b - n_b - 1] != '/')
        n_b++;
    return n_a == n_b && n_a > 0 && strncmp(a->name + at_a - n_a, b->name + at_b - n_b, n_a) == 0;
}

static bool is_same_file(const struct nd_part *a, const struct nd_part *b)
{
    struct stat left, right;
    return stat(a->path, &left) == 0 && stat(b->path, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

/* How well a part fits to one that was chosen before it. */
static int closeness(const struct nd_part *part, const struct nd_part *to)
{
    int points = strstr(part->name, "unsigned") != NULL ? 1 : 0; /* of skeletons: what a phone takes from us */
    if (to != NULL && is_like_folder(part, to))
        points += 2;
    if (to != NULL && is_same_folder(part, to))
        points += 4;
    return points;
}

/* The nearest to `to`, then the last by version: libonnxruntime.so.1.31.1 rather than a link to it. Notes a
 * backend that was not taken. */
static enum nd_status best(const struct nd_runtime_parts *parts, struct nd_pick *pick,
                           bool (*is_it)(const char *base), const struct nd_part *to,
                           const struct nd_part **out, struct nd_error *err)
{
    const struct nd_part *chosen = NULL, *other = NULL;
    for (size_t i = 0; i < parts->n; i++) {
        const struct nd_part *part = &parts->items[i];
        if (part->facts.abi == NULL || strcmp(part->facts.abi, pick->abi) != 0 || !is_it(part->base))
            continue;
        if (chosen != NULL && chosen->source != part->source && !is_same_file(chosen, part))
            return nd_fail(err, ND_E_RUNTIME_SOURCE, part->name,
                           "two libraries for %s: '%s' in '%s' and '%s' in '%s'; give one of them", pick->abi,
                           chosen->name, parts->sources[chosen->source].path, part->name,
                           parts->sources[part->source].path);
        int order = chosen == NULL ? 1 : closeness(part, to) - closeness(chosen, to);
        if (order == 0)
            order = strverscmp(part->name, chosen->name);
        const struct nd_part *passed = order > 0 ? chosen : part;
        if (passed != NULL && !is_same_file(passed, order > 0 ? part : chosen))
            other = passed;
        if (order > 0)
            chosen = part;
    }
    if (out == &pick->backend && other != NULL)
        pick->passed_over = other->name;
    *out = chosen;
    return ND_OK;
}

static bool is_provider(const char *base)
{
    return strcmp(base, "libonnxruntime_providers_qnn.so") == 0;
}

static bool is_backend(const char *base)
{
    return strcmp(base, "libQnnHtp.so") == 0;
}

static bool is_net_run(const char *base)
{
    return strcmp(base, "qnn-net-run") == 0;
}

static enum nd_status take(struct nd_pick *pick, const struct nd_part *part, struct nd_error *err)
{
    if (part == NULL)
        return ND_OK;
    for (size_t i = 0; i < pick->n; i++) {
        if (pick->files[i] == part || strcmp(pick->files[i]->base, part->base) == 0)
            return ND_OK; /* from a place farther away: devices get all files in one folder */
    }
    ND_TRY_MEMORY(nd_grow((void **)&pick->files, &pick->capacity, pick->n + 1, sizeof *pick->files), err);
    pick->files[pick->n++] = part;
    return ND_OK;
}

/* The library of that name for the ABI that is nearest to `to`. */
static const struct nd_part *nearest(const struct nd_runtime_parts *parts, const char *abi, const char *base,
                                     const struct nd_part *to)
{
    const struct nd_part *found = NULL;
    for (size_t i = 0; i < parts->n; i++) {
        const struct nd_part *part = &parts->items[i];
        if (part->facts.abi != NULL && strcmp(part->facts.abi, abi) == 0 && strcmp(part->base, base) == 0 &&
            (found == NULL || closeness(part, to) > closeness(found, to)))
            found = part;
    }
    return found;
}

/* What lies beside the provider and the backend and is loaded by them, without being linked with them. */
static enum nd_status take_beside(const struct nd_runtime_parts *parts, struct nd_pick *pick,
                                  struct nd_error *err)
{
    for (size_t i = 0; i < parts->n; i++) {
        const struct nd_part *part = &parts->items[i];
        if (part->facts.abi == NULL || strcmp(part->facts.abi, pick->abi) != 0 ||
            !nd_runtime_is_needed(part->base))
            continue;
        if ((pick->backend != NULL && is_same_folder(part, pick->backend)) ||
            (pick->ort != NULL && is_same_folder(part, pick->ort)))
            ND_TRY(take(pick, part, err));
    }
    return ND_OK;
}

/* Code for the NPU itself, which every phone or board needs. */
static enum nd_status take_skeletons(const struct nd_runtime_parts *parts, struct nd_pick *pick,
                                     struct nd_error *err)
{
    if (pick->backend == NULL || strcmp(pick->abi, "x86_64-linux") == 0)
        return ND_OK;
    for (size_t i = 0; i < parts->n; i++) {
        const struct nd_part *part = &parts->items[i];
        if (part->facts.abi != NULL && strcmp(part->facts.abi, "hexagon") == 0 &&
            nd_runtime_arch_of(part->base, "Skel") > 0)
            ND_TRY(take(pick, nearest(parts, "hexagon", part->base, pick->backend), err));
    }
    return ND_OK;
}

static enum nd_status take_linked(const struct nd_runtime_parts *parts, struct nd_pick *pick,
                                  struct nd_error *err)
{
    for (size_t i = 0; i < pick->n; i++)
        for (size_t k = 0; k < pick->files[i]->facts.n_needed; k++) {
            const struct nd_elf_facts *facts = &pick->files[i]->facts;
            ND_TRY(take(pick, nearest(parts, facts->abi, facts->needed[k], pick->files[i]), err));
        }
    return ND_OK;
}

enum nd_status nd_pick_choose(const struct nd_runtime_parts *parts, struct nd_pick *pick, struct nd_error *err)
{
    ND_TRY(best(parts, pick, is_backend, NULL, &pick->backend, err));
    ND_TRY(best(parts, pick, is_ort, NULL, &pick->ort, err));
    ND_TRY(best(parts, pick, is_provider, pick->backend, &pick->provider, err));
    ND_TRY(best(parts, pick, is_net_run, pick->backend, &pick->net_run, err));
    const struct nd_part *const main_parts[] = {pick->ort, pick->provider, pick->backend, pick->net_run};
    for (size_t i = 0; i < 4; i++)
        ND_TRY(take(pick, main_parts[i], err));
    ND_TRY(take_beside(parts, pick, err));
    ND_TRY(take_skeletons(parts, pick, err));
    return take_linked(parts, pick, err);
}
