/* What a provider may make of a layer other than one operator with the model's encodings. */
#include "arithmetic/trials/alternatives.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

const char *nd_alternative_name(enum nd_alternative alternative)
{
    static const char *const names[] = {[ND_ALTERNATIVE_FUSED] = "fused",
                                        [ND_ALTERNATIVE_FORCED] = "forced-encoding",
                                        [ND_ALTERNATIVE_V81] = "v81"};
    return names[alternative];
}

static float gate_scale = 0x1p-16f, tanh_scale = 0x1p-15f;
static int64_t gate_zero = 0, tanh_zero = 32768;

/* Seen on the simulator, QAIRT 2.51, v69 and v75: with these the next layer has no value wrong. */
static const struct nd_forced forced_encodings[] = {
    {"Sigmoid", ND_DTYPE_U16, {1, -1, &gate_scale, &gate_zero}, "1/65536 with zero point 0"},
    {"HardSigmoid", ND_DTYPE_U16, {1, -1, &gate_scale, &gate_zero}, "1/65536 with zero point 0"},
    {"Tanh", ND_DTYPE_U16, {1, -1, &tanh_scale, &tanh_zero}, "1/32768 with zero point 32768"},
};

const struct nd_forced *nd_forced_find(const char *op_type, enum nd_dtype dtype)
{
    for (size_t i = 0; i < sizeof forced_encodings / sizeof *forced_encodings; i++)
        if (strcmp(op_type, forced_encodings[i].op_type) == 0 && dtype == forced_encodings[i].dtype)
            return &forced_encodings[i];
    return NULL;
}

/* ---- which tensors have any ---- */

static bool moves(const char *op_types)
{
    return ND_IS_ONE_OF(op_types, "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze",
                        "Transpose", "Unsqueeze");
}

/* A LeakyRelu, PRelu or HardSwish of what a product made. */
static bool bends(const struct nd_model_layer *layer, const struct nd_model_layer *maker)
{
    return ND_IS_ONE_OF(layer->op_types, "HardSwish", "LeakyRelu", "PRelu") &&
           ND_IS_ONE_OF(maker->op_types, "BatchNormalization", "Conv", "Gemm", "MatMul");
}

/* What is moved to another encoding may be made with that; of another type only what was just brought to its
 * own. */
static bool moves_anew(const struct nd_model *model, const struct nd_model_layer *layer,
                       const struct nd_model_layer *maker)
{
    const struct nd_tensor *from = nd_model_tensor(model, layer->inputs[0]),
                           *to = nd_model_tensor(model, layer->tensor);
    return nd_layer_carries(layer) && strcmp(maker->op_types, "Concat") != 0 &&
           (from->dtype == to->dtype || strcmp(maker->op_types, "requantise") == 0) &&
           !nd_quant_is_same(&from->quant, &to->quant);
}

/* What reads one tensor, and is made by that operator. */
static bool is_of_one(const struct nd_model_layer *layer, const char *op_types)
{
    return layer != NULL && layer->n_inputs == 1 && strcmp(layer->op_types, op_types) == 0;
}

/* What the last of those operators, each of one tensor, reads, the first of which makes the tensor. SIZE_MAX:
 * others make it. */
static size_t behind(const struct nd_model *model, size_t tensor, const char *const *op_types)
{
    for (; *op_types != NULL; op_types++) {
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
        /* A Reshape to the shape of a tensor before it, which it names first. */
        bool is_shaped = maker != NULL && strcmp(maker->op_types, "Shape+Reshape") == 0 &&
                         maker->n_inputs == 2 && strcmp(*op_types, "Reshape") == 0;
        if (!is_shaped && !is_of_one(maker, *op_types))
            return SIZE_MAX;
        tensor = maker->inputs[is_shaped];
    }
    return tensor;
}

/* The InstanceNormalization of groups of channels that the layer, a Mul by constants or an Add behind that, may
 * be made with (a GroupNormalization in parts), or NULL: what it made is moved back to channels between. */
