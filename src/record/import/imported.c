/* What was read from foreign files, on its way to a capture: tensors, facts, logs; and which tensor of a model
 * a foreign name means. */
#include <ctype.h>
#include <stdio.h>
#include <time.h>

#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "record/import/imported.h"

/* Whether a converter may have written `name` for `original`. */
static bool may_be_written(const char *name, const char *original)
{
    size_t i = 0;
    if (name[0] == '_' && isdigit((unsigned char)original[0]))
        name++;
    for (; original[i] != '\0'; i++) {
        unsigned char c = (unsigned char)original[i];
        char written = c < 128 && isalnum(c) ? (char)c : '_';
        if (name[i] != written)
            return false;
    }
    return name[i] == '\0';
}

/* What has names: tensors, or inputs. */
struct named {
    const struct nd_model *model;
    size_t n;
    const char *(*name)(const struct nd_model *model, size_t i);
    const char *(*onnx_name)(const struct nd_model *model, size_t i);
    const char *what;
};

static const char *tensor_name(const struct nd_model *model, size_t i)
{
    return nd_model_tensor(model, i)->name;
}

static const char *tensor_onnx_name(const struct nd_model *model, size_t i)
{
    return nd_model_tensor(model, i)->onnx_name;
}

static const char *input_name(const struct nd_model *model, size_t i)
{
    return nd_model_input(model, i)->name;
}

static enum nd_status find_sanitised(const struct named *named, const char *name, size_t *out,
                                     struct nd_error *err)
{
    size_t n_found = 0;
    char list[512] = "";
    for (size_t i = 0; i < named->n; i++) {
        const char *own = named->name(named->model, i), *onnx = named->onnx_name(named->model, i);
        if (!may_be_written(name, own) && !may_be_written(name, onnx))
            continue;
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s'%s'", n_found > 0 ? ", " : "", named->name(named->model, i));
        n_found++;
        *out = i;
    }
    if (n_found == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, name, "the model has no %s '%s'", named->what, name);
    if (n_found > 1)
        return nd_fail(
            err, ND_E_IMPORT_MISMATCH, name,
            "'%s' may be any of the model's %ss %s, whose sanitised names are equal; --map says which", name,
            named->what, list);
    return ND_OK;
}

static enum nd_status find(const struct named *named, const char *name, bool is_sanitised, size_t *out,
                           enum nd_name_method *method, struct nd_error *err)
{
    const char *(*const names[])(const struct nd_model *, size_t) = {named->name, named->onnx_name};
    for (size_t w = 0; w < 2 && !is_sanitised; w++)
        for (size_t i = 0; i < named->n; i++)
            if (strcmp(names[w](named->model, i), name) == 0) {
                *out = i;
                *method = w == 0 ? ND_NAME_AS_IT_IS : ND_NAME_ONNX;
                return ND_OK;
            }
    ND_TRY(find_sanitised(named, name, out, err));
    *method = strcmp(named->name(named->model, *out), name) == 0 ? ND_NAME_AS_IT_IS : ND_NAME_SANITISED;
    return ND_OK;
}

enum nd_value_role nd_value_role_of(const struct nd_model *model, const char *name, size_t *tensor)
{
    const struct nd_graph *graph = &model->graph;
    size_t value = nd_names_find(&graph->names, name), qvalues = value;
    if (value == SIZE_MAX)
        return ND_VALUE_NONE;
    const struct nd_graph_tensor *found = &graph->tensors[value];
    enum nd_value_role role = ND_VALUE_AFTER;
    if (found->is_constant)
        return ND_VALUE_CONSTANT;
    if (found->producer != ND_NO_INDEX && graph->nodes[found->producer].kind == ND_NODE_DEQUANTIZE)
        qvalues = nd_graph_used(graph, found->producer, 0);
    for (size_t r = 0; r < found->n_readers && qvalues == value; r++) {
        size_t reader = graph->readers[found->first_reader + r];
        if (graph->nodes[reader].kind == ND_NODE_QUANTIZE) {
            qvalues = nd_graph_made(graph, reader, 0);
            role = ND_VALUE_BEFORE;
        }
    }
    *tensor = model->tensor_of_value[qvalues];
    return *tensor != ND_NO_INDEX                ? role
           : graph->tensors[qvalues].is_constant ? ND_VALUE_CONSTANT
                                                 : ND_VALUE_INSIDE;
}

