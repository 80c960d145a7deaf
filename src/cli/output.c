#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command_options.h"

int cli_write_text(const char *path, const char *text, bool replace)
{
    size_t size = strlen(path) + 32;
    char *temporary = malloc(size);
    if (temporary == NULL)
        return cli_fail_memory();
    snprintf(temporary, size, "%s.tmp-%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "we");
    bool is_written = file != NULL && fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int problem = errno;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    if (is_written && (replace ? rename(temporary, path) : link(temporary, path)) != 0) {
        problem = errno;
        is_written = false;
    }
    unlink(temporary);
    free(temporary);
    return is_written ? 0 : cli_fail(CLI_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(problem));
}

bool cli_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

bool cli_is_hdf5(const char *path)
{
    static const char signature[] = "\x89HDF\r\n\x1a\n";
    char start[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_hdf5 = fd >= 0 && read(fd, start, sizeof start) == (ssize_t)sizeof start &&
                   memcmp(start, signature, sizeof start) == 0;
    if (fd >= 0)
        close(fd);
    return is_hdf5;
}

int cli_check_output_folder(const char *path, bool is_forced, const char *remedy)
{
    struct stat info;
    bool exists = lstat(path, &info) == 0;
    return exists && !is_forced ? cli_fail(CLI_E_FILE_EXISTS, path, "'%s' exists already; %s", path, remedy)
                                : 0;
}

int cli_check_output(const char *path, bool is_forced, const char *remedy)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return cli_fail(CLI_E_FILE_EXISTS, path, "'%s' is a folder", path);
    const char *slash = strrchr(path, '/');
    size_t n = slash == path ? 1 : slash != NULL ? (size_t)(slash - path) : 0;
    char *folder = n > 0 ? strndup(path, n) : strdup(".");
    if (folder == NULL)
        return cli_fail_memory();
    int problem = access(folder, W_OK) != 0 ? errno : 0;
    free(folder);
    if (problem != 0)
        return cli_fail(CLI_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(problem));
    return cli_check_output_folder(path, is_forced, remedy);
}

const char *cli_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}
