#include "report/text/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

char *nd_format_share(uint64_t n, uint64_t total, char buf[static ND_NUMBER_BYTES])
{
    if (total == 0)
        return strcpy(buf, "-");
    if (n == 0 || n == total)
        return strcpy(buf, n == 0 ? "0%" : "100%");
    unsigned __int128 scaled = (unsigned __int128)n * 10000; /* in hundredths of a percent: rounded, half up */
    unsigned hundredths = (unsigned)((2 * scaled + total) / ((unsigned __int128)total * 2));
    unsigned tenths = (unsigned)((scaled + (unsigned __int128)total * 5) / ((unsigned __int128)total * 10));
    if (scaled < total)
        return strcpy(buf, "<0.01%");
    if (tenths >= 1000)
        return strcpy(buf, ">99.9%");
    if (hundredths < 100)
        snprintf(buf, ND_NUMBER_BYTES, "0.%02u%%", hundredths);
    else
        snprintf(buf, ND_NUMBER_BYTES, "%u.%u%%", tenths / 10, tenths % 10);
    return buf;
}

char *nd_format_short(double value, char buf[static ND_NUMBER_BYTES])
{
    return isfinite(value) ? nd_format_digits(value, 4, buf) : nd_format_double(value, buf);
}

char *nd_format_near_one(double value, char buf[static ND_NUMBER_BYTES])
{
    const double nearest = 1e-7;
    if (isfinite(value) && value != 1 && fabs(value - 1) < nearest)
        return strcpy(buf, value < 1 ? ">0.9999999" : "<1.0000001");
    bool is_near = fabs(value - 1) < 0.1;
    return is_near ? nd_format_digits(value, value < 1 ? 7 : 8, buf) : nd_format_short(value, buf);
}

char *nd_format_count(uint64_t n, char buf[static ND_NUMBER_BYTES])
{
    if (n >= 1000000)
        return nd_format_digits((double)n, 3, buf);
    snprintf(buf, ND_NUMBER_BYTES, "%llu", (unsigned long long)n);
    return buf;
}
