/* Failures of a session in the logs of a run, and failures of a graph, told apart by the model. */
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/agent/spool/spool.h"
#include "model/graph/loaded.h"
#include "model/graph/parts.h"
#include "npudiff/capture/logs.h"
#include "record/sessions/capture_run.h"

/* Every tensor that one node makes and another reads; constants are no reason to fail. */
static size_t list_links(const struct nd_graph *graph, size_t (*links)[2])
{
    size_t n = 0;
    for (size_t node = 0; node < graph->n_nodes; node++)
        for (size_t m = 0; m < graph->nodes[node].n_made; m++) {
            size_t tensor = graph->made[graph->nodes[node].first_made + m];
            for (size_t r = 0; tensor != ND_NO_INDEX && r < graph->tensors[tensor].n_readers; r++, n++)
                if (links != NULL) {
                    links[n][0] = node;
                    links[n][1] = graph->readers[graph->tensors[tensor].first_reader + r];
                }
        }
    return n;
}

enum nd_status nd_failure_cascade_of_model(const struct nd_log_finding *findings, size_t n,
                                           const struct nd_model *model, struct nd_failure_cascade *out,
                                           struct nd_error *err)
{
    size_t n_nodes = model->graph.n_nodes, n_links = list_links(&model->graph, NULL);
    ND_FREED const char **names = nd_calloc(n_nodes, sizeof *names);
    ND_FREED size_t(*links)[2] = nd_calloc(n_links, sizeof *links);
    ND_TRY_MEMORY(names != NULL && links != NULL, err);
    list_links(&model->graph, links);
    for (size_t i = 0; i < n_nodes; i++)
        names[i] = model->nodes[i].name;
    const struct nd_failure_graph graph = {
        .names = names, .n_nodes = n_nodes, .links = (const size_t(*)[2])links, .n_links = n_links};
    return nd_failure_cascade_find(findings, n, &graph, out, err);
}

/* ---- the table ---- */

static bool is_kept(const struct nd_log_findings *findings, size_t i, bool only_serious)
{
    return !only_serious || findings->items[i].severity != ND_LOG_NOTE;
}

static struct nd_capture_finding row_of(const struct nd_log_finding *finding)
{
    return (struct nd_capture_finding){
        .kind = (char *)(uintptr_t)nd_log_kind_name(finding->kind),
        .severity = (char *)(uintptr_t)nd_log_severity_name(finding->severity),
        .log = finding->log,
        .op = finding->op,
        .node = finding->node,
        .symbol = (char *)(uintptr_t)finding->symbol,
        .text = finding->text,
        .line = (int64_t)finding->line,
        .code = finding->has_code ? finding->code : 0,
    };
}

enum nd_status nd_findings_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                 struct nd_error *err)
{
    bool only_serious = findings->n + findings->n_left_out > ND_FINDINGS_MAX_ROWS;
    size_t n = 0, n_kept = 0;
    char said[80];
    enum nd_status status = ND_OK;
    if (findings->n == 0)
        return ND_OK;
    ND_FREED struct nd_capture_finding *rows = nd_calloc(ND_FINDINGS_MAX_ROWS + 1, sizeof *rows);
    ND_TRY_MEMORY(rows != NULL, err);
    for (size_t i = 0; i < findings->n && n < ND_FINDINGS_MAX_ROWS && status == ND_OK; i++) {
        if (!is_kept(findings, i, only_serious))
            continue;
        rows[n] = row_of(&findings->items[i]);
        rows[n].text = strndup(rows[n].text, ND_FINDINGS_MAX_TEXT);
        status = rows[n].text != NULL ? ND_OK : nd_fail_memory(err);
        n_kept += status == ND_OK;
        n += status == ND_OK;
    }
    size_t n_left_out = findings->n + findings->n_left_out - n_kept;
    if (status == ND_OK && n_left_out > 0) {
        snprintf(said, sizeof said, "%zu findings are left out here; 'npudiff logs' reads them", n_left_out);
        rows[n++] = (struct nd_capture_finding){.kind = (char *)(uintptr_t)nd_log_kind_name(ND_LOG_LIMIT),
                                                .severity = (char *)(uintptr_t) "note",
                                                .log = findings->items[0].log,
                                                .text = said};
    }
    if (status == ND_OK)
        status = nd_capture_writer_findings(writer, rows, n, err);
    for (size_t i = 0; i < n_kept; i++)
        free(rows[i].text);
    return status;
}

