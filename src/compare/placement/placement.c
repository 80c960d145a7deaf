/* Where each node ran, from the assignment, the profile and the file of the provider. docs/science/fallback.md.
 */
#include <assert.h>
#include <math.h>

#include "compare/placement/profiles.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/infer.h"
#include "model/graph/parts.h"
#include "npudiff/compare/placement.h"

/* The report and what it points to. */
struct nd_placing {
    struct nd_placement_report report; /* first: the report is handed out */
    struct nd_arena *arena;            /* has this struct and what it points to, but for cuts and problems */
    const struct nd_model *model;      /* nullable */
    const struct nd_capture *capture;
    const struct nd_graph *graph; /* of the model */
    struct nd_placed_node *nodes; /* [report.n_nodes], the model's first */
    int64_t *subgraphs;           /* [report.n_nodes]: as nd_capture_node has them */
    size_t n_model_nodes;
    struct nd_names names; /* of the model -> first node of that name */
    size_t *next;          /* [n_model_nodes]: of the same name, SIZE_MAX: none */
    size_t *match;         /* [nodes of the capture]: node, SIZE_MAX: none */
    size_t *n_claims;      /* [n_model_nodes]: renamed rows that claim it */
    size_t *parent;        /* [n_model_nodes]: union-find of the pieces */
    size_t *depth;         /* [n_model_nodes]: changes of place on the way from the inputs */
    size_t *colour;        /* a node that stands for subgraph or provider; SIZE_MAX: nothing known on the way */
    struct nd_names run_names; /* what the assignment (else the model) calls a node -> node */
    struct nd_placed_tensor *tensors;
    struct nd_placed_piece *pieces;
    struct nd_placed_cut *cuts;
    size_t cuts_capacity;
    struct nd_provider_event *events;
    const char **problems;
    size_t problems_capacity;
    struct nd_tensor_info *infos; /* [graph->n_tensors] */
    struct nd_ort_profile profile;
    bool has_profile;
    struct nd_qnn_csv csv;
    bool has_csv;
};

/* ---- which node of the model an assigned node is, and what is known of those that no assignment names ---- */

ND_PRINTF(2, 3) static void add_problem(struct nd_placing *placing, const char *fmt, ...)
{
    char text[1200];
    ND_PRINT_ARGUMENTS(text, fmt);
    if (nd_grow((void **)&placing->problems, &placing->problems_capacity, placing->report.n_problems + 1,
                sizeof *placing->problems))
        placing->problems[placing->report.n_problems++] = nd_arena_text(placing->arena, text);
    else
        nd_arena_fail(placing->arena);
}

/* Where a provider is, for this device. */
static enum nd_where placing_where(const struct nd_placing *placing, const char *provider)
{
    if (provider[0] == '\0')
        return ND_WHERE_UNKNOWN;
    bool is_npu = placing->report.is_npu && strcmp(provider, placing->report.wanted_provider) == 0;
    return is_npu ? ND_WHERE_NPU : ND_WHERE_OFF;
}

static struct nd_placed_node new_node(const char *name, const char *op_type, const char *domain,
                                      size_t model_node)
{
    return (struct nd_placed_node){.name = name,
                                   .op_type = op_type,
                                   .domain = domain,
                                   .provider = "",
                                   .renamed_to = "",
                                   .profile_provider = "",
                                   .profile_us = (double)NAN,
                                   .flops = (double)NAN,
                                   .piece = SIZE_MAX,
                                   .model_node = model_node};
}

static void place(struct nd_placing *placing, size_t node, const struct nd_capture_node *row)
{
    placing->nodes[node].provider = row->provider;
    placing->nodes[node].where = placing_where(placing, row->provider);
    placing->subgraphs[node] = row->subgraph;
}

static void add_node(struct nd_placing *placing, const struct nd_capture_node *row)
{
    size_t at = placing->report.n_nodes++;
    placing->nodes[at] = new_node(row->name, row->op_type, row->domain, SIZE_MAX);
    place(placing, at, row);
}

/* The node of the model that has the row's name less its token, and its operator; SIZE_MAX: none. */
static size_t find_renamed(const struct nd_placing *placing, const struct nd_capture_node *row)
{
    size_t n = nd_token_stem_bytes(row->name), found = SIZE_MAX;
    char *name = row->name[n] != '\0' ? strndup(row->name, n) : NULL;
    if (name != NULL)
        found = nd_names_find(&placing->names, name);
    free(name);
    bool is_same = found != SIZE_MAX && strcmp(placing->nodes[found].op_type, row->op_type) == 0;
    return is_same ? found : SIZE_MAX;
}

