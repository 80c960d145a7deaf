/* Commands that a command runs one after the other. Each prints what it prints by itself; with --json their
 * documents become members of one. */
#ifndef ND_CLI_RUN_STAGES_H
#define ND_CLI_RUN_STAGES_H

#include "cli/options/help.h"
#include "npudiff/core/document_kinds.h"

/* The words of a call. Out of memory is remembered. */
struct cli_words {
    char **items;
    size_t n;
    bool has_failed;
};

void cli_words_add(struct cli_words *words, const char *word);
void cli_words_add_option(struct cli_words *words, const char *option, const char *value); /* NULL: nothing */
void cli_words_add_list(struct cli_words *words, const char *option, const struct cli_list *values);
void cli_words_add_number(struct cli_words *words, const char *option, size_t value); /* 0: nothing */
void cli_words_add_flag(struct cli_words *words, const char *option, bool is_given);
void cli_words_deinit(struct cli_words *words);

struct cli_stages {
    bool is_json;
    bool is_quiet;
    bool has_run;           /* a stage, which the next one's text is set apart from */
    int exit_code;          /* the worst so far */
    struct json_t *results; /* of the stages, by their names */
};

/* Runs the command with these words, which it frees; its exit code, which counts for the whole, too. */
int cli_stages_run(struct cli_stages *stages, const struct cli_command *command, const char *name,
                   struct cli_words *words);

/* Prints the one document with --json, and frees the results. The worst exit code. */
int cli_stages_end(struct cli_stages *stages, enum nd_document kind);

#endif
