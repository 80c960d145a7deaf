/* Second operands of products as their makers made them. */
#include <stdlib.h>
#include <string.h>

#include "arith/htp_internal.h"
#include "base/memory.h"

struct nd_unit_memory {
    size_t n_edges;
    struct nd_array *bytes; /* [n_edges], without elements where nothing is known */
    bool *is_matrix;        /* [n_edges] made by a Gemm or MatMul */
    bool *is_laid_out;      /* [n_edges] a tensor in the layout of a Conv, its channels last */
    bool *is_plain;         /* [n_edges] a product reads the codes of the edge, as it reads those of an input */
    struct nd_htp_weights
        *weights; /* [n_edges] constant ones of the unit that makes the edge, for all samples */
    size_t limit_bytes, kept_bytes; /* of weights */
};

enum nd_status nd_unit_memory_create(size_t n_edges, struct nd_unit_memory **out, struct nd_error *err)
{
    struct nd_unit_memory *memory = nd_calloc(1, sizeof *memory);
    if (memory == NULL)
        return nd_fail_memory(err);
    memory->bytes = nd_calloc(n_edges, sizeof *memory->bytes);
    memory->weights = nd_calloc(n_edges, sizeof *memory->weights);
    memory->is_matrix = nd_calloc(n_edges, sizeof *memory->is_matrix);
    memory->is_plain = nd_calloc(n_edges, sizeof *memory->is_plain);
    memory->is_laid_out = nd_calloc(n_edges, sizeof *memory->is_laid_out);
    if (memory->bytes == NULL || memory->weights == NULL || memory->is_matrix == NULL ||
        memory->is_plain == NULL || memory->is_laid_out == NULL) {
        free(memory->is_laid_out);
        free(memory->is_matrix);
        free(memory->is_plain);
        free(memory->bytes);
        free(memory->weights);
        free(memory);
        return nd_fail_memory(err);
    }
    memory->n_edges = n_edges;
    memory->limit_bytes = SIZE_MAX;
    *out = memory;
    return ND_OK;
}

void nd_unit_memory_limit(struct nd_unit_memory *memory, size_t limit_bytes)
{
    memory->limit_bytes = limit_bytes;
}

void nd_unit_memory_forget(struct nd_unit_memory *memory)
{
    for (size_t e = 0; e < memory->n_edges; e++)
        nd_array_deinit(&memory->bytes[e]);
}

void nd_unit_memory_forget_edge(struct nd_unit_memory *memory, size_t edge)
{
    if (edge < memory->n_edges)
        nd_array_deinit(&memory->bytes[edge]);
}

void nd_unit_memory_destroy(struct nd_unit_memory **memory)
{
    if (*memory == NULL)
        return;
    nd_unit_memory_forget(*memory);
    for (size_t e = 0; e < (*memory)->n_edges; e++)
        nd_htp_weights_deinit(&(*memory)->weights[e]);
    free((*memory)->bytes);
    free((*memory)->is_laid_out);
    free((*memory)->is_matrix);
    free((*memory)->is_plain);
    free((*memory)->weights);
    free(*memory);
    *memory = NULL;
}

const struct nd_array *nd_htp_recall_edge(const struct nd_unit_memory *memory, size_t edge)
{
    if (memory == NULL || edge >= memory->n_edges || memory->bytes[edge].n == 0)
        return NULL;
    return &memory->bytes[edge];
}

const struct nd_array *nd_htp_recall(const struct nd_htp_job *job, size_t i)
{
    return job->memory != NULL ? nd_htp_recall_edge(job->memory, job->unit->input_edges[i]) : NULL;
}

bool nd_htp_is_plain_edge(const struct nd_unit_memory *memory, size_t edge)
{
    return memory != NULL && edge < memory->n_edges && memory->is_plain[edge];
}

bool nd_htp_reads_matrix(const struct nd_htp_job *job, size_t i)
{
    if (job->memory == NULL)
        return false;
    size_t edge = job->unit->input_edges[i];
    return edge < job->memory->n_edges && job->memory->is_matrix[edge];
}

bool nd_htp_is_laid_out(const struct nd_htp_job *job, size_t i)
{
    if (job->memory == NULL)
        return false;
    size_t edge = job->unit->input_edges[i];
    return edge < job->memory->n_edges && job->memory->is_laid_out[edge];
}

