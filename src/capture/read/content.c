/* The digest of everything that a capture holds. docs/reference/capture-format.md. */
#include "capture/read/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* Whether the digests of its probe stand for the dataset's bytes: /probes/<probe>/inputs/, /outputs/, /repeats/
 * and /reruns/. */
static bool is_tensor(const struct nd_index_object *object)
{
    static const char *const parts[] = {"/inputs/", "/outputs/", "/repeats/", "/reruns/"};
    if (object->is_group || strncmp(object->path, "/probes/", 8) != 0)
        return false;
    const char *part = strchr(object->path + 8, '/');
    for (size_t i = 0; part != NULL && i < sizeof parts / sizeof parts[0]; i++)
        if (strncmp(part, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

/* /probes/<probe>/edge_digests: what it says follows from the digests. */
static bool is_derived(const struct nd_index_object *object)
{
    const char *part = strncmp(object->path, "/probes/", 8) == 0 ? strchr(object->path + 8, '/') : NULL;
    return part != NULL && strcmp(part, "/edge_digests") == 0;
}

static void format_digest(struct nd_digest digest, char hex[static ND_CONTENT_DIGEST_BYTES])
{
    snprintf(hex, ND_CONTENT_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

/* A field ends with a NUL, which no name can contain. */
static void put_field(struct nd_strbuf *stream, const char *text)
{
    nd_strbuf_append(stream, text, strlen(text) + 1);
}

static void put_digest(struct nd_strbuf *stream, struct nd_digest digest)
{
    char hex[ND_CONTENT_DIGEST_BYTES];
    format_digest(digest, hex);
    put_field(stream, hex);
}

static void put_attrs(struct nd_strbuf *stream, const struct nd_index_object *object)
{
    bool is_root = object->path[1] == '\0';
    char text[64];
    for (size_t i = 0; i < object->n_attrs; i++) {
        const struct nd_index_attr *attr = &object->attrs[i];
        if (is_root && strcmp(attr->name, "content_digest") == 0)
            continue;
        put_field(stream, "attribute");
        put_field(stream, attr->name);
        put_field(stream, nd_index_type_name(attr->dtype, attr->n_bytes, text, sizeof text));
        snprintf(text, sizeof text, "%zu", attr->n);
        put_field(stream, attr->is_scalar ? "scalar" : text);
        put_digest(stream, nd_digest_bytes(attr->bytes, attr->n_bytes));
    }
}

static enum nd_status put_data(struct nd_strbuf *stream, const struct nd_index *index,
                               const struct nd_index_object *object, struct nd_error *err)
{
    ND_FREED void *data = nd_calloc(object->n_bytes, 1);
    ND_TRY_MEMORY(data != NULL, err);
    ND_TRY(nd_index_read(index, object, 0, (size_t)object->shape.dims[0], data, err));
    put_digest(stream, nd_digest_bytes(data, object->n_bytes));
    return ND_OK;
}

enum nd_status nd_content_digest(const struct nd_index *index, const struct nd_digest *const *known,
                                 char hex[static ND_CONTENT_DIGEST_BYTES], struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf stream = {0};
    for (size_t i = 0; i < index->n_objects; i++) {
        const struct nd_index_object *object = &index->objects[i];
        char text[256];
        if (is_derived(object))
            continue;
        put_field(&stream, object->is_group ? "group" : "dataset");
        put_field(&stream, object->path);
        if (!object->is_group) {
            put_field(&stream, nd_index_type_name(object->dtype, object->elem_bytes, text, sizeof text));
            put_field(&stream, nd_shape_format(&object->shape, text, sizeof text));
        }
        put_attrs(&stream, object);
        if (known != NULL && known[i] != NULL)
            put_digest(&stream, *known[i]);
        else if (!object->is_group && !is_tensor(object))
            ND_TRY(put_data(&stream, index, object, err));
    }
    ND_TRY_MEMORY(!stream.failed, err);
    format_digest(nd_digest_bytes(stream.text, stream.len), hex);
    return ND_OK;
}
