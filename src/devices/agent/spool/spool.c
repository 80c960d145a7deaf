/* The spool, an append-only file of checksummed records: spool.h has the format. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "devices/agent/spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

static const uint32_t magic = 0x3153444e; /* "NDS1" read as little endian */

struct header {
    uint32_t magic;
    uint32_t kind;
    uint64_t index[4];
    uint64_t payload_bytes;
    uint64_t checksum;
};
_Static_assert(sizeof(struct header) == 56, "the header has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "spools and captures are little endian, as is every device");

static void begin_checksum(XXH3_state_t *state, const struct header *header)
{
    struct header bare = *header;
    bare.checksum = 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &bare, sizeof bare);
}

static uint64_t checksum_of(const struct header *header, const void *payload)
{
    XXH3_state_t state;
    begin_checksum(&state, header);
    if (header->payload_bytes > 0)
        XXH3_64bits_update(&state, payload, (size_t)header->payload_bytes);
    return XXH3_64bits_digest(&state);
}

/* Two agents that append to one spool would make one that nobody can read. File systems that know no locks are
 * trusted. */
static enum nd_status open_writer(struct nd_spool_writer *writer, const char *path, int flags,
                                  struct nd_error *err)
{
    *writer = (struct nd_spool_writer){.fd = -1, .path = nd_strdup(path)};
    ND_TRY_MEMORY(writer->path != NULL, err);
    pthread_mutex_init(&writer->lock, NULL);
    writer->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0600);
    enum nd_status status = ND_OK;
    if (writer->fd < 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot %s spool '%s': %s",
                         (flags & O_EXCL) != 0 ? "create" : "open", path, strerror(errno));
    else if (flock(writer->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        status = nd_fail(err, ND_E_SPOOL_RESUME, path, "another agent is still writing spool '%s'", path);
    if (status != ND_OK)
        nd_spool_writer_close(writer, NULL);
    return status;
}

enum nd_status nd_spool_writer_open(struct nd_spool_writer *writer, const char *path, struct nd_error *err)
{
    return open_writer(writer, path, O_EXCL, err);
}

enum nd_status nd_spool_writer_reopen(struct nd_spool_writer *writer, const char *path, struct nd_error *err)
{
    return open_writer(writer, path, 0, err);
}

enum nd_status nd_spool_writer_cut(struct nd_spool_writer *writer, uint64_t size_bytes, struct nd_error *err)
{
    if (ftruncate(writer->fd, (off_t)size_bytes) != 0 || fdatasync(writer->fd) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, writer->path, "cannot cut spool '%s': %s", writer->path,
                       strerror(errno));
    writer->size_bytes = size_bytes;
    return ND_OK;
}

/* A reader stops at the first record that is not whole, so half a record does not stay. */
static enum nd_status append_locked(struct nd_spool_writer *writer, const struct header *header,
                                    const void *payload, struct nd_error *err)
{
    enum nd_status status = nd_file_write_all(writer->fd, header, sizeof *header, writer->path, err);
    if (status == ND_OK)
        status = nd_file_write_all(writer->fd, payload, (size_t)header->payload_bytes, writer->path, err);
    if (status == ND_OK)
        writer->size_bytes += sizeof *header + header->payload_bytes;
    else if (ftruncate(writer->fd, (off_t)writer->size_bytes) != 0)
        nd_error_context(err, "half a record stays");
    return status;
}

static enum nd_status fail_lost(const struct nd_spool_writer *writer, struct nd_error *err)
{
    return writer->lost == ND_ERR_MEMORY
               ? nd_fail_memory(err)
               : nd_fail(err, ND_E_FILE_WRITE, writer->path, "spool '%s' lacks a record", writer->path);
}

void nd_spool_lose(struct nd_spool_writer *writer, enum nd_status why)
{
    pthread_mutex_lock(&writer->lock);
    if (writer->lost == ND_OK)
        writer->lost = why;
    pthread_mutex_unlock(&writer->lock);
}

enum nd_status nd_spool_append(struct nd_spool_writer *writer, const struct nd_record *record,
                               struct nd_error *err)
{
    struct header header = {.magic = magic, .kind = record->kind, .payload_bytes = record->payload_bytes};
    memcpy(header.index, record->index, sizeof header.index);
    header.checksum = checksum_of(&header, record->payload);
    pthread_mutex_lock(&writer->lock);
    bool can_append =
        writer->lost == ND_OK || (writer->lost == ND_ERR_MEMORY && record->kind == ND_RECORD_FAILURE);
    enum nd_status status =
        can_append ? append_locked(writer, &header, record->payload, err) : fail_lost(writer, err);
    if (writer->lost == ND_OK)
        writer->lost = status;
    pthread_mutex_unlock(&writer->lock);
    return status;
}

enum nd_status nd_spool_sync(struct nd_spool_writer *writer, struct nd_error *err)
{
    if (fdatasync(writer->fd) == 0)
        return ND_OK;
    return nd_fail(err, ND_E_FILE_WRITE, writer->path, "cannot sync spool '%s': %s", writer->path,
                   strerror(errno));
}

enum nd_status nd_spool_writer_close(struct nd_spool_writer *writer, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (writer->fd >= 0 && close(writer->fd) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, writer->path, "cannot close spool '%s': %s", writer->path,
                         strerror(errno));
    if (writer->path != NULL)
        pthread_mutex_destroy(&writer->lock);
    free(writer->path);
    *writer = (struct nd_spool_writer){.fd = -1};
    return status;
}

enum nd_status nd_spool_reader_open(struct nd_spool_reader *reader, const char *path, struct nd_error *err)
{
    *reader = (struct nd_spool_reader){0};
    int fd = nd_file_open_regular(path, O_RDONLY);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open spool '%s': %s", path,
                       errno == EINVAL ? "it is not a regular file" : strerror(errno));
    struct stat info;
    enum nd_status status = ND_OK;
    if (fstat(fd, &info) != 0)
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read spool '%s': %s", path, strerror(errno));
    if (status == ND_OK && info.st_size > 0) {
        *reader = (struct nd_spool_reader){
            .fd = fd, .size_bytes = (size_t)info.st_size, .piece = nd_calloc(ND_SPOOL_PIECE_BYTES, 1)};
        status = reader->piece != NULL ? ND_OK : nd_fail_memory(err);
    }
    if (status != ND_OK || info.st_size == 0) {
        close(fd);
        *reader = (struct nd_spool_reader){0};
    }
    return status;
}

