#include "reduce/failure.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- texts ---- */

static size_t copy_until(const char *from, const char *stop, char *out, size_t size)
{
    size_t n = strcspn(from, stop);
    n = n < size - 1 ? n : size - 1;
    memcpy(out, from, n);
    out[n] = '\0';
    return n;
}

/* The byte after a name in quotes that starts at text, or text itself. */
static const char *skip_quoted(const char *text)
{
    if (strchr("'\"`", *text) == NULL)
        return text;
    size_t n = strcspn(text + 1, "'\"`\n");
    return text[1 + n] == text[0] ? text + n + 2 : text;
}

void nd_failure_normalise(const char *text, char *out, size_t size)
{
    size_t n = 0;
    while (*text != '\0' && n + 4 < size) {
        const char *end = skip_quoted(text);
        if (end != text) {
            memcpy(out + n, "'*'", 3);
            n += 3;
            text = end;
        } else if (text[0] == '0' && text[1] == 'x') {
            memcpy(out + n, "0x*", 3);
            n += 3;
            for (text += 2; isxdigit((unsigned char)*text); text++)
                ;
        } else if (isdigit((unsigned char)*text)) {
            size_t digits = strspn(text, "0123456789");
            for (size_t i = 0; digits < 5 && i < digits && n + 1 < size; i++)
                out[n++] = text[i];
            if (digits >= 5)
                out[n++] = '#';
            text += digits;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = '\0';
}

/* ---- reading ---- */

/* strstr within one line: a log may have a million of them. */
static const char *find_in_line(const char *line, size_t length, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t at = 0; at + n <= length; at++)
        if (line[at] == mark[0] && memcmp(line + at, mark, n) == 0)
            return line + at;
    return NULL;
}

static bool copy_line_after(const char *line, const char *mark, char *out, size_t size)
{
    const char *found = find_in_line(line, strcspn(line, "\n"), mark);
    if (found == NULL)
        return false;
    char text[512];
    copy_until(found + strlen(mark), "\n", text, sizeof text);
    nd_failure_normalise(text, out, size);
    return true;
}

/* The operator that QNN's graph preparation could not make: "q::QNN_Elu". */
static bool read_operator(const char *line, char *out, size_t size)
{
    static const char *const marks[] = {"could not create op: ", "No registered op found"};
    size_t length = strcspn(line, "\n");
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *found = find_in_line(line, length, marks[i]);
        const char *name = found != NULL ? find_in_line(found, length - (size_t)(found - line), "q::") : NULL;
        if (name != NULL) {
            copy_until(name, " '\"`)\n", out, size);
            return true;
        }
    }
    return false;
}

