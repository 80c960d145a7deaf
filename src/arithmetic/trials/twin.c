/* The twin of a chip. What is tried of a layer: layer_trial.c; docs/science/htp-arithmetic.md. */
#include "arithmetic/trials/twin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/known/conditions.h"
#include "arithmetic/trials/layer_trial.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

struct nd_twin {
    const struct nd_model *model;
    const struct nd_exact_graph *graph;
    const bool *is_hidden;
    struct nd_alternatives alternatives;
    struct nd_layer_trial trial;
    struct nd_twin_mark *marks; /* [n_tensors] */
    bool *is_tried;             /* [n_tensors] in the run at hand */
    bool *is_given;             /* [n_tensors] floats of an input of which only the axes have other names */
    nd_exact_found *found;      /* of the run at hand */
    void *context;
};

/* ---- chips ---- */

bool nd_twin_chip_of(const char *arch, const char *sdk, struct nd_twin_chip *out)
{
    /* Measured with these: docs/science/htp-arithmetic.md. */
    static const struct {
        const char *sdk;
        bool rounds_products;
    } sdks[] = {{ND_TWIN_NEWEST_SDK, false}, {"2.50", true}, {"2.49", true}, {"2.48", true}, {"2.47", false}};
    static const struct {
        const char *arch;
        enum nd_htp_arch is;
    } archs[] = {{"v68", ND_HTP_V69}, {"v69", ND_HTP_V69}, {"v73", ND_HTP_V73},
                 {"v75", ND_HTP_V73}, {"v79", ND_HTP_V73}, {"v81", ND_HTP_V73}};
    enum { N_SDKS = sizeof sdks / sizeof *sdks, N_ARCHS = sizeof archs / sizeof *archs };
    size_t a = 0, s = 0, n;
    while (a < N_ARCHS && strcmp(arch, archs[a].arch) != 0)
        a++;
    while (s < N_SDKS && (strncmp(sdk, sdks[s].sdk, strlen(sdks[s].sdk)) != 0 ||
                          (sdk[strlen(sdks[s].sdk)] != '.' && sdk[strlen(sdks[s].sdk)] != '\0')))
        s++;
    *out = (struct nd_twin_chip){.is_v81 = strcmp(arch, "v81") == 0};
    const struct nd_layer_arithmetic *all = nd_layer_arithmetics(&n);
    for (size_t p = 0; p < n && a < N_ARCHS && s < N_SDKS; p++)
        if (all[p].arch == archs[a].is && all[p].rounds_products == sdks[s].rounds_products)
            out->arithmetic = &all[p];
    return out->arithmetic != NULL;
}

/* ---- marks ---- */

void nd_twin_mark_merge(const struct nd_twin_mark *from, struct nd_twin_mark *to)
{
    if (to->why == NULL || (from->why != NULL && strcmp(from->why, to->why) < 0))
        to->why = from->why;
    to->is_behind |= from->is_behind;
}

static void mark(struct nd_twin *twin, size_t tensor, const char *why)
{
    nd_twin_mark_merge(&(struct nd_twin_mark){.why = why}, &twin->marks[tensor]);
}

/* Whether the layer only chooses, or moves, quantised values: exactly the same on every device. */
static bool is_only_moved(const struct nd_model *model, const struct nd_model_layer *layer)
{
    static const char *const names[] = {
        "DepthToSpace", "Expand",       "Flatten", "Gather",  "Identity", "MaxPool", "Pad",       "Reshape",
        "Slice",        "SpaceToDepth", "Split",   "Squeeze", "Tile",     "Shape",   "Transpose", "Unsqueeze"};
    enum { N = sizeof names / sizeof *names };
    const struct nd_tensor *to = nd_model_tensor(model, layer->tensor);
    bool is = layer->n_inputs > 0 && nd_is_chain_of(layer->op_types, names, N, N);
    for (size_t i = 0; i < layer->n_inputs && is; i++) {
        const struct nd_tensor *from = nd_model_tensor(model, layer->inputs[i]);
        is = from->dtype == to->dtype && nd_quant_is_same(&from->quant, &to->quant);
    }
    return is;
}

static const char not_complete[] = "the formula of such a layer is not complete: values may be off by one";

static void mark_behind(struct nd_twin *twin, size_t tensor, const size_t *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        twin->marks[tensor].is_behind |=
            inputs[i] != SIZE_MAX && (twin->marks[inputs[i]].is_behind || twin->marks[inputs[i]].why != NULL);
}

