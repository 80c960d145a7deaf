#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "capture/link_names.h"
#include "capture/write_internal.h"

/* An attribute lies in an object header, whose messages are shorter than 64 KiB. */
enum { MAX_ATTR_BYTES = 60000 };

enum nd_status nd_writer_put_attr(hid_t object, const char *path, const struct nd_writer_attr *attr,
                                  struct nd_error *err)
{
    const hsize_t dims[1] = {attr->n};
    bool is_text = attr->dtype == ND_DTYPE_NONE;
    size_t n_bytes = is_text ? attr->n : attr->n * nd_dtype_size_bytes(attr->dtype);
    if (n_bytes > MAX_ATTR_BYTES)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' has %zu bytes; at most %d fit",
                       attr->key, path, n_bytes, MAX_ATTR_BYTES);
    hid_t type = is_text ? nd_hdf5_text_make(attr->n > 0 ? attr->n : 1) : nd_hdf5_type_make(attr->dtype);
    hid_t space = attr->is_scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, dims, NULL);
    hid_t made = H5Acreate2(object, attr->key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    herr_t rc = made >= 0 ? H5Awrite(made, type, attr->data) : -1;
    if (made >= 0 && H5Aclose(made) < 0)
        rc = -1;
    H5Sclose(space);
    H5Tclose(type);
    if (rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write attribute '%s' of '%s'", attr->key,
                            path);
    return ND_OK;
}

enum nd_status nd_writer_put_text(hid_t object, const char *path, const char *key, const char *text,
                                  struct nd_error *err)
{
    struct nd_writer_attr attr = {.key = key, .is_scalar = true, .n = strlen(text), .data = text};
    return nd_writer_put_attr(object, path, &attr, err);
}

enum nd_status nd_writer_put_i64(hid_t object, const char *path, const char *key, int64_t value,
                                 struct nd_error *err)
{
    struct nd_writer_attr attr = {.key = key, .dtype = ND_DTYPE_I64, .is_scalar = true, .n = 1, .data = &value};
    return nd_writer_put_attr(object, path, &attr, err);
}

static bool is_reserved(const struct nd_attr *attr)
{
    static const char *const keys[] = {"npudiff_format", "npudiff_version", "status", "content_digest"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (attr->group[0] == '\0' && strcmp(attr->key, keys[i]) == 0)
            return true;
    return false;
}

static enum nd_status put_public_attr(struct nd_capture_writer *writer, const char *path,
                                      const struct nd_attr *attr, struct nd_error *err)
{
    enum nd_status status = nd_writer_reserve(writer, MAX_ATTR_BYTES, err);
    if (status == ND_OK && path[1] != '\0')
        status = nd_writer_group(writer, path, err);
    if (status != ND_OK)
        return status;
    hid_t group = H5Gopen2(writer->file, path, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot open group '%s'", path);
    struct nd_writer_attr made = {.key = attr->key, .is_scalar = true, .n = 1};
    switch (attr->type) {
    case ND_ATTR_STRING:
        made.data = attr->string != NULL ? attr->string : "";
        made.n = strlen(made.data);
        break;
    case ND_ATTR_I64:
        made.dtype = ND_DTYPE_I64;
        made.data = &attr->i64;
        break;
    case ND_ATTR_F64:
        made.dtype = ND_DTYPE_F64;
        made.data = &attr->f64;
        break;
    }
    if (H5Aexists(group, attr->key) > 0)
        status =
            nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' is given twice", attr->key, path);
    else
        status = nd_writer_put_attr(group, path, &made, err);
    H5Gclose(group);
    return status;
}

enum nd_status nd_capture_writer_attr(struct nd_capture_writer *writer, const struct nd_attr *attr,
                                      struct nd_error *err)
{
    if (is_reserved(attr))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/", "attribute '%s' of '/' is written by the capture itself",
                       attr->key);
    char path[64];
    if (snprintf(path, sizeof path, "/%s", attr->group) >= (int)sizeof path)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, attr->group, "no group '%s' in a capture", attr->group);
    nd_hdf5_lock();
    enum nd_status status = put_public_attr(writer, path, attr, err);
    nd_hdf5_unlock();
    return status;
}

