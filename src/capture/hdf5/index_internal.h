/* The parts of the index that ask libhdf5: index.c walks and describes what was found. Everything here is called in the confined child. */
#ifndef ND_HDF5_INDEX_INTERNAL_H
#define ND_HDF5_INDEX_INTERNAL_H

#include "capture/hdf5/index.h"
#include "capture/hdf5/libhdf5.h"

/* A new object at the end of the index, or NULL (out of memory, err says so). Moves the others in memory. */
struct nd_index_object *nd_index_add(struct nd_index *index, const char *path, bool is_group,
                                     struct nd_error *err);

/* The dataset that is open as `dataset`: its type, shape, attributes and place. */
enum nd_status nd_index_add_dataset(struct nd_index *index, hid_t dataset, const char *path,
                                    struct nd_error *err);

/* The attributes of an open object; of datasets only those that the schema knows. */
enum nd_status nd_index_add_attrs(const struct nd_index *index, struct nd_index_object *object, hid_t id,
                                  struct nd_error *err);

/* The names of a group's links. Links other than hard ones are refused. */
struct nd_index_names {
    size_t n;
    size_t capacity;
    char **items;
};

#endif
