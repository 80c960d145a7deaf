/* Matches a line of a log with the patterns of known messages. */
#include <stdlib.h>
#include <string.h>

#include "capture/logs/log_read.h"

/* Of the first piece of a pattern; what is matched stays linear in the length of the line. */
enum { MAX_STARTS = 8, MAX_NUMBER_BYTES = 40 };

struct cursor {
    const char *at;
    const char *end;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex_digit(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("_:./@$-<>[]*", c) != NULL);
}

static size_t number_bytes(const char *at, const char *end)
{
    const char *from = at;
    bool is_hex = end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    if (is_hex) {
        for (at += 2; at < end && is_hex_digit(*at);)
            at++;
        return at - from > 2 ? (size_t)(at - from) : 0;
    }
    at += at < end && (*at == '-' || *at == '+');
    const char *digits = at;
    while (at < end && (is_digit(*at) || (*at == '.' && at + 1 < end && is_digit(at[1]))))
        at++;
    bool has_digits = at > digits;
    if (has_digits && end - at > 2 && (*at == 'e' || *at == 'E') &&
        (is_digit(at[1]) || ((at[1] == '-' || at[1] == '+') && is_digit(at[2]))))
        for (at += 2; at < end && is_digit(*at);)
            at++;
    return has_digits ? (size_t)(at - from) : 0;
}

static bool parse_number(const char *at, size_t n, double *out)
{
    char text[MAX_NUMBER_BYTES];
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, at, n);
    text[n] = '\0';
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        *out = (double)strtoull(text, NULL, 16);
        return true;
    }
    /* Not strtod, whose decimal point is the locale's. */
    double value = 0, place = 1;
    bool is_negative = text[0] == '-', is_fraction = false;
    size_t i = text[0] == '-' || text[0] == '+';
    for (; i < n && (is_digit(text[i]) || text[i] == '.'); i++) {
        if (text[i] == '.') {
            is_fraction = true;
            continue;
        }
        value = value * 10 + (text[i] - '0');
        place = is_fraction ? place * 10 : place;
    }
    long exponent = i < n ? strtol(text + i + 1, NULL, 10) : 0;
    value /= place;
    for (; exponent > 0 && exponent < 400; exponent--)
        value *= 10;
    for (; exponent < 0 && exponent > -400; exponent++)
        value /= 10;
    *out = is_negative ? -value : value;
    return true;
}

size_t nd_log_number(const char *at, const char *end, double *value)
{
    size_t n = number_bytes(at, end);
    return parse_number(at, n, value) ? n : 0;
}

static bool is_name(const char *name, size_t n, const char *wanted)
{
    return strlen(wanted) == n && memcmp(name, wanted, n) == 0;
}

/* A sentence's full stop and the colon after a name belong to neither. */
static size_t word_bytes(const char *at, const char *end)
{
    const char *from = at;
    while (at < end && is_word(*at))
        at++;
    while (at > from && (at[-1] == '.' || at[-1] == ':'))
        at--;
    return (size_t)(at - from);
}

static bool capture_number(struct nd_log_match *match, const char *name, size_t n, struct cursor *line)
{
    double value;
    size_t taken = nd_log_number(line->at, line->end, &value);
    if (taken == 0)
        return false;
    line->at += taken;
    if (is_name(name, n, "code")) {
        match->has_code = value > -9.2e18 && value < 9.2e18;
        match->code = match->has_code ? (int64_t)value : 0;
        return true;
    }
    if (match->n_amounts == ND_LOG_MAX_AMOUNTS || n >= sizeof match->amounts[0].name)
        return false;
    struct nd_log_amount *amount = &match->amounts[match->n_amounts++];
    *amount = (struct nd_log_amount){.value = value};
    memcpy(amount->name, name, n);
    return true;
}

/* One capture; next is the pattern behind it. */
static bool capture(struct nd_log_match *match, const char *name, size_t n, const char *next,
                    struct cursor *line)
{
    struct nd_log_piece *piece = is_name(name, n, "op")       ? &match->op
                                 : is_name(name, n, "node")   ? &match->node
                                 : is_name(name, n, "id")     ? &match->id
                                 : is_name(name, n, "tensor") ? &match->tensor
                                                              : NULL;
    if (piece == NULL)
        return capture_number(match, name, n, line);
    char quote = *next;
    size_t taken;
    if (quote == '"' || quote == '\'' || quote == '`' || quote == ']' || quote == ')') {
        const char *close = memchr(line->at, quote, (size_t)(line->end - line->at));
        taken = close != NULL ? (size_t)(close - line->at) : 0;
    } else {
        taken = word_bytes(line->at, line->end);
    }
    *piece = (struct nd_log_piece){line->at, taken};
    line->at += taken;
    return taken > 0;
}

static const char *find(struct cursor line, const char *text, size_t n)
{
    return memmem(line.at, (size_t)(line.end - line.at), text, n);
}

/* {*} before a number, of which no text says where it begins. */
static void skip_to_number(struct cursor *line)
{
    while (line->at < line->end && !is_digit(*line->at) &&
           !(*line->at == '-' && line->at + 1 < line->end && is_digit(line->at[1])))
        line->at++;
}

/* The rest of a pattern, with what was matched before it ending at line.at. */
static bool match_rest(const char *pattern, struct cursor line, struct nd_log_match *out)
{
    bool may_skip = false;
    while (*pattern != '\0') {
        if (*pattern == '{') {
            size_t n = strcspn(pattern + 1, "}");
            bool is_wild = n == 1 && pattern[1] == '*';
            if (is_wild) {
                may_skip = true;
            } else {
                if (may_skip)
                    skip_to_number(&line);
                if (!capture(out, pattern + 1, n, pattern + n + 2, &line))
                    return false;
                may_skip = false;
            }
            pattern += n + 2;
            continue;
        }
        size_t n = strcspn(pattern, "{");
        const char *at = may_skip ? find(line, pattern, n)
                         : (size_t)(line.end - line.at) >= n && memcmp(line.at, pattern, n) == 0 ? line.at
                                                                                                 : NULL;
        if (at == NULL)
            return false;
        line.at = at + n;
        pattern += n;
        may_skip = false;
    }
    return true;
}

bool nd_log_matches(const char *pattern, const char *line, size_t n, struct nd_log_match *out)
{
    struct cursor cursor = {line, line + n};
    size_t n_first = strcspn(pattern, "{");
    for (int i = 0; i < MAX_STARTS; i++) {
        const char *at = find(cursor, pattern, n_first);
        if (at == NULL)
            return false;
        struct nd_log_match match = {0};
        cursor.at = at + n_first;
        if (match_rest(pattern + n_first, cursor, &match)) {
            *out = match;
            return true;
        }
    }
    return false;
}
