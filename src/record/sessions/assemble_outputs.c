#include "record/sessions/assemble_outputs.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensors/digest_stream.h"
#include "core/memory.h"
#include "capture/hdf5/chunk_decode.h"
#include "devices/agent/spool/job_file.h"

enum nd_status nd_assemble_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_edge *edge, const struct nd_output_source *source,
                                   struct nd_error *err)
{
    size_t n_runs = probe->n_samples * probe->n_repeats;
    struct nd_digest *digests = nd_calloc(n_runs, sizeof *digests);
    if (digests == NULL)
        return nd_fail_memory(err);
    for (size_t run = 0; run < n_runs; run++)
        nd_spool_digest(source->index, source->probe, source->edge,
                        (size_t[]){run / probe->n_repeats, run % probe->n_repeats}, &digests[run]);
    enum nd_status status = nd_capture_writer_digests(writer, probe, edge, digests, err);
    free(digests);
    return status;
}

enum nd_status nd_assemble_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_spool_index *index, size_t p, struct nd_error *err)
{
    size_t n_most = index->n_most - index->n_repeats, n = 0;
    struct nd_capture_reruns reruns = {.n_edges = index->n_edges};
    if (n_most == 0 || probe->n_samples == 0)
        return ND_OK;
    size_t n_runs = ND_RERUN_SAMPLES * n_most;
    size_t(*runs)[2] = nd_calloc(n_runs, sizeof *runs);
    struct nd_digest *digests = nd_calloc(n_runs * index->n_edges, sizeof *digests);
    for (size_t s = 0; runs != NULL && digests != NULL && s < probe->n_samples && s < ND_RERUN_SAMPLES; s++)
        for (size_t r = index->n_repeats; r < index->n_most; r++) {
            bool is_any = false;
            for (size_t e = 0; e < index->n_edges; e++)
                is_any |= nd_spool_digest(index, p, e, (size_t[]){s, r}, &digests[n * index->n_edges + e]);
            runs[n][0] = s;
            runs[n][1] = r;
            n += is_any;
        }
    reruns.n = n;
    reruns.sample_repeat = (const size_t(*)[2])runs;
    reruns.digests = digests;
    enum nd_status status = runs != NULL && digests != NULL
                                ? nd_capture_writer_reruns(writer, probe, &reruns, err)
                                : nd_fail_memory(err);
    free(runs);
    free(digests);
    return status;
}

static enum nd_status fail_missing(const struct nd_edge *edge, size_t sample, struct nd_error *err)
{
    return nd_fail(err, ND_E_SPOOL_FORMAT, edge->name,
                   "the spool acknowledges sample %zu of edge '%s' but lacks its data", sample, edge->name);
}

/* Where the chunk in work comes from, and room for it. */
struct chunk_source {
    const struct nd_output_source *output;
    const struct nd_edge *edge;
    const struct nd_chunk_layout *asked;  /* for the samples asked for: how the agent cut */
    const struct nd_chunk_layout *layout; /* the same cut for those that are complete */
    unsigned char *raw;                   /* chunk_bytes */
    unsigned char *encoded;
    struct nd_chunk_decoder *decoder;
};

static enum nd_status decode_piece(const struct chunk_source *source, const struct nd_spool_piece *piece,
                                   struct nd_error *err)
{
    const struct nd_stored_chunk stored = {piece->payload, piece->payload_bytes, source->layout->elem_bytes,
                                           true, true};
    return nd_chunk_decode(source->decoder, &stored, source->raw, source->layout->chunk_bytes, err);
}

