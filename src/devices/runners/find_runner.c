/* Finds the programs that run models for npudiff: docs/reference/runner.md. */
#include "devices/runners/find_runner.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"

static const char prefix[] = "npudiff-runner-";
enum { MAX_NAME = 64 };

bool nd_runner_is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= MAX_NAME && text[0] != '-' && text[0] != '_' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

/* ---- folders ---- */

/* The folders of runners, then $PATH, separated by ':'; in new memory, or NULL when out of memory. */
static char *all_folders(void)
{
    struct nd_strbuf text = {0};
    const char *own = getenv("NPUDIFF_RUNNERS"), *path = getenv("PATH");
    bool has_own = own != NULL && own[0] != '\0';
    char *cached = has_own ? NULL : nd_cache_folder("runners");
    if (!has_own && cached == NULL)
        return NULL;
    nd_strbuf_printf(&text, "%s:%s", has_own ? own : cached, path != NULL ? path : "");
    free(cached);
    return nd_strbuf_take(&text);
}

/* The next absolute folder of the list; NULL at its end. */
static const char *next_folder(char **rest)
{
    const char *folder;
    while ((folder = strsep(rest, ":")) != NULL)
        if (folder[0] == '/')
            return folder;
    return NULL;
}

/* ---- the list ---- */

struct list {
    struct nd_runner *items;
    size_t n, capacity;
};

static bool has(const struct list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return true;
    return false;
}

static const char *trouble_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return "it is a link to a file that is not there";
    if (!S_ISREG(info.st_mode))
        return "it is not a file";
    return access(path, X_OK) == 0 ? NULL : "it may not be executed: 'chmod +x' allows it";
}

static enum nd_status add(struct list *list, const char *folder, const char *file, struct nd_error *err)
{
    if (strncmp(file, prefix, strlen(prefix)) != 0)
        return ND_OK;
    const char *name = file + strlen(prefix);
    if (!nd_runner_is_name(name) || has(list, name))
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items), err);
    struct nd_runner *item = &list->items[list->n++];
    *item = (struct nd_runner){.name = nd_strdup(name), .path = nd_path_join(folder, file)};
    ND_TRY_MEMORY(item->name != NULL && item->path != NULL, err);
    item->trouble = trouble_of(item->path);
    return ND_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct nd_runner *)a)->name, ((const struct nd_runner *)b)->name);
}

enum nd_status nd_runners_list(struct nd_runner **out, size_t *n, struct nd_error *err)
{
    struct list list = {0};
    char *folders = all_folders(), *rest = folders;
    const char *folder;
    enum nd_status status = folders != NULL ? ND_OK : nd_fail_memory(err);
    while (status == ND_OK && (folder = next_folder(&rest)) != NULL) {
        DIR *dir = opendir(folder);
        const struct dirent *entry;
        while (dir != NULL && status == ND_OK && (entry = readdir(dir)) != NULL)
            status = add(&list, folder, entry->d_name, err);
        if (dir != NULL)
            closedir(dir);
    }
    free(folders);
    if (status != ND_OK) {
        nd_runners_free(list.items, list.n);
        return status;
    }
    if (list.n > 0)
        qsort(list.items, list.n, sizeof *list.items, by_name);
    *out = list.items;
    *n = list.n;
    return ND_OK;
}

void nd_runners_free(struct nd_runner *runners, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ND_FREE_ALL(runners[i].name, runners[i].path);
    free(runners);
}

/* ---- one ---- */

static enum nd_status check_file(const char *name, const char *path, const char *trouble, struct nd_error *err)
{
    return trouble == NULL ? ND_OK
                           : nd_fail(err, ND_E_RUNNER_START, path, "runner '%s' cannot be started: '%s': %s",
                                     name, path, trouble);
}

static enum nd_status fail_missing(const char *name, const struct nd_runner *runners, size_t n,
                                   struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf known = {0};
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(&known, "%s'%s'", i > 0 ? ", " : "", runners[i].name);
    nd_fail(err, ND_E_RUNNER_MISSING, name,
            "there is no runner '%s': no %s%s in the folder of runners or in PATH; runners here: %s", name,
            prefix, name, known.text != NULL ? known.text : "none");
    return ND_ERR_NOT_FOUND;
}

enum nd_status nd_runner_find(const char *name, char **path, struct nd_error *err)
{
    struct nd_runner *runners = NULL;
    size_t n = 0, i = 0;
    ND_TRY(nd_runners_list(&runners, &n, err));
    while (i < n && strcmp(runners[i].name, name) != 0)
        i++;
    enum nd_status status = i < n ? check_file(name, runners[i].path, runners[i].trouble, err)
                                  : fail_missing(name, runners, n, err);
    if (status == ND_OK) {
        *path = runners[i].path;
        runners[i].path = NULL;
    }
    nd_runners_free(runners, n);
    return status;
}

enum nd_status nd_runner_use_path(const char *file, char **name, char **path, struct nd_error *err)
{
    const char *base = nd_path_base(file);
    char *full = realpath(file, NULL);
    if (full == NULL)
        return nd_fail(err, ND_E_RUNNER_MISSING, file, "there is no runner '%s': %s", file, strerror(errno));
    enum nd_status status = check_file(base, full, trouble_of(full), err);
    char *short_name = nd_strdup(strncmp(base, prefix, strlen(prefix)) == 0 ? base + strlen(prefix) : base);
    if (status == ND_OK && short_name == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        ND_FREE_ALL(short_name, full);
        return status;
    }
    *name = short_name;
    *path = full;
    return ND_OK;
}
