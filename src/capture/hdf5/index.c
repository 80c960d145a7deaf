#include "capture/hdf5/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "capture/fetch/fetch.h"
#include "capture/hdf5/confine.h"
#include "capture/hdf5/index_internal.h"
#include "capture/hdf5/index_transfer.h"
#include "capture/hdf5/read_driver.h"

struct nd_index_object *nd_index_add(struct nd_index *index, const char *path, bool is_group,
                                     struct nd_error *err)
{
    if (!nd_grow((void **)&index->objects, &index->capacity, index->n_objects + 1, sizeof *index->objects)) {
        nd_fail_memory(err);
        return NULL;
    }
    struct nd_index_object *object = &index->objects[index->n_objects];
    *object = (struct nd_index_object){.path = nd_strdup(path), .is_group = is_group};
    if (object->path == NULL) {
        nd_fail_memory(err);
        return NULL;
    }
    index->n_objects++;
    return object;
}

static enum nd_status walk_group(struct nd_index *index, hid_t group, const char *path, struct nd_error *err);

static enum nd_status walk_child(struct nd_index *index, hid_t group, const char *name, const char *path,
                                 struct nd_error *err)
{
    enum nd_index_kind wanted = index->schema->kind_of(path);
    if (wanted == ND_INDEX_UNKNOWN)
        return ND_OK;
    hid_t child = H5Oopen(group, name, H5P_DEFAULT);
    if (child < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' cannot be opened", path);
    enum nd_status status;
    H5I_type_t kind = H5Iget_type(child);
    if (kind != (wanted == ND_INDEX_GROUP ? H5I_GROUP : H5I_DATASET))
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is not a %s", path,
                         wanted == ND_INDEX_GROUP ? "group" : "dataset");
    else if (wanted == ND_INDEX_GROUP)
        status = walk_group(index, child, path, err);
    else
        status = nd_index_add_dataset(index, child, path, err);
    H5Oclose(child);
    return status;
}

static enum nd_status walk_links(struct nd_index *index, hid_t group, const char *path, struct nd_error *err)
{
    struct nd_index_names names = {0};
    enum nd_status status = nd_index_list_links(group, path, &names, err);
    for (size_t i = 0; i < names.n && status == ND_OK; i++) {
        struct nd_strbuf child = {0};
        nd_strbuf_printf(&child, "%s/%s", path[1] != '\0' ? path : "", names.items[i]);
        char *child_path = nd_strbuf_take(&child);
        status = child_path == NULL ? nd_fail_memory(err)
                                    : walk_child(index, group, names.items[i], child_path, err);
        free(child_path);
    }
    nd_index_names_deinit(&names);
    return status;
}

static enum nd_status walk_group(struct nd_index *index, hid_t group, const char *path, struct nd_error *err)
{
    size_t at = index->n_objects;
    if (nd_index_add(index, path, true, err) == NULL)
        return ND_ERR_MEMORY;
    enum nd_status status = nd_index_add_attrs(index, &index->objects[at], group, err);
    if (status == ND_OK && path[1] == '\0')
        status = index->schema->check_root(&index->objects[at], err);
    if (status == ND_OK)
        status = walk_links(index, group, path, err);
    return status;
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const struct nd_index_object *)a)->path, ((const struct nd_index_object *)b)->path);
}

static enum nd_status open_file(const char *path, struct nd_read_source *source, hid_t *file,
                                struct nd_error *err)
{
    enum nd_status status = ND_OK;
    hsize_t user_block = 0;
    hid_t creation = H5I_INVALID_HID, access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0 || nd_read_driver_set(access, source) < 0 ||
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0) {
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "libhdf5 cannot be set up");
        goto out;
    }
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (*file < 0) {
        bool is_cut = nd_hdf5_error_mentions("truncated file");
        status = nd_hdf5_error_mentions("file signature not found")
                     ? nd_fail(err, ND_E_CAPTURE_FORMAT, path, "not an HDF5 file")
                     : nd_hdf5_fail(err, is_cut ? ND_E_CAPTURE_TRUNCATED : ND_E_CAPTURE_FORMAT, path, "%s",
                                    is_cut ? "the file is cut off" : "not a readable HDF5 file");
        goto out;
    }
    creation = H5Fget_create_plist(*file);
    if (H5Pget_userblock(creation, &user_block) < 0 || user_block != 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "the file starts with a user block");
out:
    H5Pclose(creation);
    H5Pclose(access);
    return status;
}

/* Without a map, views are made by plain reads. */
static void map_file(struct nd_index *index)
{
    void *map = MAP_FAILED;
    if (index->file_bytes <= SIZE_MAX)
        map = mmap(NULL, (size_t)index->file_bytes, PROT_READ, MAP_SHARED, index->fd, 0);
    index->map = map != MAP_FAILED ? map : NULL;
}

/* Where the confined child has bytes from. */
struct origin {
    struct nd_index *index;
    struct nd_reading_child *child;
};

static enum nd_status read_origin(void *context, uint64_t offset, void *buf, size_t n_bytes,
                                  struct nd_error *err)
{
    const struct origin *origin = context;
    if (origin->index->fetch != NULL)
        return nd_reading_ask(origin->child, offset, buf, n_bytes, err);
    return nd_index_read_at(origin->index, origin->child->path, offset, buf, n_bytes, err);
}

