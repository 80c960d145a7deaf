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
#ifndef ND_LOGS_LOG_PATTERNS_H
#define ND_LOGS_LOG_PATTERNS_H

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

/* What the words of line[0..n) say, which no pattern knows and which a NUL ends: a fallback or a failure that
 * phrases.def has, or an error (ND_LOG_ERROR): an error level, a word for one, an error code or the name of an
 * error. Not what is denied ("no error", "0 failed", "error_code=0", "fallback is disabled"), a measured error
 * ("max error 0.1") or a part of a path. level: that of logcat, or ' '. out: kind, severity and stage; match:
 * the error code, if there is one. Only the first 512 words are read. */
bool nd_log_read_words(const char *line, size_t n, char level, struct nd_log_pattern *out,
                       struct nd_log_match *match);
/* Whether the line names an NPU or a runtime of one. */
bool nd_log_names_npu(const char *line, size_t n);

#endif