enum nd_status nd_name_find_tensor(const struct nd_model *model, const char *name, bool is_sanitised,
                                   size_t *tensor, enum nd_name_method *method, struct nd_error *err)
{
    const struct named tensors = {model, nd_model_n_tensors(model), tensor_name, tensor_onnx_name, "tensor"};
    enum nd_status status = find(&tensors, name, is_sanitised, tensor, method, err);
    enum nd_value_role role =
        status == ND_ERR_NOT_FOUND ? nd_value_role_of(model, name, tensor) : ND_VALUE_NONE;
    if (role != ND_VALUE_AFTER && role != ND_VALUE_BEFORE)
        return status;
    *method = ND_NAME_VALUE;
    *err = (struct nd_error){0};
    return ND_OK;
}

enum nd_status nd_name_find_input(const struct nd_model *model, const char *name, bool is_sanitised,
                                  size_t *input, enum nd_name_method *method, struct nd_error *err)
{
    const struct named inputs = {model, nd_model_n_inputs(model), input_name, input_name, "input"};
    return find(&inputs, name, is_sanitised, input, method, err);
}

/* ---- what was read from foreign files, on its way to a capture: tensors, facts, logs ---- */

static void tensor_deinit(struct nd_imported_tensor *tensor)
{
    ND_FREE_ALL(tensor->name, tensor->where, tensor->data);
    nd_quant_deinit(&tensor->quant);
    *tensor = (struct nd_imported_tensor){0};
}

static void fact_deinit(struct nd_imported_fact *fact)
{
    ND_FREE_ALL(fact->key, fact->kind, fact->tensor, fact->source);
}

void nd_imported_deinit(struct nd_imported *imported)
{
    for (size_t s = 0; s < 2; s++) {
        ND_DEINIT_EACH(tensor_deinit, imported->sides[s].items, imported->sides[s].n);
        nd_names_deinit(&imported->sides[s].names);
    }
    for (size_t i = 0; i < imported->n_facts; i++)
        fact_deinit(&imported->facts[i]);
    for (size_t i = 0; i < imported->n_logs; i++)
        ND_FREE_ALL(imported->logs[i].name, imported->logs[i].text);
    for (size_t i = 0; i < imported->n_parts; i++)
        ND_FREE_ALL(imported->parts[i].name, imported->parts[i].source, imported->parts[i].labels);
    struct nd_statements *statements = &imported->stated;
    for (size_t k = 0; k < ND_N_STATED; k++) {
        nd_texts_deinit(&statements->of[k].values);
        ND_FREE_ALL(statements->of[k].where, statements->of[k].folder);
    }
    *statements = (struct nd_statements){0};
    ND_FREE_ALL(imported->latency_us, imported->shapes, imported->kind, imported->parts, imported->chipset,
                imported->model_sha256, imported->model_file, imported->cut_short, imported->labels,
                imported->facts);
    nd_names_deinit(&imported->fact_keys);
    free(imported->logs);
    *imported = (struct nd_imported){0};
}

struct nd_imported_tensor *nd_imported_find(const struct nd_imported *imported, enum nd_imported_side side,
                                            const char *name)
{
    const struct nd_imported_list *list = &imported->sides[side];
    size_t i = nd_names_find(&list->names, name);
    return i != SIZE_MAX ? &list->items[i] : NULL;
}

/* A header that promises more than the machine can hold must not be tried. */
static enum nd_status count_bytes(struct nd_imported *imported, const char *where, size_t n_bytes,
                                  struct nd_error *err)
{
    size_t total, memory = nd_machine_memory();
    if (!nd_size_add(imported->total_bytes, n_bytes, &total) || total > memory)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL,
                       "%s: with its %zu bytes the data is larger than this machine's memory of %zu bytes",
                       where, n_bytes, memory);
    imported->total_bytes = total;
    return ND_OK;
}

/* Chosen. A file of one sample takes some 50 us, so that this is for more than a million of them. What is read
 * comes at 200 MB/s and more. Files that name each other again and again could keep a reader busy for days. */
static const double usual_base_limit_s = 120, limit_bytes_per_s = 10 * 1024 * 1024;

/* Every reader comes here for each sample: processor time, so that a slow disk does not count. */
static enum nd_status check_time(struct nd_imported *imported, const char *where, struct nd_error *err)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    double now_s = (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
    double base_s = imported->base_limit_s > 0 ? imported->base_limit_s : usual_base_limit_s;
    double limit_s = base_s + (double)imported->total_bytes / limit_bytes_per_s;
    if (!imported->has_begun)
        imported->begun_s = now_s;
    imported->has_begun = true;
    if (now_s - imported->begun_s <= limit_s)
        return ND_OK;
    return nd_fail(err, ND_E_FILE_TIME, NULL,
                   "%s: reading was stopped at the limit of %.3g s of processor time for %zu bytes of values",
                   where, limit_s, imported->total_bytes);
}

