#include "devices/agent/runner/frame.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"

static const char magic[4] = {'N', 'D', 'R', '1'};

struct header {
    char magic[4];
    uint32_t json_bytes;
    uint64_t data_bytes;
};
_Static_assert(sizeof(struct header) == 16, "the header has no holes");

void nd_frame_deinit(struct nd_frame *frame)
{
    json_decref(frame->message);
    free(frame->data);
    *frame = (struct nd_frame){0};
}

/* Everything at once where the pipe has room: the reader wakes once. Uses up the list. */
static bool write_all(int fd, struct iovec *parts, size_t n_parts)
{
    while (n_parts > 0) {
        ssize_t n = writev(fd, parts, (int)(n_parts < IOV_MAX ? n_parts : IOV_MAX));
        if (n < 0 && errno != EINTR)
            return false;
        for (; n_parts > 0 && n >= 0 && (size_t)n >= parts->iov_len; parts++, n_parts--)
            n -= (ssize_t)parts->iov_len;
        if (n_parts > 0 && n > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return true;
}

enum nd_frame_end nd_frame_write(int fd, const json_t *message, const struct nd_frame_part *parts,
                                 size_t n_parts)
{
    char *text = nd_json_dumps(message, JSON_COMPACT);
    struct iovec *all = nd_calloc(n_parts + 2, sizeof *all);
    struct header header;
    uint64_t data_bytes = 0;
    enum nd_frame_end end = ND_FRAME_MEMORY;
    if (text == NULL || all == NULL)
        goto done;
    for (size_t i = 0; i < n_parts; i++) {
        data_bytes += parts[i].n_bytes;
        all[i + 2] = (struct iovec){(void *)(uintptr_t)parts[i].data, parts[i].n_bytes};
    }
    header = (struct header){.json_bytes = htole32((uint32_t)strlen(text)), .data_bytes = htole64(data_bytes)};
    memcpy(header.magic, magic, sizeof magic);
    all[0] = (struct iovec){&header, sizeof header};
    all[1] = (struct iovec){text, strlen(text)};
    end = write_all(fd, all, n_parts + 2) ? ND_FRAME_WHOLE : ND_FRAME_CLOSED;
done:
    free(all);
    free(text);
    return end;
}

struct source {
    int fd;
    uint64_t end_ns;
    bool is_late;
};

/* Waits for more to read. False when it does not come in time. */
static bool is_in_time(struct source *from)
{
    struct pollfd wanted = {.fd = from->fd, .events = POLLIN};
    while (from->end_ns != ND_FRAME_NO_END) {
        uint64_t now_ns = nd_clock_ns();
        uint64_t left_ms = from->end_ns > now_ns ? (from->end_ns - now_ns + 999999) / 1000000 : 0;
        int n = poll(&wanted, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
        from->is_late = n == 0 && nd_clock_ns() >= from->end_ns;
        if (from->is_late)
            return false;
    }
    return true;
}

/* How many of the bytes came before the other side was gone or the time was over. */
static size_t read_all(struct source *from, void *out, size_t n_bytes)
{
    size_t n_read = 0;
    while (n_read < n_bytes && is_in_time(from)) {
        ssize_t n = read(from->fd, (char *)out + n_read, n_bytes - n_read);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        n_read += n > 0 ? (size_t)n : 0;
    }
    return n_read;
}

/* What a part of a frame that is missing means. */
static enum nd_frame_end missing(const struct source *from)
{
    return from->is_late ? ND_FRAME_LATE : ND_FRAME_CLOSED;
}

/* The first bytes, as a person can read them. */
static void quote(const void *bytes, size_t n, char problem[ND_FRAME_PROBLEM_BYTES])
{
    const unsigned char *at = bytes;
    size_t i = 0;
    for (; i < n; i++)
        problem[i] = at[i] >= 0x20 && at[i] < 0x7f ? (char)at[i] : '.';
    problem[i] = '\0';
}

static enum nd_frame_end read_json(struct source *from, size_t n_bytes, struct nd_frame *frame,
                                   char problem[ND_FRAME_PROBLEM_BYTES])
{
    json_error_t where;
    char *text = malloc(n_bytes + 1);
    if (text == NULL)
        return ND_FRAME_MEMORY;
    enum nd_frame_end end = ND_FRAME_WHOLE;
    if (read_all(from, text, n_bytes) != n_bytes) {
        end = missing(from);
    } else if ((frame->message = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &where)) == NULL) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES, "%.150s", where.text);
        end = ND_FRAME_JSON;
    } else if (!json_is_object(frame->message)) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES, "it is not an object");
        end = ND_FRAME_JSON;
    }
    free(text);
    return end;
}

enum nd_frame_end nd_frame_read(int fd, uint64_t end_ns, uint64_t max_data_bytes, struct nd_frame *frame,
                                char problem[ND_FRAME_PROBLEM_BYTES])
{
    struct header header;
    struct source from = {.fd = fd, .end_ns = end_ns};
    json_decref(frame->message);
    frame->message = NULL;
    frame->data_bytes = 0;
    size_t n = read_all(&from, &header, sizeof header.magic);
    if (n > 0 && memcmp(header.magic, magic, n) == 0)
        n += read_all(&from, &header.json_bytes, sizeof header - sizeof header.magic);
    else if (n > 0) {
        quote(&header, n, problem);
        return ND_FRAME_RUBBISH;
    }
    if (n < sizeof header)
        return missing(&from);
    uint32_t json_bytes = le32toh(header.json_bytes);
    uint64_t data_bytes = le64toh(header.data_bytes);
    if (json_bytes > ND_FRAME_MAX_JSON_BYTES || data_bytes > max_data_bytes) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES,
                 "%u bytes of JSON and %llu of data, where %u and %llu are the most", json_bytes,
                 (unsigned long long)data_bytes, (unsigned)ND_FRAME_MAX_JSON_BYTES,
                 (unsigned long long)max_data_bytes);
        return ND_FRAME_TOO_MUCH;
    }
    enum nd_frame_end end = read_json(&from, json_bytes, frame, problem);
    if (end != ND_FRAME_WHOLE)
        return end;
    if (!nd_grow((void **)&frame->data, &frame->capacity, (size_t)data_bytes, 1))
        return ND_FRAME_MEMORY;
    frame->data_bytes = (size_t)data_bytes;
    return read_all(&from, frame->data, frame->data_bytes) == frame->data_bytes ? ND_FRAME_WHOLE
                                                                                : missing(&from);
}
