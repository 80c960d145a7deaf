/* Numbers from text, in the C locale. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t nd_use_c_locale(void)
{
    pthread_once(&once, make_c_locale);
    return uselocale(c_locale);
}

static bool has_only_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

bool nd_parse_u64(const char *text, uint64_t *out)
{
    if (!has_only_digits(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

bool nd_parse_i64(const char *text, int64_t *out)
{
    if (!has_only_digits(text[0] == '-' ? text + 1 : text))
        return false;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

bool nd_parse_double(const char *text, double *out)
{
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    char *end;
    locale_t before = nd_use_c_locale();
    double value = strtod(text, &end);
    uselocale(before);
    if (*end != '\0' || end == text || !isfinite(value))
        return false;
    *out = value;
    return true;
}

char *nd_format_double(double value, char buf[])
{
    if (isnan(value))
        return strcpy(buf, "NaN");
    if (isinf(value))
        return strcpy(buf, value > 0 ? "Infinity" : "-Infinity");
    locale_t before = nd_use_c_locale();
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    uselocale(before);
    return buf;
}
