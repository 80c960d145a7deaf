/* The spool: an append-only file of checksummed records, written by an agent and read by its host. Also the
 * format of the job that the host hands to the agent, so that an agent needs one format and no library.
 *
 *   record = header (56 bytes, little endian) + payload
 *   header = magic "NDS1" u32 | kind u32 | index u64 x 4 | payload_bytes u64 | checksum u64
 *
 * checksum is XXH3-64 over the header with checksum 0, followed by the payload. A reader takes records in order
 * and stops at the first that is cut off or does not match: everything before it is whole. What index means
 * depends on the kind. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/text/strbuf.h"

enum nd_record_kind {
    /* a job, from the host */
    ND_RECORD_JOB = 1, /* fields; first in a spool, the job that it is of: payload XXH3-128 of the job's bytes
                          (low, high) */
    ND_RECORD_TENSOR = 2, /* index: tensor, pass; fields: output, dtype, grid (the bits of scale), zero_point */
    ND_RECORD_TARGET = 3, /* index: input; fields: name, dtype, dims */
    ND_RECORD_PROBE = 4,  /* index: probe, samples, how many of them are run again; fields: name */
    ND_RECORD_INPUT = 5,  /* index: probe, input; payload: the bytes of all samples */
    ND_RECORD_CHECK = 6,  /* index: pass, tensor: this tensor of pass 0 is an output of that pass too, and must
                             come out equal */
    /* a spool, from the agent */
    ND_RECORD_STAGE = 16,  /* fields: stage */
    ND_RECORD_RESUME = 33, /* index: pass, probe, sample, how often (from 1): a later agent went on from here */
    ND_RECORD_PASS = 30,   /* index: pass: the nodes, samples and acknowledgements that follow belong to it */
    ND_RECORD_RUNTIME = 17, /* fields: version, build_info; of a runner, runner; confined */
    ND_RECORD_LIBRARY = 18, /* fields: path, build_id */
    ND_RECORD_NODE = 19,    /* fields: provider, name, op_type, domain; of a provider's, subgraph (from 1) */
    ND_RECORD_OUTPUT = 20,  /* index: tensor; fields: dtype, dims (what the first run produced) */
    ND_RECORD_CHUNK = 21, /* index: probe, tensor, chunk; payload: a whole chunk as the capture will hold it */
    ND_RECORD_FRAGMENT = 22, /* index: probe, tensor, first sample, samples; payload: their raw bytes, of a
                                chunk not yet whole */
    ND_RECORD_SAMPLE = 23,   /* index: probe, sample, repeat, latency in ns (UINT64_MAX: not measured); payload:
                                XXH3-128 (low, high) of every tensor of the pass */
    ND_RECORD_REPEAT =
        24,             /* index: probe, tensor, sample, repeat; payload: raw bytes that differ from repeat 0 */
    ND_RECORD_ACK = 25, /* index: probe, samples: so many samples of the probe are complete and synced */
    ND_RECORD_LOG = 26, /* fields: severity, location, message */
    ND_RECORD_FAILURE = 27, /* fields: stage, code, symbol, operator, message */
    ND_RECORD_PROFILE = 28, /* payload: the profile, as the runtime wrote it */
    ND_RECORD_TRUTH = 31, /* fields: profile, faulty, kinds, n_changed: of an emulated device; or not_known and
                          behind_not_known: of a twin; the last counts */
    ND_RECORD_PROVIDER_PROFILE = 32, /* payload: the profile that the provider itself wrote (CSV) */
    ND_RECORD_MISSING = 34,          /* fields: output, reason: the session of the pass cannot give it */
    ND_RECORD_CONTEXT = 40, /* fields: build_id, graph, n_graphs, backend, soc_model, core_api, backend_api */
    ND_RECORD_CONTEXT_TENSOR = 41, /* index: is output, position; fields: name, data_type, dims, scale_offset */
    ND_RECORD_END = 29,            /* the agent did all it was asked */
};

struct nd_record {
    uint32_t kind;
    uint64_t index[4];
    const void *payload; /* borrowed */
    size_t payload_bytes;
    size_t offset_bytes; /* of the payload, in the spool that it was read from */
};

struct nd_spool_writer {
    int fd; /* -1 when closed */
    char *path;
    uint64_t size_bytes;  /* of all whole records */
    enum nd_status lost;  /* why a record is missing; nothing is appended behind it, least of all an end */
    pthread_mutex_t lock; /* keeps a record in one piece */
};

/* Creates the file (it must not exist). As long as a writer has it no other can: the lock goes with the
 * process, however that ends. */
enum nd_status nd_spool_writer_open(struct nd_spool_writer *writer, const char *path, struct nd_error *err);
/* Opens the file to append to what is there, and creates it where it is missing. ND_E_SPOOL_RESUME while
 * another writer has it. Nothing may be appended before nd_spool_writer_cut has said what is kept. */
enum nd_status nd_spool_writer_reopen(struct nd_spool_writer *writer, const char *path, struct nd_error *err);
/* Takes away everything behind the first size_bytes, for good (synced). */
enum nd_status nd_spool_writer_cut(struct nd_spool_writer *writer, uint64_t size_bytes, struct nd_error *err);
/* Appends one record; any thread may. ND_E_FILE_WRITE (a full disk) leaves no part of it. After a record that
 * could not be appended every later one fails, so that a spool with an end lacks nothing. */
