/* Commands and their options as data: one const table per command gives parsing, usage and --help. */
#ifndef ND_CLI_OPTIONS_H
#define ND_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/errors.h"
#include "npudiff/status.h"

enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_LIST,     /* struct cli_list: may be given several times */
    CLI_OPTIONAL, /* struct cli_list; --name alone adds NULL, --name=value the value */
    CLI_NUMBER,   /* size_t, within [min, max] */
    CLI_INTEGER,  /* struct cli_integer, within [min, max] */
    CLI_REAL,     /* double, within [min, max] */
    CLI_CHOICE,   /* const char *, one of choices */
};

struct cli_list {
    const char **items; /* borrowed texts */
    size_t n;
};

/* A whole number where 0 is a choice of its own, or negative ones are. */
struct cli_integer {
    bool is_given;
    int64_t value;
};

struct cli_option {
    const char *name; /* long, without the dashes; NULL ends a table */
    char letter;      /* 0: none */
    enum cli_kind kind;
    size_t offset;        /* of the value in the command's own struct */
    const char *argument; /* its name in the help; NULL for flags. A default goes into the help text. */
    const char *help;
    double min, max;
    const char *const *choices; /* NULL-terminated */
};

struct cli_command {
    const char *name;
    const char *summary;  /* one line */
    const char *synopsis; /* operands and the options that matter */
    const char *details;  /* paragraphs for --help */
    const struct cli_option *options;
    size_t min_operands;
    size_t max_operands;
    size_t values_bytes; /* of the struct that options write into */
    /* Runs with parsed values and operands; the exit code. */
    int (*run)(const void *values, const char *const *operands, size_t n_operands);
};

/* Every command has -q, -v, --json where it says so, and --help. */
enum { CLI_ANY_NUMBER = 1 << 20 };

/* Parses argv[0..argc-1] (without the program and command names) and runs the command. Prints help to stdout,
 * usage errors to stderr with exit code 2. */
int cli_run(const struct cli_command *command, int argc, char **argv);

/* What --help prints, on stdout. */
void cli_print_help(const struct cli_command *command);

/* The more severe of two exit codes (nd_exit_worse). */
int cli_worse(int a, int b);

#endif
