/* runtime/runtime.h, evaluated here: an agent that is linked with this in the place of ONNX Runtime is the
 * devices `exact`, `float64`, `twin` and `emu`. A twin has the options arch=v75, sdk=2.51 and strict=1; of the
 * last the options are
 *
 *     profile=ITEMS          what emulator/emulate.h reads
 *     repeats=N              runs of every sample
 *     edge.TENSOR=NAME       what the tensor is called whose quantised values are that tensor, for every tensor
 * of the model that was asked for: the one at hand may be a part of it whose tensors have other names
 *
 * What such a device remembers (the sample before, the number of the run) lives as long as the session. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/trials/twin.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/emulator/emulate.h"
#include "devices/emulator/emulate_internal.h"
#include "devices/emulator/made_outputs.h"
#include "npudiff/core/parse.h"

struct nd_runtime {
    int unused;
};

struct output {
    unsigned char *bytes;
    size_t capacity;
    bool is_made;
};

/* A sample, and what is made of it. Those of a session are computed side by side. */
struct slot {
    struct nd_runtime_session *session;
    struct nd_twin *twin; /* NULL: another device */
    struct nd_array *inputs;
    struct output *outputs;
    struct nd_output_view *views;
    const void *sample; /* the bytes of its first input, which tell samples apart; NULL: none was run */
    enum nd_status status;
    struct nd_error err; /* where that is none of ND_OK */
};

struct nd_runtime_session {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    enum nd_rounding rounding;
    struct nd_emulation emulation; /* n 0: this is no emulated device */
    struct nd_emulator *emulator;  /* NULL without */
    char **names;                  /* [n_names] of the tensors, for it */
    size_t n_names;
    const char *arch, *sdk;   /* of a twin; of the options */
    struct nd_twin_chip chip; /* where both are given */
    bool is_twin;
    bool is_strict, *is_hidden;
    size_t n_inputs, n_outputs;
    struct nd_session_io *ios, *output_ios;
    struct nd_made_outputs made;
    size_t n_slots;     /* 1 of a device that remembers */
    struct slot *slots; /* all but the first are made when they are needed */
};

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    (void)options;
    struct nd_runtime *runtime = nd_calloc(1, sizeof *runtime);
    ND_TRY_MEMORY(runtime != NULL, err);
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
    return "exact layers and double precision";
}

bool nd_runtime_starts_program(void)
{
    return false;
}

const char *nd_runtime_program(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "";
}

static const char tensor_prefix[] = "edge.";

static enum nd_status read_options(struct nd_runtime_session *session, const struct nd_session_options *options,
                                   struct nd_emulator_options *emulated, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < options->n_provider_options && status == ND_OK; i++) {
        const struct nd_option_pair *pair = &options->provider_options[i];
        uint64_t number = 0;
        bool is_known = true;
        if (strcmp(pair->key, "rounding") == 0) {
            is_known = nd_rounding_from_name(pair->value, &session->rounding);
        } else if (strcmp(pair->key, "arch") == 0) {
            session->arch = pair->value;
        } else if (strcmp(pair->key, "sdk") == 0) {
            session->sdk = pair->value;
        } else if (strcmp(pair->key, "strict") == 0) {
            session->is_strict = strcmp(pair->value, "1") == 0;
        } else if (strcmp(pair->key, "profile") == 0) {
            status = nd_emulation_parse(pair->value, &session->emulation, err);
        } else if (strcmp(pair->key, "repeats") == 0) {
            is_known = nd_parse_u64(pair->value, &number) && number > 0;
            emulated->n_repeats = (size_t)number;
        } else {
            is_known = strncmp(pair->key, tensor_prefix, strlen(tensor_prefix)) == 0;
        }
        if (!is_known)
            status = nd_fail(err, ND_E_OPTION_VALUE, pair->key, "option '%s=%s' is not understood", pair->key,
                             pair->value);
    }
    return status;
}

