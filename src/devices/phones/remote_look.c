/* How a run elsewhere is, and the copy of its spool that grows here. */
#include "core/memory.h"
#include "devices/phones/remote.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "devices/agent/confine.h"
#include "devices/agent/spool/job_file.h"
#include "devices/phones/transport.h"

/* What is printed beyond that is dropped; the agent must not stop for it. */
enum { MAX_PRINTED = 8 << 20 };

/* run.sh: starts the agent with what its libraries need, and keeps its process ids, its output and its exit
 * code in the folder. The agent works in the folder work/ below, the only one that it can change: no link that
 * it leaves is in the way of the script. libraries: the folder of the runtime there. */
static char *nd_script_run(const char *folder, const char *agent, const char *libraries)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "# Written by npudiff. Arguments: those of the agent.\ncd ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, " || exit 1\nlibraries=");
    nd_shell_quote(&text, libraries);
    nd_strbuf_puts(&text, "\nagent=");
    nd_shell_quote(&text, agent);
    const char *confine = getenv(ND_CONFINE_VARIABLE); /* the agent reads it there */
    if (confine != NULL && strcmp(confine, ND_CONFINE_OFF) == 0)
        nd_strbuf_puts(&text, "\nexport " ND_CONFINE_VARIABLE "=" ND_CONFINE_OFF);
    nd_strbuf_printf(
        &text,
        "\nulimit -c 0\n"
        "echo \"$$ $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" > pid.part && mv pid.part pid\n"
        "{\n"
        "  LD_LIBRARY_PATH=\"$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" \\\n"
        "  ADSP_LIBRARY_PATH=\"$libraries;/system/lib/rfsa/adsp;/vendor/lib/rfsa/adsp;/dsp\" \\\n"
        "  sh -c 'echo $$ > agent.pid; cd work || exit 1; exec $NPUDIFF_LAUNCHER \"$0\" \"$@\"' \"$agent\" "
        "\"$@\"\n"
        "  echo $? > exit.part\n"
        "} < /dev/null 2>&1 | { head -c %d; cat > /dev/null; } >> stdout.txt\n"
        "mv exit.part exit\n",
        MAX_PRINTED);
    return nd_strbuf_take(&text);
}

/* "cd FOLDER", whose failure is up to what follows. */
static void enter(struct nd_strbuf *text, const char *folder)
{
    nd_strbuf_puts(text, "cd ");
    nd_shell_quote(text, folder);
}

/* The group of run.sh; where there is no setsid, its processes. A process id that a restart made another's is
 * not touched. */
static void add_stop(struct nd_strbuf *text)
{
    nd_strbuf_puts(text,
                   "if [ -f pid ]; then read p b < pid; a=; [ -f agent.pid ] && read a < agent.pid; "
                   /* A file that is not whole may hold 1, and -1 is everybody. */
                   "case $p in ''|*[!0-9]*|0|1) p=;; esac; case $a in *[!0-9]*|0|1) a=;; esac; "
                   "if [ -n \"$p\" ] && [ \"$b\" = \"$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" ] && "
                   "[ ! -f exit ]; then kill -9 -$p $p $a 2>/dev/null; fi; fi; ");
}

/* Makes the folder of a run anew: what was there is stopped and goes. */
static char *nd_script_make(const char *folder)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "if ");
    enter(&text, folder);
    nd_strbuf_puts(&text, " 2>/dev/null; then ");
    add_stop(&text);
    nd_strbuf_puts(&text, "cd /; fi; rm -rf ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, " && mkdir -p ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, "/work");
    return nd_strbuf_take(&text);
}

/* Prepares the folder of a run that died for the agent that goes on with it. */
static char *nd_script_revive(const char *folder)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(&text, " && { ");
    add_stop(&text);
    nd_strbuf_puts(&text, "rm -rf started pid agent.pid exit exit.part; }");
    return nd_strbuf_take(&text);
}

/* Starts run.sh, once; it goes on without the link. */
static char *nd_script_start(const char *folder, bool is_resuming)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_printf(&text,
                     " || exit 1; [ -d started ] && exit 0; mkdir started || exit 1; s=$(command -v setsid); "
                     "$s sh run.sh %s../job.nds spool.nds < /dev/null > /dev/null 2>&1 &",
                     is_resuming ? "--resume " : "");
    return nd_strbuf_take(&text);
}