/* A new tensor without data at the end of its list. */
static enum nd_status add_tensor(struct nd_imported_list *list, const struct nd_imported_new *added,
                                 size_t sample_bytes, struct nd_error *err)
{
    if (added->name[0] == '\0')
        return nd_fail(err, ND_E_IMPORT_FORMAT, NULL, "%s has no name", added->where);
    if (strlen(added->name) > ND_MAX_NAME_BYTES)
        return nd_fail(err, ND_E_IMPORT_FORMAT, NULL,
                       "the name of a tensor has %zu bytes; at most %d are accepted: '%.60s...'",
                       strlen(added->name), (int)ND_MAX_NAME_BYTES, added->name);
    if (added->dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, added->name, "%s has a type that is not supported", added->where);
    ND_TRY_MEMORY(nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items), err);
    struct nd_imported_tensor *made = &list->items[list->n];
    *made = (struct nd_imported_tensor){.name = nd_strdup(added->name),
                                        .where = nd_strdup(added->where),
                                        .dtype = added->dtype,
                                        .shape = added->shape,
                                        .is_array = added->sample == ND_IMPORTED_ARRAY,
                                        .sample_bytes = sample_bytes};
    if (made->name == NULL || made->where == NULL || !nd_names_add(&list->names, made->name, list->n)) {
        tensor_deinit(made);
        return nd_fail_memory(err);
    }
    list->n++;
    return ND_OK;
}

/* Room for one sample more, zeroed; how many there are is not known before, so the room doubles. */
static enum nd_status grow_samples(struct nd_imported_tensor *tensor, struct nd_error *err)
{
    size_t needed = (tensor->n_samples + 1) * tensor->sample_bytes; /* counted by count_bytes */
    if (needed > tensor->capacity_bytes || tensor->data == NULL) {
        size_t capacity = tensor->capacity_bytes * 2 > needed ? tensor->capacity_bytes * 2 : needed;
        void *grown = nd_tensor_room(capacity);
        ND_TRY_MEMORY(grown != NULL, err);
        if (tensor->data != NULL)
            memcpy(grown, tensor->data, needed - tensor->sample_bytes);
        free(tensor->data);
        tensor->data = grown;
        tensor->capacity_bytes = capacity;
    }
    memset((char *)tensor->data + needed - tensor->sample_bytes, 0, tensor->sample_bytes);
    return ND_OK;
}

/* The next sample of a tensor that is there. */
static enum nd_status check_alike(const struct nd_imported_tensor *tensor, const struct nd_imported_new *added,
                                  struct nd_error *err)
{
    char found[128], expected[128];
    if (added->sample == ND_IMPORTED_ARRAY)
        return nd_fail(err, ND_E_IMPORT_FORMAT, tensor->name, "there are two tensors '%s': %s and %s",
                       tensor->name, tensor->where, added->where);
    if (added->sample != tensor->n_samples)
        return nd_fail(err, ND_E_IMPORT_FORMAT, tensor->name,
                       "%s is sample %zu of '%s', but sample %zu is missing", added->where, added->sample,
                       tensor->name, tensor->n_samples);
    if (added->dtype == tensor->dtype && nd_shape_equal(&added->shape, &tensor->shape))
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, tensor->name, "%s is %s %s, but sample 0 of '%s' is %s %s",
                   added->where, nd_dtype_name(added->dtype),
                   nd_shape_format(&added->shape, found, sizeof found), tensor->name,
                   nd_dtype_name(tensor->dtype), nd_shape_format(&tensor->shape, expected, sizeof expected));
}

enum nd_status nd_imported_add(struct nd_imported *imported, const struct nd_imported_new *added, void **data,
                               struct nd_error *err)
{
    struct nd_imported_list *list = &imported->sides[added->side];
    struct nd_imported_tensor *tensor = nd_imported_find(imported, added->side, added->name);
    size_t sample_bytes = 0;
    ND_TRY(check_time(imported, added->where, err));
    enum nd_status status = added->dtype == ND_DTYPE_NONE
                                ? ND_OK
                                : nd_shape_size_bytes(&added->shape, added->dtype, &sample_bytes, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s", added->where);
        return status;
    }
    bool is_new = tensor == NULL;
    if (is_new) {
        ND_TRY(add_tensor(list, added, sample_bytes, err));
        tensor = &list->items[list->n - 1];
    }
    if (!is_new || added->sample != ND_IMPORTED_ARRAY)
        ND_TRY(check_alike(tensor, added, err));
    ND_TRY(count_bytes(imported, added->where, tensor->sample_bytes, err));
    ND_TRY(grow_samples(tensor, err));
    *data = (char *)tensor->data + tensor->n_samples * tensor->sample_bytes;
    tensor->n_samples++;
    return ND_OK;
}

