/* Fits the user's arrays to the inputs of the model: types must be equal, shapes must be those of samples. A
 * loader fills one probe, either by whole inputs (all samples in one array) or sample by sample. */
#pragma once

#include "core/error.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"
#include "record/probes/npz.h"

struct nd_loader {
    struct nd_probe *probe;   /* borrowed */
    char *samples_from;       /* the array that set the number of samples, for messages; NULL before */
    bool has_explicit_labels; /* labels=PATH was given: labels among the data are passed over */
    int64_t *labels;          /* from the data; NULL while there are none */
    size_t n_labels;
    bool *filled; /* [n_inputs]: the whole input, or the present sample of it, has its data */
};

/* Index of the input of that name, or SIZE_MAX. */
size_t nd_loader_find_input(const struct nd_loader *loader, const char *name);

/* ---- Target tensors ---- */

/* "target:OUTPUT", unless an input is called so. */
bool nd_loader_is_goal_name(const struct nd_loader *loader, const char *name);

/* Reads a .npy source as the target of an output, for all samples: float32 or float64 (ND_E_PROBE_TYPE), the
 * samples along the first dimension (ND_E_PROBE_SHAPE). Names in an archive are unique. The inputs come first:
 * targets of another number are refused before they are read. ND_E_SIZE_OVERFLOW. */
enum nd_status nd_loader_read_goal(struct nd_loader *loader, const char *name, struct nd_source *source,
                                   struct nd_error *err);

/* ---- At the end ---- */

/* User data: what NAME=PATH[,labels=PATH] reads. The kind of PATH is told by its name: a folder, .npy, .npz,
 * and any other file is a text list. */

/* Fills an empty probe. labels_path is NULL or a .npy or .npz; it wins over labels among the data. */
enum nd_status nd_user_load(struct nd_probe *probe, const char *path, const char *labels_path,
                            struct nd_error *err);

/* A probe under construction: created empty for the targets, given its number of samples, then its data. */

/* Sets n_samples (> 0). ND_ERR_MEMORY when all inputs together would exceed nd_probe_max_bytes. */
enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err);

/* Gives an input the memory for its n_samples, zeroed. */
enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err);

/* ---- which of several named arrays belongs to which input, and which holds the labels ---- */

#define ND_ROLE_LABELS (SIZE_MAX - 1)

/* Writing generated values as elements of a model input, and the input's own quantiser.
 * docs/reference/probes.md gives every rounding. Everything here is a pure function of its arguments. */

/* A 16-bit float is rounded to nearest, ties to even; one beyond its range becomes infinite. NaN stays NaN. */
uint16_t nd_f16_from_f32(float value);
uint16_t nd_bf16_from_f32(float value);
float nd_f32_from_f16(uint16_t bits);
float nd_f32_from_bf16(uint16_t bits);

/* The quantised values min..max of an integer type. min is 0 for unsigned types; n_bits is log2 of their
 * number. */
struct nd_qvalue_range {
    int64_t min;
    uint64_t max;
    unsigned n_bits;
};
struct nd_qvalue_range nd_qvalue_range_of(enum nd_dtype dtype);

/* The quantiser of a float input, checked: all scales are finite and positive, zero points are quantised
 * values, and the ends of its real range are finite in the input's type. Borrows the target. */
struct nd_probe_quantiser {
    const struct nd_quant *quant;
    int64_t qvalue_min;
    int64_t qvalue_max;
    size_t n_inner; /* element i belongs to channel (i / n_inner) % quant->n */
};

/* ND_ERR_UNSUPPORTED: neither 8 nor 16 bits; ND_ERR_FORMAT: one of the checks above fails. */
enum nd_status nd_quantiser_init(struct nd_probe_quantiser *quantiser, const struct nd_probe_target *target,
                                 struct nd_error *err);

/* ---- a probe for the inputs of a model ---- */

/* nd_probe_create with the model's inputs as targets. nd_probes_for_model checks values and labels. */
enum nd_status nd_probe_for_model(const struct nd_model *model, const char *spec, struct nd_probe **out,
                                  struct nd_error *err);