enum nd_status nd_spool_reader_map(struct nd_spool_reader *reader, const char *path, struct nd_error *err)
{
    struct nd_spool_reader opened;
    ND_TRY(nd_spool_reader_open(&opened, path, err));
    void *map =
        opened.size_bytes > 0 ? mmap(NULL, opened.size_bytes, PROT_READ, MAP_PRIVATE, opened.fd, 0) : NULL;
    int problem = errno;
    *reader = (struct nd_spool_reader){.map = map, .size_bytes = opened.size_bytes};
    nd_spool_reader_close(&opened);
    if (map != MAP_FAILED)
        return ND_OK;
    *reader = (struct nd_spool_reader){0};
    return nd_fail(err, ND_E_FILE_READ, path, "cannot map spool '%s': %s", path, strerror(problem));
}

enum nd_status nd_spool_load(const struct nd_spool_reader *reader, size_t offset_bytes, void *buf,
                             size_t n_bytes, struct nd_error *err)
{
    return nd_file_read_at(reader->fd, "spool.nds", offset_bytes, buf, n_bytes, err);
}

/* Those before the last record: whole pages, also those that other records share. It is advice: where it fails
 * memory is not saved. */
static void drop_read(struct nd_spool_reader *reader, size_t last_bytes)
{
    enum { STEP_BYTES = 4 << 20 }; /* chosen */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = reader->dropped_bytes / page * page;
    size_t end = reader->offset_bytes - last_bytes;
    if (reader->map == NULL || end - reader->dropped_bytes < STEP_BYTES)
        return;
    madvise((void *)(uintptr_t)(reader->map + first), end - first, MADV_DONTNEED);
    reader->dropped_bytes = end;
}

