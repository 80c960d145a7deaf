/* A machine elsewhere on which an agent runs: reached, asked what it is, and left. remote.h says what lies
 * there. */
#include "devices/phones/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

enum { DAYS_KEPT = 30 };

bool nd_remote_is_of_device(const struct nd_error *err)
{
    return err->id != ND_E_TRANSPORT_TOOL && err->id != ND_E_FLEET && err->id != ND_E_CANCELLED &&
           err->status != ND_ERR_MEMORY && err->id != ND_E_FILE_WRITE && !nd_file_is_unopened(err) &&
           err->id != ND_E_FILE_READ;
}

static const uint64_t report_interval_ns = 50u * 1000 * 1000;

bool nd_remote_tick(void *context)
{
    struct nd_remote *remote = context;
    const struct nd_capture_options *options = remote->options;
    uint64_t now = nd_clock_awake_ns();
    if (options->progress != NULL && remote->stage != NULL && !remote->is_quiet &&
        now - remote->reported_ns >= report_interval_ns) {
        remote->reported_ns = now;
        const struct nd_capture_progress progress = {
            .device = remote->label,
            .stage = remote->stage,
            .elapsed_s = (double)(now - remote->begun_ns) * 1e-9,
        };
        options->progress(options->progress_context, &progress);
    }
    if (!remote->is_watched && options->time_limit_s > 0 &&
        (double)(now - remote->begun_ns) * 1e-9 > options->time_limit_s)
        remote->is_out_of_time = true;
    return remote->is_out_of_time ||
           (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context));
}

void nd_remote_explain_time(const struct nd_remote *remote, struct nd_error *err)
{
    if (err != NULL && err->id == ND_E_CANCELLED && remote->is_out_of_time)
        nd_fail(err, ND_E_DEVICE_TIME, remote->label,
                "device '%s' was stopped after its time limit of %g s, in which nothing had run yet",
                remote->label, remote->options->time_limit_s);
}

/* ---- opening ---- */

/* Makes the folder and prints its path, the size of a page, and what df says of it. A folder in a place that
 * all may write to must be this user's own. */
static const char facts_command[] =
    "r=$NPUDIFF_DEVICE_FOLDER; o=:; if [ -z \"$r\" ]; then if [ -d /data/local/tmp ]; then "
    "r=/data/local/tmp/npudiff; else r=${TMPDIR:-/tmp}/npudiff-$(id -u); o='[ -O . ]'; fi; fi; mkdir -p "
    "\"$r/store\" \"$r/runs\" && cd \"$r\" || exit 1; eval \"$o\" || { echo \"$r belongs to somebody else\" "
    ">&2; exit 1; }; chmod 700 .; pwd; getconf PAGESIZE 2>/dev/null || echo 4096; df -Pk . | tail -n 1";

/* In KiB: the word before that with the per cent. */
static bool parse_df(char *line, uint64_t *free_bytes)
{
    char *rest = line, *word;
    uint64_t last = 0, number;
    bool has_last = false;
    while ((word = strsep(&rest, " \t")) != NULL) {
        size_t n = strlen(word);
        if (n == 0)
            continue;
        if (word[n - 1] == '%' && has_last) {
            *free_bytes = last << 10;
            return true;
        }
        has_last = nd_parse_u64(word, &number);
        last = has_last ? number : 0;
    }
    return false;
}

static enum nd_status read_facts(struct nd_remote *remote, struct nd_error *err)
{
    struct nd_remote_reply reply = {0};
    enum nd_status status = nd_transport_shell(remote->transport, facts_command, &reply, err);
    if (status != ND_OK) {
        nd_error_context(err, "cannot make a folder on device '%s'", remote->label);
        return status;
    }
    char *rest = reply.out;
    const char *root = strsep(&rest, "\n");
    const char *page = rest != NULL ? strsep(&rest, "\n") : NULL;
    char *df = rest != NULL ? strsep(&rest, "\n") : NULL;
    if (page == NULL || root[0] != '/' || !nd_parse_u64(page, &remote->page_bytes))
        status = nd_fail(err, ND_E_DEVICE_CONNECT, remote->label,
                         "device '%s' does not answer as a shell of Linux or Android does", remote->label);
    else if ((remote->root = nd_strdup(root)) == NULL)
        status = nd_fail_memory(err);
    else if (df == NULL || !parse_df(df, &remote->free_bytes))
        remote->free_bytes = UINT64_MAX; /* it does not say: then a push that fails does */
    nd_remote_reply_deinit(&reply);
    return status;
}

