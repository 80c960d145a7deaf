/* What a model keeps in files beside it: found, checked, hashed, and read. A location outside of the folder of
 * the model is refused. */
#include "model/graph/external.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "npudiff/core/parse.h"

/* Where a tensor's bytes lie: length 0 stands for "to the end" only while has_length is false. */
struct place {
    const char *location;
    uint64_t offset;
    uint64_t length;
    bool has_length;
};

bool nd_external_is(const Onnx__TensorProto *tensor)
{
    return tensor->has_data_location && tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* A relative path without any "..": what it names lies in the model's folder or below. */
static bool stays_inside(const char *location)
{
    if (location[0] == '/' || location[0] == '\0')
        return false;
    for (const char *part = location; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

static enum nd_status place_of(const Onnx__TensorProto *tensor, struct place *out, struct nd_error *err)
{
    struct place place = {.location = NULL};
    const char *name = nd_onnx_text(tensor->name);
    bool is_valid = true;
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const char *key = nd_onnx_text(tensor->external_data[i]->key);
        const char *value = nd_onnx_text(tensor->external_data[i]->value);
        if (strcmp(key, "location") == 0)
            place.location = value;
        else if (strcmp(key, "offset") == 0)
            is_valid = is_valid && nd_parse_u64(value, &place.offset);
        else if (strcmp(key, "length") == 0)
            is_valid = is_valid && (place.has_length = nd_parse_u64(value, &place.length));
    }
    if (place.location == NULL || !is_valid)
        return nd_fail(err, ND_E_MODEL_EXTERNAL, name, "tensor '%s' does not say where its external data is",
                       name);
    if (!stays_inside(place.location))
        return nd_fail(err, ND_E_MODEL_EXTERNAL, place.location,
                       "tensor '%s' has its data in '%s', outside of the model's folder", name, place.location);
    *out = place;
    return ND_OK;
}

static char *path_beside(const char *model_path, const char *location)
{
    ND_FREED char *dir = nd_path_dir(model_path);
    return dir != NULL ? nd_path_join(dir, location) : NULL;
}

/* Opens the file of a place and checks that it holds what the place says; place->length is filled in. */
static enum nd_status open_place(struct place *place, const char *name, const char *path, int *out,
                                 struct nd_error *err)
{
    struct stat info;
    /* O_NONBLOCK: a pipe in its place must not make us wait for a writer. */
    ND_CLEANUP(nd_fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0)
        return nd_fail(err, ND_E_MODEL_EXTERNAL, path, "external data '%s' of tensor '%s' cannot be opened: %s",
                       path, name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return nd_fail(err, ND_E_MODEL_EXTERNAL, path, "external data '%s' of tensor '%s' is not a file", path,
                       name);
    uint64_t size = (uint64_t)info.st_size;
    if (!place->has_length)
        place->length = size > place->offset ? size - place->offset : 0;
    if (place->offset > size || place->length > size - place->offset)
        return nd_fail(err, ND_E_MODEL_EXTERNAL, path, "external data '%s' of tensor '%s' ends too early", path,
                       name);
    *out = fd;
    fd = -1;
    return ND_OK;
}

struct collecting {
    struct nd_external *external;
    const char *model_path;
};

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || (n > 0 && folder[n - 1] == '/'));
}

/* The folder that a path leads to when links are followed; NULL: none, or out of memory. */
static char *real_folder(const char *path)
{
    char *dir = nd_path_dir(path), *real = dir != NULL ? realpath(dir, NULL) : NULL;
    free(dir);
    return real;
}

/* A link may lead to a file in the model's folder, or beside the file that the model itself is a link to (as in
 * caches that keep all files under their digests). Else a model could have any file of this machine read. */
static enum nd_status check_links(const char *path, const char *model_path, struct nd_error *err)
{
    ND_FREED char *real = realpath(path, NULL), *model = realpath(model_path, NULL);
    ND_FREED char *folder = real_folder(model_path), *target = model != NULL ? real_folder(model) : NULL;
    if (real == NULL || folder == NULL || target == NULL)
        return nd_fail(err, ND_E_MODEL_EXTERNAL, path, "external data '%s' cannot be opened: %s", path,
                       strerror(errno));
    else if (!is_below(real, folder) && !is_below(real, target))
        return nd_fail(err, ND_E_MODEL_EXTERNAL, path,
                       "external data '%s' is a link to '%s', outside of the model's folder", path, real);
    return ND_OK;
}

static enum nd_status add_file(struct collecting *to, struct place *place, const char *name,
                               struct nd_error *err)
{
    ND_FREED char *path = path_beside(to->model_path, place->location), *location = nd_strdup(place->location);
    int fd = -1;
    if (path == NULL || location == NULL ||
        !nd_grow((void **)&to->external->files, &to->external->capacity, to->external->n + 1,
                 sizeof *to->external->files))
        return nd_fail_memory(err);
    ND_TRY(open_place(place, name, path, &fd, err));
    close(fd);
    ND_TRY(check_links(path, to->model_path, err));
    to->external->files[to->external->n++] = (struct nd_external_file){.location = location, .path = path};
    path = location = NULL;
    return ND_OK;
}

static enum nd_status collect(const Onnx__TensorProto *tensor, void *context, struct nd_error *err)
{
    struct collecting *to = context;
    if (!nd_external_is(tensor))
        return ND_OK;
    struct place place;
    enum nd_status status = place_of(tensor, &place, err);
    return status == ND_OK ? add_file(to, &place, nd_onnx_text(tensor->name), err) : status;
}

bool nd_external_is_prepared(const Onnx__NodeProto *node)
{
    return strcmp(nd_onnx_text(node->op_type), "EPContext") == 0;
}

/* The binary lies beside the model when embed_mode is 0; a node that shares that of another names none. */
static enum nd_status collect_binary(const Onnx__NodeProto *node, struct collecting *to, struct nd_error *err)
{
    static const char attribute[] = "ep_cache_context";
    const Onnx__AttributeProto *binary = nd_onnx_attribute(node, attribute);
    if (!nd_external_is_prepared(node) || nd_onnx_attribute_i(node, "embed_mode", 1) != 0 || binary == NULL ||
        !binary->has_s || binary->s.len == 0)
        return ND_OK;
    ND_FREED char *location = strndup((const char *)binary->s.data, binary->s.len);
    ND_TRY_MEMORY(location != NULL, err);
    struct place place = {.location = location};
    return stays_inside(location) ? add_file(to, &place, attribute, err)
                                  : nd_fail(err, ND_E_MODEL_EXTERNAL, location,
                                            "node '%s' has its binary in '%s', outside of the model's folder",
                                            nd_onnx_text(node->name), location);
}

/* Chosen: so much is digested in some seconds. A file of 1 TB that takes no room on a disk is made at once, and
 * digesting it takes hours; what has data everywhere is read, however large it is. */
static const uint64_t max_hole_bytes = UINT64_C(4) << 30;

/* Adds the bytes of the file that are nowhere on the disk and read as zeros. A file system that knows no holes
 * has none. */
static enum nd_status count_holes(const char *path, uint64_t *n_holes, struct nd_error *err)
{
    int fd;
    uint64_t size = 0;
    ND_TRY(nd_file_open(path, &fd, &size, err));
    for (off_t at = 0; at >= 0 && (uint64_t)at < size && *n_holes <= max_hole_bytes;) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            break;
        *n_holes += (data < 0 ? size : (uint64_t)data) - (uint64_t)at;
        at = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
    }
    close(fd);
    if (*n_holes <= max_hole_bytes)
        return ND_OK;
    return nd_fail(err, ND_E_MODEL_EXTERNAL, path,
                   "external data '%s' has %llu bytes, but at most %llu of them are on the disk; a model's "
                   "files may have no more than 4 GiB of such holes in all",
                   path, (unsigned long long)size, (unsigned long long)(*n_holes < size ? size - *n_holes : 0));
}

