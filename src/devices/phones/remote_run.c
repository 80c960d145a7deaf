#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "devices/phones/remote.h"
#include "devices/phones/remote_script.h"
#include "devices/phones/remote_session.h"
#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/record_fields.h"

enum { ID_DIGITS = 32 };
enum { MAX_BARREN_LOOKS = 30 }; /* that bring nothing of what is said to be there */
static const double start_limit_s = 20;
static const double stop_limit_s = 10; /* an agent within a driver that hangs cannot be killed */
static const double shortest_pause_s = 0.05, longest_pause_s = 1;

/* ---- commands ---- */

/* Runs a text of remote_script.h, which it frees. */
static enum nd_status do_script(struct nd_remote_session *session, char *text, struct nd_error *err)
{
    enum nd_status status =
        text != NULL ? nd_transport_shell(session->remote->transport, text, NULL, err) : nd_fail_memory(err);
    free(text);
    return status;
}

/* Without waiting for a link, and also after a cancellation: what it is for is over. */
static void do_last(struct nd_remote_session *session, char *text)
{
    struct nd_transport *transport = session->remote->transport;
    bool (*is_cancelled)(void *) = transport->is_cancelled;
    struct nd_remote_reply reply = {0};
    const struct nd_remote_command command = {.text = text};
    transport->is_cancelled = NULL;
    if (text != NULL)
        nd_transport_run_once(transport, &command, &reply, NULL);
    transport->is_cancelled = is_cancelled;
    nd_remote_reply_deinit(&reply);
    free(text);
}

/* ---- starting ---- */

/* The id: a digest of all that the run depends on. Whatever is called by its place in the store has its own
 * digest in its name. */
