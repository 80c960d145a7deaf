#include "cli/options/help.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "npudiff/core/parse.h"

enum { LEAST_WIDTH = 60, MOST_WIDTH = 100, USUAL_WIDTH = 80 };

/* Columns for the text. */
static size_t text_width(void)
{
    struct winsize size = {0};
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL_WIDTH;
    size_t width = size.ws_col;
    return width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
}

/* The length of what stays on one line: a word; of a command line also what is quoted or in brackets, and an
 * option with its value. */
static size_t unit_length(const char *text, bool is_command)
{
    size_t n = 0;
    int n_open = 0;
    bool is_quoted = false, takes_value = text[0] == '-';
    for (; text[n] != '\0' && text[n] != '\n'; n++) {
        is_quoted ^= text[n] == '\'';
        n_open += (text[n] == '[') - (text[n] == ']');
        if (text[n] != ' ' || (is_command && (is_quoted || n_open > 0)))
            continue;
        if (!is_command || !takes_value || strchr("-[|", text[n + 1]) != NULL)
            break;
        takes_value = false;
    }
    return n;
}

/* Begins in `column`; the next lines in `indent`. joint: what ends a line of a command that goes on; NULL: the
 * text is none. */
static void print_units(const char *text, size_t column, size_t indent, const char *joint)
{
    const char *end = joint != NULL ? joint : "";
    size_t width = text_width() - strlen(end), first = column;
    while (*text != '\0') {
        size_t n = unit_length(text, joint != NULL);
        if (column > first && column + 1 + n > width) {
            printf("%s\n%*s", end, (int)indent, "");
            first = column = indent;
        }
        if (column > first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)n, text);
        column += n;
        text += n;
        if (*text == '\n') {
            if (text[1] != '\0')
                printf("\n%*s", (int)indent, "");
            first = column = indent;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

void cli_print_wrapped(const char *text, size_t indent)
{
    print_units(text, indent, indent, NULL);
}

static void print_option(const struct cli_option *option)
{
    enum { HELP_COLUMN = 28 };
    char left[100], letter[6] = "    ";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const char *joint = option->kind == CLI_OPTIONAL ? "" : option->argument != NULL ? " " : "";
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name, joint,
                     option->argument != NULL ? option->argument : "");
    bool is_beside = n <= HELP_COLUMN - 2;
    if (is_beside)
        printf("%-*s", HELP_COLUMN, left);
    else
        printf("%s\n%*s", left, HELP_COLUMN, "");
    cli_print_wrapped(option->help, HELP_COLUMN);
}

void cli_print_help(const struct cli_command *command)
{
    static const struct cli_option help = {
        .name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "print this help"};
    printf("usage: npudiff %s ", command->name);
    print_units(command->synopsis, strlen("usage: npudiff  ") + strlen(command->name), 8, "");
    putchar('\n');
    cli_print_wrapped(command->details, 0);
    printf("\nexamples:\n");
    for (const struct cli_example *example = command->examples; example->command != NULL; example++) {
        fputs("  ", stdout);
        print_units(example->command, 2, 6, " \\");
        fputs("      ", stdout);
        cli_print_wrapped(example->what, 6);
    }
    printf("\noptions:\n");
    struct cli_option options[CLI_MAX_OPTIONS];
    cli_with_groups(command, options);
    for (const struct cli_option *option = options; option->name != NULL; option++)
        print_option(option);
    print_option(&help);
}