/* Fills raw with a chunk of which the agent stored only fragments, or more samples than are complete. */
static enum nd_status gather_chunk(const struct chunk_source *source, const struct nd_chunk_span *span,
                                   const struct nd_spool_piece *whole, struct nd_error *err)
{
    const struct nd_output_source *output = source->output;
    size_t sample_bytes = source->layout->sample_bytes;
    if (whole != NULL && output->deflate_level > 0)
        return decode_piece(source, whole, err);
    if (whole != NULL && whole->payload_bytes >= span->n_bytes) {
        memcpy(source->raw, whole->payload, span->n_bytes);
        return ND_OK;
    }
    /* Fragments are whole samples, so they have no place in chunks that are only a part of one. */
    if (source->layout->chunks_per_sample > 1)
        return fail_missing(source->edge, span->first_sample, err);
    for (size_t i = 0; i < span->n_samples; i++) {
        size_t sample = span->first_sample + i;
        const struct nd_spool_piece *piece =
            nd_spool_find_fragment(output->index, output->probe, output->edge, sample);
        if (piece == NULL || piece->payload_bytes != piece->second * sample_bytes)
            return fail_missing(source->edge, sample, err);
        memcpy(source->raw + i * sample_bytes,
               (const char *)piece->payload + (sample - piece->first) * sample_bytes, sample_bytes);
    }
    return ND_OK;
}

/* The last chunk of a capture that ended early. */
static enum nd_status rebuild_chunk(const struct chunk_source *source, size_t chunk,
                                    const struct nd_chunk_span *span, const struct nd_spool_piece *whole,
                                    struct nd_capture_dataset *dataset, struct nd_error *err)
{
    const struct nd_chunk_layout *layout = source->layout;
    enum nd_status status = gather_chunk(source, span, whole, err);
    if (status != ND_OK)
        return status;
    if (source->output->deflate_level == 0)
        return nd_capture_writer_chunk(dataset, chunk, source->raw, span->n_bytes, err);
    size_t encoded_bytes = 0;
    memset(source->raw + span->n_bytes, 0, layout->chunk_bytes - span->n_bytes);
    status = nd_chunk_encode(layout, source->raw, source->output->deflate_level, source->encoded,
                             &encoded_bytes, err);
    return status == ND_OK ? nd_capture_writer_chunk(dataset, chunk, source->encoded, encoded_bytes, err)
                           : status;
}

/* ---- held against digests ---- */

static enum nd_status check_bytes(const struct nd_output_source *source, const struct nd_edge *edge,
                                  const size_t sample_repeat[2], struct nd_digest digest, struct nd_error *err)
{
    struct nd_digest said;
    if (nd_spool_digest(source->index, source->probe, source->edge, sample_repeat, &said) &&
        nd_digest_equal(said, digest))
        return ND_OK;
    return nd_fail(err, ND_E_SPOOL_FORMAT, edge->name,
                   "the spool is damaged: sample %zu, run %zu of edge '%s' is not what its digest was made of",
                   sample_repeat[0], sample_repeat[1], edge->name);
}

/* Raw bytes of one chunk. Chunks come in C order: parts of a sample are added to *stream until it is whole. */
static enum nd_status check_chunk(const struct chunk_source *source, size_t chunk, const unsigned char *bytes,
                                  struct nd_digest_stream **stream, struct nd_error *err)
{
    const struct nd_chunk_layout *layout = source->layout;
    enum nd_status status = ND_OK;
    struct nd_chunk_span span;
    nd_chunk_span(layout, chunk, &span);
    if (layout->chunks_per_sample > 1) {
        if (*stream == NULL && (*stream = nd_digest_stream_create()) == NULL)
            return nd_fail_memory(err);
        nd_digest_stream_add(*stream, bytes, span.n_bytes);
        if ((chunk + 1) % layout->chunks_per_sample == 0) {
            status = check_bytes(source->output, source->edge, (size_t[]){span.first_sample, 0},
                                 nd_digest_stream_value(*stream), err);
            nd_digest_stream_destroy(stream);
        }
        return status;
    }
    for (size_t i = 0; status == ND_OK && i < span.n_samples; i++)
        status = check_bytes(source->output, source->edge, (size_t[]){span.first_sample + i, 0},
                             nd_digest_bytes(bytes + i * layout->sample_bytes, layout->sample_bytes), err);
    return status;
}

/* ---- writing ---- */

