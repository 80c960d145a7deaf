/* Where each node ran, from the assignment, the profile and the file of the provider. docs/science/fallback.md.
 */
#include <assert.h>
#include <math.h>

#include "compare/placement/placement.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/parts.h"

/* How the placement cuts the graph: pieces that run at once or one after the other in one place, the tensors
 * that go between them, and what both cost. */

/* Pieces while they are found. A fused piece is known by its subgraph. Other nodes are of one piece when they
 * are connected, of one provider and equally many changes of place away from the inputs: so no way can lead out
 * of a piece and back into it. */
struct cutting {
    struct nd_placing *placing;
    const struct nd_graph *graph;
    size_t *parent; /* [model nodes]: union-find */
    size_t *depth;  /* changes of place on the way from the inputs */
    size_t *colour; /* a node that stands for subgraph or provider; SIZE_MAX: nothing known on the way */
};

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

/* The node that makes input i of a node, where that is not a constant; ND_NO_INDEX. */
static size_t maker_of(const struct cutting *cutting, size_t node, size_t i)
{
    const struct nd_graph_node *at = &cutting->graph->nodes[node];
    size_t tensor = cutting->graph->uses[at->first_use + i];
    size_t maker = tensor != ND_NO_INDEX ? cutting->graph->tensors[tensor].producer : ND_NO_INDEX;
    return maker != ND_NO_INDEX && !cutting->graph->nodes[maker].is_constant ? maker : ND_NO_INDEX;
}

static void find_depth(struct cutting *cutting, size_t node)
{
    bool is_known = is_placed(cutting->placing, node);
    cutting->colour[node] = is_known ? node : SIZE_MAX;
    for (size_t i = 0; i < cutting->graph->nodes[node].n_uses; i++) {
        size_t maker = maker_of(cutting, node, i);
        if (maker == ND_NO_INDEX)
            continue;
        size_t depth = cutting->depth[maker], colour = cutting->colour[maker];
        if (is_known && colour != SIZE_MAX && !is_together(cutting->placing, node, colour))
            depth++;
        if (depth >= cutting->depth[node]) {
            cutting->depth[node] = depth;
            if (!is_known && colour != SIZE_MAX)
                cutting->colour[node] = colour;
        }
    }
}

static void join_nodes(struct cutting *cutting)
{
    const struct nd_placing *placing = cutting->placing;
    size_t n = placing->n_model_nodes;
    for (size_t i = 0; i < n; i++) {
        cutting->parent[i] = i;
        find_depth(cutting, i);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; is_placed(placing, i) && k < cutting->graph->nodes[i].n_uses; k++) {
            size_t maker = maker_of(cutting, i, k);
            if (maker != ND_NO_INDEX && is_placed(placing, maker) && is_together(placing, i, maker) &&
                cutting->depth[i] == cutting->depth[maker])
                join(cutting->parent, i, maker);
        }
}

/* Nodes of one subgraph are one piece, connected or not. */
static bool join_subgraphs(struct cutting *cutting)
{
    const struct nd_placing *placing = cutting->placing;
    int64_t top = 0;
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        top = placing->subgraphs[i] > top ? placing->subgraphs[i] : top;
    size_t n_rows = nd_capture_n_nodes(placing->capture);
    if ((uint64_t)top > n_rows) /* numbers that no assignment makes: what is connected still is */
        return true;
    ND_FREED size_t *first = nd_calloc((size_t)top + 1, sizeof *first);
    if (first == NULL)
        return false;
    for (size_t i = 0; i < placing->n_model_nodes; i++) {
        if (!is_placed(placing, i) || !is_fused(placing, i))
            continue;
        size_t *of = &first[placing->subgraphs[i]]; /* node + 1 */
        if (*of == 0)
            *of = i + 1;
        join(cutting->parent, *of - 1, i);
    }
    return true;
}

static bool number_pieces(struct cutting *cutting)
{
    struct nd_placing *placing = cutting->placing;
    size_t n_pieces = 0;
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        n_pieces += is_placed(placing, i) && root_of(cutting->parent, i) == i;
    placing->pieces = nd_calloc(n_pieces, sizeof *placing->pieces);
    if (placing->pieces == NULL)
        return false;
    for (size_t i = 0; i < placing->n_model_nodes; i++) {
        if (!is_placed(placing, i))
            continue;
        struct nd_placed_node *node = &placing->nodes[i];
        size_t root = root_of(cutting->parent, i);
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
    return true;
}

/* ---- what goes between ---- */

static struct nd_placed_cut *find_cut(struct nd_placing *placing, size_t from, size_t to, const char *tensor)
{
    for (size_t i = placing->report.n_cuts; i-- > 0;)
        if (placing->cuts[i].from == from && placing->cuts[i].to == to)
            return &placing->cuts[i];
    if (!nd_grow((void **)&placing->cuts, &placing->cuts_capacity, placing->report.n_cuts + 1,
                 sizeof *placing->cuts))
        return NULL;
    struct nd_placed_cut *cut = &placing->cuts[placing->report.n_cuts++];
    *cut = (struct nd_placed_cut){.from = from, .to = to, .tensor = tensor};
    return cut;
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
static bool count_tensor(struct nd_placing *placing, size_t t)
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
            return false;
        cut->n_tensors++;
        cut->n_unsized += isnan(bytes) ? 1 : 0;
        cut->bytes += isnan(bytes) ? 0 : bytes;
    }
    if (leaves && from != SIZE_MAX)
        placing->pieces[from].bytes_out += bytes;
    return true;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct nd_placed_cut *p = a, *q = b;
    if (p->from != q->from)
        return p->from < q->from ? -1 : 1;
    return p->to < q->to ? -1 : p->to > q->to;
}

