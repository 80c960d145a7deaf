/* A capture by qnn-net-run on another machine. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "core/files/file.h"
#include "core/items.h"
#include "devices/agent/agent.h"
#include "devices/agent/spool/spool.h"
#include "npudiff/core/parse.h"
#include "record/qnn/prepare_internal.h"

/* The inputs of a prepared folder as one file per input of the graph: thousands of small files would each cost
 * a command of the link. They are cut apart there. */

static const size_t max_list_bytes = (size_t)1 << 30;

/* In the folder there; once. $sizes is set before it. */
static const char expand_script[] =
    "[ -f .expanded ] && exit 0\n"
    "cd \"$(dirname \"$0\")\" || exit 1\n"
    "k=0\n"
    "while read -r line; do\n"
    "    i=0\n"
    "    set -- $sizes\n"
    "    for item in $line; do\n"
    "        path=${item#*:=}\n"
    "        [ -d \"${path%/*}\" ] || mkdir -p \"${path%/*}\" || exit 1\n"
    "        dd if=\"pack.$i\" of=\"$path\" bs=\"$1\" skip=$k count=1 2>/dev/null || {\n"
    "            echo \"cannot write '$path'\" >&2\n"
    "            exit 1\n"
    "        }\n"
    "        shift\n"
    "        i=$((i + 1))\n"
    "    done\n"
    "    k=$((k + 1))\n"
    "done < input_list.txt\n"
    ": > .expanded\n";

struct pack {
    FILE **files; /* by input */
    size_t *sizes;
    size_t n;
    size_t capacity;
    size_t sizes_capacity;
};

static char *pack_path(const char *scratch, size_t i)
{
    char name[40];
    snprintf(name, sizeof name, "pack.%zu", i);
    return nd_path_join(scratch, name);
}

static enum nd_status add_pack(struct pack *pack, const char *scratch, size_t size_bytes, struct nd_error *err)
{
    ND_FREED char *path = pack_path(scratch, pack->n);
    if (path == NULL || !nd_grow((void **)&pack->files, &pack->capacity, pack->n + 1, sizeof(FILE *)) ||
        !nd_grow((void **)&pack->sizes, &pack->sizes_capacity, pack->n + 1, sizeof *pack->sizes)) {
        return nd_fail_memory(err);
    }
    pack->files[pack->n] = fopen(path, "wbe");
    pack->sizes[pack->n] = size_bytes;
    if (pack->files[pack->n] == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    else
        pack->n++;
    return ND_OK;
}

/* Appends the file that an item of the input list names to pack i. */
static enum nd_status add_item(struct pack *pack, const char *folder, const char *scratch, size_t i,
                               const char *item, struct nd_error *err)
{
    const char *mark = strstr(item, ":=");
    ND_FREED char *path = nd_path_join(folder, mark != NULL ? mark + 2 : item);
    ND_FREED void *bytes = NULL;
    size_t n = 0;
    ND_TRY(path != NULL ? nd_file_read(path, SIZE_MAX / 2, &bytes, &n, err) : nd_fail_memory(err));
    if (i == pack->n)
        ND_TRY(add_pack(pack, scratch, n, err));
    if (n != pack->sizes[i] || fwrite(bytes, 1, n, pack->files[i]) != n)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot pack '%s': it has %zu bytes, the one before %zu",
                       path, n, pack->sizes[i]);
    return ND_OK;
}

static enum nd_status add_lines(struct pack *pack, const char *folder, const char *scratch,
                                struct nd_error *err)
{
    ND_FREED void *text = NULL;
    size_t n = 0;
    ND_FREED char *path = nd_path_join(folder, "input_list.txt");
    ND_TRY(path != NULL ? nd_file_read(path, max_list_bytes, &text, &n, err) : nd_fail_memory(err));
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        size_t i = 0;
        for (char *item; (item = strsep(&line, " ")) != NULL;)
            if (item[0] != '\0')
                ND_TRY(add_item(pack, folder, scratch, i++, item, err));
    }
    return ND_OK;
}

static enum nd_status close_packs(struct pack *pack, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < pack->n; i++)
        if (fclose(pack->files[i]) != 0 && status == ND_OK)
            status = nd_fail(err, ND_E_FILE_WRITE, NULL, "cannot pack the inputs: %s", strerror(errno));
    return status;
}

