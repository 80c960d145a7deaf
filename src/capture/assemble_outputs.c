#include "capture/assemble_outputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum nd_status nd_assemble_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_edge *edge, const struct nd_output_source *source,
                                   struct nd_error *err)
{
    size_t n_runs = probe->n_samples * probe->n_repeats;
    struct nd_digest *digests = nd_calloc(n_runs, sizeof *digests);
    if (digests == NULL)
        return nd_fail_memory(err);
    for (size_t run = 0; run < n_runs; run++)
        digests[run] = nd_spool_digest(source->index, source->probe, source->edge, run);
    enum nd_status status = nd_capture_writer_digests(writer, probe, edge, digests, err);
    free(digests);
    return status;
}

static enum nd_status fail_missing(const struct nd_edge *edge, size_t sample, struct nd_error *err)
{
    return nd_fail(err, ND_E_SPOOL_FORMAT, edge->name,
                   "the spool acknowledges sample %zu of edge '%s' but lacks its data", sample, edge->name);
}

/* Decodes one chunk of the agent's own layout into raw (chunk_bytes). */
static enum nd_status decode_piece(const struct nd_chunk_layout *layout, size_t chunk, int level,
                                   const struct nd_spool_piece *piece, unsigned char *raw, struct nd_error *err)
{
    struct nd_chunk_span span;
    nd_chunk_span(layout, chunk, &span);
    if (level > 0)
        return nd_chunk_decode(piece->payload, piece->payload_bytes, layout->elem_bytes, true, true, raw,
                               layout->chunk_bytes, err);
    if (piece->payload_bytes != span.n_bytes)
        return nd_fail(err, ND_E_SPOOL_FORMAT, NULL, "a chunk of %zu bytes in the spool; %zu were expected",
                       piece->payload_bytes, span.n_bytes);
    memcpy(raw, piece->payload, span.n_bytes);
    return ND_OK;
}

/* Copies one sample that shares its chunk with others: from the whole chunk when the agent finished it, else
 * from a fragment. decoded/decoded_chunk cache the last chunk. */
struct gather {
    const struct nd_output_source *source;
    const struct nd_edge *edge;
    const struct nd_chunk_layout *agent_layout; /* for the samples asked for */
    unsigned char *decoded;
    size_t decoded_chunk; /* SIZE_MAX: none */
};

static enum nd_status gather_sample(struct gather *gather, size_t sample, unsigned char *out,
                                    struct nd_error *err)
{
    const struct nd_chunk_layout *layout = gather->agent_layout;
    const struct nd_output_source *source = gather->source;
    size_t chunk = sample / layout->samples_per_chunk;
    size_t in_chunk = sample % layout->samples_per_chunk;
    const struct nd_spool_piece *piece =
        nd_spool_find(&source->index->chunks, source->probe, source->edge, chunk);
    if (piece == NULL) {
        piece = nd_spool_find_fragment(source->index, source->probe, source->edge, sample);
        if (piece == NULL || piece->payload_bytes != piece->second * layout->sample_bytes)
            return fail_missing(gather->edge, sample, err);
        memcpy(out, (const char *)piece->payload + (sample - piece->first) * layout->sample_bytes,
               layout->sample_bytes);
        return ND_OK;
    }
    if (gather->decoded_chunk != chunk) {
        enum nd_status status = decode_piece(layout, chunk, source->deflate_level, piece, gather->decoded, err);
        if (status != ND_OK)
            return status;
        gather->decoded_chunk = chunk;
    }
    memcpy(out, gather->decoded + in_chunk * layout->sample_bytes, layout->sample_bytes);
    return ND_OK;
}

/* One chunk of a capture that holds fewer samples than were asked for, so that chunks are cut anew. */
static enum nd_status rebuild_chunk(struct gather *gather, const struct nd_chunk_layout *layout, size_t chunk,
                                    unsigned char *raw, unsigned char *encoded,
                                    struct nd_capture_dataset *dataset, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    struct nd_chunk_span span;
    nd_chunk_span(layout, chunk, &span);
    for (size_t i = 0; status == ND_OK && i < span.n_samples; i++)
        status = gather_sample(gather, span.first_sample + i, raw + i * layout->sample_bytes, err);
    if (status != ND_OK)
        return status;
    memset(raw + span.n_bytes, 0, layout->chunk_bytes - span.n_bytes);
    if (gather->source->deflate_level == 0)
        return nd_capture_writer_chunk(dataset, chunk, raw, span.n_bytes, err);
    size_t encoded_bytes = 0;
    status = nd_chunk_encode(raw, layout->chunk_bytes, layout->elem_bytes, gather->source->deflate_level,
                             encoded, &encoded_bytes, err);
    return status == ND_OK ? nd_capture_writer_chunk(dataset, chunk, encoded, encoded_bytes, err) : status;
}