static bool is_one_of(const char *op_type, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(op_type, names[i]) == 0)
            return true;
    return false;
}

/* What was seen to hand on its codes. An Add does not. */
static bool hands_on_codes(const char *op_type)
{
    static const char *const names[] = {"Conv", "ConvTranspose", "Gelu",    "Gemm", "MatMul",
                                        "Mul",  "Sigmoid",       "Softmax", "Sub"};
    return is_one_of(op_type, names, sizeof names / sizeof names[0]);
}

static bool moves_codes(const char *op_type)
{
    static const char *const names[] = {"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
    return is_one_of(op_type, names, sizeof names / sizeof names[0]);
}

/* ONNX Runtime brings the channels last for these, and only what names axes of its own brings them back. */
static bool is_laid_out(const struct nd_unit_memory *memory, const struct nd_exact_unit *unit,
                        const char *op_type)
{
    static const char *const makers[] = {"AveragePool",  "Conv",    "ConvTranspose",
                                         "DepthToSpace", "MaxPool", "Resize"};
    if (is_one_of(op_type, makers, sizeof makers / sizeof makers[0]))
        return true;
    bool is = false;
    for (size_t i = 0; i < unit->call->n_inputs; i++)
        is = is || (unit->input_edges[i] < memory->n_edges && memory->is_laid_out[unit->input_edges[i]]);
    return is && !moves_codes(op_type) && strcmp(op_type, "Gemm") != 0 && strcmp(op_type, "MatMul") != 0;
}

void nd_htp_note_edge(struct nd_unit_memory *memory, const struct nd_exact_unit *unit)
{
    if (memory == NULL || unit->edge >= memory->n_edges || unit->call->n_inputs == 0)
        return;
    const char *op_type = nd_onnx_text(unit->call->node->op_type);
    memory->is_laid_out[unit->edge] = is_laid_out(memory, unit, op_type);
    memory->is_matrix[unit->edge] = strcmp(op_type, "Gemm") == 0 || strcmp(op_type, "MatMul") == 0;
    memory->is_plain[unit->edge] =
        hands_on_codes(op_type) || (moves_codes(op_type) && nd_htp_is_plain_edge(memory, unit->input_edges[0]));
}

static struct nd_htp_weights *place_of(const struct nd_htp_job *job)
{
    bool has_place = job->memory != NULL && job->unit->edge < job->memory->n_edges;
    return has_place && job->call->inputs[1].wholes != NULL ? &job->memory->weights[job->unit->edge] : NULL;
}

const struct nd_htp_weights *nd_htp_recall_weights(const struct nd_htp_job *job)
{
    struct nd_htp_weights *place = place_of(job);
    if (place == NULL || place->from != job->call->inputs[1].wholes)
        return NULL;
    if (place->w8.n == 0)
        place->view = *place->from; /* its values may have been read again */
    return place;
}

static size_t memory_left(const struct nd_unit_memory *memory)
{
    return memory->limit_bytes > memory->kept_bytes ? memory->limit_bytes - memory->kept_bytes : 0;
}

const struct nd_htp_weights *nd_htp_keep_weights(const struct nd_htp_job *job, struct nd_htp_weights *weights)
{
    struct nd_htp_weights *place = weights->from != NULL ? place_of(job) : NULL;
    size_t bytes = weights->w8.n * sizeof *weights->w8.x;
    if (place == NULL || bytes > memory_left(job->memory))
        return weights;
    job->memory->kept_bytes += bytes;
    job->memory->kept_bytes -= place->w8.n * sizeof *place->w8.x;
    nd_htp_weights_deinit(place);
    *place = *weights;
    *weights = (struct nd_htp_weights){0};
    return place;
}

void nd_htp_remember(const struct nd_htp_job *job, struct nd_array *bytes)
{
    if (job->memory != NULL && job->unit->edge < job->memory->n_edges) {
        nd_array_deinit(&job->memory->bytes[job->unit->edge]);
        job->memory->bytes[job->unit->edge] = *bytes;
    } else {
        nd_array_deinit(bytes);
    }
    *bytes = (struct nd_array){0};
}
