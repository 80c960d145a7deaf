/* Bytes to lines, lines to findings. The patterns are in patterns.def; a line that none of them knows but that
 * speaks of an error must not pass for nothing. */
#include "capture/logs/log_read.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <strings.h>

#include "core/files/file.h"
#include "core/memory.h"

/* ---- the patterns ---- */

#define NOTE ND_LOG_NOTE
#define WARN ND_LOG_WARNING
#define BAD ND_LOG_BAD
#define NO_STAGE ND_LOG_STAGE_NONE
#define COMPOSE ND_LOG_STAGE_COMPOSE
#define FINALIZE ND_LOG_STAGE_FINALIZE
#define EXECUTE ND_LOG_STAGE_EXECUTE

const struct nd_log_pattern nd_log_patterns[] = {
#define ND_LOG_PATTERN(kind, severity, stage, pattern) {ND_LOG_##kind, severity, stage, pattern},
#include "capture/logs/patterns.def"
#undef ND_LOG_PATTERN
};

const size_t nd_log_n_patterns = sizeof nd_log_patterns / sizeof nd_log_patterns[0];

enum { MAX_LINE_BYTES = 16384, MAX_TEXT_BYTES = 4096, MAX_PIECE_BYTES = 512, READ_BYTES = 1 << 16 };

enum encoding { ENCODING_UNKNOWN, ENCODING_BYTES, ENCODING_UTF16LE, ENCODING_UTF16BE };

/* Pairs of neighbouring bytes in a pattern: a line without them need not be searched for it. */
enum { N_PAIRS = 4, PAIR_WORDS = (1 << 16) / 64 };

struct nd_log_reader {
    uint16_t (*pairs)[N_PAIRS]; /* per pattern */
    uint64_t seen[PAIR_WORDS];  /* those of the line; all 0 between lines */
    struct nd_log_options options;
    struct nd_log_summary summary;
    enum encoding encoding;
    unsigned char held[2]; /* the start of the file, or half a UTF-16 unit */
    size_t n_held;
    char line[MAX_LINE_BYTES + 1];
    size_t n_line;
    bool is_cut, is_stopped;
    bool is_on_cpu;   /* the nodes that are listed now */
    bool names_npu;   /* a line so far names an NPU, or a runtime of one */
    bool has_refused; /* a refused group of nodes whose names and reason follow on the next lines */
    struct nd_log_finding refused;
    /* Texts of the finding that is being made, and of the one that waits. */
    char pieces[2][5][MAX_TEXT_BYTES + 1];
};

/* ---- findings ---- */

static void hand_out(struct nd_log_reader *reader, const struct nd_log_finding *finding)
{
    reader->summary.n_findings++;
    reader->summary.n_by_kind[finding->kind]++;
    if (finding->severity > reader->summary.worst)
        reader->summary.worst = finding->severity;
    if (!reader->is_stopped && !reader->options.visit(reader->options.context, finding))
        reader->is_stopped = true;
}

static void hand_out_refused(struct nd_log_reader *reader)
{
    if (reader->has_refused)
        hand_out(reader, &reader->refused);
    reader->has_refused = false;
}

static char *put(char *to, struct nd_log_piece piece, size_t max)
{
    size_t n = piece.n < max ? piece.n : max;
    if (n > 0)
        memcpy(to, piece.text, n);
    to[n] = '\0';
    return to;
}

static struct nd_log_finding describe(struct nd_log_reader *reader, const struct nd_log_pattern *pattern,
                                      const struct nd_log_match *match, struct nd_log_piece text)
{
    bool waits = pattern->kind == ND_LOG_VALIDATION && match->op.n > 0 && match->node.n == 0;
    char(*pieces)[MAX_TEXT_BYTES + 1] = reader->pieces[waits];
    struct nd_log_finding finding = {
        .kind = pattern->kind,
        .severity = pattern->severity,
        .stage = pattern->stage,
        .line = reader->summary.n_lines,
        .log = (char *)(uintptr_t)(reader->options.name != NULL ? reader->options.name : ""),
        .op = put(pieces[0], match->op, MAX_PIECE_BYTES),
        .node = put(pieces[1], match->node, MAX_PIECE_BYTES),
        .op_id = put(pieces[2], match->id, MAX_PIECE_BYTES),
        .tensor = put(pieces[3], match->tensor, MAX_PIECE_BYTES),
        .has_code = match->has_code,
        .code = match->code,
        .symbol = match->has_code ? nd_log_code_symbol(match->code) : "",
        .n_amounts = match->n_amounts,
        .text = put(pieces[4], text, MAX_TEXT_BYTES),
    };
    memcpy(finding.amounts, match->amounts, sizeof finding.amounts);
    return finding;
}

