#include "cli/options/command_options.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/help.h"
#include "cli/terminal/output.h"
#include "npudiff/core/parse.h"

int cli_worse(int a, int b)
{
    return (int)nd_exit_worse((enum nd_exit)a, (enum nd_exit)b);
}

static size_t put_rows(const struct cli_option *rows, size_t offset, struct cli_option *options, size_t n)
{
    for (; rows->name != NULL; rows++) {
        if (rows->group != NULL) {
            n = put_rows(rows->group, offset + rows->offset, options, n);
            continue;
        }
        assert(n < CLI_MAX_OPTIONS - 1);
        options[n] = *rows;
        options[n++].offset += offset;
    }
    return n;
}

struct cli_command cli_with_groups(const struct cli_command *command,
                                   struct cli_option options[CLI_MAX_OPTIONS])
{
    struct cli_command whole = *command;
    options[put_rows(command->options, 0, options, 0)] = (struct cli_option){.name = NULL};
    whole.options = options;
    return whole;
}

/* Words of version 0.1, to be removed in 0.3, and another spelling. They are in no help and no completion. */
static const struct {
    const char *old, *now;
} renamed[] = {
    {"edges", "tensors"}, {"edge", "tensor"},  {"units", "layers"}, {"harm-samples", "effect-samples"},
    {"replace", "force"}, {"keep", "answers"}, {"runs", "repeats"}, {"quantized", "quantised"},
};
static const char old_letter_of_tensors = 'e';

static const struct cli_option *find_name(const struct cli_command *command, const char *name, size_t length)
{
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

static const struct cli_option *find_long(const struct cli_command *command, const char *name, size_t length)
{
    const struct cli_option *found = find_name(command, name, length);
    for (size_t i = 0; found == NULL && i < sizeof renamed / sizeof renamed[0]; i++)
        if (strlen(renamed[i].old) == length && strncmp(renamed[i].old, name, length) == 0)
            found = find_name(command, renamed[i].now, strlen(renamed[i].now));
    return found;
}

static const struct cli_option *find_letter(const struct cli_command *command, char letter)
{
    for (const struct cli_option *option = command->options; option->name != NULL; option++)
        if (option->letter == letter)
            return option;
    return letter == old_letter_of_tensors ? find_name(command, "tensors", strlen("tensors")) : NULL;
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
    char list[256] = "", meant[ND_DID_YOU_MEAN_BYTES];
    size_t n = 0, n_choices = 0;
    for (; option->choices[n_choices] != NULL && n < sizeof list; n_choices++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n_choices > 0 ? ", " : "",
                              option->choices[n_choices]);
    cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "--%s takes %s, not '%s'%s", option->name, list,
                       value,
                       nd_did_you_mean(value, option->choices, n_choices, sizeof *option->choices, meant));
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

enum { MAX_PARTS = 65536 };
#define MAX_PARTS_TEXT "65536"

static bool parse_part(const char *text, struct cli_part *out)
{
    char first[32];
    uint64_t k, n;
    size_t n_bytes = strcspn(text, "/");
    if (text[n_bytes] != '/' || n_bytes >= sizeof first)
        return false;
    memcpy(first, text, n_bytes);
    first[n_bytes] = '\0';
    if (!nd_parse_u64(first, &k) || !nd_parse_u64(text + n_bytes + 1, &n) || k < 1 || k > n || n > MAX_PARTS)
        return false;
    *out = (struct cli_part){.part = (size_t)k - 1, .n_parts = (size_t)n};
    return true;
}

static bool is_dim(const char *text)
{
    const char *equals = strchr(text, '=');
    int64_t n;
    return equals != NULL && equals != text && nd_parse_i64(equals + 1, &n) && n >= 1;
}

static bool refuse(const struct cli_command *command, const struct cli_option *option, const char *expected,
                   const char *value)
{
    cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "--%s takes %s, not '%s'", option->name, expected,
                       value);
    return false;
}

