/* Whether two failures are the same one, and which nodes a failure names. */
#include "improve/reduce/candidate_failure.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "npudiff/capture/logs.h"

/* ---- texts ---- */

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

static void copy_string(const struct nd_capture *capture, const char *key, char *out, size_t size)
{
    const char *text = nd_capture_string(capture, "failure", key);
    if (text != NULL)
        snprintf(out, size, "%.*s", (int)size - 1, text);
}

static void read_code(const struct nd_capture *capture, struct nd_reduction_failure *out)
{
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (attr->type == ND_ATTR_I64 && strcmp(attr->group, "failure") == 0 &&
            strcmp(attr->key, "raw_code") == 0) {
            out->has_raw_code = true;
            out->raw_code = attr->i64;
        }
    }
}

/* How well a finding says why: one that names the operator, one that names what is wrong with it, anything else
 * that failed; what the backend had against the node that was not placed in the end; nothing. */
static unsigned rank_reason(const struct nd_capture_finding *finding, const char *log_node)
{
    static const char *const telling[] = {"quantisation", "memory", "version", "arch", "library", "device"};
    bool is_failure = strcmp(finding->severity, "failure") == 0;
    if (!is_failure || strcmp(finding->kind, "fallback") == 0)
        return strcmp(finding->kind, "validation") == 0 && log_node != NULL &&
               strcmp(finding->node, log_node) == 0;
    if (strcmp(finding->kind, "preparation") == 0 && finding->op[0] != '\0')
        return 4;
    for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++)
        if (strcmp(finding->kind, telling[i]) == 0)
            return 3;
    return 2;
}

/* A line without what every line begins with: where in the runtime it was written. */
static const char *skip_source(const char *line)
{
    static const char *const marks[] = {"ERROR:", "<E> ", "] "};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *found = strstr(line, marks[i]);
        if (found != NULL)
            return found + strlen(marks[i]);
    }
    return line;
}

static void read_cause(const struct nd_capture *capture, struct nd_reduction_failure *out)
{
    const struct nd_capture_finding *best = NULL;
    const char *log_node = nd_capture_string(capture, "failure", "log_node");
    unsigned best_rank = 0;
    for (size_t i = 0; i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *finding = nd_capture_finding(capture, i);
        unsigned rank = rank_reason(finding, log_node);
        if (rank > best_rank) {
            best = finding;
            best_rank = rank;
        }
    }
    if (best == NULL)
        return;
    snprintf(out->cause_kind, sizeof out->cause_kind, "%.15s", best->kind);
    snprintf(out->cause, sizeof out->cause, "%.191s", skip_source(best->text));
}

/* Which operators fall back is the reason; the first stands for all: "Erf". */
static void read_fell_back(const char *message, struct nd_reduction_failure *out)
{
    const char *colon = strstr(message, ": ");
    if (colon == NULL)
        return;
    snprintf(out->op, sizeof out->op, "%.*s", (int)strcspn(colon + 2, " "), colon + 2);
    snprintf(out->cause, sizeof out->cause, "%s does not run on the NPU", out->op);
    snprintf(out->cause_kind, sizeof out->cause_kind, "fallback");
}

void nd_failure_read(const struct nd_capture_outcome *outcome, const struct nd_capture *capture,
                     struct nd_reduction_failure *out)
{
    *out = (struct nd_reduction_failure){.id = outcome->failure.id};
    snprintf(out->stage, sizeof out->stage, "%s", outcome->stage);
    snprintf(out->message, sizeof out->message, "%.511s", outcome->failure.message);
    if (capture != NULL) {
        /* That of the outcome also tells what the logs say, with names and counts. */
        copy_string(capture, "message", out->message, sizeof out->message);
        copy_string(capture, "qnn_stage", out->qnn_stage, sizeof out->qnn_stage);
        copy_string(capture, "symbol", out->symbol, sizeof out->symbol);
        copy_string(capture, "operator", out->op, sizeof out->op);
        copy_string(capture, "node", out->node, sizeof out->node);
        read_code(capture, out);
    }
    if (out->id == ND_E_DEVICE_FALLBACK)
        read_fell_back(out->message, out);
    else if (capture != NULL)
        read_cause(capture, out);
}