/* ---- the failure ---- */

struct cell {
    enum nd_log_stage stage;
    bool has_code;
    int64_t code;
    const char *op, *log_node, *model_node;
    const struct nd_log_finding *memory;
    struct nd_failure_cascade cascade;
};

static size_t find_model_node(const struct nd_model *model, const char *log_node)
{
    size_t n = model != NULL ? nd_model_n_nodes(model) : 0;
    ND_FREED const char **names = nd_calloc(n, sizeof *names);
    for (size_t i = 0; names != NULL && i < n; i++)
        names[i] = nd_model_node(model, i)->name;
    return names != NULL ? nd_failure_find_node(names, n, log_node) : SIZE_MAX;
}

/* What one line adds to what is known: nothing that another said before. */
static void take_finding(struct cell *cell, const struct nd_log_finding *finding)
{
    bool is_failure = finding->kind == ND_LOG_FAILURE && finding->severity == ND_LOG_BAD;
    if (finding->kind == ND_LOG_MEMORY && finding->n_amounts > 0 && cell->memory == NULL)
        cell->memory = finding;
    if (!is_failure || (cell->stage != ND_LOG_STAGE_NONE && finding->stage != cell->stage))
        return;
    cell->stage = finding->stage;
    if (!cell->has_code && finding->has_code && finding->code != 0) {
        cell->has_code = true;
        cell->code = finding->code;
    }
    if (cell->log_node[0] == '\0' && finding->node[0] != '\0') {
        cell->log_node = finding->node;
        cell->op = finding->op;
    }
}

static const struct nd_failure *first_root(const struct nd_failure_cascade *cascade)
{
    for (size_t i = 0; i < cascade->n; i++)
        if (cascade->failures[i].role == ND_FAILURE_ROOT)
            return &cascade->failures[i];
    return cascade->n > 0 ? &cascade->failures[0] : NULL;
}

static enum nd_status find_operator(struct cell *cell, const struct nd_log_findings *findings,
                                    const struct nd_model *model, struct nd_error *err)
{
    enum nd_status status =
        model != NULL ? nd_failure_cascade_of_model(findings->items, findings->n, model, &cell->cascade, err)
                      : nd_failure_cascade_find(findings->items, findings->n, NULL, &cell->cascade, err);
    const struct nd_failure *root = status == ND_OK ? first_root(&cell->cascade) : NULL;
    if (root != NULL) {
        cell->op = root->op;
        cell->log_node = root->log_node;
    }
    size_t node = find_model_node(model, cell->log_node);
    if (node != SIZE_MAX) {
        cell->model_node = nd_model_node(model, node)->name;
        cell->op = cell->op[0] == '\0' ? nd_model_node(model, node)->op_type : cell->op;
    }
    return status;
}

static enum nd_status put_attr(struct nd_capture_writer *writer, const char *key, const char *text,
                               double number, struct nd_error *err)
{
    const struct nd_attr attr = {.group = (char *)(uintptr_t) "failure",
                                 .key = (char *)(uintptr_t)key,
                                 .type = text != NULL ? ND_ATTR_STRING : ND_ATTR_I64,
                                 .string = (char *)(uintptr_t)text,
                                 .i64 = (int64_t)number};
    return text != NULL && *text == '\0' ? ND_OK : nd_capture_writer_attr(writer, &attr, err);
}

static enum nd_status put_cell(struct nd_capture_writer *writer, const struct cell *cell, struct nd_error *err)
{
    ND_TRY(put_attr(writer, "qnn_stage", nd_log_stage_name(cell->stage), 0, err));
    if (cell->has_code)
        ND_TRY(put_attr(writer, "raw_code", NULL, (double)cell->code, err));
    if (cell->has_code)
        ND_TRY(put_attr(writer, "symbol", nd_log_code_symbol(cell->code), 0, err));
    ND_TRY(put_attr(writer, "operator", cell->op, 0, err));
    ND_TRY(put_attr(writer, "log_node", cell->log_node, 0, err));
    ND_TRY(put_attr(writer, "node", cell->model_node, 0, err));
    if (cell->cascade.n > 0) {
        ND_TRY(put_attr(writer, "n_roots", NULL, (double)cell->cascade.n_roots, err));
        ND_TRY(put_attr(writer, "n_followers", NULL, (double)cell->cascade.n_followers, err));
        ND_TRY(put_attr(writer, "n_unplaced", NULL, (double)cell->cascade.n_unplaced, err));
    }
    for (size_t i = 0; cell->memory != NULL && i < cell->memory->n_amounts; i++) {
        char key[32];
        snprintf(key, sizeof key, "memory_%s", cell->memory->amounts[i].name);
        ND_TRY(put_attr(writer, key, NULL, cell->memory->amounts[i].value, err));
    }
    return ND_OK;
}

