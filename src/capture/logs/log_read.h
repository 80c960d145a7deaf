/* The lines that are known: one table (patterns.def), and what the words of all others say (phrases.def).
 *
 * A pattern is text with captures in braces and is found anywhere in a line. It is matched from left to right,
 * each piece of text at its first occurrence behind what was matched before; there is no backtracking but to
 * later occurrences of its first piece, and of those only a few. A pattern begins with text.
 *
 *     {op} {id} {node} {tensor}   letters, digits and _ : . / @ $ - < > [ ] * ; node and tensor where a quote
 *                                 follows in the pattern: all up to that quote
 *     {code}                      a number: decimal, negative or 0x...
 *     {needed} {available} {found} {used} {soc} {value} {expected} {count} {scale} {offset} {status}
 *                                 an amount: a number
 *     {*}                         anything, up to the text or the number that follows */
#pragma once

#include "npudiff/capture/logs.h"

struct nd_log_pattern {
    enum nd_log_kind kind;
    enum nd_log_severity severity;
    enum nd_log_stage stage;
    const char *pattern;
};

extern const struct nd_log_pattern nd_log_patterns[];
extern const size_t nd_log_n_patterns;

/* What a pattern captured: pieces of the line. */
struct nd_log_piece {
    const char *text;
    size_t n;
};

struct nd_log_match {
    struct nd_log_piece op, node, id, tensor;
    bool has_code;
    int64_t code;
    size_t n_amounts;
    struct nd_log_amount amounts[ND_LOG_MAX_AMOUNTS];
};

/* Whether the pattern is found in line[0..n). *out is filled only then. */
bool nd_log_matches(const char *pattern, const char *line, size_t n, struct nd_log_match *out);

/* The bytes of the number that begins at `at`: decimal, 0x..., or with an exponent; 0: none. */
size_t nd_log_number(const char *at, const char *end, double *value);
