/* What layers of one sample made that the quantised values of their tensors do not show: second operands of
 * products as their makers made them (docs/science/htp-arithmetic.md#operands-that-are-calculated); in which
 * layout the HTP has a tensor, on which depends how quantised values are brought to another encoding
 * (docs/science/htp-arithmetic.md#layout). */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

enum { N_ARCHS = ND_HTP_N_ARCHS };

/* What is noted of a tensor. */
struct note {
    bool is_matrix;   /* made by a Gemm or MatMul */
    bool is_share;    /* what a Softmax made, also moved about */
    bool is_laid_out; /* in the layout of a Conv, its channels last */
    bool is_merged;   /* the same, then the rows of each plane behind one another */
    bool
        is_in_blocks; /* what made it writes blocks, and nothing but moves that keep the order was in between */
    bool is_plain;    /* a product reads its quantised values, as it reads those of an input */
    bool is_summed;   /* a Gemm or MatMul made its bytes: arithmetics may make others */
    struct nd_htp_table_note table; /* nd_htp_note_table */
    bool is_rounded_in_layout;      /* a product of it with a number is ND_HTP_LAYOUT */
    bool is_line;                   /* how such a product is made is known */
    float scale;                    /* of what ND_HTP_BEFORE_FACTOR has */
    enum nd_htp_layout layout;      /* in which the device has it */
};

struct nd_layer_memory {
    size_t n_tensors;
    struct nd_array (*bytes)[N_ARCHS];        /* [n_edges], without elements where nothing is known */
    struct nd_array (*halves)[N_ARCHS];       /* [n_edges] the float16 that were quantised, the same */
    struct nd_array *before[ND_HTP_N_BEFORE]; /* [n_edges], the same: nd_htp_recall_before */
    struct note *notes;                       /* [n_edges] */
    struct nd_htp_weights
        *weights; /* [n_edges] constant ones of the layer that makes the tensor, for all samples */
    size_t limit_bytes, kept_bytes; /* of weights */
};

enum nd_status nd_layer_memory_create(size_t n_tensors, struct nd_layer_memory **out, struct nd_error *err)
{
    struct nd_layer_memory *memory = nd_calloc(1, sizeof *memory);
    ND_TRY_MEMORY(memory != NULL, err);
    memory->bytes = nd_calloc(n_tensors, sizeof *memory->bytes);
    memory->halves = nd_calloc(n_tensors, sizeof *memory->halves);
    memory->weights = nd_calloc(n_tensors, sizeof *memory->weights);
    memory->notes = nd_calloc(n_tensors, sizeof *memory->notes);
    bool has_all =
        memory->bytes != NULL && memory->halves != NULL && memory->weights != NULL && memory->notes != NULL;
    for (size_t k = 0; k < ND_HTP_N_BEFORE; k++) {
        memory->before[k] = nd_calloc(n_tensors, sizeof *memory->before[k]);
        has_all = has_all && memory->before[k] != NULL;
    }
    if (!has_all) {
        nd_layer_memory_destroy(&memory); /* of no tensors yet */
        return nd_fail_memory(err);
    }
    memory->n_tensors = n_tensors;
    memory->limit_bytes = SIZE_MAX;
    *out = memory;
    return ND_OK;
}

void nd_layer_memory_limit(struct nd_layer_memory *memory, size_t limit_bytes)
{
    memory->limit_bytes = limit_bytes;
}

void nd_layer_memory_forget(struct nd_layer_memory *memory)
{
    for (size_t e = 0; e < memory->n_tensors; e++)
        nd_layer_memory_forget_tensor(memory, e);
}

void nd_layer_memory_forget_tensor(struct nd_layer_memory *memory, size_t tensor)
{
    for (size_t arch = 0; arch < N_ARCHS && tensor < memory->n_tensors; arch++) {
        nd_array_deinit(&memory->bytes[tensor][arch]);
        nd_array_deinit(&memory->halves[tensor][arch]);
    }
    for (size_t k = 0; k < ND_HTP_N_BEFORE && tensor < memory->n_tensors; k++)
        nd_array_deinit(&memory->before[k][tensor]);
}

