/* The time as captures, stores and policies state it: UTC, or what SOURCE_DATE_EPOCH says. */
#include "core/text/utc.h"

#include <stdlib.h>
#include <time.h>

#include "npudiff/core/parse.h"

static bool source_date_epoch(time_t *out)
{
    const char *text = getenv("SOURCE_DATE_EPOCH");
    int64_t seconds;
    if (text == NULL || !nd_parse_i64(text, &seconds))
        return false;
    *out = (time_t)seconds;
    return true;
}

bool nd_utc_now(const char *format, char *out, size_t size)
{
    time_t now;
    struct tm utc;
    if (!source_date_epoch(&now))
        now = time(NULL);
    return gmtime_r(&now, &utc) != NULL && strftime(out, size, format, &utc) != 0;
}

bool nd_is_reproducible(void)
{
    time_t when;
    return source_date_epoch(&when);
}
