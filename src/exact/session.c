/* runtime/runtime.h, evaluated here: an agent that is linked with this in the place of ONNX Runtime is the
 * device `exact`. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "exact/graph.h"
#include "runtime/runtime.h"

static const char provider_name[] = "exact";

struct nd_runtime {
    int unused;
};

/* An output of the model is one of its edges. */
struct output {
    struct nd_session_io io;
    size_t edge;
    unsigned char *bytes;
    size_t capacity;
    bool is_made;
};

struct nd_session {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    enum nd_rounding rounding;
    size_t n_inputs, n_outputs;
    struct nd_session_io *ios;
    struct nd_array *inputs;
    struct output *outputs;
    struct nd_output_view *views; /* of the run at hand */
};

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    (void)options;
    struct nd_runtime *runtime = nd_calloc(1, sizeof *runtime);
    if (runtime == NULL)
        return nd_fail_memory(err);
    *out = runtime;
    return ND_OK;
}

void nd_runtime_destroy(struct nd_runtime **runtime)
{
    free(*runtime);
    *runtime = NULL;
}

const char *nd_runtime_version(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "npudiff " ND_VERSION;
}

const char *nd_runtime_build_info(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "exact units and double precision";
}

static enum nd_status read_options(struct nd_session *session, const struct nd_session_options *options,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < options->n_provider_options; i++) {
        const struct nd_option_pair *pair = &options->provider_options[i];
        if (strcmp(pair->key, "rounding") != 0 || !nd_rounding_from_name(pair->value, &session->rounding))
            return nd_fail(err, ND_E_OPTION_VALUE, pair->key, "option '%s=%s' is not understood", pair->key,
                           pair->value);
    }
    return ND_OK;
}

static enum nd_status describe_inputs(struct nd_session *session, struct nd_error *err)
{
    session->n_inputs = nd_model_n_inputs(session->model);
    session->ios = nd_calloc(session->n_inputs, sizeof *session->ios);
    session->inputs = nd_calloc(session->n_inputs, sizeof *session->inputs);
    if (session->ios == NULL || session->inputs == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < session->n_inputs && status == ND_OK; i++) {
        const struct nd_model_io *input = nd_model_input(session->model, i);
        session->ios[i] = (struct nd_session_io){
            .name = nd_strdup(input->name), .dtype = input->dtype, .shape = input->shape};
        status = session->ios[i].name != NULL
                     ? nd_array_make(&session->inputs[i], input->dtype, &input->shape, err)
                     : nd_fail_memory(err);
    }
    return status;
}

static size_t find_edge(const struct nd_model *model, const char *tensor)
{
    size_t e = 0;
    while (e < nd_model_n_edges(model) && strcmp(nd_model_edge(model, e)->onnx_name, tensor) != 0)
        e++;
    return e;
}

