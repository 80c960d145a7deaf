/* What a foreign file gave, before it is held against a map and a model.
 *
 * A format is one const struct nd_import_reader (import/formats.c lists them). Its read function is handed an
 * empty struct nd_imported and adds what it finds:
 *
 *     void *data;      // room for sample 0, to be filled: C order, little endian
 *     const struct nd_imported_new sample = {ND_IMPORTED_OUTPUT, "conv1", "'Result_0/conv1.raw'", dtype, shape,
 * 0}; status = nd_imported_add(imported, &sample, &data, err); status = nd_imported_fact(imported, "types",
 * "conv1", "the context's JSON", err);
 *
 * A format that keeps every sample apart (pb, aihub, qnn-net-run) adds samples; one whose arrays may hold the
 * samples along a dimension (numpy) adds arrays, and nd_imported_write decides by options and model which
 * dimension that is. Names are those of the file: nd_imported_write matches them with the model's tensors,
 * transposes, and writes. A reader sets quant and layout only where the file itself states them. */
#pragma once

#include "core/documents/yaml_map.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "model/graph/onnx.h"
#include "npudiff/core/tensor.h"
#include "npudiff/model/model.h"
#include "npudiff/record/import.h"
#include "record/probes/npz.h"

/* What the user states of an imported run: facts that the files of the tool do not hold.
 * docs/reference/import-facts.md lists the keys.
 *
 * A fact comes from an option, from a --facts file, or from the top level of a --map. The same fact may come
 * from several places as long as all of them say the same. */

/* In the order of the table in statements.c. */
enum nd_stated_key {
    ND_STATED_KIND,
    ND_STATED_LABEL,
    ND_STATED_PHONE,
    ND_STATED_BOARD,
    ND_STATED_FIRMWARE,
    ND_STATED_SERIAL,
    ND_STATED_SIMULATOR,
    ND_STATED_CHIPSET,
    ND_STATED_RUNTIME,
    ND_STATED_RUNTIME_VERSION,
    ND_STATED_SDK,
    ND_STATED_PROVIDER,
    ND_STATED_OPTIMISATION,
    ND_STATED_THREADS,
    ND_STATED_MODEL_FILE,
    ND_STATED_MODEL_SHA256,
    ND_STATED_OPSET,
    ND_STATED_OUTPUTS,
    ND_STATED_MODEL_INPUTS,
    ND_STATED_SAMPLES,
    ND_STATED_LABELS,
    ND_STATED_FLOATS,
    ND_STATED_REPEATS,
    ND_STATED_REPEAT_ORDER,
    ND_STATED_REPEAT_FILES,
    ND_STATED_LATENCY_US,
    ND_STATED_LATENCY_MS,
    ND_STATED_LOGS,
    ND_STATED_FAILED,
    ND_STATED_FAILED_STAGE,
    ND_STATED_FAILED_OPERATOR,
    ND_STATED_FAILED_NODE,
    ND_STATED_FAILED_CODE,
    ND_STATED_FAILED_SYMBOL,
};
enum { ND_N_STATED = ND_STATED_FAILED_SYMBOL + 1 };

struct nd_statement {
    struct nd_texts values; /* n 0: not stated */
    char *where;            /* "--kind", "run.yaml:3:1" */
    char *folder;           /* paths are relative to it; "" for an option: the working folder */
};

struct nd_statements {
    struct nd_statement of[ND_N_STATED];
};

/* The name of a key, and the attribute that it becomes: *group is NULL where it is no attribute. */
const char *nd_stated_name(enum nd_stated_key key);

/* One value of a fact that an option states. Where the key takes a list, further calls from the same `where`
 * add to it. ND_E_IMPORT_FACT: an unknown key (names the nearest), a value that the key cannot have, or another
 * value than was stated elsewhere (names both). */
enum nd_status nd_statements_add(struct nd_statements *statements, const char *key, const char *value,
                                 const char *where, struct nd_error *err);

/* The facts of a YAML file; its `tensors` and `inputs` are those of a map, and are an error unless is_map. */
enum nd_status nd_statements_read(struct nd_statements *statements, const char *path, bool is_map,
                                  struct nd_error *err);

/* The first value, or NULL. */
const char *nd_stated(const struct nd_statements *statements, enum nd_stated_key key);

