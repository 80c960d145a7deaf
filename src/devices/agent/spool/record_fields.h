/* Named texts in a record's payload: (key length u32, value length u32, key, value) repeated, little endian. A
 * key may repeat. */
#pragma once

#include "core/text/strbuf.h"
#include "devices/agent/spool/spool.h"

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

/* The first value of that key as a new string (freed by the caller); NULL when there is none or memory is out.
 */
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
