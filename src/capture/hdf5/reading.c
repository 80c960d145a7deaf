/* The two sides of a confined reading: the child sends records and may ask for bytes, its parent waits,
 * answers, and ends it (reading.h). */
#include "capture/hdf5/reading.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/hdf5/libhdf5.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* Sent by a child in the place of a record's mark. */
enum { ND_MARK_ASK = 0x41534b3f };

/* What parent and child share, which the parent fills and never reads. */
enum { ND_SHARED_BUFFER_BYTES = 256 << 10 };

static enum nd_status nd_reading_flush(struct nd_reading_child *child, struct nd_error *err);

/* Chosen. libhdf5 reads up to 2.5 % of a capture of 117 MB, some places twice (docs/results/remote.md). A file
 * that takes the child over might ask for ever; every question counts as QUESTION_BYTES at the least. */
enum { MAX_TIMES_READ = 4, MIN_FETCHED_BYTES = 64 << 20, QUESTION_BYTES = 512 };

struct question {
    uint64_t offset;
    uint64_t n_bytes;
};

enum nd_status nd_reading_ask(struct nd_reading_child *child, uint64_t offset, void *buf, size_t n_bytes,
                              struct nd_error *err)
{
    unsigned char *to = buf;
    while (n_bytes > 0) {
        const int mark = ND_MARK_ASK;
        const struct question question = {offset,
                                          n_bytes < ND_SHARED_BUFFER_BYTES ? n_bytes : ND_SHARED_BUFFER_BYTES};
        uint64_t n_answers = 0;
        ssize_t n;
        ND_TRY(nd_reading_send(child, &mark, sizeof mark, err));
        ND_TRY(nd_reading_send(child, &question, sizeof question, err));
        ND_TRY(nd_reading_flush(child, err));
        while ((n = read(child->answers, &n_answers, sizeof n_answers)) < 0 && errno == EINTR)
            ;
        if (n != sizeof n_answers)
            return nd_fail(err, ND_E_FILE_READ, child->path, "cannot read '%s': %s", child->path,
                           strerror(errno));
        memcpy(to, child->shared_buffer, question.n_bytes);
        to += question.n_bytes;
        offset += question.n_bytes;
        n_bytes -= question.n_bytes;
    }
    return ND_OK;
}

/* In the parent, after ND_MARK_ASK: fetches what the child asks for. reading->damaged: it asks for what is not
 * in the file, or for far more than any sound file needs. Else as reading->fetch. */
static enum nd_status nd_reading_answer(struct nd_reading *reading, struct nd_error *err)
{
    struct question question;
    ND_TRY(nd_reading_take(reading, &question, sizeof question, err));
    if (reading->fetch == NULL || question.n_bytes == 0 || question.n_bytes > ND_SHARED_BUFFER_BYTES ||
        question.offset > reading->file_bytes || question.n_bytes > reading->file_bytes - question.offset)
        return nd_reading_fail(reading, err);
    reading->n_fetched += question.n_bytes < QUESTION_BYTES ? QUESTION_BYTES : question.n_bytes;
    if (reading->n_fetched / MAX_TIMES_READ > reading->file_bytes && reading->n_fetched > MIN_FETCHED_BYTES)
        return nd_reading_fail(reading, err);
    ND_TRY(
        reading->fetch(reading->fetch_context, question.offset, reading->shared_buffer, question.n_bytes, err));
    const uint64_t one = 1;
    return write(reading->answers, &one, sizeof one) != sizeof one ? nd_reading_fail(reading, err) : ND_OK;
}

/* Chosen. Opening a small file takes some milliseconds, and seconds under valgrind; decoding gives some 200
 * MB/s on a phone's processor and more elsewhere. */
static const double usual_base_limit_s = 5, limit_bytes_per_s = 10 * 1024 * 1024;
/* Chosen. By the clock, without the time in which the child waited for a processor, and with a part of the time
 * in which it waited for a disk: a small file is given up after 8 s, and after 64 s if all were the disk's. */
static const double clock_per_cpu = 1.6;
enum { DISK_NS_PER_NS = 8 };
/* Chosen. A child of a process with several threads has the allocator as it was in that moment. glibc's is
 * sound then; others (AddressSanitizer's of gcc 12) may be locked by a thread that the child does not have, and
 * the child waits for ever. One that uses no processor time for so long is replaced, at most so many times. */
