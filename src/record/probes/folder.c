/* A folder of user data. Files whose name starts with a dot are passed over; anything else that is no .npy or
 * .npz is an error, because nobody could tell what it was meant to be. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "record/probes/roles.h"
#include "record/probes/user.h"

/* The files of a folder, sorted bytewise. */
struct listing {
    char **names;
    size_t n;
    size_t capacity;
};

static void listing_deinit(struct listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free(listing->names[i]);
    free(listing->names);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum nd_status listing_add(struct listing *listing, const char *path, const char *name,
                                  struct nd_error *err)
{
    if (!nd_ends_with(name, ".npy") && !nd_ends_with(name, ".npz"))
        return nd_fail(err, ND_E_PROBE_FORMAT, path, "folder '%s' holds '%s', which is neither .npy nor .npz",
                       path, name);
    if (!nd_grow((void **)&listing->names, &listing->capacity, listing->n + 1, sizeof *listing->names))
        return nd_fail_memory(err);
    listing->names[listing->n] = nd_strdup(name);
    if (listing->names[listing->n] == NULL)
        return nd_fail_memory(err);
    listing->n++;
    return ND_OK;
}

static enum nd_status listing_read(struct listing *listing, const char *path, struct nd_error *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open folder '%s': %s", path, strerror(errno));
    enum nd_status status = ND_OK;
    while (status == ND_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0)
                status =
                    nd_fail(err, ND_E_FILE_READ, path, "cannot read folder '%s': %s", path, strerror(errno));
            break;
        }
        if (entry->d_name[0] != '.')
            status = listing_add(listing, path, entry->d_name, err);
    }
    closedir(dir);
    if (status == ND_OK && listing->n == 0)
        status = nd_fail(err, ND_E_PROBE_INPUT, path, "folder '%s' holds no .npy or .npz file", path);
    if (status == ND_OK)
        qsort(listing->names, listing->n, sizeof *listing->names, compare_names);
    return status;
}

/* The array that a file name stands for: without ".npy", "%2F" back to '/' and "%25" to '%'. In new memory;
 * NULL when out of memory. Other files keep their name, which is no input's. */
static char *array_name(const char *file)
{
    struct nd_strbuf name = {0};
    size_t n = strlen(file) - (nd_ends_with(file, ".npy") ? 4 : 0);
    for (size_t i = 0; i < n; i++) {
        bool is_slash = strncmp(file + i, "%2F", 3) == 0;
        bool is_percent = strncmp(file + i, "%25", 3) == 0;
        nd_strbuf_append(&name, is_slash ? "/" : is_percent ? "%" : file + i, 1);
        if (is_slash || is_percent)
            i += 2;
    }
    return nd_strbuf_take(&name);
}

/* Names of the arrays for all files; freed as a listing. */
static enum nd_status name_arrays(const struct listing *files, struct listing *arrays, struct nd_error *err)
{
    arrays->names = nd_calloc(files->n, sizeof *arrays->names);
    if (arrays->names == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < files->n; i++) {
        arrays->names[i] = array_name(files->names[i]);
        if (arrays->names[i] == NULL)
            return nd_fail_memory(err);
        arrays->n++;
    }
    return ND_OK;
}

/* ---- One file per input ---- */

static bool has_inputs_by_name(const struct nd_loader *loader, const struct listing *arrays)
{
    for (size_t i = 0; i < arrays->n; i++)
        if (nd_loader_find_input(loader, arrays->names[i]) != SIZE_MAX)
            return true;
    return false;
}

static enum nd_status load_file(struct nd_loader *loader, const char *folder, const char *name, size_t role,
                                struct nd_error *err)
{
    char *file = nd_path_join(folder, name);
    if (file == NULL)
        return nd_fail_memory(err);
    enum nd_status status = role == ND_ROLE_LABELS ? nd_user_load_labels(loader, file, err)
                                                   : nd_user_load_npy(loader, file, role, SIZE_MAX, err);
    free(file);
    return status;
}

static enum nd_status load_inputs(struct nd_loader *loader, const char *path, const struct listing *files,
                                  const struct listing *arrays, struct nd_error *err)
{
    size_t *roles = NULL;
    enum nd_status status =
        nd_roles_assign(loader, (const char *const *)arrays->names, arrays->n, path, &roles, err);
    /* The inputs first: they say how many labels there may be. */
    for (int labels = 0; labels < (loader->has_explicit_labels ? 1 : 2); labels++)
        for (size_t i = 0; i < files->n && status == ND_OK; i++)
            if ((roles[i] == ND_ROLE_LABELS) == labels)
                status = load_file(loader, path, files->names[i], roles[i], err);
    free(roles);
    return status;
}

/* ---- One file per sample ---- */

static bool is_labels(const char *file, const char *array)
{
    return nd_ends_with(file, ".npy") && nd_loader_is_label_name(array);
}

static enum nd_status load_sample(struct nd_loader *loader, const char *file, size_t sample,
                                  struct nd_error *err)
{
    nd_loader_next_sample(loader);
    if (nd_ends_with(file, ".npz"))
        return nd_user_load_npz(loader, file, sample, err);
    if (loader->probe->n_inputs != 1)
        return nd_fail(
            err, ND_E_PROBE_INPUT, file,
            "'%s' is one array, but the model has %zu inputs; each sample needs a .npz, or each input a "
            "file of its name",
            file, loader->probe->n_inputs);
    return nd_user_load_npy(loader, file, 0, sample, err);
}

static enum nd_status load_samples(struct nd_loader *loader, const char *path, const struct listing *files,
                                   const struct listing *arrays, struct nd_error *err)
{
    size_t n_labels = 0, labels = 0, sample = 0;
    for (size_t i = 0; i < files->n; i++)
        if (is_labels(files->names[i], arrays->names[i])) {
            n_labels++;
            labels = i;
        }
    if (n_labels > 1)
        return nd_fail(err, ND_E_PROBE_LABELS, path, "folder '%s' has several files of labels", path);
    if (n_labels == files->n)
        return nd_fail(err, ND_E_PROBE_INPUT, path, "folder '%s' has labels, but no samples", path);
    enum nd_status status = nd_loader_begin_samples(loader, files->n - n_labels, path, err);
    for (size_t i = 0; i < files->n && status == ND_OK; i++) {
        if (n_labels == 1 && i == labels)
            continue;
        char *file = nd_path_join(path, files->names[i]);
        status = file != NULL ? load_sample(loader, file, sample++, err) : nd_fail_memory(err);
        free(file);
    }
    if (status != ND_OK || n_labels == 0 || loader->has_explicit_labels)
        return status;
    char *file = nd_path_join(path, files->names[labels]);
    status = file != NULL ? nd_user_load_labels(loader, file, err) : nd_fail_memory(err);
    free(file);
    return status;
}

enum nd_status nd_folder_load(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    struct listing files = {0}, arrays = {0};
    enum nd_status status = listing_read(&files, path, err);
    if (status == ND_OK)
        status = name_arrays(&files, &arrays, err);
    if (status == ND_OK)
        status = has_inputs_by_name(loader, &arrays) ? load_inputs(loader, path, &files, &arrays, err)
                                                     : load_samples(loader, path, &files, &arrays, err);
    listing_deinit(&files);
    listing_deinit(&arrays);
    return status;
}