/* What the confined child does: libhdf5 sees the file here and nowhere else, and opens nothing. */
static enum nd_status build(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    struct nd_index *index = context;
    struct origin origin = {index, child};
    struct nd_read_source source = {.read = read_origin, .context = &origin, .file_bytes = index->file_bytes};
    hid_t file = H5I_INVALID_HID, root = H5I_INVALID_HID;
    nd_confine_to_reading(child->max_cpu_s);
    nd_confine();
    enum nd_status status = open_file(child->path, &source, &file, err);
    if (status == ND_OK) {
        root = H5Gopen2(file, "/", H5P_DEFAULT);
        status = root >= 0
                     ? walk_group(index, root, "/", err)
                     : nd_hdf5_fail(err, ND_E_CAPTURE_FORMAT, child->path, "the root group cannot be opened");
    }
    if (source.status != ND_OK) { /* whatever libhdf5 made of it */
        *err = source.err;
        return source.status;
    }
    return status == ND_OK ? nd_index_send(index, child, err) : status;
}

/* What the system says about the path, before libhdf5 says less about it. */
static enum nd_status open_readable(const char *path, struct nd_index *index, struct nd_error *err)
{
    struct stat info;
    index->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (index->fd < 0 && errno == EMFILE)
        return nd_file_fail_open(path, errno, err);
    if (index->fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open: %s", strerror(errno));
    if (fstat(index->fd, &info) != 0)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read: it is not a regular file");
    if (info.st_size == 0)
        return nd_fail(err, ND_E_CAPTURE_FORMAT, path, "the file is empty");
    index->file_bytes = (uint64_t)info.st_size;
    index->modified = info.st_mtim;
    return ND_OK;
}

static enum nd_status open_on_server(const char *url, struct nd_index *index, struct nd_error *err)
{
    index->fd = -1;
    enum nd_status status = nd_fetch_open(url, &index->fetch, err);
    if (status == ND_OK)
        index->file_bytes = nd_fetch_bytes(index->fetch);
    return status;
}

static enum nd_status fetch(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err)
{
    return nd_fetch_read(context, offset, buf, n_bytes, err);
}

static enum nd_status fill(const char *path, struct nd_index *index, struct nd_error *err)
{
    struct nd_reading reading = {.path = path,
                                 .file_bytes = index->file_bytes,
                                 .damaged = ND_E_CAPTURE_FORMAT,
                                 .fetch = index->fetch != NULL ? fetch : NULL,
                                 .fetch_context = index->fetch};
    enum nd_status status = nd_reading_begin(&reading, build, index, err);
    if (status != ND_OK)
        return status;
    status = nd_index_receive(index, &reading, err);
    nd_reading_end(&reading);
    if (status == ND_OK)
        qsort(index->objects, index->n_objects, sizeof *index->objects, compare_objects);
    return status;
}

enum nd_status nd_index_open(const char *path, const struct nd_index_schema *schema, struct nd_index **out,
                             struct nd_error *err)
{
    struct nd_index *index = nd_calloc(1, sizeof *index);
    if (index == NULL)
        return nd_fail_memory(err);
    static atomic_uint_fast64_t n_opened;
    index->schema = schema;
    index->serial = atomic_fetch_add(&n_opened, 1) + 1;
    enum nd_status status =
        nd_fetch_is_url(path) ? open_on_server(path, index, err) : open_readable(path, index, err);
    if (status == ND_OK)
        status = fill(path, index, err);
    if (status != ND_OK) {
        nd_index_close(&index);
        return status;
    }
    if (index->fetch == NULL)
        map_file(index);
    *out = index;
    return ND_OK;
}

void nd_index_close(struct nd_index **index_at)
{
    struct nd_index *index = *index_at;
    if (index == NULL)
        return;
    for (size_t i = 0; i < index->n_objects; i++) {
        struct nd_index_object *object = &index->objects[i];
        for (size_t a = 0; a < object->n_attrs; a++) {
            free(object->attrs[a].name);
            free(object->attrs[a].bytes);
        }
        free(object->attrs);
        free(object->chunks);
        free(object->path);
    }
    free(index->objects);
    if (index->map != NULL)
        munmap((void *)(uintptr_t)index->map, (size_t)index->file_bytes);
    nd_fetch_close(&index->fetch);
    if (index->fd >= 0)
        close(index->fd);
    free(index);
    *index_at = NULL;
}

static int compare_path(const void *key, const void *object)
{
    return strcmp(key, ((const struct nd_index_object *)object)->path);
}

const struct nd_index_object *nd_index_find(const struct nd_index *index, const char *path)
{
    return bsearch(path, index->objects, index->n_objects, sizeof *index->objects, compare_path);
}

/* The first object that is not before "<path>/", or with is_past the first behind all that begin so. Needs no
 * memory: there would be no way to say that there is none. */
static size_t lower_bound(const struct nd_index *index, const char *path, bool is_past)
{
    size_t n = strlen(path);
    size_t low = 0, high = index->n_objects;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *at = index->objects[middle].path;
        int order = strncmp(at, path, n);
        if (order == 0)
            order = (int)(unsigned char)at[n] - '/';
        if (order < 0 || (is_past && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void nd_index_range(const struct nd_index *index, const char *path, size_t *first, size_t *end)
{
    *first = *end = 0;
    const struct nd_index_object *group = nd_index_find(index, path);
    if (group == NULL)
        return;
    /* Paths that only start alike ("/a-b" beside "/a") lie between a group and what is inside it: "/a/" is
     * searched. */
    *first = lower_bound(index, path, false);
    *end = lower_bound(index, path, true);
}

bool nd_index_is_child(const struct nd_index_object *object, const char *path)
{
    size_t n = strlen(path);
    return strncmp(object->path, path, n) == 0 && object->path[n] == '/' &&
           strchr(object->path + n + 1, '/') == NULL;
}

const struct nd_index_attr *nd_index_attr(const struct nd_index_object *object, const char *name)
{
    for (size_t i = 0; i < object->n_attrs; i++)
        if (strcmp(object->attrs[i].name, name) == 0)
            return &object->attrs[i];
    return NULL;
}
