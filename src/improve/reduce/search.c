/* Which parts are tried, and in which order: what the failure speaks of first, then delta debugging. */
#include "improve/reduce/reducer.h"

#include "core/files/file.h"
#include "core/items.h"
#include "model/graph/loaded.h"

/* ---- delta debugging ---- */

struct search {
    size_t *parts; /* the smallest set so far */
    size_t n;
    size_t *candidate;
    nd_trial_function test;
    void *context;
    bool is_stopped;
};

/* Parts [first, last) alone, or all but these. */
static size_t choose(struct search *search, size_t first, size_t last, bool is_complement)
{
    size_t n = 0;
    for (size_t i = 0; i < search->n; i++)
        if ((i >= first && i < last) != is_complement)
            search->candidate[n++] = search->parts[i];
    return n;
}

/* One round: *has_shrunk when a smaller set does the same, which then is search->parts. */
static enum nd_status try_pieces(struct search *search, size_t n_pieces, bool is_complement, bool *has_shrunk,
                                 struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n = search->n;
    *has_shrunk = false;
    for (size_t p = 0; status == ND_OK && p < n_pieces && !*has_shrunk && !search->is_stopped; p++) {
        enum nd_trial trial = ND_TRIAL_NOT;
        size_t chosen = choose(search, n * p / n_pieces, n * (p + 1) / n_pieces, is_complement);
        status = search->test(search->context, search->candidate, chosen, &trial, err);
        search->is_stopped = trial == ND_TRIAL_STOP;
        *has_shrunk = status == ND_OK && trial == ND_TRIAL_SAME;
        if (*has_shrunk) {
            memcpy(search->parts, search->candidate, chosen * sizeof *search->parts);
            search->n = chosen;
        }
    }
    return status;
}

enum nd_status nd_ddmin(size_t *parts, size_t *n, nd_trial_function test, void *context, bool *is_minimal,
                        struct nd_error *err)
{
    struct search search = {.parts = parts, .n = *n, .test = test, .context = context};
    search.candidate = nd_calloc(*n, sizeof *search.candidate);
    ND_TRY_MEMORY(search.candidate != NULL, err);
    enum nd_status status = ND_OK;
    size_t n_pieces = 2;
    bool is_done = false;
    while (status == ND_OK && search.n > 1 && !is_done && !search.is_stopped) {
        bool has_shrunk = false;
        status = try_pieces(&search, n_pieces, false, &has_shrunk, err);
        if (has_shrunk) {
            n_pieces = 2;
            continue;
        }
        /* With two pieces the complements are the pieces. */
        if (status == ND_OK && n_pieces > 2)
            status = try_pieces(&search, n_pieces, true, &has_shrunk, err);
        if (has_shrunk) {
            n_pieces = n_pieces - 1 > search.n ? search.n : n_pieces - 1;
            n_pieces = n_pieces < 2 ? 2 : n_pieces;
            continue;
        }
        is_done = n_pieces >= search.n;
        n_pieces = 2 * n_pieces < search.n ? 2 * n_pieces : search.n;
    }
    free(search.candidate);
    *n = search.n;
    *is_minimal = status == ND_OK && !search.is_stopped;
    return status;
}

/* ---- what was tried ---- */

struct nd_trial_entry {
    size_t *parts;
    size_t n;
    enum nd_trial trial;
};

bool nd_trials_find(const struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial *out)
{
    for (size_t i = 0; i < trials->n; i++) {
        const struct nd_trial_entry *entry = &trials->entries[i];
        if (entry->n == n && memcmp(entry->parts, parts, n * sizeof *parts) == 0) {
            *out = entry->trial;
            return true;
        }
    }
    return false;
}

enum nd_status nd_trials_add(struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial trial,
                             struct nd_error *err)
{
    size_t *copy = nd_calloc(n, sizeof *copy);
    if (copy == NULL ||
        !nd_grow((void **)&trials->entries, &trials->capacity, trials->n + 1, sizeof *trials->entries)) {
        free(copy);
        return nd_fail_memory(err);
    }
    memcpy(copy, parts, n * sizeof *copy);
    trials->entries[trials->n++] = (struct nd_trial_entry){copy, n, trial};
    return ND_OK;
}

void nd_trials_deinit(struct nd_trials *trials)
{
    ND_FREE_EACH(trials->entries, trials->n, .parts);
    *trials = (struct nd_trials){0};
}

/* ---- pieces ---- */

