/* A capture by qnn-net-run on another machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "record/qnn/prepare_internal.h"
#include "record/qnn/prepare_remote.h"
#include "devices/agent/spool/record_fields.h"

/* The last line of what it said that tells of an error, or the last at all. */
static const char *last_word(char *said)
{
    const char *found = "it said nothing", *last = NULL;
    for (char *rest = said, *line; (line = strsep(&rest, "\r\n")) != NULL;) {
        line += strspn(line, " ");
        if (line[0] == '\0')
            continue;
        if (strstr(line, "ERROR") != NULL || strstr(line, "<E>") != NULL ||
            strstr(line, "run.sh: no qnn") != NULL)
            found = line;
        last = line;
    }
    return strcmp(found, "it said nothing") == 0 && last != NULL ? last : found;
}

/* The device that prepares: this machine's simulator of the chipset, with the options of the URI. */
static enum nd_status find_maker(const struct nd_device *device, struct nd_device *maker, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    const char *query = strchr(device->uri, '?');
    nd_strbuf_printf(&text, "htp-sim:%s@%s%s", device->chipset->sm, device->runtime.id,
                     query != NULL ? query : "");
    char *uri = nd_strbuf_take(&text);
    enum nd_status status = uri != NULL ? nd_device_parse(uri, maker, err) : nd_fail_memory(err);
    free(uri);
    return status;
}

static enum nd_status check_options(const struct nd_capture_job *capture, struct nd_error *err)
{
    const struct nd_capture_options *options = capture->options;
    const char *word = options->n_repeats > 1                 ? "repeats"
                       : options->prefixes                    ? "prefixes"
                       : options->allow_fallback              ? "allow-fallback"
                       : options->resume                      ? "resume"
                       : nd_capture_job_is_untouched(capture) ? "edges none"
                                                              : NULL;
    if (word == NULL)
        return ND_OK;
    return nd_fail(err, ND_E_OPTION_CONFLICT, word, "qnn-net-run knows no '%s' (device '%s'); the agent does",
                   word, capture->device->label);
}

struct net_run {
    struct nd_capture_job *capture;
    const char *folder; /* of the spool */
    char *prepared;     /* the folder here */
    char *scratch;      /* for what is sent */
    char *out;          /* there */
    struct nd_prepare_work work;
    struct nd_spool_writer writer;
    const char *stage;
};

/* stdout.txt is kept as a log, as an agent's is. */
static enum nd_status keep_said(const struct net_run *run, const char *said, struct nd_error *err)
{
    char *path = nd_path_join(run->folder, "stdout.txt");
    enum nd_status status = path != NULL ? nd_file_put(path, said, strlen(said), err) : nd_fail_memory(err);
    free(path);
    return status;
}

static enum nd_status run_there(struct net_run *run, struct nd_error *err)
{
    struct nd_capture_job *capture = run->capture;
    struct nd_runtime_info sdk = {0};
    struct nd_error why = {0};
    char *said = NULL;
    int code = 0;
    bool has_sdk =
        nd_runtime_find_abi(NULL, capture->remote->identity.abi, &sdk, NULL) == ND_OK && sdk.net_run != NULL;
    const struct nd_prepared_run request = {.folder = run->prepared,
                                            .scratch = run->scratch,
                                            .sdk = has_sdk ? &sdk : NULL,
                                            .options = capture->options,
                                            .begun_ns = capture->begun_ns};
    enum nd_status status = nd_prepared_run(capture->remote, &request, &run->out, &code, &said, err);
    if (status == ND_OK)
        status = keep_said(run, said, err);
    const struct nd_returned returned = {.capture = capture,
                                         .work = &run->work,
                                         .remote = capture->remote,
                                         .prepared = run->prepared,
                                         .out = run->out};
    capture->remote->stage = run->stage = "pull";
    if (status == ND_OK)
        status = nd_prepared_spool(&returned, &run->writer, &why);
    if (run->out != NULL && code != 0 && (status == ND_OK || why.id == ND_E_DEVICE_OUTPUT)) {
        run->stage = "run"; /* results that are missing are what it leaves when it fails */
        status = nd_fail(err, ND_E_DEVICE_CRASH, capture->device->label,
                         "qnn-net-run on device '%s' ended with exit code %d: %s", capture->device->label, code,
                         last_word(said));
    } else if (why.id != 0 && err != NULL) {
        *err = why;
    }
    nd_runtime_info_deinit(&sdk);
    free(said);
    return status;
}