static bool index_names(struct nd_placing *placing)
{
    for (size_t i = placing->n_model_nodes; i-- > 0;) {
        size_t first = nd_names_find(&placing->names, placing->nodes[i].name);
        placing->next[i] = SIZE_MAX;
        if (first == SIZE_MAX && !nd_names_add(&placing->names, placing->nodes[i].name, i))
            return false;
        if (first != SIZE_MAX) { /* the later ones hang behind the one found first: their order is free */
            placing->next[i] = placing->next[first];
            placing->next[first] = i;
        }
    }
    return true;
}

static size_t find_exact(const struct nd_placing *placing, const struct nd_capture_node *row)
{
    size_t found = nd_names_find(&placing->names, row->name);
    while (found != SIZE_MAX && (strcmp(placing->nodes[found].op_type, row->op_type) != 0 ||
                                 placing->nodes[found].provider[0] != '\0'))
        found = placing->next[found];
    return found;
}

/* First those whose name is the model's, then those that were renamed and that nobody else claims. */
static void match_rows(struct nd_placing *placing)
{
    size_t n_rows = nd_capture_n_nodes(placing->capture);
    for (size_t r = 0; r < n_rows; r++) {
        const struct nd_capture_node *row = nd_capture_node(placing->capture, r);
        placing->match[r] = find_exact(placing, row);
        if (placing->match[r] != SIZE_MAX)
            place(placing, placing->match[r], row);
    }
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t r = 0; r < n_rows; r++) {
            const struct nd_capture_node *row = nd_capture_node(placing->capture, r);
            size_t found = placing->match[r] == SIZE_MAX ? find_renamed(placing, row) : SIZE_MAX;
            if (found == SIZE_MAX || placing->nodes[found].provider[0] != '\0')
                continue;
            placing->n_claims[found] += pass == 0;
            if (pass == 1 && placing->n_claims[found] == 1) {
                placing->match[r] = found;
                placing->nodes[found].renamed_to = row->name;
                place(placing, found, row);
            }
        }
    for (size_t r = 0; r < n_rows; r++)
        if (placing->match[r] == SIZE_MAX)
            add_node(placing, nd_capture_node(placing->capture, r));
}

