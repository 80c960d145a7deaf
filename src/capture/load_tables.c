#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "capture/capture_internal.h"
#include "capture/link_names.h"

enum { MAX_EDGES = 1000000 };

static bool is_shape(const struct nd_shape *found, const struct nd_shape *wanted)
{
    for (int i = 0; i < wanted->rank && found->rank == wanted->rank; i++)
        if (wanted->dims[i] >= 0 && found->dims[i] != wanted->dims[i])
            return false;
    return found->rank == wanted->rank;
}

enum nd_status nd_capture_load(const struct nd_capture *capture, const char *path, enum nd_dtype dtype,
                               const struct nd_shape *shape, void **out, size_t *n_rows, struct nd_error *err)
{
    const struct nd_index_object *object = nd_index_find(capture->index, path);
    char found_type[64], found[256], wanted[256];
    if (object == NULL || object->is_group)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is missing", path);
    if (object->dtype != dtype)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is of type %s instead of %s", path,
                       nd_index_type_name(object->dtype, object->elem_bytes, found_type, sizeof found_type),
                       dtype != ND_DTYPE_NONE ? nd_dtype_name(dtype) : "text");
    if (!is_shape(&object->shape, shape))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has shape %s instead of %s", path,
                       nd_shape_format(&object->shape, found, sizeof found),
                       nd_shape_format(shape, wanted, sizeof wanted));
    if (object->chunks != NULL)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is chunked; only tensors may be", path);
    size_t n = (size_t)object->shape.dims[0];
    void *data = nd_calloc(object->n_bytes + 1, 1);
    if (data == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_index_read(capture->index, object, 0, n, data, err);
    if (status != ND_OK) {
        free(data);
        return status;
    }
    *out = data;
    if (n_rows != NULL)
        *n_rows = n;
    return ND_OK;
}

/* A text column of n rows into the char pointers at `offset` of structs of row_bytes. */
static enum nd_status load_texts(const struct nd_capture *capture, const char *path, size_t n, void *rows,
                                 size_t row_bytes, size_t offset, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)n}};
    void *cells = NULL;
    enum nd_status status = nd_capture_load(capture, path, ND_DTYPE_NONE, &shape, &cells, NULL, err);
    if (status != ND_OK)
        return status;
    size_t width = nd_index_find(capture->index, path)->elem_bytes;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        char *text = strndup((const char *)cells + i * width, width);
        if (text == NULL)
            status = nd_fail_memory(err);
        else
            memcpy((char *)rows + i * row_bytes + offset, &text, sizeof text);
    }
    free(cells);
    return status;
}

static enum nd_status load_numbers(const struct nd_capture *capture, const char *path, enum nd_dtype dtype,
                                   int64_t n, void **out, size_t *n_rows, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 1, .dims = {n}};
    return nd_capture_load(capture, path, dtype, &shape, out, n_rows, err);
}

/* Rows of the table whose first column is at `path`. */
static enum nd_status count_rows(const struct nd_capture *capture, const char *path, size_t *out,
                                 struct nd_error *err)
{
    const struct nd_index_object *object = nd_index_find(capture->index, path);
    if (object == NULL || object->is_group || object->shape.rank != 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is missing or not a column of a table", path);
    if (object->shape.dims[0] > MAX_EDGES)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has %lld rows; at most %d are accepted", path,
                       (long long)object->shape.dims[0], MAX_EDGES);
    *out = (size_t)object->shape.dims[0];
    return ND_OK;
}

struct edge_numbers {
    int64_t *rank, *quant_n, *quant_axis, *zero_point, *dims;
    uint8_t *is_input, *is_output;
    float *scale;
    size_t n_scales;
};

static void edge_numbers_deinit(struct edge_numbers *numbers)
{
    free(numbers->rank);
    free(numbers->quant_n);
    free(numbers->quant_axis);
    free(numbers->zero_point);
    free(numbers->dims);
    free(numbers->is_input);
    free(numbers->is_output);
    free(numbers->scale);
}

