/* The names in one folder of a run. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/qnn/net_run.h"

void nd_qnr_files_deinit(struct nd_qnr_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        free(files->names[i]);
    free(files->names);
    *files = (struct nd_qnr_files){0};
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_utf8(const char *name)
{
    json_t *text = json_string(name); /* NULL for anything else */
    json_decref(text);
    return text != NULL;
}

static enum nd_status fail_bytes(const char *folder, const char *name, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        nd_strbuf_printf(&text, *at >= 0x20 && *at < 0x7f ? "%c" : "\\x%02x", *at);
    char *plain = nd_strbuf_take(&text);
    enum nd_status status = nd_fail(err, ND_E_QNN_FOLDER, plain, "'%s': the name '%s' is no UTF-8", folder,
                                    plain != NULL ? plain : "");
    free(plain);
    return status;
}

static enum nd_status add_name(const char *path, const char *name, struct nd_qnr_files *out,
                               struct nd_error *err)
{
    struct stat info;
    if (!is_utf8(name))
        return fail_bytes(path, name, err);
    char *whole = nd_path_join(path, name);
    if (whole == NULL || !nd_grow((void **)&out->names, &out->capacity, out->n + 1, sizeof *out->names)) {
        free(whole);
        return nd_fail_memory(err);
    }
    enum nd_status status = ND_OK;
    if (lstat(whole, &info) != 0)
        status = nd_fail(err, ND_E_FILE_READ, whole, "cannot read '%s': %s", whole, strerror(errno));
    else if (S_ISLNK(info.st_mode))
        status = nd_fail(err, ND_E_QNN_FOLDER, whole, "'%s' is a symbolic link, which is not followed", whole);
    free(whole);
    if (status == ND_OK && (out->names[out->n] = nd_strdup(name)) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        out->n++;
    return status;
}

enum nd_status nd_qnr_list_folder(const char *path, struct nd_qnr_files *out, struct nd_error *err)
{
    struct dirent *entry;
    enum nd_status status = ND_OK;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    while (status == ND_OK && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            status = add_name(path, entry->d_name, out, err);
    closedir(folder);
    if (status == ND_OK && out->n > 0)
        qsort(out->names, out->n, sizeof *out->names, compare_names);
    if (status != ND_OK)
        nd_qnr_files_deinit(out);
    return status;
}

bool nd_qnr_has_name(const struct nd_qnr_files *files, const char *name)
{
    return files->n > 0 && bsearch(&name, files->names, files->n, sizeof *files->names, compare_names) != NULL;
}
