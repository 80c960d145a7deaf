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

#endif