static enum nd_status begin_spool(struct net_run *run, struct nd_error *err)
{
    char *path = nd_path_join(run->folder, "spool.nds");
    enum nd_status status = path != NULL ? nd_dir_make(run->folder, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_spool_writer_open(&run->writer, path, err);
    free(path);
    if (status != ND_OK)
        return status;
    run->work.records = &run->writer;
    return nd_spool_append(&run->writer, &(struct nd_record){.kind = ND_RECORD_PASS}, err);
}

/* Which context it was, for whoever asks years later. */
static enum nd_status record_context(struct net_run *run, struct nd_error *err)
{
    const struct nd_prepared_context *context = &run->work.context;
    struct nd_strbuf message = {0}, fields = {0};
    nd_strbuf_printf(&message,
                     "context binary of %llu bytes, SHA-256 %s, made by SDK %s for soc_model %llu: graph '%s'",
                     (unsigned long long)context->size_bytes, context->sha256, context->build_id,
                     (unsigned long long)context->soc_model, context->graph);
    char *text = nd_strbuf_take(&message);
    if (text == NULL)
        return nd_fail_memory(err);
    nd_fields_add_u64(&fields, "severity", 1);
    nd_fields_add(&fields, "location", "npudiff");
    nd_fields_add(&fields, "message", text);
    free(text);
    return nd_fields_append(&run->writer, ND_RECORD_LOG, NULL, 0, &fields, err);
}

static enum nd_status prepare_and_run(struct net_run *run, struct nd_error *err)
{
    struct nd_capture_job *capture = run->capture;
    struct nd_prepare_options options;
    struct nd_device maker = {0};
    nd_prepare_options_init(&options);
    options.edges = capture->options->edges;
    options.agent = capture->options->agent;
    options.time_limit_s = capture->options->time_limit_s;
    options.is_cancelled = capture->options->is_cancelled;
    options.cancel_context = capture->options->cancel_context;
    run->stage = capture->remote->stage = "prepare";
    enum nd_status status = find_maker(capture->device, &maker, err);
    run->work.model = capture->model;
    run->work.device = &maker;
    run->work.probes = capture->probes;
    run->work.n_probes = capture->n_probes;
    run->work.options = &options;
    if (status == ND_OK)
        status = nd_prepare_folder(&run->work, run->prepared, err);
    if (status == ND_OK)
        status = record_context(run, err);
    if (status == ND_OK)
        run->stage = "push";
    if (status == ND_OK)
        status = run_there(run, err);
    nd_prepare_work_deinit(&run->work);
    nd_device_deinit(&maker);
    return status;
}

/* What it left there. The prepared folder stays: a next run of the same need not send it. */
static void clean(const struct net_run *run)
{
    struct nd_strbuf text = {0};
    struct nd_remote_reply reply = {0};
    if (run->out == NULL)
        return;
    nd_strbuf_puts(&text, "rm -rf ");
    nd_shell_quote(&text, run->out);
    char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command};
    if (command != NULL &&
        nd_transport_run_once(run->capture->remote->transport, &request, &reply, NULL) == ND_OK)
        nd_remote_reply_deinit(&reply);
    free(command);
}

enum nd_status nd_prepared_capture(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                   struct nd_error *err)
{
    struct nd_error why = {0};
    struct net_run run = {.capture = capture, .stage = "prepare"};
    enum nd_status status = check_options(capture, err);
    if (status != ND_OK)
        return status;
    *folder = nd_path_join(capture->folder, "run");
    run.folder = *folder;
    run.prepared = nd_path_join(capture->folder, "prepared");
    run.scratch = nd_path_join(capture->folder, "packed");
    status = *folder != NULL && run.prepared != NULL && run.scratch != NULL ? begin_spool(&run, err)
                                                                            : nd_fail_memory(err);
    if (status == ND_OK) {
        status = prepare_and_run(&run, &why);
        enum nd_status closed = nd_spool_writer_close(&run.writer, status == ND_OK ? &why : NULL);
        status = status != ND_OK ? status : closed;
        clean(&run);
    }
    if (status != ND_OK && why.id != 0 && nd_remote_is_of_device(&why)) {
        exit->error = why;
        exit->stage = run.stage;
        status = ND_OK;
    } else if (status != ND_OK && why.id != 0 && err != NULL) {
        *err = why;
    }
    exit->elapsed_s = (double)(nd_clock_awake_ns() - capture->begun_ns) * 1e-9;
    free(run.prepared);
    free(run.scratch);
    free(run.out);
    return status;
}
