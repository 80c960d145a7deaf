/* From the records of a spool to the datasets of a capture: values, digests and repeats of each tensor and
 * probe (docs/reference/capture-format.md). */
#include "record/sessions/assemble_outputs.h"

#include <math.h>

#include "capture/hdf5/chunk_decode.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/digest_internal.h"
#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/spool.h"

/* Memory that is out does not make a record bad, at which the spool would end: *status tells them apart. */
static bool add_piece(struct nd_spool_pieces *pieces, const struct nd_record *record, enum nd_status *status)
{
    if (!nd_grow((void **)&pieces->items, &pieces->capacity, pieces->n + 1, sizeof *pieces->items)) {
        *status = ND_ERR_MEMORY;
        return false;
    }
    pieces->items[pieces->n++] = (struct nd_spool_piece){.probe = (size_t)record->index[0],
                                                         .tensor = (size_t)record->index[1],
                                                         .first = (size_t)record->index[2],
                                                         .second = (size_t)record->index[3],
                                                         .offset_bytes = record->offset_bytes,
                                                         .payload_bytes = record->payload_bytes};
    return true;
}

/* The record with a payload that lasts as long as the index. */
static bool keep(struct nd_spool_index *index, const struct nd_record *record, struct nd_record *out,
                 enum nd_status *status)
{
    void *payload = nd_calloc(record->payload_bytes + 1, 1);
    if (payload == NULL ||
        !nd_grow((void **)&index->kept, &index->kept_capacity, index->n_kept + 1, sizeof payload)) {
        free(payload);
        *status = ND_ERR_MEMORY;
        return false;
    }
    index->kept[index->n_kept++] = payload;
    *out = *record;
    out->payload = payload;
    return nd_spool_load(&index->reader, record->offset_bytes, payload, record->payload_bytes, NULL) == ND_OK;
}

static bool add_record(struct nd_spool_index *index, struct nd_record **records, size_t *n, size_t *capacity,
                       const struct nd_record *record, enum nd_status *status)
{
    if (!nd_grow((void **)records, capacity, *n + 1, sizeof **records)) {
        *status = ND_ERR_MEMORY;
        return false;
    }
    return keep(index, record, &(*records)[(*n)++], status);
}