/* NULL: the file has become shorter. */
static const unsigned char *bytes_at(const struct nd_spool_reader *reader, size_t offset, size_t n)
{
    if (reader->map != NULL)
        return reader->map + offset;
    return nd_spool_load(reader, offset, reader->piece, n, NULL) == ND_OK ? reader->piece : NULL;
}

/* Whether the payload is there and has the checksum. */
static bool is_whole(const struct nd_spool_reader *reader, const struct header *header, size_t offset)
{
    XXH3_state_t state;
    size_t n = (size_t)header->payload_bytes;
    begin_checksum(&state, header);
    for (size_t at = 0; at < n; at += ND_SPOOL_PIECE_BYTES) {
        size_t n_piece = n - at < ND_SPOOL_PIECE_BYTES ? n - at : ND_SPOOL_PIECE_BYTES;
        const unsigned char *piece = bytes_at(reader, offset + at, n_piece);
        if (piece == NULL)
            return false;
        XXH3_64bits_update(&state, piece, n_piece);
    }
    return header->checksum == XXH3_64bits_digest(&state);
}

bool nd_spool_next(struct nd_spool_reader *reader, struct nd_record *out)
{
    struct header header;
    size_t left = reader->size_bytes - reader->offset_bytes, offset = reader->offset_bytes + sizeof header;
    reader->torn_bytes = left;
    const unsigned char *at =
        left < sizeof header ? NULL : bytes_at(reader, reader->offset_bytes, sizeof header);
    if (at == NULL)
        return false;
    memcpy(&header, at, sizeof header);
    if (header.magic != magic || header.payload_bytes > left - sizeof header ||
        !is_whole(reader, &header, offset))
        return false;
    size_t n = (size_t)header.payload_bytes;
    *out = (struct nd_record){.kind = header.kind,
                              .payload = reader->map != NULL         ? reader->map + offset
                                         : n <= ND_SPOOL_PIECE_BYTES ? reader->piece
                                                                     : NULL,
                              .payload_bytes = n,
                              .offset_bytes = offset};
    memcpy(out->index, header.index, sizeof out->index);
    reader->offset_bytes = offset + n;
    drop_read(reader, sizeof header + n);
    return true;
}

void nd_spool_reader_close(struct nd_spool_reader *reader)
{
    if (reader->map != NULL)
        munmap((void *)(uintptr_t)reader->map, reader->size_bytes);
    else if (reader->size_bytes > 0)
        close(reader->fd);
    free(reader->piece);
    *reader = (struct nd_spool_reader){0};
}

enum nd_status nd_spool_keep(const char *path, struct nd_spool_kept *out, struct nd_error *err)
{
    struct nd_spool_kept kept = {0};
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record;
    ND_TRY(nd_path_exists(path) ? nd_spool_reader_open(&reader, path, err) : ND_OK);
    while (!kept.has_ended && nd_spool_next(&reader, &record)) {
        kept.has_ended = record.kind == ND_RECORD_END;
        if (record.kind == ND_RECORD_ACK || (record.kind == ND_RECORD_PASS && record.index[0] > 0) ||
            kept.has_ended)
            kept.size_bytes = reader.offset_bytes;
    }
    *out = kept;
    return ND_OK;
}

bool nd_spool_follow(struct nd_spool_follower *follower, const char *path, struct nd_record *out)
{
    if (follower->fd < 0)
        follower->fd = nd_file_open_regular(path, O_RDONLY);
    struct stat info;
    struct header header;
    /* The header is read after the size was, so it must lie within that size: the file grows meanwhile. */
    if (follower->fd < 0 || fstat(follower->fd, &info) != 0 ||
        (uint64_t)info.st_size < follower->offset_bytes + sizeof header ||
        pread(follower->fd, &header, sizeof header, (off_t)follower->offset_bytes) != (ssize_t)sizeof header)
        return false;
    uint64_t left = (uint64_t)info.st_size - follower->offset_bytes - sizeof header;
    if (header.magic != magic || header.payload_bytes > left)
        return false;
    *out = (struct nd_record){.kind = header.kind, .payload_bytes = (size_t)header.payload_bytes};
    memcpy(out->index, header.index, sizeof out->index);
    follower->offset_bytes += sizeof header + header.payload_bytes;
    return true;
}

