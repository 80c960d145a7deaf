/* A capture by qnn-net-run on another machine. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/files/new_file.h"
#include "core/memory.h"
#include "devices/agent/result_store.h"
#include "devices/agent/spool/record_fields.h"
#include "record/qnn/prepare_internal.h"
#include "record/qnn/prepare_remote.h"

/* What qnn-net-run gave on another machine, put into a spool as an agent would have put it. */

/* A command costs a tenth of a second, and a command line has its limits. */
enum { FILES_AT_ONCE = 200, RESULTS_AT_ONCE = 100, BATCH_BYTES = 8 << 20 };

/* One sample of every tensor of the capture. */
struct sample {
    struct nd_output_view *views;
    const struct nd_output_view **pointers;
    unsigned char **data;
    size_t *output_of; /* tensor -> output of the context, SIZE_MAX for one that is fed */
    size_t *input_of;  /* tensor -> its input */
    size_t n;
};

static void sample_deinit(struct sample *sample)
{
    for (size_t e = 0; sample->data != NULL && e < sample->n; e++)
        free(sample->data[e]);
    ND_FREE_ALL(sample->views, sample->pointers, sample->data, sample->output_of, sample->input_of);
}

static size_t find_tensor(const struct nd_prepared_tensor *tensors, size_t n, size_t index)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i].index == index)
            return i;
    return SIZE_MAX;
}

static enum nd_status connect_tensor(const struct nd_returned *returned, size_t e, struct sample *sample,
                                     struct nd_error *err)
{
    const struct nd_prepare_work *work = returned->work;
    size_t tensor = returned->capture->selected[e];
    sample->output_of[e] = find_tensor(work->outputs, work->n_outputs, tensor);
    sample->input_of[e] = SIZE_MAX;
    for (size_t i = 0; i < work->n_fed; i++)
        if (work->fed[i].tensor == tensor)
            sample->input_of[e] = work->fed[i].input;
    if (sample->output_of[e] == SIZE_MAX && sample->input_of[e] == SIZE_MAX)
        return nd_fail(err, ND_E_PREPARE_CONTEXT, returned->capture->tensors[e].name,
                       "tensor '%s' is not in the context: nothing reads it",
                       returned->capture->tensors[e].name);
    const struct nd_prepared_tensor *item = sample->output_of[e] != SIZE_MAX
                                                ? &work->outputs[sample->output_of[e]]
                                                : &work->inputs[sample->input_of[e]];
    sample->data[e] = nd_tensor_alloc(item->size_bytes);
    sample->views[e] = (struct nd_output_view){
        .dtype = item->dtype, .shape = item->shape, .data = sample->data[e], .size_bytes = item->size_bytes};
    sample->pointers[e] = &sample->views[e];
    return sample->data[e] != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status sample_init(const struct nd_returned *returned, struct sample *sample,
                                  struct nd_error *err)
{
    size_t n = returned->capture->n_tensors;
    *sample = (struct sample){.n = n,
                              .views = nd_calloc(n, sizeof *sample->views),
                              .pointers = nd_calloc(n, sizeof *sample->pointers),
                              .data = nd_calloc(n, sizeof *sample->data),
                              .output_of = nd_calloc(n, sizeof *sample->output_of),
                              .input_of = nd_calloc(n, sizeof *sample->input_of)};
    ND_TRY_MEMORY(sample->views != NULL && sample->pointers != NULL && sample->data != NULL &&
                      sample->output_of != NULL && sample->input_of != NULL,
                  err);
    for (size_t e = 0; e < n; e++)
        ND_TRY(connect_tensor(returned, e, sample, err));
    return ND_OK;
}

/* ---- reading ---- */

/* "<context name>_native.raw"; a float32 tensor has no other form. */
static void add_file_name(struct nd_strbuf *text, const struct nd_prepared_tensor *tensor)
{
    nd_strbuf_printf(text, "%s%s.raw", tensor->context_name, tensor->dtype == ND_DTYPE_F32 ? "" : "_native");
}

/* Results that are read together: whole rows of all outputs. */
struct batch {
    size_t first; /* result */
    size_t n;
    size_t n_whole;   /* of them: those that came whole */
    size_t row_bytes; /* all outputs of one result */
    unsigned char *rows;
};

static const struct nd_prepared_tensor *output_at(const struct nd_returned *returned,
                                                  const struct sample *sample, size_t e)
{
    return sample->output_of[e] != SIZE_MAX ? &returned->work->outputs[sample->output_of[e]] : NULL;
}

static size_t bytes_of(const struct nd_returned *returned, const struct sample *sample, size_t first,
                       size_t last)
{
    size_t n = 0;
    for (size_t e = first; e < last; e++) {
        const struct nd_prepared_tensor *tensor = output_at(returned, sample, e);
        n += tensor != NULL ? tensor->size_bytes : 0;
    }
    return n;
}

static void add_file_names(struct nd_strbuf *text, const struct nd_returned *returned,
                           const struct sample *sample, size_t first, size_t last)
{
    for (size_t e = first; e < last; e++) {
        if (output_at(returned, sample, e) == NULL)
            continue;
        nd_strbuf_puts(text, " ");
        add_file_name(text, output_at(returned, sample, e));
    }
}

/* A command that prints, result by result, the files of these tensors one behind the other, each of exactly its
 * size. Processes are dear on a phone: two a result, whatever the number of files. */
static char *reading_command(const struct nd_returned *returned, const struct sample *sample,
                             const struct batch *batch, size_t first, size_t last)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "o=");
    nd_shell_quote(&text, returned->out);
    nd_strbuf_puts(&text,
                   "/output; s() { [ \"$1\" -eq \"$2\" ] || { echo \"$3 of Result_$k has $1 bytes and should "
                   "have $2\" >&2; exit 1; }; }; r() { k=$1; cd \"$o/Result_$k\" || exit 1; w=$(wc -c");
    add_file_names(&text, returned, sample, first, last);
    nd_strbuf_puts(&text, ") || exit 1; set -- $w; ");
    for (size_t e = first; e < last; e++) {
        const struct nd_prepared_tensor *tensor = output_at(returned, sample, e);
        if (tensor == NULL)
            continue;
        nd_strbuf_printf(&text, "s \"$1\" %zu ", tensor->size_bytes);
        add_file_name(&text, tensor);
        nd_strbuf_puts(&text, "; shift 2; ");
    }
    nd_strbuf_puts(&text, "cat");
    add_file_names(&text, returned, sample, first, last);
    nd_strbuf_puts(&text, " || exit 1; }; ");
    for (size_t i = 0; i < batch->n; i++)
        nd_strbuf_printf(&text, "r %zu; ", batch->first + i);
    return nd_strbuf_take(&text);
}

