/* Going on with a run whose agent was interrupted: what its spool holds, and where the next run belongs. */
#include "devices/agent/agent.h"

#include <stdlib.h>
#include <string.h>

#include "core/items.h"

/* What is read so far, with what only the reading needs. */
struct reading {
    const struct nd_agent_job *job;
    struct nd_resume *resume;
    size_t n_passes;     /* begun */
    size_t n_tensors;    /* of the pass in work */
    size_t row;          /* of the next run's sample, over all probes */
    size_t n_samples;    /* of all probes */
    bool is_out_of_room; /* out of memory */
};

static bool add_record(struct reading *reading, struct nd_resume_records *records,
                       const struct nd_record *record)
{
    if (!nd_grow((void **)&records->items, &records->capacity, records->n + 1, sizeof *records->items)) {
        reading->is_out_of_room = true;
        return false;
    }
    records->items[records->n++] = *record;
    return true;
}

/* Past the probes without samples. */
static void settle_probe(struct reading *reading)
{
    struct nd_resume *resume = reading->resume;
    while (resume->probe < reading->job->n_probes &&
           resume->sample >= reading->job->probes[resume->probe].n_samples) {
        resume->probe++;
        resume->sample = 0;
    }
}

static bool take_pass(struct reading *reading, const struct nd_record *record)
{
    struct nd_resume *resume = reading->resume;
    const struct nd_agent_job *job = reading->job;
    bool is_next = record->index[0] == reading->n_passes && record->index[0] < job->n_passes;
    bool is_before_complete = reading->n_passes == 0 || resume->probe == job->n_probes;
    if (!is_next || !is_before_complete)
        return false;
    resume->pass = reading->n_passes++;
    resume->has_runs = false;
    resume->nodes.n = 0;
    resume->probe = resume->sample = resume->repeat = 0;
    reading->row = 0;
    reading->n_tensors = 0;
    memset(resume->n_runs, 0, reading->n_samples * sizeof *resume->n_runs);
    for (size_t e = 0; e < job->n_tensors; e++) {
        resume->tensors[e].n_fragments = 0;
        reading->n_tensors += job->tensors[e].pass == resume->pass;
    }
    settle_probe(reading);
    return true;
}

/* Runs come in order, each once. */
static bool take_sample(struct reading *reading, const struct nd_record *record)
{
    struct nd_resume *resume = reading->resume;
    const uint64_t *at = record->index;
    if (reading->n_passes == 0 || resume->probe == reading->job->n_probes || at[0] != resume->probe ||
        at[1] != resume->sample || at[2] != resume->repeat ||
        record->payload_bytes != reading->n_tensors * sizeof(struct nd_digest))
        return false;
    resume->has_runs = true;
    resume->past.probe = resume->probe;
    resume->past.sample = resume->sample;
    resume->past.repeat = resume->repeat;
    if (resume->repeat == 0)
        resume->past.first_digests = record->payload;
    if (resume->repeat == 0 && resume->pass == 0)
        resume->first_pass[reading->row] = record->payload;
    if (resume->repeat < 2) {
        bool differs = resume->repeat == 1 &&
                       memcmp(record->payload, resume->past.first_digests, record->payload_bytes) != 0;
        resume->past.n_runs = nd_job_n_runs(reading->job, resume->probe, resume->sample, differs);
        resume->n_runs[reading->row] = resume->past.n_runs;
    }
    if (++resume->repeat == resume->past.n_runs) {
        resume->repeat = 0;
        resume->sample++;
        reading->row++;
        settle_probe(reading);
    }
    return true;
}

static struct nd_store_past_tensor *tensor_of(struct reading *reading, uint64_t number)
{
    bool is_known = number < reading->job->n_tensors &&
                    reading->job->tensors[number].pass == reading->resume->pass && reading->n_passes > 0;
    return is_known ? &reading->resume->tensors[number] : NULL;
}

static bool take_output(struct reading *reading, const struct nd_record *record)
{
    struct nd_store_past_tensor *tensor = tensor_of(reading, record->index[0]);
    if (tensor == NULL)
        return false;
    tensor->is_known = nd_job_read_output(record, &tensor->dtype, &tensor->shape);
    return tensor->is_known;
}

static bool take_fragment(struct reading *reading, const struct nd_record *record)
{
    struct nd_store_past_tensor *tensor = tensor_of(reading, record->index[1]);
    if (tensor == NULL || record->index[0] >= reading->job->n_probes)
        return false;
    if (!nd_grow((void **)&tensor->fragments, &tensor->capacity, tensor->n_fragments + 1,
                 sizeof *tensor->fragments)) {
        reading->is_out_of_room = true;
        return false;
    }
    tensor->fragments[tensor->n_fragments++] = (struct nd_store_fragment){.first = (size_t)record->index[2],
                                                                          .n = (size_t)record->index[3],
                                                                          .bytes = record->payload,
                                                                          .n_bytes = record->payload_bytes};
    return true;
}

/* A chunk that is whole replaces the fragments of it. */
static bool take_chunk(struct reading *reading, const struct nd_record *record)
{
    struct nd_store_past_tensor *tensor = tensor_of(reading, record->index[1]);
    if (tensor != NULL)
        tensor->n_fragments = 0;
    return tensor != NULL;
}