enum nd_status nd_spool_append(struct nd_spool_writer *writer, const struct nd_record *record,
                               struct nd_error *err);
/* A record could not even be made: as if appending it had failed with `why`. A failure for lack of memory can
 * still be appended. */
void nd_spool_lose(struct nd_spool_writer *writer, enum nd_status why);
/* Waits until everything appended survives a crash of the machine (fdatasync). */
enum nd_status nd_spool_sync(struct nd_spool_writer *writer, struct nd_error *err);
/* Closes, and reports what close reports. Accepts the closed. */
enum nd_status nd_spool_writer_close(struct nd_spool_writer *writer, struct nd_error *err);

/* Reads a finished spool. As a mapping of the file payloads stay as long as the reader: for the agent, whose
 * own spools these are. What was read leaves memory again, so that a spool of any size takes no more than a few
 * MiB at a time; a payload that is looked at later comes back. Any other reader reads: whoever shortens the
 * file meanwhile ends the spool, and sends no SIGBUS. */
struct nd_spool_reader {
    const unsigned char *map; /* NULL: it is read */
    unsigned char *piece;     /* ND_SPOOL_PIECE_BYTES, where it is read */
    int fd;
    size_t size_bytes;
    size_t offset_bytes;  /* of the next record */
    size_t dropped_bytes; /* the first bytes, which were dropped */
    size_t torn_bytes;    /* after the end: bytes that are no whole record */
};
enum { ND_SPOOL_PIECE_BYTES = 1 << 20 }; /* chosen */
/* An empty file is a spool without records. */
enum nd_status nd_spool_reader_open(struct nd_spool_reader *reader, const char *path, struct nd_error *err);
enum nd_status nd_spool_reader_map(struct nd_spool_reader *reader, const char *path, struct nd_error *err);
/* The next whole record; false at the end (torn_bytes is set then). Where it is read the payload lasts until
 * the next call, and is NULL if it is longer than ND_SPOOL_PIECE_BYTES: nd_spool_load has it. */
bool nd_spool_next(struct nd_spool_reader *reader, struct nd_record *out);
/* n_bytes of a spool that is read, from an offset on. ND_E_FILE_READ. */
enum nd_status nd_spool_load(const struct nd_spool_reader *reader, size_t offset_bytes, void *buf,
                             size_t n_bytes, struct nd_error *err);
void nd_spool_reader_close(struct nd_spool_reader *reader);

/* What of a spool outlives the agent that wrote it: everything up to its last acknowledgement or up to the
 * record with which a pass other than the first began, whichever is later, and that record with it; all of it
 * when the agent had ended. An agent that goes on cuts its spool there. Whoever holds a copy, which is a prefix
 * of the spool as it was, cuts it to its own nd_spool_keep and then reads on from that size. */
struct nd_spool_kept {
    uint64_t size_bytes; /* 0: nothing is kept */
    bool has_ended;
};
/* A missing file keeps nothing. */
enum nd_status nd_spool_keep(const char *path, struct nd_spool_kept *out, struct nd_error *err);

/* Follows a spool that is still growing, by headers alone (no checksum: for progress only). */
struct nd_spool_follower {
    int fd; /* -1 until the file exists */
    uint64_t offset_bytes;
};
/* The next record whose bytes are all there; payload is NULL. */
bool nd_spool_follow(struct nd_spool_follower *follower, const char *path, struct nd_record *out);
void nd_spool_follower_close(struct nd_spool_follower *follower);

/* Named texts in a record's payload: (key length u32, value length u32, key, value) repeated, little endian. A
 * key may repeat. */

/* Appends one field to the payload under construction (NULL value: ""). */
void nd_fields_add(struct nd_strbuf *payload, const char *key, const char *value);
void nd_fields_add_u64(struct nd_strbuf *payload, const char *key, uint64_t value);

/* Appends a record of that kind with the fields collected in payload, and empties payload. */
enum nd_status nd_fields_append(struct nd_spool_writer *writer, enum nd_record_kind kind, const uint64_t *index,
                                size_t n_index, struct nd_strbuf *payload, struct nd_error *err);

/* Walks over the fields of a record: start with offset 0; key and value are views, not terminated. False at the
 * end or where the payload is malformed. */
struct nd_record_field {
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
};
bool nd_fields_next(const struct nd_record *record, size_t *offset, struct nd_record_field *out);

/* The first value of that key as a new string (the caller frees it); NULL: there is none or memory is out. */
bool nd_fields_has(const struct nd_record *record, const char *key);
char *nd_fields_get(const struct nd_record *record, const char *key);

/* The same where a value that is not there is as good as "": NULL means that memory is out. */
char *nd_fields_text(const struct nd_record *record, const char *key);

/* The first value of that key, cut to size - 1 bytes, and "" when there is none. True when it is there and
 * whole. It needs no memory, so that false never means that there was none. */
bool nd_fields_copy(const struct nd_record *record, const char *key, char *out, size_t size);

/* The first value of that key as a number; false when missing or not a number. Needs no memory. */
bool nd_fields_get_u64(const struct nd_record *record, const char *key, uint64_t *out);

/* Whether the field's key is `key`. */
bool nd_field_is(const struct nd_record_field *field, const char *key);