char *nd_script_stop(const char *folder)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(&text, " 2>/dev/null || exit 0; ");
    add_stop(&text);
    nd_strbuf_puts(&text, ":");
    return nd_strbuf_take(&text);
}

static char *nd_script_remove(const char *folder)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "rm -rf ");
    nd_shell_quote(&text, folder);
    return nd_strbuf_take(&text);
}

/* Sets the variable `to` to how many bytes after the offset are sent now, of `from` in all. The arithmetic of
 * mksh, Android's shell, has 32 bits: millions and the rest are reckoned with apart. */
static void add_piece(struct nd_strbuf *text, char to, char from, uint64_t offset, size_t max)
{
    const uint64_t million = 1000000;
    assert(max < 1000 * million);
    nd_strbuf_printf(text,
                     "case $%c in ???????*) h=${%c%%??????}; l=1${%c#$h};; *) h=0; l=$((1000000+%c));; esac; "
                     "h=$((h-%llu)); if [ $h -gt 1000 ]; then %c=%zu; elif [ $h -lt -1 ]; then %c=0; else "
                     "%c=$((h*1000000+l-%llu)); [ $%c -gt %zu ] && %c=%zu; [ $%c -lt 0 ] && %c=0; fi; ",
                     from, from, from, from, (unsigned long long)(offset / million), to, max, to, to,
                     (unsigned long long)(million + offset % million), to, max, to, max, to, to);
}

char *nd_script_look(const char *folder, uint64_t spool_offset, size_t max_spool, uint64_t stdout_offset,
                     size_t max_stdout)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(
        &text,
        " 2>/dev/null || { echo none 0 0 0 0 0; exit 0; }; "
        "e=made; a=0; p=; b=; [ -f pid ] && read p b < pid; [ -f agent.pid ] && read a < agent.pid; "
        "if [ -f exit ]; then read e < exit; elif [ -n \"$p\" ]; then e=running; "
        /* A dead process may wait for ever for somebody to take note of it. */
        "s=$(cat /proc/$p/stat 2>/dev/null); case \"$s\" in ''|*') Z '*) e=dead;; esac; "
        "[ \"$b\" = \"$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" ] || e=restarted; "
        "if [ $e != running ] && [ -f exit ]; then read e < exit; fi; fi; "
        "m=0; [ -r /proc/$a/statm ] && read x m y < /proc/$a/statm; "
        "m=${m:-0}; " /* it may be gone before it is read */
        "n=0; [ -f work/spool.nds ] && [ ! -L work/spool.nds ] && set -- $(wc -c < work/spool.nds) && n=$1; "
        "o=0; [ -f stdout.txt ] && set -- $(wc -c < stdout.txt) && o=$1; ");
    add_piece(&text, 'k', 'n', spool_offset, max_spool);
    add_piece(&text, 'j', 'o', stdout_offset, max_stdout);
    nd_strbuf_printf(&text,
                     "echo \"$e $m $n $o $k $j\"; [ $k -gt 0 ] && { tail -c +%llu work/spool.nds | head -c $k; "
                     "}; [ $j -gt 0 ] && { tail -c +%llu stdout.txt | head -c $j; }; :",
                     (unsigned long long)spool_offset + 1, (unsigned long long)stdout_offset + 1);
    return nd_strbuf_take(&text);
}

bool nd_run_look_parse(const char *answer, size_t n, struct nd_run_look *out)
{
    static const struct {
        const char *word;
        enum nd_run_state state;
    } words[] = {{"none", ND_RUN_NONE},
                 {"made", ND_RUN_MADE},
                 {"running", ND_RUN_RUNNING},
                 {"dead", ND_RUN_DEAD},
                 {"restarted", ND_RUN_RESTARTED}};
    struct nd_run_look look = {.state = ND_RUN_ENDED};
    unsigned long long pages, spool_bytes, stdout_bytes;
    char word[16];
    const char *end = memchr(answer, '\n', n);
    if (end == NULL || sscanf(answer, "%15s %llu %llu %llu %zu %zu", word, &pages, &spool_bytes, &stdout_bytes,
                              &look.n_spool, &look.n_stdout) != 6)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i].word) == 0)
            look.state = words[i].state;
    if (look.state == ND_RUN_ENDED && sscanf(word, "%d", &look.exit_code) != 1)
        return false;
    look.resident_pages = pages;
    look.spool_bytes = spool_bytes;
    look.stdout_bytes = stdout_bytes;
    look.bytes = end + 1;
    *out = look;
    return true;
}

