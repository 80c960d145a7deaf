/* Lines that no pattern knows but that hold an error code: what is new in a runtime must not pass for nothing.
 */
#include <string.h>
#include <strings.h>

#include "capture/logs/log_read.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of word when the line holds it at `at`, whatever its case, as a word of its own; else NULL. */
static const char *take_word(const char *line, const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);
    bool is_start = at == line || !is_letter(at[-1]);
    return is_start && (size_t)(end - at) >= n && strncasecmp(at, word, n) == 0 &&
                   (at + n == end || !is_letter(at[n]))
               ? at + n
               : NULL;
}

static const char *skip_any(const char *at, const char *end, const char *which)
{
    while (at < end && *at != '\0' && strchr(which, *at) != NULL)
        at++;
    return at;
}

/* A whole number that is not 0: decimal, negative, or 0x...; no share, size or time. */
static bool take_code(const char *at, const char *end, bool is_hex_only, int64_t *code)
{
    bool is_negative = at < end && *at == '-';
    at += is_negative;
    bool is_hex = end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    uint64_t value = 0;
    size_t n = 0;
    for (at += is_hex ? 2 : 0; at < end && n < 16; at++, n++) {
        char c = *at;
        int digit = is_digit(c)                      ? c - '0'
                    : is_hex && c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : is_hex && c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
        if (digit < 0)
            break;
        value = value * (is_hex ? 16 : 10) + (uint64_t)digit;
    }
    const char *next = at < end && *at == ' ' ? at + 1 : at;
    bool has_more = at < end && (is_letter(*at) || is_digit(*at) || (next < end && *next == '%') ||
                                 (*at == '.' && at + 1 < end && is_digit(at[1])));
    *code = is_negative ? -(int64_t)value : (int64_t)value;
    return n > 0 && value != 0 && value <= INT64_MAX && !has_more && (is_hex || !is_hex_only);
}

/* "err 17", "error code: 0x3ea", "with error = 1002", "status 0x1771". */
static bool find_code(const char *line, const char *end, int64_t *code)
{
    static const struct {
        const char *word;
        bool is_hex_only;
    } words[] = {{"error", false}, {"err", false}, {"errno", false}, {"error_code", false}, {"status", true}};
    for (const char *at = line; at < end; at++)
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const char *next = take_word(line, at, end, words[i].word);
            if (next == NULL)
                continue;
            next = skip_any(next, end, " ");
            const char *behind_code = take_word(line, next, end, "code");
            next = skip_any(behind_code != NULL ? behind_code : next, end, " =:(#'\"");
            if (take_code(next, end, words[i].is_hex_only, code))
                return true;
        }
    return false;
}

static bool find_symbol(const char *line, const char *end)
{
    const char *at = memmem(line, (size_t)(end - line), "QNN_", 4);
    for (; at != NULL; at = memmem(at + 1, (size_t)(end - at - 1), "QNN_", 4)) {
        const char *name_end = at;
        while (name_end < end && (is_letter(*name_end) || is_digit(*name_end)))
            name_end++;
        if (memmem(at, (size_t)(name_end - at), "_ERROR_", 7) != NULL)
            return true;
    }
    return false;
}

bool nd_log_is_error(const char *line, size_t n, bool *is_warning, struct nd_log_match *out)
{
    static const char *const warnings[] = {"<W>", "[WARNING]", "WARNING:", "[warning]", "[W:"};
    const char *end = line + n;
    struct nd_log_match match = {0};
    match.has_code = find_code(line, end, &match.code);
    if (!match.has_code && !find_symbol(line, end))
        return false;
    *is_warning = false;
    for (size_t i = 0; i < sizeof warnings / sizeof warnings[0]; i++)
        *is_warning = *is_warning || memmem(line, n, warnings[i], strlen(warnings[i])) != NULL;
    *out = match;
    return true;
}
