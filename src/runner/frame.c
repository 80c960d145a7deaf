#include "runner/frame.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_out.h"
#include "base/memory.h"

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

static bool write_all(int fd, const void *data, size_t n_bytes)
{
    const char *at = data;
    while (n_bytes > 0) {
        ssize_t n = write(fd, at, n_bytes);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        n_bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

enum nd_frame_end nd_frame_write(int fd, const json_t *message, const struct nd_frame_part *parts,
                                 size_t n_parts)
{
    char *text = nd_json_dumps(message, JSON_COMPACT);
    if (text == NULL)
        return ND_FRAME_MEMORY;
    size_t json_bytes = strlen(text);
    uint64_t data_bytes = 0;
    for (size_t i = 0; i < n_parts; i++)
        data_bytes += parts[i].n_bytes;
    struct header header = {.json_bytes = htole32((uint32_t)json_bytes), .data_bytes = htole64(data_bytes)};
    memcpy(header.magic, magic, sizeof magic);
    bool is_written = write_all(fd, &header, sizeof header) && write_all(fd, text, json_bytes);
    for (size_t i = 0; is_written && i < n_parts; i++)
        is_written = write_all(fd, parts[i].data, parts[i].n_bytes);
    free(text);
    return is_written ? ND_FRAME_WHOLE : ND_FRAME_CLOSED;
}

/* How many of the bytes came before the other side was gone. */
static size_t read_all(int fd, void *out, size_t n_bytes)
{
    size_t n_read = 0;
    while (n_read < n_bytes) {
        ssize_t n = read(fd, (char *)out + n_read, n_bytes - n_read);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        n_read += n > 0 ? (size_t)n : 0;
    }
    return n_read;
}

static bool is_in_time(int fd, int timeout_ms)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&wanted, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n != 0;
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

static enum nd_frame_end read_json(int fd, size_t n_bytes, struct nd_frame *frame,
                                   char problem[ND_FRAME_PROBLEM_BYTES])
{
    json_error_t where;
    char *text = malloc(n_bytes + 1);
    if (text == NULL)
        return ND_FRAME_MEMORY;
    enum nd_frame_end end = ND_FRAME_WHOLE;
    if (read_all(fd, text, n_bytes) != n_bytes) {
        end = ND_FRAME_CLOSED;
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

enum nd_frame_end nd_frame_read(int fd, int timeout_ms, uint64_t max_data_bytes, struct nd_frame *frame,
                                char problem[ND_FRAME_PROBLEM_BYTES])
{
    struct header header;
    json_decref(frame->message);
    frame->message = NULL;
    frame->data_bytes = 0;
    if (!is_in_time(fd, timeout_ms))
        return ND_FRAME_LATE;
    size_t n = read_all(fd, &header, sizeof header.magic);
    if (n > 0 && memcmp(header.magic, magic, n) == 0)
        n += read_all(fd, &header.json_bytes, sizeof header - sizeof header.magic);
    else if (n > 0) {
        quote(&header, n, problem);
        return ND_FRAME_RUBBISH;
    }
    if (n < sizeof header)
        return ND_FRAME_CLOSED;
    uint32_t json_bytes = le32toh(header.json_bytes);
    uint64_t data_bytes = le64toh(header.data_bytes);
    if (json_bytes > ND_FRAME_MAX_JSON_BYTES || data_bytes > max_data_bytes) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES,
                 "%u bytes of JSON and %llu of data, where %u and %llu are the most", json_bytes,
                 (unsigned long long)data_bytes, (unsigned)ND_FRAME_MAX_JSON_BYTES,
                 (unsigned long long)max_data_bytes);
        return ND_FRAME_TOO_MUCH;
    }
    enum nd_frame_end end = read_json(fd, json_bytes, frame, problem);
    if (end != ND_FRAME_WHOLE)
        return end;
    if (!nd_grow((void **)&frame->data, &frame->capacity, (size_t)data_bytes, 1))
        return ND_FRAME_MEMORY;
    frame->data_bytes = (size_t)data_bytes;
    return read_all(fd, frame->data, frame->data_bytes) == frame->data_bytes ? ND_FRAME_WHOLE : ND_FRAME_CLOSED;
}