/* Floats are handed out as they were computed: in double precision. */
static enum nd_status describe_outputs(struct nd_session *session, struct nd_error *err)
{
    const struct nd_model *model = session->model;
    session->n_outputs = nd_model_n_outputs(model);
    session->outputs = nd_calloc(session->n_outputs, sizeof *session->outputs);
    if (session->outputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < session->n_outputs; i++) {
        struct output *output = &session->outputs[i];
        const char *name = nd_model_output(model, i)->name;
        output->edge = find_edge(model, name);
        if (output->edge == nd_model_n_edges(model))
            return nd_fail(err, ND_E_EXACT_OPERATOR, name, "output '%s' cannot be had as it is: record edges",
                           name);
        enum nd_dtype dtype = nd_model_edge(model, output->edge)->dtype;
        bool is_code = nd_dtype_is_integer(dtype) || dtype == ND_DTYPE_BOOL;
        output->io = (struct nd_session_io){
            .name = nd_strdup(name), .dtype = is_code ? dtype : ND_DTYPE_F64, .shape.rank = -1};
        if (output->io.name == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_session **out, struct nd_error *err)
{
    (void)runtime;
    struct nd_session *session = nd_calloc(1, sizeof *session);
    if (session == NULL)
        return nd_fail_memory(err);
    enum nd_status status = read_options(session, options, err);
    if (status == ND_OK)
        status = nd_model_load(options->model_path, &session->model, err);
    if (status == ND_OK)
        status = describe_inputs(session, err);
    if (status == ND_OK)
        status = describe_outputs(session, err);
    if (status == ND_OK)
        status = nd_exact_graph_create(session->model, &session->graph, err);
    if (status == ND_OK)
        *out = session;
    else
        nd_session_destroy(&session);
    return status;
}

void nd_session_destroy(struct nd_session **session)
{
    struct nd_session *s = *session;
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (s->ios != NULL)
            free(s->ios[i].name);
        if (s->inputs != NULL)
            nd_array_deinit(&s->inputs[i]);
    }
    for (size_t i = 0; s->outputs != NULL && i < s->n_outputs; i++) {
        free(s->outputs[i].io.name);
        free(s->outputs[i].bytes);
    }
    free(s->ios);
    free(s->inputs);
    free(s->outputs);
    nd_exact_graph_destroy(&s->graph);
    nd_model_destroy(&s->model);
    free(s);
    *session = NULL;
}

size_t nd_session_n_inputs(const struct nd_session *session)
{
    return session->n_inputs;
}

const struct nd_session_io *nd_session_input(const struct nd_session *session, size_t i)
{
    return &session->ios[i];
}

void nd_session_set_input_shape(struct nd_session *session, size_t i, const struct nd_shape *shape)
{
    session->ios[i].shape = *shape; /* the model has no open dimensions: it is the same */
}

size_t nd_session_n_outputs(const struct nd_session *session)
{
    return session->n_outputs;
}

const struct nd_session_io *nd_session_output(const struct nd_session *session, size_t i)
{
    return &session->outputs[i].io;
}

enum nd_status nd_session_placement(const struct nd_session *session, struct nd_placement **out, size_t *n,
                                    struct nd_error *err)
{
    size_t n_nodes = nd_model_n_nodes(session->model);
    struct nd_placement *nodes = nd_calloc(n_nodes, sizeof *nodes);
    if (nodes == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_nodes; i++) {
        const struct nd_model_node *node = nd_model_node(session->model, i);
        nodes[i] = (struct nd_placement){provider_name, node->name, node->op_type, node->domain};
    }
    *out = nodes;
    *n = n_nodes;
    return ND_OK;
}

static enum nd_status store_output(struct output *output, const struct nd_array *values,
                                   struct nd_output_view *view, struct nd_error *err)
{
    size_t size_bytes;
    enum nd_status status = nd_shape_size_bytes(&values->shape, output->io.dtype, &size_bytes, err);
    if (status != ND_OK)
        return status;
    if (!nd_grow((void **)&output->bytes, &output->capacity, size_bytes, 1))
        return nd_fail_memory(err);
    nd_array_store(output->io.dtype, values->x, values->n, output->bytes);
    output->is_made = true;
    *view = (struct nd_output_view){
        .dtype = output->io.dtype, .shape = values->shape, .data = output->bytes, .size_bytes = size_bytes};
    return ND_OK;
}

static enum nd_status found(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                            struct nd_error *err)
{
    (void)way;
    struct nd_session *session = context;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < session->n_outputs && status == ND_OK; i++)
        if (session->outputs[i].edge == edge)
            status = store_output(&session->outputs[i], values, &session->views[i], err);
    return status;
}

enum nd_status nd_session_run(struct nd_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options, .rounding = session->rounding};
    for (size_t i = 0; i < session->n_inputs; i++)
        nd_array_load(session->ios[i].dtype, inputs[i], session->inputs[i].n, session->inputs[i].x);
    for (size_t i = 0; i < session->n_outputs; i++)
        session->outputs[i].is_made = false;
    session->views = views;
    enum nd_status status = nd_exact_graph_run(session->graph, session->inputs, &options, found, session, err);
    for (size_t i = 0; i < session->n_outputs && status == ND_OK; i++)
        if (!session->outputs[i].is_made)
            status = nd_fail(err, ND_E_EXACT_OPERATOR, session->outputs[i].io.name,
                             "output '%s' was not computed", session->outputs[i].io.name);
    return status;
}

enum nd_status nd_session_end_profile(struct nd_session *session, char **path, struct nd_error *err)
{
    (void)session;
    (void)path;
    return nd_fail(err, ND_E_EXACT_OPERATOR, NULL, "the exact device has no profile");
}