static enum nd_status add_script(const struct pack *pack, const char *scratch, struct nd_bundle *bundle,
                                 struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text,
                   "# Written by npudiff: cuts the packed inputs into the files of input_list.txt.\nsizes='");
    for (size_t i = 0; i < pack->n; i++)
        nd_strbuf_printf(&text, "%s%zu", i > 0 ? " " : "", pack->sizes[i]);
    nd_strbuf_printf(&text, "'\n%s", expand_script);
    size_t n = text.len;
    ND_FREED char *script = nd_strbuf_take(&text);
    ND_FREED char *path = nd_path_join(scratch, "expand.sh");
    ND_TRY(script != NULL && path != NULL ? nd_file_put(path, script, n, err) : nd_fail_memory(err));
    ND_TRY(nd_bundle_add(bundle, "expand.sh", path, true, err));
    for (size_t i = 0; i < pack->n; i++) {
        ND_FREED char *packed = pack_path(scratch, i);
        ND_TRY_MEMORY(packed != NULL, err);
        ND_TRY(nd_bundle_add(bundle, nd_path_base(packed), packed, false, err));
    }
    return ND_OK;
}

/* The inputs of the folder, packed, and the script that unpacks them there, into the bundle. */
static enum nd_status nd_prepared_pack(const char *folder, const char *scratch, struct nd_bundle *bundle,
                                       struct nd_error *err)
{
    struct pack pack = {0};
    enum nd_status status = nd_dir_make(scratch, err);
    if (status == ND_OK)
        status = add_lines(&pack, folder, scratch, err);
    enum nd_status closed = close_packs(&pack, status == ND_OK ? err : NULL);
    status = status != ND_OK ? status : closed;
    if (status == ND_OK)
        status = add_script(&pack, scratch, bundle, err);
    ND_FREE_ALL(pack.files, pack.sizes);
    return status;
}

static const long poll_interval_ns = 200L * 1000 * 1000;
enum { SAID_BYTES = 1 << 20, EXPAND_LIMIT_S = 1800 };

/* ---- sending ---- */

/* Everything in a folder, and in those within it; but the inputs, which are packed. */
static enum nd_status collect_folder(struct nd_bundle *bundle, const char *folder, const char *prefix,
                                     struct nd_error *err)
{
    struct dirent *entry;
    ND_CLEANUP(nd_dir_close) DIR *list = opendir(folder);
    if (list == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, folder, "cannot open '%s': %s", folder, strerror(errno));
    while ((entry = readdir(list)) != NULL) {
        struct stat info;
        bool is_packed = prefix[0] == '\0' && strcmp(entry->d_name, "inputs") == 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_packed)
            continue;
        ND_FREED char *name = nd_text("%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", entry->d_name);
        ND_FREED char *path = nd_path_join(folder, entry->d_name);
        ND_TRY(name == NULL || path == NULL ? nd_fail_memory(err)
               : stat(path, &info) == 0 && S_ISDIR(info.st_mode)
                   ? collect_folder(bundle, path, name, err)
                   : nd_bundle_add(bundle, name, path, strcmp(name, "run.sh") == 0, err));
    }
    return ND_OK;
}

/* Flat: the loader looks for all of them in one folder. */
static enum nd_status collect_sdk(struct nd_bundle *bundle, const struct nd_runtime_info *sdk,
                                  struct nd_error *err)
{
    ND_TRY(nd_bundle_add(bundle, "qnn-net-run", sdk->net_run, true, err));
    for (size_t i = 0; i < sdk->n_files; i++)
        ND_TRY(nd_bundle_add(bundle, nd_path_base(sdk->files[i]), sdk->files[i], false, err));
    return ND_OK;
}

/* Cuts the inputs apart there. */
static enum nd_status expand(struct nd_remote *remote, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, remote->model.folder);
    nd_strbuf_puts(&text, " && sh ./expand.sh");
    ND_FREED char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command, .time_limit_s = EXPAND_LIMIT_S};
    ND_TRY(command != NULL ? nd_transport_run(remote->transport, &request, &reply, err) : nd_fail_memory(err));
    if (reply.exit_code != 0)
        return nd_fail(err, ND_E_DEVICE_PUSH, remote->label, "cannot lay out the inputs on device '%s': %s",
                       remote->label, reply.errors);
    return ND_OK;
}

