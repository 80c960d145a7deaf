/* Probes of a capture as they are read: inputs, outputs, digests, repeats and reruns.
 * docs/reference/capture-format.md. */
#include <assert.h>
#include <stdio.h>

#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "core/items.h"
#include "core/memory.h"

/* ---- tables, which are refused when they contradict themselves ---- */

/* Of tensors, nodes and findings, whose rows are larger in memory than in the file. Chosen. */
enum { MAX_ROWS = 1000000 };

static bool is_shape(const struct nd_shape *found, const struct nd_shape *wanted)
{
    for (int i = 0; i < wanted->rank && found->rank == wanted->rank; i++)
        if (wanted->dims[i] >= 0 && found->dims[i] != wanted->dims[i])
            return false;
    return found->rank == wanted->rank;
}

/* The dataset itself, checked and not read; NULL where an optional one is absent. */
static enum nd_status nd_capture_find(const struct nd_capture *capture, const char *path,
                                      const struct nd_wanted *wanted, const struct nd_index_object **out,
                                      struct nd_error *err)
{
    const struct nd_index_object *object = nd_index_find(capture->index, path);
    char found_type[64], found[256], expected[256];
    *out = NULL;
    if (object == NULL && wanted->is_optional)
        return ND_OK;
    if (object == NULL || object->is_group)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is missing", path);
    if (object->dtype != wanted->dtype)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is of type %s instead of %s", path,
                       nd_index_type_name(object->dtype, object->elem_bytes, found_type, sizeof found_type),
                       wanted->dtype != ND_DTYPE_NONE ? nd_dtype_name(wanted->dtype) : "text");
    if (!is_shape(&object->shape, &wanted->shape))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has shape %s instead of %s", path,
                       nd_shape_format(&object->shape, found, sizeof found),
                       nd_shape_format(&wanted->shape, expected, sizeof expected));
    if (object->chunks != NULL)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is chunked; only tensors may be", path);
    *out = object;
    return ND_OK;
}

enum nd_status nd_capture_load(const struct nd_capture *capture, const char *path,
                               const struct nd_wanted *wanted, void **out, size_t *n_rows, struct nd_error *err)
{
    const struct nd_index_object *object;
    enum nd_status status = nd_capture_find(capture, path, wanted, &object, err);
    if (status != ND_OK || object == NULL)
        return status;
    size_t n = (size_t)object->shape.dims[0];
    void *data = nd_calloc(object->n_bytes + 1, 1);
    ND_TRY_MEMORY(data != NULL, err);
    status = nd_index_read(capture->index, object, 0, n, data, err);
    if (status != ND_OK) {
        free(data);
        return status;
    }
    *out = data;
    if (n_rows != NULL)
        *n_rows = n;
    return ND_OK;
}

static enum nd_status load_texts(const struct nd_capture *capture, const struct nd_stored_column *column,
                                 struct nd_error *err)
{
    ND_FREED void *texts = NULL;
    const struct nd_wanted wanted = {ND_DTYPE_NONE, column->shape, false};
    ND_TRY(nd_capture_load(capture, column->path, &wanted, &texts, NULL, err));
    size_t width = nd_index_find(capture->index, column->path)->elem_bytes;
    for (size_t i = 0; i < column->n; i++) {
        char *text = strndup((const char *)texts + i * width, width);
        ND_TRY_MEMORY(text != NULL, err);
        memcpy(nd_stored_cell(column, i), &text, sizeof text);
    }
    return ND_OK;
}

static enum nd_status load_numbers(const struct nd_capture *capture, const struct nd_stored_column *column,
                                   struct nd_error *err)
{
    ND_FREED void *numbers = NULL;
    const struct nd_wanted wanted = {column->column->dtype, column->shape, column->column->is_optional};
    enum nd_status status = nd_capture_load(capture, column->path, &wanted, &numbers, NULL, err);
    for (size_t i = 0; i < column->n && numbers != NULL; i++)
        memcpy(nd_stored_cell(column, i), (const char *)numbers + i * column->cell_bytes, column->cell_bytes);
    return status;
}

static enum nd_status load_column(void *capture, const struct nd_stored_column *column, struct nd_error *err)
{
    return (column->column->dtype == ND_DTYPE_NONE ? load_texts : load_numbers)(capture, column, err);
}

/* The columns of a table into n rows that are zeroed. Texts belong to the caller (nd_stored_table_deinit), also
 * after a failure. */
static enum nd_status load_table(struct nd_capture *capture, const struct nd_stored_table *table, void *rows,
                                 size_t n, struct nd_error *err)
{
    return nd_stored_table_visit(table, rows, n, load_column, capture, err);
}

/* Rows of a table: those of its first column. */
static enum nd_status count_rows(const struct nd_capture *capture, const struct nd_stored_table *table,
                                 size_t max_rows, size_t *out, struct nd_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", table->path, table->columns[0].name);
    const struct nd_index_object *object = nd_index_find(capture->index, path);
    if (object == NULL || object->is_group || object->shape.rank != 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is missing or not a column of a table", path);
    if ((size_t)object->shape.dims[0] > max_rows)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has %lld rows; at most %zu are accepted", path,
                       (long long)object->shape.dims[0], max_rows);
    *out = (size_t)object->shape.dims[0];
    return ND_OK;
}

/* ---- tensors ---- */

