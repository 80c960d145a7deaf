/* The confined child after a file has taken it over: it closes, blocks, floods, lies, and writes where it
 * should not. The parent ends it within ten seconds, takes little memory, and nothing is written elsewhere.
 *
 * The child is taken over in the schema's check_root, which runs where libhdf5 runs. */
#include "support/main.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/hdf5/index.h"
#include "capture/hdf5/libhdf5.h"
#include "capture/hdf5/reading.h"
#include "capture/read/schema.h"
#include "core/files/file.h"
#include "core/text/strbuf.h"

#if ND_HAS_SANITIZER
enum { MAX_PARENT_KB = 4 << 20 }; /* which have memory of their own */
#else
enum { MAX_PARENT_KB = 256 << 10 };
#endif
enum { MAX_S = 10, N_AT_ONCE = 8 };

/* ---- what the child says, as index.c and reading.c have it ---- */

enum { RECORD = 0x52454344, END = 0x454e4421, ERROR = 0x4552524f, ASK = 0x41534b3f };

struct said_object {
    uint64_t path_bytes, n_attrs, is_group, has_chunks, dtype, elem_bytes;
    struct nd_sent_shape shape, chunk;
    uint64_t offset;
};
struct said_attr {
    uint64_t name_bytes, dtype, is_scalar, n, n_bytes;
};
struct said_chunk {
    uint64_t offset, stored_bytes, is_shuffled, is_deflated;
};

static int pipe_fd;
static uint64_t file_bytes;

static void say(const void *bytes, size_t n)
{
    for (const char *at = bytes; n > 0;) {
        ssize_t done = write(pipe_fd, at, n);
        if (done <= 0)
            _exit(0);
        at += done;
        n -= (size_t)done;
    }
}

static void mark(int what)
{
    say(&what, sizeof what);
}

static void object(struct said_object said, const char *path)
{
    mark(RECORD);
    said.path_bytes = said.path_bytes != 0 ? said.path_bytes : strlen(path);
    say(&said, sizeof said);
    say(path, strlen(path));
}

static void attr(const char *name, struct said_attr said, const void *bytes)
{
    said.name_bytes = said.name_bytes != 0 ? said.name_bytes : strlen(name);
    say(&said, sizeof said);
    say(name, strlen(name));
    if (said.n_bytes < 1 << 20)
        say(bytes, said.n_bytes);
}

/* The group / as every capture has it. */
static void root(void)
{
    const int64_t version = 1;
    object((struct said_object){.is_group = 1, .n_attrs = 1}, "/");
    attr("npudiff_format", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8}, &version);
}

static void group(const char *path)
{
    object((struct said_object){.is_group = 1}, path);
}

static struct said_object bytes_of(uint64_t n, uint64_t offset)
{
    return (struct said_object){
        .dtype = ND_DTYPE_U8, .elem_bytes = 1, .shape = {1, {(int64_t)n}}, .offset = offset};
}

static void chunked(struct said_object said, int64_t chunk, struct said_chunk one, size_t n)
{
    said.has_chunks = 1;
    said.chunk = (struct nd_sent_shape){1, {chunk}};
    root();
    group("/logs");
    object(said, "/logs/a");
    for (size_t i = 0; i < n; i++)
        say(&one, sizeof one);
    mark(END);
}

static void dataset(struct said_object said)
{
    root();
    group("/logs");
    object(said, "/logs/a");
    mark(END);
}

static void error(enum nd_status status, int id, const char *text)
{
    struct nd_error said = {.status = status, .id = id};
    memset(said.message, '!', sizeof said.message);
    memset(said.object, '!', sizeof said.object);
    memcpy(said.message, text, strlen(text));
    mark(ERROR);
    say(&said, sizeof said);
}

/* ---- what it does ---- */

static void wait_ns(long ns)
{
    static uint32_t word;
    const struct timespec time = {.tv_nsec = ns};
    syscall(SYS_futex, &word, FUTEX_WAIT, 0, ns > 0 ? &time : NULL, NULL, 0);
}

static void sleep_for_ever(void)
{
    for (;;)
        wait_ns(0);
}

static void spin(void)
{
    for (volatile unsigned n = 0;; n++)
        ;
}