static enum nd_status send(struct nd_remote *remote, const struct nd_prepared_run *run, struct nd_error *err)
{
    nd_bundle_deinit(&remote->model);
    nd_bundle_deinit(&remote->runtime);
    ND_TRY(collect_folder(&remote->model, run->folder, "", err));
    ND_TRY(nd_prepared_pack(run->folder, run->scratch, &remote->model, err));
    if (run->sdk != NULL)
        ND_TRY(collect_sdk(&remote->runtime, run->sdk, err));
    struct nd_bundle *const bundles[] = {&remote->model, &remote->runtime};
    ND_TRY(nd_bundles_place(bundles, run->sdk != NULL ? 2 : 1, remote->transport, remote->root,
                            &remote->free_bytes, err));
    return expand(remote, err);
}

/* ---- running ---- */

/* Starts run.sh apart from the link, once: it does no harm to send it twice. */
static char *start_command(const struct nd_remote *remote, const struct nd_prepared_run *run, const char *out)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "mkdir -p ");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text, " && cd ");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text, " || exit 1; if [ ! -f pid ]; then QNN_OUTPUT=");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text, "; export QNN_OUTPUT; ");
    if (run->sdk != NULL) {
        nd_strbuf_puts(&text, "QNN_FOLDER=");
        nd_shell_quote(&text, remote->runtime.folder);
        nd_strbuf_puts(&text, "; export QNN_FOLDER; unset QNN_NET_RUN; ");
    }
    nd_strbuf_puts(&text, "s=$(command -v setsid || command -v nohup); $s sh ");
    nd_shell_quote(&text, remote->model.folder);
    nd_strbuf_puts(&text, "/run.sh </dev/null >/dev/null 2>&1 & echo $! > pid; fi");
    return nd_strbuf_take(&text);
}

static void stop(struct nd_remote *remote, const char *out)
{
    struct nd_strbuf text = {0};
    struct nd_remote_reply reply = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text, " && p=$(cat pid) && kill -9 -$p $p 2>/dev/null; :");
    ND_FREED char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command};
    bool (*is_cancelled)(void *context) = remote->transport->is_cancelled;
    remote->transport->is_cancelled = NULL;
    if (command != NULL && nd_transport_run_once(remote->transport, &request, &reply, NULL) == ND_OK)
        nd_remote_reply_deinit(&reply);
    remote->transport->is_cancelled = is_cancelled;
}

static enum nd_status check_limits(const struct nd_remote *remote, const struct nd_prepared_run *run,
                                   struct nd_error *err)
{
    double limit_s = run->options->time_limit_s;
    if (nd_remote_tick((void *)(uintptr_t)remote))
        return nd_fail(err, ND_E_CANCELLED, remote->label, "device '%s' was stopped on request", remote->label);
    if (limit_s > 0 && (double)(nd_clock_awake_ns() - run->begun_ns) * 1e-9 > limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, remote->label,
                       "device '%s' was stopped after its time limit of %g s", remote->label, limit_s);
    return ND_OK;
}

static enum nd_status wait_for_end(struct nd_remote *remote, const struct nd_prepared_run *run, const char *out,
                                   int *exit_code, struct nd_error *err)
{
    /* "<exit code>", "running" or "gone". */
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text,
                   " || exit 1; if [ -f exit_code ]; then cat exit_code; elif kill -0 $(cat pid) 2>/dev/null; "
                   "then echo running; else sleep 1; cat exit_code 2>/dev/null || echo gone; fi");
    ND_FREED char *command = nd_strbuf_take(&text);
    enum nd_status status = command != NULL ? ND_OK : nd_fail_memory(err);
    for (bool has_ended = false; status == ND_OK && !has_ended;) {
        struct nd_remote_reply reply = {0};
        int64_t qvalue = 0;
        status = nd_transport_shell(remote->transport, command, &reply, err);
        char *word = status == ND_OK ? strtok(reply.out, " \r\n") : NULL;
        if (word != NULL && nd_parse_i64(word, &qvalue)) {
            *exit_code = (int)qvalue;
            has_ended = true;
        } else if (status == ND_OK && (word == NULL || strcmp(word, "running") != 0)) {
            status = nd_fail(err, ND_E_DEVICE_CRASH, remote->label,
                             "qnn-net-run on device '%s' vanished without an exit code", remote->label);
        }
        nd_remote_reply_deinit(&reply);
        if (status == ND_OK && !has_ended && (status = check_limits(remote, run, err)) == ND_OK)
            nanosleep(&(struct timespec){.tv_nsec = poll_interval_ns}, NULL);
    }
    if (status != ND_OK && command != NULL)
        stop(remote, out);
    return status;
}