static enum nd_status set_shape(struct nd_tensor *tensor, int64_t rank, const int64_t *dims,
                                struct nd_error *err)
{
    if (rank < -1 || rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name, "tensor '%s' has rank %lld", tensor->name,
                       (long long)rank);
    tensor->shape.rank = (int)rank;
    for (int i = 0; i < tensor->shape.rank; i++)
        tensor->shape.dims[i] = dims[i];
    size_t n_bytes;
    if (rank < 0 || tensor->dtype == ND_DTYPE_NONE)
        return ND_OK;
    enum nd_status status = nd_shape_size_bytes(&tensor->shape, tensor->dtype, &n_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "tensor '%s'", tensor->name);
    return status;
}

/* The scales of all tensors, and how many of them are taken. */
struct scales {
    struct nd_scale_row *rows;
    size_t n, used;
};

/* Takes the next scales. */
static enum nd_status set_quant(struct nd_tensor *tensor, const struct nd_tensor_row *row,
                                struct scales *scales, struct nd_error *err)
{
    int64_t n = row->quant_n, axis = row->quant_axis;
    if (n < 0 || (uint64_t)n > scales->n - scales->used)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name,
                       "tensor '%s' has %lld scales, more than are stored", tensor->name, (long long)n);
    bool is_known = tensor->shape.rank >= 0;
    bool is_sound = axis < 0 ? axis == -1 && n <= 1
                             : n > 0 && axis < ND_MAX_RANK &&
                                   (!is_known || (axis < tensor->shape.rank && tensor->shape.dims[axis] == n));
    if (!is_sound)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name,
                       "tensor '%s' has %lld scales on axis %lld, which its shape contradicts", tensor->name,
                       (long long)n, (long long)axis);
    tensor->quant.n = (size_t)n;
    tensor->quant.axis = (int)axis;
    tensor->quant.scale = nd_calloc(tensor->quant.n, sizeof *tensor->quant.scale);
    tensor->quant.zero_point = nd_calloc(tensor->quant.n, sizeof *tensor->quant.zero_point);
    ND_TRY_MEMORY(tensor->quant.scale != NULL && tensor->quant.zero_point != NULL, err);
    for (size_t q = 0; q < tensor->quant.n; q++, scales->used++) {
        tensor->quant.scale[q] = scales->rows[scales->used].scale;
        tensor->quant.zero_point[q] = scales->rows[scales->used].zero_point;
    }
    return ND_OK;
}

/* Takes the row's texts, but for its type. */
static enum nd_status set_tensor(struct nd_tensor *tensor, char **provider, struct nd_tensor_row *row,
                                 struct scales *scales, struct nd_error *err)
{
    tensor->name = row->name;
    tensor->onnx_name = row->onnx_name;
    tensor->op_types = row->op_types;
    tensor->node = row->node;
    *provider = row->provider;
    row->name = row->onnx_name = row->op_types = row->node = row->provider = NULL;
    tensor->dtype = nd_dtype_from_name(row->dtype);
    if (tensor->dtype == ND_DTYPE_NONE && strcmp(row->dtype, "none") != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name, "tensor '%s' is of the unknown type '%s'",
                       tensor->name, row->dtype);
    if (row->is_model_input > 1 || row->is_model_output > 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name, "tensor '%s' has a flag that is neither 0 nor 1",
                       tensor->name);
    tensor->is_model_input = row->is_model_input == 1;
    tensor->is_model_output = row->is_model_output == 1;
    ND_TRY(set_shape(tensor, row->rank, row->dims, err));
    return set_quant(tensor, row, scales, err);
}

static enum nd_status sort_keys(struct nd_capture *capture, struct nd_error *err)
{
    capture->tensor_keys = nd_calloc(capture->n_tensors, sizeof *capture->tensor_keys);
    ND_TRY_MEMORY(capture->tensor_keys != NULL, err);
    for (size_t i = 0; i < capture->n_tensors; i++)
        capture->tensor_keys[i] = (struct nd_tensor_key){capture->tensors[i].name, i};
    qsort(capture->tensor_keys, capture->n_tensors, sizeof *capture->tensor_keys, nd_compare_texts);
    for (size_t i = 1; i < capture->n_tensors; i++)
        if (nd_compare_texts(&capture->tensor_keys[i - 1], &capture->tensor_keys[i]) == 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/edges/name", "two tensors are named '%s'",
                           capture->tensor_keys[i].name);
    return ND_OK;
}

static enum nd_status load_scales(struct nd_capture *capture, struct scales *scales, struct nd_error *err)
{
    ND_TRY(count_rows(capture, &nd_scale_table, SIZE_MAX, &scales->n, err));
    scales->rows = nd_calloc(scales->n, sizeof *scales->rows);
    return scales->rows != NULL ? load_table(capture, &nd_scale_table, scales->rows, scales->n, err)
                                : nd_fail_memory(err);
}

static enum nd_status set_tensors(struct nd_capture *capture, struct nd_tensor_row *rows, struct scales *scales,
                                  struct nd_error *err)
{
    for (size_t i = 0; i < capture->n_tensors; i++)
        ND_TRY(set_tensor(&capture->tensors[i], &capture->providers[i], &rows[i], scales, err));
    if (scales->used != scales->n)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/edges/scale",
                       "'/edges/scale' has %zu entries; the tensors need %zu", scales->n, scales->used);
    return sort_keys(capture, err);
}

