/* One session of a capture: run by an agent, here or on another machine, and what its spool says it did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/files/suffix.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "devices/agent/spool/record_fields.h"
#include "devices/agent/spool/spool.h"
#include "devices/device.h"
#include "devices/phones/remote.h"
#include "record/sessions/job_run.h"

static size_t samples_of(const struct nd_capture_job *capture, const struct nd_job *job)
{
    return job->n_probes > 0 ? nd_capture_job_n_samples(capture) * job->n_passes : 0;
}

bool nd_job_run_has_samples(const char *folder, bool cuts)
{
    struct nd_spool_kept kept = {0};
    char *spool = nd_path_join(folder, "spool.nds");
    bool has = spool != NULL && nd_spool_keep(spool, &kept, NULL) == ND_OK && kept.size_bytes > 0 &&
               (!cuts || truncate(spool, (off_t)kept.size_bytes) == 0);
    free(spool);
    return has;
}

static enum nd_status write_job(const struct nd_job *job, const char *folder, struct nd_error *err)
{
    char *path = nd_path_join(folder, "job.nds");
    enum nd_status status = path != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    if (status == ND_OK)
        unlink(path);
    if (status == ND_OK)
        status = nd_job_write(job, path, err);
    free(path);
    return status;
}

/* The agent's last line, without its name. */
static void read_reason(const char *folder, char *reason, size_t size)
{
    static const char name[] = "npudiff-agent: ";
    char line[256] = "";
    char *path = nd_path_join(folder, "stdout.txt");
    if (path != NULL)
        nd_file_last_line(path, line, sizeof line);
    bool has_name = strncmp(line, name, sizeof name - 1) == 0;
    snprintf(reason, size, "%s", nd_said(has_name ? line + sizeof name - 1 : line));
    free(path);
}

static enum nd_status run_here(const struct nd_capture_job *capture, const struct nd_job *job,
                               const char *folder, const struct nd_capture_options *options,
                               struct nd_agent_exit *exit, struct nd_error *err)
{
    char *agent = NULL, anew[sizeof exit->anew] = "";
    bool is_resuming = options->resume && job == &capture->job && nd_job_run_has_samples(folder, true);
    enum nd_status status =
        nd_agent_find(options->agent, nd_device_agent_suffix(capture->device->kind), &agent, err);
    for (bool again = true; status == ND_OK && again;) {
        if (!is_resuming)
            nd_dir_remove(folder);
        status = write_job(job, folder, err);
        if (status != ND_OK)
            break;
        const struct nd_agent_start start = {
            .agent = agent,
            .folder = folder,
            .options = options,
            .label = capture->device->label,
            .is_resuming = is_resuming,
            .begun_ns = capture->begun_ns,
            .samples_total = samples_of(capture, job),
        };
        status = nd_agent_launch(&start, exit, err);
        again = status == ND_OK && exit->cannot_resume;
        if (again)
            read_reason(folder, anew, sizeof anew);
        is_resuming = false;
    }
    if (status == ND_OK)
        memcpy(exit->anew, anew, sizeof anew);
    free(agent);
    return status;
}

enum nd_status nd_job_run(const struct nd_capture_job *capture, const struct nd_job *job, const char *folder,
                          const struct nd_capture_options *options, struct nd_agent_exit *exit,
                          struct nd_error *err)
{
    if (capture->remote == NULL)
        return run_here(capture, job, folder, options, exit, err);
    const struct nd_remote_run run = {
        .job = job,
        .device = capture->device,
        .model = capture->model,
        .folder = folder,
        .options = options,
        .begun_ns = capture->begun_ns,
        .samples_total = samples_of(capture, job),
        .is_trial = job != &capture->job,
    };
    return nd_remote_run(capture->remote, &run, exit, err);
}

/* ---- reads from a spool what the last session of a run did ---- */

/* What a spool says of its last session; texts are the spool's. */
struct session_facts {
    struct nd_record *nodes;
    size_t n_nodes, capacity;
    char stage[32]; /* the last that was entered */
    bool has_ended;
    uint64_t failure; /* error id; 0: none */
    char message[256];
};

static enum nd_status take_fact(const struct nd_record *record, struct session_facts *facts,
                                struct nd_error *err)
{
    if (record->kind == ND_RECORD_PASS) {
        facts->n_nodes = 0;
    } else if (record->kind == ND_RECORD_NODE) {
        if (!nd_grow((void **)&facts->nodes, &facts->capacity, facts->n_nodes + 1, sizeof *facts->nodes))
            return nd_fail_memory(err);
        facts->nodes[facts->n_nodes++] = *record;
    } else if (record->kind == ND_RECORD_STAGE) {
        nd_fields_copy(record, "stage", facts->stage, sizeof facts->stage);
    } else if (record->kind == ND_RECORD_FAILURE) {
        nd_fields_get_u64(record, "code", &facts->failure);
        nd_fields_copy(record, "message", facts->message, sizeof facts->message);
    } else if (record->kind == ND_RECORD_END) {
        facts->has_ended = true;
    }
    return ND_OK;
}

