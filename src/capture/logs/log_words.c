/* What the words of a line say that no pattern knows: phrases.def, error levels, error codes. A phrase that the
 * line denies, or that is a part of a path or the name of a setting, says nothing. */
#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "capture/logs/log_read.h"

enum { MAX_TOKENS = 512 };

struct token {
    const char *at;
    size_t n;
};

struct words {
    const char *line, *end;
    struct token tokens[MAX_TOKENS];
    size_t n;
};

static const struct {
    enum nd_log_kind kind;
    enum nd_log_stage stage;
    const char *words;
} phrases[] = {
#define NO_STAGE ND_LOG_STAGE_NONE
#define FINALIZE ND_LOG_STAGE_FINALIZE
#define ND_LOG_PHRASE(kind, stage, words) {ND_LOG_##kind, stage, words},
#include "capture/logs/phrases.def"
#undef ND_LOG_PHRASE
};
enum { N_PHRASES = sizeof phrases / sizeof phrases[0] };
static_assert(N_PHRASES <= 64, "a set of phrases is one word");

static bool is_in_word(char c)
{
    return (unsigned int)((c | 0x20) - 'a') < 26 || (unsigned int)(c - '0') < 10;
}

static void cut_words(const char *line, size_t n, struct words *words)
{
    words->line = line;
    words->end = line + n;
    words->n = 0;
    for (const char *at = line; at < words->end && words->n < MAX_TOKENS;) {
        const char *from = at;
        while (at < words->end && is_in_word(*at))
            at++;
        if (at > from)
            words->tokens[words->n++] = (struct token){from, (size_t)(at - from)};
        else
            at++;
    }
}

/* Whether the token is one of the words of a list, "a|b|c", which ends at a blank or with the text. */
static bool is_one_of(const struct token *token, const char *list)
{
    for (;;) {
        size_t n = strcspn(list, "| ");
        if (n == token->n && strncasecmp(list, token->at, n) == 0)
            return true;
        if (list[n] != '|')
            return false;
        list += n + 1;
    }
}

static bool is_filler(const struct token *token)
{
    return is_one_of(token,
                     "the|a|an|any|is|are|was|were|be|been|being|has|had|have|its|default|also|explicitly");
}

/* The index behind the last word of the phrase that begins at token i; 0: it does not. */
static size_t match_phrase(const struct words *words, size_t i, const char *phrase)
{
    for (bool is_first = true; i < words->n; is_first = false) {
        if (!is_one_of(&words->tokens[i], phrase)) {
            if (is_first || !is_filler(&words->tokens[i]))
                return 0;
            i++;
            continue;
        }
        i++;
        phrase += strcspn(phrase, " ");
        if (*phrase == '\0')
            return i;
        phrase++;
    }
    return 0;
}

/* ---- error codes ---- */

/* A whole number: decimal, negative, or 0x...; false for what was measured: a share, a time, a number with
 * is_measured. */
static bool take_number(const char *at, const char *end, int64_t *value, bool *is_hex, bool *is_measured)
{
    bool is_negative = at < end && *at == '-';
    at += is_negative;
    *is_hex = end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    at += *is_hex ? 2 : 0;
    uint64_t number = 0;
    size_t n = 0;
    for (; at < end && n < 16 && (*is_hex ? isxdigit((unsigned char)*at) : isdigit((unsigned char)*at));
         at++, n++)
        number = number * (*is_hex ? 16 : 10) +
                 (uint64_t)(isdigit((unsigned char)*at) ? *at - '0' : tolower((unsigned char)*at) - 'a' + 10);
    const char *next = at < end && *at == ' ' ? at + 1 : at;
    *is_measured = n > 0 && at < end &&
                   ((*at == '.' && at + 1 < end && isdigit((unsigned char)at[1])) || is_in_word(*at) ||
                    *at == '_' || (next < end && *next == '%'));
    *value = is_negative ? -(int64_t)number : (int64_t)number;
    return n > 0 && number <= INT64_MAX && !*is_measured;
}

static const char *skip_to_value(const struct words *words, const struct token *token)
{
    const char *at = token->at + token->n;
    while (at < words->end && strchr(" =:(#'\"_[", *at) != NULL)
        at++;
    return at;
}