/* What is known of the layer whose way was chosen (NULL: none). */
static void judge(struct nd_twin *twin, const struct nd_exact_layer *layer, const struct nd_array *chosen)
{
    const struct nd_layer_trial *trial = &twin->trial;
    size_t p = trial->only;
    bool is_by_itself = chosen == &trial->made[trial->alike[p]];
    /* What is joined is what was made for it, before it was clipped; what is made with a Clip is not cut. */
    uint64_t predicted = nd_layer_conditions_predicted(trial->conditions);
    predicted |= chosen != NULL ? UINT64_C(1) << ND_LAYER_CONCAT_OF_CLIPPED : 0;
    predicted |= chosen != NULL && !is_by_itself ? UINT64_C(1) << ND_LAYER_CLIP_LEFT_OUT : 0;
    if ((trial->conditions & ~predicted) != 0)
        mark(twin, layer->tensor,
             "the SDK has a known defect with such layers, whose values are not predicted");
    else if (chosen == NULL &&
             !is_only_moved(twin->model, nd_model_layer_of_tensor(twin->model, layer->tensor)))
        mark(twin, layer->tensor, "the arithmetic of such a layer is not known: rounded exactly");
    else if (nd_layer_trial_is_uncertain(trial, layer, p, chosen))
        mark(twin, layer->tensor, "in which of several ways the chip makes such a layer is not certain");
    else if (is_by_itself && trial->doubt[p] > 0 && !nd_layer_is_sure_chain(layer, trial->memory) &&
             !nd_layer_is_sure_product(layer, trial->memory))
        mark(twin, layer->tensor, not_complete);
}

/* ---- a run ---- */

static enum nd_status make_floats(struct nd_twin *twin, const struct nd_exact_layer *layer,
                                  struct nd_array *floats, bool *is_made, struct nd_error *err)
{
    struct nd_error why;
    mark_behind(twin, layer->tensor, layer->input_tensors, layer->call->n_inputs);
    twin->is_given[layer->tensor] =
        layer->origins[0] == ND_EXACT_FROM_INPUT &&
        ND_IS_ONE_OF(nd_onnx_text(layer->call->node != NULL ? layer->call->node->op_type : NULL), "Flatten",
                     "Reshape", "Squeeze", "Unsqueeze");
    enum nd_status status = nd_layer_arithmetic_run(nd_layer_arithmetic_at(twin->trial.only), layer,
                                                    twin->trial.memory, floats, is_made, &why);
    /* A Sigmoid of floats that a Concat joined was off by two of the last bit in 25 of some 200 numbers. */
    size_t from = layer->call->n_inputs > 0 ? layer->input_tensors[0] : SIZE_MAX;
    bool is_joined = from != SIZE_MAX && strcmp(nd_model_tensor(twin->model, from)->op_types, "Concat") == 0;
    if (status == ND_OK && *is_made && is_joined)
        mark(twin, layer->tensor, not_complete);
    if (status == ND_OK && *is_made &&
        nd_layer_arithmetic_doubt(nd_layer_arithmetic_at(twin->trial.only), layer, twin->trial.memory) > 0)
        mark(twin, layer->tensor, not_complete);
    if (status != ND_ERR_UNSUPPORTED && status != ND_ERR_FORMAT) {
        if (status != ND_OK && err != NULL)
            *err = why;
        return status;
    }
    *is_made = false; /* who runs the operator says why */
    return ND_OK;
}

enum nd_status nd_twin_make(struct nd_twin *twin, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                            bool *is_made, struct nd_error *err)
{
    const struct nd_array not_given = {.shape.rank = -1};
    size_t from = twin->alternatives.fused_from[layer->tensor];
    bool is_hidden = twin->is_hidden != NULL && from != SIZE_MAX && twin->is_hidden[from];
    twin->is_tried[layer->tensor] = true;
    *is_made = false;
    if (layer->dtype == ND_DTYPE_F32)
        return make_floats(twin, layer, qvalues, is_made, err);
    if (!nd_dtype_is_integer(layer->dtype))
        return ND_OK;
    ND_TRY(nd_layer_trial_run(&twin->trial, layer, &not_given, err));
    const struct nd_array *chosen = nd_layer_trial_choose(&twin->trial, layer, twin->trial.only, is_hidden);
    const struct nd_shape *shape = &nd_model_tensor(twin->model, layer->tensor)->shape;
    judge(twin, layer, chosen);
    *is_made = chosen != NULL;
    if (chosen == NULL)
        return ND_OK;
    ND_TRY(nd_array_copy(chosen, qvalues, err));
    qvalues->shape =
        shape->rank >= 0 ? *shape : qvalues->shape; /* what was made before it was moved has another */
    return ND_OK;
}

/* A float16 as the device hands it out: a float32 whose last bit is set (that of the least exponent, below
 * 2^-14), unless it is 0. */
static double handed_out(double half)
{
    enum { MIN_EXPONENT = -14, BITS = 23 };
    int exponent = half != 0 ? ilogb(half) : 0;
    double bit = ldexp(1, (exponent > MIN_EXPONENT ? exponent : MIN_EXPONENT) - BITS);
    return half != 0 ? half + copysign(bit, half) : half;
}