void nd_layer_memory_refute(struct nd_layer_memory *memory, size_t tensor,
                            const struct nd_layer_arithmetic *arithmetic)
{
    if (tensor < memory->n_tensors) {
        nd_array_deinit(&memory->bytes[tensor][arithmetic->arch]);
        nd_array_deinit(&memory->halves[tensor][arithmetic->arch]);
    }
}

void nd_htp_weights_deinit(struct nd_htp_weights *weights)
{
    nd_array_deinit(&weights->w8);
    ND_FREE_ALL(weights->shorts, weights->r, weights->sums, weights->places, weights->starts);
    *weights = (struct nd_htp_weights){0};
}

void nd_layer_memory_destroy(struct nd_layer_memory **memory)
{
    if (*memory == NULL)
        return;
    nd_layer_memory_forget(*memory);
    for (size_t e = 0; e < (*memory)->n_tensors; e++)
        nd_htp_weights_deinit(&(*memory)->weights[e]);
    for (size_t k = 0; k < ND_HTP_N_BEFORE; k++)
        free((*memory)->before[k]);
    ND_FREE_ALL((*memory)->bytes, (*memory)->halves, (*memory)->notes, (*memory)->weights, *memory);
    *memory = NULL;
}

/* What arithmetics agree on, one of them made for all. */
static const struct nd_array *recall(const struct nd_array *of_archs, enum nd_htp_arch arch)
{
    for (size_t other = 0; other < N_ARCHS && of_archs[arch].n == 0; other++)
        arch = (enum nd_htp_arch)other;
    return of_archs[arch].n > 0 ? &of_archs[arch] : NULL;
}

const struct nd_array *nd_htp_recall_tensor(const struct nd_layer_memory *memory, size_t tensor,
                                            enum nd_htp_arch arch)
{
    return memory != NULL && tensor < memory->n_tensors ? recall(memory->bytes[tensor], arch) : NULL;
}

const struct nd_array *nd_htp_recall_halves(const struct nd_htp_job *job, size_t tensor)
{
    bool has_any = job->memory != NULL && tensor < job->memory->n_tensors;
    return has_any ? recall(job->memory->halves[tensor], job->arithmetic->arch) : NULL;
}

enum nd_status nd_htp_remember_halves(const struct nd_htp_job *job, const struct nd_array *halves,
                                      struct nd_error *err)
{
    if (job->memory == NULL || job->layer->tensor >= job->memory->n_tensors)
        return ND_OK;
    struct nd_array *place = &job->memory->halves[job->layer->tensor][job->arithmetic->arch];
    nd_array_deinit(place);
    return nd_array_copy(halves, place, err);
}

/* An Add of less is left out: of 1.0e-12 it is, of 1.2e-12 it is not, whatever the scales. Measured with 20
 * chains on gen3 (docs/science/htp-arithmetic.md#chains). */
static const double least_addend = 1.1e-12;

/* Whether it adds next to nothing to input 1 - i. */
static bool adds_nothing(const struct nd_exact_layer *layer, size_t i)
{
    const struct nd_linear_input *input = &layer->call->inputs[i];
    bool is_nothing =
        layer->origins[i] == ND_EXACT_FROM_CONSTANT && input->quant != NULL && input->quant->n == 1;
    for (size_t k = 0; is_nothing && k < input->values->n; k++)
        is_nothing = fabs((input->values->x[k] - (double)input->quant->zero_point[0]) *
                          (double)input->quant->scale[0]) < least_addend;
    return is_nothing;
}

enum nd_status nd_htp_hand_on_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_sum =
        job->memory != NULL && job->call->n_inputs == 2 && strcmp(nd_htp_op_type(job->layer), "Add") == 0;
    for (size_t i = 0; i < 2 && is_sum; i++) {
        const struct nd_array *halves = nd_htp_recall_halves(job, job->layer->input_tensors[1 - i]);
        if (halves != NULL && adds_nothing(job->layer, i))
            return nd_htp_remember_halves(job, halves, err);
    }
    return ND_OK;
}

/* Of a tensor that is not known nothing is so. */
static struct note note_of(const struct nd_layer_memory *memory, size_t tensor)
{
    return memory != NULL && tensor < memory->n_tensors ? memory->notes[tensor]
                                                        : (struct note){.layout = ND_HTP_UNKNOWN};
}

