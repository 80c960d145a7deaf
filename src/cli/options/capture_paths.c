/* Where captures and datasheets are written, by default and by -o. */
#include "cli/options/capture_paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LABEL_BYTES = 100, MAX_NAME_BYTES = MAX_LABEL_BYTES + 16, MAX_SUFFIX_BYTES = 8 };

/* Digits for what a file name cannot tell apart (FNV-1a). */
static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* The label as a file name: what that had better not hold becomes '-'. Digits follow where it was too long or
 * held what is not in the names of devices. */
static void name_file(const char *label, bool with_digits, char name[MAX_NAME_BYTES])
{
    const char *replaced = strncmp(label, "emu:", 4) == 0 ? "/?&=: @,'\"*<>|\\" : "/?&=: ";
    const char *strange = "'\"*<>|\\";
    size_t n = 0;
    for (const char *at = label; *at != '\0'; at++) {
        bool is_control = (unsigned char)*at < ' ' || *at == 127;
        with_digits = with_digits || is_control || strchr(strange, *at) != NULL;
        if (n < MAX_LABEL_BYTES)
            name[n] = is_control || strchr(replaced, *at) != NULL ? '-' : *at;
        n++;
    }
    with_digits = with_digits || n > MAX_LABEL_BYTES;
    n = n < MAX_LABEL_BYTES ? n : MAX_LABEL_BYTES;
    while (n < strlen(label) && n > 0 && ((unsigned char)label[n] & 0xc0) == 0x80)
        n--; /* not within a character */
    name[n] = '\0';
    if (with_digits)
        snprintf(name + n, MAX_NAME_BYTES - n, "-%08x", (unsigned int)hash_text(label));
}

char *cli_path_in(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* "<folder>/<label><suffix>" */
static char *file_path(const char *folder, const char *label, bool with_digits, const char *suffix)
{
    char name[MAX_NAME_BYTES + MAX_SUFFIX_BYTES];
    name_file(label, with_digits, name);
    size_t n = strlen(name);
    snprintf(name + n, sizeof name - n, "%s", suffix);
    return cli_path_in(folder, name);
}

/* True when it is a folder afterwards, which *is_new says was not there; else errno says why not. */
static bool make_one_folder(const char *path, bool *is_new)
{
    struct stat info;
    *is_new = mkdir(path, 0777) == 0;
    if (*is_new)
        return true;
    int problem = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return true;
    errno = problem == EEXIST ? ENOTDIR : problem;
    return false;
}

bool cli_make_folder(const char *path, size_t *n_old)
{
    char *partial = strdup(path);
    bool is_made = partial != NULL, is_new = false, has_new = false;
    *n_old = 0;
    for (char *at = partial; is_made && at != NULL; at = strchr(at + 1, '/')) {
        char kept = *at;
        if (at == partial)
            continue;
        *at = '\0';
        is_made = make_one_folder(partial, &is_new);
        *at = kept;
        has_new = has_new || is_new;
        if (is_made && !has_new)
            *n_old = (size_t)(at - partial);
    }
    is_made = is_made && make_one_folder(path, &is_new);
    if (is_made && !has_new && !is_new)
        *n_old = strlen(path);
    if (!is_made)
        cli_fail(CLI_E_FILE_WRITE, path, "cannot create folder '%s': %s", path, strerror(errno));
    free(partial);
    return is_made;
}

void cli_remove_empty_folder(const char *path, size_t n_old)
{
    char *partial = strdup(path);
    size_t n = partial != NULL ? strlen(partial) : 0;
    for (;;) {
        while (n > n_old && partial[n - 1] == '/')
            partial[--n] = '\0';
        if (n <= n_old || rmdir(partial) != 0)
            break;
        while (n > n_old && partial[n - 1] != '/')
            partial[--n] = '\0';
    }
    free(partial);
}

/* Two devices whose names differ only in what a file name does not hold. */
static bool is_taken(const struct cli_fleet *fleet, size_t n, const char *path, const char *label)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fleet->cells[i].path, path) == 0 && strcmp(fleet->cells[i].device.label, label) != 0)
            return true;
    return false;
}

bool cli_name_files(struct cli_fleet *fleet, const char *folder, const char *suffix)
{
    for (size_t i = 0; i < fleet->n_cells; i++) {
        struct cli_cell *cell = &fleet->cells[i];
        cell->path = file_path(folder, cell->device.label, false, suffix);
        if (cell->path != NULL && is_taken(fleet, i, cell->path, cell->device.label)) {
            free(cell->path);
            cell->path = file_path(folder, cell->device.label, true, suffix);
        }
        if (cell->path == NULL)
            return false;
    }
    return true;
}