static bool is_quantisation(const char *op)
{
    return strcmp(op, "QuantizeLinear") == 0 || strcmp(op, "DequantizeLinear") == 0;
}

static bool is_cpu(const char *op)
{
    static const char *const names[] = {"CPU", "XNNPACK", "XNNPack", "reference"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(op, names[i]) != NULL)
            return true;
    return false;
}

static double *amount_of(struct nd_log_finding *finding, const char *name)
{
    for (size_t i = 0; i < finding->n_amounts; i++)
        if (strcmp(finding->amounts[i].name, name) == 0)
            return &finding->amounts[i].value;
    return NULL;
}

/* "count of total nodes went to op": those that a CPU took, or that an accelerator left over, are a fallback.
 * On a CPU they are none if no line so far names an NPU: a CPU may be what was asked for. A row with the
 * severity of a warning counts the quantisers of the graph's inputs and outputs, too, which belong on the CPU.
 * Each has its partner inside of the graph, so that they are at most half of the nodes. */
static void judge_shares(const struct nd_log_reader *reader, struct nd_log_finding *finding)
{
    double *count = amount_of(finding, "count"), *total = amount_of(finding, "total");
    bool on_cpu = is_cpu(finding->op), may_be_quantisers = finding->severity == ND_LOG_WARNING && !on_cpu;
    if (count == NULL && on_cpu && reader->summary.worst == ND_LOG_BAD) {
        finding->kind = ND_LOG_FALLBACK; /* made because of the failure before */
        finding->severity = ND_LOG_BAD;
    }
    if (count == NULL || (total == NULL && finding->severity == ND_LOG_NOTE))
        return;
    double n = on_cpu ? *count : total != NULL ? *total - *count : 0;
    finding->severity = n > 0 ? ND_LOG_WARNING : ND_LOG_NOTE;
    if (n > 0 && finding->n_amounts < ND_LOG_MAX_AMOUNTS)
        finding->amounts[finding->n_amounts++] = (struct nd_log_amount){"on_cpu", n};
    if (n > 0 && (on_cpu ? reader->names_npu : !may_be_quantisers || 2 * n > *total)) {
        finding->kind = ND_LOG_FALLBACK;
        finding->severity = ND_LOG_BAD;
    }
}

/* "Node(s) placed on [provider]", then its nodes: one on the CPU is a fallback, but for the quantisation of the
 * graph's inputs and outputs, which belongs there. */
static void judge_placement(struct nd_log_reader *reader, struct nd_log_finding *finding)
{
    if (finding->kind != ND_LOG_PLACEMENT)
        return;
    if (finding->node[0] == '\0') {
        reader->is_on_cpu = strcmp(finding->op, "CPUExecutionProvider") == 0;
        judge_shares(reader, finding);
    } else if (reader->is_on_cpu && !is_quantisation(finding->op)) {
        finding->kind = ND_LOG_FALLBACK;
        finding->severity = ND_LOG_BAD;
    }
}

/* The lines behind "Validation FAILED for n nodes in OrtNodeUnit (op)": its nodes, then why. */
static bool is_about_refused(struct nd_log_reader *reader, struct nd_log_piece line)
{
    struct nd_log_match match;
    struct nd_log_finding *refused = &reader->refused;
    if (!reader->has_refused)
        return false;
    if (nd_log_matches("Operator type: {op} Node name: {node} Node index: ", line.text, line.n, &match)) {
        if (strlen(refused->op) == match.op.n && memcmp(refused->op, match.op.text, match.op.n) == 0)
            put(refused->node, match.node, MAX_PIECE_BYTES);
        return true;
    }
    if (nd_log_matches("REASON : QNN EP is configured to not take", line.text, line.n, &match)) {
        refused->severity = ND_LOG_NOTE; /* as it was asked to */
        return true;
    }
    return nd_log_matches("REASON : ", line.text, line.n, &match);
}

/* ---- what words say that no pattern knows: phrases.def, error levels, error codes. A phrase that the line
 * denies, or that is a part of a path or the name of a setting, says nothing ---- */

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

