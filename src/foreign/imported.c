#include "foreign/imported.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static void tensor_deinit(struct nd_imported_tensor *tensor)
{
    free(tensor->name);
    free(tensor->where);
    free(tensor->data);
    free(tensor->quant.scale);
    free(tensor->quant.zero_point);
    *tensor = (struct nd_imported_tensor){0};
}

void nd_imported_deinit(struct nd_imported *imported)
{
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < imported->sides[s].n; i++)
            tensor_deinit(&imported->sides[s].items[i]);
        free(imported->sides[s].items);
        nd_hashed_deinit(&imported->sides[s].names);
    }
    for (size_t i = 0; i < imported->n_facts; i++) {
        free(imported->facts[i].kind);
        free(imported->facts[i].tensor);
        free(imported->facts[i].source);
    }
    for (size_t i = 0; i < imported->n_logs; i++) {
        free(imported->logs[i].name);
        free(imported->logs[i].text);
    }
    for (size_t i = 0; i < imported->n_parts; i++) {
        free(imported->parts[i].name);
        free(imported->parts[i].source);
        free(imported->parts[i].labels);
    }
    nd_statements_deinit(&imported->stated);
    free(imported->latency_us);
    free(imported->kind);
    free(imported->parts);
    free(imported->chipset);
    free(imported->model_sha256);
    free(imported->model_file);
    free(imported->cut_short);
    free(imported->labels);
    free(imported->facts);
    nd_hashed_deinit(&imported->fact_keys);
    free(imported->logs);
    *imported = (struct nd_imported){0};
}

static uint64_t hash_of(const char *text)
{
    return nd_digest_bytes(text, strlen(text)).low;
}

struct nd_imported_tensor *nd_imported_find(const struct nd_imported *imported, enum nd_imported_side side,
                                            const char *name)
{
    const struct nd_imported_list *list = &imported->sides[side];
    uint64_t hash = hash_of(name);
    size_t at = 0, i;
    while ((i = nd_hashed_next(&list->names, hash, &at)) != SIZE_MAX)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

/* A header that promises more than the machine can hold must not be tried. */
static enum nd_status count_bytes(struct nd_imported *imported, const char *where, size_t n_bytes,
                                  struct nd_error *err)
{
    size_t total, memory = SIZE_MAX;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        memory = (size_t)pages * (size_t)page;
    if (!nd_size_add(imported->total_bytes, n_bytes, &total) || total > memory)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL,
                       "%s: with its %zu bytes the data is larger than this machine's memory of %zu bytes",
                       where, n_bytes, memory);
    imported->total_bytes = total;
    return ND_OK;
}

/* A new tensor without data at the end of its list. */
static enum nd_status add_tensor(struct nd_imported *imported, enum nd_imported_side side,
                                 const struct nd_imported_tensor *like, struct nd_error *err)
{
    struct nd_imported_list *list = &imported->sides[side];
    if (like->name[0] == '\0')
        return nd_fail(err, ND_E_IMPORT_FORMAT, NULL, "%s has no name", like->where);
    const struct nd_imported_tensor *other = nd_imported_find(imported, side, like->name);
    if (other != NULL)
        return nd_fail(err, ND_E_IMPORT_FORMAT, like->name, "there are two tensors '%s': %s and %s", like->name,
                       other->where, like->where);
    if (like->dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, like->name, "%s has a type that is not supported", like->where);
    if (!nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items))
        return nd_fail_memory(err);
    struct nd_imported_tensor *made = &list->items[list->n];
    *made = *like;
    made->name = nd_strdup(like->name);
    made->where = nd_strdup(like->where);
    if (made->name == NULL || made->where == NULL || !nd_hashed_add(&list->names, hash_of(made->name))) {
        tensor_deinit(made);
        return nd_fail_memory(err);
    }
    list->n++;
    return ND_OK;
}

