/* Fits the user's arrays to the inputs of the model: types must be equal, shapes must be those of samples. A
 * loader fills one probe, either by whole inputs (all samples in one array) or sample by sample. */
#ifndef ND_PROBE_LOADER_H
#define ND_PROBE_LOADER_H

#include "npudiff/record/probe.h"
#include "record/probes/npy.h"

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