enum { ID_DIGITS = 32 };
enum { MAX_BARREN_LOOKS = 30 }; /* that bring nothing of what is said to be there */
static const double start_limit_s = 20;
static const double stop_limit_s = 10; /* an agent within a driver that hangs cannot be killed */
static const double shortest_pause_s = 0.05, longest_pause_s = 1;

/* ---- commands ---- */

/* Runs a text of nd_script_look, which it frees. */
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
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    const struct nd_remote_command command = {.text = text};
    transport->is_cancelled = NULL;
    if (text != NULL)
        nd_transport_run_once(transport, &command, &reply, NULL);
    transport->is_cancelled = is_cancelled;
    free(text);
}

/* ---- starting ---- */

/* The id: a digest of all that the run depends on. Whatever is called by its place in the store has its own
 * digest in its name. */
static enum nd_status name_folder(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    char job[ND_SHA256_HEX_BYTES], id[ND_SHA256_HEX_BYTES];
    ND_TRY(nd_sha256_file(session->job, job, err));
    nd_strbuf_printf(&text, "%s %s %s", job, session->agent, session->remote->runtime.folder);
    size_t n = text.len;
    ND_FREED char *all = nd_strbuf_take(&text);
    ND_TRY_MEMORY(all != NULL, err);
    nd_sha256_bytes(all, n, id);
    nd_strbuf_printf(&text, "%s/runs/%.*s", session->remote->root, ID_DIGITS, id);
    session->folder = nd_strbuf_take(&text);
    return session->folder != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status write_files(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_agent_job job;
    ND_TRY(nd_remote_job_make(session->remote, session->run, &job, &session->agent, err));
    enum nd_status status = nd_job_write(&job, session->job, err);
    nd_remote_job_free(&job);
    if (status == ND_OK)
        status = name_folder(session, err);
    if (status != ND_OK)
        return status;
    ND_FREED char *script = nd_script_run(session->folder, session->agent, session->remote->runtime.folder);
    status = script != NULL ? nd_file_put(session->script, script, strlen(script), err) : nd_fail_memory(err);
    return status;
}

static enum nd_status push_one(struct nd_remote_session *session, const char *local, const char *name,
                               struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    ND_FREED char *there = nd_path_join(session->folder, name);
    ND_TRY(there != NULL ? nd_sha256_file(local, hex, err) : nd_fail_memory(err));
    return nd_transport_push(session->remote->transport, local, hex, there, false, err);
}

static enum nd_status begin_anew(struct nd_remote_session *session, struct nd_error *err)
{
    ND_TRY(do_script(session, nd_script_make(session->folder), err));
    ND_TRY(push_one(session, session->job, "job.nds", err));
    ND_TRY(push_one(session, session->script, "run.sh", err));
    session->remote->stage = "start";
    return do_script(session, nd_script_start(session->folder, false), err);
}

/* A run of that id that was left behind: it still runs, or is over, or was interrupted, or has failed, behind
 * whose last acknowledgement another agent tries again. What ran from a damaged store is not believed. */
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
    ND_TRY_MEMORY(
        session->job != NULL && session->script != NULL && session->spool != NULL && session->out != NULL, err);
    ND_TRY(nd_dir_make(folder, err));
    session->spool_fd = open(session->spool, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    session->out_fd = open(session->out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (session->spool_fd < 0 || session->out_fd < 0)
        return nd_fail(err, ND_E_FILE_WRITE, folder, "cannot write into '%s': %s", folder, strerror(errno));
    return ND_OK;
}

static void close_session(struct nd_remote_session *session)
{
    nd_watch_end(&session->watch);
    nd_fd_close(&session->spool_fd);
    nd_fd_close(&session->out_fd);
    ND_FREE_ALL(session->folder, session->agent, session->job, session->script, session->spool, session->out);
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
    /* Whenever it was noticed: nothing goes on there alone. What was cancelled can be gone on with. */
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

enum { MAX_SPOOL_PIECE = 4 << 20, MAX_STDOUT_PIECE = 256 << 10, MAX_HEAD = 4096 };

/* The copy begins anew, as the spool there does. */
static enum nd_status forget_copy(struct nd_remote_session *session, struct nd_error *err)
{
    if (ftruncate(session->spool_fd, 0) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, session->spool, "cannot cut '%s': %s", session->spool,
                       strerror(errno));
    session->spool_bytes = 0;
    nd_spool_follower_close(&session->watch.follower);
    session->watch.follower = (struct nd_spool_follower){.fd = -1};
    session->watch.samples_before = 0;
    session->watch.samples_probe = 0;
    return ND_OK;
}

/* Takes over what came, also of an answer that broke off: bytes of a spool never change. */
static enum nd_status take_bytes(struct nd_remote_session *session, const char *answer, size_t n,
                                 struct nd_error *err)
{
    const struct nd_run_look *look = &session->look;
    size_t left = n - (size_t)(look->bytes - answer);
    size_t n_spool = look->n_spool < left ? look->n_spool : left;
    size_t n_out = look->n_stdout < left - n_spool ? look->n_stdout : left - n_spool;
    ND_TRY(nd_file_write_all(session->spool_fd, look->bytes, n_spool, session->spool, err));
    ND_TRY(nd_file_write_all(session->out_fd, look->bytes + n_spool, n_out, session->out, err));
    session->spool_bytes += n_spool;
    session->out_bytes += n_out;
    return ND_OK;
}

/* An agent that goes on first cuts the spool back; until it has written there, its bytes may still change. */
static enum nd_status release(struct nd_remote_session *session, struct nd_error *err)
{
    const struct nd_run_look *look = &session->look;
    if (session->is_holding && (look->spool_bytes != session->held_bytes || look->state == ND_RUN_ENDED))
        session->is_holding = false;
    /* A machine that died may have lost what is here already. */
    bool is_cut = look->state == ND_RUN_RUNNING || look->state == ND_RUN_ENDED;
    return is_cut && look->spool_bytes < session->spool_bytes ? forget_copy(session, err) : ND_OK;
}

static enum nd_status look_once(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_remote_reply reply = {0};
    struct nd_error local = {0}, ignored = {0};
    uint64_t begun_ns = nd_clock_ns();
    char *text =
        nd_script_look(session->folder, session->spool_bytes, session->is_holding ? 0 : MAX_SPOOL_PIECE,
                       session->out_bytes, MAX_STDOUT_PIECE);
    ND_TRY_MEMORY(text != NULL, err);
    const struct nd_remote_command command = {
        .text = text, .stdout_limit_bytes = MAX_SPOOL_PIECE + MAX_STDOUT_PIECE + MAX_HEAD};
    enum nd_status status = nd_transport_run_once(session->remote->transport, &command, &reply, &local);
    free(text);
    bool is_understood = reply.out_bytes > 0 && nd_run_look_parse(reply.out, reply.out_bytes, &session->look);
    if (is_understood) {
        enum nd_status taken =
            take_bytes(session, reply.out, reply.out_bytes, status == ND_OK ? &local : &ignored);
        status = status == ND_OK ? taken : status;
        session->look.bytes = NULL;
    } else if (status == ND_OK) {
        status =
            nd_fail(&local, ND_E_DEVICE_COMMAND, session->run->device->label,
                    "device '%s' does not say how its run is: '%.80s'", session->run->device->label, reply.out);
    }
    nd_remote_reply_deinit(&reply);
    session->look_s = (double)(nd_clock_ns() - begun_ns) * 1e-9;
    if (status == ND_OK)
        status = release(session, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    return status;
}

enum nd_status nd_remote_look(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_error local = {0};
    enum nd_status status = look_once(session, &local);
    uint64_t lost_ns = nd_clock_ns();
    while (status != ND_OK && local.id == ND_E_LINK_LOST) {
        nd_watch_follow(&session->watch);
        snprintf(session->watch.stage, sizeof session->watch.stage, "link lost");
        session->remote->stage = "link lost";
        if ((double)(nd_clock_ns() - lost_ns) * 1e-9 > session->run->options->link_limit_s)
            break;
        status = nd_transport_reconnect(session->remote->transport, &local);
        if (status != ND_OK)
            break;
        status = look_once(session, &local);
        session->watch.progress_ns = nd_clock_awake_ns();
        if (status == ND_OK)
            snprintf(session->watch.stage, sizeof session->watch.stage, "run");
    }
    session->remote->stage = NULL;
    if (status != ND_OK && err != NULL)
        *err = local;
    return status;
}