/* Reads these tensors of all results of the batch; fewer rows may come whole, and *err then says why. */
static enum nd_status read_tensors(const struct nd_returned *returned, const struct sample *sample,
                                   struct batch *batch, size_t first, size_t last, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    const char *label = returned->capture->device->label;
    size_t n_bytes = bytes_of(returned, sample, first, last);
    size_t at = bytes_of(returned, sample, 0, first);
    char *text = reading_command(returned, sample, batch, first, last);
    const struct nd_remote_command command = {.text = text,
                                              .stdout_limit_bytes = batch->n * n_bytes + 1,
                                              .time_limit_s = 60 + (double)(batch->n * n_bytes) * 1e-6};
    enum nd_status status = text != NULL ? nd_transport_run(returned->remote->transport, &command, &reply, err)
                                         : nd_fail_memory(err);
    free(text);
    size_t n_whole = 0;
    while (status == ND_OK && n_whole < batch->n && (n_whole + 1) * n_bytes <= reply.out_bytes) {
        memcpy(batch->rows + n_whole * batch->row_bytes + at, reply.out + n_whole * n_bytes, n_bytes);
        n_whole++;
    }
    if (status == ND_OK && n_whole < batch->n_whole)
        batch->n_whole = n_whole;
    if (reply.errors != NULL)
        reply.errors[strcspn(reply.errors, "\r\n")] = '\0'; /* the first line is the cause */
    if (status == ND_OK && (reply.exit_code != 0 || reply.out_bytes != batch->n * n_bytes))
        status =
            nd_fail(err, ND_E_DEVICE_OUTPUT, label, "result %zu of qnn-net-run on device '%s' is not whole: %s",
                    batch->first + n_whole, label,
                    reply.errors != NULL && reply.errors[0] != '\0' ? reply.errors : "too few bytes");
    return status;
}