static const struct nd_model_layer *group_norm_of(const struct nd_model *model,
                                                  const struct nd_model_layer *layer)
{
    static const char *const moved[] = {"Mul", "Reshape", NULL};
    size_t at = behind(model, is_of_one(layer, "Add") ? layer->inputs[0] : layer->tensor, moved);
    const struct nd_model_layer *maker = at != SIZE_MAX ? nd_model_layer_of_tensor(model, at) : NULL;
    if (!is_of_one(maker, "InstanceNormalization"))
        return NULL;
    const struct nd_shape *groups = &nd_model_tensor(model, maker->tensor)->shape,
                          *channels = &nd_model_tensor(model, layer->tensor)->shape;
    bool is_declared = groups->rank > 1 && channels->rank > 1;
    return !is_declared || groups->dims[1] < channels->dims[1] ? maker : NULL;
}

static const struct nd_forced *forced_of(const struct nd_model *model, size_t tensor)
{
    enum { LONGEST = 16 }; /* moves one after the other */
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    for (size_t i = 0; i < LONGEST && maker != NULL && maker->n_inputs == 1 && moves(maker->op_types); i++)
        maker = nd_model_layer_of_tensor(model, maker->inputs[0]);
    return maker != NULL ? nd_forced_find(maker->op_types, nd_model_tensor(model, tensor)->dtype) : NULL;
}

/* What makes one more than a Tanh. */
static const char *const above_tanh[] = {"Add", "Tanh", NULL};

/* Mul of x and of Sigmoid or HardSigmoid of the same x, or of x + 3 clipped and divided, or of a tensor and of
 * one more than a Tanh, one of which is halved, or the product behind it. */
static void find_gate(struct nd_alternatives *a, const struct nd_model *model,
                      const struct nd_model_layer *layer)
{
    if (strcmp(layer->op_types, "Mul") != 0 || layer->n_inputs != 2)
        return;
    static const char *const of_swish[] = {"Mul", "Clip", "Add", NULL}, *const of_gelu[] = {"Mul", "Add",
                                                                                            "Tanh", NULL};
    for (size_t i = 0; i < 2; i++) {
        const struct nd_model_layer *gate = nd_model_layer_of_tensor(model, layer->inputs[i]),
                                    *half = nd_model_layer_of_tensor(model, layer->inputs[1 - i]);
        bool is_own = gate != NULL && gate->n_inputs == 1 && gate->inputs[0] == layer->inputs[1 - i];
        bool is_hard = is_own && is_of_one(gate, "HardSigmoid");
        bool is_gelu = behind(model, layer->inputs[i], above_tanh) != SIZE_MAX
                           ? !is_of_one(half, "Mul")
                           : behind(model, layer->inputs[i], of_gelu) != SIZE_MAX;
        bool is_swish = behind(model, layer->inputs[i], of_swish) == layer->inputs[1 - i];
        if (!is_hard && !is_gelu && !is_swish && !(is_own && is_of_one(gate, "Sigmoid")))
            continue;
        a->gated[layer->tensor] = layer->inputs[1 - i];
        a->gates[layer->tensor] = is_hard    ? ND_GATE_HARD
                                  : is_gelu  ? ND_GATE_GELU
                                  : is_swish ? ND_GATE_SWISH
                                             : ND_GATE_SIGMOID;
    }
}

bool nd_layer_carries(const struct nd_model_layer *layer)
{
    return ND_IS_ONE_OF(layer->op_types, "DepthToSpace", "Flatten", "Reshape", "Resize", "Slice", "Squeeze",
                        "Transpose", "Unsqueeze");
}

bool nd_layer_narrows(const struct nd_model_layer *layer)
{
    return is_of_one(layer, "Relu");
}

/* Whether the quantised values of the tensor are those that its maker reads. */
static bool keeps_encoding(const struct nd_model *model, const struct nd_model_layer *maker, size_t tensor)
{
    return maker->n_inputs > 0 && nd_quant_is_same(&nd_model_tensor(model, maker->inputs[0])->quant,
                                                   &nd_model_tensor(model, tensor)->quant);
}

bool nd_starts_at_least(const struct nd_tensor *tensor)
{
    double low, high;
    if (tensor->quant.n != 1 || !nd_dtype_is_of_qvalues(tensor->dtype))
        return false;
    nd_qvalue_range(tensor->dtype, &low, &high);
    return (double)tensor->quant.zero_point[0] == low;
}

