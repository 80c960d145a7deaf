/* Captures from what other tools wrote, and datasets for other tools from captures.
 *
 * nd_import reads outputs as NumPy arrays, raw files, ONNX test data, datasets of Qualcomm AI Hub, and
 * saved runs of Polygraphy and of qnn-net-run. nd_export_aihub writes a dataset for AI Hub. Every bit of
 * the data is kept, NaN payloads and signed zeros too; only the order of bytes (big endian) and of elements
 * (Fortran order, channels last where the user says so) changes. What no file, model or option states stays
 * unknown.
 *
 * Nothing is kept between calls; several threads may import different files at once.
 *
 * Example:
 *
 *     static enum nd_status import_numpy(const char *npz, const char *capture, struct nd_error *err)
 *     {
 *         struct nd_import_options options = {.struct_size = sizeof options};
 *         struct nd_import_result result = {0};
 *         options.format = "numpy";
 *         options.paths = &npz;
 *         options.n_paths = 1;
 *         options.output = capture;
 *         enum nd_status status = nd_import(&options, &result, err);
 *         if (status == ND_OK)
 *             printf("%zu tensors, %zu samples\n", result.n_tensors, result.n_samples);
 *         nd_import_result_deinit(&result);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_IMPORT_H
#define NPUDIFF_IMPORT_H

#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The formats, for `npudiff import --help`: format i, NULL behind the last. Static storage. */
struct nd_import_format {
    const char *name;    /* "numpy" */
    const char *paths;   /* "OUT.npz|OUT.npy|FOLDER..." */
    const char *summary; /* what it is and how it is read */
};
ND_PUBLIC const struct nd_import_format *nd_import_format(size_t i);

/* Where the samples of an array lie (formats that keep each sample apart do not ask). */
enum nd_import_samples {
    ND_IMPORT_SAMPLES_AUTO,  /* as the model's shape of the tensor tells; without a model, as FIRST */
    ND_IMPORT_SAMPLES_FIRST, /* along the first dimension, which is none of the tensor's: [S, 1, 10] or [S, 10]
                              */
    ND_IMPORT_SAMPLES_BATCH, /* along the first dimension, which is 1 in a sample: [S, 10] is S times [1, 10] */
    ND_IMPORT_SAMPLES_NONE,  /* the array is one sample */
    ND_IMPORT_SAMPLES_FILE,  /* every path is one sample, in the order given; an array is all of it (numpy) */
};

/* A fact that an option states: a key of docs/reference/import-facts.md. */
struct nd_import_stated {
    const char *key, *value;
    const char *option; /* for messages: "--kind" */
};

/* What is known of a chipset; static texts. */
struct nd_import_chipset {
    const char *sm, *arch, *marketing;
    int soc_model;
};

/* A struct that is zero except for struct_size, format, paths and output is complete. Everything is borrowed
 * for the call. */