static enum nd_status match_assignment(struct nd_placing *placing, struct nd_error *err)
{
    struct nd_arena *arena = placing->arena;
    size_t n_rows = nd_capture_n_nodes(placing->capture), n_nodes = 0;
    placing->next = nd_arena_calloc(arena, placing->n_model_nodes, sizeof *placing->next);
    placing->match = nd_arena_calloc(arena, n_rows, sizeof *placing->match);
    placing->n_claims = nd_arena_calloc(arena, placing->n_model_nodes, sizeof *placing->n_claims);
    ND_TRY_MEMORY(nd_size_add(placing->n_model_nodes, n_rows, &n_nodes), err);
    placing->nodes = nd_arena_calloc(arena, n_nodes, sizeof *placing->nodes);
    placing->subgraphs = nd_arena_calloc(arena, n_nodes, sizeof *placing->subgraphs);
    ND_TRY_MEMORY(!nd_arena_has_failed(arena), err);
    for (size_t i = 0; i < placing->n_model_nodes; i++) {
        const struct nd_model_node *node = nd_model_node(placing->model, i);
        placing->nodes[i] = new_node(node->name, node->op_type, node->domain, i);
        placing->nodes[i].is_io_quantisation = node->is_io_quantisation;
        placing->nodes[i].is_constant = placing->graph->nodes[i].is_constant;
    }
    placing->report.n_nodes = placing->n_model_nodes;
    ND_TRY_MEMORY(index_names(placing), err);
    match_rows(placing);
    return ND_OK;
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

/* The node that makes input i of a node, where that is not a constant; ND_NO_INDEX. */
static size_t maker_of(const struct nd_placing *placing, size_t node, size_t i)
{
    const struct nd_graph_node *at = &placing->graph->nodes[node];
    size_t tensor = placing->graph->uses[at->first_use + i];
    size_t maker = tensor != ND_NO_INDEX ? placing->graph->tensors[tensor].producer : ND_NO_INDEX;
    return maker != ND_NO_INDEX && !placing->graph->nodes[maker].is_constant ? maker : ND_NO_INDEX;
}

static int64_t near_maker(const struct nd_placing *placing, const int64_t *before, size_t node)
{
    int64_t found = 0;
    for (size_t i = 0; found == 0 && i < placing->graph->nodes[node].n_uses; i++) {
        size_t maker = maker_of(placing, node, i);
        if (maker != ND_NO_INDEX)
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
    node->where = placing_where(placing, provider);
    placing->subgraphs[at] = subgraph;
}

/* What lies on a way from a fused piece back into it is in it: it could not be run at once otherwise. */
static enum nd_status infer_between(struct nd_placing *placing, struct nd_error *err)
{
    size_t n = placing->n_model_nodes;
    int64_t *before = nd_arena_calloc(placing->arena, n, sizeof *before);
    int64_t *after = nd_arena_calloc(placing->arena, n, sizeof *after);
    ND_TRY_MEMORY(before != NULL && after != NULL, err);
    for (size_t i = 0; i < n; i++)
        before[i] = near_maker(placing, before, i);
    for (size_t i = n; i-- > 0;)
        after[i] = near_reader(placing, after, i);
    for (size_t i = 0; i < n; i++) {
        struct nd_placed_node *node = &placing->nodes[i];
        if (node->where != ND_WHERE_UNKNOWN || node->is_constant || before[i] == 0 || before[i] != after[i])
            continue;
        node->is_inferred = true;
        node->provider = placing->report.wanted_provider;
        node->where = ND_WHERE_NPU;
        placing->subgraphs[i] = before[i];
    }
    return ND_OK;
}

/* ---- what the profiles say ---- */

/* Takes a profile's word for a node that nothing else places; where they disagree both are shown. */
static void hear(struct nd_placing *placing, size_t at, const char *provider, const char *profile)
{
    struct nd_placed_node *node = &placing->nodes[at];
    if (node->profile_provider[0] == '\0' || strcmp(provider, node->provider) != 0)
        node->profile_provider = provider;
    if (node->provider[0] == '\0') {
        node->provider = provider;
        node->where = placing_where(placing, provider);
        node->is_inferred = true;
    } else if (strcmp(node->provider, provider) != 0 && !node->is_contradicted) {
        node->is_contradicted = true;
        add_problem(placing, "node '%s': the assignment says %s, log '%s' has a kernel of it on %s", node->name,
                    node->provider, profile, provider);
    }
}

static enum nd_status hear_provider(struct nd_placing *placing, struct nd_error *err)
{
    for (size_t i = 0; placing->has_csv && placing->report.is_npu && i < placing->csv.n_events; i++) {
        const struct nd_qnn_event *event = &placing->csv.events[i];
        size_t n = strcmp(event->message, "NODE") == 0 ? nd_qnn_node_name(event->identifier) : 0;
        char *name = n > 0 ? strndup(event->identifier, n) : NULL;
        size_t at = name != NULL ? nd_names_find(&placing->run_names, name) : SIZE_MAX;
        if (at != SIZE_MAX)
            hear(placing, at, placing->report.wanted_provider, "qnn-profile");
        free(name);
        ND_TRY_MEMORY(n == 0 || name != NULL, err);
    }
    return ND_OK;
}

/* Fills nodes from the assignment, then from what lies between and from the profiles. */
static enum nd_status match_nodes(struct nd_placing *placing, struct nd_error *err)
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
    const struct nd_ort_profile *profile = &placing->profile;
    for (size_t i = 0; placing->has_profile && i < profile->n_kernels; i++) {
        const struct nd_kernel *kernel = &profile->kernels[i];
        size_t at = nd_names_find(&placing->run_names, kernel->name);
        if (at == SIZE_MAX)
            continue; /* a fused one */
        hear(placing, at, kernel->provider, "profile");
        if (profile->n_runs > 1) {
            double us = kernel->total_us / (double)(profile->n_runs - 1);
            double *sum = &placing->nodes[at].profile_us;
            *sum = isnan(*sum) ? us : *sum + us;
        }
    }
    return hear_provider(placing, err);
}

/* ---- how the placement cuts the graph: pieces that run at once or one after the other in one place, the
 * tensors that go between them, and what both cost ---- */

/* A fused piece is known by its subgraph. Other nodes are of one piece when they are connected, of one provider
 * and equally many changes of place away from the inputs: so no way can lead out of a piece and back into it.
 */

/* Whether the node belongs to a piece that is known: not one of the NPU of which only that is known. */
static bool is_placed(const struct nd_placing *placing, size_t node)
{
    const struct nd_placed_node *at = &placing->nodes[node];
    bool is_homeless = at->is_inferred && at->where == ND_WHERE_NPU && placing->subgraphs[node] == 0;
    return at->where != ND_WHERE_UNKNOWN && !at->is_constant && !is_homeless;
}

static bool is_fused(const struct nd_placing *placing, size_t node)
{
    return placing->nodes[node].where == ND_WHERE_NPU && placing->subgraphs[node] > 0;
}

static bool is_together(const struct nd_placing *placing, size_t a, size_t b)
{
    if (is_fused(placing, a) || is_fused(placing, b))
        return is_fused(placing, a) && is_fused(placing, b) && placing->subgraphs[a] == placing->subgraphs[b];
    return strcmp(placing->nodes[a].provider, placing->nodes[b].provider) == 0;
}

static size_t root_of(size_t *parent, size_t node)
{
    while (parent[node] != node) {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    return node;
}

/* The smaller number stays the root: a piece is called by its first node. */
static void join(size_t *parent, size_t a, size_t b)
{
    size_t root_a = root_of(parent, a), root_b = root_of(parent, b);
    if (root_a < root_b)
        parent[root_b] = root_a;
    else
        parent[root_a] = root_b;
}

static void find_depth(struct nd_placing *placing, size_t node)
{
    bool is_known = is_placed(placing, node);
    placing->colour[node] = is_known ? node : SIZE_MAX;
    for (size_t i = 0; i < placing->graph->nodes[node].n_uses; i++) {
        size_t maker = maker_of(placing, node, i);
        if (maker == ND_NO_INDEX)
            continue;
        size_t depth = placing->depth[maker], colour = placing->colour[maker];
        if (is_known && colour != SIZE_MAX && !is_together(placing, node, colour))
            depth++;
        if (depth >= placing->depth[node]) {
            placing->depth[node] = depth;
            if (!is_known && colour != SIZE_MAX)
                placing->colour[node] = colour;
        }
    }
}

static void join_nodes(struct nd_placing *placing)
{
    size_t n = placing->n_model_nodes;
    for (size_t i = 0; i < n; i++) {
        placing->parent[i] = i;
        find_depth(placing, i);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; is_placed(placing, i) && k < placing->graph->nodes[i].n_uses; k++) {
            size_t maker = maker_of(placing, i, k);
            if (maker != ND_NO_INDEX && is_placed(placing, maker) && is_together(placing, i, maker) &&
                placing->depth[i] == placing->depth[maker])
                join(placing->parent, i, maker);
        }
}

/* Nodes of one subgraph are one piece, connected or not. */
static void join_subgraphs(struct nd_placing *placing)
{
    int64_t top = 0;
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        top = placing->subgraphs[i] > top ? placing->subgraphs[i] : top;
    size_t n_rows = nd_capture_n_nodes(placing->capture);
    if ((uint64_t)top > n_rows) /* numbers that no assignment makes: what is connected still is */
        return;
    size_t *first = nd_arena_calloc(placing->arena, (size_t)top + 1, sizeof *first);
    for (size_t i = 0; first != NULL && i < placing->n_model_nodes; i++) {
        if (!is_placed(placing, i) || !is_fused(placing, i))
            continue;
        size_t *of = &first[placing->subgraphs[i]]; /* node + 1 */
        if (*of == 0)
            *of = i + 1;
        join(placing->parent, *of - 1, i);
    }
}

static void number_pieces(struct nd_placing *placing)
{
    size_t n_pieces = 0;
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        n_pieces += is_placed(placing, i) && root_of(placing->parent, i) == i;
    placing->pieces = nd_arena_calloc(placing->arena, n_pieces, sizeof *placing->pieces);
    for (size_t i = 0; placing->pieces != NULL && i < placing->n_model_nodes; i++) {
        if (!is_placed(placing, i))
            continue;
        struct nd_placed_node *node = &placing->nodes[i];
        size_t root = root_of(placing->parent, i);
        if (root == i) {
            node->piece = placing->report.n_pieces++;
            placing->pieces[node->piece] = (struct nd_placed_piece){.provider = node->provider,
                                                                    .where = node->where,
                                                                    .first_node = node->name,
                                                                    .is_io_quantisation = true,
                                                                    .us = (double)NAN};
        }
        node->piece = placing->nodes[root].piece;
        struct nd_placed_piece *piece = &placing->pieces[node->piece];
        piece->last_node = node->name;
        piece->n_nodes++;
        piece->flops += isnan(node->flops) ? 0 : node->flops;
        piece->is_io_quantisation =
            piece->is_io_quantisation && node->is_io_quantisation && node->where == ND_WHERE_OFF;
    }
}

/* ---- what goes between ---- */

static struct nd_placed_cut *find_cut(struct nd_placing *placing, size_t from, size_t to, const char *tensor)
{
    for (size_t i = placing->report.n_cuts; i-- > 0;)
        if (placing->cuts[i].from == from && placing->cuts[i].to == to)
            return &placing->cuts[i];
    if (!nd_grow((void **)&placing->cuts, &placing->cuts_capacity, placing->report.n_cuts + 1,
                 sizeof *placing->cuts)) {
        nd_arena_fail(placing->arena);
        return NULL;
    }
    placing->cuts[placing->report.n_cuts] = (struct nd_placed_cut){.from = from, .to = to, .tensor = tensor};
    return &placing->cuts[placing->report.n_cuts++];
}

static bool has_reader_before(const struct nd_placing *placing, const struct nd_graph_tensor *tensor, size_t k,
                              size_t piece)
{
    for (size_t i = 0; i < k; i++)
        if (placing->nodes[placing->graph->readers[tensor->first_reader + i]].piece == piece)
            return true;
    return false;
}

/* A tensor is handed over once to each piece that reads it, and once to the host. */
static void count_tensor(struct nd_placing *placing, size_t t)
{
    const struct nd_graph_tensor *tensor = &placing->graph->tensors[t];
    size_t from = tensor->producer != ND_NO_INDEX ? placing->nodes[tensor->producer].piece : SIZE_MAX;
    double bytes = nd_infer_bytes(&placing->infos[t]);
    bool leaves = tensor->output != ND_NO_INDEX;
    for (size_t k = 0; k < tensor->n_readers; k++) {
        size_t to = placing->nodes[placing->graph->readers[tensor->first_reader + k]].piece;
        if (to == SIZE_MAX || to == from || has_reader_before(placing, tensor, k, to))
            continue;
        if (from != SIZE_MAX || tensor->input != ND_NO_INDEX)
            placing->pieces[to].bytes_in += bytes;
        if (from == SIZE_MAX)
            continue;
        leaves = true;
        struct nd_placed_cut *cut = find_cut(placing, from, to, tensor->name);
        if (cut == NULL)
            return;
        cut->n_tensors++;
        cut->n_unsized += isnan(bytes) ? 1 : 0;
        cut->bytes += isnan(bytes) ? 0 : bytes;
    }
    if (leaves && from != SIZE_MAX)
        placing->pieces[from].bytes_out += bytes;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct nd_placed_cut *p = a, *q = b;
    if (p->from != q->from)
        return p->from < q->from ? -1 : 1;
    return p->to < q->to ? -1 : p->to > q->to;
}

/* ---- the order of execution ---- */

/* Kahn's algorithm over the cuts; of the pieces that are ready the one whose first node comes first. Pieces in
 * a ring (which no assignment makes) keep their order at the end. */
static void sort_pieces(struct nd_placing *placing)
{
    size_t n = placing->report.n_pieces;
    size_t n_done = 0, *waits = nd_arena_calloc(placing->arena, n, sizeof *waits);
    size_t *place = nd_arena_calloc(placing->arena, n, sizeof *place);
    struct nd_placed_piece *sorted = nd_arena_calloc(placing->arena, n, sizeof *sorted);
    if (waits == NULL || place == NULL || sorted == NULL)
        return;
    for (size_t i = 0; i < placing->report.n_cuts; i++)
        waits[placing->cuts[i].to]++;
    for (size_t i = 0; i < n; i++)
        place[i] = SIZE_MAX;
    while (n_done < n) {
        size_t next = 0;
        while (next < n && (place[next] != SIZE_MAX || waits[next] > 0))
            next++;
        for (size_t i = 0; next == n && i < n; i++)
            if (place[i] == SIZE_MAX)
                next = i;
        place[next] = n_done++;
        for (size_t i = 0; i < placing->report.n_cuts; i++)
            if (placing->cuts[i].from == next && waits[placing->cuts[i].to] > 0)
                waits[placing->cuts[i].to]--;
    }
    for (size_t i = 0; i < n; i++)
        sorted[place[i]] = placing->pieces[i];
    for (size_t i = 0; i < placing->report.n_nodes; i++)
        if (placing->nodes[i].piece != SIZE_MAX)
            placing->nodes[i].piece = place[placing->nodes[i].piece];
    for (size_t i = 0; i < placing->report.n_cuts; i++) {
        placing->cuts[i].from = place[placing->cuts[i].from];
        placing->cuts[i].to = place[placing->cuts[i].to];
    }
    placing->pieces = sorted;
    if (placing->report.n_cuts > 1)
        qsort(placing->cuts, placing->report.n_cuts, sizeof *placing->cuts, compare_cuts);
}

/* ---- time ---- */

/* Whether a way of cuts leads from one piece to the other: cuts lead forward and are sorted, so one sweep does.
 */
static bool leads_to(const struct nd_placing *placing, size_t from, size_t to, bool *reached)
{
    memset(reached, 0, placing->report.n_pieces * sizeof *reached);
    reached[from] = true;
    for (size_t i = 0; i < placing->report.n_cuts; i++)
        if (reached[placing->cuts[i].from])
            reached[placing->cuts[i].to] = true;
    return reached[to];
}

/* Fused kernels bear no name of a node. They are told apart by their order, where the pieces can only run in
 * one order and are as many. */
static void time_fused(struct nd_placing *placing)
{
    const struct nd_ort_profile *profile = &placing->profile;
    size_t n_pieces = 0, n_kernels = 0, last = SIZE_MAX;
    bool *reached = nd_arena_calloc(placing->arena, placing->report.n_pieces, sizeof *reached), is_chain = true;
    for (size_t i = 0; reached != NULL && i < placing->report.n_pieces; i++) {
        if (placing->pieces[i].where != ND_WHERE_NPU)
            continue;
        n_pieces++;
        is_chain = is_chain && n_pieces <= 256 && (last == SIZE_MAX || leads_to(placing, last, i, reached));
        last = i;
    }
    for (size_t i = 0; i < profile->n_kernels; i++)
        n_kernels += placing_where(placing, profile->kernels[i].provider) == ND_WHERE_NPU;
    if (n_kernels != n_pieces) {
        if (n_kernels > 0)
            add_problem(placing,
                        "the profile has %zu kernels on %s where the placement of the model's nodes makes %zu "
                        "pieces",
                        n_kernels, placing->report.wanted_provider, n_pieces);
        return;
    }
    for (size_t i = 0, k = 0; is_chain && profile->n_runs > 1 && n_kernels > 0 && i < placing->report.n_pieces;
         i++) {
        if (placing->pieces[i].where != ND_WHERE_NPU)
            continue;
        while (placing_where(placing, profile->kernels[k].provider) != ND_WHERE_NPU)
            k++;
        placing->pieces[i].us = profile->kernels[k++].total_us / (double)(profile->n_runs - 1);
    }
}

/* Pieces and cuts, and what they cost. Needs the model. */
static void cut_graph(struct nd_placing *placing)
{
    size_t n = placing->n_model_nodes;
    placing->parent = nd_arena_calloc(placing->arena, n, sizeof *placing->parent);
    placing->depth = nd_arena_calloc(placing->arena, n, sizeof *placing->depth);
    placing->colour = nd_arena_calloc(placing->arena, n, sizeof *placing->colour);
    if (placing->parent == NULL || placing->depth == NULL || placing->colour == NULL)
        return;
    join_nodes(placing);
    join_subgraphs(placing);
    number_pieces(placing);
    for (size_t t = 0; t < placing->graph->n_tensors; t++)
        if (!placing->graph->tensors[t].is_constant)
            count_tensor(placing, t);
    sort_pieces(placing);
    if (placing->has_profile) {
        for (size_t i = 0; i < placing->n_model_nodes; i++) {
            const struct nd_placed_node *node = &placing->nodes[i];
            if (node->piece == SIZE_MAX || node->where != ND_WHERE_OFF || isnan(node->profile_us))
                continue;
            double *us = &placing->pieces[node->piece].us;
            *us = isnan(*us) ? node->profile_us : *us + node->profile_us;
        }
        if (placing->report.is_npu)
            time_fused(placing);
    }
}

const char *nd_where_name(enum nd_where where)
{
    static const char *const names[] = {"unknown", "npu", "off"};
    assert((size_t)where < sizeof names / sizeof names[0]);
    return names[where];
}

/* ---- what the capture holds ---- */

static const char *find_log(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++)
        if (strcmp(nd_capture_log_name(capture, i), name) == 0)
            return nd_capture_log_text(capture, i);
    return NULL;
}

/* A profile that cannot be read is told; that there is none is told by NaN. */
static enum nd_status settle(struct nd_placing *placing, enum nd_status status, bool *has,
                             struct nd_error *problem, struct nd_error *err)
{
    *has = status == ND_OK;
    if (status == ND_ERR_FORMAT)
        add_problem(placing, "%s", problem->message);
    return *has || status == ND_ERR_FORMAT ? ND_OK : nd_fail_memory(err);
}

static enum nd_status read_profiles(struct nd_placing *placing, struct nd_error *err)
{
    struct nd_error problem = {0};
    const char *text = find_log(placing->capture, "profile"), *csv = find_log(placing->capture, "qnn-profile");
    if (text != NULL)
        ND_TRY(settle(placing, nd_ort_profile_read("profile", text, strlen(text), &placing->profile, &problem),
                      &placing->has_profile, &problem, err));
    if (csv != NULL && csv[0] != '\0')
        ND_TRY(settle(placing, nd_qnn_csv_read("qnn-profile", csv, strlen(csv), &placing->csv, &problem),
                      &placing->has_csv, &problem, err));
    return ND_OK;
}

/* Shapes as the model declares them, where it does not as the device showed them, then what follows. */
static enum nd_status weigh_nodes(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_graph *graph = placing->graph;
    placing->infos = nd_arena_calloc(placing->arena, graph->n_tensors, sizeof *placing->infos);
    ND_TRY_MEMORY(placing->infos != NULL, err);
    nd_infer_declared(placing->model, placing->infos);
    for (size_t e = 0; e < nd_capture_n_tensors(placing->capture); e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(placing->capture, e);
        size_t item = nd_names_find(&graph->names, tensor->onnx_name);
        if (item != ND_NO_INDEX && tensor->shape.rank >= 0 && tensor->dtype != ND_DTYPE_NONE)
            placing->infos[item] = (struct nd_tensor_info){tensor->dtype, tensor->shape};
    }
    nd_infer_propagate(placing->model, placing->infos);
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        placing->nodes[i].flops = nd_node_flops(graph, i, placing->infos);
    return ND_OK;
}

/* ---- shares ---- */

/* A node that a layout pass added has its operator's name, and a token. */
static bool is_added(const struct nd_placed_node *node)
{
    size_t n = nd_token_stem_bytes(node->name);
    return node->name[n] != '\0' && strlen(node->op_type) == n && memcmp(node->op_type, node->name, n) == 0;
}

/* Operators of the model count: a session that records tensors has other quantisers and Transposes than the
 * model. */
static bool counts(const struct nd_placing *placing, size_t i)
{
    const struct nd_placed_node *node = &placing->nodes[i];
    if (placing->model == NULL)
        return !ND_IS_ONE_OF(node->op_type, "QuantizeLinear", "DequantizeLinear") && !is_added(node);
    return i < placing->n_model_nodes && nd_model_is_operator(placing->model, i);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void share_time(struct nd_placing *placing)
{
    struct nd_npu_share *share = &placing->report.share;
    const struct nd_ort_profile *profile = &placing->profile;
    double npu = 0, all = 0;
    share->npu_us = share->all_us = share->time = (double)NAN;
    if (!placing->has_profile || profile->n_runs == 0)
        return;
    share->n_runs = profile->n_runs - 1;
    for (size_t i = 0; i < profile->n_kernels; i++) {
        bool is_npu = placing_where(placing, profile->kernels[i].provider) == ND_WHERE_NPU;
        npu += is_npu ? profile->kernels[i].total_us : 0;
        all += profile->kernels[i].total_us;
    }
    if (share->n_runs == 0)
        return;
    share->time = ratio(npu, all);
    share->npu_us = npu / (double)share->n_runs;
    share->all_us = all / (double)share->n_runs;
}

static void share_out(struct nd_placing *placing)
{
    struct nd_npu_share *share = &placing->report.share;
    double npu = 0, all = 0;
    for (size_t i = 0; i < placing->report.n_nodes; i++) {
        const struct nd_placed_node *node = &placing->nodes[i];
        if (!counts(placing, i))
            continue;
        share->n_npu += node->where == ND_WHERE_NPU;
        share->n_off += node->where == ND_WHERE_OFF;
        share->n_unknown += node->where == ND_WHERE_UNKNOWN;
        if (node->where == ND_WHERE_UNKNOWN)
            continue;
        share->n_unsized += isnan(node->flops) ? 1 : 0;
        if (isnan(node->flops))
            continue;
        npu += node->where == ND_WHERE_NPU ? node->flops : 0;
        all += node->flops;
    }
    share->nodes = ratio((double)share->n_npu, (double)(share->n_npu + share->n_off));
    share->flops = ratio(npu, all);
    share_time(placing);
}

/* ---- the report ---- */

static enum nd_status check_model(const struct nd_placing *placing, struct nd_error *err)
{
    const char *sha256 = nd_capture_string(placing->capture, "model", "sha256");
    if (placing->model == NULL || sha256 == NULL || strcmp(sha256, nd_model_sha256(placing->model)) == 0)
        return ND_OK;
    return nd_fail(err, ND_E_COMPARE_MODEL, nd_capture_path(placing->capture),
                   "'%s' is a capture of a different model than '%s' (SHA-256 %.12s instead of %.12s)",
                   nd_capture_path(placing->capture), nd_model_path(placing->model), sha256,
                   nd_model_sha256(placing->model));
}

static enum nd_status examine(struct nd_placing *placing, struct nd_error *err)
{
    ND_TRY(check_model(placing, err));
    ND_TRY(read_profiles(placing, err));
    ND_TRY(match_nodes(placing, err));
    size_t n = nd_capture_n_tensors(placing->capture);
    placing->tensors = nd_arena_calloc(placing->arena, n, sizeof *placing->tensors);
    for (size_t e = 0; placing->tensors != NULL && e < n; e++) {
        const char *provider = nd_capture_tensor_provider(placing->capture, e);
        placing->tensors[e] = (struct nd_placed_tensor){nd_capture_tensor(placing->capture, e)->name, provider,
                                                        placing_where(placing, provider)};
    }
    placing->report.n_tensors = n;
    if (placing->has_csv) {
        const struct nd_qnn_csv *csv = &placing->csv;
        if (csv->n_malformed > 0)
            add_problem(placing, "profile 'qnn-profile': %zu lines are no rows, the first is line %zu",
                        csv->n_malformed, csv->first_malformed);
        if (csv->is_truncated)
            add_problem(placing, "profile 'qnn-profile': the last line is cut off");
        if (csv->n_dropped > 0)
            add_problem(placing, "profile 'qnn-profile': %zu rows of too many different events are left out",
                        csv->n_dropped);
        if (csv->unknown[0] != '\0')
            add_problem(placing, "profile 'qnn-profile': not known: %s", csv->unknown);
        placing->events = nd_arena_calloc(placing->arena, csv->n_events, sizeof *placing->events);
        for (size_t i = 0; placing->events != NULL && i < csv->n_events; i++) {
            const struct nd_qnn_event *event = &csv->events[i];
            placing->events[i] = (struct nd_provider_event){event->message, event->identifier, event->unit,
                                                            event->n, event->total};
        }
        placing->report.n_events = csv->n_events;
    }
    if (placing->model != NULL) {
        ND_TRY(weigh_nodes(placing, err));
        cut_graph(placing);
    }
    share_out(placing);
    ND_TRY_MEMORY(!nd_arena_has_failed(placing->arena), err);
    return ND_OK;
}

enum nd_status nd_placement_examine(const struct nd_model *model, const struct nd_capture *capture,
                                    struct nd_placement_report **out, struct nd_error *err)
{
    struct nd_arena *arena = nd_arena_create();
    struct nd_placing *placing = arena != NULL ? nd_arena_calloc(arena, 1, sizeof *placing) : NULL;
    if (placing == NULL)
        nd_arena_destroy(arena);
    ND_TRY_MEMORY(placing != NULL, err);
    placing->arena = arena;
    const char *provider = nd_capture_string(capture, "runtime", "provider");
    placing->model = model;
    placing->graph = model != NULL ? &model->graph : NULL;
    placing->capture = capture;
    placing->report.wanted_provider = provider != NULL ? provider : "";
    placing->report.is_npu = nd_capture_is_called_npu(capture) ||
                             (placing->report.wanted_provider[0] != '\0' &&
                              strcmp(placing->report.wanted_provider, "CPUExecutionProvider") != 0);
    enum nd_status status = examine(placing, err);
    struct nd_placement_report *report = &placing->report;
    report->nodes = placing->nodes;
    report->tensors = placing->tensors;
    report->pieces = placing->pieces;
    report->cuts = placing->cuts;
    report->events = placing->events;
    report->problems = placing->problems;
    if (status != ND_OK)
        nd_placement_destroy(&report);
    else
        *out = report;
    return status;
}

void nd_placement_destroy(struct nd_placement_report **report)
{
    struct nd_placing *placing = (struct nd_placing *)*report;
    if (placing == NULL)
        return;
    ND_FREE_ALL(placing->problems, placing->cuts);
    nd_names_deinit(&placing->names);
    nd_names_deinit(&placing->run_names);
    nd_ort_profile_deinit(&placing->profile);
    nd_qnn_csv_deinit(&placing->csv);
    nd_arena_destroy(placing->arena);
    *report = NULL;
}
