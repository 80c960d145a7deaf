/* The inputs of a prepared folder as one file per input of the graph: thousands of small files would each cost
 * a command of the link. They are cut apart there. */
#include "record/qnn/prepare_remote.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/files/file.h"
#include "core/files/new_file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

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
    enum nd_status status =
        script != NULL && path != NULL ? nd_file_put(path, script, n, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_bundle_add(bundle, "expand.sh", path, true, err);
    for (size_t i = 0; status == ND_OK && i < pack->n; i++) {
        char *packed = pack_path(scratch, i);
        status = packed != NULL ? nd_bundle_add(bundle, nd_path_base(packed), packed, false, err)
                                : nd_fail_memory(err);
        free(packed);
    }
    return status;
}

/* prepare_remote.c: the inputs of the folder, packed, and the script that unpacks them there, into the bundle.
 */
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
    enum nd_status status = ND_OK;
    struct dirent *entry;
    DIR *list = opendir(folder);
    if (list == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, folder, "cannot open '%s': %s", folder, strerror(errno));
    while (status == ND_OK && (entry = readdir(list)) != NULL) {
        struct stat info;
        bool is_packed = prefix[0] == '\0' && strcmp(entry->d_name, "inputs") == 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_packed)
            continue;
        char *name = nd_text("%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", entry->d_name);
        char *path = nd_path_join(folder, entry->d_name);
        if (name == NULL || path == NULL)
            status = nd_fail_memory(err);
        else if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            status = collect_folder(bundle, path, name, err);
        else
            status = nd_bundle_add(bundle, name, path, strcmp(name, "run.sh") == 0, err);
        ND_FREE_ALL(name, path);
    }
    closedir(list);
    return status;
}

/* Flat: the loader looks for all of them in one folder. */
static enum nd_status collect_sdk(struct nd_bundle *bundle, const struct nd_runtime_info *sdk,
                                  struct nd_error *err)
{
    enum nd_status status = nd_bundle_add(bundle, "qnn-net-run", sdk->net_run, true, err);
    for (size_t i = 0; status == ND_OK && i < sdk->n_files; i++)
        status = nd_bundle_add(bundle, nd_path_base(sdk->files[i]), sdk->files[i], false, err);
    return status;
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

/* "<exit code>", "running" or "gone". */
static char *ask_command(const char *out)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, out);
    nd_strbuf_puts(&text,
                   " || exit 1; if [ -f exit_code ]; then cat exit_code; elif kill -0 $(cat pid) 2>/dev/null; "
                   "then echo running; else sleep 1; cat exit_code 2>/dev/null || echo gone; fi");
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
    ND_FREED char *command = ask_command(out);
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
    char *command = nd_strbuf_take(&text);
    const struct nd_remote_command request = {.text = command, .stdout_limit_bytes = SAID_BYTES + 1};
    enum nd_status status =
        command != NULL ? nd_transport_run(remote->transport, &request, &reply, err) : nd_fail_memory(err);
    free(command);
    if (status == ND_OK && (*said = nd_strdup(reply.out != NULL ? reply.out : "")) == NULL)
        status = nd_fail_memory(err);
    return status;
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