/* Whether the maker of an input of a Concat may make it with the encoding of the Concat: not what the provider
 * takes for the output of a Relu, its zero point being the least quantised value and that of the Concat
 * another, and not what only moves quantised values or takes the greatest. */
static bool is_maker(const struct nd_model *model, size_t tensor, size_t to)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    const struct nd_tensor *made = nd_model_tensor(model, tensor);
    bool is_apart = nd_starts_at_least(made) && (!nd_starts_at_least(nd_model_tensor(model, to)) ||
                                                 (maker != NULL && nd_layer_carries(maker)));
    return maker != NULL && made->quant.n == 1 && !is_apart &&
           !ND_IS_ONE_OF(maker->op_types, "Concat", "Expand", "Gather", "Identity", "MaxPool", "Pad",
                         "ReduceMax", "ReduceMin", "SpaceToDepth", "Split", "Tile");
}

const struct nd_quant *nd_divided_from(const struct nd_model *model, size_t tensor)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    if (maker == NULL || strcmp(maker->op_types, "Split") != 0 || maker->n_inputs != 1 ||
        keeps_encoding(model, maker, tensor))
        return NULL;
    const struct nd_tensor *from = nd_model_tensor(model, maker->inputs[0]),
                           *to = nd_model_tensor(model, tensor);
    return from->dtype == to->dtype && from->quant.n == 1 ? &from->quant : NULL;
}

static void add_part(struct nd_alternatives *a, size_t from, size_t to)
{
    a->parts[a->n_parts] = (struct nd_fused_part){.from = from, .to = to, .next = a->first_part[from]};
    a->part_to[to] = a->part_to[to] == SIZE_MAX ? a->n_parts : a->part_to[to];
    a->first_part[from] = a->n_parts++;
}

enum { LONGEST_CHAIN = 16 }; /* of what hands quantised values on to a Concat */

static bool is_concat(const struct nd_model_layer *layer)
{
    return strcmp(layer->op_types, "Concat") == 0;
}

bool nd_layer_carries_all(const struct nd_model_layer *layer)
{
    return is_concat(layer) || nd_layer_carries(layer);
}

/* The maker of an input of a Concat, and what it is made of where that is handed on, or is a Concat, too: most
 * parts in all. */
static void find_makers(struct nd_alternatives *a, const struct nd_model *model, size_t tensor, size_t to,
                        size_t most)
{
    size_t open[LONGEST_CHAIN] = {tensor}, n_open = 1;
    while (n_open > 0 && a->n_parts < most) {
        tensor = open[--n_open];
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
        bool joins = maker != NULL && is_concat(maker);
        if ((!joins && !is_maker(model, tensor, to)) || nd_fused_part_of(a, tensor, to) != SIZE_MAX)
            continue;
        add_part(a, tensor, to);
        bool hands_on =
            nd_layer_narrows(maker) || (nd_layer_carries(maker) && keeps_encoding(model, maker, tensor));
        size_t n = joins ? maker->n_inputs : hands_on ? 1 : 0;
        for (size_t i = 0; i < n && n_open < LONGEST_CHAIN; i++)
            open[n_open++] = maker->inputs[i];
    }
}

/* What is narrowed, and what it is made of where that is handed on. */
static void find_moved(struct nd_alternatives *a, const struct nd_model *model, size_t tensor, size_t to)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    add_part(a, tensor, to);
    for (size_t i = 1; i < LONGEST_CHAIN && nd_layer_carries(maker) && maker->n_inputs > 0; i++) {
        size_t before = maker->inputs[0];
        maker = nd_model_layer_of_tensor(model, before);
        if (maker == NULL ||
            !nd_quant_is_same(&nd_model_tensor(model, before)->quant, &nd_model_tensor(model, tensor)->quant))
            return;
        add_part(a, before, to);
        tensor = before;
    }
}

/* A Div of a Sub, turned perhaps, by the root of the mean of its squares and a number: a LayerNormalization in
 * parts. */