/* "err 17", "error code: 0x3ea", "with error = 1002", "status 0x1771", "ret=-1". */
static bool find_code(const struct words *words, int64_t *code)
{
    for (size_t i = 0; i < words->n; i++) {
        const struct token *token = &words->tokens[i];
        bool only_hex = is_one_of(token, "status"), only_negative = is_one_of(token, "ret|rc"), is_hex,
             is_measured;
        if (!only_hex && !only_negative && !is_one_of(token, "error|err|errno|code"))
            continue;
        if (i + 1 < words->n && is_one_of(&words->tokens[i + 1], "code"))
            token++;
        if (take_number(skip_to_value(words, token), words->end, code, &is_hex, &is_measured) && *code != 0 &&
            (!only_hex || is_hex) && (!only_negative || *code < 0))
            return true;
    }
    return false;
}

/* ---- what says nothing ---- */

/* Whether nothing but blanks and joining signs stands between two neighbours. */
static bool are_joined(const struct token *a, const struct token *b)
{
    for (const char *at = a->at + a->n; at < b->at; at++)
        if (strchr(" _-", *at) == NULL)
            return false;
    return true;
}

/* "no error", "0 failed", "non-fatal", "did not fail", "max error"; of a fallback also what may be or is
 * allowed. */
static bool is_denied_before(const struct words *words, size_t i, enum nd_log_kind kind)
{
    static const char denials[] =
        "no|not|non|never|without|nor|didn|doesn|don|wasn|isn|t|ignore|ignored|ignoring|"
        "if|on|when|handle|handled|may|might|avoid|expected|prevent|disable|disabled|log";
    static const char measures[] =
        "max|maximum|min|mean|average|avg|relative|rel|absolute|abs|squared|rms|quantization|"
        "quantisation|rounding|approximation|training|reconstruction|mse|top|test";
    static const char allowances[] =
        "enable|enabled|enables|allow|allows|allowed|can|could|would|should|will|to|support|"
        "supports|option|conditional";
    size_t before = i;
    while (before > 0 && is_filler(&words->tokens[before - 1]) &&
           are_joined(&words->tokens[before - 1], &words->tokens[before]))
        before--;
    if (before == 0 || !are_joined(&words->tokens[before - 1], &words->tokens[before]))
        return false;
    const struct token *token = &words->tokens[before - 1];
    if (is_one_of(token, "0|zero")) /* but "graph 0 failed" */
        return before < 2 || is_one_of(&words->tokens[i], "errors|failures|error|exceptions") ||
               !are_joined(&words->tokens[before - 2], token) ||
               is_one_of(&words->tokens[before - 2], "with|and|has|had|found|got|total|but|only");
    return is_one_of(token, denials) || (kind == ND_LOG_ERROR && is_one_of(token, measures)) ||
           (kind == ND_LOG_FALLBACK && is_one_of(token, allowances) && !is_one_of(token, "will|to"));
}

/* "errors: 0", "error code 0x0", "failed=false", "error: none"; "error 0.013"; "fallback to CPU is disabled".
 */
static bool is_denied_after(const struct words *words, size_t next, enum nd_log_kind kind)
{
    static const char nothing[] =
        "none|ok|success|false|null|nil|off|disabled|never|na|zero|rate|free|handler|handlers|"
        "handling|callback|reporting|reporter|correction|margin|bound|bounds|tolerance|threshold";
    static const char conditions[] = "if|when|unless|not|forbidden|impossible|unsupported|option|policy|mode";
    int64_t value;
    bool is_hex, is_measured;
    while (next < words->n &&
           (is_filler(&words->tokens[next]) ||
            is_one_of(&words->tokens[next], "code|codes|count|status|num|number|value|s|of|in|message|msg")))
        next++;
    if (next >= words->n)
        return false;
    const struct token *token = &words->tokens[next], *last = &words->tokens[next - 1];
    for (const char *at = last->at + last->n; at < token->at; at++)
        if (strchr(" =:(#'\"_-[)+/", *at) == NULL)
            return false; /* another clause */
    bool is_number = take_number(token->at, words->end, &value, &is_hex, &is_measured);
    bool is_no = is_one_of(token, "no") &&
                 !(next + 1 < words->n && are_joined(token, token + 1)); /* "error: no space" */
    return is_no || (is_number && value == 0) || (kind == ND_LOG_ERROR && is_measured) ||
           is_one_of(token, nothing) || (kind == ND_LOG_FALLBACK && is_one_of(token, conditions));
}