/* One column of a table whose rows are structs of row_bytes: the char pointers at `offset` of each row. */
struct text_column {
    const char *path;
    const void *rows;
    size_t n;
    size_t row_bytes;
    size_t offset;
};

static const char *text_cell(const struct text_column *column, size_t i)
{
    const char *text;
    memcpy(&text, (const char *)column->rows + i * column->row_bytes + column->offset, sizeof text);
    return text != NULL ? text : "";
}

static enum nd_status put_text_column(struct nd_capture_writer *writer, const struct text_column *column,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t width = 1, n_bytes = 0;
    char *cells = NULL;
    hid_t type = H5I_INVALID_HID, dataset = H5I_INVALID_HID;
    for (size_t i = 0; i < column->n; i++) {
        size_t length = strlen(text_cell(column, i));
        width = length > width ? length : width;
    }
    if (nd_size_mul(column->n, width, &n_bytes))
        cells = nd_calloc(n_bytes, 1);
    if (cells == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    for (size_t i = 0; i < column->n; i++) {
        const char *text = text_cell(column, i);
        memcpy(cells + i * width, text, strlen(text));
    }
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)column->n}};
    type = nd_hdf5_text_make(width);
    status = nd_writer_make(writer, column->path, type, &shape, NULL, 0, &dataset, err);
    if (status == ND_OK && column->n > 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, cells) < 0)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, column->path, "cannot write '%s'", column->path);
out:
    if (dataset >= 0 && H5Dclose(dataset) < 0 && status == ND_OK)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, column->path, "cannot write '%s'", column->path);
    H5Tclose(type);
    free(cells);
    return status;
}

static enum nd_status put_column(struct nd_capture_writer *writer, const char *path, enum nd_dtype dtype,
                                 size_t n, const void *data, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)n}};
    return nd_writer_put(writer, nd_strdup(path), dtype, &shape, data, err);
}

/* The numeric columns of /edges, side by side in memory. */
struct edge_columns {
    int64_t *rank, *quant_n, *quant_axis, *zero_point;
    int64_t (*dims)[ND_MAX_RANK];
    uint8_t *is_input, *is_output;
    float *scale;
    const char **dtype;
    size_t n_quant;
};

static void edge_columns_deinit(struct edge_columns *columns)
{
    free(columns->rank);
    free(columns->quant_n);
    free(columns->quant_axis);
    free(columns->zero_point);
    free(columns->dims);
    free(columns->is_input);
    free(columns->is_output);
    free(columns->scale);
    free(columns->dtype);
}

static bool edge_columns_init(struct edge_columns *columns, const struct nd_edge *edges, size_t n)
{
    *columns = (struct edge_columns){0};
    for (size_t i = 0; i < n; i++)
        columns->n_quant += edges[i].quant.n;
    columns->rank = nd_calloc(n, sizeof *columns->rank);
    columns->quant_n = nd_calloc(n, sizeof *columns->quant_n);
    columns->quant_axis = nd_calloc(n, sizeof *columns->quant_axis);
    columns->zero_point = nd_calloc(columns->n_quant, sizeof *columns->zero_point);
    columns->dims = nd_calloc(n, sizeof *columns->dims);
    columns->is_input = nd_calloc(n, 1);
    columns->is_output = nd_calloc(n, 1);
    columns->scale = nd_calloc(columns->n_quant, sizeof *columns->scale);
    columns->dtype = nd_calloc(n, sizeof *columns->dtype);
    if (columns->rank == NULL || columns->quant_n == NULL || columns->quant_axis == NULL ||
        columns->zero_point == NULL || columns->dims == NULL || columns->is_input == NULL ||
        columns->is_output == NULL || columns->scale == NULL || columns->dtype == NULL)
        return false;
    for (size_t i = 0, at = 0; i < n; i++) {
        const struct nd_edge *edge = &edges[i];
        columns->rank[i] = edge->shape.rank;
        for (int d = 0; d < edge->shape.rank && d < ND_MAX_RANK; d++)
            columns->dims[i][d] = edge->shape.dims[d];
        columns->quant_n[i] = (int64_t)edge->quant.n;
        columns->quant_axis[i] = edge->quant.n > 0 ? edge->quant.axis : -1;
        columns->is_input[i] = edge->is_model_input;
        columns->is_output[i] = edge->is_model_output;
        columns->dtype[i] = nd_dtype_name(edge->dtype);
        for (size_t q = 0; q < edge->quant.n; q++, at++) {
            columns->scale[at] = edge->quant.scale[q];
            columns->zero_point[at] = edge->quant.zero_point[q];
        }
    }
    return true;
}