static bool is_norm_in_parts(const struct nd_model *model, const struct nd_model_layer *layer)
{
    static const char *const parts[] = {"Sqrt", "Add", "ReduceMean", "Pow", NULL};
    bool is = strcmp(layer->op_types, "Div") == 0 && layer->n_inputs == 2 &&
              behind(model, layer->inputs[1], parts) == layer->inputs[0];
    const struct nd_model_layer *less = is ? nd_model_layer_of_tensor(model, layer->inputs[0]) : NULL;
    if (is_of_one(less, "Transpose"))
        less = nd_model_layer_of_tensor(model, less->inputs[0]);
    if (less == NULL || strcmp(less->op_types, "Sub") != 0 || less->n_inputs != 2)
        return false;
    const struct nd_model_layer *mean = nd_model_layer_of_tensor(model, less->inputs[1]);
    return is_of_one(mean, "ReduceMean") && mean->inputs[0] == less->inputs[0];
}

bool nd_may_be_norm_in_parts(const struct nd_model *model, const struct nd_model_layer *layer)
{
    if (layer == NULL || strcmp(layer->op_types, "Div") != 0 || layer->n_inputs != 2)
        return false;
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, layer->inputs[1]);
    while (maker != NULL && maker->n_inputs == 1 && moves(maker->op_types))
        maker = nd_model_layer_of_tensor(model, maker->inputs[0]);
    return is_of_one(maker, "Sqrt");
}

bool nd_reads_tanh_and_one(const struct nd_model *model, const struct nd_model_layer *layer)
{
    return layer->n_inputs == 2 && (behind(model, layer->inputs[0], above_tanh) != SIZE_MAX ||
                                    behind(model, layer->inputs[1], above_tanh) != SIZE_MAX);
}

bool nd_is_gated_by_tanh_of(const struct nd_model *model, const struct nd_model_layer *layer, size_t x)
{
    static const char *const inside[] = {"Add", "Tanh", "Mul", NULL};
    for (size_t i = 0; i < layer->n_inputs; i++) {
        size_t sum = behind(model, layer->inputs[i], inside);
        const struct nd_model_layer *cubic = sum != SIZE_MAX ? nd_model_layer_of_tensor(model, sum) : NULL;
        if (cubic != NULL && strcmp(cubic->op_types, "Add") == 0 && cubic->n_inputs == 2 &&
            (cubic->inputs[0] == x || cubic->inputs[1] == x))
            return true;
    }
    return false;
}

/* Half of a tensor times one more than a Tanh. */
static bool is_gelu_in_parts(const struct nd_model *model, const struct nd_model_layer *layer)
{
    return strcmp(layer->op_types, "Mul") == 0 && layer->n_inputs == 2 &&
           behind(model, layer->inputs[1], above_tanh) != SIZE_MAX &&
           is_of_one(nd_model_layer_of_tensor(model, layer->inputs[0]), "Mul");
}

static void find_parts(struct nd_alternatives *a, const struct nd_model *model,
                       const struct nd_model_layer *layer)
{
    const struct nd_tensor *to = nd_model_tensor(model, layer->tensor);
    const struct nd_model_layer *maker =
        layer->n_inputs == 1 ? nd_model_layer_of_tensor(model, layer->inputs[0]) : NULL;
    if (maker != NULL && (ND_IS_ONE_OF(layer->op_types, "Relu", "Clip", "requantise") || bends(layer, maker) ||
                          moves_anew(model, layer, maker))) {
        a->fused_from[layer->tensor] = layer->inputs[0];
        find_moved(a, model, layer->inputs[0], layer->tensor);
    }
    if (is_norm_in_parts(model, layer) || is_gelu_in_parts(model, layer) ||
        (is_of_one(layer, "Reciprocal") && is_of_one(maker, "Sqrt"))) {
        a->fused_from[layer->tensor] = layer->inputs[0];
        find_moved(a, model, layer->inputs[0], layer->tensor);
    }
    const struct nd_model_layer *norm = group_norm_of(model, layer);
    bool is_halved = is_of_one(layer, "Mul") && maker != NULL && a->gated[maker->tensor] != SIZE_MAX &&
                     a->gates[maker->tensor] == ND_GATE_GELU;
    bool is_moved = (is_of_one(layer, "Add") || is_of_one(layer, "ReduceSum")) && maker != NULL &&
                    strcmp(maker->op_types, "Mul") == 0;
    if (norm != NULL || is_halved || is_moved) {
        a->fused_from[layer->tensor] = norm != NULL ? norm->tensor : maker->tensor;
        add_part(a, a->fused_from[layer->tensor], layer->tensor);
    }
    if (nd_layer_is_table(model, layer) && nd_divided_from(model, layer->inputs[0]) != NULL)
        add_part(a, layer->inputs[0], layer->tensor);
    if (!is_concat(layer))
        return;
    size_t most = a->n_parts + layer->n_inputs * LONGEST_CHAIN;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(model, layer->inputs[i]);
        if (tensor->dtype != to->dtype || nd_quant_is_same(&tensor->quant, &to->quant))
            continue;
        a->is_joined[layer->tensor] = true;
        if (nd_divided_from(model, layer->inputs[i]) != NULL)
            add_part(a, layer->inputs[i], layer->tensor);
        else
            find_makers(a, model, layer->inputs[i], layer->tensor, most);
    }
}

