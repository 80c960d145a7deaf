/* The user's own list of phones and boards (docs/reference/fleet.md), and who may use one now: the places of a
 * host, and the command that leases a device. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/processes/parallel.h"
#include "core/processes/process.h"
#include "core/text/strbuf.h"
#include "devices/phones/fleet.h"
#include "devices/phones/remote.h"
#include "devices/phones/transport.h"
#include "npudiff/core/parse.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_CAPTURES = 1000 };
static const double default_lease_limit_s = 600; /* chosen */
static const double longest_lease_limit_s = 7 * 24 * 3600;

/* The root as the file has it. */
struct raw_fleet {
    struct nd_fleet fleet;
    const yaml_node_t *hosts, *devices;
};

struct reading {
    struct nd_yaml yaml;
    struct nd_fleet *fleet;
    struct nd_error *err;
};

void nd_fleet_deinit(struct nd_fleet *fleet)
{
    for (size_t i = 0; i < fleet->n_hosts; i++)
        free(fleet->hosts[i].name);
    for (size_t i = 0; i < fleet->n_devices; i++) {
        ND_FREE_ALL(fleet->devices[i].device, fleet->devices[i].host);
        nd_texts_deinit(&fleet->devices[i].labels);
    }
    ND_FREE_ALL(fleet->hosts, fleet->devices);
    nd_texts_deinit(&fleet->lease);
    ND_FREE_ALL(fleet->locks, fleet->path);
    *fleet = (struct nd_fleet){0};
}

/* ---- reading ---- */

static const struct nd_fleet_host *find_host(const struct nd_fleet *fleet, const char *name)
{
    return nd_find_text(fleet->hosts, fleet->n_hosts, sizeof *fleet->hosts, name);
}

static enum nd_status read_host(struct reading *r, const yaml_node_t *node)
{
    static const struct nd_yaml_key keys[] = {
        {"name", ND_YAML_TEXT, offsetof(struct nd_fleet_host, name), 0, 0, true},
        {"captures", ND_YAML_COUNT, offsetof(struct nd_fleet_host, captures), 1, MAX_CAPTURES, false},
    };
    static const struct nd_yaml_kind kind = {"a host", keys, COUNT(keys)};
    struct nd_fleet_host *host = &r->fleet->hosts[r->fleet->n_hosts];
    enum nd_status status = nd_yaml_map(&r->yaml, node, &kind, host, r->err);
    if (status == ND_OK && find_host(r->fleet, host->name) != NULL)
        status = nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is a second host '%s'", host->name);
    if (status == ND_OK)
        r->fleet->n_hosts++;
    else
        free(host->name);
    return status;
}

/* One machine and nothing that runs there: that follows the label. */
static enum nd_status check_uri(struct reading *r, const yaml_node_t *node, const char *uri)
{
    struct nd_remote_uri parts = {0};
    if (nd_uri_is_remote(uri)) {
        enum nd_status status = nd_remote_uri_parse(uri, &parts, r->err);
        if (status != ND_OK)
            return nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "%s",
                                r->err != NULL ? r->err->message : "");
    }
    bool is_one = parts.address != NULL && parts.rest[0] == '\0' &&
                  (parts.transport != ND_TRANSPORT_ADB ||
                   (nd_adb_serial_length(parts.address) > 0 && parts.address[0] != '*'));
    nd_remote_uri_deinit(&parts);
    if (is_one)
        return ND_OK;
    return nd_yaml_fail(&r->yaml, &node->start_mark, r->err,
                        "'%s' is not one phone or board: write 'adb:SERIAL', 'adb:SERIAL@HOST:PORT' or "
                        "'ssh:HOST', and nothing after it",
                        uri);
}

static enum nd_status check_labels(struct reading *r, const yaml_node_t *node, const struct nd_texts *labels)
{
    for (size_t i = 0; i < labels->n; i++)
        if (labels->items[i][strcspn(labels->items[i], "/?@, \t")] != '\0')
            return nd_yaml_fail(&r->yaml, &node->start_mark, r->err,
                                "the label '%s' holds one of '/', '?', '@', ',' or a blank", labels->items[i]);
    return ND_OK;
}

