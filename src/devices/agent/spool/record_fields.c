/* Named texts in the payload of a record; record_fields.h has the format. */
#include "devices/agent/spool/record_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

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