/* As many results as make sense at once, but not beyond n_results. */
static enum nd_status read_batch(const struct nd_returned *returned, const struct sample *sample,
                                 size_t n_results, struct batch *batch, struct nd_error *err)
{
    size_t n = batch->row_bytes > 0 ? BATCH_BYTES / batch->row_bytes : RESULTS_AT_ONCE;
    n = n < 1 ? 1 : n > RESULTS_AT_ONCE ? RESULTS_AT_ONCE : n;
    batch->n = n < n_results - batch->first ? n : n_results - batch->first;
    batch->n_whole = batch->n;
    free(batch->rows);
    batch->rows = nd_calloc(batch->n, batch->row_bytes);
    ND_TRY_MEMORY(batch->rows != NULL, err);
    for (size_t first = 0; first < sample->n; first += FILES_AT_ONCE) {
        size_t last = first + FILES_AT_ONCE < sample->n ? first + FILES_AT_ONCE : sample->n;
        if (bytes_of(returned, sample, first, last) > 0)
            ND_TRY(read_tensors(returned, sample, batch, first, last, err));
    }
    return ND_OK;
}

/* Codes that were fed are those of the file here. */
static enum nd_status take_fed(const struct nd_returned *returned, struct sample *sample, const char *prepared,
                               size_t probe, size_t index, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; status == ND_OK && e < sample->n; e++) {
        if (sample->output_of[e] != SIZE_MAX)
            continue;
        void *bytes = NULL;
        size_t n = 0;
        char *name = nd_prepare_input_path(returned->work, probe, index, sample->input_of[e]);
        char *path = name != NULL ? nd_path_join(prepared, name) : NULL;
        status = path != NULL ? nd_file_read(path, sample->views[e].size_bytes, &bytes, &n, err)
                              : nd_fail_memory(err);
        if (status == ND_OK)
            memcpy(sample->data[e], bytes, n);
        ND_FREE_ALL(bytes, path, name);
    }
    return status;
}

/* ---- storing ---- */

/* The row at `at` is the sample of the run. */
static enum nd_status store_row(const struct nd_returned *returned, struct sample *sample,
                                const unsigned char *at, struct nd_store_run *run,
                                struct nd_store_thread *store, struct nd_error *err)
{
    for (size_t e = 0; e < sample->n; e++) {
        const struct nd_prepared_tensor *tensor = output_at(returned, sample, e);
        if (tensor == NULL)
            continue;
        memcpy(sample->data[e], at, tensor->size_bytes);
        at += tensor->size_bytes;
    }
    enum nd_status status = take_fed(returned, sample, returned->prepared, run->probe, run->sample, err);
    return status == ND_OK ? nd_store_put(store, run, err) : status;
}

/* The sample behind that of the run. */
static void step(const struct nd_agent_job *job, struct nd_store_run *run)
{
    if (++run->sample < job->probes[run->probe].n_samples)
        return;
    run->sample = 0;
    run->probe++;
}

static enum nd_status store_all(const struct nd_returned *returned, struct sample *sample,
                                struct nd_store_thread *store, struct nd_error *err)
{
    const struct nd_agent_job *job = &returned->capture->job;
    size_t n_results = nd_capture_job_n_samples(returned->capture);
    struct batch batch = {.row_bytes = bytes_of(returned, sample, 0, sample->n)};
    /* qnn-net-run tells no latency of one inference. */
    struct nd_store_run run = {.latency_ns = UINT64_MAX, .views = sample->pointers};
    enum nd_status status = ND_OK;
    while (status == ND_OK && batch.first < n_results) {
        enum nd_status stored = ND_OK;
        status = read_batch(returned, sample, n_results, &batch, err);
        bool is_usable = status == ND_OK || (err != NULL && err->id == ND_E_DEVICE_OUTPUT);
        for (size_t i = 0; is_usable && stored == ND_OK && i < batch.n_whole; i++) {
            stored = store_row(returned, sample, batch.rows + i * batch.row_bytes, &run, store,
                               status == ND_OK ? err : NULL);
            step(job, &run);
        }
        batch.first += batch.n;
        status = status != ND_OK ? status : stored;
    }
    free(batch.rows);
    return status;
}

/* Reads the results one by one from the machine and appends them to the spool, up to the first that is not
 * whole: ND_E_DEVICE_OUTPUT names the file. What the machine and the link fail with as nd_transport_run. */
