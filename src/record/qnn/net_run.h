/* What qnn-net-run (and snpe-net-run, which writes alike) leaves in a folder, as imported tensors.
 *
 * Nothing is guessed: a type, shape, layout or scale is that of npudiff.json
 * (docs/reference/prepared-folder.md), of the JSON of qnn-context-binary-utility, of a <name>_native.raw.json,
 * of the model or of the map; where two of them state it, they state the same. What none of them states is an
 * error that says what to give. */
#pragma once

#include <jansson.h>

#include "record/import/map.h"

extern const struct nd_import_reader nd_import_qnn_net_run;

/* A tensor as something states it. */
struct nd_qnr_stated {
    char *file;            /* its name in the context, thus of its files; "" for one without a name */
    char *name;            /* the tensor, or the model's input, where that is stated as well; else NULL */
    enum nd_dtype dtype;   /* of native files; ND_DTYPE_NONE: not stated */
    struct nd_shape shape; /* rank -1: not stated */
    struct nd_quant quant; /* n 0: not stated, or none */
    bool is_model_layout;  /* the dimensions are stated to be in the model's order */
};

struct nd_qnr_list {
    size_t n;
    size_t capacity;
    struct nd_qnr_stated *items;
};

/* One file that states tensors: the manifest, or the JSON of a context. */
struct nd_qnr_source {
    char *path; /* NULL: there is none */
    struct nd_qnr_list outputs, inputs;
    char *build_id; /* of the SDK that made the context; nullable */
    json_t *root;   /* of the manifest */
};

/* Which files lie in one folder, sorted by name. */
struct nd_qnr_files {
    size_t n;
    size_t capacity;
    char **names;
};

/* One output on its way. */
struct nd_qnr_tensor {
    char *file; /* name of its files less suffixes */
    bool has_float, has_native, has_sidecar;
    const struct nd_qnr_stated *stated; /* NULL: nothing does */
    const struct nd_map_item *item;     /* NULL: the map says nothing of it */
    const struct nd_tensor *tensor;     /* of the model, NULL: none */
    enum nd_dtype dtype;                /* of what is imported */
    struct nd_shape shape;
    bool is_channel_last;
    const struct nd_quant *quant; /* of native codes, NULL: unknown */
    struct nd_qnr_stated sidecar; /* file is NULL until one was read */
};

struct nd_qnr {
    const struct nd_import_options *options;
    struct nd_imported *imported;
    struct nd_map map;
    char *top;         /* what the user gave */
    char *base;        /* the prepared folder, NULL: none */
    char *output;      /* the folder of qnn-net-run */
    char *results;     /* where the Result_<i> lie: output, or a graph in it */
    const char *graph; /* its name in output, borrowed from results; NULL: the only one, not named */
    size_t n_graphs;   /* that have results */
    struct nd_qnr_source manifest, context;
    size_t n_results;  /* folders Result_<i> */
    size_t n_complete; /* of which so many count */
    size_t n_batch;    /* samples in a file */
    struct nd_qnr_tensor *tensors;
    size_t n_tensors, tensors_capacity;
};

/* ---- net_run_stated.c ---- */

/* npudiff.json. ND_E_QNN_STATED names file, tensor and key. */
enum nd_status nd_qnr_read_manifest(const char *path, struct nd_qnr_source *out, struct nd_error *err);

/* What qnn-context-binary-utility prints; graph is nullable. ND_E_QNN_STATED, or as nd_encodings_read. */
enum nd_status nd_qnr_read_context(const char *path, const char *graph, struct nd_qnr_source *out,
                                   struct nd_error *err);

/* <name>_native.raw.json; native types it does not state are those of `known` (nullable). */
enum nd_status nd_qnr_read_sidecar(const char *path, const char *name, enum nd_dtype known,
                                   struct nd_qnr_stated *out, struct nd_error *err);

void nd_qnr_source_deinit(struct nd_qnr_source *source);
void nd_qnr_stated_deinit(struct nd_qnr_stated *stated);

/* The tensor of that name in its files, or NULL. */
const struct nd_qnr_stated *nd_qnr_find(const struct nd_qnr_list *list, const char *file);

/* Both state the same, as far as both state it; `a_from` and `b_from` for messages. */
enum nd_status nd_qnr_agree(const struct nd_qnr_stated *a, const char *a_from, const struct nd_qnr_stated *b,
                            const char *b_from, struct nd_error *err);

/* ---- net_run_tensors.c ---- */

void nd_qnr_files_deinit(struct nd_qnr_files *files);

/* Names in a folder; symbolic links are refused, names are UTF-8. */
enum nd_status nd_qnr_list_folder(const char *path, struct nd_qnr_files *out, struct nd_error *err);

/* Finds top, base, output, results and n_results. ND_E_QNN_FOLDER. */
enum nd_status nd_qnr_find_folders(struct nd_qnr *run, struct nd_error *err);

/* Finds the tensors by the files of Result_0, and that every other result has the same. ND_E_QNN_FOLDER. */
enum nd_status nd_qnr_find_tensors(struct nd_qnr *run, struct nd_error *err);

/* Decides type, shape, layout and quantisation of every tensor. ND_E_QNN_UNSTATED, ND_E_QNN_STATED. */
enum nd_status nd_qnr_describe(struct nd_qnr *run, struct nd_error *err);

/* Reads the files of complete results. ND_E_QNN_SIZE, ND_E_QNN_VALUES. */
enum nd_status nd_qnr_read_tensors(struct nd_qnr *run, struct nd_error *err);

struct nd_source;

/* The tool's own floats must be the codes' reals: a float32 rounding or two apart, no more. source is the float
 * file. ND_E_QNN_VALUES. */
enum nd_status nd_qnr_compare_floats(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                     const float *floats, const void *qvalues, size_t n, struct nd_error *err);

/* ---- net_run_prepared.c ---- */

/* The input list: how many lines, and what they feed, which is read where its type is known; and the tensors
 * that are fed. Before nd_qnr_read_tensors: sets n_complete. ND_E_QNN_STATED names list and line. */
enum nd_status nd_qnr_read_inputs(struct nd_qnr *run, struct nd_error *err);

/* ---- net_run.c ---- */

/* Cuts n_complete to n, with the reason. */
enum nd_status nd_qnr_cut(struct nd_qnr *run, size_t n, struct nd_error *err, const char *fmt, ...)
    ND_PRINTF(4, 5);

/* A fact of the import. */
enum nd_status nd_qnr_fact(struct nd_qnr *run, const char *kind, const char *tensor, struct nd_error *err,
                           const char *fmt, ...) ND_PRINTF(5, 6);
