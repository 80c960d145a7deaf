/* What a command says when it fails, as text or as JSON. docs/reference/errors.md. */
#include "cli/terminal/errors.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/report/report.h"

enum { ERROR_FORMAT = 2, MAX_MESSAGE = 2048 };

/* Of the command that runs. */
static struct {
    bool is_json;
    bool has_document;
    struct {
        int id; /* 0: none */
        char message[MAX_MESSAGE];
        char object[512];
    } first;
    atomic_bool has_lost_memory; /* by any thread */
} run;

static void keep_first(int id, const char *message, const char *object)
{
    if (run.first.id != 0)
        return;
    run.first.id = id;
    snprintf(run.first.message, sizeof run.first.message, "%s", message);
    snprintf(run.first.object, sizeof run.first.object, "%s", object != NULL ? object : "");
}

int cli_report_error(const struct nd_error *err)
{
    if (err->status == ND_OK)
        return cli_fail(CLI_E_INTERNAL, NULL, "internal error: something failed without saying why%s%s",
                        err->message[0] != '\0' ? ": " : "", err->message);
    fprintf(stderr, "npudiff: %s [ND-%d]\n", err->message, err->id);
    keep_first(err->id, err->message, err->object);
    return (int)nd_status_exit_code(err->status);
}

int cli_fail(enum cli_error_id id, const char *object, const char *fmt, ...)
{
    char message[MAX_MESSAGE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    fprintf(stderr, "npudiff: %s [ND-%d]\n", message, (int)id);
    keep_first((int)id, message, object);
    return ND_EXIT_TROUBLE;
}

int cli_report_device(const char *device, const char *stage, const struct nd_error *failure)
{
    cli_fail((enum cli_error_id)failure->id, device, "device '%s' failed at stage '%s': %s", device, stage,
             failure->message);
    return ND_EXIT_DEVICE_FAILED;
}

int cli_fail_memory(void)
{
    return cli_fail(CLI_E_MEMORY, NULL, "out of memory");
}

enum nd_status cli_error(struct nd_error *err, enum nd_status status, enum cli_error_id id, const char *object,
                         const char *fmt, ...)
{
    *err = (struct nd_error){.status = status, .id = (int)id};
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    snprintf(err->object, sizeof err->object, "%s", object != NULL ? object : "");
    return status;
}

enum nd_status cli_memory_error(struct nd_error *err)
{
    *err = (struct nd_error){.status = ND_ERR_MEMORY, .id = CLI_E_MEMORY, .message = "out of memory"};
    return ND_ERR_MEMORY;
}

static int report_usage(enum cli_error_id id, const char *command, const char *fmt, va_list args)
{
    char message[MAX_MESSAGE];
    vsnprintf(message, sizeof message, fmt, args);
    size_t n = strlen(message);
    const char *joint = n > 0 && message[n - 1] == '?' ? "" : ";";
    fprintf(stderr, "npudiff %s: %s%s see 'npudiff help %s' [ND-%d]\n", command, message, joint, command,
            (int)id);
    keep_first((int)id, message, "");
    return ND_EXIT_TROUBLE;
}

int cli_usage_error(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int exit_code = report_usage(CLI_E_OPTION_CONFLICT, command, fmt, args);
    va_end(args);
    return exit_code;
}

int cli_usage_error_as(enum cli_error_id id, const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int exit_code = report_usage(id, command, fmt, args);
    va_end(args);
    return exit_code;
}

void cli_errors_begin(bool is_json)
{
    memset(&run.first, 0, sizeof run.first);
    run.is_json = is_json;
    run.has_document = false;
    atomic_store(&run.has_lost_memory, false);
}

void cli_errors_has_document(void)
{
    run.has_document = true;
}

void cli_errors_lost_memory(void)
{
    atomic_store(&run.has_lost_memory, true);
}

bool cli_errors_has_lost_memory(void)
{
    return atomic_load(&run.has_lost_memory);
}

json_t *cli_text(const char *text)
{
    json_t *value = json_string(text != NULL ? text : "");
    if (value != NULL)
        return value;
    char *clean = strdup(text);
    if (clean == NULL)
        cli_errors_lost_memory();
    for (char *at = clean; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    value = clean != NULL ? json_string(clean) : NULL;
    free(clean);
    return value;
}

struct json_t *cli_errors_first(void)
{
    char id[16];
    if (run.first.id == 0)
        return NULL;
    snprintf(id, sizeof id, "ND-%d", run.first.id);
    return json_pack("{s:s, s:o, s:o}", "id", id, "message", cli_text(run.first.message), "object",
                     run.first.object[0] != '\0' ? cli_text(run.first.object) : json_null());
}

int cli_errors_end(int exit_code)
{
    if (atomic_load(&run.has_lost_memory)) {
        if (run.first.id == 0)
            cli_fail_memory();
        exit_code = ND_EXIT_TROUBLE;
    }
    if (!run.is_json || run.has_document)
        return exit_code;
    if (exit_code == ND_EXIT_TROUBLE && run.first.id == 0)
        cli_fail(CLI_E_INTERNAL, NULL, "internal error: something failed without saying why");
    if (run.first.id != 0) {
        json_t *members = json_pack("{s:o}", "error", cli_errors_first());
        char *json = members != NULL ? json_dumps(members, JSON_COMPACT) : NULL;
        char *text = json != NULL ? nd_report_document(ND_DOCUMENT_ERROR, json) : NULL;
        if (text != NULL)
            fputs(text, stdout);
        else /* no memory even for that */
            printf("{\"kind\": \"error\", \"format\": %d, \"npudiff\": \"%s\", \"error\": {\"id\": \"ND-%d\", "
                   "\"message\": \"out of memory\", \"object\": null}}\n",
                   ERROR_FORMAT, nd_version(), run.first.id);
        free(text);
        free(json);
        json_decref(members);
    }
    return exit_code;
}