enum nd_status nd_external_init(struct nd_external *external, const Onnx__ModelProto *model,
                                const char *model_path, struct nd_error *err)
{
    *external = (struct nd_external){0};
    struct collecting to = {external, model_path};
    enum nd_status status = nd_onnx_visit_tensors(&model->base, collect, &to, err);
    for (size_t i = 0; i < model->graph->n_node && status == ND_OK; i++)
        status = collect_binary(model->graph->node[i], &to, err);
    if (external->n > 1)
        qsort(external->files, external->n, sizeof *external->files, nd_compare_texts);
    size_t n = 0;
    for (size_t i = 0; i < external->n; i++) {
        if (n > 0 && nd_compare_texts(&external->files[n - 1], &external->files[i]) == 0) {
            ND_FREE_ALL(external->files[i].path, external->files[i].location);
        } else {
            external->files[n++] = external->files[i];
        }
    }
    external->n = n;
    uint64_t n_holes = 0;
    for (size_t i = 0; i < external->n && status == ND_OK; i++)
        status = count_holes(external->files[i].path, &n_holes, err);
    for (size_t i = 0; i < external->n && status == ND_OK; i++)
        status = nd_sha256_file(external->files[i].path, external->files[i].sha256, err);
    return status;
}

void nd_external_deinit(struct nd_external *external)
{
    ND_FREE_BOTH(external->files, external->n, .path, .location);
    *external = (struct nd_external){0};
}

/* What a tensor has beside the model is no more than its shape and type need. Without a length it goes on to
 * the end of the file, in which there may be more tensors. */
static enum nd_status check_length(const Onnx__TensorProto *tensor, struct place *place, const char *path,
                                   struct nd_error *err)
{
    enum nd_dtype dtype = nd_onnx_dtype(tensor->has_data_type ? tensor->data_type : 0);
    size_t n, needed;
    if (dtype == ND_DTYPE_NONE || !nd_onnx_n_elems(tensor, &n) ||
        !nd_size_mul(n, nd_dtype_size_bytes(dtype), &needed) || place->length <= needed)
        return ND_OK;
    if (place->has_length)
        return nd_fail(
            err, ND_E_MODEL_GRAPH, nd_onnx_text(tensor->name),
            "constant '%s' has other data than its shape and type say: %llu bytes in '%s', and %zu are needed",
            nd_onnx_text(tensor->name), (unsigned long long)place->length, path, needed);
    place->length = needed;
    return ND_OK;
}

enum nd_status nd_external_read(const Onnx__TensorProto *tensor, const char *model_path, void **data,
                                size_t *size_bytes, struct nd_error *err)
{
    struct place place;
    ND_CLEANUP(nd_fd_close) int fd = -1;
    ND_TRY(place_of(tensor, &place, err));
    ND_FREED char *path = path_beside(model_path, place.location);
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(open_place(&place, nd_onnx_text(tensor->name), path, &fd, err));
    ND_TRY(check_length(tensor, &place, path, err));
    ND_FREED char *buffer = nd_tensor_room((size_t)place.length);
    ND_TRY_MEMORY(buffer != NULL, err);
    ND_TRY(nd_file_read_at(fd, path, place.offset, buffer, (size_t)place.length, err));
    *size_bytes = (size_t)place.length;
    return ND_GIVE(data, buffer);
}
