/* The objects of a capture, for its writer and its reader: names as HDF5 links, and tables.
 * docs/reference/capture-format.md. */
#include "capture/read/schema.h"

#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/capture.h"

/* ---- names of tensors, probes and logs as links ---- */

static void append_escaped(struct nd_strbuf *buf, const char *name)
{
    if (name[0] == '\0')
        nd_strbuf_puts(buf, "%00");
    else if (name[strspn(name, ".")] == '\0')
        nd_strbuf_printf(buf, "%%2E%s", name + 1);
    else
        for (const char *at = name; *at != '\0'; at++) {
            if (*at == '%')
                nd_strbuf_puts(buf, "%25");
            else if (*at == '/')
                nd_strbuf_puts(buf, "%2F");
            else
                nd_strbuf_append(buf, at, 1);
        }
}

char *nd_name_escape(const char *name)
{
    struct nd_strbuf buf = {0};
    append_escaped(&buf, name);
    return nd_strbuf_take(&buf);
}

enum nd_status nd_name_unescape(const char *link, const char *path, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    for (const char *at = link; *at != '\0'; at++) {
        char decoded = *at;
        if (strncmp(at, "%25", 3) == 0)
            decoded = '%';
        else if (strncmp(at, "%2F", 3) == 0)
            decoded = '/';
        else if (strncmp(at, "%2E", 3) == 0)
            decoded = '.';
        if (strcmp(link, "%00") != 0)
            nd_strbuf_append(&buf, &decoded, 1);
        if (*at == '%' && strlen(at) >= 3)
            at += 2;
    }
    ND_FREED char *name = nd_strbuf_take(&buf);
    /* One spelling for each name: whatever does not come back is not ours. */
    ND_FREED char *again = name != NULL ? nd_name_escape(name) : NULL;
    if (again == NULL)
        return nd_fail_memory(err);
    else if (strcmp(again, link) != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is not a name that npudiff writes", path);
    return ND_GIVE(out, name);
}

char *nd_name_path(const char *group, const char *name)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_printf(&buf, "%s/", group);
    append_escaped(&buf, name);
    return nd_strbuf_take(&buf);
}

char *nd_name_probe_path(const char *probe, const char *part, const char *name)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_puts(&buf, "/probes/");
    append_escaped(&buf, probe);
    nd_strbuf_printf(&buf, "/%s", part);
    if (name != NULL) {
        nd_strbuf_puts(&buf, "/");
        append_escaped(&buf, name);
    }
    return nd_strbuf_take(&buf);
}

/* ---- tables ---- */

#define TEXT(row, name)                                                                                        \
    {                                                                                                          \
#name, ND_DTYPE_NONE, offsetof(struct row, name), 0, false                                             \
    }
#define NUMBER(row, name, dtype)                                                                               \
    {                                                                                                          \
#name, ND_DTYPE_##dtype, offsetof(struct row, name), 0, false                                          \
    }
#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const struct nd_column tensor_columns[] = {
    TEXT(nd_tensor_row, name),
    TEXT(nd_tensor_row, onnx_name),
    TEXT(nd_tensor_row, op_types),
    TEXT(nd_tensor_row, node),
    TEXT(nd_tensor_row, provider),
    TEXT(nd_tensor_row, dtype),
    NUMBER(nd_tensor_row, rank, I64),
    NUMBER(nd_tensor_row, is_model_input, U8),
    NUMBER(nd_tensor_row, is_model_output, U8),
    NUMBER(nd_tensor_row, quant_n, I64),
    NUMBER(nd_tensor_row, quant_axis, I64),
};
static const struct nd_column scale_columns[] = {
    NUMBER(nd_scale_row, scale, F32),
    NUMBER(nd_scale_row, zero_point, I64),
};
static const struct nd_column dims_columns[] = {
    {"dims", ND_DTYPE_I64, offsetof(struct nd_tensor_row, dims), ND_MAX_RANK, false},
};
static const struct nd_column node_columns[] = {
    TEXT(nd_capture_node, name),
    TEXT(nd_capture_node, op_type),
    TEXT(nd_capture_node, domain),
    TEXT(nd_capture_node, provider),
    {"subgraph", ND_DTYPE_I64, offsetof(struct nd_capture_node, subgraph), 0, true},
};
static const struct nd_column finding_columns[] = {
    TEXT(nd_capture_finding, kind),
    TEXT(nd_capture_finding, severity),
    TEXT(nd_capture_finding, log),
    {"operator", ND_DTYPE_NONE, offsetof(struct nd_capture_finding, op), 0, false},
    TEXT(nd_capture_finding, node),
    TEXT(nd_capture_finding, symbol),
    TEXT(nd_capture_finding, text),
    NUMBER(nd_capture_finding, line, I64),
    NUMBER(nd_capture_finding, code, I64),
};