bool nd_node_is_operator(const struct nd_model *model, size_t node)
{
    const struct nd_graph_node *found = &model->graph.nodes[node];
    return found->kind == ND_NODE_OTHER && !found->is_constant;
}

static const struct nd_graph_tensor *made_tensor(const struct nd_graph *graph, const struct nd_graph_node *node,
                                                 size_t i)
{
    size_t made = graph->made[node->first_made + i];
    return made != ND_NO_INDEX ? &graph->tensors[made] : NULL;
}

/* A DequantizeLinear is a part of its own only where its floats leave the model. */
static bool makes_output(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    for (size_t i = 0; i < node->n_made; i++) {
        const struct nd_graph_tensor *tensor = made_tensor(graph, node, i);
        if (tensor != NULL && tensor->output != ND_NO_INDEX)
            return true;
    }
    return false;
}

/* An operator that several layers share comes along with each of them. */
static bool is_shared(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    if (node->kind != ND_NODE_OTHER || makes_output(graph, node))
        return false;
    bool is_read = false;
    for (size_t i = 0; i < node->n_made; i++) {
        const struct nd_graph_tensor *tensor = made_tensor(graph, node, i);
        for (size_t r = 0; tensor != NULL && r < tensor->n_readers; r++) {
            is_read = true;
            if (graph->nodes[graph->readers[tensor->first_reader + r]].kind != ND_NODE_QUANTIZE)
                return false;
        }
    }
    return is_read;
}

static bool stands_alone(const struct nd_graph *graph, size_t n)
{
    const struct nd_graph_node *node = &graph->nodes[n];
    if (!node->is_alive || node->is_constant || is_shared(graph, node))
        return false;
    return node->kind != ND_NODE_DEQUANTIZE || makes_output(graph, node);
}

/* Makes a piece of all nodes of one group, in the order of the groups' last nodes; ND_NO_INDEX is in none. */
static enum nd_status collect(const size_t *group, size_t n_nodes, struct nd_pieces *out, struct nd_error *err)
{
    out->items = nd_calloc(n_nodes, sizeof *out->items);
    ND_FREED size_t *piece_of = nd_calloc(n_nodes, sizeof *piece_of), *n_in = nd_calloc(n_nodes, sizeof *n_in);
    ND_TRY_MEMORY(out->items != NULL && piece_of != NULL && n_in != NULL, err);
    for (size_t n = 0; n < n_nodes; n++) {
        if (group[n] == ND_NO_INDEX)
            continue;
        n_in[group[n]]++;
        /* A group is called by its last node, which is met when all of it was. */
        if (group[n] == n)
            piece_of[n] = out->n++;
    }
    for (size_t n = 0; n < n_nodes; n++) {
        if (group[n] == ND_NO_INDEX)
            continue;
        struct nd_piece *piece = &out->items[piece_of[group[n]]];
        if (piece->nodes == NULL && (piece->nodes = nd_calloc(n_in[group[n]], sizeof *piece->nodes)) == NULL)
            return nd_fail_memory(err);
        else
            piece->nodes[piece->n_nodes++] = n;
    }
    return ND_OK;
}

enum nd_status nd_pieces_of_layers(const struct nd_model *model, struct nd_pieces *out, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    ND_FREED size_t *group = NULL;
    *out = (struct nd_pieces){0};
    ND_TRY(nd_layers_assign(graph, &group, err));
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (group[n] == ND_NO_INDEX && stands_alone(graph, n))
            group[n] = n;
    return collect(group, graph->n_nodes, out, err);
}

/* The same, finer: of the given nodes every operator with the QuantizeLinear right behind it. */
static enum nd_status nd_pieces_of_operators(const struct nd_model *model, const size_t *nodes, size_t n_nodes,
                                             struct nd_pieces *out, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    *out = (struct nd_pieces){0};
    ND_FREED size_t *group = nd_calloc(graph->n_nodes, sizeof *group);
    ND_TRY_MEMORY(group != NULL, err);
    for (size_t n = 0; n < graph->n_nodes; n++)
        group[n] = ND_NO_INDEX;
    for (size_t i = 0; i < n_nodes; i++)
        group[nodes[i]] = nodes[i];
    /* The operator joins its QuantizeLinear, the last of them where there are several. */
    for (size_t i = 0; i < n_nodes; i++) {
        const struct nd_graph_node *node = &graph->nodes[nodes[i]];
        size_t source = graph->uses[node->first_use];
        size_t producer = node->kind == ND_NODE_QUANTIZE && source != ND_NO_INDEX
                              ? graph->tensors[source].producer
                              : ND_NO_INDEX;
        if (producer != ND_NO_INDEX && group[producer] == producer && nd_node_is_operator(model, producer) &&
            graph->tensors[source].n_readers == 1)
            group[producer] = nodes[i];
    }
    return collect(group, graph->n_nodes, out, err);
}