/* What follows "initializer" or "initializers"; of one or of more. */
static const char *const are_open[] = {
    "are graph inputs, too, and so no constants from IR version 4 on: remove them from the graph's inputs",
    "is a graph input, too, and so no constant from IR version 4 on: remove it from the graph's inputs"};

/* Initializers that are graph inputs, too, are what a QNN graph gets no values for. */
static void say_open(const struct nd_model *model, struct nd_error *failure)
{
    size_t n = 0, used = strlen(failure->message);
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        n += nd_model_is_operator(model, i) ? nd_model_n_open_constants(model, i) : 0;
    if (n > 0 && strstr(failure->message, "QNN") != NULL)
        snprintf(failure->message + used, sizeof failure->message - used, "; %zu initializer%s of the model %s",
                 n, n == 1 ? "" : "s", are_open[n == 1]);
}

/* What the message of the provider lacks: which operator it was. */
static void say(const struct cell *cell, struct nd_error *failure)
{
    size_t n = strlen(failure->message), room = sizeof failure->message - n;
    bool is_in_model = cell->model_node[0] != '\0';
    char at[160] = "", followers[80] = "";
    if (cell->op[0] == '\0' && cell->log_node[0] == '\0')
        return;
    if (cell->log_node[0] != '\0')
        snprintf(at, sizeof at, "%s '%s'", is_in_model ? " at node" : " at what the log calls",
                 is_in_model ? cell->model_node : cell->log_node);
    if (cell->cascade.n > 1)
        snprintf(followers, sizeof followers, ", %zu followers, %zu more that fail", cell->cascade.n_followers,
                 cell->cascade.n - 1 - cell->cascade.n_followers);
    snprintf(failure->message + n, room, "; root: %s%s%s%s", cell->op[0] != '\0' ? cell->op : "an operator", at,
             followers,
             cell->has_code && cell->code == 1002 && cell->cascade.n > 0 && cell->memory == NULL
                 ? " (code 1002 is here an operator that cannot be constructed, not memory)"
                 : "");
}

enum nd_status nd_failure_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                const struct nd_model *model, struct nd_error *failure, struct nd_error *err)
{
    struct cell cell = {.op = "", .log_node = "", .model_node = ""};
    ND_CLEANUP(nd_log_findings_deinit) struct nd_log_findings said = {0};
    struct nd_log_summary summary;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = "message", .visit = nd_log_findings_add, .context = &said};
    enum nd_status status =
        nd_log_read_bytes(failure->message, strlen(failure->message), &options, &summary, err);
    if (status == ND_OK && said.failed)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < said.n; i++)
        take_finding(&cell, &said.items[i]);
    for (size_t i = 0; i < findings->n; i++)
        take_finding(&cell, &findings->items[i]);
    if (status == ND_OK)
        status = find_operator(&cell, findings, model, err);
    if (status == ND_OK)
        status = put_cell(writer, &cell, err);
    if (status == ND_OK)
        say(&cell, failure);
    if (status == ND_OK && model != NULL)
        say_open(model, failure);
    nd_failure_cascade_deinit(&cell.cascade);
    return status;
}

/* ---- nodes that do not run on the NPU ---- */

enum { MAX_NAMED = 4, REASON_BYTES = 168 };

/* What the provider said of the node when it refused it: "" where it did not. */
static void find_refusal(const struct nd_spool_index *index, const char *op_type, const char *name,
                         char reason[static REASON_BYTES])
{
    static const char mark[] = "REASON : ";
    ND_FREED char *key = nd_text("Operator type: %s Node name: %s Node", op_type, name);
    reason[0] = '\0';
    for (size_t i = 0; key != NULL && i < index->n_logs && reason[0] == '\0'; i++) {
        ND_FREED char *message = nd_fields_get(&index->logs[i], "message");
        const char *at = message != NULL ? strstr(message, "Validation FAILED") : NULL;
        if (at == NULL || strstr(at, key) == NULL || (at = strstr(at, mark)) == NULL)
            continue;
        at += sizeof mark - 1;
        snprintf(reason, REASON_BYTES, "%.*s", (int)strcspn(at, ".\r\n"), at);
    }
}