const struct nd_stored_table nd_tensor_table = {"/edges", sizeof(struct nd_tensor_row), N_OF(tensor_columns),
                                                tensor_columns};
const struct nd_stored_table nd_scale_table = {"/edges", sizeof(struct nd_scale_row), N_OF(scale_columns),
                                               scale_columns};
const struct nd_stored_table nd_dims_table = {"/edges", sizeof(struct nd_tensor_row), N_OF(dims_columns),
                                              dims_columns};
const struct nd_stored_table nd_node_table = {"/nodes", sizeof(struct nd_capture_node), N_OF(node_columns),
                                              node_columns};
const struct nd_stored_table nd_finding_table = {"/findings", sizeof(struct nd_capture_finding),
                                                 N_OF(finding_columns), finding_columns};

const char *const nd_capture_groups[ND_CAPTURE_N_GROUPS] = {"",     "device",  "runtime", "model",
                                                            "host", "failure", "truth",   "import"};

void *nd_stored_cell(const struct nd_stored_column *column, size_t i)
{
    return (char *)column->rows + i * column->table->row_bytes + column->column->offset;
}

void nd_stored_table_deinit(const struct nd_stored_table *table, void *rows, size_t n)
{
    for (size_t c = 0; rows != NULL && c < table->n_columns; c++) {
        const struct nd_stored_column column = {.table = table, .column = &table->columns[c], .rows = rows};
        for (size_t i = 0; column.column->dtype == ND_DTYPE_NONE && i < n; i++) {
            char *text;
            memcpy(&text, nd_stored_cell(&column, i), sizeof text);
            free(text);
        }
    }
}

enum nd_status nd_stored_table_visit(const struct nd_stored_table *table, void *rows, size_t n,
                                     nd_stored_visit *visit, void *context, struct nd_error *err)
{
    for (size_t c = 0; c < table->n_columns; c++) {
        const struct nd_column *column = &table->columns[c];
        ND_FREED char *path = nd_name_path(table->path, column->name);
        ND_TRY_MEMORY(path != NULL, err);
        const struct nd_stored_column stored = {
            .table = table,
            .column = column,
            .rows = rows,
            .n = n,
            .path = path,
            .cell_bytes = nd_dtype_size_bytes(column->dtype) * (column->width > 0 ? column->width : 1),
            .shape = {.rank = column->width > 0 ? 2 : 1, .dims = {(int64_t)n, (int64_t)column->width}},
        };
        ND_TRY(visit(context, &stored, err));
    }
    return ND_OK;
}

/* ---- what the index takes ---- */