/* What the options call the tensor, else what the model does. */
static const char *tensor_name(const struct nd_session_options *options, const struct nd_tensor *tensor)
{
    size_t n = strlen(tensor_prefix);
    for (size_t i = 0; i < options->n_provider_options; i++) {
        const struct nd_option_pair *pair = &options->provider_options[i];
        if (strncmp(pair->key, tensor_prefix, n) == 0 && strcmp(pair->key + n, tensor->onnx_name) == 0)
            return pair->value;
    }
    return tensor->name;
}

static enum nd_status read_names(struct nd_runtime_session *session, const struct nd_session_options *options,
                                 struct nd_error *err)
{
    size_t n = nd_model_n_tensors(session->model);
    session->names = nd_calloc(n, sizeof *session->names);
    ND_TRY_MEMORY(session->names != NULL, err);
    session->n_names = n;
    for (size_t e = 0; e < n; e++)
        ND_TRY_MEMORY(
            (session->names[e] = nd_strdup(tensor_name(options, nd_model_tensor(session->model, e)))) != NULL,
            err);
    return ND_OK;
}

static enum nd_status create_emulator(struct nd_runtime_session *session, struct nd_emulator_options *emulated,
                                      struct nd_error *err)
{
    if (session->emulation.n == 0)
        return ND_OK;
    emulated->struct_size = sizeof *emulated;
    emulated->names = (const char *const *)session->names;
    emulated->is_partial = true;
    return nd_emulator_create(&session->emulation, session->model, session->graph, emulated, &session->emulator,
                              err);
}

static enum nd_status describe_inputs(struct nd_runtime_session *session, struct nd_error *err)
{
    session->n_inputs = nd_model_n_inputs(session->model);
    session->ios = nd_calloc(session->n_inputs, sizeof *session->ios);
    ND_TRY_MEMORY(session->ios != NULL, err);
    for (size_t i = 0; i < session->n_inputs; i++) {
        const struct nd_model_io *input = nd_model_input(session->model, i);
        session->ios[i] = (struct nd_session_io){
            .name = nd_strdup(input->name), .dtype = input->dtype, .shape = input->shape};
        ND_TRY_MEMORY(session->ios[i].name != NULL, err);
    }
    return ND_OK;
}

/* Floats are handed out as they were computed: in double precision, by a twin as its chip's are. */
static enum nd_status describe_outputs(struct nd_runtime_session *session, struct nd_error *err)
{
    ND_TRY(nd_made_outputs_init(&session->made, session->model,
                                session->arch != NULL ? ND_DTYPE_F32 : ND_DTYPE_F64, err));
    session->n_outputs = session->made.n;
    session->output_ios = nd_calloc(session->n_outputs, sizeof *session->output_ios);
    ND_TRY_MEMORY(session->output_ios != NULL, err);
    for (size_t i = 0; i < session->n_outputs; i++) {
        session->output_ios[i] =
            (struct nd_session_io){.name = nd_strdup(nd_model_output(session->model, i)->name),
                                   .dtype = session->made.items[i].dtype,
                                   .shape.rank = -1};
        ND_TRY_MEMORY(session->output_ios[i].name != NULL, err);
    }
    return ND_OK;
}

static enum nd_status create_slot(struct nd_runtime_session *session, struct slot *slot, struct nd_error *err)
{
    slot->inputs = nd_calloc(session->n_inputs, sizeof *slot->inputs);
    slot->outputs = nd_calloc(session->n_outputs, sizeof *slot->outputs);
    slot->views = nd_calloc(session->n_outputs, sizeof *slot->views);
    ND_TRY_MEMORY(slot->inputs != NULL && slot->outputs != NULL && slot->views != NULL, err);
    for (size_t i = 0; i < session->n_inputs; i++)
        ND_TRY(nd_array_make(&slot->inputs[i], session->ios[i].dtype, &session->ios[i].shape, err));
    if (session->is_twin)
        ND_TRY(nd_twin_create(session->model, session->graph, &session->chip, session->is_hidden, &slot->twin,
                              err));
    slot->session = session;
    return ND_OK;
}

