/* Reading a stranger's file by a library that may crash or never return: a confined child (reading.c) reads
 * and sends what it found through a pipe, and its parent stops it at limits of time and memory. The parent
 * reckons with a file that has taken the child over: it believes nothing that the child says, and ends it
 * whatever it says.
 *
 * A child that stands still before it has sent anything is replaced by a new one: it may hang in a lock that
 * another thread held when it was made.
 *
 * Where the file is not on this machine, the child asks its parent for bytes (nd_reading_ask), and so needs no
 * connection: it has no descriptors but those that join it to its parent, and the file.
 *
 * The child may use LIMIT = 5 s + 1 s for each 10 MiB of the file and of what it sent, of processor time.
 * The parent waits for it 1.6 times LIMIT by the clock; time in which the parent does other things, or in which
 * the child waits for a processor, does not count, and that in which it waits for a disk counts an eighth. The
 * child may send 16 MiB + 4 bytes for each byte of the file, and take 128 MiB + the file's size + 3 times what
 * it may send. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "npudiff/core/tensor.h"

/* What the child does, confined: it sends records by nd_reading_send. */
struct nd_reading_child {
    int pipe;
    int answers;                        /* an eventfd; -1 where nothing is asked */
    const unsigned char *shared_buffer; /* answers lie here */
    const char *path;
    unsigned char *buffer;
    size_t n_buffered;
};
typedef enum nd_status nd_reading_work(void *context, struct nd_reading_child *child, struct nd_error *err);

/* One reading. Fill in the first part; all is borrowed until nd_reading_end. */
struct nd_reading {
    const char *path;
    uint64_t file_bytes;
    enum nd_error_id damaged; /* the error when the child dies */
    const int *fd;            /* the file's, which the child keeps; NULL: none */
    double base_limit_s;      /* instead of the 5 s; 0: 5 s */
    uint64_t max_sent_bytes;  /* 0: as above */
    /* What nd_reading_ask calls in the parent, within nd_reading_next; NULL: the child reads the file itself.
     * The range lies in the file. A failure is that of nd_reading_next. */
    enum nd_status (*fetch)(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err);
    void *fetch_context;
    /* Private. */
    nd_reading_work *work;
    void *context;
    pid_t child;
    int pipe;
    int answers;
    unsigned char *shared_buffer;
    uint64_t n_fetched;
    uint64_t n_received;
    uint64_t waited_ns;
    double cpu_s;        /* what the child had used when it was last seen to work, */
    uint64_t busy_ns;    /* and waited_ns then */
    uint64_t checked_ns; /* waited_ns when the limits were last looked at */
    int n_restarts;
    unsigned char *buffer; /* bytes [buffer_at, n_buffered) were received and not taken */
    size_t buffer_at, n_buffered;
};

/* Starts the child, which runs work(context). libhdf5 is in no call of another thread when the child begins.
 * ND_E_FILE_READ: no process can be started. The caller calls nd_reading_end only after ND_OK. */
enum nd_status nd_reading_begin(struct nd_reading *reading, nd_reading_work *work, void *context,
                                struct nd_error *err);

/* Waits for the next record. *has_record is false at the end of the work. The other results: the error of
 * the work; reading->damaged when the child died; ND_E_FILE_TIME when the limit was reached. */
enum nd_status nd_reading_next(struct nd_reading *reading, bool *has_record, struct nd_error *err);

/* n_bytes of the record in hand. Check what they say like a file: a file may have taken the child over.
 * reading->damaged, ND_E_FILE_TIME. */
enum nd_status nd_reading_take(struct nd_reading *reading, void *buf, size_t n_bytes, struct nd_error *err);

/* Whether n_bytes more may come: to be asked before there is memory for them. reading->damaged. */
enum nd_status nd_reading_expect(const struct nd_reading *reading, uint64_t n_bytes, struct nd_error *err);

/* n_bytes (at most ND_MAX_PATH_BYTES) of the record as text in new memory, which the caller frees. Like
 * nd_reading_take, and ND_E_MEMORY. */
enum nd_status nd_reading_take_text(struct nd_reading *reading, size_t n_bytes, char **text,
                                    struct nd_error *err);

/* reading->damaged: the record in hand cannot be. */
enum nd_status nd_reading_fail(const struct nd_reading *reading, struct nd_error *err);

/* Ends the child, whatever it does. */
void nd_reading_end(struct nd_reading *reading);

/* A shape as the child sends it: without padding. */
struct nd_sent_shape {
    int64_t rank;
    int64_t dims[ND_MAX_RANK]; /* 0 from rank on */
};

struct nd_sent_shape nd_sent_shape(const struct nd_shape *shape);
/* A rank that no shape has becomes -1. */
void nd_shape_from_sent(const struct nd_sent_shape *sent, struct nd_shape *out);

/* In the child: begins a record, and sends bytes of it. They are on their way when the work ends, or by
 * nd_reading_flush. */
enum nd_status nd_reading_send_record(struct nd_reading_child *child, struct nd_error *err);
enum nd_status nd_reading_send(struct nd_reading_child *child, const void *bytes, size_t n_bytes,
                               struct nd_error *err);

/* In the child, between records: bytes [offset, offset + n_bytes) of the file, which the parent fetches. When
 * that fails, the parent ends the child. */
enum nd_status nd_reading_ask(struct nd_reading_child *child, uint64_t offset, void *buf, size_t n_bytes,
                              struct nd_error *err);
