#include "report/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/memory.h"
#include "npudiff/parse.h"

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

static char *format_digits(double value, int digits, char buf[static ND_NUMBER_BYTES])
{
    locale_t before = nd_use_c_locale();
    snprintf(buf, ND_NUMBER_BYTES, "%.*g", digits, value);
    uselocale(before);
    return buf;
}

char *nd_format_short(double value, char buf[static ND_NUMBER_BYTES])
{
    return isfinite(value) ? format_digits(value, 4, buf) : nd_format_double(value, buf);
}

char *nd_format_real(double value, char buf[static ND_NUMBER_BYTES])
{
    locale_t before = nd_use_c_locale();
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, ND_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    uselocale(before);
    return buf[strcspn(buf, ".e")] == '\0' ? strcat(buf, ".0") : buf;
}

char *nd_format_near_one(double value, char buf[static ND_NUMBER_BYTES])
{
    const double nearest = 1e-7;
    if (isfinite(value) && value != 1 && fabs(value - 1) < nearest)
        return strcpy(buf, value < 1 ? ">0.9999999" : "<1.0000001");
    bool is_near = fabs(value - 1) < 0.1;
    return is_near ? format_digits(value, value < 1 ? 7 : 8, buf) : nd_format_short(value, buf);
}

char *nd_format_count(uint64_t n, char buf[static ND_NUMBER_BYTES])
{
    if (n >= 1000000)
        return format_digits((double)n, 3, buf);
    snprintf(buf, ND_NUMBER_BYTES, "%llu", (unsigned long long)n);
    return buf;
}

/* Bytes of the well-formed, visible character at text, 0 when there is none. */
static size_t visible_bytes(const unsigned char *text)
{
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f ? 1 : 0;
    size_t n = text[0] >= 0xc2 && text[0] <= 0xdf ? 2 : text[0] >= 0xe0 && text[0] <= 0xef ? 3 : 0;
    if (text[0] >= 0xf0 && text[0] <= 0xf4)
        n = 4;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool is_c1_control = n == 2 && text[0] == 0xc2 && text[1] < 0xa0;
    bool is_overlong =
        (n == 3 && text[0] == 0xe0 && text[1] < 0xa0) || (n == 4 && text[0] == 0xf0 && text[1] < 0x90);
    bool is_surrogate = n == 3 && text[0] == 0xed && text[1] >= 0xa0;
    bool is_too_large = n == 4 && text[0] == 0xf4 && text[1] >= 0x90;
    return is_c1_control || is_overlong || is_surrogate || is_too_large ? 0 : n;
}

char *nd_clean_text(const char *text)
{
    char *clean = nd_strdup(text);
    for (size_t i = 0; clean != NULL && clean[i] != '\0';) {
        size_t n = visible_bytes((const unsigned char *)clean + i);
        if (n == 0)
            clean[i] = '?';
        i += n > 0 ? n : 1;
    }
    return clean;
}

size_t nd_text_columns(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}
