/* Walks a dataset of AI Hub by libhdf5 and hands out its samples. Runs in the confined child. */
#include "record/import/formats/aihub_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "capture/hdf5/confine.h"
#include "record/import/formats/hdf5_array.h"

enum {
    MAX_TENSORS = 100000,
    MAX_SAMPLES = 10000000,
    MAX_NAME_BYTES = 65536,
    MAX_EXPANSION = 1032 /* of deflate */
};

struct aihub {
    const char *path;
    int fd;
    nd_aihub_visit visit;
    void *context;
    hid_t data; /* the group /data */
};

/* One sub-group of /data. */
struct entry {
    char *group; /* its link's name */
    char *name;
    int64_t order; /* -1: none */
    int64_t n_samples;
};

struct entries {
    size_t n;
    size_t capacity;
    struct entry *items;
};

static void entries_deinit(struct entries *entries)
{
    for (size_t i = 0; i < entries->n; i++) {
        free(entries->items[i].group);
        free(entries->items[i].name);
    }
    free(entries->items);
}

/* ---- attributes ---- */

/* An attribute of one value of that class. */
struct single {
    hid_t attr;
    hid_t type;
    bool is_right;
};

static void open_single(struct single *single, hid_t group, const char *key, H5T_class_t class)
{
    hid_t attr = H5Aopen(group, key, H5P_DEFAULT);
    hid_t type = attr >= 0 ? H5Aget_type(attr) : H5I_INVALID_HID;
    hid_t space = attr >= 0 ? H5Aget_space(attr) : H5I_INVALID_HID;
    bool is_right = attr >= 0 && H5Tget_class(type) == class && H5Sget_simple_extent_npoints(space) == 1;
    if (space >= 0)
        H5Sclose(space);
    *single = (struct single){attr, type, is_right};
}

static void close_single(const struct single *single)
{
    H5Eclear2(H5E_DEFAULT);
    if (single->type >= 0)
        H5Tclose(single->type);
    if (single->attr >= 0)
        H5Aclose(single->attr);
}

static enum nd_status read_integer(const struct aihub *hub, hid_t group, const char *what, const char *key,
                                   int64_t *out, struct nd_error *err)
{
    struct single single;
    open_single(&single, group, key, H5T_INTEGER);
    bool is_one = single.is_right && H5Aread(single.attr, H5T_NATIVE_INT64, out) >= 0;
    close_single(&single);
    return is_one ? ND_OK
                  : nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has no whole number '%s'", what,
                            hub->path, key);
}

/* Text of fixed or of variable length, in new memory; NULL when it is none. */
static char *read_attr_text(hid_t attr, hid_t type)
{
    char *text = NULL;
    if (H5Tis_variable_str(type) > 0) {
        char *stored = NULL;
        if (H5Aread(attr, type, &stored) >= 0 && stored != NULL)
            text = nd_strdup(stored);
        if (stored != NULL)
            H5free_memory(stored);
        return text;
    }
    size_t n = H5Tget_size(type);
    text = n > 0 && n <= MAX_NAME_BYTES ? nd_calloc(n + 1, 1) : NULL;
    if (text != NULL && H5Aread(attr, type, text) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static enum nd_status read_name(const struct aihub *hub, hid_t group, const char *what, char **out,
                                struct nd_error *err)
{
    struct single single;
    open_single(&single, group, "name", H5T_STRING);
    char *text = single.is_right ? read_attr_text(single.attr, single.type) : NULL;
    close_single(&single);
    if (text == NULL)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has no text 'name'", what, hub->path);
    *out = text;
    return ND_OK;
}

static enum nd_status read_entry(const struct aihub *hub, struct entry *entry, struct nd_error *err)
{
    char what[300];
    snprintf(what, sizeof what, "'/data/%.250s'", entry->group);
    hid_t group = H5Gopen2(hub->data, entry->group, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' is no group", what, hub->path);
    enum nd_status status = read_name(hub, group, what, &entry->name, err);
    if (status == ND_OK)
        status = read_integer(hub, group, what, "batch_count", &entry->n_samples, err);
    entry->order = -1;
    if (status == ND_OK && H5Aexists(group, "order") > 0)
        status = read_integer(hub, group, what, "order", &entry->order, err);
    if (status == ND_OK && (entry->n_samples < 1 || entry->n_samples > MAX_SAMPLES))
        status = nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has a batch_count of %lld", what,
                         hub->path, (long long)entry->n_samples);
    H5Gclose(group);
    return status;
}

/* ---- the groups of /data ---- */

struct listing {
    struct entries *entries;
    const struct aihub *hub;
    struct nd_error *err;
    enum nd_status status;
};

static herr_t keep_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)group;
    struct listing *listing = context;
    struct entries *entries = listing->entries;
    if (info->type != H5L_TYPE_HARD || entries->n >= MAX_TENSORS)
        listing->status =
            nd_fail(listing->err, ND_E_IMPORT_FORMAT, listing->hub->path,
                    info->type != H5L_TYPE_HARD ? "'/data/%.250s' of '%s' is a soft or external link"
                                                : "'/data' has too many groups ('%.250s' of '%s')",
                    name, listing->hub->path);
    else if (!nd_grow((void **)&entries->items, &entries->capacity, entries->n + 1, sizeof *entries->items) ||
             (entries->items[entries->n] = (struct entry){.group = nd_strdup(name)}).group == NULL)
        listing->status = nd_fail_memory(listing->err);
    else
        entries->n++;
    return listing->status == ND_OK ? 0 : -1;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* All have a place or none has one; places count from 0. */
static enum nd_status sort_entries(const struct aihub *hub, struct entries *entries, struct nd_error *err)
{
    size_t n_ordered = 0;
    for (size_t i = 0; i < entries->n; i++)
        n_ordered += entries->items[i].order >= 0;
    if (n_ordered == 0)
        return ND_OK;
    qsort(entries->items, entries->n, sizeof *entries->items, compare_entries);
    for (size_t i = 0; i < entries->n; i++)
        if (entries->items[i].order != (int64_t)i)
            return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                           "the attributes 'order' in '%s' do not count from 0 to %zu: there is no %zu",
                           hub->path, entries->n - 1, i);
    return ND_OK;
}

