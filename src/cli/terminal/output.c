/* Files that a command reads or writes itself: what would stop the writing is found before anything runs. */
#include "cli/terminal/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/errors.h"
#include "cli/terminal/signals.h"
#include "npudiff/capture/capture.h"
#include "npudiff/report/report.h"

int cli_write_text(const char *path, const char *text, bool replace)
{
    struct nd_error err = {0};
    if (cli_errors_has_lost_memory()) /* the text may lack what could not be stored */
        return ND_EXIT_TROUBLE;
    /* Who reads a pipe may never come, and a signal that came before is not sent again. */
    bool was_catching = nd_document_is_stream(path) && cli_signals_let_end();
    enum nd_status status = nd_document_write(path, text, replace, &err);
    if (was_catching)
        cli_signals_catch();
    return status == ND_OK ? 0 : cli_report_error(&err);
}

bool cli_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

size_t cli_peek(const char *path, char *start, size_t n_bytes)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    size_t n_read = 0;
    for (ssize_t n = is_file ? 1 : 0; n != 0 && n_read < n_bytes;) { /* a read may be short, or interrupted */
        n = read(fd, start + n_read, n_bytes - n_read);
        if (n < 0 && errno != EINTR)
            break;
        n_read += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    return n_read;
}

bool cli_is_hdf5(const char *path)
{
    if (nd_capture_is_url(path)) /* nothing else is read from servers */
        return true;
    static const char signature[] = "\x89HDF\r\n\x1a\n";
    char start[8];
    return cli_peek(path, start, sizeof start) == sizeof start && memcmp(start, signature, sizeof start) == 0;
}

int cli_check_output_folder(const char *path, bool is_forced, const char *remedy)
{
    struct stat info;
    bool exists = lstat(path, &info) == 0;
    return exists && !is_forced ? cli_fail(CLI_E_FILE_EXISTS, path, "'%s' exists already; %s", path, remedy)
                                : 0;
}

/* Freed by the caller; NULL: no memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash == path ? 1 : slash != NULL ? (size_t)(slash - path) : 0;
    return n > 0 ? strndup(path, n) : strdup(".");
}

/* Of one command: what it reads, then what it writes. */
enum { MAX_NOTED = 64 };
static char *noted[MAX_NOTED];
static size_t n_noted;

static bool is_same_file(const char *a, const char *b)
{
    struct stat at[2];
    bool are[] = {stat(a, &at[0]) == 0, stat(b, &at[1]) == 0};
    if (are[0] && are[1])
        return at[0].st_dev == at[1].st_dev && at[0].st_ino == at[1].st_ino;
    if (are[0] || are[1] || strcmp(cli_file_name(a), cli_file_name(b)) != 0)
        return false;
    char *folders[] = {folder_of(a), folder_of(b)};
    bool is_same = folders[0] != NULL && folders[1] != NULL && stat(folders[0], &at[0]) == 0 &&
                   stat(folders[1], &at[1]) == 0 && at[0].st_dev == at[1].st_dev &&
                   at[0].st_ino == at[1].st_ino;
    free(folders[0]);
    free(folders[1]);
    return is_same;
}

void cli_note_file(const char *path)
{
    if (n_noted < MAX_NOTED && (noted[n_noted] = strdup(path)) != NULL)
        n_noted++;
}

static int check_apart(const char *path)
{
    for (size_t i = 0; i < n_noted; i++)
        if (is_same_file(path, noted[i]))
            return cli_fail(CLI_E_OPTION_CONFLICT, path,
                            "'%s' is also '%s', which this command reads or writes, too", path, noted[i]);
    cli_note_file(path);
    return 0;
}

int cli_check_output(const char *path, bool is_forced, const char *remedy)
{
    struct stat info;
    if (check_apart(path) != 0)
        return ND_EXIT_TROUBLE;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return cli_fail(CLI_E_FILE_EXISTS, path, "'%s' is %s, and only a regular file is replaced", path,
                        S_ISDIR(info.st_mode)   ? "a folder"
                        : S_ISLNK(info.st_mode) ? "a symbolic link"
                                                : "a device, pipe or socket");
    char *folder = folder_of(path);
    if (folder == NULL)
        return cli_fail_memory();
    int problem = access(folder, W_OK) != 0 ? errno : 0;
    free(folder);
    if (problem != 0)
        return cli_fail(CLI_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(problem));
    return cli_check_output_folder(path, is_forced, remedy);
}

int cli_check_text_output(const char *path, bool is_forced, const char *remedy)
{
    return nd_document_is_stream(path) ? 0 : cli_check_output(path, is_forced, remedy);
}

const char *cli_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}
