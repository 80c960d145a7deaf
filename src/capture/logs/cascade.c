/* One root and its followers: which failures of a preparation come from which. */

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/capture/logs.h"

/* Of a log with more, the rest is not looked at: what is told apart here takes time in the square of it. */
enum { MAX_FAILURES = 5000 };

/* A failure in the making. */
struct draft {
    size_t node;   /* of the graph; SIZE_MAX */
    size_t parent; /* failure that it follows; SIZE_MAX */
    bool was_told; /* "could not create op" was there: the next such line is about another */
    bool has_inputs;
};

struct work {
    const struct nd_log_finding *findings;
    size_t n_findings;
    const struct nd_failure_graph *graph;
    struct nd_failure *failures;
    struct draft *drafts;
    size_t *owner; /* per finding: the failure that it is about; SIZE_MAX */
    size_t n;
};

static bool is_preparation(const struct nd_log_finding *finding)
{
    return finding->kind == ND_LOG_PREPARATION && finding->severity != ND_LOG_WARNING;
}

/* "node" generated: could not create op */
static bool is_generated(const struct nd_log_finding *finding)
{
    return is_preparation(finding) && finding->node[0] != '\0';
}

/* An "Input k: id=[...]" line behind the failure that reads it. */
static bool is_input(const struct nd_log_finding *finding)
{
    return is_preparation(finding) && finding->severity == ND_LOG_NOTE;
}

static void add_failure(struct work *work, size_t finding)
{
    const struct nd_log_finding *from = &work->findings[finding];
    work->drafts[work->n] = (struct draft){.node = SIZE_MAX, .parent = SIZE_MAX};
    work->failures[work->n++] = (struct nd_failure){
        .finding = finding, .op = from->op, .op_id = from->op_id, .log_node = from->node, .model_node = ""};
}

/* Lines of one failure follow one another: of one id, or one of them without. */
static size_t find_failure(const struct work *work, const struct nd_log_finding *finding)
{
    bool has_id = finding->op_id[0] != '\0';
    for (size_t i = work->n; has_id && i-- > 0;)
        if (strcmp(work->failures[i].op_id, finding->op_id) == 0)
            return i;
    if (work->n == 0)
        return SIZE_MAX;
    const struct nd_failure *last = &work->failures[work->n - 1];
    bool is_same_op = finding->op[0] == '\0' || strcmp(last->op, finding->op) == 0;
    bool is_open = has_id ? last->op_id[0] == '\0' : !work->drafts[work->n - 1].was_told;
    return is_same_op && is_open ? work->n - 1 : SIZE_MAX;
}

/* A line that tells of an operator: about a failure that is known, or a new one. */
static size_t take_operator(struct work *work, size_t f)
{
    const struct nd_log_finding *finding = &work->findings[f];
    size_t i = find_failure(work, finding);
    if (i == SIZE_MAX && work->n == MAX_FAILURES)
        return SIZE_MAX;
    if (i == SIZE_MAX) {
        i = work->n;
        add_failure(work, f);
    }
    struct nd_failure *failure = &work->failures[i];
    failure->op = failure->op[0] == '\0' ? finding->op : failure->op;
    failure->op_id = failure->op_id[0] == '\0' ? finding->op_id : failure->op_id;
    work->drafts[i].was_told = work->drafts[i].was_told || finding->op_id[0] == '\0';
    return i;
}

static void collect(struct work *work)
{
    bool is_full = false; /* what comes now is about failures that are not looked at */
    for (size_t f = 0; f < work->n_findings; f++) {
        const struct nd_log_finding *finding = &work->findings[f];
        bool is_told = finding->op[0] != '\0' || finding->op_id[0] != '\0';
        work->owner[f] = SIZE_MAX;
        if (is_full || !is_told || !is_preparation(finding) || is_generated(finding))
            continue;
        if (!is_input(finding)) {
            work->owner[f] = take_operator(work, f);
            is_full = work->owner[f] == SIZE_MAX;
        } else if (work->n > 0) {
            work->owner[f] = work->n - 1;
            work->drafts[work->n - 1].has_inputs = true;
        }
    }
}

