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
    const struct nd_layer_arithmetic *arithmetic;
    struct nd_digest_stream *stream;
};

/* A nd_exact_make. */
static enum nd_status hear(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    const struct witness *w = context;
    enum nd_status status = nd_layer_arithmetic_run(w->arithmetic, layer, NULL, qvalues, is_made, err);
    if (status != ND_OK || !*is_made)
        return status;
    const char *name = nd_model_tensor(w->model, layer->tensor)->name;
    nd_digest_stream_add(w->stream, name, strlen(name) + 1);
    for (size_t i = 0; i < qvalues->n; i++) {
        int32_t qvalue = (int32_t)qvalues->x[i]; /* two's complement, little endian */
        unsigned char bytes[4];
        for (int b = 0; b < 4; b++)
            bytes[b] = (unsigned char)((uint32_t)qvalue >> (8 * b));
        nd_digest_stream_add(w->stream, bytes, sizeof bytes);
    }
    return ND_OK;
}

/* Quantised values over the whole range of the type, drawn with the name as the seed. */
static enum nd_status draw(const struct nd_tensor *tensor, struct nd_array *qvalues, struct nd_error *err)
{
    *qvalues = nd_no_array();
    if (tensor->quant.n == 0 || tensor->shape.rank < 0 || !nd_dtype_is_of_qvalues(tensor->dtype))
        return ND_OK;
    double low, high;
    nd_qvalue_range(tensor->dtype, &low, &high);
    enum nd_status status = nd_array_make(qvalues, tensor->dtype, &tensor->shape, err);
    uint64_t state = nd_digest_bytes(tensor->name, strlen(tensor->name)).low;
    for (size_t i = 0; status == ND_OK && i < qvalues->n; i++)
        qvalues->x[i] = low + (double)nd_splitmix_below(&state, (size_t)(high - low) + 1);
    return status;
}

static enum nd_status run(const struct witness *w, struct nd_array *given, struct nd_error *err)
{
    struct nd_exact_graph *graph = NULL;
    struct nd_array *inputs;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = hear, .given = given, .missed = nd_exact_let_go};
    enum nd_status status = nd_inputs_create(w->model, &inputs, err);
    for (size_t e = 0; e < nd_model_n_tensors(w->model) && status == ND_OK; e++)
        status = draw(nd_model_tensor(w->model, e), &given[e], err);
    if (status == ND_OK)
        status = nd_exact_graph_create(w->model, &graph, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, NULL, (void *)(uintptr_t)w, err);
    nd_exact_graph_destroy(&graph);
    nd_inputs_destroy(w->model, &inputs);
    return status;
}

enum nd_status nd_align_behaviour(const struct nd_model *model, const struct nd_layer_arithmetic *arithmetic,
                                  char digits[static ND_CERTIFICATE_DIGEST_BYTES], struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    struct nd_array *given = nd_calloc(n_tensors, sizeof *given);
    struct witness w = {.model = model, .arithmetic = arithmetic, .stream = nd_digest_stream_create()};
    enum nd_status status = given != NULL && w.stream != NULL ? run(&w, given, err) : nd_fail_memory(err);
    if (status == ND_OK)
        nd_certificate_print_digest(nd_digest_stream_value(w.stream), digits);
    nd_digest_stream_destroy(&w.stream);
    for (size_t e = 0; given != NULL && e < n_tensors; e++)
        nd_array_deinit(&given[e]);
    free(given);
    return status;
}