enum nd_status nd_imported_array(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                                 const char *where, enum nd_dtype dtype, const struct nd_shape *shape,
                                 void **data, struct nd_error *err)
{
    struct nd_imported_tensor like = {.name = (char *)name,
                                      .where = (char *)where,
                                      .dtype = dtype,
                                      .shape = *shape,
                                      .is_array = true,
                                      .n_samples = 1};
    enum nd_status status = ND_OK;
    if (dtype != ND_DTYPE_NONE)
        status = nd_shape_size_bytes(shape, dtype, &like.sample_bytes, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s", where);
        return status;
    }
    status = count_bytes(imported, where, like.sample_bytes, err);
    if (status == ND_OK)
        status = add_tensor(imported, side, &like, err);
    if (status != ND_OK)
        return status;
    struct nd_imported_tensor *made = &imported->sides[side].items[imported->sides[side].n - 1];
    made->data = nd_tensor_alloc(made->sample_bytes);
    made->capacity_bytes = made->sample_bytes;
    if (made->data == NULL)
        return nd_fail_memory(err);
    *data = made->data;
    return ND_OK;
}

/* Room for one sample more; the number of samples is not known before, so the room doubles. */
static enum nd_status grow_samples(struct nd_imported_tensor *tensor, struct nd_error *err)
{
    size_t needed = (tensor->n_samples + 1) * tensor->sample_bytes; /* counted by count_bytes */
    if (needed <= tensor->capacity_bytes && tensor->data != NULL)
        return ND_OK;
    size_t capacity = tensor->capacity_bytes * 2 > needed ? tensor->capacity_bytes * 2 : needed;
    void *grown = nd_tensor_alloc(capacity);
    if (grown == NULL)
        return nd_fail_memory(err);
    if (tensor->data != NULL)
        memcpy(grown, tensor->data, tensor->n_samples * tensor->sample_bytes);
    free(tensor->data);
    tensor->data = grown;
    tensor->capacity_bytes = capacity;
    return ND_OK;
}

static enum nd_status check_alike(const struct nd_imported_tensor *tensor, const char *where, size_t sample,
                                  enum nd_dtype dtype, const struct nd_shape *shape, struct nd_error *err)
{
    char found[128], expected[128];
    if (sample != tensor->n_samples)
        return nd_fail(err, ND_E_IMPORT_FORMAT, tensor->name,
                       "%s is sample %zu of '%s', but sample %zu is missing", where, sample, tensor->name,
                       tensor->n_samples);
    if (dtype == tensor->dtype && nd_shape_equal(shape, &tensor->shape))
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name, "%s is %s %s, but sample 0 of '%s' is %s %s", where,
                   nd_dtype_name(dtype), nd_shape_format(shape, found, sizeof found), tensor->name,
                   nd_dtype_name(tensor->dtype), nd_shape_format(&tensor->shape, expected, sizeof expected));
}

enum nd_status nd_imported_sample(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                                  const char *where, size_t sample, enum nd_dtype dtype,
                                  const struct nd_shape *shape, void **data, struct nd_error *err)
{
    struct nd_imported_tensor like = {
        .name = (char *)name, .where = (char *)where, .dtype = dtype, .shape = *shape};
    struct nd_imported_tensor *tensor = nd_imported_find(imported, side, name);
    enum nd_status status = ND_OK;
    if (dtype != ND_DTYPE_NONE)
        status = nd_shape_size_bytes(shape, dtype, &like.sample_bytes, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s", where);
        return status;
    }
    if (tensor == NULL) {
        status = add_tensor(imported, side, &like, err);
        tensor = status == ND_OK ? &imported->sides[side].items[imported->sides[side].n - 1] : NULL;
    }
    if (status == ND_OK)
        status = check_alike(tensor, where, sample, dtype, shape, err);
    if (status == ND_OK)
        status = count_bytes(imported, where, tensor->sample_bytes, err);
    if (status == ND_OK)
        status = grow_samples(tensor, err);
    if (status != ND_OK)
        return status;
    *data = (char *)tensor->data + tensor->n_samples * tensor->sample_bytes;
    tensor->n_samples++;
    return ND_OK;
}