/* Moves the names of the nodes that fell to *out. */
static enum nd_status keep_fell_back(const bool *is_fell_back, const char **names, size_t n,
                                     struct nd_fell_back *out, struct nd_error *err)
{
    out->names = nd_calloc(n, sizeof *out->names);
    if (out->names == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (!is_fell_back[i])
            continue;
        out->names[out->n] = nd_strdup(names[i]);
        if (out->names[out->n] == NULL)
            return nd_fail_memory(err);
        out->n++;
    }
    return ND_OK;
}

static enum nd_status find_fell_back(const struct nd_job *job, const struct session_facts *facts,
                                     struct nd_fell_back *out, struct nd_error *err)
{
    static const char *const keys[] = {"provider", "name", "op_type"};
    size_t n = facts->n_nodes;
    struct nd_job_node *nodes = nd_calloc(n, sizeof *nodes);
    const char **names = nd_calloc(n, sizeof *names);
    bool *is_fell_back = nd_calloc(n, sizeof *is_fell_back);
    char **texts = nd_calloc(3 * n, sizeof *texts);
    bool is_whole = nodes != NULL && names != NULL && is_fell_back != NULL && texts != NULL;
    for (size_t i = 0; is_whole && i < 3 * n; i++)
        is_whole = (texts[i] = nd_fields_text(&facts->nodes[i / 3], keys[i % 3])) != NULL;
    enum nd_status status = is_whole ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; is_whole && i < n; i++) {
        nodes[i] = (struct nd_job_node){texts[3 * i], texts[3 * i + 1], texts[3 * i + 2]};
        names[i] = nodes[i].name;
    }
    if (status == ND_OK) {
        nd_job_find_fell_back(job, nodes, n, is_fell_back);
        status = keep_fell_back(is_fell_back, names, n, out, err);
    }
    for (size_t i = 0; texts != NULL && i < 3 * n; i++)
        free(texts[i]);
    free(texts);
    free(nodes);
    free(names);
    free(is_fell_back);
    return status;
}

/* How a run ended that is no matter of placement. */
static void judge_end(const struct session_facts *facts, const struct nd_agent_exit *exit,
                      struct nd_tried *trial, bool *is_of_session)
{
    bool has_fell_back = facts->failure == ND_E_DEVICE_FALLBACK;
    bool is_in_session = strcmp(facts->stage, "session") == 0;
    if (!facts->has_ended && !has_fell_back)
        snprintf(trial->reason, sizeof trial->reason, "%.255s",
                 facts->failure != 0   ? facts->message
                 : exit->error.id != 0 ? exit->error.message
                                       : "the agent ended without a word");
    *is_of_session = facts->has_ended || has_fell_back || is_in_session;
    trial->is_placed = facts->has_ended || strcmp(facts->stage, "run") == 0;
    trial->holds = facts->has_ended && trial->fell_back.n == 0;
}

enum nd_status nd_tried_read(const struct nd_job *job, const char *folder, const struct nd_agent_exit *exit,
                             struct nd_tried *out, bool *is_of_session, struct nd_error *err)
{
    struct nd_tried trial = {0};
    struct session_facts facts = {0};
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    char *spool = nd_path_join(folder, "spool.nds");
    enum nd_status status = spool != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && nd_spool_next(&reader, &record))
        status = take_fact(&record, &facts, err);
    if (status == ND_OK)
        status = find_fell_back(job, &facts, &trial.fell_back, err);
    judge_end(&facts, exit, &trial, is_of_session);
    nd_spool_reader_close(&reader);
    free(facts.nodes);
    free(spool);
    if (status == ND_OK)
        *out = trial;
    else
        nd_tried_deinit(&trial);
    return status;
}

void nd_fell_back_deinit(struct nd_fell_back *fell_back)
{
    for (size_t i = 0; i < fell_back->n; i++)
        free(fell_back->names[i]);
    free(fell_back->names);
    *fell_back = (struct nd_fell_back){0};
}

bool nd_fell_back_has(const struct nd_fell_back *fell_back, const char *node)
{
    for (size_t i = 0; node != NULL && i < fell_back->n; i++)
        if (strcmp(fell_back->names[i], node) == 0)
            return true;
    return false;
}

static bool has_same_stem(const char *a, const char *b)
{
    size_t n = nd_token_stem_bytes(a);
    return n == nd_token_stem_bytes(b) && memcmp(a, b, n) == 0;
}

static size_t count_stem(const struct nd_fell_back *fell_back, size_t n, const char *name)
{
    size_t n_same = 0;
    for (size_t i = 0; i < n; i++)
        n_same += has_same_stem(fell_back->names[i], name);
    return n_same;
}

/* From the end on: what is before a node is as it was when the node is looked at. */
void nd_fell_back_subtract(struct nd_fell_back *fell_back, const struct nd_fell_back *own)
{
    for (size_t i = fell_back->n; i-- > 0;) {
        const char *name = fell_back->names[i];
        if (count_stem(fell_back, i, name) >= count_stem(own, own->n, name))
            continue;
        free(fell_back->names[i]);
        memmove(&fell_back->names[i], &fell_back->names[i + 1],
                (fell_back->n - 1 - i) * sizeof fell_back->names[i]);
        fell_back->n--;
    }
}

void nd_tried_deinit(struct nd_tried *trial)
{
    nd_fell_back_deinit(&trial->fell_back);
    *trial = (struct nd_tried){0};
}