/* A mark in the folder of the runs, so that nobody cleans it while this host is at work. */
static enum nd_status sign_in(struct nd_remote *remote, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, remote->root);
    nd_strbuf_printf(&text, " && mkdir -p runs/.%s", remote->transport->nonce);
    ND_FREED char *command = nd_strbuf_take(&text);
    return command != NULL ? nd_transport_shell(remote->transport, command, NULL, err) : nd_fail_memory(err);
}

enum nd_status nd_remote_open(struct nd_remote *remote, const struct nd_device *device,
                              const struct nd_capture_options *options, struct nd_error *err)
{
    struct nd_capture_options watched = *options;
    watched.is_cancelled = nd_remote_tick;
    watched.cancel_context = remote;
    *remote = (struct nd_remote){
        .options = options, .label = device->label, .stage = "connect", .begun_ns = nd_clock_awake_ns()};
    enum nd_status status =
        nd_transport_open(device->transport, device->address, &watched, &remote->transport, err);
    if (status == ND_OK)
        status = nd_device_facts_read(remote->transport, &remote->device_facts, err);
    if (status == ND_OK) {
        status = read_facts(remote, err);
        if (status == ND_OK)
            status = sign_in(remote, err);
        if (status != ND_OK)
            nd_device_facts_deinit(&remote->device_facts);
    }
    nd_remote_explain_time(remote, err);
    if (status != ND_OK) {
        status = err != NULL ? err->status : status;
        nd_remote_close(remote);
    }
    return status;
}

/* ---- closing ---- */

/* Either everything goes, where no run and no other host is left, or sets of files that nothing has used for
 * long and runs that nobody went on with. A mark that is a day old is of a host that died. */
static char *closing_command(const struct nd_remote *remote)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, remote->root);
    bool cleans = remote->options->clean_device;
    nd_strbuf_printf(&text, " && { rmdir runs/.%s; ", remote->transport->nonce);
    if (cleans)
        nd_strbuf_puts(&text, "find runs -mindepth 1 -maxdepth 1 -name '.*' -mtime +0 -exec rmdir {} \\; ; "
                              "rmdir runs && rm -rf store && cd / && rmdir ");
    else
        nd_strbuf_printf(&text,
                         "for c in $(find store -mindepth 2 -maxdepth 2 -name .complete -mtime +%d); do rm -rf "
                         "\"${c%%/.complete}\"; done; for r in $(find runs -mindepth 1 -maxdepth 1 -mtime "
                         "+%d); do rm -rf \"$r\"; done",
                         DAYS_KEPT, DAYS_KEPT);
    if (cleans)
        nd_shell_quote(&text, remote->root);
    nd_strbuf_puts(&text, "; }");
    return nd_strbuf_take(&text);
}

void nd_remote_close(struct nd_remote *remote)
{
    bool is_there = remote->root != NULL && remote->transport != NULL && !remote->is_lost;
    char *command = is_there ? closing_command(remote) : NULL;
    if (command != NULL) {
        /* A machine that is gone is not waited for any more. */
        struct nd_remote_reply reply = {0};
        const struct nd_remote_command request = {.text = command};
        remote->transport->is_cancelled = NULL;
        nd_transport_run_once(remote->transport, &request, &reply, NULL);
        nd_remote_reply_deinit(&reply);
    }
    free(command);
    if (remote->root != NULL)
        nd_device_facts_deinit(&remote->device_facts);
    nd_bundle_deinit(&remote->agent);
    nd_bundle_deinit(&remote->runtime);
    nd_bundle_deinit(&remote->model);
    nd_remote_free_libraries(remote);
    nd_transport_close(&remote->transport);
    free(remote->root);
    *remote = (struct nd_remote){0};
}
