/* A digest of what an arithmetic makes of a model. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/tensors/digest_stream.h"
#include "core/tensors/scales.h"
#include "explain/plan/replay.h"
#include "improve/align/certificate/certificate.h"

struct witness {
    const struct nd_model *model;
    const struct nd_unit_program *program;
    struct nd_digest_stream *stream;
};

/* A nd_exact_make. */
static enum nd_status hear(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                           bool *is_made, struct nd_error *err)
{
    const struct witness *w = context;
    enum nd_status status = nd_unit_program_run(w->program, unit, NULL, codes, is_made, err);
    if (status != ND_OK || !*is_made)
        return status;
    const char *name = nd_model_edge(w->model, unit->edge)->name;
    nd_digest_stream_add(w->stream, name, strlen(name) + 1);
    for (size_t i = 0; i < codes->n; i++) {
        int32_t code = (int32_t)codes->x[i]; /* two's complement, little endian */
        unsigned char bytes[4];
        for (int b = 0; b < 4; b++)
            bytes[b] = (unsigned char)((uint32_t)code >> (8 * b));
        nd_digest_stream_add(w->stream, bytes, sizeof bytes);
    }
    return ND_OK;
}

/* Codes over the whole range of the type, drawn with the name as the seed. */
static enum nd_status draw(const struct nd_edge *edge, struct nd_array *codes, struct nd_error *err)
{
    *codes = nd_no_array();
    if (edge->quant.n == 0 || edge->shape.rank < 0 || !nd_dtype_is_of_codes(edge->dtype))
        return ND_OK;
    double low, high;
    nd_code_range(edge->dtype, &low, &high);
    enum nd_status status = nd_array_make(codes, edge->dtype, &edge->shape, err);
    uint64_t state = nd_digest_bytes(edge->name, strlen(edge->name)).low;
    for (size_t i = 0; status == ND_OK && i < codes->n; i++)
        codes->x[i] = low + (double)nd_splitmix_below(&state, (size_t)(high - low) + 1);
    return status;
}

static enum nd_status run(const struct witness *w, struct nd_array *given, struct nd_error *err)
{
    struct nd_exact_graph *graph = NULL;
    struct nd_array *inputs;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = hear, .given = given, .missed = nd_exact_let_go};
    enum nd_status status = nd_inputs_create(w->model, &inputs, err);
    for (size_t e = 0; e < nd_model_n_edges(w->model) && status == ND_OK; e++)
        status = draw(nd_model_edge(w->model, e), &given[e], err);
    if (status == ND_OK)
        status = nd_exact_graph_create(w->model, &graph, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, NULL, (void *)(uintptr_t)w, err);
    nd_exact_graph_destroy(&graph);
    nd_inputs_destroy(w->model, &inputs);
    return status;
}

enum nd_status nd_align_behaviour(const struct nd_model *model, const struct nd_unit_program *program,
                                  char digits[static ND_CERTIFICATE_DIGEST_BYTES], struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(model);
    struct nd_array *given = nd_calloc(n_edges, sizeof *given);
    struct witness w = {.model = model, .program = program, .stream = nd_digest_stream_create()};
    enum nd_status status = given != NULL && w.stream != NULL ? run(&w, given, err) : nd_fail_memory(err);
    if (status == ND_OK)
        nd_certificate_print_digest(nd_digest_stream_value(w.stream), digits);
    nd_digest_stream_destroy(&w.stream);
    for (size_t e = 0; given != NULL && e < n_edges; e++)
        nd_array_deinit(&given[e]);
    free(given);
    return status;
}