static enum nd_status read_device(struct reading *r, const yaml_node_t *node)
{
    static const struct nd_yaml_key keys[] = {
        {"device", ND_YAML_TEXT, offsetof(struct nd_fleet_device, device), 0, 0, true},
        {"host", ND_YAML_TEXT, offsetof(struct nd_fleet_device, host), 0, 0, false},
        {"labels", ND_YAML_TEXTS, offsetof(struct nd_fleet_device, labels), 0, 0, false},
    };
    static const struct nd_yaml_kind kind = {"a device", keys, COUNT(keys)};
    struct nd_fleet_device *device = &r->fleet->devices[r->fleet->n_devices++];
    ND_TRY(nd_yaml_map(&r->yaml, node, &kind, device, r->err));
    ND_TRY(check_uri(r, node, device->device));
    ND_TRY(check_labels(r, node, &device->labels));
    if (device->host != NULL && find_host(r->fleet, device->host) == NULL)
        ND_TRY(nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is no host '%s' in 'hosts'",
                            device->host));
    for (size_t i = 0; i + 1 < r->fleet->n_devices; i++)
        if (strcmp(r->fleet->devices[i].device, device->device) == 0)
            ND_TRY(nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is a second device '%s'",
                                device->device));
    return ND_OK;
}

/* The items of the list, each by read_item, into *items. */
static enum nd_status read_list(struct reading *r, const yaml_node_t *node, const char *what, void **items,
                                size_t item_bytes,
                                enum nd_status (*read_item)(struct reading *, const yaml_node_t *))
{
    size_t n = 0;
    enum nd_status status = nd_yaml_list(&r->yaml, node, what, &n, r->err);
    if (status == ND_OK && (*items = nd_calloc(n, item_bytes)) == NULL)
        status = nd_fail_memory(r->err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = read_item(r, nd_yaml_item(&r->yaml, node, i));
    return status;
}

static enum nd_status read_root(struct reading *r)
{
    static const struct nd_yaml_key keys[] = {
        {"devices", ND_YAML_NODE, offsetof(struct raw_fleet, devices), 0, 0, true},
        {"hosts", ND_YAML_NODE, offsetof(struct raw_fleet, hosts), 0, 0, false},
        {"locks", ND_YAML_TEXT, offsetof(struct raw_fleet, fleet.locks), 0, 0, false},
        {"lease", ND_YAML_TEXTS, offsetof(struct raw_fleet, fleet.lease), 0, 0, false},
        {"lease-limit", ND_YAML_REAL, offsetof(struct raw_fleet, fleet.lease_limit_s), 1, longest_lease_limit_s,
         false},
    };
    const struct nd_yaml_kind kind = {"the fleet", keys, COUNT(keys)};
    struct raw_fleet raw = {.fleet.lease_limit_s = default_lease_limit_s};
    ND_TRY(nd_yaml_map(&r->yaml, nd_yaml_root(&r->yaml), &kind, &raw, r->err));
    r->fleet->locks = raw.fleet.locks;
    r->fleet->lease = raw.fleet.lease;
    r->fleet->lease_limit_s = raw.fleet.lease_limit_s;
    if (raw.hosts != NULL)
        ND_TRY(
            read_list(r, raw.hosts, "'hosts'", (void **)&r->fleet->hosts, sizeof *r->fleet->hosts, read_host));
    return read_list(r, raw.devices, "'devices'", (void **)&r->fleet->devices, sizeof *r->fleet->devices,
                     read_device);
}

enum nd_status nd_fleet_read(struct nd_fleet *out, struct nd_error *err)
{
    struct nd_fleet fleet = {0};
    struct nd_error why = {0};
    struct reading r = {.fleet = &fleet, .err = &why};
    const char *path = getenv(ND_FLEET_VARIABLE);
    *out = fleet;
    if (path == NULL || path[0] == '\0')
        return ND_OK;
    ND_TRY_MEMORY((fleet.path = nd_strdup(path)) != NULL, err);
    const struct nd_yaml_file file = {.path = fleet.path, .what = "a fleet", .error = ND_E_FLEET};
    enum nd_status status = nd_yaml_read(&r.yaml, &file, &why);
    if (status == ND_OK)
        status = read_root(&r);
    nd_yaml_deinit(&r.yaml);
    if (status == ND_OK) {
        *out = fleet;
        return ND_OK;
    }
    nd_fleet_deinit(&fleet);
    if (err != NULL)
        *err = why;
    return status;
}

/* ---- looking up ---- */

/* The device of that address, and its host; NULL: it is in no list, or on no host. */
static const struct nd_fleet_device *nd_fleet_find(const struct nd_fleet *fleet,
                                                   enum nd_transport_kind transport, const char *address)
{
    const char *name = nd_transport_name(transport);
    size_t n = strlen(name);
    for (size_t i = 0; i < fleet->n_devices; i++) {
        const char *device = fleet->devices[i].device;
        if (strncmp(device, name, n) == 0 && device[n] == ':' && strcmp(device + n + 1, address) == 0)
            return &fleet->devices[i];
    }
    return NULL;
}

/* ---- KEEP ---- */

/* The places of a host of the fleet file: at most `captures` captures run on its devices at once, in all
 * processes that lock in the same folder. A place is a lock file; the kernel frees it when its process ends, in
 * whatever way. */

static enum nd_status fail(const char *path, const char *problem, struct nd_error *err)
{
    return nd_fail(err, ND_E_LEASE, path, "cannot lock '%s', a place of a host: %s", path, problem);
}

/* The folder of those who name none. It lies where everybody may write, so that somebody else's is refused. */
static enum nd_status make_own_folder(const char *path, struct nd_error *err)
{
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail(path, strerror(errno), err);
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return fail(path, "it is not a folder of yours", err);
    return ND_OK;
}

/* "<folder>/<host>.<number>.lock"; what may mean something in a name of a file is written %XX. */
static char *lock_path(const char *folder, const char *host, size_t number)
{
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/", folder);
    for (const char *at = host; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        nd_strbuf_printf(&path, c < 0x80 && (isalnum(c) || c == '-' || c == '_') ? "%c" : "%%%02X", c);
    }
    nd_strbuf_printf(&path, ".%zu.lock", number);
    return nd_strbuf_take(&path);
}

static enum nd_status try_lock(const char *path, bool *is_taken, int *place, struct nd_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return fail(path, strerror(errno), err);
    int rc;
    while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    int problem = rc != 0 ? errno : 0;
    *is_taken = rc == 0;
    if (rc == 0)
        *place = fd;
    else
        close(fd);
    return problem == 0 || problem == EWOULDBLOCK ? ND_OK : fail(path, strerror(problem), err);
}

/* Takes a free place without waiting; *is_taken false: there is none now. The folder is fleet->locks, or one of
 * the user's on this machine. ND_E_LEASE: it cannot be made, written or locked in. */
static enum nd_status nd_host_place_take(const struct nd_fleet *fleet, const struct nd_fleet_host *host,
                                         bool *is_taken, int *place, struct nd_error *err)
{
    ND_FREED char *folder = fleet->locks != NULL ? nd_strdup(fleet->locks)
                                                 : nd_text("/tmp/npudiff-hosts-%lu", (unsigned long)geteuid());
    ND_TRY_MEMORY(folder != NULL, err);
    if (fleet->locks == NULL)
        ND_TRY(make_own_folder(folder, err));
    *is_taken = false;
    for (size_t i = 0; !*is_taken && i < host->captures; i++) {
        ND_FREED char *path = lock_path(folder, host->name, i);
        ND_TRY(path != NULL ? try_lock(path, is_taken, place, err) : nd_fail_memory(err));
    }
    return ND_OK;
}

static void nd_host_place_leave(int place)
{
    flock(place, LOCK_UN); /* a child that was just made may still have it open */
    close(place);
}

static const double release_limit_s = 60; /* chosen: how long the end of a capture waits for the command */
enum { PAUSE_MS = 50 };

/* ---- the place on a host ---- */

static bool is_cancelled(const struct nd_capture_options *options)
{
    return options->is_cancelled != NULL && options->is_cancelled(options->cancel_context);
}

static enum nd_status fail_cancelled(const char *label, struct nd_error *err)
{
    return nd_fail(err, ND_E_CANCELLED, label, "device '%s' was stopped on request", label);
}

static enum nd_status wait_for_place(const struct nd_fleet *fleet, const struct nd_fleet_host *host,
                                     const char *label, const struct nd_capture_options *options,
                                     struct nd_lease *lease, struct nd_error *err)
{
    for (;;) {
        enum nd_status status = nd_host_place_take(fleet, host, &lease->has_place, &lease->place, err);
        if (status != ND_OK || lease->has_place)
            return status;
        if (is_cancelled(options))
            return fail_cancelled(label, err);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

/* ---- the guard ---- */

/* A child dies with this process. So the guard is the child of a child: it reads the end of the pipe that this
 * process holds, and so notices its end. Then nobody reads what the command prints, and one that prints may
 * fail: so release prints to nowhere. */
static const char begin_guard[] = "exec 3<&0; sh -c \"$0\" sh \"$@\" <&3 3<&- &";
static const char guard_script[] =
    "trap '' PIPE; trap : TERM\n"
    "export NPUDIFF_LEASE_ID=\"$1\" NPUDIFF_LEASE_HOST=\"$2\" NPUDIFF_LEASE_LABELS=\"$3\" "
    "NPUDIFF_LEASE_LIMIT=\"$4\"\n"
    "export NPUDIFF_LEASE_PID=$$\n"
    "d=$5; shift 5; exec 3<&0 </dev/null 2>&1\n"
    "\"$@\" lease \"$d\" 3<&-; r=$?; printf '\\nnpudiff-lease: %s\\n' $r\n"
    "read x <&3\n"
    "\"$@\" release \"$d\" 3<&- >/dev/null 2>&1; r=$?; printf '\\nnpudiff-release: %s\\n' $r\n";

static bool make_id(char id[17])
{
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* "gen3,samsung" */
static char *join_labels(const struct nd_texts *labels)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < labels->n; i++)
        nd_strbuf_printf(&text, "%s%s", i > 0 ? "," : "", labels->items[i]);
    return nd_strbuf_take(&text);
}

static enum nd_status start_guard(const char *const *argv, struct nd_lease *lease, struct nd_error *err)
{
    int hold[2] = {-1, -1}, said[2] = {-1, -1};
    int problem = pipe2(hold, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0 ? errno : 0;
    const struct nd_child child = {.program = argv[0],
                                   .argv = argv,
                                   .in = hold[0],
                                   .out = said[1],
                                   .errors = said[1],
                                   .uses_path = true,
                                   .has_group = true};
    if (problem == 0)
        problem = nd_child_start(&child, &lease->guard);
    nd_fd_close(&hold[0]);
    nd_fd_close(&said[1]);
    if (problem == 0) {
        nd_child_wait(lease->guard, NULL, 0); /* the guard itself goes on in its group */
        lease->hold = hold[1];
        lease->said = said[0];
        return ND_OK;
    }
    nd_fd_close(&hold[1]);
    nd_fd_close(&said[0]);
    lease->guard = 0;
    return nd_fail(err, ND_E_PROCESS, "sh", "cannot start 'sh': %s", strerror(problem));
}

/* ---- what it says ---- */

/* Reads on until the guard prints "WHAT: CODE"; *code, and in line what was said last before. False: it did not
 * within limit_s, or the guard is gone, or the caller stops. */
static bool receive(const struct nd_lease *lease, const char *what, double limit_s,
                    const struct nd_capture_options *options, int *code, char *line, size_t size)
{
    char said[4096] = "";
    size_t n = 0;
    uint64_t begun = nd_clock_ns();
    line[0] = '\0';
    while ((double)(nd_clock_ns() - begun) * 1e-9 < limit_s && (options == NULL || !is_cancelled(options))) {
        struct pollfd polled = {.fd = lease->said, .events = POLLIN};
        if (poll(&polled, 1, PAUSE_MS) <= 0)
            continue;
        ssize_t got = read(lease->said, said + n, sizeof said - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        said[n] = '\0';
        for (char *end; (end = strchr(said, '\n')) != NULL || n == sizeof said - 1;) {
            size_t n_line = end != NULL ? (size_t)(end - said) : n;
            int64_t number;
            said[n_line] = '\0';
            if (strncmp(said, what, strlen(what)) == 0 && nd_parse_i64(said + strlen(what), &number)) {
                *code = (int)number;
                return true;
            }
            if (n_line > 0)
                snprintf(line, size, "%s", said);
            size_t n_taken = end != NULL ? n_line + 1 : n_line;
            n -= n_taken;
            memmove(said, said + n_taken, n + 1);
        }
    }
    return false;
}

static enum nd_status wait_for_lease(const struct nd_fleet *fleet, const char *label,
                                     const struct nd_capture_options *options, struct nd_lease *lease,
                                     struct nd_error *err)
{
    char line[300];
    int code = 0;
    bool is_heard = receive(lease, "npudiff-lease: ", fleet->lease_limit_s, options, &code, line, sizeof line);
    if (is_heard && code == 0)
        return ND_OK;
    for (char *at = line; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    if (!is_heard)
        kill(-lease->guard, SIGTERM); /* the command; the guard then releases */
    if (!is_heard && is_cancelled(options))
        return fail_cancelled(label, err);
    if (!is_heard)
        return nd_fail(err, ND_E_LEASE, label, "device '%s' was not leased within %g s: '%s lease' did not end",
                       label, fleet->lease_limit_s, fleet->lease.items[0]);
    return nd_fail(err, ND_E_LEASE, label, "device '%s' was not leased: '%s lease' ended with exit code %d%s%s",
                   label, fleet->lease.items[0], code, line[0] != '\0' ? ": " : "", line);
}

static enum nd_status run_command(const struct nd_fleet *fleet, const struct nd_fleet_device *listed,
                                  const struct nd_device *device, const struct nd_capture_options *options,
                                  struct nd_lease *lease, struct nd_error *err)
{
    char id[17], limit[32];
    ND_FREED char *labels = join_labels(&listed->labels);
    ND_FREED const char **argv = nd_calloc(fleet->lease.n + 10, sizeof *argv);
    size_t n = 0;
    ND_TRY_MEMORY(labels != NULL && argv != NULL && make_id(id), err);
    snprintf(limit, sizeof limit, "%g", fleet->lease_limit_s);
    argv[n++] = "sh";
    argv[n++] = "-c";
    argv[n++] = begin_guard;
    argv[n++] = guard_script;
    argv[n++] = id;
    argv[n++] = listed->host != NULL ? listed->host : "";
    argv[n++] = labels;
    argv[n++] = limit;
    argv[n++] = listed->device;
    for (size_t i = 0; i < fleet->lease.n; i++)
        argv[n++] = fleet->lease.items[i];
    ND_TRY(start_guard(argv, lease, err));
    return wait_for_lease(fleet, device->label, options, lease, err);
}

/* ---- taking and ending ---- */

static void report(const char *label, const struct nd_capture_options *options)
{
    const struct nd_capture_progress progress = {.device = label, .stage = "lease"};
    if (options->progress != NULL)
        options->progress(options->progress_context, &progress);
}

enum nd_status nd_lease_take(const struct nd_device *device, const struct nd_capture_options *options,
                             struct nd_lease *out, struct nd_error *err)
{
    ND_CLEANUP(nd_fleet_deinit) struct nd_fleet fleet = {0};
    ND_CLEANUP(nd_lease_end) struct nd_lease lease = {0};
    ND_TRY(nd_fleet_read(&fleet, err));
    const struct nd_fleet_device *listed = nd_fleet_find(&fleet, device->transport, device->address);
    const struct nd_fleet_host *host = listed != NULL ? find_host(&fleet, listed->host) : NULL;
    bool is_limited = host != NULL && host->captures > 0;
    bool is_leased = listed != NULL && fleet.lease.n > 0;
    if (is_limited || is_leased)
        report(device->label, options);
    if (is_limited)
        ND_TRY(wait_for_place(&fleet, host, device->label, options, &lease, err));
    if (is_leased)
        ND_TRY(run_command(&fleet, listed, device, options, &lease, err));
    return ND_GIVE(out, lease);
}

void nd_lease_end(struct nd_lease *lease)
{
    if (lease->guard > 0) {
        char line[300];
        int code;
        close(lease->hold);
        receive(lease, "npudiff-release: ", release_limit_s, NULL, &code, line, sizeof line);
        close(lease->said);
    }
    if (lease->has_place)
        nd_host_place_leave(lease->place);
    *lease = (struct nd_lease){0};
}
