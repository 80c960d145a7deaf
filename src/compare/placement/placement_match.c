/* Which node of the model an assigned node is, and what is known of those that no assignment names.
 * docs/science/fallback.md. */
#include "compare/placement/placement.h"

#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"

bool nd_placing_problem(struct nd_placing *placing, const char *fmt, ...)
{
    char text[1200];
    ND_PRINT_ARGUMENTS(text, fmt);
    if (!nd_grow((void **)&placing->problems, &placing->problems_capacity, placing->report.n_problems + 1,
                 sizeof *placing->problems))
        return false;
    char *copy = nd_strdup(text);
    if (copy == NULL)
        return false;
    placing->problems[placing->report.n_problems++] = copy;
    return true;
}

enum nd_where nd_placing_where(const struct nd_placing *placing, const char *provider)
{
    if (provider[0] == '\0')
        return ND_WHERE_UNKNOWN;
    bool is_npu = placing->report.is_npu && strcmp(provider, placing->report.wanted_provider) == 0;
    return is_npu ? ND_WHERE_NPU : ND_WHERE_OFF;
}

static void fill_model_nodes(struct nd_placing *placing)
{
    for (size_t i = 0; i < placing->n_model_nodes; i++) {
        const struct nd_model_node *node = nd_model_node(placing->model, i);
        placing->nodes[i] = (struct nd_placed_node){.name = node->name,
                                                    .op_type = node->op_type,
                                                    .domain = node->domain,
                                                    .provider = "",
                                                    .renamed_to = "",
                                                    .profile_provider = "",
                                                    .profile_us = (double)NAN,
                                                    .flops = (double)NAN,
                                                    .piece = SIZE_MAX,
                                                    .model_node = i,
                                                    .is_io_quantisation = node->is_io_quantisation,
                                                    .is_constant = placing->graph->nodes[i].is_constant};
    }
}

static void place(struct nd_placing *placing, size_t node, const struct nd_capture_node *row)
{
    placing->nodes[node].provider = row->provider;
    placing->nodes[node].where = nd_placing_where(placing, row->provider);
    placing->subgraphs[node] = row->subgraph;
}

static void add_node(struct nd_placing *placing, const struct nd_capture_node *row)
{
    size_t at = placing->report.n_nodes++;
    placing->nodes[at] = (struct nd_placed_node){.name = row->name,
                                                 .op_type = row->op_type,
                                                 .domain = row->domain,
                                                 .renamed_to = "",
                                                 .profile_provider = "",
                                                 .profile_us = (double)NAN,
                                                 .flops = (double)NAN,
                                                 .piece = SIZE_MAX,
                                                 .model_node = SIZE_MAX};
    place(placing, at, row);
}

/* The node of the model that has the row's name less its token, and its operator; SIZE_MAX: none. */
static size_t find_renamed(const struct nd_names *names, const struct nd_placing *placing,
                           const struct nd_capture_node *row)
{
    size_t n = nd_token_stem_bytes(row->name), found = SIZE_MAX;
    char *name = row->name[n] != '\0' ? strndup(row->name, n) : NULL;
    if (name != NULL)
        found = nd_names_find(names, name);
    free(name);
    bool is_same = found != SIZE_MAX && strcmp(placing->nodes[found].op_type, row->op_type) == 0;
    return is_same ? found : SIZE_MAX;
}

struct matching {
    struct nd_names names; /* of the model -> first node of that name */
    size_t *next;          /* of the same name, SIZE_MAX: none */
    size_t *match;         /* [rows]: node, SIZE_MAX: none */
    size_t *n_claims;      /* [model nodes]: renamed rows that claim it */
};

static bool index_names(struct matching *m, const struct nd_placing *placing)
{
    for (size_t i = placing->n_model_nodes; i-- > 0;) {
        size_t first = nd_names_find(&m->names, placing->nodes[i].name);
        m->next[i] = SIZE_MAX;
        if (first == SIZE_MAX && !nd_names_add(&m->names, placing->nodes[i].name, i))
            return false;
        if (first !=
            SIZE_MAX) { /* the later ones hang behind the one that was found first: their order is free */
            m->next[i] = m->next[first];
            m->next[first] = i;
        }
    }
    return true;
}

static size_t find_exact(const struct matching *m, const struct nd_placing *placing,
                         const struct nd_capture_node *row)
{
    size_t found = nd_names_find(&m->names, row->name);
    while (found != SIZE_MAX && (strcmp(placing->nodes[found].op_type, row->op_type) != 0 ||
                                 placing->nodes[found].provider[0] != '\0'))
        found = m->next[found];
    return found;
}