static enum nd_status put_edges(struct nd_capture_writer *writer, const struct nd_edge *edges,
                                const char *const *providers, size_t n, struct nd_error *err)
{
    struct edge_columns columns;
    enum nd_status status = ND_OK;
    if (!edge_columns_init(&columns, edges, n)) {
        edge_columns_deinit(&columns);
        return nd_fail_memory(err);
    }
    const struct text_column texts[] = {
        {"/edges/name", edges, n, sizeof *edges, offsetof(struct nd_edge, name)},
        {"/edges/onnx_name", edges, n, sizeof *edges, offsetof(struct nd_edge, onnx_name)},
        {"/edges/op_types", edges, n, sizeof *edges, offsetof(struct nd_edge, op_types)},
        {"/edges/node", edges, n, sizeof *edges, offsetof(struct nd_edge, node)},
        {"/edges/provider", providers, n, sizeof *providers, 0},
        {"/edges/dtype", columns.dtype, n, sizeof *columns.dtype, 0},
    };
    const struct {
        const char *path;
        enum nd_dtype dtype;
        size_t n;
        const void *data;
    } numbers[] = {
        {"/edges/rank", ND_DTYPE_I64, n, columns.rank},
        {"/edges/is_model_input", ND_DTYPE_U8, n, columns.is_input},
        {"/edges/is_model_output", ND_DTYPE_U8, n, columns.is_output},
        {"/edges/quant_n", ND_DTYPE_I64, n, columns.quant_n},
        {"/edges/quant_axis", ND_DTYPE_I64, n, columns.quant_axis},
        {"/edges/scale", ND_DTYPE_F32, columns.n_quant, columns.scale},
        {"/edges/zero_point", ND_DTYPE_I64, columns.n_quant, columns.zero_point},
    };
    status = nd_writer_group(writer, "/edges", err);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status = put_text_column(writer, &texts[i], err);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == ND_OK; i++)
        status = put_column(writer, numbers[i].path, numbers[i].dtype, numbers[i].n, numbers[i].data, err);
    struct nd_shape dims_shape = {.rank = 2, .dims = {(int64_t)n, ND_MAX_RANK}};
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_strdup("/edges/dims"), ND_DTYPE_I64, &dims_shape, columns.dims, err);
    edge_columns_deinit(&columns);
    writer->has_edges = true;
    return status;
}