static enum nd_status edge_numbers_load(const struct nd_capture *capture, struct edge_numbers *numbers,
                                        struct nd_error *err)
{
    int64_t n = (int64_t)capture->n_edges;
    struct nd_shape dims = {.rank = 2, .dims = {n, ND_MAX_RANK}};
    void *data[8] = {0};
    enum nd_status status = load_numbers(capture, "/edges/rank", ND_DTYPE_I64, n, &data[0], NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/quant_n", ND_DTYPE_I64, n, &data[1], NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/quant_axis", ND_DTYPE_I64, n, &data[2], NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/scale", ND_DTYPE_F32, -1, &data[3], &numbers->n_scales, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/zero_point", ND_DTYPE_I64, (int64_t)numbers->n_scales, &data[4],
                              NULL, err);
    if (status == ND_OK)
        status = nd_capture_load(capture, "/edges/dims", ND_DTYPE_I64, &dims, &data[5], NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/is_model_input", ND_DTYPE_U8, n, &data[6], NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/edges/is_model_output", ND_DTYPE_U8, n, &data[7], NULL, err);
    numbers->rank = data[0];
    numbers->quant_n = data[1];
    numbers->quant_axis = data[2];
    numbers->scale = data[3];
    numbers->zero_point = data[4];
    numbers->dims = data[5];
    numbers->is_input = data[6];
    numbers->is_output = data[7];
    return status;
}

static enum nd_status set_shape(struct nd_edge *edge, int64_t rank, const int64_t *dims, struct nd_error *err)
{
    if (rank < -1 || rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name, "edge '%s' has rank %lld", edge->name,
                       (long long)rank);
    edge->shape.rank = (int)rank;
    for (int i = 0; i < edge->shape.rank; i++)
        edge->shape.dims[i] = dims[i];
    size_t n_bytes;
    if (rank < 0 || edge->dtype == ND_DTYPE_NONE)
        return ND_OK;
    enum nd_status status = nd_shape_size_bytes(&edge->shape, edge->dtype, &n_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "edge '%s'", edge->name);
    return status;
}

/* Takes the next n entries of the flat columns, from *used on. */
static enum nd_status set_quant(struct nd_edge *edge, const struct edge_numbers *numbers, size_t i,
                                size_t *used, struct nd_error *err)
{
    int64_t n = numbers->quant_n[i], axis = numbers->quant_axis[i];
    if (n < 0 || (uint64_t)n > numbers->n_scales - *used)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name, "edge '%s' has %lld scales, more than are stored",
                       edge->name, (long long)n);
    bool is_known = edge->shape.rank >= 0;
    bool is_sound = axis < 0 ? axis == -1 && n <= 1
                             : n > 0 && axis < ND_MAX_RANK &&
                                   (!is_known || (axis < edge->shape.rank && edge->shape.dims[axis] == n));
    if (!is_sound)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                       "edge '%s' has %lld scales on axis %lld, which its shape contradicts", edge->name,
                       (long long)n, (long long)axis);
    edge->quant.n = (size_t)n;
    edge->quant.axis = (int)axis;
    edge->quant.scale = nd_calloc(edge->quant.n, sizeof *edge->quant.scale);
    edge->quant.zero_point = nd_calloc(edge->quant.n, sizeof *edge->quant.zero_point);
    if (edge->quant.scale == NULL || edge->quant.zero_point == NULL)
        return nd_fail_memory(err);
    for (size_t q = 0; q < edge->quant.n; q++, (*used)++) {
        edge->quant.scale[q] = numbers->scale[*used];
        edge->quant.zero_point[q] = numbers->zero_point[*used];
    }
    return ND_OK;
}

