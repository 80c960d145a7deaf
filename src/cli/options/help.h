/* What --help and `npudiff help` print, made from the tables of commands and options. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/terminal/errors.h"
#include "npudiff/core/status.h"

/* Commands and their options as data: one const table per command gives parsing, usage, --help, and the option
 * table. */

enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_LIST,     /* struct cli_list: may be given several times */
    CLI_DIMS,     /* struct cli_list of NAME=N, N >= 1 */
    CLI_PART,     /* struct cli_part, K/N */
    CLI_OPTIONAL, /* struct cli_list; --name alone adds NULL, --name=value the value */
    CLI_NUMBER,   /* size_t, within [min, max] */
    CLI_INTEGER,  /* struct cli_integer, within [min, max] */
    CLI_REAL,     /* double, within [min, max] */
    CLI_CHOICE,   /* const char *, one of choices */
};

/* What the value of an option names: what a shell could complete. */
enum cli_value {
    CLI_VALUE_WORD, /* nothing that is known */
    CLI_VALUE_FILE,
    CLI_VALUE_FOLDER,
    CLI_VALUE_MODEL,
    CLI_VALUE_CAPTURE,
    CLI_VALUE_DEVICE,
    CLI_VALUE_CHIPSET,
    CLI_VALUE_RUNTIME,
    CLI_VALUE_PROBE,      /* what `npudiff probes` describes */
    CLI_VALUE_PROBE_NAME, /* of a probe in a capture */
    CLI_VALUE_TENSOR,
    CLI_VALUE_TENSORS, /* name patterns with commas, or a word that stands for several */
    CLI_VALUE_CAPTURES_OR_MODEL,
    CLI_VALUE_COMMAND,
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

/* "2/8" is the second of eight parts: part 1, n_parts 8. n_parts 0: not given. */
struct cli_part {
    size_t part, n_parts;
};

/* Written with the macros below. */
struct cli_option {
    const char *name; /* long, without the dashes; NULL ends a table */
    char letter;      /* 0: none */
    enum cli_kind kind;
    enum cli_value value;
    size_t offset;        /* of the value in the command's own struct */
    const char *argument; /* its name in the help; NULL for flags. A default goes into the help text. */
    const char *help;
    double min, max;
    const char *const *choices; /* NULL-terminated */
    const struct cli_option
        *group; /* not NULL: the rows of this table stand here, and fill the struct at offset */
};

/* ---- one option ----
 *
 * letter 0: it has none. s: the command's own struct; member: where in it the value goes. A member of a type
 * that the kind does not have does not compile. */

#define CLI_AT(s, member, type) (offsetof(s, member) + 0 * sizeof(_Generic(((s *)0)->member, type : 0)))

#define OPT_(letter_, name_, kind_, at) .name = (name_), .letter = (letter_), .kind = (kind_), .offset = (at)
#define OPT_FLAG(letter, name, s, member, help_)                                                               \
    {                                                                                                          \
        OPT_(letter, name, CLI_FLAG, CLI_AT(s, member, bool)), .help = (help_)                                 \
    }

/* value: one of the CLI_A_ below. */
#define OPT_TEXT(letter, name, s, member, value, help_)                                                        \
    {                                                                                                          \
        OPT_(letter, name, CLI_TEXT, CLI_AT(s, member, const char *)), value, .help = (help_)                  \
    }
#define OPT_LIST(letter, name, s, member, value, help_)                                                        \
    {                                                                                                          \
        OPT_(letter, name, CLI_LIST, CLI_AT(s, member, struct cli_list)), value, .help = (help_)               \
    }

/* word: the name of the value in the help. */
#define OPT_OPTIONAL(letter, name, s, member, word, help_)                                                     \
    {                                                                                                          \
        OPT_(letter, name, CLI_OPTIONAL, CLI_AT(s, member, struct cli_list)), .argument = (word),              \
                                                                              .help = (help_)                  \
    }
#define OPT_CHOICE(letter, name, s, member, word, choices_, help_)                                             \
    {                                                                                                          \
        OPT_(letter, name, CLI_CHOICE, CLI_AT(s, member, const char *)),                                       \
            .argument = (word), .choices = (choices_), .help = (help_)                                         \
    }
#define OPT_RANGE_(word, min_, max_, help_) .argument = (word), .min = (min_), .max = (max_), .help = (help_)
#define OPT_NUMBER(letter, name, s, member, word, min, max, help)                                              \
    {                                                                                                          \
        OPT_(letter, name, CLI_NUMBER, CLI_AT(s, member, size_t)), OPT_RANGE_(word, min, max, help)            \
    }
#define OPT_INTEGER(letter, name, s, member, word, min, max, help)                                             \
    {                                                                                                          \
        OPT_(letter, name, CLI_INTEGER, CLI_AT(s, member, struct cli_integer)),                                \
            OPT_RANGE_(word, min, max, help)                                                                   \
    }
#define OPT_REAL(letter, name, s, member, word, min, max, help)                                                \
    {                                                                                                          \
        OPT_(letter, name, CLI_REAL, CLI_AT(s, member, double)), OPT_RANGE_(word, min, max, help)              \
    }

/* A table that commands share; type: of the member that its rows fill. */
#define OPT_GROUP(s, member, type, rows)                                                                       \
    {                                                                                                          \
        .name = "", .group = (rows), .offset = CLI_AT(s, member, type)                                         \
    }

/* What the value of a text names, and its name in the help. */
#define CLI_A_(value_, word) .value = (value_), .argument = (word)
#define CLI_A_TEXT(word) CLI_A_(CLI_VALUE_WORD, word)
#define CLI_A_FILE(word) CLI_A_(CLI_VALUE_FILE, word)
#define CLI_A_FOLDER(word) CLI_A_(CLI_VALUE_FOLDER, word)
#define CLI_A_MODEL(word) CLI_A_(CLI_VALUE_MODEL, word)
#define CLI_A_CHIPSET(word) CLI_A_(CLI_VALUE_CHIPSET, word)
#define CLI_A_RUNTIME(word) CLI_A_(CLI_VALUE_RUNTIME, word)
#define CLI_A_TENSOR(word) CLI_A_(CLI_VALUE_TENSOR, word)
#define CLI_A_TENSORS(word) CLI_A_(CLI_VALUE_TENSORS, word)
#define CLI_A_CAPTURE CLI_A_(CLI_VALUE_CAPTURE, "CAPTURE.h5")
#define CLI_A_DEVICE CLI_A_(CLI_VALUE_DEVICE, "DEVICE")
#define CLI_A_PROBE CLI_A_(CLI_VALUE_PROBE, "PROBE")
#define CLI_A_PROBE_NAME CLI_A_(CLI_VALUE_PROBE_NAME, "NAME")

/* ---- options that several commands have ----
 *
 * The member has the same name everywhere. */

#define OPT_JSON(s) OPT_FLAG(0, "json", s, json, "print JSON, for programs")
#define OPT_QUIET(s) OPT_FLAG('q', "quiet", s, quiet, "print errors only")
#define OPT_VERBOSE(s, help) OPT_FLAG('v', "verbose", s, verbose, help)
#define OPT_TENSORS(s, help) OPT_TEXT('t', "tensors", s, tensors, CLI_A_TENSORS("WHICH"), help)
#define OPT_FORCE(s, help) OPT_FLAG('f', "force", s, force, help)
#define OPT_JOBS(s, help) OPT_NUMBER('j', "jobs", s, jobs, "N", 1, 256, help)
#define OPT_TIME_LIMIT(s, help) OPT_REAL(0, "time-limit", s, time_limit_s, "S", 0.01, 1e7, help)
#define OPT_MEMORY_LIMIT(s, help) OPT_NUMBER(0, "memory-limit", s, memory_limit_mib, "MIB", 1, 1 << 24, help)
#define OPT_ALLOW_NONFINITE(s)                                                                                 \
    OPT_FLAG(0, "allow-nonfinite", s, allow_nonfinite, "accept inputs that hold NaN or infinities")
#define OPT_DIM(s)                                                                                             \
    {                                                                                                          \
        OPT_(0, "dim", CLI_DIMS, CLI_AT(s, dims, struct cli_list)), CLI_A_TEXT("NAME=N"),                      \
            .help = "set a dynamic dimension of the model's inputs to N; may be repeated"                      \
    }
#define OPT_PART(s, help_)                                                                                     \
    {                                                                                                          \
        OPT_(0, "part", CLI_PART, CLI_AT(s, part, struct cli_part)), CLI_A_TEXT("K/N"), .help = (help_)        \
    }
#define OPT_AGENT(s)                                                                                           \
    OPT_TEXT(0, "agent", s, agent, CLI_A_FILE("PATH"),                                                         \
             "the npudiff-agent program to run ($NPUDIFF_AGENT, or the one installed with npudiff)")
#define OPT_THREADS(s)                                                                                         \
    OPT_NUMBER(0, "threads", s, n_threads, "N", 0, 256,                                                        \
               "use N threads; 0 uses every processor (0); the result does not depend on it")

/* A command line that can be pasted, and what it does. A test runs those whose files it can make. */
struct cli_example {
    const char *command; /* with "npudiff"; NULL ends a list */
    const char *what;
};

/* What a command is for: the headings of 'npudiff help'. */
enum cli_role { CLI_FIND, CLI_JUDGE, CLI_MEND, CLI_FILES, CLI_HERE, CLI_N_ROLES };

struct cli_command {
    const char *name;
    enum cli_role role;
    const char *summary;  /* one line */
    const char *synopsis; /* operands and the options that matter */
    const char *details;  /* paragraphs for --help */
    const struct cli_example *examples;
    size_t n_examples;
    const struct cli_option *options;
    const char *const *actions; /* what the first operand may be, NULL-terminated; NULL: it is a value, too */
    enum cli_value operand;     /* what the operands name */
    size_t min_operands;
    size_t max_operands;
    size_t values_bytes; /* of the struct that options write into */
    /* Runs with parsed values and operands; the exit code. */
    int (*run)(const void *values, const char *const *operands, size_t n_operands);
};

/* What the operands of a command name, and how many there may be; and what stands above it in its file: run,
 * the struct that its options write into, options and examples. */
#define CLI_OPERANDS(value, min, max) .operand = (value), .min_operands = (min), .max_operands = (max)
#define CLI_EXAMPLES .examples = examples, .n_examples = sizeof examples / sizeof *examples
#define CLI_TABLES(values_) .values_bytes = sizeof(values_), .options = options, CLI_EXAMPLES, .run = run

enum { CLI_ANY_NUMBER = 1 << 20, CLI_MAX_OPTIONS = 64 };

/* Parses argv[0..argc-1] (without the program and command names) and runs the command. Prints help to stdout,
 * usage errors to stderr with exit code 2. */
int cli_run(const struct cli_command *command, int argc, char **argv);

/* The more severe of two exit codes (nd_exit_worse). */
int cli_worse(int a, int b);

/* The help of one command, on stdout, as wide as the terminal: 60 to 100 columns; 80 where there is none. */
void cli_print_help(const struct cli_command *command);

/* `npudiff help ND-204` and `npudiff help errors`: what the errors mean (npudiff/error_help.def). */

/* Whether the word looks like an error id: "ND-204", "nd-204", "ND204" or "204", also one that no error has. */
bool cli_is_error_id(const char *word);

/* Prints what the error means, its usual cause and what to do. 0, or the exit code after an error. */
int cli_print_error_help(const char *word);

/* Prints all errors, one per line, and how to read more of one. 0. */
int cli_print_errors(void);

/* All commands and their options as JSON, from which the reference, man pages and shell completion are made. */

/* Prints {"commands": [{"name", "role", "summary", "synopsis", "details", "options": [{"name", "letter",
 * "kind", "value", "argument", "help"}]}]}. letter, value and argument are null where there is none. A number
 * has "min" and "max", a choice has "choices". 0, or exit code 2 when memory is out. */
int cli_print_option_table(const struct cli_command *const *commands, size_t n);

/* Candidates for the completion of shells: `npudiff --complete KIND [FILE ...]`, which no help shows. The
 * scripts that tools/make_shell_files makes call it. */

/* Prints the candidates of the kind, one per line: the word, a tab, what it is. Tensors and names of probes are
 * those of the first file that is a model or a capture. Nothing for what cannot be read, and never an error:
 * the person is typing. 0. */
int cli_complete(const char *kind, const char *const *files, size_t n_files);