enum nd_status nd_imported_set_quant(struct nd_imported_tensor *tensor, const struct nd_quant *quant,
                                     struct nd_error *err)
{
    const struct nd_quant given = {quant->n, quant->n > 1 ? quant->axis : -1, quant->scale, quant->zero_point};
    nd_quant_deinit(&tensor->quant);
    return nd_quant_copy(&given, &tensor->quant, err);
}

/* "types" of all tensors, "types\nconv1" of one. */
static char *key_of(const char *kind, const char *tensor)
{
    return nd_text("%s%s%s", kind, tensor != NULL ? "\n" : "", tensor != NULL ? tensor : "");
}

enum nd_status nd_imported_fact(struct nd_imported *imported, const char *kind, const char *tensor,
                                const char *source, struct nd_error *err)
{
    struct nd_imported_fact made = {key_of(kind, tensor), nd_strdup(kind), nd_strdup(tensor),
                                    nd_strdup(source)};
    bool is_whole =
        made.key != NULL && made.kind != NULL && (tensor == NULL || made.tensor != NULL) && made.source != NULL;
    size_t known = is_whole ? nd_names_find(&imported->fact_keys, made.key) : SIZE_MAX;
    if (known != SIZE_MAX) {
        struct nd_imported_fact *fact = &imported->facts[known];
        free(fact->source);
        fact->source = made.source;
        made.source = NULL;
        fact_deinit(&made);
        return ND_OK;
    }
    if (!is_whole ||
        !nd_grow((void **)&imported->facts, &imported->facts_capacity, imported->n_facts + 1,
                 sizeof *imported->facts) ||
        !nd_names_add(&imported->fact_keys, made.key, imported->n_facts)) {
        fact_deinit(&made);
        return nd_fail_memory(err);
    }
    imported->facts[imported->n_facts++] = made;
    return ND_OK;
}

enum nd_status nd_imported_log(struct nd_imported *imported, const char *name, const char *text, size_t n_bytes,
                               struct nd_error *err)
{
    struct nd_imported_log made = {nd_strdup(name), nd_calloc(n_bytes + 1, 1), n_bytes};
    if (made.name == NULL || made.text == NULL ||
        !nd_grow((void **)&imported->logs, &imported->logs_capacity, imported->n_logs + 1,
                 sizeof *imported->logs)) {
        ND_FREE_ALL(made.name, made.text);
        return nd_fail_memory(err);
    }
    memcpy(made.text, text, n_bytes);
    imported->logs[imported->n_logs++] = made;
    return ND_OK;
}

enum nd_status nd_imported_latency(struct nd_imported *imported, double latency_us, struct nd_error *err)
{
    ND_TRY_MEMORY(nd_grow((void **)&imported->latency_us, &imported->latencies_capacity,
                          imported->n_latencies + 1, sizeof *imported->latency_us),
                  err);
    imported->latency_us[imported->n_latencies++] = latency_us;
    return ND_OK;
}

/* Reads the header and makes sure that an imported tensor can have its type and rank. */
static enum nd_status open_array(struct nd_source *source, struct nd_npy *npy, struct nd_shape *shape,
                                 struct nd_error *err)
{
    char text[256];
    ND_TRY(nd_npy_open(source, npy, err));
    if (npy->dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, source->path,
                       "%s is of type %s; numbers of 8 to 64 bits and bool are read (of others, save the bits "
                       "as an unsigned integer and give 'dtype' in a --map)",
                       source->what, nd_npy_format_dtype(npy, text, sizeof text));
    if (npy->rank > ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, source->path, "%s has %d dimensions; at most %d are read",
                       source->what, npy->rank, ND_MAX_RANK);
    *shape = (struct nd_shape){.rank = npy->rank};
    memcpy(shape->dims, npy->dims, (size_t)npy->rank * sizeof *npy->dims);
    return ND_OK;
}

enum nd_status nd_npy_add(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                          size_t sample, struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy = {0};
    struct nd_imported_new added = {.side = side, .name = name, .where = source->what, .sample = sample};
    void *data = NULL;
    ND_TRY(open_array(source, &npy, &added.shape, err));
    added.dtype = npy.dtype;
    ND_TRY(nd_imported_add(imported, &added, &data, err));
    return nd_npy_read(source, &npy, data, err);
}
