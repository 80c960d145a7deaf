#include "cli/options/help.h"

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

void cli_print_wrapped(const char *text, size_t indent)
{
    size_t column = indent, width = text_width();
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + word > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word;
        if (*text == '\n') {
            if (text[1] != '\0')
                printf("\n%*s", (int)indent, "");
            column = indent;
        }
        text += *text != '\0';
    }
    putchar('\n');
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
    printf("usage: npudiff %s %s\n\n", command->name, command->synopsis);
    cli_print_wrapped(command->details, 0);
    printf("\nexamples:\n");
    for (const struct cli_example *example = command->examples; example->command != NULL; example++) {
        printf("  %s\n      ", example->command);
        cli_print_wrapped(example->what, 6);
    }
    printf("\noptions:\n");
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        print_option(option);
    print_option(&help);
}
