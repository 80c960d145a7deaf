/* The objects of a capture: one description for its writer and its reader. docs/reference/capture-format.md. */
#pragma once

#include "capture/hdf5/index.h"
#include "core/error.h"
#include "npudiff/core/tensor.h"

enum { ND_CAPTURE_FORMAT = 1 };

struct nd_column {
    const char *name;
    enum nd_dtype dtype; /* ND_DTYPE_NONE: text, a char pointer in the struct */
    size_t offset;       /* of the member in the struct */
    size_t width;        /* numbers in a row: the column then has a second dimension. 0: one number, without */
    bool is_optional;    /* of numbers: absent where all are 0 */
};

struct nd_stored_table {
    const char *path;
    size_t row_bytes;
    size_t n_columns;
    const struct nd_column *columns; /* in the order in which they are written */
};

/* A row of /edges, but for its scales. */
struct nd_tensor_row {
    char *name, *onnx_name, *op_types, *node, *provider, *dtype;
    int64_t rank;
    uint8_t is_model_input, is_model_output;
    int64_t quant_n, quant_axis;
    int64_t dims[ND_MAX_RANK];
};

/* The scales of all tensors, one tensor after the other. */
struct nd_scale_row {
    float scale;
    int64_t zero_point;
};

/* The columns of /edges are written in three steps: nd_tensor_table, nd_scale_table, nd_dims_table. Rows of
 * nd_tensor_table and nd_dims_table are struct nd_tensor_row, of nd_node_table struct nd_capture_node, of
 * nd_finding_table struct nd_capture_finding. */
extern const struct nd_stored_table nd_tensor_table, nd_scale_table, nd_dims_table, nd_node_table,
    nd_finding_table;

/* The groups that hold nothing but attributes. nd_capture_groups[0] is "", the root. */
enum { ND_CAPTURE_N_GROUPS = 8 };
extern const char *const nd_capture_groups[ND_CAPTURE_N_GROUPS];

/* What an index takes of a capture. */
extern const struct nd_index_schema nd_capture_schema;

/* Frees the texts of the rows. */
void nd_stored_table_deinit(const struct nd_stored_table *table, void *rows, size_t n);

/* A column that is written or read, and the rows that it is in. */
struct nd_stored_column {
    const struct nd_stored_table *table;
    const struct nd_column *column;
    void *rows;
    size_t n;
    const char *path;      /* of the dataset */
    size_t cell_bytes;     /* of numbers */
    struct nd_shape shape; /* of the dataset */
};

/* The member of row i. */
void *nd_stored_cell(const struct nd_stored_column *column, size_t i);

/* Calls visit for each column of a table of n rows, in order, until one fails. ND_ERR_MEMORY, and what visit
 * returns. */
typedef enum nd_status nd_stored_visit(void *context, const struct nd_stored_column *column,
                                       struct nd_error *err);
enum nd_status nd_stored_table_visit(const struct nd_stored_table *table, void *rows, size_t n,
                                     nd_stored_visit *visit, void *context, struct nd_error *err);

/* '%' becomes "%25", '/' "%2F"; "" becomes "%00", and the first dot of a name of dots only "%2E". New memory,
 * or NULL when out of memory. */
char *nd_name_escape(const char *name);

/* *out: the name that nd_name_escape wrote so, in new memory. ND_E_CAPTURE_SCHEMA about `path` when it never
 * writes this; ND_E_MEMORY. */
enum nd_status nd_name_unescape(const char *link, const char *path, char **out, struct nd_error *err);

/* "<group>/<escaped name>" in new memory; NULL when out of memory. */
char *nd_name_path(const char *group, const char *name);

/* "/probes/<escaped probe>/<part>" in new memory, with "/<escaped name>" at its end unless name is NULL; NULL
 * when out of memory. */
char *nd_name_probe_path(const char *probe, const char *part, const char *name);