static void destroy_slot(struct nd_runtime_session *session, struct slot *slot)
{
    for (size_t i = 0; slot->inputs != NULL && i < session->n_inputs; i++)
        nd_array_deinit(&slot->inputs[i]);
    for (size_t i = 0; slot->outputs != NULL && i < session->n_outputs; i++)
        free(slot->outputs[i].bytes);
    ND_FREE_ALL(slot->inputs, slot->outputs, slot->views);
    nd_twin_destroy(&slot->twin);
}

static enum nd_status create_slots(struct nd_runtime_session *session, struct nd_error *err)
{
    enum { MOST_SLOTS = 16 }; /* each keeps a sample's tensors */
    session->is_twin = session->arch != NULL && session->sdk != NULL;
    size_t n = nd_model_n_tensors(session->model), n_threads = nd_parallel_n_threads();
    if (session->is_twin && !nd_twin_chip_of(session->arch, session->sdk, &session->chip))
        return nd_fail(err, ND_E_OPTION_VALUE, "arch", "the arithmetic of %s with SDK %s is not known",
                       session->arch, session->sdk);
    session->is_hidden = nd_calloc(n, sizeof *session->is_hidden);
    ND_TRY_MEMORY(session->is_hidden != NULL, err);
    for (size_t e = 0; e < n; e++)
        session->is_hidden[e] = session->made.last_of[e] == SIZE_MAX;
    session->n_slots = session->emulator != NULL ? 1 : n_threads < MOST_SLOTS ? n_threads : MOST_SLOTS;
    session->slots = nd_calloc(session->n_slots, sizeof *session->slots);
    ND_TRY_MEMORY(session->slots != NULL, err);
    return create_slot(session, &session->slots[0], err);
}

enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_runtime_session **out, struct nd_error *err)
{
    (void)runtime;
    ND_CLEANUP(nd_session_destroy) struct nd_runtime_session *session = nd_calloc(1, sizeof *session);
    ND_TRY_MEMORY(session != NULL, err);
    struct nd_emulator_options emulated = {0};
    ND_TRY(read_options(session, options, &emulated, err));
    ND_TRY(nd_model_load(options->model_path, &session->model, err));
    ND_TRY(describe_inputs(session, err));
    ND_TRY(describe_outputs(session, err));
    ND_TRY(nd_exact_graph_create(session->model, &session->graph, err));
    ND_TRY(read_names(session, options, err));
    ND_TRY(create_emulator(session, &emulated, err));
    ND_TRY(create_slots(session, err));
    *out = session;
    session = NULL;
    return ND_OK;
}

void nd_session_destroy(struct nd_runtime_session **session)
{
    struct nd_runtime_session *s = *session;
    if (s == NULL)
        return;
    for (size_t i = 0; s->ios != NULL && i < s->n_inputs; i++)
        free(s->ios[i].name);
    for (size_t i = 0; s->output_ios != NULL && i < s->n_outputs; i++)
        free(s->output_ios[i].name);
    for (size_t k = 0; s->slots != NULL && k < s->n_slots; k++)
        destroy_slot(s, &s->slots[k]);
    ND_FREE_ALL(s->ios, s->output_ios, s->slots);
    nd_made_outputs_deinit(&s->made);
    nd_emulator_destroy(&s->emulator);
    free(s->is_hidden);
    nd_emulation_deinit(&s->emulation);
    for (size_t e = 0; e < s->n_names; e++)
        free(s->names[e]);
    free(s->names);
    nd_exact_graph_destroy(&s->graph);
    nd_model_destroy(&s->model);
    free(s);
    *session = NULL;
}

struct nd_session_ends nd_session_ends(const struct nd_runtime_session *session)
{
    return (struct nd_session_ends){session->ios, session->n_inputs, session->output_ios, session->n_outputs};
}

void nd_session_missing(const struct nd_runtime_session *session, nd_missing_visit *visit, void *context)
{
    (void)session;
    (void)visit;
    (void)context;
}