enum nd_status nd_capture_load_tensors(struct nd_capture *capture, struct nd_error *err)
{
    struct scales scales = {0};
    size_t n = 0;
    enum nd_status status = count_rows(capture, &nd_tensor_table, MAX_ROWS, &n, err);
    if (status != ND_OK)
        return status;
    capture->n_tensors = n;
    capture->tensors = nd_calloc(n, sizeof *capture->tensors);
    capture->providers = nd_calloc(n, sizeof *capture->providers);
    struct nd_tensor_row *rows = nd_calloc(n, sizeof *rows);
    if (capture->tensors == NULL || capture->providers == NULL || rows == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    status = load_table(capture, &nd_tensor_table, rows, n, err);
    if (status == ND_OK)
        status = load_scales(capture, &scales, err);
    if (status == ND_OK)
        status = load_table(capture, &nd_dims_table, rows, n, err);
    if (status == ND_OK)
        status = set_tensors(capture, rows, &scales, err);
out:
    nd_stored_table_deinit(&nd_tensor_table, rows, n);
    free(rows);
    free(scales.rows);
    return status;
}

/* ---- nodes and findings ---- */

enum nd_status nd_capture_load_nodes(struct nd_capture *capture, struct nd_error *err)
{
    ND_TRY(count_rows(capture, &nd_node_table, MAX_ROWS, &capture->n_nodes, err));
    capture->nodes = nd_calloc(capture->n_nodes, sizeof *capture->nodes);
    ND_TRY_MEMORY(capture->nodes != NULL, err);
    ND_TRY(load_table(capture, &nd_node_table, capture->nodes, capture->n_nodes, err));
    for (size_t i = 0; i < capture->n_nodes; i++)
        if (capture->nodes[i].subgraph < 0 || capture->nodes[i].subgraph > INT32_MAX)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/nodes/subgraph", "node '%s' is of subgraph %lld",
                           capture->nodes[i].name, (long long)capture->nodes[i].subgraph);
    return ND_OK;
}

/* A finding is of a line of a stored log; what npudiff itself says is of line 0. */
static enum nd_status check_finding(const struct nd_capture *capture, const struct nd_capture_finding *finding,
                                    struct nd_error *err)
{
    static const char *const severities[] = {"note", "warning", "failure"};
    bool has_log = false, has_severity = false;
    for (size_t i = 0; i < capture->n_logs; i++)
        has_log = has_log || strcmp(capture->logs[i].name, finding->log) == 0;
    for (size_t i = 0; i < sizeof severities / sizeof severities[0]; i++)
        has_severity = has_severity || strcmp(severities[i], finding->severity) == 0;
    if (!has_log)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/findings/log",
                       "a finding is of log '%s', which is not stored", finding->log);
    if (!has_severity || finding->kind[0] == '\0' || finding->line < 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/findings",
                       "a finding is of kind '%s', severity '%s' and line %lld", finding->kind,
                       finding->severity, (long long)finding->line);
    return ND_OK;
}

enum nd_status nd_capture_load_findings(struct nd_capture *capture, struct nd_error *err)
{
    if (nd_index_find(capture->index, nd_finding_table.path) == NULL)
        return ND_OK;
    ND_TRY(count_rows(capture, &nd_finding_table, MAX_ROWS, &capture->n_findings, err));
    capture->findings = nd_calloc(capture->n_findings, sizeof *capture->findings);
    ND_TRY_MEMORY(capture->findings != NULL, err);
    ND_TRY(load_table(capture, &nd_finding_table, capture->findings, capture->n_findings, err));
    for (size_t i = 0; i < capture->n_findings; i++)
        ND_TRY(check_finding(capture, &capture->findings[i], err));
    return ND_OK;
}

/* ---- probes ---- */

static bool is_made(struct nd_digest digest)
{
    return digest.low != 0 || digest.high != 0;
}

/* The digests of all tensors in that rerun, or NULL. */
static const struct nd_digest *find_rerun(const struct nd_capture *capture, const struct nd_probe_data *data,
                                          size_t sample, size_t repeat)
{
    for (size_t i = 0; i < data->n_reruns; i++)
        if (data->reruns[i][0] == (int64_t)sample && data->reruns[i][1] == (int64_t)repeat)
            return data->rerun_digests + i * capture->n_tensors;
    return NULL;
}

size_t nd_capture_n_runs(const struct nd_capture *capture, size_t probe, size_t tensor, size_t sample)
{
    assert(probe < capture->n_probes && tensor < capture->n_tensors);
    const struct nd_probe_data *data = &capture->probes[probe];
    assert(sample < data->probe.n_samples);
    size_t n = data->probe.n_repeats;
    const struct nd_digest *digests;
    while (data->n_reruns > 0 && (digests = find_rerun(capture, data, sample, n)) != NULL &&
           is_made(digests[tensor]))
        n++;
    return n;
}

struct nd_digest nd_capture_digest(const struct nd_capture *capture, size_t probe, size_t tensor, size_t sample,
                                   size_t repeat)
{
    assert(probe < capture->n_probes && tensor < capture->n_tensors);
    const struct nd_probe_data *data = &capture->probes[probe];
    assert(sample < data->probe.n_samples);
    if (repeat < data->probe.n_repeats) {
        bool is_there = nd_probe_need_digests(capture, probe, tensor, NULL) == ND_OK;
        return is_there ? data->tensors[tensor].digests[sample * data->probe.n_repeats + repeat]
                        : (struct nd_digest){0};
    }
    const struct nd_digest *digests = find_rerun(capture, data, sample, repeat);
    assert(digests != NULL);
    return digests[tensor];
}