static const double stuck_s = 2;
enum { MAX_RESTARTS = 3 };
/* Bytes that the child may send, unless the reading says otherwise: names, attributes and places, which lie in
 * the file themselves. Measured: 0.47 of the file at the most (docs/results/faults.md). */
enum { BASE_SENT_BYTES = 16 << 20, SENT_PER_FILE_BYTE = 4 };
/* Addresses that the child may take beside those of its parent: libhdf5 needs some 10 MiB, and of what it
 * sends it holds three times the largest part at the most (stored, decoded, and shuffled or cut). */
enum { BASE_CHILD_BYTES = 128 << 20, CHILD_PER_SENT_BYTE = 3 };
/* Deflate cannot do better: no file gives more bytes than this many times its own. */
static const double max_expansion = 1032;

enum { POLL_MS = 50, BUFFER_BYTES = 65536 };
enum mark { MARK_RECORD = 0x52454344, MARK_END = 0x454e4421, MARK_ERROR = 0x4552524f, MARK_ASK = ND_MARK_ASK };

static uint64_t max_sent_bytes(const struct nd_reading *reading)
{
    return reading->max_sent_bytes > 0 ? reading->max_sent_bytes
                                       : BASE_SENT_BYTES + SENT_PER_FILE_BYTE * reading->file_bytes;
}

static uint64_t max_child_bytes(const struct nd_reading *reading)
{
    return BASE_CHILD_BYTES + reading->file_bytes + CHILD_PER_SENT_BYTE * max_sent_bytes(reading);
}

/* Seconds of processor time for so many bytes, of the file and of what comes out of it. */
static double cpu_limit_s(const struct nd_reading *reading, double n_bytes)
{
    double base_s = reading->base_limit_s > 0 ? reading->base_limit_s : usual_base_limit_s;
    return base_s + n_bytes / limit_bytes_per_s;
}

/* ---- the child ---- */

static enum nd_status nd_reading_flush(struct nd_reading_child *child, struct nd_error *err)
{
    size_t n = child->n_buffered;
    child->n_buffered = 0;
    return nd_file_write_all(child->pipe, child->buffer, n, child->path, err);
}

enum nd_status nd_reading_send(struct nd_reading_child *child, const void *bytes, size_t n_bytes,
                               struct nd_error *err)
{
    if (n_bytes > BUFFER_BYTES - child->n_buffered)
        ND_TRY(nd_reading_flush(child, err));
    if (n_bytes > BUFFER_BYTES)
        return nd_file_write_all(child->pipe, bytes, n_bytes, child->path, err);
    if (n_bytes > 0)
        memcpy(child->buffer + child->n_buffered, bytes, n_bytes);
    child->n_buffered += n_bytes;
    return ND_OK;
}

static enum nd_status send_mark(struct nd_reading_child *child, enum mark mark, struct nd_error *err)
{
    return nd_reading_send(child, &mark, sizeof mark, err);
}

struct nd_sent_shape nd_sent_shape(const struct nd_shape *shape)
{
    struct nd_sent_shape sent = {.rank = shape->rank};
    for (int i = 0; i < shape->rank && i < ND_MAX_RANK; i++)
        sent.dims[i] = shape->dims[i];
    return sent;
}

void nd_shape_from_sent(const struct nd_sent_shape *sent, struct nd_shape *out)
{
    bool is_sound = sent->rank >= 0 && sent->rank <= ND_MAX_RANK;
    *out = (struct nd_shape){.rank = is_sound ? (int)sent->rank : -1};
    memcpy(out->dims, sent->dims, sizeof out->dims);
}

enum nd_status nd_reading_send_record(struct nd_reading_child *child, struct nd_error *err)
{
    return send_mark(child, MARK_RECORD, err);
}

/* ---- the child is confined: docs/architecture.md#confined ---- */

/* A kernel, or an emulator of one, that cannot confine: NPUDIFF_CONFINE=off reads without. */
#define ND_CONFINE_VARIABLE "NPUDIFF_CONFINE"
#define ND_CONFINE_OFF "off"