/* How the layer wants its first input (docs/science/htp-arithmetic.md#numbers): a MatMul of two tensors flat
 * where it can be cut into rows by eight, or into few by four; a single matrix of 16 rows and more in blocks.
 */
static enum nd_wanted wanted_by(const struct nd_model *model, const struct nd_model_layer *layer)
{
    enum { BY = 8, HALF = 4, FEW_ROWS = 32 };
    const struct nd_shape *shape = &nd_model_tensor(model, layer->inputs[0])->shape;
    if (strcmp(layer->op_types, "MatMul") != 0)
        return ND_IS_ONE_OF(layer->op_types, "Concat", "LayerNormalization", "LeakyRelu") ? ND_WANTED_PERHAPS
                                                                                          : ND_WANTED_ANYHOW;
    int64_t rows = shape->rank > 1 ? shape->dims[shape->rank - 2] : 1,
            n = shape->rank > 2 ? shape->dims[shape->rank - 3] : 1;
    bool is_flat = rows % BY == 0 ? n > 1 || rows == BY : rows % HALF == 0 && rows < FEW_ROWS;
    return layer->n_inputs > 1 && is_flat ? ND_WANTED_ANYHOW : ND_WANTED_IN_BLOCKS;
}

static size_t count_parts(const struct nd_model *model)
{
    size_t n = 0; /* at most */
    for (size_t u = 0; u < nd_model_n_layers(model); u++)
        n += nd_model_layer(model, u)->n_inputs * LONGEST_CHAIN;
    return n;
}

size_t nd_fused_part_of(const struct nd_alternatives *a, size_t from, size_t to)
{
    size_t part = from < a->n_tensors ? a->first_part[from] : SIZE_MAX;
    while (part != SIZE_MAX && a->parts[part].to != to)
        part = a->parts[part].next;
    return part;
}

enum nd_status nd_alternatives_init(struct nd_alternatives *a, const struct nd_model *model,
                                    struct nd_error *err)
{
    size_t n = nd_model_n_tensors(model);
    *a = (struct nd_alternatives){.n_tensors = n,
                                  .fused_from = nd_calloc(n, sizeof *a->fused_from),
                                  .part_to = nd_calloc(n, sizeof *a->part_to),
                                  .first_part = nd_calloc(n, sizeof *a->first_part),
                                  .is_joined = nd_calloc(n, sizeof *a->is_joined),
                                  .parts = nd_calloc(count_parts(model), sizeof *a->parts),
                                  .gated = nd_calloc(n, sizeof *a->gated),
                                  .gates = nd_calloc(n, sizeof *a->gates),
                                  .wanted = nd_calloc(n, sizeof *a->wanted),
                                  .is_forced_here = nd_calloc(n, sizeof *a->is_forced_here),
                                  .forced = nd_calloc(n, sizeof *a->forced)};
    if (a->fused_from == NULL || a->part_to == NULL || a->first_part == NULL || a->is_joined == NULL ||
        a->parts == NULL || a->gated == NULL || a->gates == NULL || a->forced == NULL || a->wanted == NULL ||
        a->is_forced_here == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n; e++) {
        a->fused_from[e] = a->part_to[e] = a->first_part[e] = a->gated[e] = SIZE_MAX;
        a->forced[e] = forced_of(model, e);
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, e);
        a->is_forced_here[e] =
            a->forced[e] != NULL && maker != NULL && strcmp(maker->op_types, a->forced[e]->op_type) == 0;
    }
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        find_parts(a, model, layer);
        find_gate(a, model, layer);
        enum nd_wanted wanted = layer->n_inputs > 0 ? wanted_by(model, layer) : ND_WANTED_ANYHOW;
        if (wanted != ND_WANTED_ANYHOW)
            a->wanted[layer->inputs[0]] = wanted;
    }
    return ND_OK;
}