/* Of the tensor that input i reads; without a memory the layer need not know it. */
static struct note note_of_input(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                 size_t i)
{
    return note_of(memory, memory != NULL ? layer->input_tensors[i] : SIZE_MAX);
}

const struct nd_array *nd_htp_recall_before(const struct nd_htp_job *job, size_t i, enum nd_htp_before kind)
{
    if (job->memory == NULL || job->layer->origins[i] != ND_EXACT_FROM_LAYER ||
        job->layer->input_tensors[i] >= job->memory->n_tensors)
        return NULL;
    const struct nd_array *before = &job->memory->before[kind][job->layer->input_tensors[i]];
    return before->n > 0 && before->n == job->call->inputs[i].values->n ? before : NULL;
}

void nd_htp_remember_before(const struct nd_htp_job *job, enum nd_htp_before kind, struct nd_array *values)
{
    if (job->memory != NULL && job->layer->tensor < job->memory->n_tensors) {
        struct nd_array *place = &job->memory->before[kind][job->layer->tensor];
        nd_array_deinit(place);
        *place = *values;
        *values = (struct nd_array){0};
    }
    nd_array_deinit(values);
}

void nd_htp_replace(const struct nd_htp_job *job, struct nd_htp_replaced *other)
{
    other->job = *job;
    other->call = *job->call;
    memcpy(other->inputs, job->call->inputs, job->call->n_inputs * sizeof *other->inputs);
    other->call.inputs = other->inputs;
    other->job.call = &other->call;
}

const struct nd_htp_job *nd_htp_read_before_table(const struct nd_htp_job *job, struct nd_htp_replaced *other)
{
    bool has_any = false;
    if (job->call->n_inputs > ND_HTP_REPLACED_INPUTS)
        return job;
    nd_htp_replace(job, other);
    for (size_t i = 0; i < job->call->n_inputs; i++) {
        const struct nd_array *before = nd_htp_recall_before(job, i, ND_HTP_BEFORE_TABLE);
        other->inputs[i].values = before != NULL ? before : other->inputs[i].values;
        has_any = has_any || before != NULL;
    }
    return has_any ? &other->job : job;
}

struct nd_htp_table_note nd_htp_table_note_of(const struct nd_htp_job *job, size_t i)
{
    return job->layer->origins[i] == ND_EXACT_FROM_LAYER ? note_of_input(job->memory, job->layer, i).table
                                                         : (struct nd_htp_table_note){0};
}

bool nd_htp_is_rounded_in_layout(const struct nd_htp_job *job, size_t i)
{
    return job->layer->origins[i] == ND_EXACT_FROM_LAYER &&
           note_of_input(job->memory, job->layer, i).is_rounded_in_layout;
}

float nd_htp_scale_before(const struct nd_htp_job *job, size_t i)
{
    return note_of_input(job->memory, job->layer, i).scale;
}

void nd_htp_note_scale(const struct nd_htp_job *job, float scale)
{
    if (job->memory != NULL && job->layer->tensor < job->memory->n_tensors)
        job->memory->notes[job->layer->tensor].scale = scale;
}

bool nd_layer_is_sure_product(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    const char *op_type = nd_htp_op_type(layer);
    if (layer->call->n_inputs != 2 || (strcmp(op_type, "Mul") != 0 && strcmp(op_type, "Div") != 0))
        return false;
    size_t from = layer->origins[0] == ND_EXACT_FROM_CONSTANT ? 1 : 0;
    const struct note note = note_of_input(memory, layer, from);
    return layer->origins[from] == ND_EXACT_FROM_LAYER && (note.table.is_known || note.is_line);
}

void nd_htp_note_table(const struct nd_htp_job *job, struct nd_htp_table_note note)
{
    if (job->memory != NULL && job->layer->tensor < job->memory->n_tensors)
        job->memory->notes[job->layer->tensor].table = note;
}

const struct nd_array *nd_htp_recall(const struct nd_htp_job *job, size_t i)
{
    return job->memory != NULL
               ? nd_htp_recall_tensor(job->memory, job->layer->input_tensors[i], job->arithmetic->arch)
               : NULL;
}

bool nd_htp_is_plain_tensor(const struct nd_layer_memory *memory, size_t tensor)
{
    return note_of(memory, tensor).is_plain;
}