/* Each sample's reruns follow each other without a gap. */
static bool is_in_order(const struct nd_probe_data *data, size_t i)
{
    const int64_t *now = data->reruns[i], *last = i > 0 ? data->reruns[i - 1] : NULL;
    bool is_first = last == NULL || now[0] > last[0];
    if (now[0] < 0 || (uint64_t)now[0] >= data->probe.n_samples)
        return false;
    return is_first ? now[1] == 1 : now[0] == last[0] && now[1] == last[1] + 1;
}

/* nd_capture_load; path is freed (NULL: out of memory). */
static enum nd_status nd_capture_load_part(const struct nd_capture *capture, char *path,
                                           const struct nd_wanted *wanted, void **out, size_t *n_rows,
                                           struct nd_error *err)
{
    ND_FREED char *owned = path;
    ND_TRY_MEMORY(owned != NULL, err);
    return nd_capture_load(capture, path, wanted, out, n_rows, err);
}

/* The table of reruns into data; absent: none. */
static enum nd_status nd_probe_load_reruns(const struct nd_capture *capture, struct nd_probe_data *data,
                                           struct nd_error *err)
{
    static const struct nd_wanted pairs = {ND_DTYPE_I64, {.rank = 2, .dims = {-1, 2}}, true};
    const char *name = data->probe.name;
    void *loaded[2] = {NULL, NULL};
    size_t n = 0;
    ND_TRY(nd_capture_load_part(capture, nd_name_probe_path(name, "rerun_samples", NULL), &pairs, &loaded[0],
                                &n, err));
    data->reruns = loaded[0];
    data->n_reruns = n;
    const struct nd_wanted digests = {
        ND_DTYPE_U64, {.rank = 3, .dims = {(int64_t)n, (int64_t)capture->n_tensors, 2}}, loaded[0] == NULL};
    ND_TRY(nd_capture_load_part(capture, nd_name_probe_path(name, "rerun_digests", NULL), &digests, &loaded[1],
                                NULL, err));
    data->rerun_digests = loaded[1];
    bool is_right = (loaded[0] != NULL) == (loaded[1] != NULL) && (n == 0 || data->probe.n_repeats == 1);
    for (size_t i = 0; is_right && i < n; i++)
        is_right = is_in_order(data, i);
    if (!is_right)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                       "probe '%s': the table of reruns names runs that cannot be, or lacks their digests",
                       name);
    return ND_OK;
}

/* One digest for all digests of a tensor, so that who compares equal captures need not read these
 * (docs/reference/capture-format.md#edge-digests). */

static const struct nd_digest not_stated = {0};

static enum nd_status nd_probe_load_tensor_digests(const struct nd_capture *capture, struct nd_probe_data *data,
                                                   struct nd_error *err)
{
    const struct nd_wanted wanted = {
        ND_DTYPE_U64, {.rank = 2, .dims = {(int64_t)capture->n_tensors, 2}}, .is_optional = true};
    void *loaded = NULL;
    enum nd_status status = nd_capture_load_part(
        capture, nd_name_probe_path(data->probe.name, ND_TENSOR_DIGESTS, NULL), &wanted, &loaded, NULL, err);
    data->tensor_digests = loaded;
    return status;
}

const struct nd_digest *nd_capture_tensor_digest(const struct nd_capture *capture, size_t probe, size_t tensor)
{
    assert(probe < capture->n_probes && tensor < capture->n_tensors);
    const struct nd_digest *all = capture->probes[probe].tensor_digests;
    return all != NULL && !nd_digest_equal(all[tensor], not_stated) ? &all[tensor] : NULL;
}

static struct nd_digest digest_of(const struct nd_probe_data *data, const struct nd_digest *digests)
{
    return nd_digest_bytes(digests, data->probe.n_samples * data->probe.n_repeats * sizeof *digests);
}

struct nd_digest nd_capture_make_tensor_digest(const struct nd_capture *capture, size_t p, size_t e)
{
    const struct nd_probe_data *data = &capture->probes[p];
    bool are_all_equal = true;
    for (size_t s = 0; s < data->probe.n_samples; s++) {
        struct nd_digest first = nd_capture_digest(capture, p, e, s, 0);
        are_all_equal = are_all_equal && nd_digest_equal(first, nd_capture_digest(capture, p, e, 0, 0));
        for (size_t r = 1, n = nd_capture_n_runs(capture, p, e, s); r < n; r++)
            if (!nd_digest_equal(first, nd_capture_digest(capture, p, e, s, r)))
                return not_stated;
    }
    return are_all_equal ? not_stated : digest_of(data, data->tensors[e].digests);
}

/* ---- digests that are read when they are first asked for ---- */

static enum nd_status load(const struct nd_capture *capture, const struct nd_probe_data *data, size_t tensor,
                           struct nd_digest **out, struct nd_error *err)
{
    const struct nd_index_object *object = data->tensors[tensor].digests_object;
    ND_FREED struct nd_digest *loaded = nd_calloc(object->n_bytes, 1);
    ND_TRY_MEMORY(loaded != NULL, err);
    ND_TRY(nd_index_read(capture->index, object, 0, (size_t)object->shape.dims[0], loaded, err));
    if (!capture->is_trusted && !nd_digest_equal(digest_of(data, loaded), data->tensor_digests[tensor]))
        return nd_fail(err, ND_E_CAPTURE_DIGEST, capture->path,
                       "'%s' is damaged: '%s' is not what its digest was made of", capture->path, object->path);
    return ND_GIVE(out, loaded);
}