/* ---- the order of execution ---- */

/* Kahn's algorithm over the cuts; of the pieces that are ready the one whose first node comes first. place[] is
 * filled. Pieces in a ring (which no assignment makes) keep their order at the end. */
static bool order_pieces(const struct nd_placing *placing, size_t *place)
{
    size_t n = placing->report.n_pieces, n_done = 0;
    ND_FREED size_t *waits = nd_calloc(n, sizeof *waits);
    if (waits == NULL)
        return false;
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
    return true;
}

static bool sort_pieces(struct nd_placing *placing)
{
    size_t n = placing->report.n_pieces;
    ND_FREED size_t *place = nd_calloc(n, sizeof *place);
    ND_FREED struct nd_placed_piece *sorted = nd_calloc(n, sizeof *sorted);
    bool is_whole = place != NULL && sorted != NULL && order_pieces(placing, place);
    if (is_whole) {
        for (size_t i = 0; i < n; i++)
            sorted[place[i]] = placing->pieces[i];
        for (size_t i = 0; i < placing->report.n_nodes; i++)
            if (placing->nodes[i].piece != SIZE_MAX)
                placing->nodes[i].piece = place[placing->nodes[i].piece];
        for (size_t i = 0; i < placing->report.n_cuts; i++) {
            placing->cuts[i].from = place[placing->cuts[i].from];
            placing->cuts[i].to = place[placing->cuts[i].to];
        }
        free(placing->pieces);
        placing->pieces = sorted;
        sorted = NULL;
    }
    if (placing->report.n_cuts > 1)
        qsort(placing->cuts, placing->report.n_cuts, sizeof *placing->cuts, compare_cuts);
    return is_whole;
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
static bool time_fused(struct nd_placing *placing)
{
    const struct nd_ort_profile *profile = &placing->profile;
    size_t n_pieces = 0, n_kernels = 0, last = SIZE_MAX;
    bool *reached = nd_calloc(placing->report.n_pieces, sizeof *reached), is_chain = true;
    if (reached == NULL)
        return false;
    for (size_t i = 0; i < placing->report.n_pieces; i++) {
        if (placing->pieces[i].where != ND_WHERE_NPU)
            continue;
        n_pieces++;
        is_chain = is_chain && n_pieces <= 256 && (last == SIZE_MAX || leads_to(placing, last, i, reached));
        last = i;
    }
    free(reached);
    for (size_t i = 0; i < profile->n_kernels; i++)
        n_kernels += nd_placing_where(placing, profile->kernels[i].provider) == ND_WHERE_NPU;
    if (n_kernels != n_pieces && n_kernels > 0)
        return nd_placing_problem(placing,
                                  "the profile has %zu kernels on %s where the placement of the model's nodes "
                                  "makes %zu pieces",
                                  n_kernels, placing->report.wanted_provider, n_pieces);
    for (size_t i = 0, k = 0; is_chain && profile->n_runs > 1 && n_kernels > 0 && i < placing->report.n_pieces;
         i++) {
        if (placing->pieces[i].where != ND_WHERE_NPU)
            continue;
        while (nd_placing_where(placing, profile->kernels[k].provider) != ND_WHERE_NPU)
            k++;
        placing->pieces[i].us = profile->kernels[k++].total_us / (double)(profile->n_runs - 1);
    }
    return true;
}

static bool time_pieces(struct nd_placing *placing)
{
    if (!placing->has_profile)
        return true;
    for (size_t i = 0; i < placing->n_model_nodes; i++) {
        const struct nd_placed_node *node = &placing->nodes[i];
        if (node->piece == SIZE_MAX || node->where != ND_WHERE_OFF || isnan(node->profile_us))
            continue;
        double *us = &placing->pieces[node->piece].us;
        *us = isnan(*us) ? node->profile_us : *us + node->profile_us;
    }
    return !placing->report.is_npu || time_fused(placing);
}

/* Pieces and cuts, and what they cost. Needs the model. */
static enum nd_status placing_cut(struct nd_placing *placing, struct nd_error *err)
{
    size_t n = placing->n_model_nodes;
    struct cutting cutting = {.placing = placing,
                              .graph = placing->graph,
                              .parent = nd_calloc(n, sizeof *cutting.parent),
                              .depth = nd_calloc(n, sizeof *cutting.depth),
                              .colour = nd_calloc(n, sizeof *cutting.colour)};
    bool is_whole = cutting.parent != NULL && cutting.depth != NULL && cutting.colour != NULL;
    if (is_whole) {
        join_nodes(&cutting);
        is_whole = join_subgraphs(&cutting) && number_pieces(&cutting);
    }
    for (size_t t = 0; is_whole && t < placing->graph->n_tensors; t++)
        if (!placing->graph->tensors[t].is_constant)
            is_whole = count_tensor(placing, t);
    is_whole = is_whole && sort_pieces(placing) && time_pieces(placing);
    ND_FREE_ALL(cutting.parent, cutting.depth, cutting.colour);
    return is_whole ? ND_OK : nd_fail_memory(err);
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
        status = nd_placing_problem(placing, "%s", problem->message) ? ND_OK : nd_fail_memory(err);
    else if (status != ND_OK)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status read_profiles(struct nd_placing *placing, struct nd_error *err)
{
    struct nd_error problem = {0};
    const char *text = find_log(placing->capture, "profile");
    enum nd_status status = ND_OK;
    if (text != NULL) {
        status = nd_ort_profile_read("profile", text, strlen(text), &placing->profile, &problem);
        status = settle(placing, status, &placing->has_profile, &problem, err);
    }
    text = find_log(placing->capture, "qnn-profile");
    if (status == ND_OK && text != NULL && text[0] != '\0') {
        status = nd_qnn_csv_read("qnn-profile", text, strlen(text), &placing->csv, &problem);
        status = settle(placing, status, &placing->has_csv, &problem, err);
    }
    return status;
}

static enum nd_status list_events(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_qnn_csv *csv = &placing->csv;
    bool is_whole = true;
    if (!placing->has_csv)
        return ND_OK;
    if (csv->n_malformed > 0)
        is_whole =
            nd_placing_problem(placing, "profile 'qnn-profile': %zu lines are no rows, the first is line %zu",
                               csv->n_malformed, csv->first_malformed);
    if (csv->is_truncated)
        is_whole = is_whole && nd_placing_problem(placing, "profile 'qnn-profile': the last line is cut off");
    if (csv->n_dropped > 0)
        is_whole = is_whole && nd_placing_problem(placing,
                                                  "profile 'qnn-profile': %zu rows of too many different "
                                                  "events are left out",
                                                  csv->n_dropped);
    if (csv->unknown[0] != '\0')
        is_whole =
            is_whole && nd_placing_problem(placing, "profile 'qnn-profile': not known: %s", csv->unknown);
    placing->events = nd_calloc(csv->n_events, sizeof *placing->events);
    ND_TRY_MEMORY(is_whole && placing->events != NULL, err);
    for (size_t i = 0; i < csv->n_events; i++) {
        const struct nd_qnn_event *event = &csv->events[i];
        placing->events[i] =
            (struct nd_provider_event){event->message, event->identifier, event->unit, event->n, event->total};
    }
    placing->report.n_events = csv->n_events;
    return ND_OK;
}

static enum nd_status list_tensors(struct nd_placing *placing, struct nd_error *err)
{
    size_t n = nd_capture_n_tensors(placing->capture);
    placing->tensors = nd_calloc(n, sizeof *placing->tensors);
    ND_TRY_MEMORY(placing->tensors != NULL, err);
    for (size_t e = 0; e < n; e++) {
        const char *provider = nd_capture_tensor_provider(placing->capture, e);
        placing->tensors[e] = (struct nd_placed_tensor){nd_capture_tensor(placing->capture, e)->name, provider,
                                                        nd_placing_where(placing, provider)};
    }
    placing->report.n_tensors = n;
    return ND_OK;
}

/* Shapes as the model declares them, where it does not as the device showed them, then what follows. */
static enum nd_status weigh_nodes(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_graph *graph = placing->graph;
    placing->infos = nd_calloc(graph->n_tensors, sizeof *placing->infos);
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
        bool is_npu = nd_placing_where(placing, profile->kernels[i].provider) == ND_WHERE_NPU;
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
    ND_TRY(nd_placing_match(placing, err));
    ND_TRY(list_tensors(placing, err));
    ND_TRY(list_events(placing, err));
    if (placing->model != NULL)
        ND_TRY(weigh_nodes(placing, err));
    if (placing->model != NULL)
        ND_TRY(placing_cut(placing, err));
    share_out(placing);
    return ND_OK;
}

enum nd_status nd_placement_examine(const struct nd_model *model, const struct nd_capture *capture,
                                    struct nd_placement_report **out, struct nd_error *err)
{
    struct nd_placing *placing = nd_calloc(1, sizeof *placing);
    ND_TRY_MEMORY(placing != NULL, err);
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
    report->problems = (const char *const *)placing->problems;
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
    for (size_t i = 0; i < placing->report.n_problems; i++)
        free(placing->problems[i]);
    ND_FREE_ALL(placing->problems, placing->nodes, placing->subgraphs, placing->tensors, placing->pieces,
                placing->cuts, placing->events, placing->infos);
    nd_names_deinit(&placing->run_names);
    nd_ort_profile_deinit(&placing->profile);
    nd_qnn_csv_deinit(&placing->csv);
    free(placing);
    *report = NULL;
}