static enum nd_status name_folder(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    char job[ND_SHA256_HEX_BYTES], id[ND_SHA256_HEX_BYTES];
    enum nd_status status = nd_sha256_file(session->job, job, err);
    if (status != ND_OK)
        return status;
    nd_strbuf_printf(&text, "%s %s %s", job, session->agent, session->remote->runtime.folder);
    size_t n = text.len;
    char *all = nd_strbuf_take(&text);
    if (all == NULL)
        return nd_fail_memory(err);
    nd_sha256_bytes(all, n, id);
    free(all);
    nd_strbuf_printf(&text, "%s/runs/%.*s", session->remote->root, ID_DIGITS, id);
    session->folder = nd_strbuf_take(&text);
    return session->folder != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status write_files(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_job job;
    enum nd_status status = nd_remote_job_make(session->remote, session->run, &job, &session->agent, err);
    if (status != ND_OK)
        return status;
    status = nd_job_write(&job, session->job, err);
    nd_remote_job_free(&job);
    if (status == ND_OK)
        status = name_folder(session, err);
    if (status != ND_OK)
        return status;
    char *script = nd_script_run(session->folder, session->agent, session->remote->runtime.folder);
    status = script != NULL ? nd_file_put(session->script, script, strlen(script), err) : nd_fail_memory(err);
    free(script);
    return status;
}

static enum nd_status push_one(struct nd_remote_session *session, const char *local, const char *name,
                               struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    char *there = nd_path_join(session->folder, name);
    enum nd_status status = there != NULL ? nd_sha256_file(local, hex, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_transport_push(session->remote->transport, local, hex, there, false, err);
    free(there);
    return status;
}

static enum nd_status begin_anew(struct nd_remote_session *session, struct nd_error *err)
{
    enum nd_status status = do_script(session, nd_script_make(session->folder), err);
    if (status == ND_OK)
        status = push_one(session, session->job, "job.nds", err);
    if (status == ND_OK)
        status = push_one(session, session->script, "run.sh", err);
    if (status == ND_OK) {
        session->remote->stage = "start";
        status = do_script(session, nd_script_start(session->folder, false), err);
    }
    return status;
}

/* A run of that id that was left behind: it still runs, or is over, or was interrupted, or has failed, behind
 * whose last acknowledgement another agent tries again. What ran from a store that was damaged is not believed.
 */
static enum nd_status go_on(struct nd_remote_session *session, struct nd_error *err)
{
    const struct nd_remote *remote = session->remote;
    if (remote->agent.was_damaged || remote->runtime.was_damaged || remote->model.was_damaged)
        return begin_anew(session, err);
    session->is_holding = true; /* only its state, first */
    enum nd_status status = nd_remote_look(session, err);
    enum nd_run_state state = session->look.state;
    session->remote->stage = "push";
    session->is_holding = false;
    bool is_cut_short = state == ND_RUN_DEAD || state == ND_RUN_RESTARTED ||
                        (state == ND_RUN_ENDED && session->look.exit_code != 0 &&
                         session->look.exit_code != ND_AGENT_CANNOT_RESUME);
    if (status != ND_OK || state == ND_RUN_RUNNING || (state == ND_RUN_ENDED && session->look.exit_code == 0))
        return status;
    if (!is_cut_short)
        return begin_anew(session, err);
    session->is_holding = session->look.spool_bytes > 0;
    session->held_bytes = session->look.spool_bytes;
    status = do_script(session, nd_script_revive(session->folder), err);
    session->remote->stage = "start";
    return status == ND_OK ? do_script(session, nd_script_start(session->folder, true), err) : status;
}

/* ---- following ---- */

static bool is_over(const struct nd_remote_session *session)
{
    enum nd_run_state state = session->look.state;
    return state != ND_RUN_RUNNING && state != ND_RUN_MADE && !session->is_holding &&
           session->spool_bytes >= session->look.spool_bytes &&
           session->out_bytes >= session->look.stdout_bytes;
}

static bool has_more(const struct nd_remote_session *session)
{
    return !session->is_holding &&
           session->spool_bytes + session->out_bytes < session->look.spool_bytes + session->look.stdout_bytes;
}

/* Looks cost the machine something, and a slow link more. */
static void rest(const struct nd_remote_session *session, bool is_stopped)
{
    double pause_s = 3 * session->look_s;
    pause_s = pause_s < shortest_pause_s ? shortest_pause_s : pause_s;
    pause_s = pause_s > longest_pause_s ? longest_pause_s : pause_s;
    uint64_t turn_ns = 0;
    for (uint64_t begun_ns = nd_clock_ns(); (double)(nd_clock_ns() - begun_ns) * 1e-9 < pause_s;) {
        nd_clock_turn(&turn_ns);
        nd_watch_report(&session->watch);
        if (!is_stopped && nd_watch_is_cancelled(&session->watch))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 50L * 1000 * 1000}, NULL);
    }
    nd_clock_turn(&turn_ns);
}

static enum nd_status check_limits(const struct nd_remote_session *session, struct nd_error *err)
{
    if (session->look.state == ND_RUN_MADE && nd_watch_elapsed_s(&session->watch) > start_limit_s)
        return nd_fail(err, ND_E_DEVICE_START, session->run->device->label,
                       "the agent does not come up on device '%s'", session->run->device->label);
    return nd_watch_check(&session->watch, (size_t)(session->look.resident_pages * session->remote->page_bytes),
                          err);
}

/* A machine may say that it has more than it ever hands over: its tail or head may be none, its disk broken. */
static enum nd_status check_barren(const struct nd_remote_session *session, unsigned int n_barren,
                                   struct nd_error *err)
{
    if (n_barren < MAX_BARREN_LOOKS)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_COMMAND, session->run->device->label,
                   "device '%s' says that its run has written %llu bytes, and hands over no more than %llu; "
                   "'tail -c' and 'head -c' have to work there",
                   session->run->device->label,
                   (unsigned long long)(session->look.spool_bytes + session->look.stdout_bytes),
                   (unsigned long long)(session->spool_bytes + session->out_bytes));
}