struct nd_import_options {
    size_t struct_size; /* sizeof(struct nd_import_options) */
    const char *format; /* name of a row of an nd_import_format */
    const char *const *paths;
    size_t n_paths;               /* 0 only where a fact states that the run failed */
    const char *output;           /* the capture to make */
    bool replace;                 /* a file in the way is replaced */
    const char *label;            /* NULL: the first path's base name without its extension */
    const char *chipset;          /* as the user states it ("SM8750"); NULL: unknown */
    const char *probe;            /* name of the only probe; NULL: the format's name */
    const struct nd_model *model; /* whose tensors the tensors are; NULL: they are what they say */
    const char *map;              /* a YAML file: docs/reference/import-map.md; NULL: none */
    const char *const *names;     /* TENSOR=EDGE each, the short form of a map */
    size_t n_names;
    const char *facts; /* a YAML file of facts: docs/reference/import-facts.md; NULL: none */
    const struct nd_import_stated *stated; /* facts that options state */
    size_t n_stated;
    /* Fills *out with what is known of the chipset called `name`, or gives false; NULL: no chipset is known. */
    bool (*find_chipset)(const char *name, struct nd_import_chipset *out);
    const char *inputs; /* what was fed: a .npz, .npy, folder or list as `--probe NAME=PATH` takes it, or an .h5
                           of AI Hub; NULL: what the format has of inputs, else unknown */
    enum nd_import_samples samples;
    const char *runner; /* polygraphy: which runner; NULL: the only one */
    /* qnn-net-run alone, all nullable. */
    const char *graph;        /* which of several graphs; NULL: the only one */
    const char *context_json; /* what qnn-context-binary-utility prints of the context binary */
    const char *input_list; /* what was given to --input_list; NULL: input_list.txt, where the folder has it */
    const char *layout;     /* of all tensors the map says nothing of: "NCHW" (as in the model) or "NHWC" */
    size_t batch;           /* samples in every file; 0: one */
    bool assumes_float32;   /* tensors of which nothing states a shape are float32 of one dimension */
    bool strict;            /* a tensor that the model lacks is an error */
};

/* One fact of the import and where it is from. */
struct nd_import_fact {
    char *kind; /* "names", "types", "shapes", "samples", "layout", "quantisation", "inputs", "model", "chipset"
                 */
    char
        *source; /* ".npy header", "--map", "not stated"; several lines "TENSOR: SOURCE" where tensors differ */
};

/* What was made. Owned by the caller, freed by nd_import_result_deinit. */
struct nd_import_result {
    size_t n_tensors;
    size_t n_inputs;
    size_t n_samples;
    size_t n_facts;
    struct nd_import_fact *facts; /* as they are stored in the capture's group "import" */
    bool is_failed; /* the tool failed: so does the capture say, with the samples that were whole before */
    char *
        cut_short; /* why there is less than was asked for: the capture is partial or failed; NULL: it is not */
};

/* Reads the files and writes the capture. Either all of it is made or nothing.
 * ND_ERR_USAGE: unknown format (ND_E_IMPORT_OPTION), options that contradict one another, a map that cannot be
 * followed (ND_E_IMPORT_MAP); ND_ERR_IO: a file cannot be read, or the capture not be written; ND_ERR_FORMAT: a
 * damaged file (ND_E_IMPORT_FORMAT, or what the reader of its parts says), or tensors that contradict the model
 * or one another (ND_E_IMPORT_MISMATCH: tensor, what was found, what was expected); ND_ERR_NOT_FOUND: nothing
 * to import, or a tensor that the model does not have; ND_ERR_UNSUPPORTED: a type or rank that captures lack;
 * ND_ERR_MEMORY: more data than the machine has memory. The message names file and object. */
ND_PUBLIC enum nd_status nd_import(const struct nd_import_options *options, struct nd_import_result *out,
                                   struct nd_error *err);
ND_PUBLIC void nd_import_result_deinit(struct nd_import_result *result);

/* A struct that is zero except for struct_size is complete. */
struct nd_export_options {
    size_t struct_size;
    const char *probe; /* which probe; NULL: the only one */
    bool inputs;       /* what was fed instead of the outputs */
    bool replace;
};

/* Writes the first repeat's outputs (quantised values where a tensor is quantised) of the model's outputs, or
 * of all tensors that are recorded where none is a model output, or what was fed, as a dataset of Qualcomm AI
 * Hub: /data/<i>/batch_<k>. Names and shapes as in the capture. ND_ERR_NOT_FOUND: no such probe, several and
 * none named, or nothing stored; ND_ERR_UNSUPPORTED: a type that HDF5 and NumPy lack (bfloat16, 8-bit floats,
 * 4-bit integers); ND_ERR_IO. */
ND_PUBLIC enum nd_status nd_export_aihub(const char *capture, const char *output,
                                         const struct nd_export_options *options, size_t *n_tensors,
                                         struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