/* Which node each failure is of: as many such lines as failures stand in their order; else a line belongs to
 * the failure right before it. Without any other line each is a failure. */
static void name_nodes(struct work *work)
{
    size_t n_generated = 0, next = 0, last = SIZE_MAX;
    for (size_t f = 0; f < work->n_findings; f++)
        n_generated += is_generated(&work->findings[f]);
    bool are_alone = work->n == 0, are_paired = n_generated == work->n;
    for (size_t f = 0; f < work->n_findings; f++) {
        if (work->owner[f] != SIZE_MAX)
            last = work->owner[f];
        if (!is_generated(&work->findings[f]))
            continue;
        if (are_alone) {
            if (work->n < MAX_FAILURES)
                add_failure(work, f);
            continue;
        }
        size_t i = are_paired ? next++ : last;
        if (i < work->n && work->failures[i].log_node[0] == '\0')
            work->failures[i].log_node = work->findings[f].node;
    }
    for (size_t i = 0; i < work->n && work->graph != NULL; i++) {
        const struct nd_failure_graph *graph = work->graph;
        size_t node = nd_failure_find_node(graph->names, graph->n_nodes, work->failures[i].log_node);
        work->drafts[i].node = node;
        work->failures[i].model_node = node != SIZE_MAX ? graph->names[node] : "";
    }
}

/* By the ids of what a failed operator reads. */
static void link_ids(struct work *work)
{
    for (size_t f = 0; f < work->n_findings; f++) {
        size_t reader = work->owner[f];
        if (reader == SIZE_MAX || !is_input(&work->findings[f]) || work->drafts[reader].parent != SIZE_MAX)
            continue;
        for (size_t i = 0; i < work->n; i++)
            if (i != reader && strcmp(work->failures[i].op_id, work->findings[f].op_id) == 0)
                work->drafts[reader].parent = i;
    }
}

/* By the model: what lies downstream of a failed node follows the first such, nodes in topological order. */
static enum nd_status link_nodes(struct work *work, struct nd_error *err)
{
    const struct nd_failure_graph *graph = work->graph;
    if (graph == NULL)
        return ND_OK;
    ND_FREED size_t *failure = nd_calloc(graph->n_nodes, sizeof *failure);   /* of the node itself */
    ND_FREED size_t *upstream = nd_calloc(graph->n_nodes, sizeof *upstream); /* failure before it */
    ND_TRY_MEMORY(failure != NULL && upstream != NULL, err);
    for (size_t i = 0; i < graph->n_nodes; i++)
        failure[i] = upstream[i] = SIZE_MAX;
    for (size_t i = work->n; i-- > 0;)
        if (work->drafts[i].node != SIZE_MAX)
            failure[work->drafts[i].node] = i;
    for (size_t l = 0; l < graph->n_links; l++) {
        size_t from = graph->links[l][0], to = graph->links[l][1];
        size_t passed = upstream[from] != SIZE_MAX ? upstream[from] : failure[from];
        if (upstream[to] == SIZE_MAX || passed < upstream[to])
            upstream[to] = passed;
    }
    for (size_t i = 0; i < work->n; i++) {
        size_t node = work->drafts[i].node;
        if (node != SIZE_MAX && upstream[node] != SIZE_MAX && failure[node] == i)
            work->drafts[i].parent = upstream[node];
    }
    return ND_OK;
}