static enum nd_status nd_prepared_spool(const struct nd_returned *returned, struct nd_spool_writer *writer,
                                        struct nd_error *err)
{
    struct nd_store_thread *store = NULL;
    struct sample sample = {0};
    enum nd_status status = sample_init(returned, &sample, err);
    if (status == ND_OK)
        status = nd_store_start(&returned->capture->job, 0, writer, &store, err);
    if (status == ND_OK)
        status = store_all(returned, &sample, store, err);
    /* What was whole before one that is not is kept. */
    enum nd_status finished = nd_store_finish(&store, status == ND_OK ? err : NULL);
    sample_deinit(&sample);
    if (status == ND_OK)
        status = finished;
    if (status == ND_OK)
        status = nd_spool_append(writer, &(struct nd_record){.kind = ND_RECORD_END}, err);
    return status;
}

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
    const char *query = strchr(device->uri, '?');
    ND_FREED char *uri =
        nd_text("htp-sim:%s@%s%s", device->chipset->sm, device->runtime.id, query != NULL ? query : "");
    return uri != NULL ? nd_device_parse(uri, maker, err) : nd_fail_memory(err);
}

static enum nd_status check_options(const struct nd_capture_job *capture, struct nd_error *err)
{
    const struct nd_capture_options *options = capture->options;
    const char *word = options->n_repeats > 1                 ? "repeats"
                       : options->prefixes                    ? "prefixes"
                       : options->allow_fallback              ? "allow-fallback"
                       : options->resume                      ? "resume"
                       : nd_capture_job_is_untouched(capture) ? "tensors none"
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
    ND_FREED char *path = nd_path_join(run->folder, "stdout.txt");
    return path != NULL ? nd_file_put(path, said, strlen(said), err) : nd_fail_memory(err);
}

static enum nd_status run_there(struct net_run *run, struct nd_error *err)
{
    struct nd_capture_job *capture = run->capture;
    ND_CLEANUP(nd_runtime_info_deinit) struct nd_runtime_info sdk = {0};
    struct nd_error why = {0};
    ND_FREED char *said = NULL;
    int qvalue = 0;
    bool has_sdk = nd_runtime_find_abi(NULL, capture->remote->device_facts.abi, &sdk, NULL) == ND_OK &&
                   sdk.net_run != NULL;
    const struct nd_prepared_run request = {.folder = run->prepared,
                                            .scratch = run->scratch,
                                            .sdk = has_sdk ? &sdk : NULL,
                                            .options = capture->options,
                                            .begun_ns = capture->begun_ns};
    enum nd_status status = nd_prepared_run(capture->remote, &request, &run->out, &qvalue, &said, err);
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
    if (run->out != NULL && qvalue != 0 && (status == ND_OK || why.id == ND_E_DEVICE_OUTPUT)) {
        run->stage = "run"; /* results that are missing are what it leaves when it fails */
        status = nd_fail(err, ND_E_DEVICE_CRASH, capture->device->label,
                         "qnn-net-run on device '%s' ended with exit code %d: %s", capture->device->label,
                         qvalue, last_word(said));
    } else if (why.id != 0 && err != NULL) {
        *err = why;
    }
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
    ND_FREED char *text = nd_strbuf_take(&message);
    ND_TRY_MEMORY(text != NULL, err);
    nd_fields_add_u64(&fields, "severity", 1);
    nd_fields_add(&fields, "location", "npudiff");
    nd_fields_add(&fields, "message", text);
    return nd_fields_append(&run->writer, ND_RECORD_LOG, NULL, 0, &fields, err);
}

static enum nd_status prepare_and_run(struct net_run *run, struct nd_error *err)
{
    struct nd_capture_job *capture = run->capture;
    struct nd_prepare_options options;
    ND_CLEANUP(nd_device_deinit) struct nd_device maker = {0};
    nd_prepare_options_init(&options);
    options.tensors = capture->options->tensors;
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
    ND_FREED char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command};
    if (command != NULL &&
        nd_transport_run_once(run->capture->remote->transport, &request, &reply, NULL) == ND_OK)
        nd_remote_reply_deinit(&reply);
}

enum nd_status nd_prepared_capture(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                   struct nd_error *err)
{
    struct nd_error why = {0};
    struct net_run run = {.capture = capture, .stage = "prepare"};
    ND_TRY(check_options(capture, err));
    *folder = nd_path_join(capture->folder, "run");
    run.folder = *folder;
    run.prepared = nd_path_join(capture->folder, "prepared");
    run.scratch = nd_path_join(capture->folder, "packed");
    enum nd_status status = *folder != NULL && run.prepared != NULL && run.scratch != NULL
                                ? begin_spool(&run, err)
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
    ND_FREE_ALL(run.prepared, run.scratch, run.out);
    return status;
}