#if defined(__x86_64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ND_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ND_AUDIT_ARCH
/* Reading what is open, memory, and ending; and writing to the parent. */
static bool filter_calls(int pipe)
{
    static const unsigned allowed[] = {__NR_read,           __NR_pread64,       __NR_brk,
                                       __NR_mmap,           __NR_munmap,        __NR_mremap,
                                       __NR_mprotect,       __NR_madvise,       __NR_futex,
                                       __NR_getrandom,      __NR_clock_gettime, __NR_gettimeofday,
                                       __NR_rt_sigprocmask, __NR_rt_sigaction,  __NR_rt_sigreturn,
                                       __NR_sigaltstack,    __NR_getpid,        __NR_gettid,
                                       __NR_sched_yield,    __NR_exit,          __NR_exit_group};
    enum { N_ALLOWED = sizeof allowed / sizeof allowed[0] };
    struct sock_filter code[4 + 2 * N_ALLOWED + 5] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ND_AUDIT_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    const struct sock_filter end[5] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* its low half */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)pipe, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    for (size_t i = 0; i < N_ALLOWED; i++) { /* equal: the next instruction; else the one behind it */
        code[4 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[5 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    memcpy(code + 4 + 2 * N_ALLOWED, end, sizeof end);
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static bool filter_calls(int pipe)
{
    (void)pipe;
    errno = ENOSYS;
    return false;
}
#endif

static void close_from_to(unsigned first, unsigned last)
{
    if (first > last)
        return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    long max = sysconf(_SC_OPEN_MAX); /* Linux before 5.9 */
    for (unsigned fd = first; fd <= last && (max < 0 || fd < (unsigned long)max); fd++)
        close((int)fd);
}

static void close_all_but(const int *fds, size_t n)
{
    unsigned first = 0;
    do {
        unsigned next = ~0u; /* the lowest that is kept, from first on */
        for (size_t i = 0; i < n; i++)
            if (fds[i] >= 0 && (unsigned)fds[i] >= first && (unsigned)fds[i] < next)
                next = (unsigned)fds[i];
        close_from_to(first, next == ~0u ? next : next - 1);
        first = next + 1;
    } while (first != 0);
}

/* Memory that other processes see as well goes, but for what starts at `shared`: what is read-only now,
 * mprotect may make writable. All addresses that are left, in bytes; 0: there is no /proc. */
static uint64_t unshare_memory(const void *shared)
{
    uint64_t n_bytes = 0, first, end;
    char line[512], mode[8];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &first, &end, mode) != 3)
            continue;                        /* the rest of a long name */
        void *at = (void *)(uintptr_t)first; /* NOLINT */
        if (mode[3] == 's' && at != shared && munmap(at, end - first) == 0)
            continue;
        n_bytes += end - first;
    }
    nd_stdio_close(&maps);
    return n_bytes;
}

static bool limit(__rlimit_resource_t what, uint64_t n)
{
    const struct rlimit most = {(rlim_t)n, (rlim_t)n};
    return setrlimit(what, &most) == 0;
}

/* Call this in the child before it looks at a stranger's file. It holds for good, and for the whole process:
 * all other descriptors are closed, and memory that others can see is given back; nothing can be opened, and
 * there are no new processes, sockets or signals to others (each such call fails with EPERM); there is no core
 * dump; and the process dies with its parent. ND_E_FILE_READ: the kernel lacks one of these, and the caller
 * must not go on. Without /proc, the limit of memory and giving back shared memory are left out. */
static enum nd_status confine(const struct nd_reading *reading, int pipe, uint64_t max_cpu_s,
                              uint64_t max_more_memory, struct nd_error *err)
{
    const char *wanted = getenv(ND_CONFINE_VARIABLE);
    if (wanted != NULL && strcmp(wanted, ND_CONFINE_OFF) == 0)
        return ND_OK;
    uint64_t n_bytes = unshare_memory(reading->shared_buffer);
    close_all_but((const int[]){pipe, reading->answers, reading->fd != NULL ? *reading->fd : -1}, 3);
    bool is_done = limit(RLIMIT_CORE, 0) && limit(RLIMIT_CPU, max_cpu_s) &&
                   (n_bytes == 0 || limit(RLIMIT_AS, n_bytes + max_more_memory)) &&
                   prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && filter_calls(pipe);
    return is_done ? ND_OK
                   : nd_fail(err, ND_E_FILE_READ, reading->path,
                             "cannot read '%s': this system cannot confine the process that runs "
                             "libhdf5 (%s); " ND_CONFINE_VARIABLE "=" ND_CONFINE_OFF " reads without",
                             reading->path, strerror(errno));
}

