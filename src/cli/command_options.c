#include "cli/command_options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/parse.h"

int cli_worse(int a, int b)
{
    return (int)nd_exit_worse((enum nd_exit)a, (enum nd_exit)b);
}

static void print_wrapped(const char *text, size_t indent, size_t width)
{
    size_t column = indent;
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
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        text += *text != '\0';
    }
    putchar('\n');
}

void cli_print_help(const struct cli_command *command)
{
    enum { HELP_COLUMN = 30, WIDTH = 100 };
    printf("usage: npudiff %s %s\n\n", command->name, command->synopsis);
    print_wrapped(command->details, 0, WIDTH);
    printf("\noptions:\n");
    for (const struct cli_option *option = command->options; option->name != NULL; option++) {
        char left[80];
        char letter[6] = "    ";
        if (option->letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", option->letter);
        const char *joint = option->kind == CLI_OPTIONAL ? "" : option->argument != NULL ? " " : "";
        int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name, joint,
                         option->argument != NULL ? option->argument : "");
        printf("%-*s", HELP_COLUMN, left);
        if (n >= HELP_COLUMN)
            printf("\n%*s", HELP_COLUMN, "");
        print_wrapped(option->help, HELP_COLUMN, WIDTH);
    }
    printf("  -h, --help%*sshow this\n", HELP_COLUMN - 12, "");
}

static const struct cli_option *find_long(const struct cli_command *command, const char *name, size_t length)
{
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

static const struct cli_option *find_letter(const struct cli_command *command, char letter)
{
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

static bool is_choice(const struct cli_option *option, const char *value)
{
    for (size_t i = 0; option->choices[i] != NULL; i++)
        if (strcmp(option->choices[i], value) == 0)
            return true;
    return false;
}

static void refuse_choice(const struct cli_command *command, const struct cli_option *option, const char *value)
{
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; option->choices[i] != NULL && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? "|" : "", option->choices[i]);
    cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "--%s takes %s, not '%s'", option->name, list, value);
}

/* Stores a number; false after printing what is wrong with it. */
static bool store_number(const struct cli_command *command, const struct cli_option *option, const char *value,
                         void *at)
{
    uint64_t number;
    int64_t integer;
    if (option->kind == CLI_NUMBER && nd_parse_u64(value, &number) && (double)number >= option->min &&
        (double)number <= option->max) {
        *(size_t *)at = (size_t)number;
        return true;
    }
    if (option->kind == CLI_INTEGER && nd_parse_i64(value, &integer) && (double)integer >= option->min &&
        (double)integer <= option->max) {
        *(struct cli_integer *)at = (struct cli_integer){.is_given = true, .value = integer};
        return true;
    }
    cli_usage_error_as(CLI_E_OPTION_VALUE, command->name,
                       "--%s takes a whole number from %.0f to %.0f, not '%s'", option->name, option->min,
                       option->max, value);
    return false;
}

/* Stores one value; false after printing what is wrong with it. */
static bool store(const struct cli_command *command, const struct cli_option *option, const char *value,
                  void *values)
{
    void *at = (char *)values + option->offset;
    double real;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)at = true;
        return true;
    case CLI_TEXT:
        *(const char **)at = value;
        return true;
    case CLI_OPTIONAL:
    case CLI_LIST: {
        struct cli_list *list = at;
        const char **items = realloc(list->items, (list->n + 1) * sizeof *items);
        if (items == NULL) {
            cli_fail_memory();
            return false;
        }
        items[list->n++] = value;
        list->items = items;
        return true;
    }
    case CLI_NUMBER:
    case CLI_INTEGER:
        return store_number(command, option, value, at);
    case CLI_REAL:
        if (nd_parse_double(value, &real) && real >= option->min && real <= option->max) {
            *(double *)at = real;
            return true;
        }
        cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "--%s takes a number from %g to %g, not '%s'",
                           option->name, option->min, option->max, value);
        return false;
    case CLI_CHOICE:
        if (is_choice(option, value)) {
            *(const char **)at = value;
            return true;
        }
        refuse_choice(command, option, value);
        return false;
    }
    return false;
}