enum nd_status nd_session_placement(const struct nd_runtime_session *session, struct nd_placement **out,
                                    size_t *n, struct nd_error *err)
{
    size_t n_nodes = nd_model_n_nodes(session->model);
    struct nd_placement *nodes = nd_calloc(n_nodes, sizeof *nodes);
    ND_TRY_MEMORY(nodes != NULL, err);
    for (size_t i = 0; i < n_nodes; i++) {
        const struct nd_model_node *node = nd_model_node(session->model, i);
        nodes[i] = (struct nd_placement){session->emulator != NULL ? "emu"
                                         : session->is_twin        ? "twin"
                                                                   : "exact",
                                         node->name, node->op_type, node->domain, 0};
    }
    *out = nodes;
    *n = n_nodes;
    return ND_OK;
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct slot *slot = context;
    const struct nd_made_outputs *made = &slot->session->made;
    for (size_t i = made->last_of[tensor]; i != SIZE_MAX; i = made->items[i].next) {
        struct output *output = &slot->outputs[i];
        size_t size_bytes;
        ND_TRY(nd_shape_size_bytes(&values->shape, made->items[i].dtype, &size_bytes, err));
        ND_TRY_MEMORY(nd_grow((void **)&output->bytes, &output->capacity, size_bytes, 1), err);
        nd_made_output_store(&made->items[i], values, output->bytes);
        output->is_made = true;
        slot->views[i] = (struct nd_output_view){.dtype = made->items[i].dtype,
                                                 .shape = values->shape,
                                                 .data = output->bytes,
                                                 .size_bytes = size_bytes};
    }
    return ND_OK;
}

/* The next run is one more of the same sample, beyond n_repeats: samples are not counted on, and only flips
 * differ.
 */
static void nd_emulator_repeat(struct nd_emulator *emulator)
{
    emulator->is_again = emulator->n_runs > 0;
}

void nd_session_repeat(struct nd_runtime_session *session)
{
    if (session->emulator != NULL)
        nd_emulator_repeat(session->emulator);
}

static enum nd_status run_slot(struct slot *slot, const void *const *inputs, struct nd_error *err)
{
    const struct nd_runtime_session *session = slot->session;
    const struct nd_exact_options options = {.struct_size = sizeof options, .rounding = session->rounding};
    for (size_t i = 0; i < session->n_inputs; i++)
        nd_array_load(session->ios[i].dtype, inputs[i], slot->inputs[i].n, slot->inputs[i].x);
    for (size_t i = 0; i < session->n_outputs; i++)
        slot->outputs[i].is_made = false;
    ND_TRY(session->emulator != NULL ? nd_emulator_run(session->emulator, slot->inputs, found, slot, err)
           : slot->twin != NULL      ? nd_twin_run(slot->twin, slot->inputs, found, slot, err)
                                : nd_exact_graph_run(session->graph, slot->inputs, &options, found, slot, err));
    if (slot->twin != NULL && session->is_strict)
        ND_TRY(nd_twin_refuse_unknown(slot->twin, (const char *const *)session->names, err));
    for (size_t i = 0; i < session->n_outputs; i++)
        if (!slot->outputs[i].is_made)
            return nd_fail(err, ND_E_EXACT_OPERATOR, session->output_ios[i].name,
                           "output '%s' was not computed", session->output_ios[i].name);
    return ND_OK;
}

struct ahead {
    struct nd_runtime_session *session;
    const void *const *inputs;
};

/* Keeps the error of the sample for when it is its turn. */
static enum nd_status run_ahead(void *context, size_t worker, size_t sample, struct nd_error *err)
{
    (void)worker, (void)err;
    const struct ahead *ahead = context;
    struct slot *slot = &ahead->session->slots[sample];
    const void *const *inputs = ahead->inputs + sample * ahead->session->n_inputs;
    slot->status = run_slot(slot, inputs, &slot->err);
    slot->sample = inputs[0];
    return ND_OK;
}