/* Never returns. */
static void run_child(const struct nd_reading *reading, int pipe_fd)
{
    struct nd_error err = {0};
    struct nd_reading_child child = {.pipe = pipe_fd,
                                     .path = reading->path,
                                     .answers = reading->answers,
                                     .shared_buffer = reading->shared_buffer,
                                     .buffer = reading->buffer,
                                     /* the child's own copy */};
    /* The kernel's limit is for a parent that is stopped: it must hold for every sound file. */
    double max_cpu_s = 1 + cpu_limit_s(reading, (1 + max_expansion) * (double)reading->file_bytes);
    enum nd_status status = confine(reading, pipe_fd, (uint64_t)max_cpu_s, max_child_bytes(reading), &err);
    if (status == ND_OK)
        status = reading->work(reading->context, &child, &err);
    send_mark(&child, status == ND_OK ? MARK_END : MARK_ERROR, NULL);
    if (status != ND_OK)
        nd_reading_send(&child, &err, sizeof err, NULL);
    nd_reading_flush(&child, NULL);
    _exit(0);
}

/* ---- the parent ---- */

static enum nd_status start_child(struct nd_reading *reading, struct nd_error *err)
{
    int ends[2];
    bool is_made = pipe2(ends, O_CLOEXEC) == 0;
    if (!is_made && errno == EMFILE)
        return nd_file_fail_open(reading->path, errno, err);
    if (!is_made)
        return nd_fail(err, ND_E_FILE_READ, reading->path, "cannot read '%s': %s", reading->path,
                       strerror(errno));
    nd_hdf5_lock(); /* so that no other thread is in libhdf5 when the child begins */
    pid_t child = fork();
    int problem = errno;
    if (child == 0) {
        close(ends[0]);
        run_child(reading, ends[1]);
    }
    nd_hdf5_unlock();
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return nd_fail(err, ND_E_FILE_READ, reading->path, "cannot start a process to read '%s': %s",
                       reading->path, strerror(problem));
    }
    reading->child = child;
    reading->pipe = ends[0];
    reading->cpu_s = 0;
    return ND_OK;
}

/* Whatever it said: a child that was taken over may close its pipe, or say that it ends, and go on. Where
 * SIGCHLD is ignored it may be gone, and its number another's. */
