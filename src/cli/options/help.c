/* Options and help of all commands, from one table each: parsing, --help, and `npudiff help` of an error. */
#include "cli/options/help.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "npudiff/capture/capture.h"
#include "npudiff/core/parse.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

enum { MIN_WIDTH = 60, MAX_WIDTH = 100, USUAL_WIDTH = 80 };

/* Columns for the text. */
static size_t text_width(void)
{
    struct winsize size = {0};
    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL_WIDTH;
    size_t width = size.ws_col;
    return width < MIN_WIDTH ? MIN_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : width;
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

/* Prints a text of several paragraphs. Its lines begin at column `indent`; the first one is there already. */
static void cli_print_wrapped(const char *text, size_t indent)
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

/* The command with the rows of all groups in one table, in `options`. */
static struct cli_command with_all_groups(const struct cli_command *command,
                                          struct cli_option options[CLI_MAX_OPTIONS])
{
    struct cli_command whole = *command;
    options[put_rows(command->options, 0, options, 0)] = (struct cli_option){.name = NULL};
    whole.options = options;
    return whole;
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
    for (const struct cli_example *example = command->examples;
         example < command->examples + command->n_examples; example++) {
        fputs("  ", stdout);
        print_units(example->command, 2, 6, " \\");
        fputs("      ", stdout);
        cli_print_wrapped(example->what, 6);
    }
    printf("\noptions:\n");
    struct cli_option options[CLI_MAX_OPTIONS];
    with_all_groups(command, options);
    for (const struct cli_option *option = options; option->name != NULL; option++)
        print_option(option);
    print_option(&help);
}

int cli_worse(int a, int b)
{
    return (int)nd_exit_worse((enum nd_exit)a, (enum nd_exit)b);
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
        char list[256] = "", meant[ND_DID_YOU_MEAN_BYTES];
        size_t n = 0, n_choices = 0;
        for (; option->choices[n_choices] != NULL && n < sizeof list; n_choices++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n_choices > 0 ? ", " : "",
                                  option->choices[n_choices]);
        cli_usage_error_as(CLI_E_OPTION_VALUE, command->name, "--%s takes %s, not '%s'%s", option->name, list,
                           value,
                           nd_did_you_mean(value, option->choices, n_choices, sizeof *option->choices, meant));
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
    const struct cli_option *option = find_name(parse->command, word, length);
    for (size_t i = 0; option == NULL && i < sizeof renamed / sizeof renamed[0]; i++)
        if (strlen(renamed[i].old) == length && strncmp(renamed[i].old, word, length) == 0)
            option = find_name(parse->command, renamed[i].now, strlen(renamed[i].now));
    if (option == NULL) {
        const struct cli_command *command = parse->command;
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

int cli_run(const struct cli_command *with_groups, int argc, char **argv)
{
    struct cli_option options[CLI_MAX_OPTIONS];
    const struct cli_command whole = with_all_groups(with_groups, options), *command = &whole;
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
    if (parse.values != NULL) {
        for (const struct cli_option *option = command->options; option->name != NULL; option++)
            if (option->kind == CLI_LIST || option->kind == CLI_OPTIONAL || option->kind == CLI_DIMS)
                free(((struct cli_list *)(void *)((char *)parse.values + option->offset))->items);
    }
    free(parse.values);
    free(parse.operands);
    cli_signals_end_if_came(); /* only now that everything is cleaned up */
    return exit_code;
}

/* The names of the two tables tie them together: a help without an error does not compile. */
static const struct {
    int id;
    enum nd_status status;
    const char *summary;
} errors[] = {
#define ND_ERROR(name, number, status, summary) {number, status, summary},
#include "npudiff/core/error_ids.def"
#undef ND_ERROR
};

static const struct {
    int id;
    const char *cause;
    const char *action;
} helps[] = {
#define ND_ERROR_HELP(name, cause, action) {ND_E_##name, cause, action},
#include "npudiff/core/error_help.def"
#undef ND_ERROR_HELP
};

enum { N_ERRORS = sizeof errors / sizeof errors[0], N_HELPS = sizeof helps / sizeof helps[0] };

static const char *digits_of(const char *word)
{
    if (strncasecmp(word, "ND", 2) != 0)
        return word;
    word += 2;
    return word + (word[0] == '-');
}

bool cli_is_error_id(const char *word)
{
    uint64_t number;
    return nd_parse_u64(digits_of(word), &number);
}

static void print_part(const char *title, const char *text)
{
    enum { INDENT = 12 };
    printf("%-*s", INDENT, title);
    cli_print_wrapped(text, INDENT);
}

int cli_print_error_help(const char *word)
{
    uint64_t number = 0;
    size_t i = 0, k = 0;
    nd_parse_u64(digits_of(word), &number);
    while (i < N_ERRORS && (uint64_t)errors[i].id != number)
        i++;
    if (i == N_ERRORS)
        return cli_fail(CLI_E_OPTION_UNKNOWN, word, "there is no error '%s'; 'npudiff help errors' lists all",
                        word);
    while (k < N_HELPS && helps[k].id != errors[i].id)
        k++;
    int used = printf("ND-%d: ", errors[i].id);
    cli_print_wrapped(errors[i].summary, used > 0 ? (size_t)used : 0);
    putchar('\n');
    if (k < N_HELPS) {
        print_part("cause", helps[k].cause);
        print_part("what to do", helps[k].action);
    }
    printf("%-12s%d\n", "exit code", (int)nd_status_exit_code(errors[i].status));
    return 0;
}

int cli_print_errors(void)
{
    for (size_t i = 0; i < N_ERRORS; i++) {
        char id[16];
        snprintf(id, sizeof id, "ND-%d", errors[i].id);
        printf("%-8s ", id);
        cli_print_wrapped(errors[i].summary, 9);
    }
    printf("\n'npudiff help ND-%d' says what one of them means, its cause, and what to do.\n", errors[0].id);
    return 0;
}

/* ---- candidates for the completion of shells ---- */

static void print_candidate(const char *word, const char *meaning)
{
    printf("%s\t%s\n", word, meaning);
}

static void complete_chipsets(const char *prefix)
{
    size_t n;
    const struct nd_chipset *chipsets = nd_chipsets(&n);
    for (size_t i = 0; i < n; i++) {
        const struct nd_chipset *chipset = &chipsets[i];
        printf("%s%s\t%s, %s\n", prefix, chipset->alias[0] != '\0' ? chipset->alias : chipset->sm,
               chipsets[i].marketing, chipsets[i].arch);
    }
}

/* Phones are left out: asking adb would start its server. */
static void complete_devices(void)
{
    print_candidate("cpu", "ONNX Runtime on the CPU");
    print_candidate("exact", "the quantised model, evaluated exactly");
    print_candidate("float64", "the float model in double precision");
    complete_chipsets("htp-sim:");
    complete_chipsets("twin:");
    print_candidate("emu:htp-v73", "emulated arithmetic, or faults");
    print_candidate("adb:*", "every attached phone");
    print_candidate("ssh:", "a board: ssh:HOST");
    print_candidate("htp", "the NPU of this computer");
}

static void complete_runtimes(void)
{
    struct nd_runtime_list list;
    if (nd_runtimes_list(&list, NULL) != ND_OK)
        return;
    for (size_t i = 0; i < list.n; i++)
        if (list.items[i].missing == NULL && (i == 0 || strcmp(list.items[i].id, list.items[i - 1].id) != 0))
            print_candidate(list.items[i].id, "installed");
    nd_runtimes_deinit(&list);
}

static void complete_probes(void)
{
    for (const struct nd_probe_kind *kind = nd_probe_kinds(); kind->name != NULL; kind++)
        print_candidate(kind->name, kind->summary);
}

static bool complete_capture(const char *path, bool wants_probes)
{
    struct nd_capture *capture = NULL;
    if (!cli_is_hdf5(path) || nd_capture_open(path, &capture, NULL) != ND_OK)
        return false;
    for (size_t i = 0; wants_probes && i < nd_capture_n_probes(capture); i++)
        print_candidate(nd_capture_probe(capture, i)->name, "probe");
    for (size_t i = 0; !wants_probes && i < nd_capture_n_tensors(capture); i++)
        print_candidate(nd_capture_tensor(capture, i)->name, nd_capture_tensor(capture, i)->op_types);
    nd_capture_close(&capture);
    return true;
}

static bool complete_model(const char *path)
{
    struct nd_model *model = NULL;
    if (!cli_ends_with(path, ".onnx") || nd_model_load(path, &model, NULL) != ND_OK)
        return false;
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        print_candidate(nd_model_tensor(model, i)->name, nd_model_tensor(model, i)->op_types);
    nd_model_destroy(&model);
    return true;
}

int cli_complete(const char *kind, const char *const *files, size_t n_files)
{
    bool is_done = false, wants_probes = strcmp(kind, "probe-name") == 0;
    if (strcmp(kind, "device") == 0)
        complete_devices();
    else if (strcmp(kind, "chipset") == 0)
        complete_chipsets("");
    else if (strcmp(kind, "runtime") == 0)
        complete_runtimes();
    else if (strcmp(kind, "probe") == 0)
        complete_probes();
    else if (wants_probes || strcmp(kind, "tensor") == 0 || strcmp(kind, "tensors") == 0)
        for (size_t i = 0; !is_done && i < n_files; i++)
            is_done = complete_capture(files[i], wants_probes) || (!wants_probes && complete_model(files[i]));
    return 0;
}

/* ---- all commands and their options as JSON: the reference, man pages and completions are made of it ---- */

static const char *kind_name(enum cli_kind kind)
{
    static const char *const names[] = {"flag",     "text",   "list",    "list", "text",
                                        "optional", "number", "integer", "real", "choice"};
    return names[kind];
}

/* What a value names; null where it names nothing that is known. */
static json_t *value_name(enum cli_value value)
{
    static const char *const names[] = {"word",   "file",    "folder",           "model",  "capture",
                                        "device", "chipset", "runtime",          "probe",  "probe-name",
                                        "tensor", "tensors", "capture-or-model", "command"};
    return value != CLI_VALUE_WORD ? json_string(names[value]) : json_null();
}

static const char *role_name(enum cli_role role)
{
    static const char *const names[CLI_N_ROLES] = {"find", "judge", "mend", "files", "here"};
    return names[role];
}

static json_t *option_row(const struct cli_option *option)
{
    const char letter[] = {option->letter, '\0'};
    json_t *row =
        json_pack("{s:s, s:o, s:s, s:o, s:o, s:s}", "name", option->name, "letter",
                  option->letter != 0 ? json_string(letter) : json_null(), "kind", kind_name(option->kind),
                  "value", value_name(option->value), "argument",
                  option->argument != NULL ? json_string(option->argument) : json_null(), "help", option->help);
    bool is_number = option->kind == CLI_NUMBER || option->kind == CLI_INTEGER || option->kind == CLI_REAL;
    if (is_number)
        json_object_update_new(row, json_pack("{s:f, s:f}", "min", option->min, "max", option->max));
    if (option->kind == CLI_CHOICE) {
        json_t *choices = json_array();
        for (size_t i = 0; option->choices[i] != NULL; i++)
            json_array_append_new(choices, json_string(option->choices[i]));
        json_object_set_new(row, "choices", choices);
    }
    return row;
}

static json_t *example_rows(const struct cli_command *command)
{
    json_t *rows = json_array();
    for (const struct cli_example *example = command->examples;
         example < command->examples + command->n_examples; example++)
        json_array_append_new(rows,
                              json_pack("{s:s, s:s}", "command", example->command, "what", example->what));
    return rows;
}

static json_t *action_rows(const struct cli_command *command)
{
    json_t *rows = json_array();
    for (size_t i = 0; command->actions != NULL && command->actions[i] != NULL; i++)
        json_array_append_new(rows, json_string(command->actions[i]));
    return rows;
}

int cli_print_option_table(const struct cli_command *const *commands, size_t n)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *options = json_array();
        struct cli_option rows_of[CLI_MAX_OPTIONS];
        with_all_groups(commands[i], rows_of);
        for (const struct cli_option *option = rows_of; option->name != NULL; option++)
            json_array_append_new(options, option_row(option));
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "name", commands[i]->name, "role",
                            role_name(commands[i]->role), "summary", commands[i]->summary, "synopsis",
                            commands[i]->synopsis, "details", commands[i]->details, "examples",
                            example_rows(commands[i]), "actions", action_rows(commands[i]), "operand",
                            value_name(commands[i]->operand), "options", options));
    }
    return cli_print_rows(ND_DOCUMENT_COMMANDS, "commands", rows, NULL, true);
}