/* What the parent has open, or shows to others. */
static struct {
    char path[64];
    int file, socket[2], out[2];
    char *shared;
} precious;

/* How many of these the kernel lets it do: none. */
static unsigned overstep(void)
{
    static const char bytes[] = "written by a child that was taken over";
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++) {
        if (fd == pipe_fd)
            continue;
        n += write(fd, bytes, sizeof bytes) > 0;
        n += pwrite(fd, bytes, sizeof bytes, 0) > 0;
        n += ftruncate(fd, 0) == 0;
        n += dup2(pipe_fd, fd) >= 0;
        char *map = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED)
            n++, map[0] = 1;
    }
    n += open(precious.path, O_RDONLY) >= 0;
    n += open(precious.path, O_WRONLY | O_CREAT, 0600) >= 0;
    n += unlink(precious.path) == 0;
    n += socket(AF_INET, SOCK_STREAM, 0) >= 0;
    n += kill(getppid(), SIGKILL) == 0;
    n += syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0;
    n += execl("/bin/true", "true", (char *)NULL) == 0;
    n += prctl(PR_SET_PDEATHSIG, 0) == 0;
    const struct rlimit endless = {RLIM_INFINITY, RLIM_INFINITY};
    n += setrlimit(RLIMIT_AS, &endless) == 0;
    n += mprotect(precious.shared, 4096, PROT_READ | PROT_WRITE) == 0;
    return n;
}

/* MiB that it gets, in pieces. */
static unsigned take_memory(void)
{
    unsigned n = 0;
    for (char *at; n < 4096 && (at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                          -1, 0)) != MAP_FAILED;
         n++)
        at[0] = 1;
    return n;
}

enum behaviour {
    /* ends, or does not */
    DIES,
    EXITS,
    EXITS_IN_A_RECORD,
    SLEEPS,
    SPINS,
    CLOSES_AND_SLEEPS,
    STOPS_ITSELF,
    ENDS_AND_SLEEPS,
    ENDS_AND_SPINS,
    ENDS_AND_TALKS,
    SLEEPS_IN_A_RECORD,
    DRIPS_BYTES,
    DRIPS_OBJECTS,
    DRIPS_AND_SPINS,
    IGNORES_SIGNALS,
    /* floods */
    FLOODS_ZEROS,
    FLOODS_OBJECTS,
    FLOODS_ATTRIBUTES,
    FLOODS_PATHS,
    FLOODS_CHUNKS,
    FLOODS_ENDS,
    FLOODS_QUESTIONS,
    TAKES_MEMORY,
    TAKES_ONE_BLOCK,
    /* lies */
    SAYS_NOTHING,
    LONG_PATH,
    ENDLESS_PATH,
    ENDLESS_ATTRIBUTES,
    ENDLESS_ATTRIBUTE,
    EMPTY_SCALAR,
    ODD_TYPE,
    ATTRIBUTES_UNSORTED,
    ATTRIBUTE_TWICE,
    STRANGE_ATTRIBUTE,
    NO_ROOT,
    ROOT_IS_DATA,
    NEWER_ROOT,
    TWICE,
    ORPHAN,
    UNKNOWN_PATH,
    GROUP_FOR_DATA,
    DATA_FOR_GROUP,
    BEHIND_THE_END,
    WRAPS_AROUND,
    NEGATIVE_RANK,
    LARGE_RANK,
    NEGATIVE_SIZE,
    SIZE_OVERFLOWS,
    NO_ELEMENT,
    ENDLESS_TEXT,
    UNSTORED_TYPE,
    CHUNK_BEHIND_THE_END,
    CHUNK_TOO_SHORT,
    CHUNK_TOO_DENSE,
    CHUNKED_TEXT,
    MORE_CHUNKS_THAN_BYTES,
    UNKNOWN_ERROR,
    FOREIGN_ERROR,
    NO_ERROR,
    CONTROLS_THE_TERMINAL,
    /* oversteps */
    OVERSTEPS,
    N_BEHAVIOURS
};