enum nd_status nd_probe_need_digests(const struct nd_capture *capture, size_t probe, size_t tensor,
                                     struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[probe];
    struct nd_probe_tensor *part = &data->tensors[tensor];
    if (atomic_load_explicit(&part->digests, memory_order_acquire) != NULL || part->digests_object == NULL)
        return ND_OK;
    struct nd_deferred *deferred = capture->deferred;
    struct nd_digest *loaded = NULL;
    pthread_mutex_lock(&deferred->lock);
    if (deferred->status == ND_OK && atomic_load_explicit(&part->digests, memory_order_relaxed) == NULL) {
        deferred->status = load(capture, data, tensor, &loaded, &deferred->err);
        atomic_store_explicit(&part->digests, loaded, memory_order_release);
    }
    enum nd_status status = loaded != NULL || part->digests != NULL ? ND_OK : deferred->status;
    if (status != ND_OK && err != NULL)
        *err = deferred->err;
    pthread_mutex_unlock(&deferred->lock);
    return status;
}

enum nd_status nd_capture_check_deferred(const struct nd_capture *capture, struct nd_error *err)
{
    struct nd_deferred *deferred = capture->deferred;
    if (deferred == NULL)
        return ND_OK;
    pthread_mutex_lock(&deferred->lock);
    enum nd_status status = deferred->status;
    if (status != ND_OK && err != NULL)
        *err = deferred->err;
    pthread_mutex_unlock(&deferred->lock);
    return status;
}

/* Repeats that differ from the first run: which of them are stored, and where. */

static int compare_rows(const void *a, const void *b)
{
    const struct nd_repeat_row *x = a, *y = b;
    if (x->sample != y->sample)
        return x->sample < y->sample ? -1 : 1;
    return x->repeat == y->repeat ? 0 : x->repeat < y->repeat ? -1 : 1;
}

const struct nd_repeat_row *nd_capture_repeat_row(const struct nd_probe_tensor *tensor, size_t sample,
                                                  size_t repeat)
{
    struct nd_repeat_row key = {.sample = (int64_t)sample, .repeat = (int64_t)repeat};
    if (tensor->n_repeat_rows == 0)
        return NULL;
    return bsearch(&key, tensor->repeat_rows, tensor->n_repeat_rows, sizeof key, compare_rows);
}

/* The group of a probe with its repeats ("" or "_index" at its end): that of reruns where it has some. */
static const char *nd_probe_repeats_part(const struct nd_probe_data *data, bool is_index)
{
    if (data->n_reruns > 0)
        return is_index ? "rerun_index" : "reruns";
    return is_index ? "repeat_index" : "repeats";
}

/* /repeat_index or /rerun_index of a tensor into its part of data; absent: no rows. */
static enum nd_status nd_probe_load_repeat_rows(const struct nd_capture *capture,
                                                const struct nd_probe_data *data, size_t e,
                                                struct nd_error *err)
{
    const struct nd_capture_probe *probe = &data->probe;
    const struct nd_tensor *tensor = &capture->tensors[e];
    struct nd_probe_tensor *part = &data->tensors[e];
    static const struct nd_wanted pairs = {ND_DTYPE_I64, {.rank = 2, .dims = {-1, 2}}, true};
    void *loaded = NULL;
    size_t n = 0;
    enum nd_status status = nd_capture_load_part(
        capture, nd_name_probe_path(probe->name, nd_probe_repeats_part(data, true), tensor->name), &pairs,
        &loaded, &n, err);
    if (status != ND_OK)
        return status;
    const int64_t *index = loaded;
    part->repeat_rows = nd_calloc(n, sizeof *part->repeat_rows);
    if (part->repeat_rows == NULL) {
        free(loaded);
        return nd_fail_memory(err);
    }
    part->n_repeat_rows = n;
    for (size_t i = 0; i < n; i++) {
        part->repeat_rows[i] = (struct nd_repeat_row){index[2 * i], index[2 * i + 1], i};
        if (index[2 * i] < 0 || (uint64_t)index[2 * i] >= probe->n_samples || index[2 * i + 1] < 1 ||
            (data->n_reruns == 0 && (uint64_t)index[2 * i + 1] >= probe->n_repeats))
            status = nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name,
                             "probe '%s', tensor '%s': a stored repeat is of sample %lld, repeat %lld",
                             probe->name, tensor->name, (long long)index[2 * i], (long long)index[2 * i + 1]);
    }
    free(loaded);
    qsort(part->repeat_rows, n, sizeof *part->repeat_rows, compare_rows);
    for (size_t i = 1; i < n && status == ND_OK; i++)
        if (compare_rows(&part->repeat_rows[i - 1], &part->repeat_rows[i]) == 0)
            status = nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name,
                             "probe '%s', tensor '%s': a repeat is stored twice", probe->name, tensor->name);
    return status;
}

/* Where outputs are stored, so is every repeat and rerun whose digest is different. data is a probe of the
 * capture, or will be as its number `probe`. */
