/* What the words of a line say that no pattern knows: phrases.def, error levels, error codes. A phrase that the
 * line denies, or that is a part of a path or the name of a setting, says nothing. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <pthread.h>
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
    size_t n;
    struct token tokens[MAX_TOKENS + 1]; /* the last: none, of no letters */
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
    words->tokens[words->n] = (struct token){words->end, 0};
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

/* ---- numbers ---- */

/* The number behind a token and "=", ":", ...; *is_measured: it has decimals, a unit or a per cent sign. */
static bool read_number(const struct words *words, const struct token *token, double *value, bool *is_hex,
                        bool *is_measured)
{
    const char *at = token->at + token->n;
    at += strspn(at, " =:(#'\"_[");
    size_t n = nd_log_number(at, words->end, value);
    const char *next = at + n + (at + n < words->end && at[n] == ' ');
    *is_hex = n > 2 && (at[1] == 'x' || at[1] == 'X');
    *is_measured = n > 0 && (memchr(at, '.', n) != NULL || is_in_word(at[n]) || *next == '%' ||
                             (!*is_hex && memchr(at, 'e', n) != NULL));
    return n > 0 && !*is_measured;
}

/* ---- what says nothing ---- */

/* Whether nothing but these signs stands between a token and the next. */
static bool are_joined(const struct token *token, const char *signs)
{
    const char *at = token->at + token->n;
    return at + strspn(at, signs) >= token[1].at;
}

/* "no error", "0 failed", "non-fatal", "did not fail", "max error"; of a fallback also what may be or is
 * allowed. */
static bool is_denied_before(const struct words *words, size_t i, enum nd_log_kind kind)
{
    static const char denials[] =
        "no|not|non|never|without|nor|didn|doesn|don|wasn|isn|t|ignore|ignored|ignoring|if|on|when|handle|"
        "handled|may|might|avoid|expected|prevent|disable|disabled";
    static const char measures[] = "max|maximum|min|mean|average|avg|relative|rel|absolute|abs|squared|rms|"
                                   "quantization|quantisation|rounding|approximation|reconstruction";
    static const char allowances[] =
        "enable|enabled|enables|allow|allows|allowed|can|could|would|should|support|supports";
    size_t k = i;
    while (k > 0 && is_filler(&words->tokens[k - 1]) && are_joined(&words->tokens[k - 1], " _-"))
        k--;
    if (k == 0 || !are_joined(&words->tokens[k - 1], " _-"))
        return false;
    const struct token *before = &words->tokens[k - 1];
    if (is_one_of(before, "0|zero")) /* but "graph 0 failed" */
        return k < 2 || is_one_of(&words->tokens[i], "errors|failures|error") ||
               !are_joined(before - 1, " _-") ||
               is_one_of(before - 1, "with|and|has|had|found|got|total|but|only");
    return is_one_of(before, denials) || (kind == ND_LOG_FALLBACK && is_one_of(before, allowances)) ||
           (is_one_of(&words->tokens[i], "error|errors") && is_one_of(before, measures));
}

/* "errors: 0", "error code 0x0", "failed=false", "error: none"; "error 0.013"; "fallback to CPU is disabled".
 */
static bool is_denied_after(const struct words *words, size_t next, enum nd_log_kind kind)
{
    static const char skipped[] = "code|codes|count|status|num|number|value|s|of|in|message|msg";
    static const char nothing[] =
        "none|ok|success|false|null|nil|off|disabled|never|na|zero|rate|free|handler|handlers|handling|"
        "callback|reporting|reporter|correction|margin|bound|bounds|tolerance|threshold";
    static const char conditions[] = "if|when|unless|not|forbidden|impossible|unsupported|option|policy|mode";
    double value;
    bool is_hex, is_measured;
    while (next < words->n && (is_filler(&words->tokens[next]) || is_one_of(&words->tokens[next], skipped)))
        next++;
    const struct token *token = &words->tokens[next];
    if (next == words->n || !are_joined(token - 1, " =:(#'\"_-[)+/"))
        return false; /* another clause */
    bool is_number = read_number(words, &(struct token){token->at, 0}, &value, &is_hex, &is_measured);
    bool is_no =
        is_one_of(token, "no") && (next + 1 == words->n || !are_joined(token, " ")); /* "error: no space" */
    return is_no || (is_number && fabs(value) < 1) || (kind == ND_LOG_ERROR && is_measured) ||
           is_one_of(token, nothing) || (kind == ND_LOG_FALLBACK && is_one_of(token, conditions));
}