/* "/models/error/x.bin", "error_log.txt", "errors.cc:30": the word is a part of a path or file name. */
static bool is_in_path(const struct words *words, const struct token *token)
{
    const char *from = token->at, *to = token->at + token->n, *dot = NULL;
    while (from > words->line && (is_in_word(from[-1]) || strchr("/\\._-~", from[-1]) != NULL))
        from--;
    while (to < words->end && (is_in_word(*to) || strchr("/\\._-~", *to) != NULL)) {
        dot = *to == '.' && to > words->line && is_in_word(to[-1]) && to + 1 < words->end &&
                      islower((unsigned char)to[1])
                  ? to
                  : dot;
        to++;
    }
    bool has_slash =
        memchr(from, '/', (size_t)(to - from)) != NULL || memchr(from, '\\', (size_t)(to - from)) != NULL;
    size_t n_ending = dot != NULL ? strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;
    return has_slash || (n_ending > 0 && n_ending <= 5 && dot + 1 + n_ending == to);
}

/* "on_error", "error_handler": a setting; but "load_error: ..." is none, and "error_code=5" has a code. */
static bool is_setting(const struct words *words, const struct token *token)
{
    const char *end = token->at + token->n;
    bool is_lower = islower((unsigned char)token->at[0]), is_hex, is_measured;
    int64_t code;
    if (!is_lower || end >= words->end || *end != '_')
        return false;
    const struct token *last = token + 1; /* of an identifier, which has a word behind the line */
    return !(token + 1 < words->tokens + words->n && is_one_of(last, "code|no") &&
             take_number(skip_to_value(words, last), words->end, &code, &is_hex, &is_measured) && code != 0);
}

/* ERROR as the level of a line, which no number behind it denies: "[ERROR]", "<E>", ":ERROR:", or the first
 * word. */
static bool is_level(const struct words *words, size_t i)
{
    const struct token *token = &words->tokens[i];
    const char *before = token->at;
    if (token->n != 5 || memcmp(token->at, "ERROR", 5) != 0)
        return false;
    while (before > words->line && before[-1] == ' ')
        before--;
    bool is_first = true;
    for (size_t k = 0; k < i; k++)
        is_first = is_first && isdigit((unsigned char)words->tokens[k].at[0]);
    return is_first || (before > words->line && strchr("[<:|", before[-1]) != NULL);
}

/* "RuntimeError: ...", "IllegalStateException", "kLiteRtStatusErrorInvalidArgument",
 * "QNN_COMMON_ERROR_MEM_ALLOC", "RKNN_ERR_FAIL": the name of an error. */
static bool is_error_name(const struct words *words, const struct token *token)
{
    static const char *const endings[] = {"Error", "Exception"};
    const char *end = token->at + token->n;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(endings[i]);
        if (token->n > n && memcmp(end - n, endings[i], n) == 0 && (end == words->end || *end == ':'))
            return true;
    }
    if (token->n > 11 && memmem(token->at, token->n, "StatusError", 11) != NULL)
        return true;
    bool is_part = (token->n == 5 && memcmp(token->at, "ERROR", 5) == 0) ||
                   (token->n == 3 && memcmp(token->at, "ERR", 3) == 0);
    return is_part && token->at > words->line && token->at[-1] == '_' && end < words->end && *end == '_';
}

/* ---- levels ---- */

/* The level of a line that logcat did not give one: "E RKNN: ", "E 00:00:00.0 executorch:", "E0612 ", "<W>",
 * "[E:". */
