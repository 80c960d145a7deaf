/* Reports a failure: nd_fail where it is found, nd_error_context on the way up. */
#include "core/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"

static enum nd_status status_of(enum nd_error_id id)
{
    switch (id) {
#define ND_ERROR(name, number, status, summary)                                                                \
    case ND_E_##name:                                                                                          \
        return status;
#include "npudiff/core/error_ids.def"
#undef ND_ERROR
    }
    return ND_ERR_FORMAT;
}

enum nd_status nd_fail(struct nd_error *err, enum nd_error_id id, const char *object, const char *fmt, ...)
{
    enum nd_status status = status_of(id);
    if (err == NULL)
        return status;
    /* Arguments may point into *err itself (an inner message quoted by an outer one). */
    struct nd_error made = {.status = status, .id = (int)id};
    va_list args;
    va_start(args, fmt);
    vsnprintf(made.message, sizeof made.message, fmt, args);
    va_end(args);
    snprintf(made.object, sizeof made.object, "%s", object != NULL ? object : "");
    *err = made;
    return status;
}

enum nd_status nd_fail_memory(struct nd_error *err)
{
    nd_take_lost_text(); /* it is said */
    return nd_fail(err, ND_E_MEMORY, NULL, "out of memory");
}

void nd_error_context(struct nd_error *err, const char *fmt, ...)
{
    if (err == NULL)
        return;
    char context[sizeof err->message];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    char joined[2 * sizeof err->message + 2];
    snprintf(joined, sizeof joined, "%s: %s", context, err->message);
    memcpy(err->message, joined, sizeof err->message - 1);
    err->message[sizeof err->message - 1] = '\0';
}

enum nd_exit nd_status_exit_code(enum nd_status status)
{
    return status == ND_OK                   ? ND_EXIT_SAME
           : status == ND_ERR_NOT_COMPARABLE ? ND_EXIT_NOT_COMPARABLE
           : status == ND_ERR_DEVICE         ? ND_EXIT_DEVICE_FAILED
                                             : ND_EXIT_TROUBLE;
}

static int severity_of(enum nd_exit code)
{
    static const int severities[] = {
        [ND_EXIT_SAME] = 0,           [ND_EXIT_INCONCLUSIVE] = 1,  [ND_EXIT_DIFFERS] = 2,
        [ND_EXIT_NOT_COMPARABLE] = 3, [ND_EXIT_DEVICE_FAILED] = 4, [ND_EXIT_TROUBLE] = 5};
    return (size_t)code < sizeof severities / sizeof severities[0] ? severities[code] : 5;
}

enum nd_exit nd_exit_worse(enum nd_exit a, enum nd_exit b)
{
    return severity_of(b) > severity_of(a) ? b : a;
}

const char *nd_version(void)
{
    return ND_VERSION;
}

const char *nd_said(const char *text)
{
    return text != NULL && text[strspn(text, " \t\r\n")] != '\0' ? text : "it says nothing";
}

/* Options structs of callers that were compiled against another version of the public headers (error.h has
 * the rules). */

enum nd_status nd_options_read(void *own, size_t own_bytes, const void *given, struct nd_error *err)
{
    size_t given_bytes;
    if (given == NULL)
        return ND_OK;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < sizeof given_bytes)
        return nd_fail(err, ND_E_OPTION_STRUCT, NULL,
                       "struct_size of the options is %zu; set it to the size of the struct", given_bytes);
    for (size_t i = own_bytes; i < given_bytes; i++)
        if (((const unsigned char *)given)[i] != 0)
            return nd_fail(err, ND_E_OPTION_NEWER, NULL,
                           "the options set a member at byte %zu; libnpudiff %s knows only the first %zu bytes",
                           i, nd_version(), own_bytes);
    memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(own, &own_bytes, sizeof own_bytes);
    return ND_OK;
}

void nd_options_write(void *given, size_t given_bytes, const void *own, size_t own_bytes)
{
    assert(given_bytes >= sizeof given_bytes);
    memset(given, 0, given_bytes);
    memcpy(given, own, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(given, &given_bytes, sizeof given_bytes);
}