/* "err 17", "error code: 0x3ea", "with error = 1002", "status 0x1771", "ret=-1". */
static bool find_code(const struct words *words, int64_t *code)
{
    for (size_t i = 0; i < words->n; i++) {
        const struct token *token = &words->tokens[i];
        if (strchr("eErRsS", token->at[0]) == NULL) /* for speed */
            continue;
        bool only_hex = is_one_of(token, "status"), only_negative = is_one_of(token, "ret|rc"), is_hex,
             is_measured;
        double value;
        if ((!only_hex && !only_negative && !is_one_of(token, "error|err|errno")) ||
            is_denied_before(words, i, ND_LOG_ERROR))
            continue;
        token += is_one_of(token + 1, "code|no");
        if (read_number(words, token, &value, &is_hex, &is_measured) && fabs(value) >= 1 &&
            fabs(value) < 0x1p63 && (!only_hex || is_hex) && (!only_negative || value < 0)) {
            *code = (int64_t)value;
            return true;
        }
    }
    return false;
}

/* "/models/error/x.bin", "errors.cc:30": a part of a path or file name; "on_error_stop": of the name of a
 * setting. */
static bool is_in_name(const struct words *words, const struct token *token)
{
    static const char signs[] = "/\\._-~";
    const char *from = token->at, *to = token->at + token->n, *dot = NULL;
    if (islower((unsigned char)*from) && *to == '_')
        return true;
    while (from > words->line && (is_in_word(from[-1]) || strchr(signs, from[-1]) != NULL))
        from--;
    for (; to < words->end && (is_in_word(*to) || strchr(signs, *to) != NULL); to++)
        dot = *to == '.' && islower((unsigned char)to[1]) ? to : dot;
    size_t n = (size_t)(to - from);
    return memchr(from, '/', n) != NULL || memchr(from, '\\', n) != NULL ||
           (dot != NULL && to - dot <= 6 &&
            dot + 1 + strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789") == to);
}

/* ---- levels and names ---- */

/* ERROR as the level of a line, which no number behind it denies: "[ERROR]", ":ERROR:", or the first word. */
static bool is_level(const struct words *words, size_t i)
{
    const struct token *token = &words->tokens[i];
    const char *before = token->at;
    while (before > words->line && before[-1] == ' ')
        before--;
    while (i > 0 && isdigit((unsigned char)words->tokens[i - 1].at[0]))
        i--;
    return token->n == 5 && memcmp(token->at, "ERROR", 5) == 0 &&
           (i == 0 || (before > words->line && strchr("[<:|", before[-1]) != NULL));
}

/* "RuntimeError: ...", "IllegalStateException", "kLiteRtStatusErrorInvalidArgument",
 * "QNN_COMMON_ERROR_MEM_ALLOC", "RKNN_ERR_FAIL": the name of an error. */
static bool is_error_name(const struct words *words, const struct token *token)
{
    const char *end = token->at + token->n;
    bool has_end = end == words->end || *end == ':';
    if ((has_end && token->n > 5 && memcmp(end - 5, "Error", 5) == 0) ||
        (has_end && token->n > 9 && memcmp(end - 9, "Exception", 9) == 0) ||
        (token->n > 11 && memmem(token->at, token->n, "StatusError", 11) != NULL))
        return true;
    return is_one_of(token, "error|err") && isupper((unsigned char)*token->at) && *end == '_' &&
           token->at > words->line && token->at[-1] == '_';
}

/* The level of a line that logcat did not give one: "E RKNN: ", "E 00:00:00.0 executorch:", "E0612 ", "<W>",
 * "[E:". */
static char find_level(const struct words *words, char level)
{
    static const char letters[] = "EFWIDV";
    const char *line = words->line + strspn(words->line, " ");
    if (level != ' ' || words->end - line < 3)
        return level;
    bool is_tag =
        line[2] == '[' || isdigit((unsigned char)line[2]) || (is_in_word(line[2]) && strchr(line, ':') != NULL);
    if (strchr(letters, *line) != NULL && (isdigit((unsigned char)line[1]) || (line[1] == ' ' && is_tag)))
        return *line;
    for (const char *at = line; at + 2 < words->end && at < line + 200; at++)
        if (((*at == '<' && at[2] == '>') || (*at == '[' && (at[2] == ':' || at[2] == ']'))) &&
            strchr(letters, at[1]) != NULL)
            return at[1];
    size_t i = 0;
    while (i < words->n && isdigit((unsigned char)words->tokens[i].at[0]))
        i++;
    return is_one_of(&words->tokens[i], "warning|warn|info|debug|verbose|trace") ? 'W' : ' ';
}

/* ---- a line ---- */

bool nd_log_names_npu(const char *line, size_t n)
{
    static const char *const names[] = {"npu",      "qnn",    "htp",   "hexagon", "nnapi", "neuron",   "rknn",
                                        "rkllm",    "vpux",   "ethos", "edgetpu", "cdsp",  "dispatch", "apu",
                                        "openvino", "coreml", "dml",   "vitisai", "snpe",  "cann"};
    struct words words;
    cut_words(line, n, &words);
    for (size_t i = 0; i < words.n; i++) {
        const char *at = words.tokens[i].at + (strncmp(words.tokens[i].at, "lib", 3) == 0 ? 3 : 0);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if ((*at | 0x20) == names[k][0] && strncasecmp(at, names[k], strlen(names[k])) == 0 &&
                strncasecmp(at, "npudiff", 7) != 0)
                return true;
    }
    return false;
}

/* The phrases that begin with each letter. */
static struct {
    pthread_once_t once;
    uint64_t of[26];
} starting = {.once = PTHREAD_ONCE_INIT};

static void find_starts(void)
{
    for (size_t p = 0; p < N_PHRASES; p++)
        for (const char *at = phrases[p].words; at != NULL && *at != ' '; at = strpbrk(at, "| ")) {
            at += *at == '|';
            starting.of[*at - 'a'] |= UINT64_C(1) << p;
        }
}

/* The first of the phrases that the line says; N_PHRASES: none. */
static size_t find_phrase(const struct words *words)
{
    size_t best = N_PHRASES;
    pthread_once(&starting.once, find_starts);
    for (size_t i = 0; i < words->n; i++) {
        int first = tolower((unsigned char)words->tokens[i].at[0]) - 'a';
        uint64_t may = first >= 0 && first < 26 ? starting.of[first] : 0;
        for (size_t p = 0; may >> p != 0 && p < best; p++) {
            size_t next = (may >> p & 1) != 0 ? match_phrase(words, i, phrases[p].words) : 0;
            if (next > 0 && (is_level(words, i) || (!is_in_name(words, &words->tokens[i]) &&
                                                    !is_denied_before(words, i, phrases[p].kind) &&
                                                    !is_denied_after(words, next, phrases[p].kind))))
                best = p;
        }
    }
    return best;
}

bool nd_log_read_words(const char *line, size_t n, char level, struct nd_log_pattern *out,
                       struct nd_log_match *match)
{
    struct words words;
    cut_words(line, n, &words);
    size_t phrase = find_phrase(&words);
    bool has_name = false;
    for (size_t i = 0; i < words.n && !has_name; i++)
        has_name = is_error_name(&words, &words.tokens[i]);
    level = find_level(&words, level);
    bool is_error_level = level == 'E' || level == 'F';
    match->has_code = find_code(&words, &match->code);
    *out = (struct nd_log_pattern){.kind = phrase < N_PHRASES ? phrases[phrase].kind : ND_LOG_ERROR,
                                   .stage = phrase < N_PHRASES ? phrases[phrase].stage : ND_LOG_STAGE_NONE,
                                   .severity = ND_LOG_BAD};
    if (out->kind == ND_LOG_ERROR && (!match->has_code || (level != ' ' && !is_error_level)))
        out->severity = ND_LOG_WARNING;
    return phrase < N_PHRASES || has_name || is_error_level || match->has_code;
}