/* Objects other than the groups of attributes and the columns of tables. "*" is any one name. */
static const struct {
    const char *pattern;
    enum nd_index_kind kind;
} objects[] = {
    {"/edges", ND_INDEX_GROUP},
    {"/nodes", ND_INDEX_GROUP},
    {"/findings", ND_INDEX_GROUP},
    {"/logs", ND_INDEX_GROUP},
    {"/logs/*", ND_INDEX_DATASET},
    {"/probes", ND_INDEX_GROUP},
    {"/probes/*", ND_INDEX_GROUP},
    {"/probes/*/labels", ND_INDEX_DATASET},
    {"/probes/*/latency_us", ND_INDEX_DATASET},
    {"/probes/*/inputs", ND_INDEX_GROUP},
    {"/probes/*/inputs/*", ND_INDEX_DATASET},
    {"/probes/*/input_digests", ND_INDEX_GROUP},
    {"/probes/*/input_digests/*", ND_INDEX_DATASET},
    {"/probes/*/outputs", ND_INDEX_GROUP},
    {"/probes/*/outputs/*", ND_INDEX_DATASET},
    {"/probes/*/edge_digests", ND_INDEX_DATASET},
    {"/probes/*/digests", ND_INDEX_GROUP},
    {"/probes/*/digests/*", ND_INDEX_DATASET},
    {"/probes/*/repeats", ND_INDEX_GROUP},
    {"/probes/*/repeats/*", ND_INDEX_DATASET},
    {"/probes/*/repeat_index", ND_INDEX_GROUP},
    {"/probes/*/repeat_index/*", ND_INDEX_DATASET},
    {"/probes/*/rerun_samples", ND_INDEX_DATASET},
    {"/probes/*/rerun_digests", ND_INDEX_DATASET},
    {"/probes/*/reruns", ND_INDEX_GROUP},
    {"/probes/*/reruns/*", ND_INDEX_DATASET},
    {"/probes/*/rerun_index", ND_INDEX_GROUP},
    {"/probes/*/rerun_index/*", ND_INDEX_DATASET},
};

static bool matches(const char *pattern, const char *path)
{
    while (*pattern != '\0' && *path != '\0') {
        size_t n = strcspn(path + 1, "/") + 1, n_pattern = strcspn(pattern + 1, "/") + 1;
        bool is_any = strncmp(pattern, "/*", n_pattern) == 0;
        if (!is_any && (n != n_pattern || strncmp(pattern, path, n) != 0))
            return false;
        pattern += n_pattern;
        path += n;
    }
    return *pattern == *path;
}

static bool is_column(const struct nd_stored_table *table, const char *path)
{
    size_t n = strlen(table->path);
    if (strncmp(path, table->path, n) != 0 || path[n] != '/')
        return false;
    for (size_t c = 0; c < table->n_columns; c++)
        if (strcmp(path + n + 1, table->columns[c].name) == 0)
            return true;
    return false;
}

static enum nd_index_kind kind_of(const char *path)
{
    static const struct nd_stored_table *const tables[] = {&nd_tensor_table, &nd_scale_table, &nd_dims_table,
                                                           &nd_node_table, &nd_finding_table};
    for (size_t i = 1; i < ND_CAPTURE_N_GROUPS; i++)
        if (strcmp(path + 1, nd_capture_groups[i]) == 0)
            return ND_INDEX_GROUP;
    for (size_t i = 0; i < N_OF(tables); i++)
        if (is_column(tables[i], path))
            return ND_INDEX_DATASET;
    for (size_t i = 0; i < N_OF(objects); i++)
        if (matches(objects[i].pattern, path))
            return objects[i].kind;
    return ND_INDEX_UNKNOWN;
}

static bool has_attr(const char *name)
{
    static const char *const known[] = {"axis", "dtype", "index", "provider", "scale", "zero_point"};
    return nd_find_text(known, N_OF(known), sizeof known[0], name) != NULL;
}

/* Whether the root's attributes make it a capture of a version that this code reads. */
static enum nd_status check_root(const struct nd_index_object *root, struct nd_error *err)
{
    const struct nd_index_attr *attr = nd_index_attr(root, "npudiff_format");
    if (attr == NULL)
        return nd_fail(err, ND_E_CAPTURE_FORMAT, "/",
                       "an HDF5 file, but not a capture: it has no attribute 'npudiff_format'");
    if (attr->dtype != ND_DTYPE_I64 || attr->n != 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/", "attribute 'npudiff_format' is not one int64");
    int64_t version;
    memcpy(&version, attr->bytes, sizeof version);
    if (version > ND_CAPTURE_FORMAT)
        return nd_fail(err, ND_E_CAPTURE_VERSION, "/",
                       "format version %lld is newer than %d, which this npudiff %s reads", (long long)version,
                       ND_CAPTURE_FORMAT, nd_version());
    if (version < 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/", "format version %lld does not exist", (long long)version);
    return ND_OK;
}

const struct nd_index_schema nd_capture_schema = {kind_of, has_attr, check_root};