static void settle(struct work *work, struct nd_failure_cascade *out)
{
    for (size_t i = 0; i < work->n; i++) {
        struct nd_failure *failure = &work->failures[i];
        const struct draft *draft = &work->drafts[i];
        size_t root = i, n_steps = 0;
        while (work->drafts[root].parent != SIZE_MAX && n_steps++ <= work->n)
            root = work->drafts[root].parent;
        failure->root = n_steps > work->n ? i : root; /* a log that contradicts itself goes in circles */
        bool is_placed = draft->node != SIZE_MAX || draft->has_inputs || work->n == 1;
        failure->role = failure->root != i ? ND_FAILURE_FOLLOWER
                        : is_placed        ? ND_FAILURE_ROOT
                                           : ND_FAILURE_UNPLACED;
        out->n_roots += failure->role == ND_FAILURE_ROOT;
        out->n_followers += failure->role == ND_FAILURE_FOLLOWER;
        out->n_unplaced += failure->role == ND_FAILURE_UNPLACED;
    }
    /* What others follow is a root, whether its own inputs are known or not. */
    for (size_t i = 0; i < work->n; i++) {
        struct nd_failure *root = &work->failures[work->failures[i].root];
        if (work->failures[i].root != i && root->role == ND_FAILURE_UNPLACED) {
            root->role = ND_FAILURE_ROOT;
            out->n_roots++;
            out->n_unplaced--;
        }
    }
    out->failures = work->failures;
    out->n = work->n;
}

enum nd_status nd_failure_cascade_find(const struct nd_log_finding *findings, size_t n,
                                       const struct nd_failure_graph *graph, struct nd_failure_cascade *out,
                                       struct nd_error *err)
{
    struct work work = {.findings = findings, .n_findings = n, .graph = graph};
    struct nd_failure_cascade found = {0};
    enum nd_status status = ND_OK;
    work.failures = nd_calloc(n, sizeof *work.failures);
    work.drafts = nd_calloc(n, sizeof *work.drafts);
    work.owner = nd_calloc(n, sizeof *work.owner);
    if (work.failures == NULL || work.drafts == NULL || work.owner == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    collect(&work);
    name_nodes(&work);
    link_ids(&work);
    /* A second failure of one node follows the first one of it. */
    for (size_t i = 1; i < work.n; i++)
        for (size_t k = 0; k < i && work.drafts[i].parent == SIZE_MAX && work.failures[i].log_node[0] != '\0';
             k++)
            if (strcmp(work.failures[i].log_node, work.failures[k].log_node) == 0 ||
                (work.drafts[i].node != SIZE_MAX && work.drafts[i].node == work.drafts[k].node))
                work.drafts[i].parent = k;
    status = link_nodes(&work, err);
    if (status == ND_OK) {
        settle(&work, &found);
        work.failures = NULL;
        *out = found;
    }
out:
    free(work.failures);
    ND_FREE_ALL(work.drafts, work.owner);
    return status;
}

void nd_failure_cascade_deinit(struct nd_failure_cascade *cascade)
{
    free(cascade->failures);
    *cascade = (struct nd_failure_cascade){0};
}

/* ---- names ---- */

static size_t find_exact(const char *const *names, size_t n_nodes, const char *name, size_t n)
{
    for (size_t i = 0; i < n_nodes; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
            return i;
    return SIZE_MAX;
}

size_t nd_failure_find_node(const char *const *names, size_t n_nodes, const char *log_node)
{
    size_t n = strlen(log_node), found = find_exact(names, n_nodes, log_node, n);
    if (n == 0 || found != SIZE_MAX)
        return n == 0 ? SIZE_MAX : found;
    n = nd_token_stem_bytes(log_node);
    found = find_exact(names, n_nodes, log_node, n);
    if (found != SIZE_MAX)
        return found;
    for (size_t i = 0; i < n_nodes; i++) {
        size_t n_name = strlen(names[i]);
        if (n_name == 0 || n_name >= n || memcmp(names[i], log_node, n_name) != 0 || log_node[n_name] != '_')
            continue;
        if (found != SIZE_MAX)
            return SIZE_MAX; /* of two nodes */
        found = i;
    }
    return found;
}