/* First those whose name is the model's, then those that were renamed and that nobody else claims. */
static void match_rows(struct nd_placing *placing, struct matching *m)
{
    size_t n_rows = nd_capture_n_nodes(placing->capture);
    for (size_t r = 0; r < n_rows; r++) {
        const struct nd_capture_node *row = nd_capture_node(placing->capture, r);
        m->match[r] = find_exact(m, placing, row);
        if (m->match[r] != SIZE_MAX)
            place(placing, m->match[r], row);
    }
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t r = 0; r < n_rows; r++) {
            const struct nd_capture_node *row = nd_capture_node(placing->capture, r);
            size_t found = m->match[r] == SIZE_MAX ? find_renamed(&m->names, placing, row) : SIZE_MAX;
            if (found == SIZE_MAX || placing->nodes[found].provider[0] != '\0')
                continue;
            m->n_claims[found] += pass == 0;
            if (pass == 1 && m->n_claims[found] == 1) {
                m->match[r] = found;
                placing->nodes[found].renamed_to = row->name;
                place(placing, found, row);
            }
        }
    for (size_t r = 0; r < n_rows; r++)
        if (m->match[r] == SIZE_MAX)
            add_node(placing, nd_capture_node(placing->capture, r));
}

static enum nd_status match_assignment(struct nd_placing *placing, struct nd_error *err)
{
    size_t n_rows = nd_capture_n_nodes(placing->capture), n_nodes = 0;
    struct matching m = {.next = nd_calloc(placing->n_model_nodes, sizeof *m.next),
                         .match = nd_calloc(n_rows, sizeof *m.match),
                         .n_claims = nd_calloc(placing->n_model_nodes, sizeof *m.n_claims)};
    bool is_whole = m.next != NULL && m.match != NULL && m.n_claims != NULL &&
                    nd_size_add(placing->n_model_nodes, n_rows, &n_nodes);
    placing->nodes = is_whole ? nd_calloc(n_nodes, sizeof *placing->nodes) : NULL;
    placing->subgraphs = is_whole ? nd_calloc(n_nodes, sizeof *placing->subgraphs) : NULL;
    is_whole = placing->nodes != NULL && placing->subgraphs != NULL;
    if (is_whole) {
        fill_model_nodes(placing);
        placing->report.n_nodes = placing->n_model_nodes;
        is_whole = index_names(&m, placing);
    }
    if (is_whole)
        match_rows(placing, &m);
    nd_names_deinit(&m.names);
    ND_FREE_ALL(m.next, m.match, m.n_claims);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* ---- nodes that no assignment names ---- */

/* The fused piece next to a node on one side, through nodes of unknown place; 0 when there is none. Only the
 * first that is found is followed: that can miss a node, never misplace one. */
static int64_t near(const struct nd_placing *placing, const int64_t *nears, size_t node)
{
    if (placing->nodes[node].where == ND_WHERE_UNKNOWN)
        return nears[node];
    return placing->nodes[node].where == ND_WHERE_NPU ? placing->subgraphs[node] : 0;
}

static int64_t near_maker(const struct nd_placing *placing, const int64_t *before, size_t node)
{
    const struct nd_graph_node *at = &placing->graph->nodes[node];
    int64_t found = 0;
    for (size_t i = 0; found == 0 && i < at->n_uses; i++) {
        size_t tensor = placing->graph->uses[at->first_use + i];
        size_t maker = tensor != ND_NO_INDEX ? placing->graph->tensors[tensor].producer : ND_NO_INDEX;
        if (maker != ND_NO_INDEX && !placing->graph->nodes[maker].is_constant)
            found = near(placing, before, maker);
    }
    return found;
}

static int64_t near_reader(const struct nd_placing *placing, const int64_t *after, size_t node)
{
    const struct nd_graph_node *at = &placing->graph->nodes[node];
    int64_t found = 0;
    for (size_t i = 0; i < at->n_made; i++) {
        size_t made = placing->graph->made[at->first_made + i];
        const struct nd_graph_tensor *tensor = made != ND_NO_INDEX ? &placing->graph->tensors[made] : NULL;
        for (size_t k = 0; found == 0 && tensor != NULL && k < tensor->n_readers; k++)
            found = near(placing, after, placing->graph->readers[tensor->first_reader + k]);
    }
    return found;
}

/* A node that was renamed beyond recognition kept its operator: where all nodes of that operator that the model
 * does not know are on one provider, so is it, unless it is gone. */
static void infer_renamed(struct nd_placing *placing, size_t at)
{
    struct nd_placed_node *node = &placing->nodes[at];
    const char *provider = NULL;
    int64_t subgraph = 0;
    for (size_t i = placing->n_model_nodes; i < placing->report.n_nodes; i++) {
        const struct nd_placed_node *added = &placing->nodes[i];
        if (strcmp(added->op_type, node->op_type) != 0)
            continue;
        if (provider != NULL && strcmp(provider, added->provider) != 0)
            return;
        subgraph = provider == NULL || subgraph == placing->subgraphs[i] ? placing->subgraphs[i] : 0;
        provider = added->provider;
    }
    if (provider == NULL || provider[0] == '\0')
        return;
    node->is_inferred = true;
    node->provider = provider;
    node->where = nd_placing_where(placing, provider);
    placing->subgraphs[at] = subgraph;
}

/* What lies on a way from a fused piece back into it is in it: it could not be run at once otherwise. */
static enum nd_status infer_between(struct nd_placing *placing, struct nd_error *err)
{
    size_t n = placing->n_model_nodes;
    ND_FREED int64_t *before = nd_calloc(n, sizeof *before), *after = nd_calloc(n, sizeof *after);
    bool is_whole = before != NULL && after != NULL;
    for (size_t i = 0; is_whole && i < n; i++)
        before[i] = near_maker(placing, before, i);
    for (size_t i = n; is_whole && i-- > 0;)
        after[i] = near_reader(placing, after, i);
    for (size_t i = 0; is_whole && i < n; i++) {
        struct nd_placed_node *node = &placing->nodes[i];
        if (node->where != ND_WHERE_UNKNOWN || node->is_constant || before[i] == 0 || before[i] != after[i])
            continue;
        node->is_inferred = true;
        node->provider = placing->report.wanted_provider;
        node->where = ND_WHERE_NPU;
        placing->subgraphs[i] = before[i];
    }
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* ---- what the profiles say ---- */

/* Takes a profile's word for a node that nothing else places; where they disagree both are shown. */
static bool hear(struct nd_placing *placing, size_t at, const char *provider, const char *profile)
{
    struct nd_placed_node *node = &placing->nodes[at];
    if (node->profile_provider[0] == '\0' || strcmp(provider, node->provider) != 0)
        node->profile_provider = provider;
    if (node->provider[0] == '\0') {
        node->provider = provider;
        node->where = nd_placing_where(placing, provider);
        node->is_inferred = true;
        return true;
    }
    if (strcmp(node->provider, provider) == 0 || node->is_contradicted)
        return true;
    node->is_contradicted = true;
    return nd_placing_problem(placing, "node '%s': the assignment says %s, log '%s' has a kernel of it on %s",
                              node->name, node->provider, profile, provider);
}

static enum nd_status hear_kernels(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_ort_profile *profile = &placing->profile;
    for (size_t i = 0; placing->has_profile && i < profile->n_kernels; i++) {
        const struct nd_kernel *kernel = &profile->kernels[i];
        size_t at = nd_names_find(&placing->run_names, kernel->name);
        if (at == SIZE_MAX)
            continue; /* a fused one */
        ND_TRY_MEMORY(hear(placing, at, kernel->provider, "profile"), err);
        if (profile->n_runs > 1) {
            double us = kernel->total_us / (double)(profile->n_runs - 1);
            double *sum = &placing->nodes[at].profile_us;
            *sum = isnan(*sum) ? us : *sum + us;
        }
    }
    return ND_OK;
}

static enum nd_status hear_provider(struct nd_placing *placing, struct nd_error *err)
{
    for (size_t i = 0; placing->has_csv && placing->report.is_npu && i < placing->csv.n_events; i++) {
        const struct nd_qnn_event *event = &placing->csv.events[i];
        size_t n = strcmp(event->message, "NODE") == 0 ? nd_qnn_node_name(event->identifier) : 0;
        char *name = n > 0 ? strndup(event->identifier, n) : NULL;
        size_t at = name != NULL ? nd_names_find(&placing->run_names, name) : SIZE_MAX;
        bool is_whole = n == 0 || name != NULL;
        if (at != SIZE_MAX)
            is_whole = hear(placing, at, placing->report.wanted_provider, "qnn-profile");
        free(name);
        ND_TRY_MEMORY(is_whole, err);
    }
    return ND_OK;
}

/* placement.c: fills nodes from the assignment, then from what lies between and from the profiles. */
enum nd_status nd_placing_match(struct nd_placing *placing, struct nd_error *err)
{
    placing->n_model_nodes = placing->model != NULL ? nd_model_n_nodes(placing->model) : 0;
    ND_TRY(match_assignment(placing, err));
    if (placing->report.is_npu)
        ND_TRY(infer_between(placing, err));
    for (size_t i = 0; placing->report.is_npu && i < placing->n_model_nodes; i++)
        if (placing->nodes[i].where == ND_WHERE_UNKNOWN && !placing->nodes[i].is_constant)
            infer_renamed(placing, i);
    for (size_t i = 0; i < placing->report.n_nodes; i++) {
        const struct nd_placed_node *node = &placing->nodes[i];
        const char *name = node->renamed_to[0] != '\0' ? node->renamed_to : node->name;
        if (nd_names_find(&placing->run_names, name) == SIZE_MAX && !nd_names_add(&placing->run_names, name, i))
            return nd_fail_memory(err);
    }
    ND_TRY(hear_kernels(placing, err));
    return hear_provider(placing, err);
}
