/* A stranger's file is read in a child that may die, hang, or tell nonsense: the parent says so, within its
 * limit. */
#include "support/main.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/hdf5/reading.h"
#include "core/files/file.h"

/* What is asked of the child. */
enum deed { SEND, FAIL, DIE, SPIN, SLEEP, SPEAK_NONSENSE, HANG_FIRST, STARVE };
enum { N_RECORDS = 5, RECORD_BYTES = 100000 };

struct task {
    enum deed deed;
    int after;                        /* records */
    const struct nd_reading *reading; /* HANG_FIRST: the first child hangs */
};

static void spin(void)
{
    for (volatile unsigned n = 0;; n++)
        ;
}

/* For ever, or so many nanoseconds: what is left to a confined process. */
static void rest(long ns)
{
    static uint32_t word;
    syscall(SYS_futex, &word, FUTEX_WAIT, 0, ns > 0 ? &(struct timespec){.tv_nsec = ns} : NULL, NULL, 0);
}

/* 0.3 s of processor time. */
static void compute(void)
{
    struct timespec used = {0};
    while (used.tv_sec == 0 && used.tv_nsec < 300 * 1000 * 1000)
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
}

static enum nd_status act(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    const struct task *task = context;
    static unsigned char bytes[RECORD_BYTES];
    int n = task->deed == SEND || task->deed == HANG_FIRST || task->deed == STARVE ? N_RECORDS : task->after;
    if (task->deed == STARVE)
        compute();
    while (task->deed == HANG_FIRST && task->reading->n_restarts == 0)
        rest(0);
    for (int i = 0; i < n; i++) {
        memset(bytes, i, sizeof bytes);
        if (nd_reading_send_record(child, err) != ND_OK || nd_reading_send(child, &i, sizeof i, err) != ND_OK ||
            nd_reading_send(child, bytes, sizeof bytes, err) != ND_OK)
            _exit(1);
    }
    switch (task->deed) {
    case FAIL:
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "object", "it is wrong");
    case DIE:
        __builtin_trap();
        break;
    case SPIN:
        spin();
        break;
    case SLEEP:
        for (;;)
            rest(0);
    case SPEAK_NONSENSE:
        nd_reading_send(child, "nonsense", 8, err);
        break;
    case SEND:
    case STARVE:
    case HANG_FIRST:
        break;
    }
    return ND_OK;
}

/* Reads all; how many records came whole. */
static enum nd_status receive(const struct task *task, double base_limit_s, int *n, struct nd_error *err)
{
    struct nd_reading reading = {
        .path = "x.h5", .file_bytes = 1000, .damaged = ND_E_IMPORT_FORMAT, .base_limit_s = base_limit_s};
    static unsigned char bytes[RECORD_BYTES], wanted[RECORD_BYTES];
    bool has_record = true;
    *n = 0;
    struct task given = *task;
    given.reading = &reading;
    assert_int_equal(nd_reading_begin(&reading, act, &given, err), ND_OK);
    pid_t child = reading.child;
    enum nd_status status = ND_OK;
    while (status == ND_OK && has_record) {
        int i = -1;
        status = nd_reading_next(&reading, &has_record, err);
        if (status != ND_OK || !has_record)
            break;
        status = nd_reading_take(&reading, &i, sizeof i, err);
        if (status == ND_OK)
            status = nd_reading_take(&reading, bytes, sizeof bytes, err);
        if (status != ND_OK)
            break;
        assert_int_equal(i, *n);
        memset(wanted, i, sizeof wanted);
        assert_memory_equal(bytes, wanted, sizeof wanted);
        ++*n;
    }
    nd_reading_end(&reading);
    assert_int_equal(kill(child, 0), -1); /* nothing is left of it */
    return status;
}

static void what_the_child_sends_arrives(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int n;
    assert_int_equal(receive(&(struct task){.deed = SEND}, 0, &n, &err), ND_OK);
    assert_int_equal(n, N_RECORDS);
}