bool nd_htp_is_summed_tensor(const struct nd_layer_memory *memory, size_t tensor)
{
    return note_of(memory, tensor).is_summed;
}

bool nd_htp_is_made_with_matrix(const struct nd_htp_job *job)
{
    return job->arithmetic->arch == ND_HTP_V73 && note_of_input(job->memory, job->layer, 0).is_matrix;
}

bool nd_htp_is_laid_out(const struct nd_htp_job *job, size_t i)
{
    return note_of_input(job->memory, job->layer, i).is_laid_out;
}

bool nd_htp_lies_flat(const struct nd_layer_memory *memory, size_t tensor)
{
    return nd_layer_layout(memory, tensor) == ND_HTP_FLAT;
}

bool nd_layer_is_laid_out(const struct nd_layer_memory *memory, size_t tensor)
{
    return note_of(memory, tensor).is_laid_out;
}

bool nd_htp_is_merged(const struct nd_htp_job *job, size_t i)
{
    return note_of_input(job->memory, job->layer, i).is_merged;
}

bool nd_htp_is_in_blocks(const struct nd_htp_job *job, size_t i)
{
    return note_of_input(job->memory, job->layer, i).is_in_blocks;
}

bool nd_htp_is_share(const struct nd_htp_job *job, size_t i)
{
    return note_of_input(job->memory, job->layer, i).is_share;
}

enum nd_htp_layout nd_htp_layout_of(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                    size_t i)
{
    if (layer->origins[i] != ND_EXACT_FROM_LAYER)
        return ND_HTP_FLAT;
    return note_of_input(memory, layer, i).layout;
}

enum nd_htp_layout nd_layer_layout(const struct nd_layer_memory *memory, size_t tensor)
{
    return note_of(memory, tensor).layout;
}

static bool is_one_of(const char *op_type, const char *const names[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(op_type, names[i]) == 0)
            return true;
    return false;
}
#define IS_ONE_OF(op_type, names) is_one_of(op_type, names, sizeof(names) / sizeof *(names))

/* What was seen to hand on its quantised values, whatever its zero point; "": a change of the encoding. */
static bool hands_on_qvalues(const char *op_type)
{
    static const char *const names[] = {
        "Clip",      "Conv",    "ConvTranspose", "Div",       "Elu",
        "Exp",       "Gather",  "Gelu",          "HardSwish", "LayerNormalization",
        "LeakyRelu", "Max",     "Mul",           "Relu",      "Sigmoid",
        "Slice",     "Softmax", "Tanh"};
    return op_type[0] == '\0' || IS_ONE_OF(op_type, names);
}

static bool is_matrix(const char *op_type)
{
    return strcmp(op_type, "Gemm") == 0 || strcmp(op_type, "MatMul") == 0;
}

/* What makes signed numbers where its zero point is near to theirs, and hands on its quantised values
 * elsewhere. */
static bool may_be_signed(const char *op_type)
{
    return is_matrix(op_type) || strcmp(op_type, "Add") == 0 || strcmp(op_type, "Sub") == 0;
}

