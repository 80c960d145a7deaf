/* Where a text for a person goes: how wide it may be, and whether it may have colours. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/options/help.h"
#include "npudiff/report/report.h"

/* How a result is printed. */
struct cli_answer {
    bool json, quiet;
    const char *color, *format; /* NULL: the defaults */
    size_t width;               /* 0: that of the terminal */
};

/* Options that fill the member `answer` of a command's struct: --json and -q, of a command whose exit code is
 * no answer; of one whose exit code is; with --color; with --color, --width and --format. */
extern const struct cli_option cli_answer_plain[], cli_answer_code[], cli_answer_color[], cli_answer_screen[];
#define OPT_ANSWER_(s, rows) OPT_GROUP(s, answer, struct cli_answer, rows)
#define OPT_ANSWER_PLAIN(s) OPT_ANSWER_(s, cli_answer_plain)
#define OPT_ANSWER(s) OPT_ANSWER_(s, cli_answer_code)
#define OPT_ANSWER_COLOR(s) OPT_ANSWER_(s, cli_answer_color)
#define OPT_ANSWER_SCREEN(s) OPT_ANSWER_(s, cli_answer_screen)

/* Nothing is printed but errors: --quiet without --json. */
bool cli_is_silent(const struct cli_answer *how);

/* Columns of a text on stdout: `asked` unless that is 0, else those of the terminal, else $COLUMNS, else 80. */
size_t cli_text_width(size_t asked);

/* Prints a text; with colours where `color` ("auto", "always", "never"; NULL: auto) and the terminal want them.
 */
void cli_print_text(const char *text, const char *color);

/* Whether that is "github". */
bool cli_is_markdown(const char *format);

/* Prints a text as Markdown: its first line as a heading, all of it as a block. */
void cli_print_markdown(const char *text);

/* cli_print_made (rows.h) of a text that may have colours, become Markdown, or not be wanted. */
int cli_print_answer(enum nd_status status, char *text, const struct cli_answer *how,
                     const struct nd_error *err);

/* Ends the screen and prints it, with colours where the terminal wants them: 0, or exit code 2 when memory is
 * out. */
int cli_print_screen(struct nd_report_screen *screen);

/* ---- without control sequences of strangers: names and messages of models, captures and logs are printed as
 * they are, and could otherwise move the cursor, change the terminal's title or hide lines ---- */

/* From now on, whatever is printed to stdout or stderr has its control characters shown as "\x1b": those of
 * ASCII but tab and newline, those of ISO 8859 (in UTF-8), and the marks that turn the direction of text; and
 * so one byte of what a log of CI obeys: "::" where a line begins, "##name[". Once, at the start. Without
 * memory the streams stay as they are. */
void cli_guard_output(void);

/* Sends one of our own control sequences to the terminal behind stdout or stderr. */
void cli_put_escape(FILE *stream, const char *sequence);

/* Prints text as it is where stdout is no terminal and no log of CI, for programs that read it. */
void cli_put_raw(const char *text);