void nd_pieces_deinit(struct nd_pieces *pieces)
{
    ND_FREE_EACH(pieces->items, pieces->n, .nodes);
    *pieces = (struct nd_pieces){0};
}

static int by_index(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

enum nd_status nd_pieces_nodes(const struct nd_pieces *pieces, const size_t *parts, size_t n_parts,
                               size_t **nodes, size_t *n_nodes, struct nd_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++)
        n += pieces->items[parts[i]].n_nodes;
    size_t *all = nd_calloc(n, sizeof *all);
    ND_TRY_MEMORY(all != NULL, err);
    n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const struct nd_piece *piece = &pieces->items[parts[i]];
        for (size_t k = 0; k < piece->n_nodes; k++)
            all[n++] = piece->nodes[k];
    }
    qsort(all, n, sizeof *all, by_index);
    *nodes = all;
    *n_nodes = n;
    return ND_OK;
}

/* The node that makes what the tensor stands for, behind DequantizeLinear. ND_NO_INDEX: inputs, constants. */
static size_t real_producer(const struct nd_graph *graph, size_t tensor)
{
    while (tensor != ND_NO_INDEX && !graph->tensors[tensor].is_constant) {
        size_t producer = graph->tensors[tensor].producer;
        if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE)
            return producer;
        tensor = graph->uses[graph->nodes[producer].first_use];
    }
    return ND_NO_INDEX;
}

static bool has_node(const struct nd_piece *piece, size_t node)
{
    for (size_t i = 0; i < piece->n_nodes; i++)
        if (piece->nodes[i] == node)
            return true;
    return false;
}

static bool reads(const struct nd_graph *graph, const struct nd_piece *reader, const struct nd_piece *maker)
{
    for (size_t i = 0; i < reader->n_nodes; i++) {
        const struct nd_graph_node *node = &graph->nodes[reader->nodes[i]];
        for (size_t u = 0; u < node->n_uses; u++)
            if (has_node(maker, real_producer(graph, graph->uses[node->first_use + u])))
                return true;
    }
    return false;
}

/* Marks every piece that reads what `piece` makes or makes what it reads: is_near[pieces->n], set for the piece
 * itself as well. */
static void nd_pieces_near(const struct nd_model *model, const struct nd_pieces *pieces, size_t piece,
                           bool *is_near)
{
    for (size_t i = 0; i < pieces->n; i++)
        is_near[i] = i == piece || reads(&model->graph, &pieces->items[i], &pieces->items[piece]) ||
                     reads(&model->graph, &pieces->items[piece], &pieces->items[i]);
}

/* ---- the order ---- */

enum { MAX_GUESSES = 4, MAX_NEIGHBOURHOODS = 2 };

/* Two sessions are kept for the end: the reproducer once more, and its reference. */
enum { RESERVED_SESSIONS = 2 };

/* nd_trial_function over pieces; context is the reducer. */
static enum nd_status nd_reducer_try(void *context, const size_t *parts, size_t n, enum nd_trial *out,
                                     struct nd_error *err)
{
    struct nd_reducer *reducer = context;
    struct nd_smaller_model candidate = {0};
    struct nd_reduction_difference difference;
    struct nd_error problem = {0};
    ND_FREED size_t *nodes = NULL;
    struct nd_model_cut part = {0};
    if (nd_trials_find(&reducer->trials, parts, n, out))
        return ND_OK;
    ND_FREED char *folder = nd_path_join(reducer->folder, "part");
    ND_TRY_MEMORY(folder != NULL, err);
    ND_TRY(nd_pieces_nodes(&reducer->pieces, parts, n, &nodes, &part.n_nodes, err));
    reducer->n_tried++;
    part.nodes = nodes;
    enum nd_status status = nd_candidate_init(&candidate, reducer, &part, folder, &problem);
    *out = ND_TRIAL_NOT;
    if (status == ND_OK) {
        status = nd_candidate_try(reducer, &candidate, RESERVED_SESSIONS, out, &difference, err);
    } else if (status == ND_ERR_UNSUPPORTED || status == ND_ERR_NOT_FOUND || status == ND_ERR_FORMAT) {
        /* No model of its own: so it does not do the same. */
        reducer->out->n_uncut++;
        status = ND_OK;
    } else if (err != NULL) {
        *err = problem;
    }
    if (status == ND_OK && *out == ND_TRIAL_SAME)
        reducer->n_left = n;
    if (status == ND_OK && *out != ND_TRIAL_STOP)
        status = nd_trials_add(&reducer->trials, parts, n, *out, err);
    nd_candidate_deinit(&candidate);
    nd_dir_remove(folder);
    return status;
}

