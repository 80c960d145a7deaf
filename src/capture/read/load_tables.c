/* Reads the tables of a capture, and refuses what contradicts itself. docs/reference/capture-format.md. */
#include <stdio.h>

#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "core/items.h"

/* Of tensors, nodes and findings, whose rows are larger in memory than in the file. Chosen. */
enum { MAX_ROWS = 1000000 };

static bool is_shape(const struct nd_shape *found, const struct nd_shape *wanted)
{
    for (int i = 0; i < wanted->rank && found->rank == wanted->rank; i++)
        if (wanted->dims[i] >= 0 && found->dims[i] != wanted->dims[i])
            return false;
    return found->rank == wanted->rank;
}

enum nd_status nd_capture_find(const struct nd_capture *capture, const char *path,
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