static void stop_child(struct nd_reading *reading)
{
    if (reading->pipe < 0)
        return;
    close(reading->pipe);
    pid_t ended;
    if ((ended = waitpid(reading->child, NULL, WNOHANG)) == 0)
        kill(reading->child, SIGKILL);
    while (ended == 0 && waitpid(reading->child, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void free_all(struct nd_reading *reading)
{
    if (reading->shared_buffer != MAP_FAILED)
        munmap(reading->shared_buffer, ND_SHARED_BUFFER_BYTES);
    nd_fd_close(&reading->answers);
    free(reading->buffer);
    reading->shared_buffer = MAP_FAILED;
    reading->answers = -1;
    reading->buffer = NULL;
}

enum nd_status nd_reading_begin(struct nd_reading *reading, nd_reading_work *work, void *context,
                                struct nd_error *err)
{
    bool asks = reading->fetch != NULL;
    reading->pipe = -1;
    reading->buffer = nd_calloc(BUFFER_BYTES, 1);
    reading->shared_buffer =
        asks ? mmap(NULL, ND_SHARED_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
             : MAP_FAILED;
    reading->answers = asks ? eventfd(0, EFD_CLOEXEC) : -1;
    if (reading->buffer == NULL || (asks && (reading->shared_buffer == MAP_FAILED || reading->answers < 0))) {
        free_all(reading);
        return nd_fail_memory(err);
    }
    reading->work = work;
    reading->context = context;
    reading->buffer_at = reading->n_buffered = 0;
    reading->n_fetched = reading->n_received = reading->waited_ns = reading->busy_ns = reading->checked_ns = 0;
    reading->n_restarts = 0;
    enum nd_status status = start_child(reading, err);
    if (status != ND_OK)
        free_all(reading);
    return status;
}

enum nd_status nd_reading_fail(const struct nd_reading *reading, struct nd_error *err)
{
    return nd_fail(err, reading->damaged, reading->path, "'%s' is damaged: libhdf5 died of it", reading->path);
}

static double cpu_of(pid_t process)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

/* The first line of such a file of the child's in /proc, or "". */
static void read_proc(pid_t process, const char *name, char line[static 512])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/%s", (long long)process, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(line, 512, file) == NULL)
        line[0] = '\0';
    nd_stdio_close(&file);
}

/* How long the child has waited for a processor that others used; 0 where the kernel does not say. */
static double starved_s(pid_t process)
{
    char line[512];
    unsigned long long waited_ns = 0;
    read_proc(process, "schedstat", line);
    return sscanf(line, "%*u %llu", &waited_ns) == 1 ? (double)waited_ns * 1e-9 : 0;
}

/* State D: its sleep is not of its own choice. */
static bool waits_for_disk(pid_t process)
{
    char line[512];
    read_proc(process, "stat", line);
    const char *end_of_name = strrchr(line, ')');
    return end_of_name != NULL && strncmp(end_of_name, ") D", 3) == 0;
}

static enum nd_status check_time(struct nd_reading *reading, struct nd_error *err)
{
    double limit_s = cpu_limit_s(reading, (double)reading->file_bytes + (double)reading->n_received);
    double clock_s = (double)reading->waited_ns * 1e-9 - starved_s(reading->child);
    bool is_busy = cpu_of(reading->child) > limit_s;
    if (!is_busy && clock_s <= limit_s * clock_per_cpu)
        return ND_OK;
    return nd_fail(err, ND_E_FILE_TIME, reading->path,
                   "'%s' is damaged, or too slow to read: libhdf5 was stopped at the limit of %.3g s%s for a "
                   "file of %llu bytes",
                   reading->path, is_busy ? limit_s : limit_s * clock_per_cpu,
                   is_busy ? " of processor time" : "", (unsigned long long)reading->file_bytes);
}

/* Since the child was last seen to use the processor: on a busy machine it does so now and then. Once it has
 * sent something it goes on, as nothing that was received can be taken back. */
static bool is_stuck(struct nd_reading *reading)
{
    double cpu_s = cpu_of(reading->child);
    if (cpu_s > reading->cpu_s) {
        reading->cpu_s = cpu_s;
        reading->busy_ns = reading->waited_ns;
    }
    return reading->n_received == 0 && reading->n_restarts < MAX_RESTARTS &&
           (double)(reading->waited_ns - reading->busy_ns) * 1e-9 > stuck_s;
}

static enum nd_status restart(struct nd_reading *reading, struct nd_error *err)
{
    reading->n_restarts++;
    reading->busy_ns = reading->waited_ns;
    stop_child(reading);
    enum nd_status status = start_child(reading, err);
    if (status != ND_OK)
        reading->pipe = -1; /* there is no child */
    return status;
}

/* Until the pipe has something, or the other end of it is closed. The time is looked at whenever POLL_MS were
 * waited, also of a child that sends a byte now and then. */
static enum nd_status wait_for_bytes(struct nd_reading *reading, struct nd_error *err)
{
    enum { NS_PER_MS = 1000000 };
    for (;;) {
        struct pollfd polled = {.fd = reading->pipe, .events = POLLIN};
        uint64_t begun_ns = nd_clock_ns();
        int n = poll(&polled, 1, POLL_MS);
        uint64_t waited_ns = nd_clock_ns() - begun_ns;
        if (waited_ns > 2 * POLL_MS * NS_PER_MS) /* this process was stopped meanwhile, or starved */
            waited_ns = 2 * POLL_MS * NS_PER_MS;
        reading->waited_ns += n == 0 && waits_for_disk(reading->child) ? waited_ns / DISK_NS_PER_NS : waited_ns;
        if (reading->waited_ns - reading->checked_ns >= POLL_MS * NS_PER_MS) {
            reading->checked_ns = reading->waited_ns;
            ND_TRY(check_time(reading, err));
        }
        if (n > 0)
            return ND_OK;
        if (is_stuck(reading))
            ND_TRY(restart(reading, err));
    }
}

/* Some bytes, at most n_bytes. */
static enum nd_status receive(struct nd_reading *reading, void *buf, size_t n_bytes, size_t *n_got,
                              struct nd_error *err)
{
    ssize_t n;
    do {
        ND_TRY(wait_for_bytes(reading, err));
        n = read(reading->pipe, buf, n_bytes < (size_t)1 << 30 ? n_bytes : (size_t)1 << 30);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return nd_reading_fail(reading, err);
    reading->n_received += (uint64_t)n;
    *n_got = (size_t)n;
    return ND_OK;
}

enum nd_status nd_reading_expect(const struct nd_reading *reading, uint64_t n_bytes, struct nd_error *err)
{
    uint64_t limit = max_sent_bytes(reading);
    if (reading->n_received <= limit && n_bytes <= limit - reading->n_received)
        return ND_OK;
    return nd_fail(
        err, reading->damaged, reading->path,
        "'%s' is damaged: what libhdf5 finds in it takes more than the %llu MiB that a sound file of "
        "%llu bytes needs at most",
        reading->path, (unsigned long long)limit >> 20, (unsigned long long)reading->file_bytes);
}

enum nd_status nd_reading_take(struct nd_reading *reading, void *buf, size_t n_bytes, struct nd_error *err)
{
    char *at = buf;
    ND_TRY(nd_reading_expect(reading, n_bytes, err));
    while (n_bytes > 0) {
        size_t n = reading->n_buffered - reading->buffer_at;
        enum nd_status status = ND_OK;
        if (n == 0 && n_bytes < BUFFER_BYTES) {
            reading->buffer_at = reading->n_buffered = 0;
            status = receive(reading, reading->buffer, BUFFER_BYTES, &reading->n_buffered, err);
            n = reading->n_buffered;
        }
        n = n < n_bytes ? n : n_bytes;
        if (n > 0) {
            memcpy(at, reading->buffer + reading->buffer_at, n);
            reading->buffer_at += n;
        } else if (status == ND_OK) {
            status = receive(reading, at, n_bytes, &n, err);
        }
        if (status != ND_OK)
            return status;
        at += n;
        n_bytes -= n;
    }
    return ND_OK;
}

enum nd_status nd_reading_take_text(struct nd_reading *reading, size_t n_bytes, char **text,
                                    struct nd_error *err)
{
    if (n_bytes > ND_MAX_PATH_BYTES)
        return nd_reading_fail(reading, err);
    ND_FREED char *taken = nd_calloc(n_bytes + 1, 1);
    ND_TRY_MEMORY(taken != NULL, err);
    ND_TRY(nd_reading_take(reading, taken, n_bytes, err));
    return ND_GIVE(text, taken);
}

/* What can be wrong with a file, or with reading it. A child that was taken over may name anything. */
static bool is_error_of_child(const struct nd_error *said)
{
    static const enum nd_error_id ids[] = {ND_E_MEMORY,        ND_E_SIZE_OVERFLOW,     ND_E_FILE_READ,
                                           ND_E_CHUNK_CODEC,   ND_E_CAPTURE_FORMAT,    ND_E_CAPTURE_SCHEMA,
                                           ND_E_CAPTURE_HDF5,  ND_E_CAPTURE_TRUNCATED, ND_E_CAPTURE_VERSION,
                                           ND_E_IMPORT_FORMAT, ND_E_IMPORT_TYPE,       ND_E_IMPORT_NOTHING};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (said->id == (int)ids[i])
            return true;
    return false;
}

static enum nd_status take_error(struct nd_reading *reading, struct nd_error *err)
{
    struct nd_error said;
    ND_TRY(nd_reading_take(reading, &said, sizeof said, err));
    said.message[sizeof said.message - 1] = said.object[sizeof said.object - 1] = '\0';
    if (!is_error_of_child(&said))
        return nd_reading_fail(reading, err);
    if (said.id == ND_E_MEMORY)
        return nd_fail(err, ND_E_MEMORY, reading->path,
                       "out of memory: the process that reads '%s', of %llu bytes, may take %llu MiB",
                       reading->path, (unsigned long long)reading->file_bytes,
                       (unsigned long long)max_child_bytes(reading) >> 20);
    ND_FREED char *message = nd_clean_text(said.message), *object = nd_clean_text(said.object);
    ND_TRY_MEMORY(message != NULL && object != NULL, err);
    return nd_fail(err, (enum nd_error_id)said.id, object, "%s", message);
}

enum nd_status nd_reading_next(struct nd_reading *reading, bool *has_record, struct nd_error *err)
{
    enum mark mark;
    enum nd_status status;
    do {
        status = nd_reading_take(reading, &mark, sizeof mark, err);
        if (status == ND_OK && mark == MARK_ASK)
            status = nd_reading_answer(reading, err);
        if (status != ND_OK)
            return status;
    } while (mark == MARK_ASK);
    *has_record = mark == MARK_RECORD;
    if (mark == MARK_ERROR)
        return take_error(reading, err);
    return mark == MARK_RECORD || mark == MARK_END ? ND_OK : nd_reading_fail(reading, err);
}

void nd_reading_end(struct nd_reading *reading)
{
    stop_child(reading);
    free_all(reading);
}