static void misbehave(enum behaviour what)
{
    static char text[ND_MAX_PATH_BYTES + 2];
    memset(text, 'p', sizeof text - 1);
    const struct said_object small = bytes_of(16, 0);
    const uint64_t zero[8] = {0};
    switch (what) {
    case DIES:
        __builtin_trap();
    case EXITS:
        _exit(0);
    case EXITS_IN_A_RECORD:
        root(), mark(RECORD), _exit(0);
    case SLEEPS:
        sleep_for_ever();
        break;
    case SPINS:
        spin();
        break;
    case CLOSES_AND_SLEEPS:
        close(pipe_fd), sleep_for_ever();
        break;
    case STOPS_ITSELF:
        kill(getpid(), SIGSTOP), sleep_for_ever();
        break;
    case ENDS_AND_SLEEPS:
        root(), mark(END), sleep_for_ever();
        break;
    case ENDS_AND_SPINS:
        root(), mark(END), spin();
        break;
    case ENDS_AND_TALKS:
        for (root(), mark(END);;)
            say(text, sizeof text);
    case SLEEPS_IN_A_RECORD:
        root(), mark(RECORD), sleep_for_ever();
        break;
    case DRIPS_BYTES:
        for (mark(RECORD);; wait_ns(10000000))
            say("", 1);
    case DRIPS_OBJECTS:
        for (root();; wait_ns(20000000))
            group("/logs");
    case DRIPS_AND_SPINS:
        for (root();; wait_ns(1000)) {
            for (volatile unsigned n = 0; n < 1000000; n++)
                ;
            group("/logs");
        }
    case IGNORES_SIGNALS:
        for (int i = 1; i < 32; i++)
            signal(i, SIG_IGN);
        spin();
        break;
    case FLOODS_ZEROS:
        for (;;)
            say(zero, sizeof zero);
    case FLOODS_OBJECTS:
        for (;;)
            group("/probes/p");
    case FLOODS_ATTRIBUTES:
        for (object((struct said_object){.is_group = 1, .n_attrs = UINT64_MAX}, "/");;)
            attr("a", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8}, zero);
    case FLOODS_PATHS:
        for (text[ND_MAX_PATH_BYTES - 1] = '\0';;)
            group(text);
    case FLOODS_CHUNKS:
        for (root(), group("/logs");;) {
            struct said_object all = bytes_of(file_bytes, 0);
            all.has_chunks = 1;
            all.chunk = (struct nd_sent_shape){1, {1}};
            object(all, "/logs/a");
            for (uint64_t i = 0; i < file_bytes; i++)
                say(&(struct said_chunk){0, 1, 0, 0}, sizeof(struct said_chunk));
        }
    case FLOODS_ENDS:
        for (;;)
            mark(END);
    case FLOODS_QUESTIONS:
        for (;;)
            mark(ASK), say(zero, 16);
    case TAKES_MEMORY: {
        unsigned n = take_memory();
        error(ND_ERR_FORMAT, ND_E_CAPTURE_SCHEMA, n < 512 ? "little" : "much");
        break;
    }
    case TAKES_ONE_BLOCK:
        error(ND_ERR_FORMAT, ND_E_CAPTURE_SCHEMA, malloc((size_t)3 << 30) == NULL ? "little" : "much");
        break;
    case SAYS_NOTHING:
        mark(END);
        break;
    case LONG_PATH:
        object((struct said_object){.is_group = 1}, text);
        break;
    case ENDLESS_PATH:
        object((struct said_object){.is_group = 1, .path_bytes = UINT64_MAX}, "/");
        break;
    case ENDLESS_ATTRIBUTES:
        object((struct said_object){.is_group = 1, .n_attrs = UINT64_MAX}, "/");
        mark(END);
        break;
    case ENDLESS_ATTRIBUTE:
        object((struct said_object){.is_group = 1, .n_attrs = 1}, "/");
        attr("a", (struct said_attr){0, ND_DTYPE_I64, 0, (uint64_t)1 << 61, 0}, zero);
        break;
    case EMPTY_SCALAR:
        object((struct said_object){.is_group = 1, .n_attrs = 1}, "/");
        attr("npudiff_format", (struct said_attr){0, ND_DTYPE_I64, 1, 0, 0}, zero);
        mark(END);
        break;
    case ODD_TYPE:
        object((struct said_object){.is_group = 1, .n_attrs = 1}, "/");
        attr("npudiff_format", (struct said_attr){0, 9999, 1, 1, 8}, zero);
        mark(END);
        break;
    case ATTRIBUTES_UNSORTED:
    case ATTRIBUTE_TWICE:
        object((struct said_object){.is_group = 1, .n_attrs = 2}, "/");
        attr("npudiff_format", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8}, (int64_t[]){1});
        attr(what == ATTRIBUTE_TWICE ? "npudiff_format" : "a", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8},
             zero);
        mark(END);
        break;
    case STRANGE_ATTRIBUTE:
        root(), group("/logs");
        object((struct said_object){.n_attrs = 1, .dtype = ND_DTYPE_U8, .elem_bytes = 1, .shape = {1, {16}}},
               "/logs/a");
        attr("strange", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8}, zero);
        mark(END);
        break;
    case NO_ROOT:
        group("/logs"), mark(END);
        break;
    case ROOT_IS_DATA:
        object(small, "/"), mark(END);
        break;
    case NEWER_ROOT:
        object((struct said_object){.is_group = 1, .n_attrs = 1}, "/");
        attr("npudiff_format", (struct said_attr){0, ND_DTYPE_I64, 1, 1, 8}, (int64_t[]){99});
        mark(END);
        break;
    case TWICE:
        root(), group("/logs"), group("/logs"), mark(END);
        break;
    case ORPHAN:
        root(), object(small, "/logs/a"), mark(END);
        break;
    case UNKNOWN_PATH:
        root(), group("/elsewhere"), mark(END);
        break;
    case GROUP_FOR_DATA:
        root(), group("/logs"), group("/logs/a"), mark(END);
        break;
    case DATA_FOR_GROUP:
        root(), object(small, "/logs"), mark(END);
        break;
    case BEHIND_THE_END:
        dataset(bytes_of(16, file_bytes - 15));
        break;
    case WRAPS_AROUND:
        dataset(bytes_of(16, UINT64_MAX - 7));
        break;
    case NEGATIVE_RANK:
        dataset((struct said_object){.dtype = ND_DTYPE_U8, .elem_bytes = 1, .shape = {-1, {4}}});
        break;
    case LARGE_RANK:
        dataset((struct said_object){.dtype = ND_DTYPE_U8, .elem_bytes = 1, .shape = {1000, {4}}});
        break;
    case NEGATIVE_SIZE:
        dataset((struct said_object){.dtype = ND_DTYPE_U8, .elem_bytes = 1, .shape = {1, {-4}}});
        break;
    case SIZE_OVERFLOWS:
        dataset((struct said_object){.dtype = ND_DTYPE_U64, .elem_bytes = 8, .shape = {2, {INT64_MAX, 2}}});
        break;
    case NO_ELEMENT:
        dataset((struct said_object){.shape = {1, {4}}});
        break;
    case ENDLESS_TEXT:
        dataset((struct said_object){.elem_bytes = UINT64_MAX / 2, .shape = {1, {3}}});
        break;
    case UNSTORED_TYPE:
        dataset((struct said_object){.dtype = ND_DTYPE_BF16, .elem_bytes = 2, .shape = {1, {4}}});
        break;
    case CHUNK_BEHIND_THE_END:
        chunked(bytes_of(16, 0), 16, (struct said_chunk){file_bytes - 8, 16, 0, 0}, 1);
        break;
    case CHUNK_TOO_SHORT:
        chunked(bytes_of(16, 0), 16, (struct said_chunk){file_bytes - 1, 1, 0, 0}, 1);
        break;
    case CHUNK_TOO_DENSE:
        chunked(bytes_of(1 << 20, 0), 1 << 20, (struct said_chunk){0, 1, 0, 1}, 1);
        break;
    case CHUNKED_TEXT:
        chunked((struct said_object){.elem_bytes = 16, .shape = {1, {1}}}, 1, (struct said_chunk){0, 16, 0, 0},
                1);
        break;
    case MORE_CHUNKS_THAN_BYTES:
        chunked(bytes_of((uint64_t)1 << 40, 0), 1, (struct said_chunk){0, 1, 0, 0}, 0);
        break;
    case UNKNOWN_ERROR:
        error(ND_ERR_FORMAT, 999999, "trust me");
        break;
    case FOREIGN_ERROR:
        error(ND_ERR_DEVICE, ND_E_DEVICE_MEMORY, "trust me");
        break;
    case NO_ERROR:
        error(ND_OK, ND_E_CAPTURE_SCHEMA, "all is well");
        break;
    case CONTROLS_THE_TERMINAL:
        error(ND_ERR_FORMAT, ND_E_CAPTURE_SCHEMA, "\033[2J\xc2\x9b");
        break;
    case OVERSTEPS: {
        unsigned n = overstep();
        error(ND_ERR_FORMAT, ND_E_CAPTURE_SCHEMA, n == 0 ? "confined" : "free");
        precious.shared[0] = 1; /* it has none of that memory, and dies */
        break;
    }
    case N_BEHAVIOURS:
        break;
    }
    _exit(0);
}