static enum nd_status nd_probe_check_repeats(const struct nd_capture *capture, size_t p, size_t e,
                                             struct nd_error *err)
{
    const struct nd_capture_probe *probe = &capture->probes[p].probe;
    const struct nd_probe_tensor *part = &capture->probes[p].tensors[e];
    const char *name = capture->tensors[e].name;
    if ((part->n_repeat_rows > 0) != (part->repeats != NULL) ||
        (part->repeats != NULL && part->outputs == NULL))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                       "probe '%s', tensor '%s': repeats are stored without their index or without outputs",
                       probe->name, name);
    for (size_t i = 0; i < part->n_repeat_rows; i++)
        if ((size_t)part->repeat_rows[i].repeat >=
            nd_capture_n_runs(capture, p, e, (size_t)part->repeat_rows[i].sample))
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                           "probe '%s', tensor '%s': repeat %lld of sample %lld is stored, but has no digest",
                           probe->name, name, (long long)part->repeat_rows[i].repeat,
                           (long long)part->repeat_rows[i].sample);
    /* (A rerun whose digest was damaged is found by whoever reads it.) */
    bool is_checked = part->outputs != NULL && capture->probes[p].n_reruns == 0 && probe->n_repeats > 1 &&
                      nd_capture_tensor_digest(capture, p, e) == NULL;
    for (size_t s = 0; is_checked && s < probe->n_samples; s++)
        for (size_t r = 1, n = nd_capture_n_runs(capture, p, e, s); r < n; r++)
            if (!nd_digest_equal(nd_capture_digest(capture, p, e, s, 0),
                                 nd_capture_digest(capture, p, e, s, r)) &&
                nd_capture_repeat_row(part, s, r) == NULL)
                return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                               "probe '%s', tensor '%s': repeat %zu of sample %zu differs, but is not stored",
                               probe->name, name, r, s);
    return ND_OK;
}

enum nd_status nd_capture_tensor_dtype(const struct nd_index_object *object, enum nd_dtype *out,
                                       struct nd_error *err)
{
    const struct nd_index_attr *attr = nd_index_attr(object, "dtype");
    enum nd_dtype dtype = object->dtype;
    if (attr != NULL) {
        dtype = attr->dtype == ND_DTYPE_NONE ? nd_dtype_from_name((const char *)attr->bytes) : ND_DTYPE_NONE;
        if (nd_index_stored_dtype(dtype) == dtype || nd_index_stored_dtype(dtype) != object->dtype)
            dtype = ND_DTYPE_NONE;
    }
    if (dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "'%s' has no element type, or its attribute 'dtype' contradicts it", object->path);
    *out = dtype;
    return ND_OK;
}

/* One int64 attribute of an object, not negative. */
static enum nd_status get_count(const struct nd_index_object *object, const char *name, size_t *out,
                                struct nd_error *err)
{
    const struct nd_index_attr *attr = nd_index_attr(object, name);
    int64_t value = -1;
    if (attr != NULL && attr->is_scalar && attr->dtype == ND_DTYPE_I64)
        memcpy(&value, attr->bytes, sizeof value);
    if (value < 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "attribute '%s' of '%s' is missing, or not one int64 that is not negative", name,
                       object->path);
    *out = (size_t)value;
    return ND_OK;
}

static enum nd_status load_sizes(const struct nd_index_object *group, struct nd_capture_probe *probe,
                                 struct nd_error *err)
{
    ND_TRY(get_count(group, "n_samples", &probe->n_samples, err));
    ND_TRY(get_count(group, "n_samples_expected", &probe->n_samples_expected, err));
    ND_TRY(get_count(group, "n_repeats", &probe->n_repeats, err));
    if (probe->n_samples > probe->n_samples_expected || (probe->n_samples > 0 && probe->n_repeats == 0))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, group->path, "'%s' has %zu of %zu samples in %zu repeats",
                       group->path, probe->n_samples, probe->n_samples_expected, probe->n_repeats);
    const struct nd_index_attr *source = nd_index_attr(group, "source");
    if (source == NULL || source->dtype != ND_DTYPE_NONE)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, group->path,
                       "attribute 'source' of '%s' is missing or not text", group->path);
    ND_TRY(nd_name_unescape(group->path + strlen("/probes/"), group->path, &probe->name, err));
    probe->source = strndup((const char *)source->bytes, source->n_bytes);
    return probe->source != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status load_series(const struct nd_capture *capture, struct nd_capture_probe *probe,
                                  struct nd_error *err)
{
    const struct nd_wanted labels = {
        ND_DTYPE_I64, {.rank = 1, .dims = {(int64_t)probe->n_samples_expected}}, true};
    const struct nd_wanted latency = {
        ND_DTYPE_F64, {.rank = 2, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats}}, false};
    void *loaded[2] = {NULL, NULL};
    ND_TRY(nd_capture_load_part(capture, nd_name_probe_path(probe->name, "labels", NULL), &labels, &loaded[0],
                                NULL, err));
    probe->labels = loaded[0];
    ND_TRY(nd_capture_load_part(capture, nd_name_probe_path(probe->name, "latency_us", NULL), &latency,
                                &loaded[1], NULL, err));
    probe->latency_us = loaded[1];
    return ND_OK;
}