static enum nd_status list_entries(const struct aihub *hub, struct entries *entries, struct nd_error *err)
{
    struct listing listing = {.entries = entries, .hub = hub, .err = err};
    herr_t rc = H5Literate(hub->data, H5_INDEX_NAME, H5_ITER_INC, NULL, keep_link, &listing);
    if (listing.status == ND_OK && rc < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "the groups of '/data' in '%s' cannot be read",
                            hub->path);
    enum nd_status status = listing.status;
    for (size_t i = 0; status == ND_OK && i < entries->n; i++)
        status = read_entry(hub, &entries->items[i], err);
    if (status == ND_OK && entries->n == 0)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, hub->path, "'/data' of '%s' is empty", hub->path);
    return status == ND_OK ? sort_entries(hub, entries, err) : status;
}

/* ---- data ---- */

static enum nd_status give_sample(const struct aihub *hub, const struct entry *entry, size_t sample,
                                  struct nd_error *err)
{
    char what[320], path[300];
    struct nd_hdf5_array array;
    struct stat info;
    void *data = NULL;
    snprintf(path, sizeof path, "%.250s/batch_%zu", entry->group, sample);
    snprintf(what, sizeof what, "'/data/%s'", path);
    hid_t dataset = H5Dopen2(hub->data, path, H5P_DEFAULT);
    if (dataset < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "'%s' has no %s, although batch_count is %lld",
                            hub->path, what, (long long)entry->n_samples);
    enum nd_status status = nd_hdf5_array_describe(dataset, hub->path, what, &array, err);
    if (status == ND_OK && fstat(hub->fd, &info) == 0 && array.n_bytes / MAX_EXPANSION > (uint64_t)info.st_size)
        status = nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "'%s' is too small to hold the %zu bytes of %s",
                         hub->path, array.n_bytes, what);
    if (status == ND_OK && (data = nd_tensor_alloc(array.n_bytes)) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_hdf5_array_read(dataset, hub->fd, &array, data, err);
    const struct nd_aihub_sample found = {entry->name, what, sample,       array.dtype,
                                          array.shape, data, array.n_bytes};
    if (status == ND_OK)
        status = hub->visit(hub->context, &found, err);
    free(data);
    H5Dclose(dataset);
    return status;
}

static enum nd_status check_names(const struct aihub *hub, const struct entries *entries, struct nd_error *err)
{
    for (size_t i = 0; i < entries->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(entries->items[i].name, entries->items[k].name) == 0)
                return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                               "'/data/%.250s' of '%s' is the second tensor '%s'", entries->items[i].group,
                               hub->path, entries->items[i].name);
    return ND_OK;
}

static enum nd_status give_entries(struct aihub *hub, hid_t file, struct nd_error *err)
{
    struct entries entries = {0};
    if (H5Lexists(file, "data", H5P_DEFAULT) <= 0)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                       "'%s' is no dataset of AI Hub: it has no group '/data'", hub->path);
    hub->data = H5Gopen2(file, "data", H5P_DEFAULT);
    if (hub->data < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "'/data' of '%s' is no group", hub->path);
    enum nd_status status = list_entries(hub, &entries, err);
    if (status == ND_OK)
        status = check_names(hub, &entries, err);
    for (size_t i = 0; status == ND_OK && i < entries.n; i++)
        for (size_t k = 0; status == ND_OK && k < (size_t)entries.items[i].n_samples; k++)
            status = give_sample(hub, &entries.items[i], k, err);
    entries_deinit(&entries);
    H5Gclose(hub->data);
    return status;
}

static enum nd_status open_file(const char *path, hid_t *file, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0 || H5Pset_fapl_sec2(access) < 0 || H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
        H5Pset_file_locking(access, false, true) < 0)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "libhdf5 cannot be set up");
    else if (H5Fis_hdf5(path) <= 0)
        status = nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is not an HDF5 file", path);
    else if ((*file = H5Fopen(path, H5F_ACC_RDONLY, access)) < 0)
        status = nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is not a readable HDF5 file", path);
    if (access >= 0)
        H5Pclose(access);
    H5Eclear2(H5E_DEFAULT);
    return status;
}

enum nd_status nd_aihub_walk(const struct nd_aihub_source *source, nd_aihub_visit visit, void *context,
                             struct nd_error *err)
{
    const char *path = source->path;
    struct aihub hub = {.path = path, .fd = source->fd, .visit = visit, .context = context};
    hid_t file = H5I_INVALID_HID;
    nd_confine_to_reading(source->max_cpu_s);
    enum nd_status status = open_file(path, &file, err);
    nd_confine(); /* nothing is opened any more */
    if (status == ND_OK)
        status = give_entries(&hub, file, err);
    if (file >= 0)
        H5Fclose(file);
    H5Eclear2(H5E_DEFAULT);
    return status;
}
