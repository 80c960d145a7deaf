/* The commands that `npudiff run` runs, one after the other. */
#include "cli/commands/run_stages.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/rows.h"

/* ---- words ---- */

void cli_words_add(struct cli_words *words, const char *word)
{
    char **items = realloc(words->items, (words->n + 1) * sizeof *items);
    if (items != NULL)
        words->items = items;
    char *copy = items != NULL ? strdup(word) : NULL;
    if (copy == NULL)
        words->has_failed = true;
    else
        words->items[words->n++] = copy;
}

void cli_words_add_option(struct cli_words *words, const char *option, const char *value)
{
    if (value == NULL)
        return;
    cli_words_add(words, option);
    cli_words_add(words, value);
}

void cli_words_add_list(struct cli_words *words, const char *option, const struct cli_list *values)
{
    for (size_t i = 0; i < values->n; i++)
        cli_words_add_option(words, option, values->items[i]);
}

void cli_words_add_number(struct cli_words *words, const char *option, size_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", value);
    cli_words_add_option(words, option, value > 0 ? text : NULL);
}

void cli_words_add_flag(struct cli_words *words, const char *option, bool is_given)
{
    if (is_given)
        cli_words_add(words, option);
}

void cli_words_deinit(struct cli_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct cli_words){0};
}

/* ---- stages ---- */

/* Runs the command with standard output going into the file. */
static int run_into(FILE *file, const struct cli_command *command, const struct cli_words *words)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept < 0 || dup2(fileno(file), STDOUT_FILENO) < 0) {
        if (kept >= 0)
            close(kept);
        return cli_fail(CLI_E_FILE_WRITE, NULL, "standard output cannot be redirected");
    }
    int exit_code = cli_run(command, (int)words->n, words->items);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    return exit_code;
}

/* The stage's document becomes a member; a stage that printed none has null. */
static int run_for_json(struct cli_stages *stages, const struct cli_command *command, const char *name,
                        const struct cli_words *words)
{
    FILE *file = tmpfile();
    if (file == NULL)
        return cli_fail(CLI_E_FILE_WRITE, NULL, "a temporary file cannot be made");
    int exit_code = run_into(file, command, words);
    rewind(file);
    json_t *document = json_loadf(file, JSON_ALLOW_NUL, NULL);
    fclose(file);
    if (stages->results == NULL)
        stages->results = json_object();
    json_object_set_new(stages->results, name, document != NULL ? document : json_null());
    return exit_code;
}

int cli_stages_run(struct cli_stages *stages, const struct cli_command *command, const char *name,
                   struct cli_words *words)
{
    cli_words_add_flag(words, "--json", stages->is_json);
    cli_words_add_flag(words, "--quiet", stages->is_quiet);
    int exit_code;
    if (words->has_failed)
        exit_code = cli_fail_memory();
    else if (stages->is_json && !stages->is_quiet)
        exit_code = run_for_json(stages, command, name, words);
    else {
        if (stages->has_run && !stages->is_quiet)
            putchar('\n');
        exit_code = cli_run(command, (int)words->n, words->items);
    }
    stages->has_run = true;
    stages->exit_code = cli_worse(stages->exit_code, exit_code);
    cli_words_deinit(words);
    return exit_code;
}

int cli_stages_end(struct cli_stages *stages, enum nd_document kind)
{
    if (stages->is_json && !stages->is_quiet) {
        json_t *root = json_pack("{s:i}", "exit_code", stages->exit_code);
        json_object_update(root, stages->results);
        cli_print_json(kind, root);
        json_decref(root);
    }
    json_decref(stages->results);
    stages->results = NULL;
    return stages->exit_code;
}
