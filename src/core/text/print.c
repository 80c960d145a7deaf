/* Numbers and names as they are printed, whatever the locale; the time, and bytes, as text. */
#include "core/text/strbuf.h"

#include <float.h>
#include <math.h>
#include <nettle/base64.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

/* The time as captures, stores and policies state it: UTC, or what SOURCE_DATE_EPOCH says. */

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

/* Bytes as text and back: base64 (RFC 4648), by nettle. */

char *nd_base64(const void *data, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    size_t length = BASE64_ENCODE_RAW_LENGTH(size_bytes);
    char *text = nd_calloc(length + 1, 1);
    if (text != NULL && size_bytes > 0)
        base64_encode_raw(text, size_bytes, data);
    return text;
}

bool nd_base64_read(const char *text, void *data, size_t capacity, size_t *size_bytes)
{
    /* The padding stands for up to two bytes fewer than the characters give. */
    size_t n = strlen(text), n_padding = 0;
    struct base64_decode_ctx ctx;
    while (n_padding < 2 && n_padding < n && text[n - 1 - n_padding] == '=')
        n_padding++;
    if (n % 4 != 0 || n / 4 * 3 - n_padding > capacity)
        return false;
    base64_decode_init(&ctx);
    *size_bytes = capacity;
    return base64_decode_update(&ctx, size_bytes, data, n, text) && base64_decode_final(&ctx);
}

/* ---- numbers ---- */

char *nd_format_digits(double value, int digits, char buf[static ND_NUMBER_BYTES])
{
    locale_t before = nd_use_c_locale();
    snprintf(buf, ND_NUMBER_BYTES, "%.*g", digits, value);
    uselocale(before);
    return buf;
}

char *nd_format_real(double value, char buf[static ND_NUMBER_BYTES])
{
    locale_t before = nd_use_c_locale();
    /* A normal number keeps 15 digits, and of those that are 0 at the end none is printed. */
    for (int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG; digits <= 17; digits++) {
        snprintf(buf, ND_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    uselocale(before);
    return buf[strcspn(buf, ".e")] == '\0' ? strcat(buf, ".0") : buf;
}

/* ---- names ---- */

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
    bool is_no_character = n == 3 && text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe; /* U+FFFE, U+FFFF */
    return is_c1_control || is_overlong || is_surrogate || is_too_large || is_no_character ? 0 : n;
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

size_t nd_control_bytes(const unsigned char *at, unsigned *code)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    *code = at[0];
    if (at[0] == 0x7f)
        return 1;
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f) {
        *code = at[1];
        return 2;
    }
    if (at[0] == 0xd8 && at[1] == 0x9c) {
        *code = 0x61c;
        return 2;
    }
    if (at[0] == '#' && at[1] == '#' && at[2 + strspn((const char *)at + 2, letters)] == '[')
        return 1;
    bool is_direction = at[0] == 0xe2 && ((at[1] == 0x80 && at[2] >= 0xaa && at[2] <= 0xae) ||
                                          (at[1] == 0x80 && at[2] >= 0x8e && at[2] <= 0x8f) ||
                                          (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9));
    *code = is_direction ? 0x2000u | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu) : at[0];
    return is_direction ? 3 : 0;
}

char *nd_shown_text(const char *text)
{
    struct nd_strbuf shown = {0};
    ND_FREED char *clean = nd_clean_text(text);
    unsigned code;
    nd_strbuf_puts(&shown, "");
    for (const char *at = clean; at != NULL && *at != '\0';) {
        size_t n = nd_control_bytes((const unsigned char *)at, &code);
        if (n > 0)
            nd_strbuf_printf(&shown, "\\u%04x", code);
        else
            nd_strbuf_append(&shown, at, 1);
        at += n > 0 ? n : 1;
    }
    if (clean == NULL)
        shown.failed = true;
    return nd_strbuf_take(&shown);
}

bool nd_is_clean_text(const char *text)
{
    unsigned code;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t n = visible_bytes(at);
        if (n == 0 || nd_control_bytes(at, &code) > 0)
            return false;
        at += n;
    }
    return true;
}

size_t nd_text_columns(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

const char *nd_axis_word(const struct nd_shape *shape, int axis)
{
    return axis == shape->rank - 1   ? "column"
           : axis == shape->rank - 2 ? "row"
           : axis == 1               ? "channel"
                                     : "slice";
}

char *nd_format_factor(double factor, int digits, char buf[static ND_NUMBER_BYTES])
{
    double off = fabs(factor - 1);
    while (digits < 16 && off > 0 && off * pow(10, digits - 2) < 1)
        digits++;
    snprintf(buf, ND_NUMBER_BYTES, "%.*g", digits, factor);
    return buf;
}

bool nd_range_format(const struct nd_shape *shape, size_t first, size_t last, char text[ND_RANGE_BYTES])
{
    size_t inner = 1, n = 1;
    for (int k = 0; k < shape->rank; k++)
        inner *= (size_t)shape->dims[k];
    for (int k = 0, at = 0; k < shape->rank && first < last; k++) {
        size_t dim = (size_t)shape->dims[k], from = first / (inner / dim) % dim,
               to = last / (inner / dim) % dim;
        bool is_whole = first % (inner / dim) == 0 && (last + 1) % (inner / dim) == 0;
        const char *name = k == shape->rank - 1 && n == 1 ? "element" : nd_axis_word(shape, k);
        inner /= dim;
        n *= dim;
        if (dim == 1)
            continue;
        if (from < to && !is_whole)
            break; /* from within one slice to within another */
        at += snprintf(text + at, ND_RANGE_BYTES - (size_t)at, "%s%s%s %zu", at > 0 ? ", " : "", name,
                       from < to ? "s" : "", from);
        if (from < to)
            at += snprintf(text + at, ND_RANGE_BYTES - (size_t)at, " to %zu", to);
        if (is_whole && strcmp(name, "element") != 0)
            snprintf(text + at, ND_RANGE_BYTES - (size_t)at, " (axis %d)", k);
        if (is_whole)
            return from == to;
    }
    snprintf(text, ND_RANGE_BYTES, first == last ? "element %zu" : "elements %zu to %zu", first, last);
    return first == last;
}
