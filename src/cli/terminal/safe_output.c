/* Standard output and error without control sequences of strangers. */
#include "cli/terminal/safe_output.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/signals.h"

struct guard {
    int fd;
    unsigned char last, before; /* the two bytes before the next one */
    bool has_return;            /* the last one is a carriage return that is not written yet */
    bool has_text;              /* the line has more than blanks and colons so far */
    int mark;                   /* 1 after '#', 2 after "##" and letters */
};

/* Waits until PIPE_BUF bytes can be written, or what is wrong. Who reads a pipe may never come: false, when the
 * program was asked to end and there was no room for a while. */
static bool wait_for_room(int fd)
{
    enum { STEP_MS = 100, PATIENCE_MS = 1000 }; /* chosen */
    static int waited_ms[STDERR_FILENO + 1];    /* in all: what was given up is not waited for again */
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (waited_ms[fd] < PATIENCE_MS) {
        int n = poll(&room, 1, STEP_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
        waited_ms[fd] += n == 0 && cli_signals_came(NULL) ? STEP_MS : 0;
    }
    return false;
}

static bool write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        if (!wait_for_room(fd))
            return false;
        ssize_t done = write(fd, text, n < PIPE_BUF ? n : PIPE_BUF);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        text += done;
        n -= (size_t)done;
    }
    return true;
}

/* Sequences are broken at their last byte: what went before is then no character, which a terminal shows as
 * such. */
static bool is_control(const struct guard *guard, unsigned char byte)
{
    bool is_ascii = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    bool is_iso = guard->last == 0xc2 && byte >= 0x80 && byte <= 0x9f; /* U+0080 to U+009F */
    bool is_direction = guard->before == 0xe2 &&
                        ((guard->last == 0x80 && byte >= 0xaa && byte <= 0xae) ||       /* U+202A to U+202E */
                         (guard->last == 0x80 && byte >= 0x8e && byte <= 0x8f) ||       /* U+200E, U+200F */
                         (guard->last == 0x81 && byte >= 0xa6 && byte <= 0xa9));        /* U+2066 to U+2069 */
    return is_ascii || is_iso || is_direction || (guard->last == 0xd8 && byte == 0x9c); /* U+061C */
}

/* What a log of CI obeys, broken at its last byte, too: "::" where a line begins, after any blanks of Unicode
 * (GitHub), and "##vso[", "##[", "##teamcity[" anywhere (Azure, GitHub, TeamCity). */
static bool is_command(struct guard *guard, unsigned char byte)
{
    bool is = (byte == ':' && guard->last == ':' && !guard->has_text) || (byte == '[' && guard->mark == 2);
    bool is_blank = byte == ' ' || byte == '\t' || byte == ':' || byte >= 0x80;
    guard->has_text = byte != '\n' && (guard->has_text || is || !is_blank);
    guard->mark = byte == '#' ? 1 + (guard->last == '#') : guard->mark == 2 && isalpha(byte) && !is ? 2 : 0;
    return is;
}

/* One byte as it may be shown; returns the length. A carriage return before a newline ends a line of a CSV
 * file. */
static size_t show(struct guard *guard, unsigned char byte, char shown[static 16])
{
    size_t n = 0;
    if (guard->has_return)
        n = (size_t)sprintf(shown, "%s", byte == '\n' ? "\r" : "\\x0d");
    guard->has_return = byte == '\r';
    if ((is_command(guard, byte) || is_control(guard, byte)) && byte != '\r')
        n += (size_t)sprintf(shown + n, "\\x%02x", byte);
    else if (byte != '\r')
        shown[n++] = (char)byte;
    guard->before = guard->last;
    guard->last = byte;
    return n;
}

/* Of fopencookie: 0 and errno after a failure. */
static ssize_t write_guarded(void *cookie, const char *text, size_t n)
{
    struct guard *guard = cookie;
    char block[1024];
    size_t n_block = 0;
    for (size_t i = 0; i < n; i++) {
        n_block += show(guard, (unsigned char)text[i], block + n_block);
        if (n_block + 16 > sizeof block || i + 1 == n) {
            if (!write_all(guard->fd, block, n_block))
                return 0;
            n_block = 0;
        }
    }
    return (ssize_t)n;
}

void cli_guard_output(void)
{
#if defined __GLIBC__ /* where stdout can be assigned to */
    static struct guard guards[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
    static const cookie_io_functions_t functions = {.write = write_guarded};
    FILE *out = fopencookie(&guards[0], "w", functions), *err = fopencookie(&guards[1], "w", functions);
    if (out != NULL) {
        setvbuf(out, NULL, isatty(STDOUT_FILENO) == 1 ? _IOLBF : _IOFBF, BUFSIZ);
        stdout = out;
    }
    if (err != NULL) {
        setvbuf(err, NULL, _IONBF, 0);
        stderr = err;
    }
#endif
}

static int fd_of(FILE *stream)
{
    return stream == stderr ? STDERR_FILENO : STDOUT_FILENO;
}

void cli_put_escape(FILE *stream, const char *sequence)
{
    fflush(stream);
    write_all(fd_of(stream), sequence, strlen(sequence));
}

void cli_put_raw(const char *text)
{
    struct stat info;
    bool is_ci_log = (getenv("CI") != NULL || getenv("TF_BUILD") != NULL) && fstat(STDOUT_FILENO, &info) == 0 &&
                     !S_ISREG(info.st_mode);
    if (isatty(STDOUT_FILENO) == 1 || is_ci_log) {
        fputs(text, stdout);
        return;
    }
    /* A failure is found by the next write, which fails as well, and by the end of the program. */
    if (fflush(stdout) == 0 && !write_all(STDOUT_FILENO, text, strlen(text)))
        fputs(text, stdout);
}