static unsigned score_of(const struct nd_piece *piece, const unsigned *score)
{
    unsigned best = 0;
    for (size_t i = 0; i < piece->n_nodes; i++)
        best = score[piece->nodes[i]] > best ? score[piece->nodes[i]] : best;
    return best;
}

/* The pieces with the best scores, best first, in graph order where equal. */
static size_t guess(const struct nd_reducer *reducer, const unsigned *score, size_t guesses[MAX_GUESSES])
{
    size_t n = 0;
    for (unsigned points = ND_FAILURE_BEST_SCORE; points > 0; points--)
        for (size_t i = 0; i < reducer->n_left && n < MAX_GUESSES; i++)
            if (score_of(&reducer->pieces.items[reducer->left[i]], score) == points)
                guesses[n++] = reducer->left[i];
    return n;
}

static void keep(struct nd_reducer *reducer, const size_t *parts, size_t n)
{
    memcpy(reducer->left, parts, n * sizeof *parts);
    reducer->n_left = n;
}

/* A guess alone, or with *is_done still false, what lies around one. */
static enum nd_status try_guesses(struct nd_reducer *reducer, const unsigned *score, bool *is_done,
                                  struct nd_error *err)
{
    size_t guesses[MAX_GUESSES], n_guesses = guess(reducer, score, guesses);
    enum nd_trial trial = ND_TRIAL_NOT;
    *is_done = false;
    for (size_t i = 0; i < n_guesses && trial == ND_TRIAL_NOT; i++) {
        ND_TRY(nd_reducer_try(reducer, &guesses[i], 1, &trial, err));
        *is_done = trial == ND_TRIAL_SAME;
        if (*is_done)
            keep(reducer, &guesses[i], 1);
    }
    ND_FREED bool *is_near = nd_calloc(reducer->pieces.n, sizeof *is_near);
    ND_FREED size_t *parts = nd_calloc(reducer->pieces.n, sizeof *parts);
    ND_TRY_MEMORY(is_near != NULL && parts != NULL, err);
    for (size_t i = 0; i < n_guesses && i < MAX_NEIGHBOURHOODS && trial == ND_TRIAL_NOT; i++) {
        size_t n = 0;
        nd_pieces_near(reducer->model, &reducer->pieces, guesses[i], is_near);
        for (size_t k = 0; k < reducer->n_left; k++)
            if (is_near[reducer->left[k]])
                parts[n++] = reducer->left[k];
        ND_TRY(nd_reducer_try(reducer, parts, n, &trial, err));
        if (trial == ND_TRIAL_SAME)
            keep(reducer, parts, n);
    }
    return ND_OK;
}

/* ---- layers ---- */

/* Everything, or everything that the wanted tensor depends on. */
static enum nd_status begin_layers(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_graph *graph = &reducer->model->graph;
    ND_TRY(nd_pieces_of_layers(reducer->model, &reducer->pieces, err));
    ND_FREED bool *nodes = nd_calloc(graph->n_nodes, sizeof *nodes);
    ND_FREED bool *tensors = nd_calloc(graph->n_tensors, sizeof *tensors);
    reducer->left = nd_calloc(reducer->pieces.n, sizeof *reducer->left);
    ND_TRY_MEMORY(nodes != NULL && tensors != NULL && reducer->left != NULL, err);
    if (reducer->wanted_tensor != NULL) {
        size_t wanted = nd_names_find(&graph->names, reducer->wanted_tensor);
        nd_graph_walk_back(graph, &wanted, 1, nodes, tensors);
    }
    for (size_t i = 0; i < reducer->pieces.n; i++)
        if (reducer->wanted_tensor == NULL ||
            nodes[reducer->pieces.items[i].nodes[reducer->pieces.items[i].n_nodes - 1]])
            reducer->left[reducer->n_left++] = i;
    reducer->out->n_layers = reducer->pieces.n;
    return ND_OK;
}