/* "no error", "0 failed", "non-fatal", "did not fail", "max error"; of a fallback what may be or is allowed. */
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

/* Whether the line names an NPU or a runtime of one. */
static bool has_npu_name(const char *line, size_t n)
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

/* What the words of line[0..n) say, which no pattern knows and which a NUL ends: a fallback or a failure that
 * phrases.def has, or an error (ND_LOG_ERROR): an error level, a word for one, an error code or the name of an
 * error. Not what is denied ("no error", "0 failed", "error_code=0", "fallback is disabled"), a measured error
 * ("max error 0.1") or a part of a path. level: that of logcat, or ' '. out: kind, severity and stage; match:
 * the error code, if there is one. Only the first 512 words are read. */
static bool read_words(const char *line, size_t n, char level, struct nd_log_pattern *out,
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

/* ---- one line ---- */

/* Colours ("ESC [ ... letter") and control bytes go, tabs become spaces. */
static size_t clean(char *line, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == 0x1b && i + 1 < n && line[i + 1] == '[') {
            for (i += 2; i < n && (line[i] < '@' || line[i] > '~');)
                i++;
        } else if (c == '\t') {
            line[kept++] = ' ';
        } else if (c >= 0x20 && c != 0x7f) {
            line[kept++] = line[i];
        }
    }
    line[kept] = '\0';
    return kept;
}

static struct nd_log_piece behind(struct nd_log_piece line, size_t n)
{
    return (struct nd_log_piece){line.text + n, line.n - n};
}

/* logcat's "11-21 20:33:01.123  1234  1235 I tag: " and "I/tag( 1234): " say who logged a line, not what.
 * *level: the letter there, else ' '. */
static struct nd_log_piece skip_logcat(struct nd_log_piece line, char *level)
{
    static const char severities[] = "VDIWEFS";
    char month[3], day[3], tag[MAX_PIECE_BYTES + 1];
    unsigned int pid, tid;
    char severity;
    int n = 0;
    *level = ' ';
    if (line.n > 3 && strchr(severities, line.text[0]) != NULL && line.text[1] == '/') {
        const char *open = memchr(line.text, '(', line.n < 128 ? line.n : 128);
        const char *close = open != NULL ? memchr(open, ')', line.n - (size_t)(open - line.text)) : NULL;
        *level = line.text[0];
        if (close != NULL && close - open < 9 && close + 1 < line.text + line.n && close[1] == ':')
            return behind(line, (size_t)(close + 2 - line.text));
    }
    if (line.n > 30 && line.text[2] == '-' && line.text[5] == ' ' && line.text[8] == ':' &&
        sscanf(line.text, "%2[0-9]-%2[0-9] %*[0-9:.] %u %u %c%n", month, day, &pid, &tid, &severity, &n) == 5 &&
        strchr(severities, severity) != NULL) {
        snprintf(tag, sizeof tag, "%.*s", (int)(line.n - (size_t)n < 128 ? line.n - (size_t)n : 128),
                 line.text + n);
        const char *colon = strstr(tag, ": ");
        *level = severity;
        if (colon != NULL)
            return behind(line, (size_t)n + (size_t)(colon + 2 - tag));
    }
    return line;
}

static uint16_t pair_at(const char *text)
{
    return (uint16_t)((unsigned char)text[0] << 8 | (unsigned char)text[1]);
}

static void see_pairs(struct nd_log_reader *reader, struct nd_log_piece line, bool are_seen)
{
    for (size_t i = 0; i + 1 < line.n; i++) {
        uint16_t pair = pair_at(line.text + i);
        if (are_seen)
            reader->seen[pair / 64] |= UINT64_C(1) << pair % 64;
        else
            reader->seen[pair / 64] = 0;
    }
}

static bool may_match(const struct nd_log_reader *reader, size_t pattern)
{
    for (int k = 0; k < N_PAIRS; k++) {
        uint16_t pair = reader->pairs[pattern][k];
        if ((reader->seen[pair / 64] >> pair % 64 & 1) == 0)
            return false;
    }
    return true;
}

/* The first pattern that matches; nd_log_n_patterns for none. */
static size_t find_pattern(struct nd_log_reader *reader, struct nd_log_piece line, struct nd_log_match *match)
{
    size_t i = 0;
    see_pairs(reader, line, true);
    while (i < nd_log_n_patterns &&
           !(may_match(reader, i) && nd_log_matches(nd_log_patterns[i].pattern, line.text, line.n, match)))
        i++;
    see_pairs(reader, line, false);
    return i;
}

