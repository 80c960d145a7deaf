/* User data: what NAME=PATH[,labels=PATH] reads. The kind of PATH is told by its name: a folder, .npy, .npz,
 * and any other file is a text list. */
#ifndef ND_PROBE_USER_H
#define ND_PROBE_USER_H

#include "record/probes/loader.h"

/* Fills an empty probe. labels_path is NULL or a .npy or .npz; it wins over labels among the data. */
enum nd_status nd_user_load(struct nd_probe *probe, const char *path, const char *labels_path,
                            struct nd_error *err);

/* A .npz as the data of all samples, or, unless sample is SIZE_MAX, of that one. */
enum nd_status nd_user_load_npz(struct nd_loader *loader, const char *path, size_t sample,
                                struct nd_error *err);

/* A .npy as one sample of an input, or, when sample is SIZE_MAX, as all of them. */
enum nd_status nd_user_load_npy(struct nd_loader *loader, const char *path, size_t input, size_t sample,
                                struct nd_error *err);

/* Labels of all samples from a .npy, or from a .npz with one array or one that is named so. */
enum nd_status nd_user_load_labels(struct nd_loader *loader, const char *path, struct nd_error *err);

/* A folder of NAME.npy, or of one .npy or .npz per sample. */
enum nd_status nd_folder_load(struct nd_loader *loader, const char *path, struct nd_error *err);

/* A text list in the grammar of QNN's input lists. */
enum nd_status nd_list_load(struct nd_loader *loader, const char *path, struct nd_error *err);

#endif