static bool take_record(struct reading *reading, const struct nd_record *record)
{
    struct nd_resume *resume = reading->resume;
    if (record->kind == ND_RECORD_RUNTIME)
        resume->runtime = *record;
    resume->n_before += record->kind == ND_RECORD_RESUME;
    return record->kind == ND_RECORD_LIBRARY    ? add_record(reading, &resume->libraries, record)
           : record->kind == ND_RECORD_NODE     ? add_record(reading, &resume->nodes, record)
           : record->kind == ND_RECORD_PASS     ? take_pass(reading, record)
           : record->kind == ND_RECORD_OUTPUT   ? take_output(reading, record)
           : record->kind == ND_RECORD_FRAGMENT ? take_fragment(reading, record)
           : record->kind == ND_RECORD_CHUNK    ? take_chunk(reading, record)
           : record->kind == ND_RECORD_SAMPLE   ? take_sample(reading, record)
                                                : true;
}

/* What is kept, of which nothing is trusted but that it was written whole. */
static enum nd_status read_kept(const struct nd_agent_job *job, const char *path, uint64_t kept_bytes,
                                struct nd_resume *resume, struct nd_error *err)
{
    struct reading reading = {.job = job, .resume = resume};
    struct nd_record record;
    size_t n_samples = 0;
    bool is_whole = true;
    for (size_t p = 0; p < job->n_probes; p++)
        n_samples += job->probes[p].n_samples;
    resume->tensors = nd_calloc(job->n_tensors, sizeof *resume->tensors);
    resume->first_pass = nd_calloc(n_samples, sizeof *resume->first_pass);
    resume->n_runs = nd_calloc(n_samples, sizeof *resume->n_runs);
    reading.n_samples = n_samples;
    ND_TRY_MEMORY(resume->tensors != NULL && resume->first_pass != NULL && resume->n_runs != NULL, err);
    resume->n_tensors = job->n_tensors;
    resume->past.tensors = resume->tensors;
    while (is_whole && resume->reader.offset_bytes < kept_bytes && nd_spool_next(&resume->reader, &record))
        is_whole = take_record(&reading, &record);
    if (reading.is_out_of_room)
        return nd_fail_memory(err);
    if (!is_whole || reading.n_passes == 0 || resume->runtime.kind == 0)
        return nd_fail(err, ND_E_SPOOL_RESUME, path, "spool '%s' contradicts the job at byte %zu", path,
                       resume->reader.offset_bytes);
    return ND_OK;
}

/* Nothing is cut before it is certain that the file is a spool of this job. One that was torn within its first
 * record can be no more than a beginning; a machine that lost its power can leave zeros. */
static enum nd_status check_owner(const struct nd_agent_job *job, const char *path,
                                  struct nd_spool_reader *reader, struct nd_error *err)
{
    static const unsigned char zeros[4];
    struct nd_record record;
    size_t n = reader->size_bytes < 4 ? reader->size_bytes : 4;
    if (!nd_spool_next(reader, &record)) {
        bool is_beginning = n == 0 || memcmp(reader->map, "NDS1", n) == 0 || memcmp(reader->map, zeros, n) == 0;
        return is_beginning ? ND_OK : nd_fail(err, ND_E_SPOOL_RESUME, path, "'%s' is not a spool", path);
    }
    if (record.kind != ND_RECORD_JOB || record.payload_bytes != sizeof job->digest)
        return nd_fail(err, ND_E_SPOOL_RESUME, path, "spool '%s' does not say which job it is of", path);
    if (memcmp(record.payload, &job->digest, sizeof job->digest) != 0)
        return nd_fail(err, ND_E_SPOOL_RESUME, path, "spool '%s' is of another job", path);
    return ND_OK;
}

enum nd_status nd_resume_open(const struct nd_agent_job *job, const char *path, struct nd_spool_writer *writer,
                              struct nd_resume *out, struct nd_error *err)
{
    struct nd_resume resume = {0};
    struct nd_spool_kept kept = {0};
    ND_TRY(nd_spool_writer_reopen(writer, path, err));
    enum nd_status status = nd_spool_reader_map(&resume.reader, path, err);
    if (status == ND_OK)
        status = check_owner(job, path, &resume.reader, err);
    if (status == ND_OK)
        status = nd_spool_keep(path, &kept, err);
    resume.has_ended = kept.has_ended;
    resume.is_fresh = kept.size_bytes == 0;
    if (status == ND_OK && !resume.is_fresh && !resume.has_ended)
        status = read_kept(job, path, kept.size_bytes, &resume, err);
    if (status == ND_OK && !resume.has_ended)
        status = nd_spool_writer_cut(writer, kept.size_bytes, err);
    if (status != ND_OK || resume.has_ended)
        nd_spool_writer_close(writer, NULL);
    if (status == ND_OK)
        *out = resume;
    else
        nd_resume_close(&resume);
    return status;
}

void nd_resume_close(struct nd_resume *resume)
{
    ND_FREE_EACH(resume->tensors, resume->n_tensors, .fragments);
    ND_FREE_ALL(resume->first_pass, resume->n_runs, resume->libraries.items, resume->nodes.items);
    nd_spool_reader_close(&resume->reader);
    *resume = (struct nd_resume){0};
}