/* Spread over the longest text between the captures of a pattern. */
static void find_pairs(struct nd_log_reader *reader)
{
    for (size_t i = 0; i < nd_log_n_patterns; i++) {
        const char *at = nd_log_patterns[i].pattern, *longest = at;
        size_t n_longest = 0;
        while (*at != '\0') {
            size_t n = strcspn(at, "{");
            if (n > n_longest) {
                longest = at;
                n_longest = n;
            }
            at += n;
            at += strcspn(at, "}");
            at += *at == '}';
        }
        assert(n_longest >= 2);
        for (size_t k = 0; k < N_PAIRS; k++)
            reader->pairs[i][k] = pair_at(longest + k * (n_longest - 2) / (N_PAIRS - 1));
    }
}

/* A line that no pattern knows, but whose words say that something went wrong. */
static bool take_words(struct nd_log_reader *reader, struct nd_log_piece line, struct nd_log_piece whole,
                       char level)
{
    struct nd_log_pattern found;
    struct nd_log_match match = {0};
    if (!read_words(line.text, line.n, level, &found, &match))
        return false;
    struct nd_log_finding finding = describe(reader, &found, &match, whole);
    hand_out(reader, &finding);
    return true;
}

static void take_line(struct nd_log_reader *reader)
{
    reader->summary.n_lines++;
    reader->summary.n_cut += reader->is_cut;
    size_t n = clean(reader->line, reader->n_line);
    const struct nd_log_piece whole = {reader->line, n};
    char level;
    const struct nd_log_piece line = skip_logcat(whole, &level);
    reader->n_line = 0;
    reader->is_cut = false;
    reader->names_npu = reader->names_npu || has_npu_name(line.text, line.n);
    if (is_about_refused(reader, line))
        return;
    hand_out_refused(reader);
    struct nd_log_match match;
    size_t i = find_pattern(reader, line, &match);
    if (i < nd_log_n_patterns) {
        struct nd_log_finding finding = describe(reader, &nd_log_patterns[i], &match, whole);
        judge_placement(reader, &finding);
        reader->has_refused = finding.text == reader->pieces[1][4];
        if (reader->has_refused)
            reader->refused = finding;
        else
            hand_out(reader, &finding);
        return;
    }
    if (take_words(reader, line, whole, level))
        return;
    reader->summary.n_unknown++;
    if (reader->options.unknown != NULL && !reader->is_stopped)
        reader->options.unknown(reader->options.context, reader->summary.n_lines, whole.text, whole.n);
}

/* ---- bytes ---- */

static void take_byte(struct nd_log_reader *reader, unsigned char byte)
{
    if (byte == '\n')
        take_line(reader);
    else if (reader->n_line < MAX_LINE_BYTES)
        reader->line[reader->n_line++] = (char)byte;
    else
        reader->is_cut = true;
}

static void take_run(struct nd_log_reader *reader, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        const unsigned char *end = memchr(bytes, '\n', n);
        size_t n_run = end != NULL ? (size_t)(end - bytes) : n;
        size_t n_room = MAX_LINE_BYTES - reader->n_line, n_kept = n_run < n_room ? n_run : n_room;
        memcpy(reader->line + reader->n_line, bytes, n_kept);
        reader->n_line += n_kept;
        reader->is_cut = reader->is_cut || n_kept < n_run;
        if (end == NULL)
            return;
        take_line(reader);
        bytes += n_run + 1;
        n -= n_run + 1;
    }
}

/* What the patterns look for is ASCII; of other characters only that there was one matters. */
static void take_unit(struct nd_log_reader *reader, const unsigned char unit[2])
{
    bool is_little = reader->encoding == ENCODING_UTF16LE;
    unsigned int value =
        is_little ? unit[0] | (unsigned int)unit[1] << 8 : unit[1] | (unsigned int)unit[0] << 8;
    if (value < 0x80) {
        take_byte(reader, (unsigned char)value);
    } else if (value < 0x800) {
        take_byte(reader, (unsigned char)(0xc0 | value >> 6));
        take_byte(reader, (unsigned char)(0x80 | (value & 0x3f)));
    } else if (value >= 0xd800 && value < 0xe000) {
        take_byte(reader, '?'); /* half of a pair */
    } else {
        take_byte(reader, (unsigned char)(0xe0 | value >> 12));
        take_byte(reader, (unsigned char)(0x80 | (value >> 6 & 0x3f)));
        take_byte(reader, (unsigned char)(0x80 | (value & 0x3f)));
    }
}