size_t nd_session_ahead(struct nd_runtime_session *session, const void *const *inputs, size_t n)
{
    struct ahead ahead = {session, inputs};
    n = n < session->n_slots ? n : session->n_slots;
    for (size_t k = 0; k < n; k++) {
        struct slot *slot = &session->slots[k];
        if (slot->session != NULL || create_slot(session, slot, NULL) == ND_OK)
            continue;
        destroy_slot(session, slot); /* with less memory fewer at a time */
        *slot = (struct slot){0};
        n = k;
    }
    bool is_worth_it = n > 1 && session->n_inputs > 0;
    return is_worth_it && nd_parallel_for(n, n, run_ahead, &ahead, NULL) == ND_OK ? n : 0;
}

enum nd_status nd_session_run(struct nd_runtime_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err)
{
    size_t k = session->n_inputs > 0 ? 0 : session->n_slots;
    while (k < session->n_slots && session->slots[k].sample != inputs[0])
        k++;
    bool is_made = k < session->n_slots;
    struct slot *slot =
        &session->slots[is_made ? k : 0]; /* what was run ahead in the first is handed out first */
    slot->sample = NULL;                  /* the next time it is run anew: a repeat */
    if (!is_made)
        slot->status = run_slot(slot, inputs, &slot->err);
    memcpy(views, slot->views, session->n_outputs * sizeof *views);
    if (slot->status != ND_OK && err != NULL)
        *err = slot->err;
    return slot->status;
}

enum nd_status nd_session_end_profile(struct nd_runtime_session *session, char **path, struct nd_error *err)
{
    (void)session;
    (void)path;
    return nd_fail(err, ND_E_EXACT_OPERATOR, NULL, "the exact device has no profile");
}

/* What a twin does not know: a line for each tensor, with the reason behind a tab; and what follows from these.
 */
static enum nd_status say_marks(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err)
{
    struct nd_strbuf texts[] = {{0}, {0}};
    static const char *const keys[] = {"not_known", "behind_not_known"};
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < nd_model_n_tensors(session->model); e++) {
        struct nd_twin_mark mark = {0};
        for (size_t k = 0; k < session->n_slots && session->slots[k].twin != NULL; k++)
            nd_twin_mark_merge(&nd_twin_marks(session->slots[k].twin)[e], &mark);
        struct nd_strbuf *text = &texts[mark.why == NULL];
        if (mark.why != NULL || mark.is_behind)
            nd_strbuf_printf(text, "%s%s%s%s", text->len > 0 ? "\n" : "", session->names[e],
                             mark.why != NULL ? "\t" : "", mark.why != NULL ? mark.why : "");
    }
    for (size_t k = 0; k < 2; k++) {
        ND_FREED char *text = nd_strbuf_take(&texts[k]);
        if (text != NULL && status == ND_OK)
            visit(context, keys[k], text);
        status = text != NULL ? status : nd_fail_memory(err);
    }
    return status;
}

/* One text of each column, a line for every fault. */
enum nd_status nd_session_truth(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err)
{
    if (session->is_twin)
        return say_marks(session, visit, context, err);
    if (session->emulator == NULL)
        return ND_OK;
    size_t n;
    const struct nd_emu_truth *truth = nd_emulator_truth(session->emulator, &n);
    struct nd_strbuf faulty = {0}, kinds = {0}, n_changed = {0};
    for (size_t i = 0; i < n; i++) {
        const char *separator = i > 0 ? "\n" : "";
        nd_strbuf_printf(&faulty, "%s%s", separator, truth[i].tensor);
        nd_strbuf_printf(&kinds, "%s%s", separator, truth[i].kind);
        nd_strbuf_printf(&n_changed, "%s%llu", separator, (unsigned long long)truth[i].n_changed);
    }
    char *texts[] = {nd_emulation_text(&session->emulation), nd_strbuf_take(&faulty), nd_strbuf_take(&kinds),
                     nd_strbuf_take(&n_changed)};
    static const char *const keys[] = {"profile", "faulty", "kinds", "n_changed"};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < 4 && status == ND_OK; i++)
        status = texts[i] != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < 4; i++) {
        if (status == ND_OK)
            visit(context, keys[i], texts[i]);
        free(texts[i]);
    }
    return status;
}
