/* How a confined child gets bytes of a file that is not on this machine: it asks its parent (reading.h). */
#ifndef ND_HDF5_ASKING_H
#define ND_HDF5_ASKING_H

#include "capture/hdf5/reading.h"

/* Sent by a child in the place of a record's mark. */
enum { ND_MARK_ASK = 0x41534b3f };

/* What parent and child share: ND_DESK_BYTES, which the parent fills and never reads. NULL: out of memory. */
enum { ND_DESK_BYTES = 256 << 10 };
unsigned char *nd_desk_make(void);
void nd_desk_free(unsigned char *desk);

/* In the child: closes all descriptors above 2 but these two. So it has none of the connections of its parent.
 */
void nd_keep_open_only(int a, int b);

/* In the parent, after ND_MARK_ASK: fetches what the child asks for. reading->damaged: it asks for what is not
 * in the file, or for far more than any sound file needs. Else as reading->fetch. */
enum nd_status nd_reading_answer(struct nd_reading *reading, struct nd_error *err);

#endif
