/* All commands and their options as JSON: the reference, man pages and completions are made of it. */
#include "cli/options/help.h"

#include "cli/terminal/rows.h"

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
    for (const struct cli_example *example = command->examples; example->command != NULL; example++)
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
        cli_with_groups(commands[i], rows_of);
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
