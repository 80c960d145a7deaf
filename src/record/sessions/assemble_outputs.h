/* The tensors of one edge and probe, from the records of a spool into the datasets of a capture. */
#ifndef ND_RECORD_ASSEMBLE_OUTPUTS_H
#define ND_RECORD_ASSEMBLE_OUTPUTS_H

#include "capture/write/write.h"
#include "record/sessions/spool_index.h"

struct nd_output_source {
    const struct nd_spool_index *index;
    size_t probe;
    size_t edge;
    int deflate_level;
};

/* Digests of every complete sample and repeat. */
enum nd_status nd_assemble_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_edge *edge, const struct nd_output_source *source,
                                   struct nd_error *err);

/* Which samples were run again, and the digests of these runs. */
enum nd_status nd_assemble_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_spool_index *index, size_t p, struct nd_error *err);

/* Outputs of the complete samples, and of the repeats that differ. Chunks that the agent finished go over byte
 * for byte; when it stopped early, the last ones are put together again from fragments. */
enum nd_status nd_assemble_outputs(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_edge *edge, const char *provider,
                                   const struct nd_output_source *source, struct nd_error *err);

#endif
