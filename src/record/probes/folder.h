/* User data: what NAME=PATH[,labels=PATH] reads. The kind of PATH is told by its name: a folder, .npy, .npz,
 * and any other file is a text list. */
#ifndef ND_PROBE_USER_H
#define ND_PROBE_USER_H

#include "record/probes/loader.h"

/* Fills an empty probe. labels_path is NULL or a .npy or .npz; it wins over labels among the data. */
enum nd_status nd_user_load(struct nd_probe *probe, const char *path, const char *labels_path,
                            struct nd_error *err);

#endif