/* Until the run is over, or *limits says that it was stopped. */
static enum nd_status follow(struct nd_remote_session *session, struct nd_error *limits, struct nd_error *err)
{
    unsigned int n_barren = 0;
    uint64_t stopped_ns = 0;
    for (;;) {
        uint64_t before = session->spool_bytes + session->out_bytes;
        enum nd_status status = nd_remote_look(session, err);
        nd_watch_follow(&session->watch);
        nd_watch_report(&session->watch);
        if (status != ND_OK || is_over(session))
            return status;
        if (limits->id == 0 && check_limits(session, limits) != ND_OK) {
            if (limits->id == ND_E_CANCELLED)
                return nd_fail(err, ND_E_CANCELLED, limits->object, "%s", limits->message);
            do_last(session, nd_script_stop(session->folder));
            stopped_ns = nd_clock_ns();
        }
        bool is_barren = has_more(session) && session->spool_bytes + session->out_bytes <= before;
        n_barren = is_barren ? n_barren + 1 : 0;
        if (limits->id != 0 && (double)(nd_clock_ns() - stopped_ns) * 1e-9 > stop_limit_s)
            return ND_OK;
        status = check_barren(session, n_barren, err);
        if (status != ND_OK)
            return status;
        if (!has_more(session) || is_barren)
            rest(session, limits->id != 0);
    }
}

/* ---- how it ended ---- */

/* " ; 37 of 100 samples are safe", where that can be said. */
static void describe_safe(const struct nd_remote_session *session, char *text, size_t size)
{
    const struct nd_watch *watch = &session->watch;
    uint64_t done = watch->samples_before + watch->samples_probe;
    if (session->run->job->n_passes == 1)
        snprintf(text, size, "; %llu of %zu samples are kept, and '--resume' continues after them",
                 (unsigned long long)done, watch->samples_total);
    else
        snprintf(text, size, "; the samples that arrived are kept, and '--resume' continues after them");
}

static void describe_end(const struct nd_remote_session *session, struct nd_agent_exit *exit)
{
    const char *label = session->run->device->label;
    int code = session->look.exit_code;
    char line[300], safe[120];
    if (session->look.state == ND_RUN_DEAD || session->look.state == ND_RUN_RESTARTED) {
        describe_safe(session, safe, sizeof safe);
        nd_fail(&exit->error, ND_E_DEVICE_CRASH, label, "the agent of device '%s' is gone: %s%s", label,
                session->look.state == ND_RUN_DEAD ? "it was killed" : "the device was restarted", safe);
        exit->can_resume = true;
    } else if (session->look.state == ND_RUN_NONE) {
        nd_fail(&exit->error, ND_E_DEVICE_CRASH, label, "the folder of the run on device '%s' is gone", label);
    } else if (code == ND_AGENT_CANNOT_STORE) {
        nd_file_last_line(session->out, line, sizeof line);
        nd_fail(&exit->error, ND_E_DEVICE_PUSH, label,
                "the agent of device '%s' cannot store its results there: is there no space? %s", label,
                nd_said(line));
    } else if (code == ND_AGENT_CANNOT_RESUME) {
        nd_file_last_line(session->out, line, sizeof line);
        nd_fail(&exit->error, ND_E_SPOOL_RESUME, label,
                "the run on device '%s' cannot be continued, and the next one starts from the beginning: %s",
                label, nd_said(line));
    } else if (code != 0 && session->spool_bytes == 0) {
        nd_file_last_line(session->out, line, sizeof line);
        nd_fail(&exit->error, ND_E_DEVICE_START, label,
                "the agent cannot be started on device '%s' (exit code %d): %s", label, code, nd_said(line));
        exit->stage = "start";
    } else if (code != 0) {
        nd_watch_describe_death(label, code, code > 128 && code < 128 + 65 ? code - 128 : 0, &exit->error);
    }
}

/* What stopped it from outside: the link, or something else of the device. */
static void describe_loss(const struct nd_remote_session *session, const struct nd_error *why,
                          struct nd_agent_exit *exit)
{
    char safe[120] = "";
    session->remote->is_lost = why->id == ND_E_LINK_LOST;
    exit->error = *why;
    exit->stage = session->is_started ? NULL : session->remote->stage;
    exit->can_resume = session->is_started && why->id == ND_E_LINK_LOST;
    if (exit->can_resume) {
        describe_safe(session, safe, sizeof safe);
        nd_fail(&exit->error, ND_E_LINK_LOST, session->run->device->label, "%s%s", why->message, safe);
    }
}

/* ---- one run ---- */