/* *bytes: the raw values of the chunk. */
static enum nd_status write_chunk(const struct chunk_source *source, size_t chunk,
                                  const struct nd_spool_piece *piece, struct nd_capture_dataset *dataset,
                                  const unsigned char **bytes, struct nd_error *err)
{
    struct nd_chunk_span span, asked;
    nd_chunk_span(source->layout, chunk, &span);
    nd_chunk_span(source->asked, chunk, &asked);
    *bytes = source->raw;
    if (piece == NULL || span.n_bytes != asked.n_bytes)
        return rebuild_chunk(source, chunk, &span, piece, dataset, err);
    enum nd_status status = nd_capture_writer_chunk(dataset, chunk, piece->payload, piece->payload_bytes, err);
    if (status == ND_OK && source->output->deflate_level > 0)
        return decode_piece(source, piece, err);
    if (status == ND_OK && piece->payload_bytes < span.n_bytes)
        return fail_missing(source->edge, span.first_sample, err);
    *bytes = (const unsigned char *)piece->payload;
    return status;
}

static enum nd_status write_chunks(const struct chunk_source *source, struct nd_capture_dataset *dataset,
                                   struct nd_error *err)
{
    const struct nd_output_source *output = source->output;
    struct nd_digest_stream *stream = NULL;
    enum nd_status status = ND_OK;
    for (size_t chunk = 0; status == ND_OK && chunk < source->layout->n_chunks; chunk++) {
        const struct nd_spool_piece *piece =
            nd_spool_find(&output->index->chunks, output->probe, output->edge, chunk);
        const unsigned char *bytes = NULL;
        status = write_chunk(source, chunk, piece, dataset, &bytes, err);
        if (status == ND_OK)
            status = check_chunk(source, chunk, bytes, &stream, err);
        if (piece != NULL)
            nd_spool_drop(&output->index->reader, piece->payload, piece->payload_bytes);
    }
    /* A tensor without elements has digests, but no chunk. */
    for (size_t sample = 0;
         status == ND_OK && source->layout->n_chunks == 0 && sample < (size_t)source->layout->dataset.dims[0];
         sample++)
        status = check_bytes(output, source->edge, (size_t[]){sample, 0}, nd_digest_bytes("", 0), err);
    nd_digest_stream_destroy(&stream);
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
        status = check_bytes(source, edge, (size_t[]){piece->first, piece->second},
                             nd_digest_bytes(piece->payload, sample_bytes), err);
        nd_spool_drop(&source->index->reader, piece->payload, piece->payload_bytes);
        total_bytes += sample_bytes;
        rows[n][0] = piece->first;
        rows[n++][1] = piece->second;
    }
    const struct nd_capture_repeats repeats = {(const size_t(*)[2])rows, n, data};
    if (status == ND_OK)
        status = nd_capture_writer_repeats(writer, probe, edge, &repeats, err);
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
    struct nd_chunk_decoder decoder = {0};
    enum nd_status status =
        nd_chunk_layout_make(&edge->shape, edge->dtype, probe->n_samples_expected, &asked, err);
    if (status == ND_OK)
        status = nd_capture_output_layout(probe, edge, &layout, err);
    if (status != ND_OK)
        return status;
    const struct chunk_source chunks = {.output = source,
                                        .edge = edge,
                                        .asked = &asked,
                                        .layout = &layout,
                                        .raw = nd_tensor_alloc(layout.chunk_bytes),
                                        .encoded = malloc(nd_chunk_bound(layout.chunk_bytes)),
                                        .decoder = &decoder};
    if (chunks.raw == NULL || chunks.encoded == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_begin(
            writer, &(struct nd_capture_output){probe, edge, provider, &layout}, &dataset, err);
    if (status == ND_OK)
        status = write_chunks(&chunks, dataset, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs_end(&dataset, err);
    nd_capture_dataset_destroy(&dataset);
    nd_chunk_decoder_deinit(&decoder);
    if (status == ND_OK && source->index->n_most > 1)
        status = write_repeats(writer, probe, edge, layout.sample_bytes, source, err);
    free(chunks.raw);
    free(chunks.encoded);
    return status;
}