static enum nd_status hand_out(struct nd_twin *twin, size_t tensor, const struct nd_array *values,
                               enum nd_exact_method method, struct nd_error *err)
{
    if (twin->found == NULL || method != ND_EXACT_AS_MADE || !nd_dtype_is_float(values->dtype) ||
        twin->is_given[tensor])
        return twin->found != NULL ? twin->found(twin->context, tensor, values, method, err) : ND_OK;
    ND_CLEANUP(nd_array_deinit) struct nd_array copy = {0};
    ND_TRY(nd_array_copy(values, &copy, err));
    for (size_t i = 0; i < copy.n; i++)
        copy.x[i] = handed_out(copy.x[i]);
    return twin->found(twin->context, tensor, &copy, method, err);
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    struct nd_twin *twin = context;
    const struct nd_model_layer *layer = nd_model_layer_of_tensor(twin->model, tensor);
    bool is_input = nd_model_tensor(twin->model, tensor)->is_model_input;
    if (nd_dtype_is_float(values->dtype) && method != ND_EXACT_AS_MADE && !is_input)
        mark(twin, tensor, "computed in floats, in double precision: how the chip makes them is not known");
    else if (!twin->is_tried[tensor] && !is_input && layer != NULL && layer->n_inputs == 0)
        mark(twin, tensor, "quantised from floats of the model: rounded exactly");
    if (layer != NULL)
        mark_behind(twin, tensor, layer->inputs, layer->n_inputs);
    return hand_out(twin, tensor, values, method, err);
}

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    return nd_twin_make(context, layer, qvalues, is_made, err);
}

void nd_twin_begin(struct nd_twin *twin)
{
    memset(twin->is_tried, 0, nd_model_n_tensors(twin->model) * sizeof *twin->is_tried);
    nd_layer_trial_begin(&twin->trial);
}

void nd_twin_forget(struct nd_twin *twin, size_t tensor)
{
    nd_layer_trial_forget_tensor(&twin->trial, tensor);
}

enum nd_status nd_twin_run(struct nd_twin *twin, const struct nd_array *inputs, nd_exact_found *tell,
                           void *context, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options, .make = make, .makes_floats = true};
    twin->found = tell;
    twin->context = context;
    nd_twin_begin(twin);
    return nd_exact_graph_run(twin->graph, inputs, &options, found, twin, err);
}

const struct nd_twin_mark *nd_twin_marks(const struct nd_twin *twin)
{
    return twin->marks;
}

enum nd_status nd_twin_refuse_unknown(const struct nd_twin *twin, const char *const *names,
                                      struct nd_error *err)
{
    size_t e = 0, n = nd_model_n_tensors(twin->model);
    while (e < n && twin->marks[e].why == NULL)
        e++;
    if (e == n)
        return ND_OK;
    const struct nd_tensor *tensor = nd_model_tensor(twin->model, e);
    const char *name = names != NULL ? names[e] : tensor->name;
    return nd_fail(err, ND_E_EXACT_OPERATOR, name,
                   "the twin does not know '%s' (%s), and strict=1 was asked for: %s", name, tensor->op_types,
                   twin->marks[e].why);
}

void nd_twin_destroy(struct nd_twin **twin)
{
    if (*twin == NULL)
        return;
    nd_layer_trial_deinit(&(*twin)->trial);
    nd_alternatives_deinit(&(*twin)->alternatives);
    ND_FREE_ALL((*twin)->marks, (*twin)->is_tried, (*twin)->is_given);
    free(*twin);
    *twin = NULL;
}

enum nd_status nd_twin_create(const struct nd_model *model, const struct nd_exact_graph *graph,
                              const struct nd_twin_chip *chip, const bool *is_hidden, struct nd_twin **out,
                              struct nd_error *err)
{
    size_t n;
    ND_CLEANUP(nd_twin_destroy) struct nd_twin *twin = nd_calloc(1, sizeof *twin);
    ND_TRY_MEMORY(twin != NULL, err);
    *twin = (struct nd_twin){.model = model,
                             .graph = graph,
                             .is_hidden = is_hidden,
                             .marks = nd_calloc(nd_model_n_tensors(model), sizeof *twin->marks),
                             .is_tried = nd_calloc(nd_model_n_tensors(model), sizeof *twin->is_tried),
                             .is_given = nd_calloc(nd_model_n_tensors(model), sizeof *twin->is_given)};
    ND_TRY_MEMORY(twin->marks != NULL && twin->is_tried != NULL && twin->is_given != NULL, err);
    ND_TRY(nd_alternatives_init(&twin->alternatives, model, err));
    ND_TRY(nd_layer_trial_init(&twin->trial, model, &twin->alternatives, err));
    twin->trial.only = (size_t)(chip->arithmetic - nd_layer_arithmetics(&n));
    twin->trial.is_v81 = chip->is_v81;
    *out = twin;
    twin = NULL;
    return ND_OK;
}