void nd_spool_follower_close(struct nd_spool_follower *follower)
{
    nd_fd_close(&follower->fd);
    follower->fd = -1;
}

/* ---- named texts in the payload of a record: spool.h has the format ---- */

void nd_fields_add(struct nd_strbuf *payload, const char *key, const char *value)
{
    if (value == NULL)
        value = "";
    uint32_t lengths[2] = {(uint32_t)strlen(key), (uint32_t)strlen(value)};
    nd_strbuf_append(payload, (const char *)lengths, sizeof lengths);
    nd_strbuf_puts(payload, key);
    nd_strbuf_puts(payload, value);
}

void nd_fields_add_u64(struct nd_strbuf *payload, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    nd_fields_add(payload, key, text);
}

enum nd_status nd_fields_append(struct nd_spool_writer *writer, enum nd_record_kind kind, const uint64_t *index,
                                size_t n_index, struct nd_strbuf *payload, struct nd_error *err)
{
    struct nd_record record = {.kind = kind, .payload = payload->text, .payload_bytes = payload->len};
    for (size_t i = 0; i < n_index; i++)
        record.index[i] = index[i];
    if (payload->failed)
        nd_spool_lose(writer, ND_ERR_MEMORY);
    enum nd_status status = nd_spool_append(writer, &record, err);
    nd_strbuf_deinit(payload);
    return status;
}

bool nd_fields_next(const struct nd_record *record, size_t *offset, struct nd_record_field *out)
{
    uint32_t lengths[2];
    size_t left = record->payload_bytes - *offset;
    if (record->payload == NULL || left < sizeof lengths)
        return false;
    const char *at = (const char *)record->payload + *offset;
    memcpy(lengths, at, sizeof lengths);
    left -= sizeof lengths;
    if (lengths[0] > left || lengths[1] > left - lengths[0])
        return false;
    out->key = at + sizeof lengths;
    out->key_len = lengths[0];
    out->value = out->key + lengths[0];
    out->value_len = lengths[1];
    *offset += sizeof lengths + lengths[0] + lengths[1];
    return true;
}

bool nd_field_is(const struct nd_record_field *field, const char *key)
{
    return field->key_len == strlen(key) && memcmp(field->key, key, field->key_len) == 0;
}

static bool find(const struct nd_record *record, const char *key, struct nd_record_field *out)
{
    size_t offset = 0;
    while (nd_fields_next(record, &offset, out))
        if (nd_field_is(out, key))
            return true;
    return false;
}

bool nd_fields_has(const struct nd_record *record, const char *key)
{
    struct nd_record_field field;
    return find(record, key, &field);
}

char *nd_fields_get(const struct nd_record *record, const char *key)
{
    struct nd_record_field field;
    return find(record, key, &field) ? strndup(field.value, field.value_len) : NULL;
}

char *nd_fields_text(const struct nd_record *record, const char *key)
{
    struct nd_record_field field;
    return find(record, key, &field) ? strndup(field.value, field.value_len) : strdup("");
}

bool nd_fields_copy(const struct nd_record *record, const char *key, char *out, size_t size)
{
    struct nd_record_field field;
    bool is_there = find(record, key, &field);
    size_t n = is_there && field.value_len < size ? field.value_len : is_there ? size - 1 : 0;
    if (n > 0)
        memcpy(out, field.value, n);
    out[n] = '\0';
    return is_there && n == field.value_len;
}

bool nd_fields_get_u64(const struct nd_record *record, const char *key, uint64_t *out)
{
    char text[24];
    return nd_fields_copy(record, key, text, sizeof text) && nd_parse_u64(text, out);
}
