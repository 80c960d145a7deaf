/* Fits the user's arrays to the inputs of the model: types must be equal, shapes must be those of samples. A
 * loader fills one probe, either by whole inputs (all samples in one array) or sample by sample. */
#ifndef ND_PROBE_LOADER_H
#define ND_PROBE_LOADER_H

#include "npudiff/core/tensor.h"
#include "npudiff/record/probe.h"
#include "record/probes/npz.h"

/* NumPy's .npy format, versions 1.0, 2.0 and 3.0: read only. Nothing in a header is believed before it was
 * checked against the number of bytes that are there. */

enum {
    ND_NPY_MAX_RANK = ND_MAX_RANK + 1, /* one more than a tensor, for the samples */
    ND_NPY_MAX_HEADER_BYTES = 64 * 1024,
};

struct nd_npy {
    enum nd_dtype dtype; /* ND_DTYPE_NONE: nothing that a model input can be; descr says what */
    char descr[48];      /* as in the header, cut to fit, without control characters: "<f4", "|O" */
    bool is_big_endian;
    bool is_fortran_order;
    int rank;
    int64_t dims[ND_NPY_MAX_RANK];
    size_t n_elems;    /* these two are 0 for ND_DTYPE_NONE */
    size_t size_bytes; /* of the data */
};

/* Reads everything before the data. ND_ERR_FORMAT: not a .npy file, a version or header that is not understood,
 * more than ND_NPY_MAX_RANK dimensions (ND_E_PROBE_SHAPE), or another number of bytes behind the header than
 * the shape needs (not checked for ND_DTYPE_NONE). */
enum nd_status nd_npy_open(struct nd_source *source, struct nd_npy *npy, struct nd_error *err);

/* Reads the data, size_bytes of them, into out: C order, little endian; the bits of floats are kept. Then the
 * source must be at its end. ND_ERR_FORMAT also for a bool that is neither 0 nor 1. dtype is not ND_DTYPE_NONE.
 */
enum nd_status nd_npy_read(struct nd_source *source, const struct nd_npy *npy, void *out, struct nd_error *err);

/* Writes "(700, 1, 8, 8)" as NumPy does; returns buf, which is always terminated. */
char *nd_npy_format_shape(const struct nd_npy *npy, char *buf, size_t buf_size);

/* The element type's name, or the header's own word for an unknown one: "float32", "object ('|O', a pickle)".
 */
char *nd_npy_format_dtype(const struct nd_npy *npy, char *buf, size_t buf_size);

struct nd_loader {
    struct nd_probe *probe;   /* borrowed */
    char *samples_from;       /* the array that set the number of samples, for messages; NULL before */
    bool has_explicit_labels; /* labels=PATH was given: labels among the data are passed over */
    int64_t *labels;          /* from the data; NULL while there are none */
    size_t n_labels;
    bool *filled; /* [n_inputs]: the whole input, or the present sample of it, has its data */
};

enum nd_status nd_loader_init(struct nd_loader *loader, struct nd_probe *probe, bool has_explicit_labels,
                              struct nd_error *err);
void nd_loader_deinit(struct nd_loader *loader);

/* "labels", "label" and "y". */
bool nd_loader_is_label_name(const char *name);

/* Index of the input of that name, or SIZE_MAX. */
size_t nd_loader_find_input(const struct nd_loader *loader, const char *name);

/* ---- By whole inputs ---- */

/* Reads a .npy source as all samples of an input. The first one sets the number of samples. ND_ERR_FORMAT:
 * wrong type (ND_E_PROBE_TYPE), wrong shape or another number of samples (ND_E_PROBE_SHAPE), damaged. */
enum nd_status nd_loader_read_input(struct nd_loader *loader, size_t input, struct nd_source *source,
                                    struct nd_error *err);

/* ---- Sample by sample ---- */

/* Before the first sample: n_samples are to come, as `from` says. */
enum nd_status nd_loader_begin_samples(struct nd_loader *loader, size_t n_samples, const char *from,
                                       struct nd_error *err);

/* Before each sample: no input is filled. */
void nd_loader_next_sample(struct nd_loader *loader);

/* Reads a .npy source as one sample of an input. */
enum nd_status nd_loader_read_sample(struct nd_loader *loader, size_t input, size_t sample,
                                     struct nd_source *source, struct nd_error *err);

/* Reads the bare bytes of one sample of an input. */
enum nd_status nd_loader_read_raw(struct nd_loader *loader, size_t input, size_t sample,
                                  struct nd_source *source, struct nd_error *err);

/* ---- Target tensors ---- */

/* "target:OUTPUT", unless an input is called so. */
bool nd_loader_is_goal_name(const struct nd_loader *loader, const char *name);

/* Reads a .npy source as the target of an output, for all samples: float32 or float64 (ND_E_PROBE_TYPE), the
 * samples along the first dimension (ND_E_PROBE_SHAPE). Names in an archive are unique. The inputs come first:
 * targets of another number are refused before they are read. ND_E_SIZE_OVERFLOW. */
enum nd_status nd_loader_read_goal(struct nd_loader *loader, const char *name, struct nd_source *source,
                                   struct nd_error *err);

/* ---- At the end ---- */

/* ND_ERR_NOT_FOUND (ND_E_PROBE_INPUT) when an input is not filled; `where` is the file or folder that lacks it.
 */
enum nd_status nd_loader_check_filled(const struct nd_loader *loader, const char *where, struct nd_error *err);

#endif