static enum nd_status rebuild_chunks(const struct nd_output_source *source, const struct nd_edge *edge,
                                     const struct nd_chunk_layout *agent_layout,
                                     const struct nd_chunk_layout *layout, struct nd_capture_dataset *dataset,
                                     struct nd_error *err)
{
    struct gather gather = {.source = source,
                            .edge = edge,
                            .agent_layout = agent_layout,
                            .decoded = malloc(agent_layout->chunk_bytes),
                            .decoded_chunk = SIZE_MAX};
    unsigned char *raw = malloc(layout->chunk_bytes);
    unsigned char *encoded = malloc(nd_chunk_bound(layout->chunk_bytes));
    enum nd_status status =
        gather.decoded != NULL && raw != NULL && encoded != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t chunk = 0; status == ND_OK && chunk < layout->n_chunks; chunk++)
        status = rebuild_chunk(&gather, layout, chunk, raw, encoded, dataset, err);
    free(gather.decoded);
    free(raw);
    free(encoded);
    return status;
}

static enum nd_status pass_chunks(const struct nd_output_source *source, const struct nd_edge *edge,
                                  const struct nd_chunk_layout *layout, struct nd_capture_dataset *dataset,
                                  struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t chunk = 0; status == ND_OK && chunk < layout->n_chunks; chunk++) {
        const struct nd_spool_piece *piece =
            nd_spool_find(&source->index->chunks, source->probe, source->edge, chunk);
        struct nd_chunk_span span;
        nd_chunk_span(layout, chunk, &span);
        status = piece != NULL
                     ? nd_capture_writer_chunk(dataset, chunk, piece->payload, piece->payload_bytes, err)
                     : fail_missing(edge, span.first_sample, err);
    }
    return status;
}

static enum nd_status write_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                    const struct nd_edge *edge, size_t sample_bytes,
                                    const struct nd_output_source *source, struct nd_error *err)
{
    const struct nd_spool_pieces *pieces = &source->index->repeats;
    size_t n = 0, total_bytes = 0;
    size_t(*rows)[2] = nd_calloc(pieces->n, sizeof *rows);
    unsigned char *data = NULL;
    enum nd_status status = rows != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < pieces->n; i++) {
        const struct nd_spool_piece *piece = &pieces->items[i];
        if (piece->probe != source->probe || piece->edge != source->edge || piece->first >= probe->n_samples)
            continue;
        unsigned char *grown = realloc(data, total_bytes + sample_bytes);
        if (grown == NULL || piece->payload_bytes != sample_bytes) {
            free(grown != NULL ? grown : data);
            free(rows);
            return grown == NULL ? nd_fail_memory(err) : fail_missing(edge, piece->first, err);
        }
        data = grown;
        memcpy(data + total_bytes, piece->payload, sample_bytes);
        total_bytes += sample_bytes;
        rows[n][0] = piece->first;
        rows[n++][1] = piece->second;
    }
    if (status == ND_OK && n > 0)
        status = nd_capture_writer_repeats(writer, probe, edge, (const size_t(*)[2])rows, n, data,
                                           source->deflate_level, err);
    free(rows);
    free(data);
    return status;
}

enum nd_status nd_assemble_outputs(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_edge *edge, const char *provider,
                                   const struct nd_output_source *source, struct nd_error *err)
{
    struct nd_chunk_layout asked, layout;
    struct nd_capture_dataset *dataset = NULL;
    enum nd_status status =
        nd_chunk_layout_make(&edge->shape, edge->dtype, probe->n_samples_expected, &asked, err);
    if (status == ND_OK)
        status = nd_chunk_layout_make(&edge->shape, edge->dtype, probe->n_samples, &layout, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_begin(writer, probe, edge, provider, &layout, source->deflate_level,
                                                 &dataset, err);
    /* Chunks that no two samples share do not depend on the number of samples. */
    bool is_same_cut = probe->n_samples == probe->n_samples_expected || asked.samples_per_chunk == 1;
    if (status == ND_OK)
        status = is_same_cut ? pass_chunks(source, edge, &layout, dataset, err)
                             : rebuild_chunks(source, edge, &asked, &layout, dataset, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_end(&dataset, err);
    nd_capture_dataset_destroy(&dataset);
    if (status == ND_OK && probe->n_repeats > 1)
        status = write_repeats(writer, probe, edge, layout.sample_bytes, source, err);
    return status;
}