void nd_failure_find_cause(const char *log, struct nd_reduction_failure *out)
{
    /* In this order: the first names an operator, and the second and third say why, if less surely. */
    static const char *const marks[] = {"::ERROR:", "[error] "};
    out->cause[0] = out->operator[0] = '\0';
    for (const char *line = log; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n')
        if (read_operator(line, out->operator, sizeof out->operator)) {
            snprintf(out->cause, sizeof out->cause, "could not create op: %s", out->operator);
            return;
        }
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        for (const char *line = log; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n')
            if (copy_line_after(line, marks[i], out->cause, sizeof out->cause))
                return;
}

/* Which operators fall back is the reason; the first stands for all: "Erf". */
static void read_fallen(const char *message, struct nd_reduction_failure *out)
{
    const char *colon = strstr(message, ": ");
    if (colon == NULL)
        return;
    copy_until(colon + 2, " ", out->operator, sizeof out->operator);
    snprintf(out->cause, sizeof out->cause, "%s does not run on the NPU", out->operator);
}

void nd_failure_read(const struct nd_capture_outcome *outcome, const struct nd_capture *capture,
                     struct nd_reduction_failure *out)
{
    *out = (struct nd_reduction_failure){.id = outcome->failure.id};
    snprintf(out->stage, sizeof out->stage, "%s", outcome->stage);
    snprintf(out->message, sizeof out->message, "%.511s", outcome->failure.message);
    if (out->id == ND_E_DEVICE_FALLBACK) {
        read_fallen(out->message, out);
        return;
    }
    for (size_t i = 0; capture != NULL && out->cause[0] == '\0' && i < nd_capture_n_logs(capture); i++)
        nd_failure_find_cause(nd_capture_log_text(capture, i), out);
}

bool nd_failure_is_same(const struct nd_reduction_failure *a, const struct nd_reduction_failure *b)
{
    char left[sizeof a->message], right[sizeof b->message];
    if (strcmp(a->stage, b->stage) != 0 || a->id != b->id || strcmp(a->cause, b->cause) != 0)
        return false;
    if (a->id == ND_E_DEVICE_FALLBACK)
        return true;
    nd_failure_normalise(a->message, left, sizeof left);
    nd_failure_normalise(b->message, right, sizeof right);
    return strcmp(left, right) == 0;
}

/* ---- which nodes it speaks of ---- */

/* Runtimes rename: "broken_elu", "broken_token_12" are the node "broken". The length of the name that fits, 0
 * for none. */
static size_t match_name(const char *token, size_t length, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > length || memcmp(token, name, n) != 0)
        return 0;
    return n == length || token[n] == '_' ? n : 0;
}

static void score_token(const struct nd_model *model, const char *token, size_t length, unsigned points,
                        unsigned *score)
{
    size_t best = SIZE_MAX, best_length = 0;
    for (size_t n = 0; n < nd_model_n_nodes(model); n++) {
        size_t fits = match_name(token, length, nd_model_node(model, n)->name);
        if (fits > best_length) {
            best = n;
            best_length = fits;
        }
    }
    if (best != SIZE_MAX && score[best] < points)
        score[best] = points;
}

/* Everything in quotes on one line. */
static void score_line(const struct nd_model *model, const char *line, size_t length, unsigned points,
                       unsigned *score)
{
    for (const char *at = line; at < line + length; at++) {
        const char *end = skip_quoted(at);
        if (end == at)
            continue;
        score_token(model, at + 1, (size_t)(end - at) - 2, points, score);
        at = end - 1;
    }
}

static bool is_about_error(const char *line, size_t length)
{
    static const char *const marks[] = {"ERROR", "<E>", "[error]", "failed for node"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (find_in_line(line, length, marks[i]) != NULL)
            return true;
    return false;
}

static void squeeze(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text != '\0' && *text != '.' && n + 1 < size; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
}

/* "q::QNN_Elu" is what becomes of Elu and Selu, "q::ScatterNd.tcm" of ScatterND. */
static bool is_of_kind(const char *operator, const char * op_type)
{
    char made[64], asked[64];
    const char *name = strncmp(operator, "q::", 3) == 0 ? operator+ 3 : operator;
    squeeze(strncmp(name, "QNN_", 4) == 0 ? name + 4 : name, made, sizeof made);
    squeeze(op_type, asked, sizeof asked);
    if (strlen(made) < 3 || strlen(asked) < 2)
        return false;
    return strstr(made, asked) != NULL || strstr(asked, made) != NULL ||
           (strcmp(made, "select") == 0 && strcmp(asked, "where") == 0);
}

void nd_failure_score_nodes(const struct nd_model *model, const struct nd_reduction_failure *failure,
                            const struct nd_capture *capture, unsigned *score)
{
    enum { BY_RARE_KIND = ND_FAILURE_BEST_SCORE, BY_MESSAGE = 3, BY_LOG = 2, BY_KIND = 1, RARE = 4 };
    memset(score, 0, nd_model_n_nodes(model) * sizeof *score);
    score_line(model, failure->message, strlen(failure->message), BY_MESSAGE, score);
    for (size_t i = 0; capture != NULL && i < nd_capture_n_logs(capture); i++) {
        const char *line = nd_capture_log_text(capture, i);
        while (*line != '\0') {
            size_t length = strcspn(line, "\n");
            if (is_about_error(line, length))
                score_line(model, line, length, BY_LOG, score);
            line += length + (line[length] == '\n');
        }
    }
    if (failure->operator[0] == '\0')
        return;
    /* Names are those of whatever the device was at when it gave up, after it had moved operators about; a kind
     * of which there is next to nothing else in the model says more. */
    size_t n_of_kind = 0;
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        n_of_kind += is_of_kind(failure->operator, nd_model_node(model, n)->op_type);
    unsigned points = n_of_kind <= RARE ? BY_RARE_KIND : BY_KIND;
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        if (score[n] < points && is_of_kind(failure->operator, nd_model_node(model, n)->op_type))
            score[n] = points;
}