/* Path i of a fact that lists files. The caller frees it; NULL: out of memory. */
char *nd_stated_path(const struct nd_statements *statements, enum nd_stated_key key, size_t i);

/* "chipset is 'SM8650' by --chipset, but the file says 'SM8750'": `from` names the other side. */
enum nd_status nd_stated_conflict(const struct nd_statements *statements, enum nd_stated_key key,
                                  const char *other, const char *from, struct nd_error *err);

/* Facts that contradict one another, or need one another. */
enum nd_status nd_statements_check(const struct nd_statements *statements, struct nd_error *err);

/* ---- what was imported ---- */

enum nd_imported_side { ND_IMPORTED_OUTPUT, ND_IMPORTED_INPUT };

struct nd_imported_tensor {
    char *name;            /* as the file has it; unique on its side */
    char *where;           /* for messages: "array 'conv1' of 'out.npz'" */
    enum nd_dtype dtype;   /* 4-bit integers take a byte each */
    struct nd_shape shape; /* of one sample; of the whole array while is_array */
    bool is_array;         /* which dimension the samples are is still to be decided; n_samples is 1 */
    size_t n_samples;
    size_t sample_bytes;
    size_t capacity_bytes;
    void *data; /* n_samples * sample_bytes */
    struct nd_quant
        quant; /* n 0: the file says nothing. axis counts from 0 in `shape` of a sample as it is here */
    enum nd_dtype
        qvalues; /* of floats: the type of the quantised values that the file says they stand for; else NONE */
    bool is_channel_last; /* the file says that channels are the last dimension */
    bool is_laid_out;     /* samples and channels are where they belong: nd_match_samples did it */
    bool is_left_out;     /* no tensor of the model, or a worse one of two: a fact says why */
};

/* Where one fact is from. */
struct nd_imported_fact {
    char *key;    /* kind and tensor as one text */
    char *kind;   /* as struct nd_import_fact */
    char *tensor; /* NULL: holds for all */
    char *source;
};

struct nd_imported_log {
    char *name;
    char *text;
    size_t n_bytes;
};

/* One probe of several whose samples lie one behind the other. */
struct nd_imported_part {
    char *name;
    char *source;    /* how it was made, as struct nd_probe has it */
    int64_t *labels; /* [n_samples], or NULL */
    size_t n_samples;
};

struct nd_imported_list {
    size_t n;
    size_t capacity;
    struct nd_imported_tensor *items;
    struct nd_names names; /* of the items */
};

struct nd_imported {
    struct nd_imported_list sides[2]; /* by enum nd_imported_side */
    size_t total_bytes;               /* of all data */
    double base_limit_s;              /* of processor time for no bytes; 0: the usual one */
    double begun_s;                   /* processor time of the thread when the first sample was added */
    bool has_begun;
    bool has_sanitised_names; /* the tool writes '_' for all but letters and digits: set by its reader */
    size_t n_facts;
    size_t facts_capacity;
    struct nd_imported_fact *facts;
    struct nd_names fact_keys;
    size_t n_logs;
    size_t logs_capacity;
    struct nd_imported_log *logs;
    int64_t *labels; /* class indices of the samples, or NULL */
    size_t n_labels;
    bool keeps_unknown; /* a tensor that the model lacks is kept as it is */
    size_t n_parts;     /* 0: one probe of all samples */
    struct nd_imported_part *parts;
    struct nd_statements stated; /* what the user states of the run */
    size_t n_repeats;            /* runs of every sample, whole runs one behind the other; 0: one */
    double *latency_us;          /* [n_latencies], as the files state them: one for each sample; or NULL */
    size_t n_latencies, latencies_capacity;
    struct nd_shape *shapes; /* of the model's tensors, also inferred ones; NULL: there is no model */
    char *kind;              /* of device, as the files state it ("npu"); NULL: they do not */
    char *chipset;           /* likewise */
    char *model_sha256;      /* the same of the model's digest, as nd_model_sha256 */
    char *model_file;        /* and of its name */
    char *cut_short;         /* why there is less than was asked for; NULL: all is there */
    bool is_failed;          /* and that is because the tool failed */
};