static enum behaviour chosen;
static pid_t parent;
static struct measured {
    double waited_s;
    long parent_kb;
} * measured;        /* of each behaviour, by the process that survived it */
static double max_s; /* MAX_S, where this test has the machine for itself */

static enum nd_status take_over(const struct nd_index_object *of, struct nd_error *err)
{
    if (getpid() == parent)
        return nd_capture_schema.check_root(of, err);
    for (pipe_fd = 0; pipe_fd < 256 && write(pipe_fd, "", 0) != 0; pipe_fd++)
        ;
    misbehave(chosen);
    return ND_OK;
}

/* ---- the parent, in a process of its own for each behaviour ---- */

static unsigned char before[4096], after[4096];

static void prepare(void)
{
    char *folder_path = NULL;
    assert_int_equal(nd_dir_make_temporary(&folder_path, NULL), ND_OK);
    snprintf(precious.path, sizeof precious.path, "%s/x", folder_path);
    precious.file = open(precious.path, O_RDWR | O_CREAT, 0600);
    memset(before, 7, sizeof before);
    assert_int_equal(write(precious.file, before, sizeof before), sizeof before);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, precious.socket), 0);
    assert_int_equal(pipe2(precious.out, O_NONBLOCK), 0);
    precious.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, precious.file, 0);
    assert_ptr_not_equal(precious.shared, MAP_FAILED);
    free(folder_path);
}