static int compare_pieces(const void *a, const void *b)
{
    const struct nd_spool_piece *p = a, *q = b;
    const size_t keys[4][2] = {
        {p->probe, q->probe}, {p->tensor, q->tensor}, {p->first, q->first}, {p->second, q->second}};
    for (size_t i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static void sort_pieces(struct nd_spool_pieces *pieces)
{
    if (pieces->n > 1)
        qsort(pieces->items, pieces->n, sizeof *pieces->items, compare_pieces);
}

static bool take_sample(struct nd_spool_index *index, const struct nd_record *record)
{
    const uint64_t *at = record->index;
    if (at[0] >= index->n_probes || at[1] >= index->probes[at[0]].n_samples || at[2] >= index->n_max ||
        record->payload_bytes != index->n_tensors_of_pass[index->pass] * sizeof(struct nd_digest))
        return false;
    struct nd_spool_probe *probe = &index->probes[at[0]];
    size_t n_runs = probe->n_samples * index->n_max;
    probe->digests[index->pass * n_runs + (size_t)(at[1] * index->n_max + at[2])] = record->offset_bytes;
    if (index->pass == 0 && at[2] < index->n_repeats)
        probe->latency_us[at[1] * index->n_repeats + at[2]] =
            at[3] != UINT64_MAX ? (double)at[3] * 1e-3 : NAN; /* nobody measured it */
    return true;
}

static bool take_ack(struct nd_spool_index *index, const struct nd_record *record)
{
    if (record->index[0] >= index->n_probes || record->index[1] > index->probes[record->index[0]].n_samples)
        return false;
    index->probes[record->index[0]].acknowledged[index->pass] = (size_t)record->index[1];
    return true;
}

static bool take_output(struct nd_spool_index *index, const struct nd_record *record)
{
    if (record->index[0] >= index->n_tensors)
        return false;
    struct nd_spool_output *output = &index->outputs[record->index[0]];
    output->is_known = nd_job_read_output(record, &output->dtype, &output->shape);
    return output->is_known;
}

static void take_stage(struct nd_spool_index *index, const struct nd_record *record)
{
    nd_fields_copy(record, "stage", index->stage, sizeof index->stage);
}

static bool take_node(struct nd_spool_index *index, const struct nd_record *record, enum nd_status *status)
{
    if (index->pass == 0)
        return add_record(index, &index->nodes, &index->n_nodes, &index->nodes_capacity, record, status);
    struct nd_record later = *record;
    later.index[0] = index->pass;
    return add_record(index, &index->later_nodes, &index->n_later_nodes, &index->later_nodes_capacity, &later,
                      status);
}

static bool is_piece_in_range(const struct nd_spool_index *index, const struct nd_record *record)
{
    return record->index[0] < index->n_probes && record->index[1] < index->n_tensors;
}

/* A repeat other than 0 of a sample that was asked for. */
static bool is_repeat_in_range(const struct nd_spool_index *index, const struct nd_record *record)
{
    return is_piece_in_range(index, record) && record->index[2] < index->probes[record->index[0]].n_samples &&
           record->index[3] > 0 && record->index[3] < index->n_max;
}

/* False ends the reading: the spool ends, a record cannot be ours, or memory is out, which *status says. */
static bool take_record(struct nd_spool_index *index, const struct nd_record *record, enum nd_status *status)
{
    switch (record->kind) {
    case ND_RECORD_PASS:
        index->pass = (size_t)record->index[0];
        return record->index[0] < index->n_passes;
    case ND_RECORD_STAGE:
        take_stage(index, record);
        return true;
    case ND_RECORD_JOB:
        return true; /* whose spool it is matters to who goes on with it */
    case ND_RECORD_RESUME:
        index->n_resumed++;
        return true;
    case ND_RECORD_RUNTIME:
        return keep(index, record, &index->runtime, status);
    case ND_RECORD_FAILURE:
        return keep(index, record, &index->failure, status);
    case ND_RECORD_PROFILE:
        return keep(index, record, &index->profile, status);
    case ND_RECORD_PROVIDER_PROFILE:
        return keep(index, record, &index->provider_profile, status);
    case ND_RECORD_TRUTH:
        return keep(index, record, &index->truth, status);
    case ND_RECORD_LIBRARY:
        return add_record(index, &index->libraries, &index->n_libraries, &index->libraries_capacity, record,
                          status);
    case ND_RECORD_NODE:
        return take_node(index, record, status);
    case ND_RECORD_LOG:
        return add_record(index, &index->logs, &index->n_logs, &index->logs_capacity, record, status);
    case ND_RECORD_OUTPUT:
        return take_output(index, record);
    case ND_RECORD_CHUNK:
        return is_piece_in_range(index, record) && add_piece(&index->chunks, record, status);
    case ND_RECORD_FRAGMENT:
        return is_piece_in_range(index, record) && add_piece(&index->fragments, record, status);
    case ND_RECORD_REPEAT:
        return is_repeat_in_range(index, record) && add_piece(&index->repeats, record, status);
    case ND_RECORD_SAMPLE:
        return take_sample(index, record);
    case ND_RECORD_ACK:
        return take_ack(index, record);
    case ND_RECORD_END:
        index->has_ended = true;
        return false;       /* nothing comes after it */
    case ND_RECORD_MISSING: /* capture_agent.c reads these */
        return true;
    default:
        return false;
    }
}

static bool make_probe(const struct nd_spool_index *index, size_t n_samples, struct nd_spool_probe *probe)
{
    size_t n_runs, n_cells;
    if (!nd_size_mul(n_samples, index->n_max, &n_runs) || !nd_size_mul(n_runs, index->n_passes, &n_cells))
        return false;
    n_runs = n_samples * index->n_repeats;
    probe->n_samples = n_samples;
    probe->acknowledged = nd_calloc(index->n_passes, sizeof *probe->acknowledged);
    probe->digests = nd_calloc(n_cells, sizeof *probe->digests);
    probe->latency_us = nd_calloc(n_runs, sizeof *probe->latency_us);
    for (size_t i = 0; probe->latency_us != NULL && i < n_runs; i++)
        probe->latency_us[i] = NAN;
    return probe->acknowledged != NULL && probe->digests != NULL && probe->latency_us != NULL;
}

static bool make_tables(struct nd_spool_index *index, const struct nd_spool_request *request)
{
    index->probes = nd_calloc(index->n_probes, sizeof *index->probes);
    index->outputs = nd_calloc(index->n_tensors, sizeof *index->outputs);
    index->n_tensors_of_pass = nd_calloc(index->n_passes, sizeof *index->n_tensors_of_pass);
    index->place_in_pass = nd_calloc(index->n_tensors, sizeof *index->place_in_pass);
    bool is_whole = index->probes != NULL && index->outputs != NULL && index->n_tensors_of_pass != NULL &&
                    index->place_in_pass != NULL;
    for (size_t e = 0; is_whole && e < index->n_tensors; e++)
        index->place_in_pass[e] = index->n_tensors_of_pass[request->pass_of_tensor[e]]++;
    for (size_t p = 0; is_whole && p < index->n_probes; p++)
        is_whole = make_probe(index, request->samples[p], &index->probes[p]);
    return is_whole;
}

/* A sample is complete when every pass has acknowledged it and the records of all its runs are there. */
static void find_complete_samples(struct nd_spool_index *index)
{
    for (size_t p = 0; p < index->n_probes; p++) {
        struct nd_spool_probe *probe = &index->probes[p];
        size_t n_runs = probe->n_samples * index->n_max;
        probe->n_complete = probe->n_samples;
        for (size_t pass = 0; pass < index->n_passes; pass++) {
            if (probe->acknowledged[pass] < probe->n_complete)
                probe->n_complete = probe->acknowledged[pass];
            for (size_t run = 0; run < probe->n_complete * index->n_repeats; run++) {
                size_t sample = run / index->n_repeats, repeat = run % index->n_repeats;
                if (probe->digests[pass * n_runs + sample * index->n_max + repeat] == 0)
                    probe->n_complete = sample;
            }
        }
    }
}

enum nd_status nd_spool_index_open(const char *path, const struct nd_spool_request *request,
                                   struct nd_spool_index *out, struct nd_error *err)
{
    ND_CLEANUP(nd_spool_index_close)
    struct nd_spool_index index = {.n_tensors = request->n_tensors,
                                   .n_repeats = request->n_repeats,
                                   .n_max = request->has_reruns ? ND_RERUN_MAX : request->n_repeats,
                                   .n_probes = request->n_probes,
                                   .n_passes = request->n_passes,
                                   .pass_of_tensor = request->pass_of_tensor};
    ND_TRY_MEMORY(make_tables(&index, request), err);
    if (nd_path_exists(path))
        ND_TRY(nd_spool_reader_open(&index.reader, path, err));
    struct nd_record record;
    enum nd_status taken = ND_OK;
    while (nd_spool_next(&index.reader, &record) && take_record(&index, &record, &taken))
        ;
    ND_TRY_MEMORY(taken == ND_OK, err);
    sort_pieces(&index.chunks);
    sort_pieces(&index.fragments);
    sort_pieces(&index.repeats);
    find_complete_samples(&index);
    return ND_GIVE(out, index);
}

/* The digest of one tensor in one run of a complete sample; false when there was no such run, or it cannot be
 * read any more. */
static bool nd_spool_digest(const struct nd_spool_index *index, size_t probe, size_t tensor,
                            const size_t sample_repeat[2], struct nd_digest *out)
{
    const struct nd_spool_probe *of_probe = &index->probes[probe];
    size_t n_runs = of_probe->n_samples * index->n_max;
    size_t run = sample_repeat[0] * index->n_max + sample_repeat[1];
    size_t of_run = of_probe->digests[index->pass_of_tensor[tensor] * n_runs + run];
    return of_run != 0 && nd_spool_load(&index->reader, of_run + index->place_in_pass[tensor] * sizeof *out,
                                        out, sizeof *out, NULL) == ND_OK;
}

void nd_spool_index_close(struct nd_spool_index *index)
{
    for (size_t p = 0; index->probes != NULL && p < index->n_probes; p++)
        ND_FREE_ALL(index->probes[p].acknowledged, index->probes[p].digests, index->probes[p].latency_us);
    ND_FREE_ITEMS(index->kept, index->n_kept);
    ND_FREE_ALL(index->probes, index->outputs, index->n_tensors_of_pass, index->place_in_pass,
                index->chunks.items, index->fragments.items, index->repeats.items, index->nodes,
                index->later_nodes, index->libraries, index->logs);
    nd_spool_reader_close(&index->reader);
    *index = (struct nd_spool_index){0};
}

/* Number of pieces that sort before (probe, tensor, first, second). */
static size_t lower_bound(const struct nd_spool_pieces *pieces, const struct nd_spool_piece *key)
{
    size_t low = 0, high = pieces->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_pieces(&pieces->items[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The piece with these keys, or NULL. */
static const struct nd_spool_piece *nd_spool_find(const struct nd_spool_pieces *pieces, size_t probe,
                                                  size_t tensor, size_t first)
{
    const struct nd_spool_piece key = {.probe = probe, .tensor = tensor, .first = first};
    size_t at = lower_bound(pieces, &key);
    if (at == pieces->n)
        return NULL;
    const struct nd_spool_piece *piece = &pieces->items[at];
    return piece->probe == probe && piece->tensor == tensor && piece->first == first ? piece : NULL;
}

/* The fragment that holds that sample, or NULL. */
static const struct nd_spool_piece *nd_spool_find_fragment(const struct nd_spool_index *index, size_t probe,
                                                           size_t tensor, size_t sample)
{
    const struct nd_spool_piece key = {.probe = probe, .tensor = tensor, .first = sample, .second = SIZE_MAX};
    size_t at = lower_bound(&index->fragments, &key);
    if (at == 0)
        return NULL;
    const struct nd_spool_piece *piece = &index->fragments.items[at - 1];
    bool holds = piece->probe == probe && piece->tensor == tensor && sample - piece->first < piece->second;
    return holds ? piece : NULL;
}

static enum nd_status fail_missing(const struct nd_tensor *tensor, size_t sample, struct nd_error *err)
{
    return nd_fail(err, ND_E_SPOOL_FORMAT, tensor->name,
                   "the spool acknowledges sample %zu of tensor '%s' but lacks its data", sample, tensor->name);
}

enum nd_status nd_assemble_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_tensor *tensor, const struct nd_output_source *source,
                                   struct nd_error *err)
{
    size_t n_runs = probe->n_samples * probe->n_repeats;
    ND_FREED struct nd_digest *digests = nd_calloc(n_runs, sizeof *digests);
    ND_TRY_MEMORY(digests != NULL, err);
    for (size_t run = 0; run < n_runs; run++)
        if (!nd_spool_digest(source->index, source->probe, source->tensor,
                             (size_t[]){run / probe->n_repeats, run % probe->n_repeats}, &digests[run]))
            return fail_missing(tensor, run / probe->n_repeats, err);
    return nd_capture_writer_digests(writer, probe, tensor, digests, err);
}

enum nd_status nd_assemble_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_spool_index *index, size_t p, struct nd_error *err)
{
    size_t n_max = index->n_max - index->n_repeats, n = 0;
    struct nd_capture_reruns reruns = {.n_tensors = index->n_tensors};
    if (n_max == 0 || probe->n_samples == 0)
        return ND_OK;
    size_t n_runs = ND_RERUN_SAMPLES * n_max;
    ND_FREED size_t(*runs)[2] = nd_calloc(n_runs, sizeof *runs);
    ND_FREED struct nd_digest *digests = nd_calloc(n_runs * index->n_tensors, sizeof *digests);
    ND_TRY_MEMORY(runs != NULL && digests != NULL, err);
    for (size_t s = 0; s < probe->n_samples && s < ND_RERUN_SAMPLES; s++)
        for (size_t r = index->n_repeats; r < index->n_max; r++) {
            bool is_any = false;
            for (size_t e = 0; e < index->n_tensors; e++)
                is_any |= nd_spool_digest(index, p, e, (size_t[]){s, r}, &digests[n * index->n_tensors + e]);
            runs[n][0] = s;
            runs[n][1] = r;
            n += is_any;
        }
    reruns.n = n;
    reruns.sample_repeat = (const size_t(*)[2])runs;
    reruns.digests = digests;
    return nd_capture_writer_reruns(writer, probe, &reruns, err);
}

/* Where the chunk in work comes from, and room for it. */
struct chunk_source {
    const struct nd_output_source *output;
    const struct nd_tensor *tensor;
    const struct nd_chunk_layout *asked;  /* for the samples asked for: how the agent cut */
    const struct nd_chunk_layout *layout; /* the same cut for those that are complete */
    unsigned char *raw;                   /* chunk_bytes */
    unsigned char *encoded;
    struct nd_chunk_decoder *decoder;
};

/* Part of a piece, from an offset within it on. */
static enum nd_status load_piece(const struct chunk_source *source, const struct nd_spool_piece *piece,
                                 size_t offset, void *to, size_t n_bytes, struct nd_error *err)
{
    return nd_spool_load(&source->output->index->reader, piece->offset_bytes + offset, to, n_bytes, err);
}

static enum nd_status decode(const struct chunk_source *source, size_t n_encoded, struct nd_error *err)
{
    const struct nd_stored_chunk stored = {source->encoded, n_encoded, source->layout->elem_bytes, true, true};
    return nd_chunk_decode(source->decoder, &stored, source->raw, source->layout->chunk_bytes, err);
}

/* The whole piece, into `encoded`. */
static enum nd_status load_encoded(const struct chunk_source *source, const struct nd_spool_piece *piece,
                                   struct nd_error *err)
{
    if (piece->payload_bytes > nd_chunk_bound(source->layout->chunk_bytes))
        return fail_missing(source->tensor, piece->first, err);
    return load_piece(source, piece, 0, source->encoded, piece->payload_bytes, err);
}

/* Fills raw with a chunk of which the agent stored only fragments, or more samples than are complete. */
static enum nd_status gather_chunk(const struct chunk_source *source, const struct nd_chunk_span *span,
                                   const struct nd_spool_piece *whole, struct nd_error *err)
{
    const struct nd_output_source *output = source->output;
    size_t sample_bytes = source->layout->sample_bytes;
    if (whole != NULL && output->deflate_level > 0) {
        ND_TRY(load_encoded(source, whole, err));
        return decode(source, whole->payload_bytes, err);
    }
    if (whole != NULL && whole->payload_bytes >= span->n_bytes)
        return load_piece(source, whole, 0, source->raw, span->n_bytes, err);
    /* Fragments are whole samples, so they have no place in chunks that are only a part of one. */
    if (source->layout->chunks_per_sample > 1)
        return fail_missing(source->tensor, span->first_sample, err);
    for (size_t i = 0; i < span->n_samples; i++) {
        size_t sample = span->first_sample + i;
        const struct nd_spool_piece *piece =
            nd_spool_find_fragment(output->index, output->probe, output->tensor, sample);
        if (piece == NULL || piece->payload_bytes != piece->second * sample_bytes)
            return fail_missing(source->tensor, sample, err);
        ND_TRY(load_piece(source, piece, (sample - piece->first) * sample_bytes, source->raw + i * sample_bytes,
                          sample_bytes, err));
    }
    return ND_OK;
}

/* The last chunk of a capture that ended early. */
static enum nd_status rebuild_chunk(const struct chunk_source *source, size_t chunk,
                                    const struct nd_chunk_span *span, const struct nd_spool_piece *whole,
                                    struct nd_capture_dataset *dataset, struct nd_error *err)
{
    const struct nd_chunk_layout *layout = source->layout;
    ND_TRY(gather_chunk(source, span, whole, err));
    if (source->output->deflate_level == 0)
        return nd_capture_writer_chunk(dataset, chunk, source->raw, span->n_bytes, err);
    size_t encoded_bytes = 0;
    memset(source->raw + span->n_bytes, 0, layout->chunk_bytes - span->n_bytes);
    ND_TRY(nd_chunk_encode(layout, source->raw, source->output->deflate_level, source->encoded, &encoded_bytes,
                           err));
    return nd_capture_writer_chunk(dataset, chunk, source->encoded, encoded_bytes, err);
}

/* ---- held against digests ---- */

static enum nd_status check_bytes(const struct nd_output_source *source, const struct nd_tensor *tensor,
                                  const size_t sample_repeat[2], struct nd_digest digest, struct nd_error *err)
{
    struct nd_digest said;
    if (nd_spool_digest(source->index, source->probe, source->tensor, sample_repeat, &said) &&
        nd_digest_equal(said, digest))
        return ND_OK;
    return nd_fail(
        err, ND_E_SPOOL_FORMAT, tensor->name,
        "the spool is damaged: sample %zu, run %zu of tensor '%s' is not what its digest was made of",
        sample_repeat[0], sample_repeat[1], tensor->name);
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
            status = check_bytes(source->output, source->tensor, (size_t[]){span.first_sample, 0},
                                 nd_digest_stream_value(*stream), err);
            nd_digest_stream_destroy(stream);
        }
        return status;
    }
    for (size_t i = 0; status == ND_OK && i < span.n_samples; i++)
        status = check_bytes(source->output, source->tensor, (size_t[]){span.first_sample + i, 0},
                             nd_digest_bytes(bytes + i * layout->sample_bytes, layout->sample_bytes), err);
    return status;
}

/* Holds what a chunk has of each sample against the untouched model. */
static enum nd_status compare_chunk(const struct chunk_source *source, const char *probe, size_t chunk,
                                    const unsigned char *bytes, struct nd_error *err)
{
    struct nd_chunk_span span;
    if (source->output->untouched == NULL)
        return ND_OK;
    nd_chunk_span(source->layout, chunk, &span);
    size_t n_bytes = span.n_samples > 0 ? span.n_bytes / span.n_samples : 0;
    for (size_t i = 0; i < span.n_samples; i++) {
        const struct nd_untouched_piece piece = {.tensor = source->output->tensor,
                                                 .probe = probe,
                                                 .sample = span.first_sample + i,
                                                 .first_sample = source->output->first_sample,
                                                 .offset_bytes = span.offset_bytes,
                                                 .bytes = bytes + i * n_bytes,
                                                 .n_bytes = n_bytes};
        ND_TRY(nd_untouched_compare(source->output->untouched, &piece, err));
    }
    return ND_OK;
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
    ND_TRY(load_encoded(source, piece, err));
    ND_TRY(nd_capture_writer_chunk(dataset, chunk, source->encoded, piece->payload_bytes, err));
    if (source->output->deflate_level > 0)
        return decode(source, piece->payload_bytes, err);
    if (piece->payload_bytes < span.n_bytes)
        return fail_missing(source->tensor, span.first_sample, err);
    *bytes = source->encoded;
    return ND_OK;
}

static enum nd_status write_chunks(const struct chunk_source *source, const char *probe,
                                   struct nd_capture_dataset *dataset, struct nd_error *err)
{
    const struct nd_output_source *output = source->output;
    ND_CLEANUP(nd_digest_stream_destroy) struct nd_digest_stream *stream = NULL;
    for (size_t chunk = 0; chunk < source->layout->n_chunks; chunk++) {
        const struct nd_spool_piece *piece =
            nd_spool_find(&output->index->chunks, output->probe, output->tensor, chunk);
        const unsigned char *bytes = NULL;
        ND_TRY(write_chunk(source, chunk, piece, dataset, &bytes, err));
        ND_TRY(check_chunk(source, chunk, bytes, &stream, err));
        ND_TRY(compare_chunk(source, probe, chunk, bytes, err));
    }
    /* A tensor without elements has digests, but no chunk. */
    for (size_t sample = 0; source->layout->n_chunks == 0 && sample < (size_t)source->layout->dataset.dims[0];
         sample++)
        ND_TRY(check_bytes(output, source->tensor, (size_t[]){sample, 0}, nd_digest_bytes("", 0), err));
    return ND_OK;
}

static enum nd_status write_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                    const struct nd_tensor *tensor, size_t sample_bytes,
                                    const struct nd_output_source *source, struct nd_error *err)
{
    const struct nd_spool_pieces *pieces = &source->index->repeats;
    size_t n = 0, total_bytes = 0;
    ND_FREED size_t(*rows)[2] = nd_calloc(pieces->n, sizeof *rows);
    ND_FREED unsigned char *data = NULL;
    ND_TRY_MEMORY(rows != NULL, err);
    for (size_t i = 0; i < pieces->n; i++) {
        const struct nd_spool_piece *piece = &pieces->items[i];
        if (piece->probe != source->probe || piece->tensor != source->tensor ||
            piece->first >= probe->n_samples)
            continue;
        if (piece->payload_bytes != sample_bytes)
            return fail_missing(tensor, piece->first, err);
        unsigned char *grown = realloc(data, total_bytes + sample_bytes);
        ND_TRY_MEMORY(grown != NULL, err);
        data = grown;
        ND_TRY(
            nd_spool_load(&source->index->reader, piece->offset_bytes, data + total_bytes, sample_bytes, err));
        ND_TRY(check_bytes(source, tensor, (size_t[]){piece->first, piece->second},
                           nd_digest_bytes(data + total_bytes, sample_bytes), err));
        total_bytes += sample_bytes;
        rows[n][0] = piece->first;
        rows[n++][1] = piece->second;
    }
    const struct nd_capture_repeats repeats = {(const size_t(*)[2])rows, n, data};
    return nd_capture_writer_repeats(writer, probe, tensor, &repeats, err);
}

