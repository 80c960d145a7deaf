#include "fuzz/small_model.h"

#include "arithmetic/exact/eval_graph.h"
#include "core/memory.h"
#include "fuzz/fuzz.h"
#include "support/sanitizer.h"

#include <stdlib.h>
#include <sys/resource.h>

enum { MAX_ELEMENTS = 1 << 14, MAX_NODES = 300 };

/* Of inputs and tensors whose shapes are known. */
static bool is_small(const struct nd_model *model)
{
    size_t total = 0, n;
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        if (nd_shape_size_bytes(&nd_model_input(model, i)->shape, ND_DTYPE_U8, &n, NULL) != ND_OK ||
            n > MAX_ELEMENTS)
            return false;
        total += n;
    }
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (nd_shape_size_bytes(&nd_model_tensor(model, e)->shape, ND_DTYPE_U8, &n, NULL) == ND_OK)
            total += n < MAX_ELEMENTS ? n : MAX_ELEMENTS;
    return total < MAX_ELEMENTS && nd_model_n_nodes(model) <= MAX_NODES;
}

/* Shapes that are not known before may be of any size (a Pad). */
static enum nd_status count(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    size_t *total = context;
    (void)tensor;
    (void)method;
    (void)err;
    *total += values->n < MAX_ELEMENTS ? values->n : MAX_ELEMENTS;
    return *total < MAX_ELEMENTS ? ND_OK : ND_ERR_UNSUPPORTED;
}

/* What is larger cannot be made, and costs no time. */
#define MOST_BYTES "512"

const char *__asan_default_options(void); // NOLINT: the sanitizer's name
const char *__asan_default_options(void)  // NOLINT
{
    return "max_allocation_size_mb=" MOST_BYTES ":allocator_may_return_null=1";
}

static void limit_memory(void)
{
    const rlim_t most = (rlim_t)strtoul(MOST_BYTES, NULL, 10) << 20;
    if (!ND_HAS_SANITIZER) /* which takes any address */
        setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

static bool makes_little(const struct small_model *small)
{
    struct nd_exact_graph *graph = NULL;
    size_t total = 0;
    if (nd_exact_graph_create(small->model, &graph, NULL) == ND_OK)
        nd_exact_graph_run(graph, small->inputs, NULL, count, &total, NULL);
    nd_exact_graph_destroy(&graph);
    return total < MAX_ELEMENTS;
}

/* Codes of any type are in range, floats lie between -2.5 and 2.5. */
static bool make_input(const struct nd_model_io *io, struct nd_array *array)
{
    if (nd_array_make(array, io->dtype, &io->shape, NULL) != ND_OK)
        return false;
    for (size_t i = 0; i < array->n; i++) {
        double value = (double)(i * 37 % 127);
        array->x[i] = io->dtype == ND_DTYPE_BOOL       ? (double)(i % 2)
                      : nd_dtype_is_integer(io->dtype) ? value
                                                       : value / 25.4 - 2.5;
    }
    return true;
}

bool small_model_open(struct small_model *small, const uint8_t *data, size_t size)
{
    *small = (struct small_model){0};
    limit_memory();
    if (nd_model_load(fuzz_file("x.onnx", data, size), &small->model, NULL) != ND_OK ||
        nd_model_check_static(small->model, NULL) != ND_OK || !is_small(small->model))
        return false;
    size_t n = nd_model_n_inputs(small->model);
    small->inputs = nd_calloc(n, sizeof *small->inputs);
    for (size_t i = 0; i < n && small->inputs != NULL; i++)
        if (!make_input(nd_model_input(small->model, i), &small->inputs[i]))
            return false;
    return small->inputs != NULL && makes_little(small);
}

void small_model_close(struct small_model *small)
{
    for (size_t i = 0; small->inputs != NULL && i < nd_model_n_inputs(small->model); i++)
        nd_array_deinit(&small->inputs[i]);
    free(small->inputs);
    nd_model_destroy(&small->model);
}
