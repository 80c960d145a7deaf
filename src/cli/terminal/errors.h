/* What a command says when it fails: a line on stderr, and with --json one document on stdout,
 * {"kind":"error","format":1,"npudiff":VERSION,"error":{"id":"ND-204","message":...,"object":...}}.
 *
 * cli_errors_begin and cli_errors_end enclose a command. The document is printed at the end, unless the command
 * has printed its own: whoever reads the JSON gets exactly one document. Of several errors it holds the first,
 * which is the cause; stderr has them all. One thread reports. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/core/error_ids.h"

/* A local variable that owns something gives it back wherever its function returns, through a function that
 * takes its address and accepts the empty value: `CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;`
 * or by free(). Of several the last declared goes first. */
#define CLI_OWNED(function) __attribute__((cleanup(function)))
#define CLI_FREED CLI_OWNED(cli_free_variable)

static inline void cli_free_variable(void *variable)
{
    void *owned;
    memcpy(&owned, variable, sizeof owned);
    free(owned);
}

/* Returns from a function that gives enum nd_status when `call` fails. */
#define CLI_TRY(call)                                                                                          \
    do {                                                                                                       \
        const enum nd_status tried_ = (call);                                                                  \
        if (tried_ != ND_OK)                                                                                   \
            return tried_;                                                                                     \
    } while (0)

/* The errors that commands report themselves. cli_fail ends all of them in exit
 * code 2. */
enum cli_error_id {
    CLI_E_MEMORY = ND_E_MEMORY,
    CLI_E_INTERNAL = ND_E_INTERNAL,
    CLI_E_OPTION_UNKNOWN = ND_E_OPTION_UNKNOWN,
    CLI_E_OPTION_VALUE = ND_E_OPTION_VALUE,
    CLI_E_OPTION_CONFLICT = ND_E_OPTION_CONFLICT,
    CLI_E_FILE_READ = ND_E_FILE_READ,
    CLI_E_FILE_WRITE = ND_E_FILE_WRITE,
    CLI_E_FILE_EXISTS = ND_E_FILE_EXISTS,
    CLI_E_RUNTIME_CALL = ND_E_RUNTIME_CALL,
    CLI_E_NO_OBJECT = ND_E_CAPTURE_NO_OBJECT,
    CLI_E_MODEL_GONE = ND_E_MODEL_GONE,
    CLI_E_STORE_ENTRY = ND_E_STORE_ENTRY,
    CLI_E_ENCODINGS_MISMATCH = ND_E_ENCODINGS_MISMATCH,
    CLI_E_CERTIFICATE_FORMAT = ND_E_CERTIFICATE_FORMAT,
};

/* Prints "npudiff: <message> [ND-<id>]" on stderr; the exit code that belongs to the error, never 0: an error
 * that nobody filled is reported as an internal one. */
int cli_report_error(const struct nd_error *err);

/* An error of the command's own; exit code 2. object is nullable. */
int cli_fail(enum cli_error_id id, const char *object, const char *fmt, ...) ND_PRINTF(3, 4);

/* A device that failed; its capture says the same. Exit code 5. */
int cli_report_device(const char *device, const char *stage, const struct nd_error *failure);

/* An error for an allocation that failed. */
int cli_fail_memory(void);

/* An error of the command's own for whoever reports it: fills err and returns the status. */
enum nd_status cli_error(struct nd_error *err, enum nd_status status, enum cli_error_id id, const char *object,
                         const char *fmt, ...) ND_PRINTF(5, 6);

/* The same for a library call that ran out of memory: fills err and returns ND_ERR_MEMORY. */
enum nd_status cli_memory_error(struct nd_error *err);

/* "npudiff COMMAND: <message>; see 'npudiff COMMAND --help'" and exit code 2. Without an id options exclude one
 * another, or one is missing. */
int cli_usage_error(const char *command, const char *fmt, ...) ND_PRINTF(2, 3);
int cli_usage_error_as(enum cli_error_id id, const char *command, const char *fmt, ...) ND_PRINTF(3, 4);

/* From here on errors are kept for cli_errors_end. */
void cli_errors_begin(bool is_json);

/* The command has printed its document. */
void cli_errors_has_document(void);

/* Something that is part of a result could not be made or printed: whatever the command says, it has failed. */
void cli_errors_lost_memory(void);
bool cli_errors_has_lost_memory(void);

/* A string with bytes that are not UTF-8 made harmless; never NULL but when memory is out. */
struct json_t *cli_text(const char *text);

/* The first error as {"id","message","object"}, a new reference; NULL where there was none. */
struct json_t *cli_errors_first(void);

/* Prints the document of the error if there is one to print. exit_code, or 2 where a result was lost. */
int cli_errors_end(int exit_code);
