/* For programs that are runners (docs/reference/runner.md): the frames of the protocol, in C and without a
 * library. A runner is an executable npudiff-runner-NAME. It includes this header and nothing else of npudiff;
 * JSON it reads and writes as it likes.
 *
 *     struct npudiff_link link;
 *     struct npudiff_frame frame = {0};
 *     if (npudiff_link_open(&link) != 0)
 *         return 1;
 *     npudiff_send(&link, "{\"message\": \"hello\", \"protocol\": 2, \"name\": \"mine\", \"version\": \"1\"}",
 * NULL, 0); while (npudiff_receive(&link, &frame) == 1) {
 *         ... frame.json is a text, frame.data the tensors; npudiff_send an answer
 *     }
 *     npudiff_frame_free(&frame);
 *
 * Functions return 0, or 1 where said, when all is well, and -1 when the other side is gone or memory is out;
 * errno says which. Not thread safe. Linux, little endian.
 *
 * Stability: the protocol's version 2. The frames are those of version 1. */
#ifndef NPUDIFF_RUNNER_H
#define NPUDIFF_RUNNER_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct npudiff_link {
    int in, out;
};

/* One message. json ends with a NUL; data has data_bytes. Both are freed by npudiff_frame_free. */
struct npudiff_frame {
    char *json;
    unsigned char *data;
    uint32_t json_bytes;
    uint64_t data_bytes;
};

/* Takes standard input and output for the protocol. What libraries print goes to standard error from now on. */
static inline int npudiff_link_open(struct npudiff_link *link)
{
    int null = open("/dev/null", O_RDONLY);
    link->in = dup(STDIN_FILENO);
    link->out = dup(STDOUT_FILENO);
    if (null < 0 || link->in < 0 || link->out < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return -1;
    return close(null);
}

static inline int npudiff_write_(int fd, const void *bytes, uint64_t n_bytes)
{
    const char *at = (const char *)bytes;
    while (n_bytes > 0) {
        ssize_t n = write(fd, at, n_bytes);
        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? n : 0;
        n_bytes -= n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

static inline int npudiff_read_(int fd, void *bytes, uint64_t n_bytes)
{
    char *at = (char *)bytes;
    while (n_bytes > 0) {
        ssize_t n = read(fd, at, n_bytes);
        if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        at += n > 0 ? n : 0;
        n_bytes -= n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

/* Sends a message with its data. */
static inline int npudiff_send(const struct npudiff_link *link, const char *json, const void *data,
                               uint64_t data_bytes)
{
    char header[16] = {'N', 'D', 'R', '1'};
    uint32_t json_bytes = (uint32_t)strlen(json);
    memcpy(header + 4, &json_bytes, 4);
    memcpy(header + 8, &data_bytes, 8);
    if (npudiff_write_(link->out, header, sizeof header) != 0 ||
        npudiff_write_(link->out, json, json_bytes) != 0)
        return -1;
    return npudiff_write_(link->out, data, data_bytes);
}

static inline void npudiff_frame_free(struct npudiff_frame *frame)
{
    free(frame->json);
    free(frame->data);
    memset(frame, 0, sizeof *frame);
}

/* Waits for a message, in place of what the frame held. 1: it is there; 0: npudiff has ended, and so should the
 * runner; -1: what came is no frame, or memory is out. */
static inline int npudiff_receive(const struct npudiff_link *link, struct npudiff_frame *frame)
{
    char header[16];
    npudiff_frame_free(frame);
    if (npudiff_read_(link->in, header, sizeof header) != 0)
        return 0;
    if (memcmp(header, "NDR1", 4) != 0)
        return -1;
    memcpy(&frame->json_bytes, header + 4, 4);
    memcpy(&frame->data_bytes, header + 8, 8);
    frame->json = (char *)calloc((size_t)frame->json_bytes + 1, 1);
    frame->data = (unsigned char *)malloc(frame->data_bytes > 0 ? (size_t)frame->data_bytes : 1);
    if (frame->json == NULL || frame->data == NULL)
        return -1;
    return npudiff_read_(link->in, frame->json, frame->json_bytes) == 0 &&
                   npudiff_read_(link->in, frame->data, frame->data_bytes) == 0
               ? 1
               : 0;
}

#ifdef __cplusplus
}
#endif
#endif