enum nd_status nd_imported_set_quant(struct nd_imported_tensor *tensor, const struct nd_quant *quant,
                                     struct nd_error *err)
{
    float *scale = nd_calloc(quant->n, sizeof *scale);
    int64_t *zero_point = nd_calloc(quant->n, sizeof *zero_point);
    if (scale == NULL || zero_point == NULL) {
        free(scale);
        free(zero_point);
        return nd_fail_memory(err);
    }
    memcpy(scale, quant->scale, quant->n * sizeof *scale);
    memcpy(zero_point, quant->zero_point, quant->n * sizeof *zero_point);
    free(tensor->quant.scale);
    free(tensor->quant.zero_point);
    tensor->quant = (struct nd_quant){quant->n, quant->n > 1 ? quant->axis : -1, scale, zero_point};
    return ND_OK;
}

static uint64_t hash_of_fact(const char *kind, const char *tensor)
{
    return hash_of(kind) * 3 + (tensor != NULL ? hash_of(tensor) : 0);
}

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

enum nd_status nd_imported_fact(struct nd_imported *imported, const char *kind, const char *tensor,
                                const char *source, struct nd_error *err)
{
    char *text = nd_strdup(source);
    uint64_t hash = hash_of_fact(kind, tensor);
    size_t at = 0, i;
    while (text != NULL && (i = nd_hashed_next(&imported->fact_keys, hash, &at)) != SIZE_MAX) {
        struct nd_imported_fact *fact = &imported->facts[i];
        if (strcmp(fact->kind, kind) != 0 || !is_same_text(fact->tensor, tensor))
            continue;
        free(fact->source);
        fact->source = text;
        return ND_OK;
    }
    struct nd_imported_fact made = {nd_strdup(kind), nd_strdup(tensor), text};
    if (text == NULL || made.kind == NULL || (tensor != NULL && made.tensor == NULL) ||
        !nd_grow((void **)&imported->facts, &imported->facts_capacity, imported->n_facts + 1,
                 sizeof *imported->facts) ||
        !nd_hashed_add(&imported->fact_keys, hash)) {
        free(made.kind);
        free(made.tensor);
        free(text);
        return nd_fail_memory(err);
    }
    imported->facts[imported->n_facts++] = made;
    return ND_OK;
}

bool nd_imported_has_fact(const struct nd_imported *imported, const char *kind)
{
    for (size_t i = 0; i < imported->n_facts; i++)
        if (strcmp(imported->facts[i].kind, kind) == 0 && imported->facts[i].tensor == NULL)
            return true;
    return false;
}

enum nd_status nd_imported_log(struct nd_imported *imported, const char *name, const char *text, size_t n_bytes,
                               struct nd_error *err)
{
    struct nd_imported_log made = {nd_strdup(name), nd_calloc(n_bytes + 1, 1), n_bytes};
    if (made.name == NULL || made.text == NULL ||
        !nd_grow((void **)&imported->logs, &imported->logs_capacity, imported->n_logs + 1,
                 sizeof *imported->logs)) {
        free(made.name);
        free(made.text);
        return nd_fail_memory(err);
    }
    memcpy(made.text, text, n_bytes);
    imported->logs[imported->n_logs++] = made;
    return ND_OK;
}

enum nd_status nd_imported_latency(struct nd_imported *imported, double latency_us, struct nd_error *err)
{
    if (!nd_grow((void **)&imported->latency_us, &imported->latencies_capacity, imported->n_latencies + 1,
                 sizeof *imported->latency_us))
        return nd_fail_memory(err);
    imported->latency_us[imported->n_latencies++] = latency_us;
    return ND_OK;
}