static enum nd_status open_session(struct nd_remote_session *session, struct nd_error *err)
{
    const char *folder = session->run->folder;
    session->job = nd_path_join(folder, "job.nds");
    session->script = nd_path_join(folder, "run.sh");
    session->spool = nd_path_join(folder, "spool.nds");
    session->out = nd_path_join(folder, "stdout.txt");
    if (session->job == NULL || session->script == NULL || session->spool == NULL || session->out == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_dir_make(folder, err);
    if (status != ND_OK)
        return status;
    session->spool_fd = open(session->spool, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    session->out_fd = open(session->out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (session->spool_fd < 0 || session->out_fd < 0)
        return nd_fail(err, ND_E_FILE_WRITE, folder, "cannot write into '%s': %s", folder, strerror(errno));
    return ND_OK;
}

static void close_session(struct nd_remote_session *session)
{
    nd_watch_end(&session->watch);
    if (session->spool_fd >= 0)
        close(session->spool_fd);
    if (session->out_fd >= 0)
        close(session->out_fd);
    free(session->folder);
    free(session->agent);
    free(session->job);
    free(session->script);
    free(session->spool);
    free(session->out);
}

static void clean_up(struct nd_remote_session *session, const struct nd_agent_exit *exit)
{
    struct nd_remote *remote = session->remote;
    if (remote->is_lost)
        return;
    if (session->folder != NULL && !exit->can_resume)
        do_last(session, nd_script_remove(session->folder));
    if (session->run->is_trial && remote->model.folder != NULL && !remote->model.was_there)
        do_last(session, nd_script_remove(remote->model.folder));
}

/* What the machine does not say stays unknown; that this one could not ask is an error. */
static enum nd_status ask_for_libraries(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = nd_remote_read_libraries(session->remote, session->spool, &why);
    if (status == ND_OK || nd_remote_is_of_device(&why))
        return ND_OK;
    *err = why;
    return status;
}

enum nd_status nd_remote_run(struct nd_remote *remote, const struct nd_remote_run *run,
                             struct nd_agent_exit *exit, struct nd_error *err)
{
    struct nd_remote_session session = {.remote = remote, .run = run, .spool_fd = -1, .out_fd = -1};
    struct nd_agent_exit ended = {0};
    struct nd_error why = {0}, limits = {0};
    remote->stage = "push";
    remote->is_watched = false;
    remote->is_quiet = run->is_trial;
    enum nd_status status = open_session(&session, &why);
    nd_watch_begin(&session.watch, run->options, run->device->label, session.spool, run->samples_total,
                   run->begun_ns);
    if (status == ND_OK)
        status = write_files(&session, &why);
    if (status == ND_OK)
        status = run->options->resume && !run->is_trial ? go_on(&session, &why) : begin_anew(&session, &why);
    session.is_started = status == ND_OK;
    session.watch.started_ns = session.watch.progress_ns = nd_clock_awake_ns(); /* not while it was sent */
    if (status == ND_OK) {
        remote->stage = NULL;
        remote->is_watched = true;
        status = follow(&session, &limits, &why);
    }
    /* Whenever it was noticed: nothing goes on there without anybody. What was cancelled can be gone on with.
     */
    if (why.id == ND_E_CANCELLED && session.folder != NULL)
        do_last(&session, nd_script_stop(session.folder));
    nd_remote_explain_time(remote, &why);
    if (status != ND_OK && nd_remote_is_of_device(&why)) {
        describe_loss(&session, &why, &ended);
        status = ND_OK;
    } else if (status == ND_OK && limits.id != 0) {
        ended.error = limits;
    } else if (status == ND_OK) {
        describe_end(&session, &ended);
    }
    ended.elapsed_s = nd_watch_elapsed_s(&session.watch);
    if (status == ND_OK && !run->is_trial && ended.error.id != ND_E_LINK_LOST)
        status = ask_for_libraries(&session, &why);
    remote->is_quiet = false;
    if (status == ND_OK)
        clean_up(&session, &ended);
    close_session(&session);
    if (status == ND_OK)
        *exit = ended;
    else if (err != NULL)
        *err = why;
    return status;
}
