/* Functions of one quantised tensor, by code: a Sigmoid of 8-bit codes has 256 values, however large the tensor
 * and however often it is evaluated. Each is worked out once, by the operator itself, so that a value from the
 * table is the one that the operator gives. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/graph_internal.h"

enum {
    SHARE_OF_CODES = 16, /* a tensor with fewer elements than codes by this has no table: chosen, since a model
                            is evaluated for many samples and devices */
    MOST_TABLE_BYTES = 64 << 20, /* of all tables of a graph, 128 of 16-bit codes: chosen */
};

void nd_exact_tables_deinit(struct nd_exact_graph *g)
{
    for (size_t n = 0; n < g->model->graph.n_nodes; n++)
        nd_array_deinit(&g->store->tables[n]);
}

/* How many codes a type has; 0: too many for a table. */
static size_t n_codes_of(enum nd_dtype dtype)
{
    size_t bytes = nd_dtype_is_integer(dtype) ? nd_dtype_size_bytes(dtype) : 0;
    return bytes == 1 || bytes == 2 ? (size_t)1 << (8 * bytes) : 0;
}

static double least_code(enum nd_dtype dtype, size_t n_codes)
{
    return nd_dtype_is_signed_integer(dtype) ? -(double)(n_codes / 2) : 0;
}

/* The DequantizeLinear with one scale before the operator; ND_NO_INDEX: there is none. */
static size_t dequantiser_of(const struct nd_exact_run *run, size_t node)
{
    const struct nd_graph_node *n = &run->graph->nodes[node];
    size_t operand = nd_graph_used(run->graph, node, 0);
    if (n->n_inputs != 1 || n->n_made != 1 || n->n_uses != 1 || operand == ND_NO_INDEX)
        return ND_NO_INDEX;
    size_t producer = run->graph->tensors[operand].producer;
    bool is_it = producer != ND_NO_INDEX && run->graph->nodes[producer].kind == ND_NODE_DEQUANTIZE &&
                 run->g->quants[producer].quant.n == 1 && nd_exact_replaced(run, operand) == NULL &&
                 nd_graph_used(run->graph, producer, 0) != ND_NO_INDEX &&
                 !nd_exact_is_real(run, nd_graph_used(run->graph, producer, 0));
    return is_it && nd_op_is_function(n->proto) ? producer : ND_NO_INDEX;
}

static enum nd_status run_on(const struct nd_exact_run *run, size_t node, const struct nd_array *const *inputs,
                             struct nd_array *out, struct nd_error *err)
{
    struct nd_array *outputs[] = {out};
    const struct nd_op_call call = {.node = run->graph->nodes[node].proto,
                                    .opset = run->g->model->opset,
                                    .n_inputs = run->graph->nodes[node].n_inputs,
                                    .n_outputs = 1,
                                    .inputs = inputs,
                                    .outputs = outputs};
    return nd_op_run(&call, err);
}

/* The operator's value of each code. */
static enum nd_status make_table(struct nd_exact_run *run, size_t node, size_t dequantiser, enum nd_dtype dtype,
                                 struct nd_array *table, struct nd_error *err)
{
    size_t n_codes = n_codes_of(dtype), n_inputs = run->graph->nodes[dequantiser].n_inputs;
    const struct nd_shape shape = {.rank = 1, .dims = {(int64_t)n_codes}};
    struct nd_array codes = {0}, real = {0};
    const struct nd_array *inputs[3] = {&codes, NULL, NULL}, *operand[] = {&real};
    enum nd_status status = nd_array_make_room(&codes, dtype, &shape, err);
    for (size_t i = 0; i < codes.n && status == ND_OK; i++)
        codes.x[i] = least_code(dtype, n_codes) + (double)i;
    for (size_t i = 1; i < n_inputs && i < 3 && status == ND_OK; i++) {
        status = nd_exact_ensure(run, nd_graph_used(run->graph, dequantiser, i), err);
        inputs[i] = nd_exact_value(run, nd_graph_used(run->graph, dequantiser, i));
    }
    if (status == ND_OK)
        status = run_on(run, dequantiser, inputs, &real, err);
    if (status == ND_OK)
        status = run_on(run, node, operand, table, err);
    nd_array_deinit(&codes);
    nd_array_deinit(&real);
    return status;
}

/* The table of the node, made by who asks first; NULL: there is no room for it, or the operator refuses. */
static const struct nd_array *table_of(struct nd_exact_run *run, size_t node, size_t dequantiser,
                                       enum nd_dtype dtype)
{
    struct nd_exact_store *store = run->g->store;
    struct nd_array *kept = &store->tables[node], made = {0};
    size_t bytes = n_codes_of(dtype) * sizeof *kept->x;
    pthread_mutex_lock(&store->lock);
    bool is_there = kept->n > 0, has_room = store->table_bytes + bytes <= MOST_TABLE_BYTES;
    pthread_mutex_unlock(&store->lock);
    if (!is_there && (!has_room || make_table(run, node, dequantiser, dtype, &made, NULL) != ND_OK)) {
        nd_array_deinit(&made);
        return NULL;
    }
    pthread_mutex_lock(&store->lock);
    if (kept->n == 0) {
        *kept = made;
        made = (struct nd_array){0};
        store->table_bytes += bytes;
    }
    pthread_mutex_unlock(&store->lock);
    nd_array_deinit(&made);
    return kept;
}

/* False: a code that the type does not have, as those have that were moved to see how far an error reaches. */
static bool gather(const struct nd_array *table, double least, const struct nd_array *codes, double *out)
{
    for (size_t i = 0; i < codes->n; i++) {
        double place = codes->x[i] - least;
        if (!(place >= 0 && place < (double)table->n && place == (double)(int)place))
            return false;
        out[i] = table->x[(int)place];
    }
    return true;
}

enum nd_status nd_exact_look_up(struct nd_exact_run *run, size_t node, bool *is_made, struct nd_error *err)
{
    size_t dequantiser = dequantiser_of(run, node), made = nd_graph_made(run->graph, node, 0);
    *is_made = false;
    if (dequantiser == ND_NO_INDEX || made == ND_NO_INDEX || run->values[made].shape.rank >= 0)
        return ND_OK;
    size_t tensor = nd_graph_used(run->graph, dequantiser, 0);
    enum nd_status status = nd_exact_ensure(run, tensor, err);
    if (status != ND_OK)
        return status;
    const struct nd_array *codes = nd_exact_value(run, tensor);
    size_t n_codes = n_codes_of(codes->dtype);
    if (n_codes == 0 || codes->n < n_codes / SHARE_OF_CODES)
        return ND_OK;
    const struct nd_array *table = table_of(run, node, dequantiser, codes->dtype);
    struct nd_array values = {0};
    if (table == NULL)
        return ND_OK;
    status = nd_array_make_room(&values, table->dtype, &codes->shape, err);
    *is_made = status == ND_OK && gather(table, least_code(codes->dtype, n_codes), codes, values.x);
    if (*is_made)
        run->values[made] = values;
    else
        nd_array_deinit(&values);
    return status;
}