static bool append(struct cli_list *list, const char *value)
{
    const char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (items == NULL) {
        cli_fail_memory();
        return false;
    }
    items[list->n++] = value;
    list->items = items;
    return true;
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
        if (value[0] == '\0' && (option->value == CLI_VALUE_FILE || option->value == CLI_VALUE_FOLDER)) {
            cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "the name that --%s gives is empty",
                               option->name);
            return false;
        }
        *(const char **)at = value;
        return true;
    case CLI_DIMS:
        return is_dim(value) ? append(at, value) : refuse(command, option, "NAME=N with N >= 1", value);
    case CLI_OPTIONAL:
    case CLI_LIST:
        return append(at, value);
    case CLI_PART:
        return parse_part(value, at) ||
               refuse(command, option, "K/N with K from 1 to N, N at most " MAX_PARTS_TEXT, value);
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

static void refuse_name(const struct cli_command *command, const char *word, size_t length)
{
    enum { MAX_NAME = 40 };
    char dashed[CLI_MAX_OPTIONS][MAX_NAME], typed[MAX_NAME], meant[ND_DID_YOU_MEAN_BYTES];
    const char *names[CLI_MAX_OPTIONS];
    size_t n = 0;
    for (; n < CLI_MAX_OPTIONS && command->options[n].name != NULL; n++) {
        snprintf(dashed[n], MAX_NAME, "--%s", command->options[n].name);
        names[n] = dashed[n];
    }
    snprintf(typed, sizeof typed, "--%.*s", (int)length, word);
    nd_did_you_mean(typed, names, n, sizeof names[0], meant);
    cli_usage_error_as(CLI_E_OPTION_UNKNOWN, command->name, "unknown option '--%.*s'%s", (int)length, word,
                       meant);
}

static bool parse_long(struct parse *parse, const char *word)
{
    size_t length = strcspn(word, "=");
    const struct cli_option *option = find_long(parse->command, word, length);
    if (option == NULL) {
        refuse_name(parse->command, word, length);
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

/* 0, or the exit code after a message: the first operand is none of the command's actions. */
static int check_action(const struct cli_command *command, const char *const *operands, size_t n_operands)
{
    char list[256] = "", meant[ND_DID_YOU_MEAN_BYTES];
    size_t n = 0, length = 0;
    if (command->actions == NULL || n_operands == 0)
        return 0;
    for (; command->actions[n] != NULL; n++) {
        if (strcmp(command->actions[n], operands[0]) == 0)
            return 0;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s'%s'", n > 0 ? ", " : "",
                                       command->actions[n]);
    }
    return cli_usage_error_as(
        CLI_E_OPTION_VALUE, command->name, "unknown word '%s'; expected %s%s", operands[0], list,
        nd_did_you_mean(operands[0], command->actions, n, sizeof command->actions[0], meant));
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
        if (option->kind == CLI_LIST || option->kind == CLI_OPTIONAL || option->kind == CLI_DIMS)
            free(((struct cli_list *)(void *)((char *)values + option->offset))->items);
}

int cli_run(const struct cli_command *with_groups, int argc, char **argv)
{
    struct cli_option options[CLI_MAX_OPTIONS];
    const struct cli_command whole = cli_with_groups(with_groups, options), *command = &whole;
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
    else if (parse.n_operands < command->min_operands)
        exit_code = cli_usage_error(command->name, "too few arguments; the usage is: npudiff %s %s",
                                    command->name, command->synopsis);
    else if (parse.n_operands > command->max_operands)
        exit_code = cli_usage_error(command->name, "the operands are wrong; the usage is: npudiff %s %s",
                                    command->name, command->synopsis);
    else if ((exit_code = check_action(command, parse.operands, parse.n_operands)) == 0) {
        for (size_t i = 0; i < parse.n_operands; i++)
            cli_note_file(parse.operands[i]);
        exit_code = command->run(parse.values, parse.operands, parse.n_operands);
    }
    if (parse.values != NULL)
        free_lists(command, parse.values);
    free(parse.values);
    free(parse.operands);
    return exit_code;
}