struct nd_import_reader {
    struct nd_import_format format;
    /* Adds what options->paths hold. ND_E_IMPORT_FORMAT and what nd_import lists, with file and object. */
    enum nd_status (*read)(const struct nd_import_options *options, struct nd_imported *imported,
                           struct nd_error *err);
};

/* Frees everything and zeroes it; a zeroed one is accepted. */
void nd_imported_deinit(struct nd_imported *imported);

/* A sample of a tensor, or a whole array, that a file holds. All of it is copied. */
struct nd_imported_new {
    enum nd_imported_side side;
    const char *name, *where; /* as in struct nd_imported_tensor */
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t sample; /* its number; ND_IMPORTED_ARRAY: an array, which may hold several samples */
};
#define ND_IMPORTED_ARRAY SIZE_MAX

/* Adds an array, or the next sample of a tensor: samples come in order, from 0. *data is room for it, zeroed,
 * owned by imported and valid until the next call. ND_ERR_FORMAT (ND_E_IMPORT_FORMAT): the name is empty, the
 * name of an array is taken, or a sample is missing before this one; ND_E_IMPORT_MISMATCH: its type or shape is
 * not that of sample 0 (the message names both); ND_ERR_UNSUPPORTED: no dtype; ND_ERR_MEMORY: all data together
 * is more than the machine's memory. */
enum nd_status nd_imported_add(struct nd_imported *imported, const struct nd_imported_new *added, void **data,
                               struct nd_error *err);

/* The tensor of that name on that side, or NULL. Valid until the next addition. */
struct nd_imported_tensor *nd_imported_find(const struct nd_imported *imported, enum nd_imported_side side,
                                            const char *name);

/* States the quantisation of a tensor, copied: real = scale * (quantised value - zero_point). */
enum nd_status nd_imported_set_quant(struct nd_imported_tensor *tensor, const struct nd_quant *quant,
                                     struct nd_error *err);

/* Keeps where a fact is from; a later one of the same kind and tensor wins over an earlier one. */
enum nd_status nd_imported_fact(struct nd_imported *imported, const char *kind, const char *tensor,
                                const char *source, struct nd_error *err);

/* The file says how long the next sample took; NaN: it does not. */
enum nd_status nd_imported_latency(struct nd_imported *imported, double latency_us, struct nd_error *err);

/* Keeps a text that the tool left (a log, a profile) under that name; bytes as they are. */
enum nd_status nd_imported_log(struct nd_imported *imported, const char *name, const char *text, size_t n_bytes,
                               struct nd_error *err);

/* Matches, checks and writes the capture that options describe. repeats[n_repeats] are further runs of the same
 * samples. *out as nd_import. */
enum nd_status nd_imported_write(struct nd_imported *imported, struct nd_imported *repeats, size_t n_repeats,
                                 const struct nd_import_options *options, struct nd_import_result *out,
                                 struct nd_error *err);

/* ---- arrays in .npy form, wherever they lie, as imported tensors ---- */

/* Adds the array as nd_imported_add does: sample ND_IMPORTED_ARRAY for one that may hold several.
 * ND_E_IMPORT_TYPE: a type or rank that imported tensors lack; else as nd_npy_open. */
enum nd_status nd_npy_add(struct nd_imported *imported, enum nd_imported_side side, const char *name,
                          size_t sample, struct nd_source *source, struct nd_error *err);

/* ---- which tensor of a model a foreign name means ---- */

/* How a name was understood. */
enum nd_name_method { ND_NAME_AS_IT_IS, ND_NAME_ONNX, ND_NAME_SANITISED, ND_NAME_VALUE };

/* The tensor of the model that `name` is: a tensor's own name first, then an onnx_name, then the name or
 * onnx_name that sanitising (every byte but letters and digits becomes '_', with or without a '_' put before a
 * digit) makes equal to it. is_sanitised: the tool sanitises all names, so that an equal name says no more than
 * one that sanitising makes equal. ND_E_IMPORT_NOTHING: none; ND_E_IMPORT_MISMATCH: sanitised names of several
 * (the message lists them). The object of both is name. */
enum nd_status nd_name_find_tensor(const struct nd_model *model, const char *name, bool is_sanitised,
                                   size_t *tensor, enum nd_name_method *method, struct nd_error *err);

/* The same among the inputs that have to be fed. */
/* What a value of the ONNX file is to a tensor of the model: the quantised values or what is dequantised of
 * them, the floats before the quantiser, a constant, something inside of a layer. */