static char find_level(const struct words *words, char level)
{
    static const char letters[] = "EFWIDV";
    const char *line = words->line + strspn(words->line, " ");
    if (level != ' ')
        return level;
    if (words->end - line > 6 && strchr(letters, *line) != NULL) {
        bool is_tag = line[2] == '[' || isdigit((unsigned char)line[2]) ||
                      (is_in_word(line[2]) && memchr(line, ':', (size_t)(words->end - line)));
        if (isdigit((unsigned char)line[1]) || (line[1] == ' ' && is_tag))
            return *line;
    }
    for (const char *at = line; at + 2 < words->end && at < line + 200; at++)
        if ((*at == '<' && at[2] == '>' && strchr(letters, at[1]) != NULL) ||
            (*at == '[' && (at[2] == ':' || at[2] == ']') && strchr(letters, at[1]) != NULL))
            return at[1];
    for (size_t i = 0; i < words->n && i < 6; i++) {
        if (is_one_of(&words->tokens[i], "warning|warn|info|debug|verbose|trace"))
            return 'W';
        if (!isdigit((unsigned char)words->tokens[i].at[0]))
            break;
    }
    return ' ';
}

/* ---- a line ---- */

static bool says(const struct words *words, size_t i, size_t next, enum nd_log_kind kind)
{
    const struct token *token = &words->tokens[i];
    if (is_level(words, i))
        return true;
    return !is_in_path(words, token) && !is_setting(words, token) && !is_denied_before(words, i, kind) &&
           !is_denied_after(words, next, kind);
}

static bool names_npu(const struct words *words)
{
    static const char *const names[] = {"npu",   "qnn",  "htp",   "hexagon", "nnapi", "neuron",   "rknn",
                                        "rkllm", "vpux", "ethos", "edgetpu", "cdsp",  "dispatch", "apu"};
    for (size_t i = 0; i < words->n; i++) {
        size_t skipped = words->tokens[i].n > 3 && memcmp(words->tokens[i].at, "lib", 3) == 0 ? 3 : 0;
        const char *at = words->tokens[i].at + skipped;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if ((*at | 0x20) == names[k][0] && words->tokens[i].n - skipped >= strlen(names[k]) &&
                strncasecmp(at, names[k], strlen(names[k])) == 0)
                return true;
    }
    return false;
}

bool nd_log_names_npu(const char *line, size_t n)
{
    struct words words;
    cut_words(line, n, &words);
    return names_npu(&words);
}

bool nd_log_read_words(const char *line, size_t n, char level, struct nd_log_pattern *out,
                       struct nd_log_match *match, bool *is_npu_named)
{
    struct words words;
    uint64_t starting[26] = {0};
    size_t best = N_PHRASES;
    bool has_name = false, has_code_word = false;
    cut_words(line, n, &words);
    *is_npu_named = *is_npu_named || names_npu(&words);
    for (size_t p = 0; p < N_PHRASES; p++)
        for (const char *at = phrases[p].words; at != NULL && *at != ' '; at = strpbrk(at, "| ")) {
            at += *at == '|';
            starting[*at - 'a'] |= UINT64_C(1) << p;
        }
    for (size_t i = 0; i < words.n; i++) {
        char first = (char)tolower((unsigned char)words.tokens[i].at[0]);
        uint64_t may = first >= 'a' && first <= 'z' ? starting[first - 'a'] : 0;
        for (size_t p = 0; may >> p != 0 && p < best; p++) {
            size_t next = (may >> p & 1) != 0 ? match_phrase(&words, i, phrases[p].words) : 0;
            if (next > 0 && says(&words, i, next, phrases[p].kind))
                best = p;
        }
        has_name = has_name || is_error_name(&words, &words.tokens[i]);
        has_code_word =
            has_code_word || ((first == 's' || first == 'r') && is_one_of(&words.tokens[i], "status|ret|rc"));
    }
    char own_level = find_level(&words, level);
    bool is_error = best < N_PHRASES || has_name || own_level == 'E' || own_level == 'F';
    match->has_code = (is_error || has_code_word) && find_code(&words, &match->code);
    if (!is_error && !match->has_code)
        return false;
    *out = (struct nd_log_pattern){.kind = best < N_PHRASES ? phrases[best].kind : ND_LOG_ERROR,
                                   .severity = ND_LOG_BAD,
                                   .stage = best < N_PHRASES ? phrases[best].stage : ND_LOG_STAGE_NONE};
    if (out->kind == ND_LOG_ERROR && own_level != ' ' && own_level != 'E' && own_level != 'F')
        out->severity = ND_LOG_WARNING;
    return true;
}