static enum nd_status search_layers(struct nd_reducer *reducer, const unsigned *score, struct nd_error *err)
{
    bool is_done = false;
    reducer->step = "layers";
    ND_TRY(begin_layers(reducer, err));
    ND_TRY(try_guesses(reducer, score, &is_done, err));
    reducer->out->is_minimal = true;
    if (!is_done)
        ND_TRY(
            nd_ddmin(reducer->left, &reducer->n_left, nd_reducer_try, reducer, &reducer->out->is_minimal, err));
    reducer->out->n_layers_left = reducer->n_left;
    return ND_OK;
}

/* ---- operators of what is left ---- */

/* What lies between the operators of a layer is no tensor, so nobody recorded it yet. A part that cannot be
 * recorded is no trouble: then cuts inside of layers are fed with zeros, or are none. */
static enum nd_status record_inside(struct nd_reducer *reducer, const size_t *nodes, size_t n_nodes,
                                    struct nd_error *err)
{
    struct nd_smaller_model candidate = {0};
    struct nd_run run = {0};
    struct nd_error problem = {0};
    ND_FREED char *folder = nd_path_join(reducer->folder, "inside");
    ND_TRY_MEMORY(folder != NULL, err);
    const struct nd_model_cut part = {.nodes = nodes, .n_nodes = n_nodes, .is_open = true};
    enum nd_status status = nd_candidate_init(&candidate, reducer, &part, folder, &problem);
    const struct nd_session session = nd_candidate_session(&candidate, &reducer->cpu, "none", "inside.h5");
    if (status == ND_OK)
        status = nd_reducer_run(reducer, &session, &run, &problem);
    if (status == ND_OK && !run.outcome.has_failed)
        status = nd_recorded_add(&reducer->recorded, &run.capture, true, err);
    else if (status != ND_OK && problem.id != ND_E_CANCELLED)
        status = ND_OK;
    else if (status != ND_OK && err != NULL)
        *err = problem;
    nd_run_deinit(&run);
    nd_candidate_deinit(&candidate);
    nd_dir_remove(folder);
    return status;
}

static size_t count_operators(const struct nd_model *model, const size_t *nodes, size_t n_nodes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_nodes; i++)
        n += nd_node_is_operator(model, nodes[i]);
    return n;
}

/* Takes the finer pieces over as what is left. */
static enum nd_status refine(struct nd_reducer *reducer, struct nd_pieces *finer, struct nd_error *err)
{
    size_t *left = nd_calloc(finer->n, sizeof *left);
    ND_TRY_MEMORY(left != NULL, err);
    for (size_t i = 0; i < finer->n; i++)
        left[i] = i;
    free(reducer->left);
    nd_pieces_deinit(&reducer->pieces);
    nd_trials_deinit(&reducer->trials);
    reducer->left = left;
    reducer->n_left = finer->n;
    reducer->pieces = *finer;
    *finer = (struct nd_pieces){0};
    return ND_OK;
}

static enum nd_status search_operators(struct nd_reducer *reducer, struct nd_error *err)
{
    ND_CLEANUP(nd_pieces_deinit) struct nd_pieces finer = {0};
    ND_FREED size_t *nodes = NULL;
    size_t n_nodes = 0;
    bool is_minimal = true;
    ND_TRY(nd_pieces_nodes(&reducer->pieces, reducer->left, reducer->n_left, &nodes, &n_nodes, err));
    if (count_operators(reducer->model, nodes, n_nodes) > 1)
        ND_TRY(nd_pieces_of_operators(reducer->model, nodes, n_nodes, &finer, err));
    if (finer.n > reducer->n_left) {
        reducer->step = "operators";
        if (reducer->out->n_sessions + 4 <= reducer->options->session_limit)
            ND_TRY(record_inside(reducer, nodes, n_nodes, err));
        ND_TRY(refine(reducer, &finer, err));
        ND_TRY(nd_ddmin(reducer->left, &reducer->n_left, nd_reducer_try, reducer, &is_minimal, err));
        reducer->out->is_minimal = reducer->out->is_minimal && is_minimal;
    }
    return ND_OK;
}

enum nd_status nd_reducer_search(struct nd_reducer *reducer, const unsigned *score, struct nd_error *err)
{
    ND_TRY(search_layers(reducer, score, err));
    return search_operators(reducer, err);
}
