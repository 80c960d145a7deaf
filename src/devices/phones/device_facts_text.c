#include "devices/phones/device_facts_text.h"

#include <string.h>

#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* Whether `at` is where a line of the answer begins. */
static bool begins_line(struct nd_piece answer, const char *at)
{
    return at == answer.text || at[-1] == '\n';
}

struct nd_piece nd_piece_part(struct nd_piece answer, const char *marker, const char *name)
{
    size_t n_marker = strlen(marker);
    struct nd_piece found = {0}, rest = answer;
    while (rest.n > 0) {
        const char *at = memmem(rest.text, rest.n, marker, n_marker);
        if (at == NULL)
            break;
        bool is_line = begins_line(answer, at);
        if (found.text != NULL && is_line) {
            found.n = (size_t)(at - found.text);
            return found;
        }
        struct nd_piece line, left = {at + n_marker, (size_t)(answer.text + answer.n - at) - n_marker};
        rest = left;
        if (is_line && nd_piece_line(&left, &line) && nd_piece_is(nd_piece_trim(line), name))
            rest = found = left;
    }
    if (found.text != NULL)
        found.n = (size_t)(answer.text + answer.n - found.text);
    return found;
}

bool nd_piece_line(struct nd_piece *rest, struct nd_piece *line)
{
    if (rest->n == 0)
        return false;
    const char *end = memchr(rest->text, '\n', rest->n);
    size_t n = end != NULL ? (size_t)(end - rest->text) : rest->n;
    *line = (struct nd_piece){rest->text, n};
    n += end != NULL;
    *rest = (struct nd_piece){rest->text + n, rest->n - n};
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

struct nd_piece nd_piece_trim(struct nd_piece piece)
{
    while (piece.n > 0 && is_blank(piece.text[0])) {
        piece.text++;
        piece.n--;
    }
    while (piece.n > 0 && is_blank(piece.text[piece.n - 1]))
        piece.n--;
    return piece;
}

bool nd_piece_skip(struct nd_piece *piece, const char *text)
{
    size_t n = strlen(text);
    if (piece->n < n || memcmp(piece->text, text, n) != 0)
        return false;
    *piece = (struct nd_piece){piece->text + n, piece->n - n};
    return true;
}

bool nd_piece_is(struct nd_piece piece, const char *text)
{
    return nd_piece_skip(&piece, text) && piece.n == 0;
}

/* Bytes of the character that begins here, 0 when it is no UTF-8 (overlong forms, surrogates and what is beyond
 * U+10FFFF are none). */
static size_t utf8_bytes(const unsigned char *at, size_t n)
{
    unsigned char c = at[0];
    size_t size = c < 0x80                ? 1
                  : c >= 0xc2 && c < 0xe0 ? 2
                  : c >= 0xe0 && c < 0xf0 ? 3
                  : c >= 0xf0 && c < 0xf5 ? 4
                                          : 0;
    if (size == 0 || size > n)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
        (c == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}

char *nd_piece_copy(struct nd_piece piece, size_t max_bytes)
{
    struct nd_strbuf out = {0};
    piece = nd_piece_trim(piece);
    for (size_t i = 0; i < piece.n;) {
        size_t n = utf8_bytes((const unsigned char *)piece.text + i, piece.n - i);
        unsigned char c = (unsigned char)piece.text[i];
        /* C1 controls (U+0080 to U+009F) steer terminals like the others. */
        bool is_control = (n == 1 && (c < 0x20 || c == 0x7f)) ||
                          (n == 2 && c == 0xc2 && (unsigned char)piece.text[i + 1] < 0xa0);
        if (out.len + (n > 0 ? n : 1) > max_bytes)
            break;
        bool is_space = is_control || piece.text[i] == ' ';
        if (n == 0)
            nd_strbuf_puts(&out, "?");
        else if (is_space && out.len > 0)
            nd_strbuf_puts(&out, " ");
        else if (!is_space)
            nd_strbuf_append(&out, piece.text + i, n);
        i += n > 0 ? n : 1;
    }
    while (out.len > 0 && out.text[out.len - 1] == ' ')
        out.text[--out.len] = '\0';
    return nd_strbuf_take(&out);
}

/* As text of its own; false when it is too long for a number. */
static bool take_number(struct nd_piece piece, char text[48])
{
    piece = nd_piece_trim(piece);
    if (piece.n == 0 || piece.n >= 48 || memchr(piece.text, '\0', piece.n) != NULL)
        return false;
    memcpy(text, piece.text, piece.n);
    text[piece.n] = '\0';
    return true;
}

bool nd_piece_i64(struct nd_piece piece, int64_t *out)
{
    char text[48];
    return take_number(piece, text) && nd_parse_i64(text, out);
}

bool nd_piece_double(struct nd_piece piece, double *out)
{
    char text[48];
    return take_number(piece, text) && nd_parse_double(text, out);
}
