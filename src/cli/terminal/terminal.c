/* Width, colours and pager of a terminal, and what is printed there. */
#include "cli/terminal/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/terminal/rows.h"
#include "cli/terminal/safe_output.h"
#include "npudiff/core/parse.h"

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