/* Whether the precious things are as they were. */
static bool is_untouched(void)
{
    char byte;
    return pread(precious.file, after, sizeof after, 0) == sizeof after &&
           memcmp(before, after, sizeof after) == 0 && memcmp(before, precious.shared, sizeof before) == 0 &&
           read(precious.socket[0], &byte, 1) < 0 && read(precious.socket[1], &byte, 1) < 0 &&
           read(precious.out[0], &byte, 1) < 0;
}

#define NEED(condition)                                                                                        \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "# behaviour %d: not %s (%s)\n", (int)chosen, #condition, err.message);            \
            _exit(1);                                                                                          \
        }                                                                                                      \
    } while (0)

static void survive(enum behaviour what)
{
    static const struct nd_error none;
    struct nd_error err = none;
    struct nd_index *index = NULL;
    struct nd_index_schema schema = nd_capture_schema;
    struct rusage used;
    struct stat info;
    char path[512];
    chosen = what;
    parent = getpid();
    schema.check_root = take_over;
    prepare();
    snprintf(path, sizeof path, "%s/fuzz/capture/exact.h5", getenv("GOLDEN"));
    NEED(stat(path, &info) == 0);
    file_bytes = (uint64_t)info.st_size;
    uint64_t begun_ns = nd_clock_ns();
    enum nd_status status = nd_index_open(path, &schema, &index, &err);
    double waited_s = (double)(nd_clock_ns() - begun_ns) * 1e-9;
    getrusage(RUSAGE_SELF, &used);
    measured[what] = (struct measured){waited_s, used.ru_maxrss};
    NEED(is_untouched());
    NEED(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); /* nothing is left of it */
    NEED(waited_s < max_s);
    NEED(used.ru_maxrss < MAX_PARENT_KB);
    bool says_end = what == ENDS_AND_SLEEPS || what == ENDS_AND_SPINS || what == ENDS_AND_TALKS;
    NEED((status == ND_OK) == says_end);
    NEED(status == ND_OK || err.id == ND_E_CAPTURE_FORMAT || err.id == ND_E_FILE_TIME ||
         err.id == ND_E_CAPTURE_SCHEMA || (what == NEWER_ROOT && err.id == ND_E_CAPTURE_VERSION));
    /* The allocator of sanitizers ends the program where it gets no memory. */
    if ((what == TAKES_MEMORY || what == TAKES_ONE_BLOCK) && !ND_HAS_SANITIZER)
        NEED(strncmp(err.message, "little", 6) == 0);
    if (what == OVERSTEPS)
        NEED(strncmp(err.message, "confined", 8) == 0);
    if (what == CONTROLS_THE_TERMINAL)
        NEED(strncmp(err.message, "?[2J", 4) == 0 && strchr(err.message, '\xc2') == NULL);
    nd_index_close(&index);
    unlink(precious.path);
    *strrchr(precious.path, '/') = '\0';
    nd_dir_remove(precious.path);
    _exit(0);
}