/* A tensor of `n` rows of `sample`, of that type. */
static enum nd_status check_tensor(const struct nd_index_object *object, size_t n,
                                   const struct nd_shape *sample, enum nd_dtype dtype, struct nd_error *err)
{
    struct nd_shape wanted = {.rank = sample->rank + 1, .dims = {(int64_t)n}};
    enum nd_dtype found;
    char found_text[256], wanted_text[256];
    ND_TRY(nd_capture_tensor_dtype(object, &found, err));
    if (sample->rank < 0 || dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "'%s' is stored, but its tensor has no type or shape", object->path);
    for (int i = 0; i < sample->rank; i++)
        wanted.dims[i + 1] = sample->dims[i];
    if (found != dtype || !nd_shape_equal(&object->shape, &wanted))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' is %s %s instead of %s %s", object->path,
                       nd_dtype_name(found), nd_shape_format(&object->shape, found_text, sizeof found_text),
                       nd_dtype_name(dtype), nd_shape_format(&wanted, wanted_text, sizeof wanted_text));
    return ND_OK;
}

static enum nd_status load_input(const struct nd_capture *capture, struct nd_probe_data *data,
                                 const struct nd_index_object *object, struct nd_error *err)
{
    struct nd_capture_probe *probe = &data->probe;
    size_t at;
    ND_TRY(get_count(object, "index", &at, err));
    if (at >= probe->n_inputs || probe->inputs[at].name != NULL)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "'%s' has index %zu, which is taken or too large", object->path, at);
    struct nd_capture_input *input = &probe->inputs[at];
    ND_TRY(nd_name_unescape(strrchr(object->path, '/') + 1, object->path, &input->name, err));
    ND_TRY(nd_capture_tensor_dtype(object, &input->dtype, err));
    input->shape.rank = object->shape.rank - 1;
    memcpy(input->shape.dims, object->shape.dims + 1, (size_t)input->shape.rank * sizeof input->shape.dims[0]);
    ND_TRY(check_tensor(object, probe->n_samples_expected, &input->shape, input->dtype, err));
    const struct nd_wanted digests = {
        ND_DTYPE_U64, {.rank = 2, .dims = {(int64_t)probe->n_samples_expected, 2}}, false};
    void *loaded = NULL;
    ND_TRY(nd_capture_load_part(capture, nd_name_probe_path(probe->name, "input_digests", input->name),
                                &digests, &loaded, NULL, err));
    data->inputs[at] = (struct nd_probe_input_data){.object = object, .digests = loaded};
    return ND_OK;
}

/* The datasets in /probes/<probe>/<part>. */
static enum nd_status count_part(const struct nd_capture *capture, const struct nd_capture_probe *probe,
                                 const char *part, size_t *first, size_t *end, struct nd_error *err)
{
    ND_FREED char *path = nd_name_probe_path(probe->name, part, NULL);
    ND_TRY_MEMORY(path != NULL, err);
    nd_index_range(capture->index, path, first, end);
    return ND_OK;
}

static enum nd_status load_inputs(const struct nd_capture *capture, const struct nd_index_object *group,
                                  struct nd_probe_data *data, struct nd_error *err)
{
    size_t first, end, n, n_digests_first, n_digests_end;
    ND_TRY(get_count(group, "n_inputs", &n, err));
    ND_TRY(count_part(capture, &data->probe, "inputs", &first, &end, err));
    ND_TRY(count_part(capture, &data->probe, "input_digests", &n_digests_first, &n_digests_end, err));
    if (end - first != n || n_digests_end - n_digests_first != n)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, group->path,
                       "'%s' stores %zu inputs and digests of %zu instead of %zu", group->path, end - first,
                       n_digests_end - n_digests_first, n);
    data->probe.inputs = nd_calloc(n, sizeof *data->probe.inputs);
    data->inputs = nd_calloc(n, sizeof *data->inputs);
    data->probe.n_inputs = n;
    ND_TRY_MEMORY(data->probe.inputs != NULL && data->inputs != NULL, err);
    for (size_t i = first; i < end; i++)
        ND_TRY(load_input(capture, data, &capture->index->objects[i], err));
    return ND_OK;
}

static bool is_attr_equal(const struct nd_index_object *object, const char *name, const void *bytes,
                          size_t n_bytes)
{
    const struct nd_index_attr *attr = nd_index_attr(object, name);
    return attr == NULL ||
           (attr->n_bytes == n_bytes && (n_bytes == 0 || memcmp(attr->bytes, bytes, n_bytes) == 0));
}

/* The attributes that repeat the table for the eyes of other programs must say the same. */
static enum nd_status check_quant_attrs(const struct nd_index_object *object, const struct nd_tensor *tensor,
                                        struct nd_error *err)
{
    const struct nd_quant *quant = &tensor->quant;
    int64_t axis = quant->axis;
    if (!is_attr_equal(object, "scale", quant->scale, quant->n * sizeof *quant->scale) ||
        !is_attr_equal(object, "zero_point", quant->zero_point, quant->n * sizeof *quant->zero_point) ||
        !is_attr_equal(object, "axis", &axis, sizeof axis))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "the quantisation attributes of '%s' contradict the table of tensors", object->path);
    return ND_OK;
}

/* Finds the digests of a tensor, and reads them unless that is deferred. */
static enum nd_status load_digests(const struct nd_capture *capture, size_t p, size_t e, struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[p];
    const struct nd_capture_probe *probe = &data->probe;
    struct nd_probe_tensor *part = &data->tensors[e];
    const struct nd_wanted wanted = {
        ND_DTYPE_U64,
        {.rank = 3, .dims = {(int64_t)probe->n_samples, (int64_t)probe->n_repeats, 2}},
        probe->n_samples == 0};
    ND_FREED char *path = nd_name_probe_path(probe->name, "digests", capture->tensors[e].name);
    ND_TRY_MEMORY(path != NULL, err);
    void *loaded = NULL;
    enum nd_status status = nd_capture_find(capture, path, &wanted, &part->digests_object, err);
    bool is_read_now = capture->deferred == NULL || nd_capture_tensor_digest(capture, p, e) == NULL;
    if (status == ND_OK && is_read_now)
        status = nd_capture_load(capture, path, &wanted, &loaded, NULL, err);
    atomic_store(&part->digests, loaded);
    return status;
}

