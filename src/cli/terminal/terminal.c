/* Width, colours and pager of a terminal, and what is printed there. */
#include "cli/terminal/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "npudiff/core/parse.h"

/* Standard output and error without control sequences of strangers. */

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

static const char *const colors[] = {"auto", "always", "never", NULL};

size_t cli_text_width(size_t asked)
{
    enum { DEFAULT_WIDTH = 80, MAX_WIDTH = 1000 };
    struct winsize size = {0};
    uint64_t columns = 0;
    const char *text = getenv("COLUMNS");
    if (asked > 0)
        return asked;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (text != NULL && !nd_parse_u64(text, &columns))
        columns = 0;
    if (columns == 0)
        return DEFAULT_WIDTH;
    return columns < MAX_WIDTH ? (size_t)columns : MAX_WIDTH;
}

static bool has_colors(const char *color)
{
    const char *never = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (color != NULL && strcmp(color, "auto") != 0)
        return strcmp(color, "always") == 0;
    return isatty(STDOUT_FILENO) == 1 && (never == NULL || never[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

#define RED "\033[1;31m"
#define YELLOW "\033[1;33m"
#define GREEN "\033[1;32m"
#define PLAIN "\033[0m"

/* Verdicts as texts write them; a longer one before one that it begins with. */
static const struct {
    const char *word, *color;
} verdicts[] = {
    {"NOT READY", RED},
    {"NOT READ", RED},
    {"NOT COMPARABLE", YELLOW},
    {"DIFFERS", RED},
    {"FAULTY", RED},
    {"FAILED", RED},
    {"DAMAGED", RED},
    {"FAIL", RED},
    {"BROKEN", RED},
    {"INCONCLUSIVE", YELLOW},
    {"UNEXPLAINED", YELLOW},
    {"UNKNOWN", YELLOW},
    {"TOO FEW", YELLOW},
    {"HEALTHY", GREEN},
    {"READY", GREEN},
    {"UNSTEADY", RED},
    {"FALLBACK", RED},
    {"NOTHING TO REDUCE", YELLOW},
    {"NOT REDUCED", YELLOW},
    {"NOT IDENTIFIED", YELLOW},
    {"PARTLY IDENTIFIED", YELLOW},
    {"IDENTIFIED", GREEN},
    {"NEW", RED},
    {"KNOWN", GREEN},
    {"SAME", GREEN},
    {"OK", GREEN},
};

/* The verdict that begins at text, or SIZE_MAX. */
static size_t find_verdict(const char *text)
{
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        size_t n = strlen(verdicts[i].word);
        if (strncmp(text, verdicts[i].word, n) == 0 && strchr(": \n,", text[n]) != NULL)
            return i;
    }
    return SIZE_MAX;
}

void cli_print_text(const char *text, const char *color)
{
    if (!has_colors(color)) {
        fputs(text, stdout);
        return;
    }
    for (const char *at = text; *at != '\0';) {
        bool is_start = at == text || at[-1] == '\n' || (at[-1] == ' ' && at - text > 1 && at[-2] == ' ');
        size_t i = is_start ? find_verdict(at) : SIZE_MAX;
        if (i == SIZE_MAX) {
            putchar(*at++);
            continue;
        }
        cli_put_escape(stdout, verdicts[i].color);
        fputs(verdicts[i].word, stdout);
        cli_put_escape(stdout, PLAIN);
        at += strlen(verdicts[i].word);
    }
}

static const char *const formats[] = {"text", "github", NULL};

bool cli_is_markdown(const char *format)
{
    return format != NULL && strcmp(format, "github") == 0;
}

void cli_print_markdown(const char *text)
{
    size_t n = strcspn(text, "\n");
    printf("### %.*s\n\n````text\n%s````\n", (int)n, text, text);
}

int cli_print_answer(enum nd_status status, char *text, const struct cli_answer *how,
                     const struct nd_error *err)
{
    if (status != ND_OK || how->json)
        return cli_print_made(status, text, how->json, err);
    if (!how->quiet && cli_is_markdown(how->format))
        cli_print_markdown(text);
    else if (!how->quiet)
        cli_print_text(text, how->color);
    free(text);
    return 0;
}

int cli_print_screen(struct nd_report_screen *screen)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = nd_report_screen_end(&screen, &text, &err);
    return cli_print_answer(status, text, &(struct cli_answer){0}, &err);
}

bool cli_is_silent(const struct cli_answer *how)
{
    return how->quiet && !how->json;
}

/* ---- the options ---- */

#define ROW_JSON OPT_FLAG(0, "json", struct cli_answer, json, "print JSON, for programs")
#define ROW_QUIET(help) OPT_FLAG('q', "quiet", struct cli_answer, quiet, help)
#define ROW_QUIET_ANSWER ROW_QUIET("print errors only; the exit code is the answer")
#define ROW_COLOR                                                                                              \
    OPT_CHOICE(0, "color", struct cli_answer, color, "auto|always|never", colors,                              \
               "colour the verdicts (auto: on a terminal, unless NO_COLOR is set)")

const struct cli_option cli_answer_plain[] = {ROW_JSON, ROW_QUIET("print errors only"), {.name = NULL}};
const struct cli_option cli_answer_code[] = {ROW_JSON, ROW_QUIET_ANSWER, {.name = NULL}};
const struct cli_option cli_answer_color[] = {ROW_COLOR, ROW_JSON, ROW_QUIET_ANSWER, {.name = NULL}};
const struct cli_option cli_answer_screen[] = {
    OPT_NUMBER(0, "width", struct cli_answer, width, "N", 40, 1000,
               "columns of the text (those of the terminal; else 80)"),
    OPT_CHOICE(0, "format", struct cli_answer, format, "text|github", formats,
               "github: the text as Markdown, for >> $GITHUB_STEP_SUMMARY (text)"),
    ROW_COLOR,
    ROW_JSON,
    ROW_QUIET_ANSWER,
    {.name = NULL},
};