/* So many processes at a time: those that sleep do not need a processor. */
static void the_parent_survives(void **state)
{
    (void)state;
    int n_running = 0, n_wrong = 0;
    measured =
        mmap(NULL, N_BEHAVIOURS * sizeof *measured, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(measured, MAP_FAILED);
    struct measured most = {0, 0};
    double load = 0, n_cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
    getloadavg(&load, 1);
    load = load > n_cpus + 2 ? load : n_cpus + 2; /* other tests may begin beside this one */
    max_s = MAX_S * load / n_cpus;
    max_s *= ND_SANITIZED_SHARE; /* a child that is copied then has a thousand times the memory to map */
    for (int next = 0; next < N_BEHAVIOURS || n_running > 0;) {
        if (next < N_BEHAVIOURS && n_running < N_AT_ONCE) {
            pid_t process = fork();
            assert_true(process >= 0);
            if (process == 0)
                survive((enum behaviour)next);
            next++;
            n_running++;
            continue;
        }
        int ended = -1;
        assert_true(wait(&ended) > 0);
        n_running--;
        n_wrong += ended != 0;
    }
    for (int i = 0; i < N_BEHAVIOURS; i++) {
        if (measured[i].waited_s > MAX_S)
            print_message("# behaviour %d: %.1f s\n", i, measured[i].waited_s);
        most.waited_s = measured[i].waited_s > most.waited_s ? measured[i].waited_s : most.waited_s;
        most.parent_kb = measured[i].parent_kb > most.parent_kb ? measured[i].parent_kb : most.parent_kb;
    }
    munmap(measured, N_BEHAVIOURS * sizeof *measured);
    print_message("# %d behaviours: at most %.1f s, and %.1f MiB in the parent; %d wrong\n", N_BEHAVIOURS,
                  most.waited_s, (double)most.parent_kb / 1024, n_wrong);
    assert_int_equal(n_wrong, 0);
    assert_true(N_BEHAVIOURS >= 40);
}

/* The near miss: the same file, read by a child that nobody took over. */
static void a_sound_child_is_believed(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_index *index = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/fuzz/capture/exact.h5", getenv("GOLDEN"));
    assert_int_equal(nd_index_open(path, &nd_capture_schema, &index, &err), ND_OK);
    assert_true(index->n_objects > 10);
    nd_index_close(&index);
}

/* ---- files that make much of little ---- */

static void put_text(hid_t id, const char *name, size_t n_bytes)
{
    char *text = calloc(n_bytes, 1);
    hid_t type = nd_hdf5_text_make(n_bytes), space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(id, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, type, text) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    free(text);
}

/* A capture of one probe that has n_names names (hard links) and text of n_bytes, or of n_names such probes. */
static void write_links(const char *path, int n_names, size_t n_bytes, bool is_one)
{
    const int64_t version = 1;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(file, "npudiff_format", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_INT64, &version);
    H5Aclose(attribute);
    hid_t probes = H5Gcreate2(file, "probes", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), probe = H5I_INVALID_HID;
    for (int i = 0; i < n_names; i++) {
        char name[32];
        snprintf(name, sizeof name, "p%d", i);
        if (i > 0 && is_one) {
            assert_true(H5Lcreate_hard(probe, ".", probes, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
            continue;
        }
        if (probe >= 0)
            H5Gclose(probe);
        probe = H5Gcreate2(probes, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        for (size_t n = 0; n < n_bytes; n += 60000) {
            snprintf(name, sizeof name, "a%zu", n);
            put_text(probe, name, n_bytes - n < 60000 ? n_bytes - n : 60000);
        }
    }
    H5Gclose(probe);
    H5Gclose(probes);
    H5Sclose(space);
    assert_true(H5Fclose(file) >= 0);
}

/* The largest memory of the parent and of the child, in KiB, and what came out. */
static enum nd_status open_links(int n_names, size_t n_bytes, bool is_one, long max_kb[2], struct nd_error *err)
{
    struct rusage used[2];
    struct nd_index *index = NULL;
    char *path = NULL;
    assert_int_equal(nd_dir_make_temporary(&path, NULL), ND_OK);
    char *file = nd_path_join(path, "links.h5");
    write_links(file, n_names, n_bytes, is_one);
    enum nd_status status = nd_index_open(file, &nd_capture_schema, &index, err);
    getrusage(RUSAGE_SELF, &used[0]);
    getrusage(RUSAGE_CHILDREN, &used[1]);
    max_kb[0] = used[0].ru_maxrss;
    max_kb[1] = used[1].ru_maxrss;
    nd_index_close(&index);
    nd_dir_remove(path);
    free(path);
    free(file);
    return status;
}

/* 1.3 MB stood for 5.2 GB: every name of an object is an object, with all that it has. */
static void names_of_one_object_do_not_multiply_it(void **state)
{
    (void)state;
    static const struct {
        int n_names;
        size_t n_bytes;
    } bombs[] = {{4000, 1200000}, {20000, 60000}, {500, 3000000}};
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        struct nd_error err = {0};
        long max_kb[2];
        assert_int_equal(open_links(bombs[i].n_names, bombs[i].n_bytes, true, max_kb, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_CAPTURE_FORMAT);
        assert_non_null(strstr(err.message, "that a sound file of"));
        assert_true(max_kb[0] < MAX_PARENT_KB && max_kb[1] < MAX_PARENT_KB);
    }
}

/* The near misses: few names, or as much in objects of their own. */
static void as_much_in_its_own_objects_is_read(void **state)
{
    (void)state;
    struct nd_error err = {0};
    long max_kb[2];
    assert_int_equal(open_links(4, 1200000, true, max_kb, &err), ND_OK);
    assert_int_equal(open_links(30, 1200000, false, max_kb, &err), ND_OK);
}

/* As a kernel without seccomp, or an emulator of one. */
static void refuse_seccomp(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(9);
}

/* 0: read; 1: refused with the words; 2: something else. */
static int read_without_seccomp(void)
{
    struct nd_error err = {0};
    struct nd_index *index = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/fuzz/capture/exact.h5", getenv("GOLDEN"));
    if (nd_index_open(path, &nd_capture_schema, &index, &err) == ND_OK)
        return 0;
    return err.id == ND_E_FILE_READ && strstr(err.message, "cannot confine") != NULL ? 1 : 2;
}

static void libhdf5_does_not_run_unconfined_without_a_word(void **state)
{
    (void)state;
    int ended = -1;
    for (int is_off = 0; is_off < 2; is_off++) {
        pid_t process = fork();
        if (process == 0) {
            refuse_seccomp();
            if (is_off)
                setenv("NPUDIFF_CONFINE", "off", 1);
            _exit(read_without_seccomp());
        }
        assert_int_equal(waitpid(process, &ended, 0), process);
        assert_true(WIFEXITED(ended));
        assert_int_equal(WEXITSTATUS(ended), is_off ? 0 : 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_child_is_believed),
        cmocka_unit_test(names_of_one_object_do_not_multiply_it),
        cmocka_unit_test(as_much_in_its_own_objects_is_read),
        cmocka_unit_test(the_parent_survives),
        cmocka_unit_test(libhdf5_does_not_run_unconfined_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