bool nd_failure_is_same(const struct nd_reduction_failure *a, const struct nd_reduction_failure *b)
{
    char left[sizeof a->message], right[sizeof b->message];
    if (strcmp(a->stage, b->stage) != 0 || a->id != b->id || strcmp(a->op, b->op) != 0 ||
        strcmp(a->cause_kind, b->cause_kind) != 0)
        return false;
    if (a->id == ND_E_DEVICE_FALLBACK)
        return true;
    if (strcmp(a->qnn_stage, b->qnn_stage) != 0 || a->has_raw_code != b->has_raw_code ||
        a->raw_code != b->raw_code)
        return false;
    nd_failure_normalise(a->message, left, sizeof left);
    nd_failure_normalise(b->message, right, sizeof right);
    return strcmp(left, right) == 0;
}

/* ---- which nodes it speaks of ---- */

static void squeeze(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text != '\0' && *text != '.' && n + 1 < size; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
}

/* "q::QNN_Elu" is what becomes of Elu and Selu, "q::ScatterNd.tcm" of ScatterND. */
static bool is_of_kind(const char *op, const char *op_type)
{
    char made[64], asked[64];
    const char *name = strncmp(op, "q::", 3) == 0 ? op + 3 : op;
    squeeze(strncmp(name, "QNN_", 4) == 0 ? name + 4 : name, made, sizeof made);
    squeeze(op_type, asked, sizeof asked);
    if (strlen(made) < 3 || strlen(asked) < 2)
        return false;
    return strstr(made, asked) != NULL || strstr(asked, made) != NULL ||
           (strcmp(made, "select") == 0 && strcmp(asked, "where") == 0);
}

static void raise(unsigned *score, size_t node, unsigned points)
{
    if (node != SIZE_MAX && score[node] < points)
        score[node] = points;
}

/* By the names that the findings give, which are those of whatever the device was at when it gave up, after it
 * had moved operators about. */
static void score_names(const char *const *names, size_t n, const struct nd_reduction_failure *failure,
                        const struct nd_capture *capture, unsigned *score)
{
    enum { BY_NODE = 3, BY_FINDING = 2, BY_WARNING = 1 };
    if (failure->node[0] != '\0')
        raise(score, nd_failure_find_node(names, n, failure->node), BY_NODE);
    for (size_t i = 0; capture != NULL && i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *finding = nd_capture_finding(capture, i);
        if (finding->node[0] != '\0' && strcmp(finding->severity, "note") != 0)
            raise(score, nd_failure_find_node(names, n, finding->node),
                  strcmp(finding->severity, "failure") == 0 ? BY_FINDING : BY_WARNING);
    }
}

/* A kind of which there is next to nothing else in the model says more than a name. */
static void score_kinds(const struct nd_model *model, const char *op, unsigned *score)
{
    enum { BY_RARE_KIND = ND_FAILURE_BEST_SCORE, BY_KIND = 1, RARE = 4 };
    size_t n_of_kind = 0;
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        n_of_kind += is_of_kind(op, nd_model_node(model, n)->op_type);
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        if (is_of_kind(op, nd_model_node(model, n)->op_type))
            raise(score, n, n_of_kind <= RARE ? BY_RARE_KIND : BY_KIND);
}

enum nd_status nd_failure_score_nodes(const struct nd_model *model, const struct nd_reduction_failure *failure,
                                      const struct nd_capture *capture, unsigned *score, struct nd_error *err)
{
    size_t n = nd_model_n_nodes(model);
    ND_FREED const char **names = nd_calloc(n, sizeof *names);
    ND_TRY_MEMORY(names != NULL, err);
    for (size_t i = 0; i < n; i++) {
        names[i] = nd_model_node(model, i)->name;
        score[i] = 0;
    }
    score_names(names, n, failure, capture, score);
    if (failure->op[0] != '\0')
        score_kinds(model, failure->op, score);
    return ND_OK;
}
