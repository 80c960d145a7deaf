#include "compare/engine/format_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum nd_status nd_text_set(char **text, struct nd_error *err, const char *fmt, ...)
{
    char *made = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&made, fmt, args);
    va_end(args);
    free(*text);
    *text = n < 0 ? NULL : made;
    return n < 0 ? nd_fail_memory(err) : ND_OK;
}