static enum nd_status load_tensor(const struct nd_capture *capture, size_t p, size_t e, struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[p];
    const struct nd_capture_probe *probe = &data->probe;
    const struct nd_tensor *tensor = &capture->tensors[e];
    struct nd_probe_tensor *part = &data->tensors[e];
    ND_FREED char *outputs = nd_name_probe_path(probe->name, "outputs", tensor->name);
    ND_FREED char *repeats = nd_name_probe_path(probe->name, nd_probe_repeats_part(data, false), tensor->name);
    ND_TRY_MEMORY(outputs != NULL && repeats != NULL, err);
    ND_TRY(load_digests(capture, p, e, err));
    ND_TRY(nd_probe_load_repeat_rows(capture, data, e, err));
    part->outputs = nd_index_find(capture->index, outputs);
    part->repeats = nd_index_find(capture->index, repeats);
    if (part->outputs != NULL)
        ND_TRY(check_tensor(part->outputs, probe->n_samples, &tensor->shape, tensor->dtype, err));
    if (part->outputs != NULL)
        ND_TRY(check_quant_attrs(part->outputs, tensor, err));
    if (part->repeats != NULL)
        ND_TRY(check_tensor(part->repeats, part->n_repeat_rows, &tensor->shape, tensor->dtype, err));
    ND_TRY(nd_probe_check_repeats(capture, p, e, err));
    if (probe->n_samples > 0 && (tensor->dtype == ND_DTYPE_NONE || tensor->shape.rank < 0))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name, "tensor '%s' has samples, but no type or shape",
                       tensor->name);
    return ND_OK;
}

/* Every dataset of these groups must be one that load_edge has looked up: none may be of a tensor that does not
 * exist. */
static enum nd_status check_no_strangers(const struct nd_capture *capture, const struct nd_probe_data *data,
                                         struct nd_error *err)
{
    size_t n_used[6] = {0}, first, end, at = data->n_reruns > 0 ? 4 : 2;
    static const char *const parts[6] = {"outputs",      "digests", "repeats",
                                         "repeat_index", "reruns",  "rerun_index"};
    for (size_t i = 0; i < capture->n_tensors; i++) {
        n_used[0] += data->tensors[i].outputs != NULL;
        n_used[1] += data->tensors[i].digests_object != NULL;
        n_used[at] += data->tensors[i].repeats != NULL;
        n_used[at + 1] += data->tensors[i].n_repeat_rows > 0;
    }
    for (size_t i = 0; i < 6; i++) {
        ND_TRY(count_part(capture, &data->probe, parts[i], &first, &end, err));
        if (end - first != n_used[i])
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, data->probe.name,
                           "probe '%s' has %zu datasets in '%s', but only %zu belong to tensors of the table",
                           data->probe.name, end - first, parts[i], n_used[i]);
    }
    return ND_OK;
}

static enum nd_status load_probe(const struct nd_capture *capture, const struct nd_index_object *group,
                                 size_t at, struct nd_error *err)
{
    struct nd_probe_data *data = &capture->probes[at];
    ND_TRY(load_sizes(group, &data->probe, err));
    ND_TRY(load_series(capture, &data->probe, err));
    ND_TRY(nd_probe_load_reruns(capture, data, err));
    ND_TRY(nd_probe_load_tensor_digests(capture, data, err));
    ND_TRY(load_inputs(capture, group, data, err));
    data->tensors = nd_calloc(capture->n_tensors, sizeof *data->tensors);
    ND_TRY_MEMORY(data->tensors != NULL, err);
    for (size_t i = 0; i < capture->n_tensors; i++)
        ND_TRY(load_tensor(capture, at, i, err));
    return check_no_strangers(capture, data, err);
}

static bool nd_index_is_child(const struct nd_index_object *object, const char *path)
{
    size_t n = strlen(path);
    return strncmp(object->path, path, n) == 0 && object->path[n] == '/' &&
           strchr(object->path + n + 1, '/') == NULL;
}

enum nd_status nd_capture_load_probes(struct nd_capture *capture, struct nd_error *err)
{
    size_t first, end, n = 0;
    if (nd_index_find(capture->index, "/probes") == NULL)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/probes", "group '/probes' is missing");
    nd_index_range(capture->index, "/probes", &first, &end);
    for (size_t i = first; i < end; i++)
        n += nd_index_is_child(&capture->index->objects[i], "/probes");
    capture->probes = nd_calloc(n, sizeof *capture->probes);
    ND_TRY_MEMORY(capture->probes != NULL, err);
    capture->n_probes = n;
    for (size_t i = first; i < end; i++) {
        const struct nd_index_object *group = &capture->index->objects[i];
        size_t at;
        if (!nd_index_is_child(group, "/probes"))
            continue;
        ND_TRY(get_count(group, "index", &at, err));
        if (at >= n || capture->probes[at].probe.name != NULL)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, group->path,
                           "'%s' has index %zu, which is taken or too large", group->path, at);
        ND_TRY(load_probe(capture, group, at, err));
    }
    return ND_OK;
}