enum nd_status nd_assemble_outputs(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_tensor *tensor, const char *provider,
                                   const struct nd_output_source *source, struct nd_error *err)
{
    struct nd_chunk_layout asked, layout;
    ND_CLEANUP(nd_capture_dataset_destroy) struct nd_capture_dataset *dataset = NULL;
    ND_CLEANUP(nd_chunk_decoder_deinit) struct nd_chunk_decoder decoder = {0};
    ND_TRY(nd_chunk_layout_make(&tensor->shape, tensor->dtype, probe->n_samples_expected, &asked, err));
    ND_TRY(nd_capture_output_layout(probe, tensor, &layout, err));
    ND_FREED unsigned char *raw = nd_tensor_alloc(layout.chunk_bytes);
    ND_FREED unsigned char *encoded = malloc(nd_chunk_bound(layout.chunk_bytes));
    ND_TRY_MEMORY(raw != NULL && encoded != NULL, err);
    const struct chunk_source chunks = {.output = source,
                                        .tensor = tensor,
                                        .asked = &asked,
                                        .layout = &layout,
                                        .raw = raw,
                                        .encoded = encoded,
                                        .decoder = &decoder};
    ND_TRY(nd_capture_writer_outputs_begin(
        writer, &(struct nd_capture_output){probe, tensor, provider, &layout}, &dataset, err));
    ND_TRY(write_chunks(&chunks, probe->name, dataset, err));
    ND_TRY(nd_capture_writer_outputs_end(&dataset, err));
    return source->index->n_max > 1 ? write_repeats(writer, probe, tensor, layout.sample_bytes, source, err)
                                    : ND_OK;
}
