#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/hdf5/index_internal.h"

enum {
    MAX_LINKS = 1000000,
    MAX_ATTRS = 10000,
    MAX_ATTR_BYTES = 65536, /* what an object header can hold */
};

struct link_list {
    struct nd_index_names *names;
    const char *path;
    struct nd_error *err;
    enum nd_status status;
};

static herr_t keep_link(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    (void)group;
    struct link_list *list = data;
    struct nd_index_names *names = list->names;
    if (info->type != H5L_TYPE_HARD)
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, list->path,
                               "link '%s' in '%s' is a soft or external link; only hard links are accepted",
                               name, list->path);
    else if (names->n >= MAX_LINKS)
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, list->path, "'%s' has more than %d objects",
                               list->path, MAX_LINKS);
    else if (!nd_grow((void **)&names->items, &names->capacity, names->n + 1, sizeof *names->items) ||
             (names->items[names->n] = nd_strdup(name)) == NULL)
        list->status = nd_fail_memory(list->err);
    else
        names->n++;
    return list->status == ND_OK ? 0 : -1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum nd_status nd_index_list_links(hid_t group, const char *path, struct nd_index_names *out,
                                   struct nd_error *err)
{
    struct link_list list = {.names = out, .path = path, .err = err};
    herr_t rc = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, keep_link, &list);
    if (list.status == ND_OK && rc < 0)
        list.status = nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "the links of '%s' cannot be read", path);
    if (list.status != ND_OK)
        return list.status;
    if (out->n > 1)
        qsort(out->items, out->n, sizeof *out->items, compare_names);
    for (size_t i = 0; i < out->n; i++)
        if (out->items[i][0] == '\0' || strchr(out->items[i], '/') != NULL ||
            (i > 0 && strcmp(out->items[i - 1], out->items[i]) == 0))
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has a link with an impossible name, '%s'",
                           path, out->items[i]);
    return ND_OK;
}

void nd_index_names_deinit(struct nd_index_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct nd_index_names){0};
}

static enum nd_status read_attr(hid_t id, const char *path, struct nd_index_attr *attr, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    hid_t type = H5Aget_type(id), space = H5Aget_space(id);
    H5S_class_t space_class = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    hsize_t n[1] = {1};
    attr->dtype = nd_hdf5_type_dtype(type);
    size_t elem_bytes =
        attr->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(attr->dtype) : nd_hdf5_text_bytes(type);
    attr->is_scalar = space_class == H5S_SCALAR;
    bool is_simple =
        attr->is_scalar || (space_class == H5S_SIMPLE && rank == 1 && attr->dtype != ND_DTYPE_NONE &&
                            H5Sget_simple_extent_dims(space, n, NULL) == 1);
    attr->n = n[0];
    if (elem_bytes == 0 || !is_simple)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path,
                         "attribute '%s' of '%s' is not a number, a list of numbers or fixed-length text",
                         attr->name, path);
    else if (n[0] > MAX_ATTR_BYTES || elem_bytes > MAX_ATTR_BYTES || attr->n * elem_bytes > MAX_ATTR_BYTES)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' is larger than %d bytes",
                         attr->name, path, MAX_ATTR_BYTES);
    if (status != ND_OK)
        goto out;
    attr->n_bytes = attr->n * elem_bytes;
    attr->bytes = nd_calloc(attr->n_bytes + 1, 1);
    if (attr->bytes == NULL)
        status = nd_fail_memory(err);
    else if (attr->n > 0 && H5Aread(id, type, attr->bytes) < 0)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' cannot be read",
                              attr->name, path);
out:
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

struct attr_list {
    const struct nd_index_schema *schema;
    struct nd_index_object *object;
    size_t capacity;
    struct nd_error *err;
    enum nd_status status;
};

static herr_t keep_attr(hid_t id, const char *name, const H5A_info_t *info, void *data)
{
    (void)info;
    struct attr_list *list = data;
    struct nd_index_object *object = list->object;
    if (!object->is_group && !list->schema->has_attr(name))
        return 0;
    if (object->n_attrs >= MAX_ATTRS) {
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has more than %d attributes",
                               object->path, MAX_ATTRS);
        return -1;
    }
    if (!nd_grow((void **)&object->attrs, &list->capacity, object->n_attrs + 1, sizeof *object->attrs)) {
        list->status = nd_fail_memory(list->err);
        return -1;
    }
    struct nd_index_attr *attr = &object->attrs[object->n_attrs++];
    *attr = (struct nd_index_attr){.name = nd_strdup(name)};
    hid_t opened = H5Aopen(id, name, H5P_DEFAULT);
    if (attr->name == NULL)
        list->status = nd_fail_memory(list->err);
    else if (opened < 0)
        list->status = nd_hdf5_fail(list->err, ND_E_CAPTURE_SCHEMA, object->path,
                                    "attribute '%s' of '%s' cannot be opened", name, object->path);
    else
        list->status = read_attr(opened, object->path, attr, list->err);
    if (opened >= 0)
        H5Aclose(opened);
    return list->status == ND_OK ? 0 : -1;
}

static int compare_attrs(const void *a, const void *b)
{
    return strcmp(((const struct nd_index_attr *)a)->name, ((const struct nd_index_attr *)b)->name);
}

enum nd_status nd_index_add_attrs(const struct nd_index *index, struct nd_index_object *object, hid_t id,
                                  struct nd_error *err)
{
    struct attr_list list = {.schema = index->schema, .object = object, .err = err};
    herr_t rc = H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, keep_attr, &list);
    if (list.status == ND_OK && rc < 0)
        list.status = nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                                   "the attributes of '%s' cannot be read", object->path);
    if (list.status != ND_OK)
        return list.status;
    if (object->n_attrs > 1)
        qsort(object->attrs, object->n_attrs, sizeof *object->attrs, compare_attrs);
    for (size_t i = 1; i < object->n_attrs; i++)
        if (strcmp(object->attrs[i - 1].name, object->attrs[i].name) == 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has the attribute '%s' twice",
                           object->path, object->attrs[i].name);
    return ND_OK;
}
