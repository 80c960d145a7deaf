/* NumPy's files: a .npz (named arrays), a .npy (named after the file), or a folder of both. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "capture/read/link_names.h"
#include "record/import/npy_array.h"
#include "record/import/formats/formats.h"
#include "record/probes/npz.h"
#include "record/probes/user.h"

/* "conv1%2Fout.npy" is conv1/out, as in folders of probes. */
static char *name_of_file(const char *path)
{
    const char *base = nd_path_base(path);
    char *stem = strndup(base, strlen(base) - strlen(".npy")), *name = NULL;
    if (stem == NULL || nd_name_unescape(stem, path, &name, NULL) == ND_ERR_FORMAT)
        return stem;
    free(stem);
    return name;
}

/* Where the arrays go. */
struct adding {
    struct nd_imported *imported;
    enum nd_imported_side side;
    size_t sample; /* every array is this sample; ND_IMPORTED_ARRAY: it may hold all of them */
};

static enum nd_status add_npy(const struct adding *to, const char *path, struct nd_error *err)
{
    struct nd_source source = {0};
    char *name = name_of_file(path);
    if (name == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_source_open(&source, path, err);
    if (status == ND_OK)
        status = nd_npy_add(to->imported, to->side, name, to->sample, &source, err);
    nd_source_close(&source);
    free(name);
    return status;
}

static enum nd_status add_npz(const struct adding *to, const char *path, struct nd_error *err)
{
    struct nd_npz *npz = NULL;
    enum nd_status status = nd_npz_open(path, &npz, err);
    if (status != ND_OK)
        return status;
    if (nd_npz_n_arrays(npz) == 0)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, path, "'%s' holds no array", path);
    for (size_t i = 0; status == ND_OK && i < nd_npz_n_arrays(npz); i++) {
        struct nd_source source = {0};
        status = nd_npz_source(npz, i, &source, err);
        if (status == ND_OK)
            status = nd_npy_add(to->imported, to->side, nd_npz_name(npz, i), to->sample, &source, err);
        nd_source_close(&source);
    }
    nd_npz_close(&npz);
    return status;
}

static enum nd_status add_file(const struct adding *to, const char *path, struct nd_error *err)
{
    if (nd_ends_with(path, ".npz"))
        return add_npz(to, path, err);
    if (nd_ends_with(path, ".npy"))
        return add_npy(to, path, err);
    return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is neither .npz nor .npy by its name", path);
}

static enum nd_status add_folder(const struct adding *to, const char *path, struct nd_error *err)
{
    struct dirent **entries = NULL;
    size_t n_files = 0;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open folder '%s': %s", path, strerror(errno));
    enum nd_status status = ND_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        bool is_array = name[0] != '.' && (nd_ends_with(name, ".npy") || nd_ends_with(name, ".npz"));
        if (is_array && status == ND_OK) {
            char *file = nd_path_join(path, name);
            status = file != NULL ? add_file(to, file, err) : nd_fail_memory(err);
            free(file);
            n_files++;
        }
        free(entries[i]);
    }
    free(entries);
    if (status == ND_OK && n_files == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, path, "folder '%s' holds no .npy or .npz file", path);
    return status;
}

static enum nd_status add_path(const struct adding *to, const char *path, struct nd_error *err)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? add_folder(to, path, err)
                                                           : add_file(to, path, err);
}

enum nd_status nd_numpy_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                            struct nd_error *err)
{
    const struct adding to = {imported, side, ND_IMPORTED_ARRAY};
    return add_path(&to, path, err);
}

static enum nd_status read_numpy(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    bool is_file = options->samples == ND_IMPORT_SAMPLES_FILE;
    for (size_t i = 0; status == ND_OK && i < options->n_paths; i++) {
        const struct adding to = {imported, ND_IMPORTED_OUTPUT, is_file ? i : ND_IMPORTED_ARRAY};
        status = add_path(&to, options->paths[i], err);
    }
    if (status == ND_OK && is_file)
        status = nd_imported_fact(imported, "samples", NULL, "one of each PATH, in the order given", err);
    if (status == ND_OK)
        status = nd_imported_fact(imported, "names", NULL, "names of arrays and files", err);
    if (status == ND_OK)
        status = nd_imported_fact(imported, "types", NULL, ".npy header", err);
    return status == ND_OK ? nd_imported_fact(imported, "shapes", NULL, ".npy header", err) : status;
}

const struct nd_import_reader nd_import_numpy = {
    .format = {"numpy", "OUT.npz|OUT.npy|FOLDER...",
               "NumPy arrays: a .npz holds one array per tensor, a .npy is named after its file, a folder "
               "holds both"},
    .read = read_numpy,
};