static enum nd_status set_edges(struct nd_capture *capture, const struct edge_numbers *numbers,
                                char *const *dtypes, struct nd_error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < capture->n_edges; i++) {
        struct nd_edge *edge = &capture->edges[i];
        edge->dtype = nd_dtype_from_name(dtypes[i]);
        if (edge->dtype == ND_DTYPE_NONE && strcmp(dtypes[i], "none") != 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name, "edge '%s' is of the unknown type '%s'",
                           edge->name, dtypes[i]);
        if (numbers->is_input[i] > 1 || numbers->is_output[i] > 1)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name, "edge '%s' has a flag that is neither 0 nor 1",
                           edge->name);
        edge->is_model_input = numbers->is_input[i] == 1;
        edge->is_model_output = numbers->is_output[i] == 1;
        enum nd_status status = set_shape(edge, numbers->rank[i], numbers->dims + i * ND_MAX_RANK, err);
        if (status == ND_OK)
            status = set_quant(edge, numbers, i, &used, err);
        if (status != ND_OK)
            return status;
    }
    if (used != numbers->n_scales)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/edges/scale",
                       "'/edges/scale' has %zu entries; the edges need %zu", numbers->n_scales, used);
    return ND_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct nd_edge_key *)a)->name, ((const struct nd_edge_key *)b)->name);
}

static enum nd_status sort_keys(struct nd_capture *capture, struct nd_error *err)
{
    capture->edge_keys = nd_calloc(capture->n_edges, sizeof *capture->edge_keys);
    if (capture->edge_keys == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < capture->n_edges; i++)
        capture->edge_keys[i] = (struct nd_edge_key){capture->edges[i].name, i};
    qsort(capture->edge_keys, capture->n_edges, sizeof *capture->edge_keys, compare_keys);
    for (size_t i = 1; i < capture->n_edges; i++)
        if (compare_keys(&capture->edge_keys[i - 1], &capture->edge_keys[i]) == 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/edges/name", "two edges are named '%s'",
                           capture->edge_keys[i].name);
    return ND_OK;
}

static void free_texts(char **texts, size_t n)
{
    for (size_t i = 0; texts != NULL && i < n; i++)
        free(texts[i]);
    free(texts);
}

enum nd_status nd_capture_load_edges(struct nd_capture *capture, struct nd_error *err)
{
    static const struct {
        const char *path;
        size_t offset;
    } texts[] = {{"/edges/name", offsetof(struct nd_edge, name)},
                 {"/edges/onnx_name", offsetof(struct nd_edge, onnx_name)},
                 {"/edges/op_types", offsetof(struct nd_edge, op_types)},
                 {"/edges/node", offsetof(struct nd_edge, node)}};
    struct edge_numbers numbers = {0};
    char **dtypes = NULL;
    size_t n = 0;
    enum nd_status status = count_rows(capture, "/edges/name", &n, err);
    if (status != ND_OK)
        return status;
    capture->n_edges = n;
    capture->edges = nd_calloc(n, sizeof *capture->edges);
    capture->providers = nd_calloc(n, sizeof *capture->providers);
    dtypes = nd_calloc(n, sizeof *dtypes);
    if (capture->edges == NULL || capture->providers == NULL || dtypes == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status =
            load_texts(capture, texts[i].path, n, capture->edges, sizeof *capture->edges, texts[i].offset, err);
    if (status == ND_OK)
        status = load_texts(capture, "/edges/provider", n, capture->providers, sizeof(char *), 0, err);
    if (status == ND_OK)
        status = load_texts(capture, "/edges/dtype", n, dtypes, sizeof(char *), 0, err);
    if (status == ND_OK)
        status = edge_numbers_load(capture, &numbers, err);
    if (status == ND_OK)
        status = set_edges(capture, &numbers, dtypes, err);
    if (status == ND_OK)
        status = sort_keys(capture, err);
out:
    free_texts(dtypes, n);
    edge_numbers_deinit(&numbers);
    return status;
}

static enum nd_status load_subgraphs(struct nd_capture *capture, struct nd_error *err)
{
    static const char path[] = "/nodes/subgraph";
    void *numbers = NULL;
    enum nd_status status =
        load_numbers(capture, path, ND_DTYPE_I64, (int64_t)capture->n_nodes, &numbers, NULL, err);
    for (size_t i = 0; status == ND_OK && i < capture->n_nodes; i++) {
        int64_t subgraph = ((const int64_t *)numbers)[i];
        if (subgraph < 0 || subgraph > INT32_MAX)
            status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "node '%s' is of subgraph %lld",
                             capture->nodes[i].name, (long long)subgraph);
        capture->nodes[i].subgraph = subgraph;
    }
    free(numbers);
    return status;
}