void nd_alternatives_deinit(struct nd_alternatives *a)
{
    ND_FREE_ALL(a->fused_from, a->part_to, a->first_part, a->is_joined, a->parts, a->gated, a->gates, a->forced,
                a->wanted, a->is_forced_here);
    *a = (struct nd_alternatives){.n_tensors = 0};
}

bool nd_is_chain_of(const char *op_types, const char *const *names, size_t n, size_t n_first)
{
    for (size_t at = 0, k = 0; op_types[at] != '\0'; k++) {
        size_t length = strcspn(op_types + at, "+"), i = 0;
        while (i < n && (strlen(names[i]) != length || strncmp(names[i], op_types + at, length) != 0))
            i++;
        if (i == n || (k == 0 && i >= n_first))
            return false;
        at += length + (op_types[at + length] == '+');
    }
    return op_types[0] != '\0';
}

bool nd_layer_is_table(const struct nd_model *model, const struct nd_model_layer *layer)
{
    /* Not Relu, Clip and the like by themselves: a multiplier brings these to their scale. */
    static const char *const names[] = {
        "Cos",        "Elu",  "Erf",      "Exp",       "Gelu",     "HardSigmoid", "HardSwish", "Log", "Mish",
        "Reciprocal", "Selu", "Sigmoid",  "Sin",       "Softplus", "Softsign",    "Sqrt",      "Tan", "Tanh",
        "Abs",        "Clip", "Identity", "LeakyRelu", "Neg",      "Relu",        "Reshape"};
    enum { N = sizeof names / sizeof *names, N_FUNCTIONS = 18 };
    if (layer == NULL || layer->n_inputs != 1 ||
        nd_dtype_size_bytes(nd_model_tensor(model, layer->tensor)->dtype) != 1)
        return false;
    const struct nd_tensor *from = nd_model_tensor(model, layer->inputs[0]);
    return nd_dtype_is_integer(from->dtype) && nd_dtype_size_bytes(from->dtype) == 1 &&
           nd_is_chain_of(layer->op_types, names, N, N_FUNCTIONS);
}

bool nd_layer_is_mean(const struct nd_model_layer *layer)
{
    static const char *const names[] = {"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum",
                                        "Clip",        "Flatten",           "Relu",       "Reshape",
                                        "Squeeze"};
    enum { N = sizeof names / sizeof *names, N_MEANS = 4 };
    return layer != NULL && layer->n_inputs == 1 && nd_is_chain_of(layer->op_types, names, N, N_MEANS);
}

void nd_say_forced(const struct nd_alternatives *a, const struct nd_model *model,
                   const struct nd_model_layer *layer, bool is_model_output, struct nd_strbuf *text)
{
    size_t before = text->len;
    if (a->is_forced_here[layer->tensor])
        nd_strbuf_printf(text, "the provider writes its values with scale %s, not with the model's",
                         a->forced[layer->tensor]->text);
    for (size_t i = 0; i < layer->n_inputs; i++)
        if (a->forced[layer->inputs[i]] != NULL)
            nd_strbuf_printf(text, "%sthe provider reads '%s' with scale %s, not with the model's",
                             text->len > before ? "; " : "", nd_model_tensor(model, layer->inputs[i])->name,
                             a->forced[layer->inputs[i]]->text);
    /* Layers after it read such quantised values with the scale that they have; who reads an output does not
     * know it. */
    if (a->forced[layer->tensor] != NULL && is_model_output)
        nd_strbuf_puts(text, ": the output is wrong in real units, as the provider makes it");
    else if (a->forced[layer->tensor] != NULL)
        nd_strbuf_puts(text, ": only the recorded values are off; layers on the NPU get the right ones");
}
