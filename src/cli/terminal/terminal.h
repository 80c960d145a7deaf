/* Where a text for a person goes: how wide it may be, and whether it may have colours. */
#ifndef ND_CLI_TERMINAL_H
#define ND_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/options/command_options.h"

extern const char *const cli_color_choices[];

/* The member is a text. */
#define OPT_COLOR(s)                                                                                           \
    OPT_CHOICE(0, "color", s, color, "auto|always|never", cli_color_choices,                                   \
               "colour the verdicts (auto: on a terminal, unless NO_COLOR is set)")
#define OPT_WIDTH(s)                                                                                           \
    OPT_NUMBER(0, "width", s, width, "N", 40, 1000, "columns of the text (those of the terminal; else 80)")

/* Columns of a text on stdout: `asked` unless that is 0, else those of the terminal, else $COLUMNS, else 80. */
size_t cli_text_width(size_t asked);

/* Prints a text; with colours where `color` ("auto", "always", "never"; NULL: auto) and the terminal want them.
 */
void cli_print_text(const char *text, const char *color);

extern const char *const cli_format_choices[];

/* The member is a text. */
#define OPT_FORMAT(s)                                                                                          \
    OPT_CHOICE(0, "format", s, format, "text|github", cli_format_choices,                                      \
               "github: the text as Markdown, for >> $GITHUB_STEP_SUMMARY (text)")

/* Whether that is "github". */
bool cli_is_markdown(const char *format);

/* Prints a text as Markdown: its first line as a heading, all of it as a block. */
void cli_print_markdown(const char *text);

/* cli_print_made (rows.h) of a text that may have colours, or become Markdown. */
struct cli_style {
    bool is_json;
    const char *color, *format; /* of OPT_COLOR, OPT_FORMAT; NULL: the defaults */
};
int cli_print_answer(enum nd_status status, char *text, const struct cli_style *style,
                     const struct nd_error *err);

#endif