enum nd_status nd_capture_load_nodes(struct nd_capture *capture, struct nd_error *err)
{
    static const struct {
        const char *path;
        size_t offset;
    } texts[] = {{"/nodes/name", offsetof(struct nd_capture_node, name)},
                 {"/nodes/op_type", offsetof(struct nd_capture_node, op_type)},
                 {"/nodes/domain", offsetof(struct nd_capture_node, domain)},
                 {"/nodes/provider", offsetof(struct nd_capture_node, provider)}};
    size_t n = 0;
    enum nd_status status = count_rows(capture, "/nodes/name", &n, err);
    if (status != ND_OK)
        return status;
    capture->nodes = nd_calloc(n, sizeof *capture->nodes);
    if (capture->nodes == NULL)
        return nd_fail_memory(err);
    capture->n_nodes = n;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status =
            load_texts(capture, texts[i].path, n, capture->nodes, sizeof *capture->nodes, texts[i].offset, err);
    if (status == ND_OK && nd_index_find(capture->index, "/nodes/subgraph") != NULL)
        status = load_subgraphs(capture, err);
    return status;
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

static enum nd_status load_finding_numbers(struct nd_capture *capture, struct nd_error *err)
{
    void *lines = NULL, *codes = NULL;
    int64_t n = (int64_t)capture->n_findings;
    enum nd_status status = load_numbers(capture, "/findings/line", ND_DTYPE_I64, n, &lines, NULL, err);
    if (status == ND_OK)
        status = load_numbers(capture, "/findings/code", ND_DTYPE_I64, n, &codes, NULL, err);
    for (size_t i = 0; i < capture->n_findings && status == ND_OK; i++) {
        capture->findings[i].line = ((const int64_t *)lines)[i];
        capture->findings[i].code = ((const int64_t *)codes)[i];
        status = check_finding(capture, &capture->findings[i], err);
    }
    free(lines);
    free(codes);
    return status;
}

enum nd_status nd_capture_load_findings(struct nd_capture *capture, struct nd_error *err)
{
    static const struct {
        const char *path;
        size_t offset;
    } texts[] = {{"/findings/kind", offsetof(struct nd_capture_finding, kind)},
                 {"/findings/severity", offsetof(struct nd_capture_finding, severity)},
                 {"/findings/log", offsetof(struct nd_capture_finding, log)},
                 {"/findings/operator", offsetof(struct nd_capture_finding, op)},
                 {"/findings/node", offsetof(struct nd_capture_finding, node)},
                 {"/findings/symbol", offsetof(struct nd_capture_finding, symbol)},
                 {"/findings/text", offsetof(struct nd_capture_finding, text)}};
    size_t n = 0;
    if (nd_index_find(capture->index, "/findings") == NULL)
        return ND_OK;
    enum nd_status status = count_rows(capture, "/findings/kind", &n, err);
    if (status != ND_OK)
        return status;
    capture->findings = nd_calloc(n, sizeof *capture->findings);
    if (capture->findings == NULL)
        return nd_fail_memory(err);
    capture->n_findings = n;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == ND_OK; i++)
        status = load_texts(capture, texts[i].path, n, capture->findings, sizeof *capture->findings,
                            texts[i].offset, err);
    return status == ND_OK ? load_finding_numbers(capture, err) : status;
}
