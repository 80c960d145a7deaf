#include "record/probes/user.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "core/files/suffix.h"
#include "record/probes/npz.h"
#include "record/probes/roles.h"

/* ---- .npy ---- */

enum nd_status nd_user_load_npy(struct nd_loader *loader, const char *path, size_t input, size_t sample,
                                struct nd_error *err)
{
    struct nd_source source = {0};
    enum nd_status status = nd_source_open(&source, path, err);
    if (status == ND_OK)
        status = sample == SIZE_MAX ? nd_loader_read_input(loader, input, &source, err)
                                    : nd_loader_read_sample(loader, input, sample, &source, err);
    nd_source_close(&source);
    return status;
}

static enum nd_status load_only_input(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    if (loader->probe->n_inputs != 1)
        return nd_fail(err, ND_E_PROBE_INPUT, path,
                       "'%s' is one array, but the model has %zu inputs; a .npz or a folder can hold them all",
                       path, loader->probe->n_inputs);
    return nd_user_load_npy(loader, path, 0, SIZE_MAX, err);
}

/* ---- .npz ---- */

static enum nd_status load_member(struct nd_loader *loader, const struct nd_npz *npz, size_t i, size_t role,
                                  size_t sample, struct nd_error *err)
{
    struct nd_source source = {0};
    bool is_whole = sample == SIZE_MAX;
    if (role == ND_ROLE_LABELS && loader->has_explicit_labels)
        return ND_OK;
    enum nd_status status = nd_npz_source(npz, i, &source, err);
    if (status != ND_OK)
        return status;
    if (role == ND_ROLE_LABELS)
        status = is_whole ? nd_loader_read_labels(loader, &source, err)
                          : nd_loader_read_label(loader, sample, &source, err);
    else
        status = is_whole ? nd_loader_read_input(loader, role, &source, err)
                          : nd_loader_read_sample(loader, role, sample, &source, err);
    nd_source_close(&source);
    return status;
}

static enum nd_status load_goal(struct nd_loader *loader, const struct nd_npz *npz, size_t i,
                                struct nd_error *err)
{
    struct nd_source source = {0};
    enum nd_status status = nd_npz_source(npz, i, &source, err);
    if (status == ND_OK)
        status = nd_loader_read_goal(loader, nd_npz_name(npz, i), &source, err);
    nd_source_close(&source);
    return status;
}

/* The inputs first: they say how many labels and targets there may be. Targets belong to whole probes: in a
 * file of one sample such a name is one like any other. */
enum nd_status nd_user_load_npz(struct nd_loader *loader, const char *path, size_t sample, struct nd_error *err)
{
    struct nd_npz *npz = NULL;
    const char **names = NULL;
    size_t *roles = NULL, *members = NULL, n = 0;
    enum nd_status status = nd_npz_open(path, &npz, err);
    if (status != ND_OK)
        return status;
    size_t n_arrays = nd_npz_n_arrays(npz);
    names = nd_calloc(n_arrays, sizeof *names);
    members = nd_calloc(n_arrays, sizeof *members);
    if (names == NULL || members == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n_arrays; i++) {
        if (sample == SIZE_MAX && nd_loader_is_goal_name(loader, nd_npz_name(npz, i)))
            continue;
        names[n] = nd_npz_name(npz, i);
        members[n++] = i;
    }
    if (status == ND_OK)
        status = nd_roles_assign(loader, names, n, path, &roles, err);
    for (int labels = 0; labels < 2; labels++)
        for (size_t i = 0; i < n && status == ND_OK; i++)
            if ((roles[i] == ND_ROLE_LABELS) == labels)
                status = load_member(loader, npz, members[i], roles[i], sample, err);
    for (size_t i = 0; sample == SIZE_MAX && i < n_arrays && status == ND_OK; i++)
        if (nd_loader_is_goal_name(loader, nd_npz_name(npz, i)))
            status = load_goal(loader, npz, i, err);
    free(roles);
    free(members);
    free(names);
    nd_npz_close(&npz);
    return status;
}

/* ---- Labels from a file of their own ---- */

static enum nd_status find_labels(const struct nd_npz *npz, const char *path, size_t *out, struct nd_error *err)
{
    size_t n = nd_npz_n_arrays(npz), n_found = 0, found = 0;
    for (size_t i = 0; i < n; i++)
        if (nd_loader_is_label_name(nd_npz_name(npz, i))) {
            n_found++;
            found = i;
        }
    if (n_found != 1 && n != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, path,
                       "'%s' has %zu arrays named 'labels', 'label' or 'y'; expected one", path, n_found);
    *out = n_found == 1 ? found : 0;
    return ND_OK;
}

static enum nd_status load_npz_labels(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    struct nd_npz *npz = NULL;
    struct nd_source source = {0};
    size_t i = 0;
    enum nd_status status = nd_npz_open(path, &npz, err);
    if (status == ND_OK)
        status = find_labels(npz, path, &i, err);
    if (status == ND_OK)
        status = nd_npz_source(npz, i, &source, err);
    if (status == ND_OK)
        status = nd_loader_read_labels(loader, &source, err);
    nd_source_close(&source);
    nd_npz_close(&npz);
    return status;
}

enum nd_status nd_user_load_labels(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    if (nd_ends_with(path, ".npz"))
        return load_npz_labels(loader, path, err);
    struct nd_source source = {0};
    enum nd_status status = nd_source_open(&source, path, err);
    if (status == ND_OK)
        status = nd_loader_read_labels(loader, &source, err);
    nd_source_close(&source);
    return status;
}

/* ---- Any kind ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum nd_status nd_user_load(struct nd_probe *probe, const char *path, const char *labels_path,
                            struct nd_error *err)
{
    struct nd_loader loader;
    enum nd_status status = nd_loader_init(&loader, probe, labels_path != NULL, err);
    if (status != ND_OK)
        return status;
    if (is_folder(path))
        status = nd_folder_load(&loader, path, err);
    else if (nd_ends_with(path, ".npy"))
        status = load_only_input(&loader, path, err);
    else if (nd_ends_with(path, ".npz"))
        status = nd_user_load_npz(&loader, path, SIZE_MAX, err);
    else
        status = nd_list_load(&loader, path, err);
    if (status == ND_OK && labels_path != NULL)
        status = nd_user_load_labels(&loader, labels_path, err);
    if (status == ND_OK)
        status = nd_loader_finish(&loader, err);
    nd_loader_deinit(&loader);
    return status;
}