static enum nd_status read_said(struct nd_remote *remote, const char *out, char **said, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, out);
    nd_strbuf_printf(&text, " && { cat stdout.txt stderr.txt 2>/dev/null | head -c %d; }; :", SAID_BYTES);
    ND_FREED char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command, .stdout_limit_bytes = SAID_BYTES + 1};
    ND_TRY(command != NULL ? nd_transport_run(remote->transport, &request, &reply, err) : nd_fail_memory(err));
    *said = nd_strdup(reply.out != NULL ? reply.out : "");
    return *said != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_prepared_run(struct nd_remote *remote, const struct nd_prepared_run *run, char **out,
                               int *exit_code, char **said, struct nd_error *err)
{
    remote->stage = "push";
    remote->is_watched = false;
    enum nd_status status = send(remote, run, err);
    nd_remote_explain_time(remote, err);
    if (status != ND_OK && err != NULL)
        status = err->status;
    remote->is_watched = true;
    ND_FREED char *folder = nd_text("%s/runs/net-run-%s", remote->root, remote->transport->nonce),
                  *start = NULL;
    if (status == ND_OK && (folder == NULL || (start = start_command(remote, run, folder)) == NULL))
        status = nd_fail_memory(err);
    remote->stage = "run";
    if (status == ND_OK)
        status = nd_transport_shell(remote->transport, start, NULL, err);
    if (status == ND_OK)
        status = wait_for_end(remote, run, folder, exit_code, err);
    if (status == ND_OK)
        status = read_said(remote, folder, said, err);
    if (status == ND_OK) {
        *out = folder;
        folder = NULL;
    }
    return status;
}

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
    ND_FREED char *text = reading_command(returned, sample, batch, first, last);
    const struct nd_remote_command command = {.text = text,
                                              .stdout_limit_bytes = batch->n * n_bytes + 1,
                                              .time_limit_s = 60 + (double)(batch->n * n_bytes) * 1e-6};
    ND_TRY_MEMORY(text != NULL, err);
    ND_TRY(nd_transport_run(returned->remote->transport, &command, &reply, err));
    size_t n_whole = 0;
    while (n_whole < batch->n && (n_whole + 1) * n_bytes <= reply.out_bytes) {
        memcpy(batch->rows + n_whole * batch->row_bytes + at, reply.out + n_whole * n_bytes, n_bytes);
        n_whole++;
    }
    if (n_whole < batch->n_whole)
        batch->n_whole = n_whole;
    if (reply.errors != NULL)
        reply.errors[strcspn(reply.errors, "\r\n")] = '\0'; /* the first line is the cause */
    if (reply.exit_code != 0 || reply.out_bytes != batch->n * n_bytes)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, label,
                       "result %zu of qnn-net-run on device '%s' is not whole: %s", batch->first + n_whole,
                       label, reply.errors != NULL && reply.errors[0] != '\0' ? reply.errors : "too few bytes");
    return ND_OK;
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
    for (size_t e = 0; e < sample->n; e++) {
        if (sample->output_of[e] != SIZE_MAX)
            continue;
        ND_FREED void *bytes = NULL;
        size_t n = 0;
        ND_FREED char *name = nd_prepare_input_path(returned->work, probe, index, sample->input_of[e]);
        ND_FREED char *path = name != NULL ? nd_path_join(prepared, name) : NULL;
        ND_TRY(path != NULL ? nd_file_read(path, sample->views[e].size_bytes, &bytes, &n, err)
                            : nd_fail_memory(err));
        memcpy(sample->data[e], bytes, n);
    }
    return ND_OK;
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
    ND_FREE_ITEMS(sample.data, sample.n);
    ND_FREE_ALL(sample.views, sample.pointers, sample.output_of, sample.input_of);
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
    ND_FREED char *path = nd_path_join(run->folder, "spool.nds");
    ND_TRY(path != NULL ? nd_dir_make(run->folder, err) : nd_fail_memory(err));
    ND_TRY(nd_spool_writer_open(&run->writer, path, err));
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