bool nd_htp_keeps_memory(const char *op_type)
{
    static const char *const names[] = {"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
    return IS_ONE_OF(op_type, names);
}

/* ONNX Runtime brings the channels last for these, and only what names axes of its own brings them back. */
static bool is_laid_out(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                        const char *op_type)
{
    static const char *const makers[] = {"AveragePool",  "BatchNormalization",    "Conv",    "ConvTranspose",
                                         "DepthToSpace", "InstanceNormalization", "MaxPool", "Resize"};
    if (IS_ONE_OF(op_type, makers))
        return true;
    bool is = false;
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        is = is || note_of(memory, layer->input_tensors[i]).is_laid_out;
    return is && !nd_htp_keeps_memory(op_type) && !is_matrix(op_type);
}

/* A Reshape of four axes to three that keeps the channels. */
static bool merges_planes(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                          const char *op_type)
{
    enum { CHANNELS = 1, N_FROM = 4, N_TO = 3 };
    const struct nd_linear_input *inputs = layer->call->inputs;
    return strcmp(op_type, "Reshape") == 0 && nd_linear_has(layer->call, 0) && nd_linear_has(layer->call, 1) &&
           note_of(memory, layer->input_tensors[0]).is_laid_out && inputs[0].values->shape.rank == N_FROM &&
           inputs[1].values->n == N_TO &&
           inputs[1].values->x[CHANNELS] == (double)inputs[0].values->shape.dims[CHANNELS];
}

/* Found on both architectures: with 112 and 144 it is so, with 111 and 145 it is not
 * (docs/science/htp-arithmetic.md#operands-that-are-calculated). */
enum { SIGNED_ZERO = 128, FARTHEST_ZERO = 16 };

static bool makes_signed(const struct nd_exact_layer *layer)
{
    const char *op_type = nd_htp_op_type(layer);
    const struct nd_quant *y = layer->call->out_quant, *w = NULL;
    if (layer->call->n_inputs > 1)
        w = layer->call->inputs[1].quant;
    bool is_per_channel = is_matrix(op_type) && w != NULL && w->n > 1;
    return layer->dtype == ND_DTYPE_U8 && may_be_signed(op_type) && !is_per_channel && y != NULL && y->n == 1 &&
           llabs(y->zero_point[0] - SIGNED_ZERO) <= FARTHEST_ZERO;
}

/* ---- the layout: in blocks, as a Conv writes it, or flat ---- */

/* All of the inputs that are not constant, or one of them is enough. */
static enum nd_htp_layout inherit(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                  bool takes_all)
{
    size_t n[] = {[ND_HTP_UNKNOWN] = 0, [ND_HTP_FLAT] = 0, [ND_HTP_BLOCKED] = 0};
    for (size_t i = 0; i < layer->call->n_inputs; i++)
        if (layer->origins[i] != ND_EXACT_FROM_CONSTANT)
            n[nd_htp_layout_of(memory, layer, i)]++;
    enum nd_htp_layout first = takes_all ? ND_HTP_FLAT : ND_HTP_BLOCKED,
                       last = takes_all ? ND_HTP_BLOCKED : ND_HTP_FLAT;
    return n[first] > 0 ? first : n[ND_HTP_UNKNOWN] > 0 ? ND_HTP_UNKNOWN : last;
}

/* Over several axes a ReduceMax is another operation. */
static bool is_greatest_of_planes(const struct nd_exact_layer *layer, const char *op_type)
{
    int64_t axis;
    return strcmp(op_type, "ReduceMax") == 0 && !nd_htp_reduces_one_axis(layer, &axis);
}

/* Along the channels of what lies in the layout of a Conv; in another encoding of 8 bits one of 80 was in
 * blocks. */
static bool takes_of_channels(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                              const char *op_type, bool *is_flat)
{
    enum { CHANNELS = 1, RANK = 4 };
    const struct nd_linear_input *x = &layer->call->inputs[0];
    int64_t axis;
    *is_flat = layer->dtype == ND_DTYPE_U16 ||
               (x->quant != NULL && nd_quant_is_same(x->quant, layer->call->out_quant));
    return (strcmp(op_type, "ReduceMax") == 0 || strcmp(op_type, "ReduceMin") == 0) &&
           nd_htp_reduces_one_axis(layer, &axis) && note_of(memory, layer->input_tensors[0]).is_laid_out &&
           x->values != NULL && x->values->shape.rank == RANK && (axis == CHANNELS || axis == CHANNELS - RANK);
}

static bool shuffles_channels(const struct nd_exact_layer *layer, const char *op_type)
{
    char mode[8];
    const struct nd_op_call op_call = {.node = layer->call->node, .opset = layer->call->opset};
    if (strcmp(op_type, "DepthToSpace") != 0)
        return false;
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    return strcmp(mode, "CRD") == 0;
}

/* In which layout the layer's output is, after its inputs were noted. */
static enum nd_htp_layout layout_made(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                      const char *op_type)
{
    static const char *const blocked[] = {
        "AveragePool",       "BatchNormalization",    "Conv",   "ConvTranspose", "DepthToSpace", "Gemm",
        "GlobalAveragePool", "InstanceNormalization", "MatMul", "MaxPool",       "Resize",       "Softmax"};
    static const char *const flat[] = {"Gather", "LayerNormalization", "SpaceToDepth"};
    static const char *const handed_on[] = {
        "Add",       "Clip",      "Div",        "Elu",       "Exp",       "Gelu", "HardSigmoid",
        "HardSwish", "LeakyRelu", "Max",        "Min",       "Mul",       "Neg",  "PRelu",
        "Pad",       "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Sigmoid",
        "Slice",     "Split",     "Sqrt",       "Sub",       "Tanh",      "Tile", "Transpose",
    };
    bool is_flat;
    if (takes_of_channels(memory, layer, op_type, &is_flat))
        return is_flat ? ND_HTP_FLAT : ND_HTP_UNKNOWN;
    if (IS_ONE_OF(op_type, flat) || is_greatest_of_planes(layer, op_type) || shuffles_channels(layer, op_type))
        return ND_HTP_FLAT;
    if (IS_ONE_OF(op_type, blocked))
        return ND_HTP_BLOCKED;
    /* Other axes of what lies in blocks: a Relu after that is made in one way, a Clip in the other. */
    if (nd_htp_keeps_memory(op_type) && strcmp(op_type, "Transpose") != 0)
        return inherit(memory, layer, true) == ND_HTP_FLAT ? ND_HTP_FLAT : ND_HTP_UNKNOWN;
    bool joins = strcmp(op_type, "Concat") == 0;
    return joins || IS_ONE_OF(op_type, handed_on) ? inherit(memory, layer, joins) : ND_HTP_UNKNOWN;
}

/* What was seen to write blocks that a Reshape or the like of uint8 reads as they are. A MatMul of two tensors
 * is made with the encoding of what comes after it (docs/science/htp-arithmetic.md#rescaling). */
static bool writes_blocks(const struct nd_exact_layer *layer, const char *op_type)
{
    static const char *const names[] = {
        "AveragePool",        "Conv",    "ConvTranspose", "DepthToSpace", "InstanceNormalization",
        "LayerNormalization", "MaxPool", "Resize",        "Softmax"};
    return IS_ONE_OF(op_type, names) || (is_matrix(op_type) && layer->origins[1] == ND_EXACT_FROM_CONSTANT);
}

/* ---- products with a number: which of two ways, by what made their operand ----
 * Found with 37 makers, Mul and Div, gen3 (docs/science/htp-arithmetic.md#by-what-was-made). */

static bool is_rounded_in_layout(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                 const char *op_type)
{
    enum { RANK = 4 };
    const struct nd_linear_input *x = &layer->call->inputs[0];
    if (nd_htp_keeps_memory(op_type))
        return strcmp(op_type, "Flatten") != 0 && note_of(memory, layer->input_tensors[0]).is_rounded_in_layout;
    return strcmp(op_type, "GlobalAveragePool") == 0 ||
           (strcmp(op_type, "MatMul") == 0 && layer->origins[1] != ND_EXACT_FROM_CONSTANT) ||
           (is_laid_out(memory, layer, op_type) && x->values != NULL && x->values->shape.rank == RANK);
}

/* What was looked at; what moves others is as they are. */
static bool is_line(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                    const char *op_type)
{
    static const char *const names[] = {"Add",
                                        "AveragePool",
                                        "Concat",
                                        "Conv",
                                        "Div",
                                        "Gather",
                                        "Gemm",
                                        "GlobalAveragePool",
                                        "LayerNormalization",
                                        "MatMul",
                                        "Mul",
                                        "Neg",
                                        "ReduceMean",
                                        "ReduceSum",
                                        "Resize",
                                        "Slice",
                                        "Softmax",
                                        "Sub"};
    bool moves = nd_htp_keeps_memory(op_type) || ND_IS_ONE_OF(op_type, "Concat", "Gather", "Slice", "Resize");
    bool is = nd_htp_keeps_memory(op_type) || IS_ONE_OF(op_type, names);
    for (size_t i = 0; i < layer->call->n_inputs && is && moves; i++)
        is = layer->origins[i] != ND_EXACT_FROM_LAYER || note_of(memory, layer->input_tensors[i]).is_line;
    return is;
}

/* ---- what is noted of a tensor ---- */

void nd_htp_note_tensor(struct nd_layer_memory *memory, const struct nd_exact_layer *layer)
{
    if (memory == NULL || layer->tensor >= memory->n_tensors || layer->call->n_inputs == 0)
        return;
    const char *op_type = nd_htp_op_type(layer);
    bool keeps = nd_htp_keeps_memory(op_type);
    const struct note from = note_of(memory, keeps ? layer->input_tensors[0] : SIZE_MAX);
    memory->notes[layer->tensor] =
        (struct note){.is_share = strcmp(op_type, "Softmax") == 0 || from.is_share,
                      .is_laid_out = is_laid_out(memory, layer, op_type),
                      .is_merged = merges_planes(memory, layer, op_type),
                      .is_in_blocks = writes_blocks(layer, op_type) ||
                                      (from.is_in_blocks && strcmp(op_type, "Transpose") != 0),
                      .layout = layout_made(memory, layer, op_type),
                      .is_matrix = is_matrix(op_type),
                      .is_summed = is_matrix(op_type) || from.is_summed,
                      .is_rounded_in_layout = is_rounded_in_layout(memory, layer, op_type),
                      .is_line = is_line(memory, layer, op_type),
                      .is_plain = hands_on_qvalues(op_type) ||
                                  (may_be_signed(op_type) && !makes_signed(layer)) || from.is_plain};
}

bool nd_htp_signed_init(struct nd_htp_signed *made, const struct nd_htp_job *job)
{
    if (job->memory == NULL || !makes_signed(job->layer) || !nd_htp_is_unbounded(job))
        return false;
    *made = (struct nd_htp_signed){
        .job = *job, .call = *job->call, .quant = *job->call->out_quant, .zero = SIGNED_ZERO};
    made->quant.zero_point = &made->zero;
    made->call.out_quant = &made->quant;
    made->job.call = &made->call;
    made->job.memory = NULL;
    made->job.qvalues = &made->bytes;
    made->job.is_covered = &made->is_covered;
    return true;
}

void nd_htp_signed_remember(struct nd_htp_signed *made, const struct nd_htp_job *job)
{
    for (size_t i = 0; i < made->bytes.n; i++)
        made->bytes.x[i] -= SIGNED_ZERO;
    nd_htp_remember(job, &made->bytes);
}

static struct nd_htp_weights *place_of(const struct nd_htp_job *job)
{
    bool has_place = job->memory != NULL && job->layer->tensor < job->memory->n_tensors;
    return has_place && job->call->inputs[1].packed_weights != NULL ? &job->memory->weights[job->layer->tensor]
                                                                    : NULL;
}

const struct nd_htp_weights *nd_htp_recall_weights(const struct nd_htp_job *job)
{
    struct nd_htp_weights *place = place_of(job);
    if (place == NULL || place->from != job->call->inputs[1].packed_weights)
        return NULL;
    if (place->w8.n == 0)
        place->view = *place->from; /* its values may have been read again */
    return place;
}

static size_t memory_left(const struct nd_layer_memory *memory)
{
    return memory->limit_bytes > memory->kept_bytes ? memory->limit_bytes - memory->kept_bytes : 0;
}

static size_t bytes_of(const struct nd_htp_weights *weights)
{
    return weights->w8.n * (sizeof *weights->w8.x + (weights->shorts != NULL ? sizeof *weights->shorts : 0));
}

const struct nd_htp_weights *nd_htp_keep_weights(const struct nd_htp_job *job, struct nd_htp_weights *weights)
{
    struct nd_htp_weights *place = weights->from != NULL ? place_of(job) : NULL;
    size_t bytes = bytes_of(weights);
    if (place == NULL || bytes > memory_left(job->memory))
        return weights;
    job->memory->kept_bytes += bytes;
    job->memory->kept_bytes -= bytes_of(place);
    nd_htp_weights_deinit(place);
    *place = *weights;
    *weights = (struct nd_htp_weights){0};
    return place;
}

void nd_htp_remember(const struct nd_htp_job *job, struct nd_array *bytes)
{
    if (job->memory != NULL && job->layer->tensor < job->memory->n_tensors) {
        struct nd_array *place = &job->memory->bytes[job->layer->tensor][job->arithmetic->arch];
        nd_array_deinit(place);
        *place = *bytes;
    } else {
        nd_array_deinit(bytes);
    }
    *bytes = (struct nd_array){0};
}