/* The operator of the model that the row of a session is; SIZE_MAX: none, as of a quantiser and of what a
 * layout pass added. */
static size_t find_operator_of(const struct nd_model *model, const char *op_type, const char *name)
{
    size_t n_stem = nd_token_stem_bytes(name);
    for (size_t i = 0; i < nd_model_n_nodes(model); i++) {
        const char *own = nd_model_node(model, i)->name;
        bool is_named = strcmp(own, name) == 0 || (strlen(own) == n_stem && memcmp(own, name, n_stem) == 0);
        if (is_named && nd_model_is_operator(model, i) &&
            strcmp(nd_model_node(model, i)->op_type, op_type) == 0)
            return i;
    }
    return SIZE_MAX;
}

/* A node, with what is known of why it is not on the NPU. */
static void name_refused(struct nd_strbuf *out, const struct nd_spool_index *index,
                         const struct nd_model *model, const char *op_type, const char *name)
{
    char reason[REASON_BYTES];
    size_t node = find_operator_of(model, op_type, name);
    size_t n_open = node != SIZE_MAX ? nd_model_n_open_constants(model, node) : 0;
    find_refusal(index, op_type, name, reason);
    nd_strbuf_printf(out, "%s%s '%s'", out->len > 0 ? ", " : "", op_type, name);
    if (n_open > 0)
        nd_strbuf_printf(out, " (%s%s%zu of its initializers %s)", reason, reason[0] != '\0' ? "; " : "",
                         n_open, are_open[n_open == 1]);
    else if (reason[0] != '\0')
        nd_strbuf_printf(out, " (%s)", reason);
}

/* Names the rows that fell, as far as there is room: the operators of the model, or else what there is. */
static bool name_rows(struct nd_strbuf *out, const struct nd_spool_index *index, const struct nd_model *model,
                      bool of_operators, size_t *n)
{
    uint64_t is_fell_back;
    bool is_whole = true;
    for (size_t i = 0; is_whole && i < index->n_nodes; i++) {
        if (!nd_fields_get_u64(&index->nodes[i], "fell_back", &is_fell_back))
            continue;
        ND_FREED char *op_type = nd_fields_text(&index->nodes[i], "op_type");
        ND_FREED char *name = nd_fields_text(&index->nodes[i], "name");
        is_whole = op_type != NULL && name != NULL;
        if (!is_whole || (find_operator_of(model, op_type, name) != SIZE_MAX) != of_operators)
            continue;
        if (out != NULL && *n < MAX_NAMED)
            name_refused(out, index, model, op_type, name);
        ++*n;
    }
    return is_whole;
}

void nd_fallback_say(const struct nd_spool_index *index, const struct nd_model *model, struct nd_error *failure)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf named = {0};
    size_t n_operators = 0, n_others = 0, n_all = 0;
    char others[48] = "";
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        n_all += nd_model_is_operator(model, i);
    if (!name_rows(&named, index, model, true, &n_operators) ||
        !name_rows(n_operators == 0 ? &named : NULL, index, model, false, &n_others) || named.len == 0)
        return;
    snprintf(others, sizeof others, "%zu quantiser%s", n_others, n_others == 1 ? "" : "s");
    bool is_more = (n_operators > 0 ? n_operators : n_others) > MAX_NAMED;
    if (n_operators == 0)
        snprintf(failure->message, sizeof failure->message, "%s, but none of %zu operators,", others, n_all);
    else
        snprintf(failure->message, sizeof failure->message, "%zu of %zu operators%s%s%s", n_operators, n_all,
                 n_others > 0 ? " (and " : "", n_others > 0 ? others : "", n_others > 0 ? " around them)" : "");
    size_t n = strlen(failure->message);
    snprintf(failure->message + n, sizeof failure->message - n,
             " %s not run on the NPU: %.640s%s; --allow-fallback leaves them to the CPU, 'npudiff placement' "
             "lists them all",
             n_operators + (n_operators == 0 ? n_others : 0) == 1 ? "does" : "do", named.text,
             is_more ? ", ..." : "");
}