enum nd_value_role { ND_VALUE_NONE, ND_VALUE_AFTER, ND_VALUE_BEFORE, ND_VALUE_CONSTANT, ND_VALUE_INSIDE };

/* *tensor: set for ND_VALUE_AFTER and ND_VALUE_BEFORE. ND_VALUE_NONE: the file has no value of this name. */
enum nd_value_role nd_value_role_of(const struct nd_model *model, const char *name, size_t *tensor);

enum nd_status nd_name_find_input(const struct nd_model *model, const char *name, bool is_sanitised,
                                  size_t *input, enum nd_name_method *method, struct nd_error *err);

/* Repeats: several runs of the same samples, from files of their own or one behind the other in one file. */

/* All after nd_match_samples. */

/* Appends the samples of another run, and checks that it has the same tensors, shapes, types, numbers of
 * samples and inputs. `number` counts runs, for messages. ND_E_IMPORT_MISMATCH names both. */
enum nd_status nd_runs_append(struct nd_imported *imported, const struct nd_imported *repeat, size_t number,
                              struct nd_error *err);

/* Labels and latencies that the facts state, held against those of the files and against the numbers of samples
 * and repeats. Latencies are then [n_samples][n_repeats]. */
enum nd_status nd_runs_facts(struct nd_imported *imported, size_t n_samples, size_t n_expected,
                             struct nd_error *err);

/* ---- the readers of foreign formats. That of qnn-net-run is in qnn/net_run.h ---- */

extern const struct nd_import_reader nd_import_numpy;
extern const struct nd_import_reader nd_import_raw;
extern const struct nd_import_reader nd_import_onnx_pb;
extern const struct nd_import_reader nd_import_aihub;
extern const struct nd_import_reader nd_import_polygraphy;

/* The reader of that name, or NULL. */
const struct nd_import_reader *nd_import_reader_find(const char *name);

/* ---- the values of an ONNX TensorProto ---- */

/* Type and shape. ND_E_IMPORT_FORMAT: negative or too many dimensions, data in another file or in segments;
 * ND_E_IMPORT_TYPE: a type that captures lack (strings, complex numbers, other small floats). */
enum nd_status nd_tensorproto_describe(const Onnx__TensorProto *proto, const char *path, enum nd_dtype *dtype,
                                       struct nd_shape *shape, struct nd_error *err);

/* The elements, whichever of its fields holds them, 4-bit integers a byte each. data has room for all of them.
 * ND_E_IMPORT_FORMAT: another number of elements than the shape has, a value that the type cannot hold, two
 * fields. */
enum nd_status nd_tensorproto_unpack(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                     const struct nd_shape *shape, void *data, struct nd_error *err);

/* ---- what libhdf5 finds in a dataset of AI Hub ---- */

/* One sample of one tensor, borrowed for the call. */
struct nd_aihub_sample {
    const char *name;
    const char *what; /* "'/data/0/batch_1'" */
    size_t sample;
    enum nd_dtype dtype;
    struct nd_shape shape;
    const void *data;
    size_t n_bytes;
};

typedef enum nd_status (*nd_aihub_visit)(void *context, const struct nd_aihub_sample *sample,
                                         struct nd_error *err);

/* Values that a dataset may hold: 256 MiB + 256 bytes for each byte that is stored of them. Deflate gives 1032
 * at the most, but of real outputs less: 140 (docs/results/faults.md). */
enum { ND_AIHUB_BASE_BYTES = 256 << 20, ND_AIHUB_BYTES_PER_STORED = 256 };

struct nd_aihub_source {
    const char *path;
    int fd; /* the file's */
    uint64_t file_bytes;
    uint64_t n_stored, n_counted; /* what is stored of the samples, and what they say that they hold */
    uint64_t n_taken;             /* bytes of the file that are a sample's; all are 0 at first */
};

/* Visits all samples, tensor by tensor in their order, each from sample 0 on, in a confined process.
 * ND_E_IMPORT_FORMAT, ND_E_IMPORT_TYPE, ND_E_IMPORT_NOTHING, and what visit returns. */
enum nd_status nd_aihub_walk(struct nd_aihub_source *source, nd_aihub_visit visit, void *context,
                             struct nd_error *err);
