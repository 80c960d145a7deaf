/* An index on its way from the confined child that made it to the process that uses it. */
#ifndef ND_HDF5_INDEX_TRANSFER_H
#define ND_HDF5_INDEX_TRANSFER_H

#include "capture/hdf5/index.h"
#include "capture/hdf5/reading.h"

/* In the child: sends all objects, one record each. */
enum nd_status nd_index_send(const struct nd_index *index, struct nd_reading_child *child,
                             struct nd_error *err);

/* In the parent: adds the objects that come, until the end. index->file_bytes is set before. What is wrong
 * for the size of the file is refused as reading->damaged: the file may have taken the child over. Objects
 * are in the order in which they came. */
enum nd_status nd_index_receive(struct nd_index *index, struct nd_reading *reading, struct nd_error *err);

#endif
