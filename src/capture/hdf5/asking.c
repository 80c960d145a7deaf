#include "capture/hdf5/asking.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Chosen. libhdf5 reads up to 2.5 % of a capture of 117 MB, some places twice (docs/results/remote.md). A file
 * that takes the child over might ask for ever; every question counts as QUESTION_BYTES at the least. */
enum { MAX_TIMES_READ = 4, MIN_FETCHED_BYTES = 64 << 20, QUESTION_BYTES = 512 };

struct question {
    uint64_t offset;
    uint64_t n_bytes;
};

unsigned char *nd_desk_make(void)
{
    void *desk = mmap(NULL, ND_DESK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return desk != MAP_FAILED ? desk : NULL;
}

void nd_desk_free(unsigned char *desk)
{
    if (desk != NULL)
        munmap(desk, ND_DESK_BYTES);
}

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

void nd_keep_open_only(int a, int b)
{
    unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
    close_from_to(STDERR_FILENO + 1, low - 1);
    close_from_to(low + 1, high - 1);
    close_from_to(high + 1, ~0u);
}

enum nd_status nd_reading_ask(struct nd_reading_child *child, uint64_t offset, void *buf, size_t n_bytes,
                              struct nd_error *err)
{
    unsigned char *to = buf;
    while (n_bytes > 0) {
        const int mark = ND_MARK_ASK;
        const struct question question = {offset, n_bytes < ND_DESK_BYTES ? n_bytes : ND_DESK_BYTES};
        uint64_t n_answers = 0;
        enum nd_status status = nd_reading_send(child, &mark, sizeof mark, err);
        if (status == ND_OK)
            status = nd_reading_send(child, &question, sizeof question, err);
        if (status == ND_OK)
            status = nd_reading_flush(child, err);
        ssize_t n = -1;
        while (status == ND_OK && (n = read(child->answers, &n_answers, sizeof n_answers)) < 0 &&
               errno == EINTR)
            ;
        if (status == ND_OK && n != sizeof n_answers)
            status =
                nd_fail(err, ND_E_FILE_READ, child->path, "cannot read '%s': %s", child->path, strerror(errno));
        if (status != ND_OK)
            return status;
        memcpy(to, child->desk, question.n_bytes);
        to += question.n_bytes;
        offset += question.n_bytes;
        n_bytes -= question.n_bytes;
    }
    return ND_OK;
}

enum nd_status nd_reading_answer(struct nd_reading *reading, struct nd_error *err)
{
    struct question question;
    enum nd_status status = nd_reading_take(reading, &question, sizeof question, err);
    if (status != ND_OK)
        return status;
    if (reading->fetch == NULL || question.n_bytes == 0 || question.n_bytes > ND_DESK_BYTES ||
        question.offset > reading->file_bytes || question.n_bytes > reading->file_bytes - question.offset)
        return nd_reading_fail(reading, err);
    reading->n_fetched += question.n_bytes < QUESTION_BYTES ? QUESTION_BYTES : question.n_bytes;
    if (reading->n_fetched / MAX_TIMES_READ > reading->file_bytes && reading->n_fetched > MIN_FETCHED_BYTES)
        return nd_reading_fail(reading, err);
    status = reading->fetch(reading->fetch_context, question.offset, reading->desk, question.n_bytes, err);
    const uint64_t one = 1;
    if (status == ND_OK && write(reading->answers, &one, sizeof one) != sizeof one)
        return nd_reading_fail(reading, err);
    return status;
}