static void take_units(struct nd_log_reader *reader, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        reader->held[reader->n_held++] = bytes[i];
        if (reader->n_held == 2) {
            reader->n_held = 0;
            take_unit(reader, reader->held);
        }
    }
}

static void settle_encoding(struct nd_log_reader *reader)
{
    const unsigned char *held = reader->held;
    size_t n = reader->n_held;
    reader->encoding = n == 2 && held[0] == 0xff && held[1] == 0xfe   ? ENCODING_UTF16LE
                       : n == 2 && held[0] == 0xfe && held[1] == 0xff ? ENCODING_UTF16BE
                                                                      : ENCODING_BYTES;
    reader->n_held = 0;
    if (reader->encoding == ENCODING_BYTES)
        take_run(reader, held, n);
}

void nd_log_reader_feed(struct nd_log_reader *reader, const void *bytes, size_t n_bytes)
{
    const unsigned char *at = bytes;
    while (reader->encoding == ENCODING_UNKNOWN && n_bytes > 0) {
        reader->held[reader->n_held++] = *at++;
        n_bytes--;
        if (reader->n_held == 2)
            settle_encoding(reader);
    }
    if (reader->encoding == ENCODING_BYTES)
        take_run(reader, at, n_bytes);
    else if (n_bytes > 0)
        take_units(reader, at, n_bytes);
}

void nd_log_reader_end(struct nd_log_reader *reader, struct nd_log_summary *out)
{
    static const char *const names[] = {"bytes", "bytes", "utf-16le", "utf-16be"};
    if (reader->encoding == ENCODING_UNKNOWN)
        settle_encoding(reader);
    if (reader->n_line > 0 || reader->is_cut)
        take_line(reader);
    hand_out_refused(reader);
    snprintf(reader->summary.encoding, sizeof reader->summary.encoding, "%s", names[reader->encoding]);
    *out = reader->summary;
}

enum nd_status nd_log_reader_create(const struct nd_log_options *options, struct nd_log_reader **out,
                                    struct nd_error *err)
{
    struct nd_log_options own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    struct nd_log_reader *reader = nd_calloc(1, sizeof *reader);
    if (reader != NULL)
        reader->pairs = nd_calloc(nd_log_n_patterns, sizeof *reader->pairs);
    if (reader == NULL || reader->pairs == NULL) {
        nd_log_reader_destroy(&reader);
        return nd_fail_memory(err);
    }
    reader->options = own;
    find_pairs(reader);
    *out = reader;
    return ND_OK;
}

void nd_log_reader_destroy(struct nd_log_reader **reader)
{
    if (*reader != NULL)
        free((*reader)->pairs);
    free(*reader);
    *reader = NULL;
}

enum nd_status nd_log_read_bytes(const void *bytes, size_t n_bytes, const struct nd_log_options *options,
                                 struct nd_log_summary *out, struct nd_error *err)
{
    ND_CLEANUP(nd_log_reader_destroy) struct nd_log_reader *reader = NULL;
    ND_TRY(nd_log_reader_create(options, &reader, err));
    nd_log_reader_feed(reader, bytes, n_bytes);
    nd_log_reader_end(reader, out);
    return ND_OK;
}

enum nd_status nd_log_read_file(const char *path, const struct nd_log_options *options,
                                struct nd_log_summary *out, struct nd_error *err)
{
    ND_CLEANUP(nd_log_reader_destroy) struct nd_log_reader *reader = NULL;
    ND_FREED unsigned char *buffer = NULL;
    size_t n;
    ND_CLEANUP(nd_stdio_close) FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    buffer = malloc(READ_BYTES);
    ND_TRY_MEMORY(buffer != NULL, err);
    ND_TRY(nd_log_reader_create(options, &reader, err));
    while ((n = fread(buffer, 1, READ_BYTES, file)) > 0)
        nd_log_reader_feed(reader, buffer, n);
    if (ferror(file))
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    nd_log_reader_end(reader, out);
    return ND_OK;
}