struct parse {
    const struct cli_command *command;
    int argc;
    char **argv;
    int at;
    void *values;
    const char **operands;
    size_t n_operands;
};

/* The option's argument: what follows '=' or the letter, else the next word. */
static bool take_value(struct parse *parse, const struct cli_option *option, const char *attached)
{
    if (option->kind == CLI_FLAG) {
        if (attached != NULL) {
            cli_usage_error_as(CLI_E_OPTION_VALUE, parse->command->name, "--%s takes no value", option->name);
            return false;
        }
        return store(parse->command, option, NULL, parse->values);
    }
    if (option->kind == CLI_OPTIONAL)
        return store(parse->command, option, attached, parse->values);
    if (attached == NULL && parse->at + 1 >= parse->argc) {
        cli_usage_error_as(CLI_E_OPTION_VALUE, parse->command->name, "--%s needs %s", option->name,
                           option->argument);
        return false;
    }
    return store(parse->command, option, attached != NULL ? attached : parse->argv[++parse->at], parse->values);
}

static bool parse_long(struct parse *parse, const char *word)
{
    size_t length = strcspn(word, "=");
    const struct cli_option *option = find_long(parse->command, word, length);
    if (option == NULL) {
        cli_usage_error_as(CLI_E_OPTION_UNKNOWN, parse->command->name, "unknown option '--%.*s'", (int)length,
                           word);
        return false;
    }
    return take_value(parse, option, word[length] == '=' ? word + length + 1 : NULL);
}

/* "-qv" is two flags, "-dcpu" an option with its value. */
static bool parse_letters(struct parse *parse, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        const struct cli_option *option = find_letter(parse->command, *letters);
        if (option == NULL) {
            cli_usage_error_as(CLI_E_OPTION_UNKNOWN, parse->command->name, "unknown option '-%c'", *letters);
            return false;
        }
        if (option->kind != CLI_FLAG && option->kind != CLI_OPTIONAL)
            return take_value(parse, option, letters[1] != '\0' ? letters + 1 : NULL);
        if (!store(parse->command, option, NULL, parse->values))
            return false;
    }
    return true;
}

static bool parse_words(struct parse *parse)
{
    bool is_option_end = false;
    for (parse->at = 0; parse->at < parse->argc; parse->at++) {
        const char *word = parse->argv[parse->at];
        bool is_fine = true;
        if (is_option_end || word[0] != '-' || word[1] == '\0')
            parse->operands[parse->n_operands++] = word;
        else if (strcmp(word, "--") == 0)
            is_option_end = true;
        else if (word[1] == '-')
            is_fine = parse_long(parse, word + 2);
        else
            is_fine = parse_letters(parse, word + 1);
        if (!is_fine)
            return false;
    }
    return true;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static void free_lists(const struct cli_command *command, void *values)
{
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        if (option->kind == CLI_LIST || option->kind == CLI_OPTIONAL)
            free(((struct cli_list *)(void *)((char *)values + option->offset))->items);
}

int cli_run(const struct cli_command *command, int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        cli_print_help(command);
        return 0;
    }
    struct parse parse = {.command = command,
                          .argc = argc,
                          .argv = argv,
                          .values = calloc(1, command->values_bytes > 0 ? command->values_bytes : 1),
                          .operands = calloc((size_t)argc + 1, sizeof *parse.operands)};
    int exit_code = ND_EXIT_TROUBLE;
    if (parse.values == NULL || parse.operands == NULL)
        exit_code = cli_fail_memory();
    else if (!parse_words(&parse))
        exit_code = ND_EXIT_TROUBLE;
    else if (parse.n_operands < command->min_operands || parse.n_operands > command->max_operands)
        exit_code = cli_usage_error(command->name, "expected: npudiff %s %s", command->name, command->synopsis);
    else
        exit_code = command->run(parse.values, parse.operands, parse.n_operands);
    if (parse.values != NULL)
        free_lists(command, parse.values);
    free(parse.values);
    free(parse.operands);
    return exit_code;
}