static enum nd_status put_subgraphs(struct nd_capture_writer *writer, const struct nd_capture_node *nodes,
                                    size_t n, struct nd_error *err)
{
    int64_t *subgraphs = nd_calloc(n, sizeof *subgraphs);
    if (subgraphs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        subgraphs[i] = nodes[i].subgraph;
    enum nd_status status = put_column(writer, "/nodes/subgraph", ND_DTYPE_I64, n, subgraphs, err);
    free(subgraphs);
    return status;
}

static enum nd_status put_nodes(struct nd_capture_writer *writer, const struct nd_capture_node *nodes, size_t n,
                                struct nd_error *err)
{
    const struct text_column texts[] = {
        {"/nodes/name", nodes, n, sizeof *nodes, offsetof(struct nd_capture_node, name)},
        {"/nodes/op_type", nodes, n, sizeof *nodes, offsetof(struct nd_capture_node, op_type)},
        {"/nodes/domain", nodes, n, sizeof *nodes, offsetof(struct nd_capture_node, domain)},
        {"/nodes/provider", nodes, n, sizeof *nodes, offsetof(struct nd_capture_node, provider)},
    };
    enum nd_status status = nd_writer_group(writer, "/nodes", err);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status = put_text_column(writer, &texts[i], err);
    bool has_subgraphs = false;
    for (size_t i = 0; i < n; i++)
        has_subgraphs = has_subgraphs || nodes[i].subgraph != 0;
    if (status == ND_OK && has_subgraphs)
        status = put_subgraphs(writer, nodes, n, err);
    writer->has_nodes = true;
    return status;
}

enum nd_status nd_writer_put_missing_tables(struct nd_capture_writer *writer, struct nd_error *err)
{
    enum nd_status status = writer->has_edges ? ND_OK : put_edges(writer, NULL, NULL, 0, err);
    if (status == ND_OK && !writer->has_nodes)
        status = put_nodes(writer, NULL, 0, err);
    return status;
}

enum nd_status nd_capture_writer_edges(struct nd_capture_writer *writer, const struct nd_edge *edges,
                                       const char *const *providers, size_t n_edges, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = put_edges(writer, edges, providers, n_edges, err);
    nd_hdf5_unlock();
    return status;
}

enum nd_status nd_capture_writer_nodes(struct nd_capture_writer *writer, const struct nd_capture_node *nodes,
                                       size_t n_nodes, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = put_nodes(writer, nodes, n_nodes, err);
    nd_hdf5_unlock();
    return status;
}

static enum nd_status put_findings(struct nd_capture_writer *writer, const struct nd_capture_finding *rows,
                                   size_t n, struct nd_error *err)
{
    const struct text_column texts[] = {
        {"/findings/kind", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, kind)},
        {"/findings/severity", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, severity)},
        {"/findings/log", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, log)},
        {"/findings/operator", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, op)},
        {"/findings/node", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, node)},
        {"/findings/symbol", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, symbol)},
        {"/findings/text", rows, n, sizeof *rows, offsetof(struct nd_capture_finding, text)},
    };
    int64_t *numbers = nd_calloc(n, 2 * sizeof *numbers);
    if (numbers == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        numbers[i] = rows[i].line;
        numbers[n + i] = rows[i].code;
    }
    enum nd_status status = nd_writer_group(writer, "/findings", err);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status = put_text_column(writer, &texts[i], err);
    if (status == ND_OK)
        status = put_column(writer, "/findings/line", ND_DTYPE_I64, n, numbers, err);
    if (status == ND_OK)
        status = put_column(writer, "/findings/code", ND_DTYPE_I64, n, numbers + n, err);
    free(numbers);
    return status;
}

enum nd_status nd_capture_writer_findings(struct nd_capture_writer *writer,
                                          const struct nd_capture_finding *rows, size_t n_rows,
                                          struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = put_findings(writer, rows, n_rows, err);
    nd_hdf5_unlock();
    return status;
}

enum nd_status nd_capture_writer_log(struct nd_capture_writer *writer, const char *name, const char *text,
                                     size_t text_bytes, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)text_bytes}};
    nd_hdf5_lock();
    enum nd_status status = nd_writer_group(writer, "/logs", err);
    if (status == ND_OK)
        status = nd_writer_put(writer, nd_name_path("/logs", name), ND_DTYPE_U8, &shape, text, err);
    nd_hdf5_unlock();
    return status;
}