static void an_error_of_the_child_is_the_parents(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int n;
    assert_int_equal(receive(&(struct task){.deed = FAIL, .after = 1}, 0, &n, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_CAPTURE_SCHEMA);
    assert_string_equal(err.message, "it is wrong");
    assert_int_equal(n, 1);
}

static void a_child_that_dies_or_speaks_nonsense_means_a_damaged_file(void **state)
{
    (void)state;
    static const enum deed deeds[] = {DIE, SPEAK_NONSENSE};
    for (size_t i = 0; i < 2; i++) {
        struct nd_error err = {0};
        int n;
        assert_int_equal(receive(&(struct task){.deed = deeds[i], .after = 2}, 0, &n, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_IMPORT_FORMAT);
        assert_non_null(strstr(err.message, "'x.h5' is damaged"));
    }
}

/* Neither computing nor waiting for ever is waited for. */
static void a_child_that_never_returns_is_stopped_at_the_limit(void **state)
{
    (void)state;
    static const enum deed deeds[] = {SPIN, SLEEP};
    for (size_t i = 0; i < 2; i++) {
        struct nd_error err = {0};
        int n;
        uint64_t begun_ns = nd_clock_ns();
        assert_int_equal(receive(&(struct task){.deed = deeds[i], .after = 1}, 0.1, &n, &err), ND_ERR_IO);
        assert_int_equal(err.id, ND_E_FILE_TIME);
        assert_non_null(strstr(err.message, "'x.h5'"));
        assert_non_null(strstr(err.message, "stopped at the limit of 0."));
        assert_int_equal(n, 1);
        double waited_s = (double)(nd_clock_ns() - begun_ns) * 1e-9;
        assert_true(waited_s > 0.09 && waited_s < 30);
    }
}

/* Others have the processor most of the time: waiting for it is not the child's fault. */
static void a_child_of_a_busy_machine_is_waited_for(void **state)
{
    (void)state;
    enum { N_OTHERS = 9 };
    struct nd_error err = {0};
    int n;
    pid_t others[N_OTHERS];
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < N_OTHERS; i++)
        if ((others[i] = fork()) == 0)
            spin();
    enum nd_status status = receive(&(struct task){.deed = STARVE}, 0.9, &n, &err);
    for (int i = 0; i < N_OTHERS; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(status, ND_OK);
    assert_int_equal(n, N_RECORDS);
}

/* A shell or a server may have left SIGCHLD ignored: then nobody can be waited for. */
static void it_ends_where_children_are_not_waited_for(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int n;
    signal(SIGCHLD, SIG_IGN);
    enum nd_status status = receive(&(struct task){.deed = SEND}, 0, &n, &err);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(status, ND_OK);
    assert_int_equal(n, N_RECORDS);
}

/* As where another thread held a lock of the allocator when the child was made. */
static void a_child_that_stands_still_from_the_start_is_replaced(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int n;
    assert_int_equal(receive(&(struct task){.deed = HANG_FIRST}, 0, &n, &err), ND_OK);
    assert_int_equal(n, N_RECORDS);
}

/* ---- a file that the parent fetches ---- */

enum { REMOTE_BYTES = 1000000 };
enum question { HONEST, BEYOND, ENDLESS, UNANSWERABLE };

static enum nd_status serve(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err)
{
    if (*(const enum question *)context == UNANSWERABLE)
        return nd_fail(err, ND_E_FETCH_FAILED, "url", "the server is gone");
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)buf)[i] = (unsigned char)((offset + i) % 251);
    return ND_OK;
}

static int count_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED || errno != EBADF;
    return n;
}

static enum nd_status ask(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    static unsigned char bytes[REMOTE_BYTES];
    int n_open = count_open();
    switch (*(const enum question *)context) {
    case BEYOND:
        return nd_reading_ask(child, REMOTE_BYTES - 1, bytes, 2, err);
    case ENDLESS:
        for (;;)
            nd_reading_ask(child, 0, bytes, REMOTE_BYTES, err);
    default:
        break;
    }
    enum nd_status status = nd_reading_ask(child, 7, bytes, REMOTE_BYTES - 7, err);
    int n_wrong = 0;
    for (size_t i = 0; i < REMOTE_BYTES - 7; i++)
        n_wrong += bytes[i] != (i + 7) % 251;
    if (status == ND_OK)
        status = nd_reading_send_record(child, err);
    if (status == ND_OK)
        status = nd_reading_send(child, &n_open, sizeof n_open, err);
    return status == ND_OK ? nd_reading_send(child, &n_wrong, sizeof n_wrong, err) : status;
}

static enum nd_status fetch_through(enum question question, int told[2], struct nd_error *err)
{
    struct nd_reading reading = {.path = "x.h5",
                                 .file_bytes = REMOTE_BYTES,
                                 .damaged = ND_E_CAPTURE_FORMAT,
                                 .fetch = serve,
                                 .fetch_context = &question};
    bool has_record = false;
    assert_int_equal(nd_reading_begin(&reading, ask, &question, err), ND_OK);
    enum nd_status status = nd_reading_next(&reading, &has_record, err);
    if (status == ND_OK && has_record)
        status = nd_reading_take(&reading, told, 2 * sizeof *told, err);
    nd_reading_end(&reading);
    return status;
}

/* And it has nothing else: of the descriptors of its parent, such as connections, none. */
static void a_confined_child_gets_bytes_from_its_parent(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int told[2] = {-1, -1}, ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(fetch_through(HONEST, told, &err), ND_OK);
    assert_int_equal(told[0], 2);
    assert_int_equal(told[1], 0);
    close(ends[0]);
    close(ends[1]);
}

static void a_child_that_asks_for_nonsense_means_a_damaged_file(void **state)
{
    (void)state;
    static const enum question questions[] = {BEYOND, ENDLESS};
    for (size_t i = 0; i < 2; i++) {
        struct nd_error err = {0};
        int told[2];
        assert_int_equal(fetch_through(questions[i], told, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_CAPTURE_FORMAT);
    }
}

static void what_cannot_be_fetched_is_the_error_of_the_reading(void **state)
{
    (void)state;
    struct nd_error err = {0};
    int told[2];
    assert_int_equal(fetch_through(UNANSWERABLE, told, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FETCH_FAILED);
    assert_string_equal(err.message, "the server is gone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_child_sends_arrives),
        cmocka_unit_test(an_error_of_the_child_is_the_parents),
        cmocka_unit_test(a_child_that_dies_or_speaks_nonsense_means_a_damaged_file),
        cmocka_unit_test(a_child_that_never_returns_is_stopped_at_the_limit),
        cmocka_unit_test(a_child_of_a_busy_machine_is_waited_for),
        cmocka_unit_test(it_ends_where_children_are_not_waited_for),
        cmocka_unit_test(a_child_that_stands_still_from_the_start_is_replaced),
        cmocka_unit_test(a_confined_child_gets_bytes_from_its_parent),
        cmocka_unit_test(a_child_that_asks_for_nonsense_means_a_damaged_file),
        cmocka_unit_test(what_cannot_be_fetched_is_the_error_of_the_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
