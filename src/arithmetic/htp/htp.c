/* The arithmetics of the HTP: which there are, and asking the family that has the operator of a layer.
 * Formulas, and the evidence for each: docs/science/htp-arithmetic.md. */
#include "arithmetic/htp/htp.h"

#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

static const struct nd_layer_arithmetic arithmetics[] = {
    {"htp-v73", "HTP v73, v75, v79 and v81, QAIRT 2.47 and 2.51", ND_HTP_V73, false, false},
    {"htp-v69", "HTP v68 and v69, QAIRT 2.47 and 2.51", ND_HTP_V69, false, false},
    {"htp-v73:2.48", "HTP v73, v75, v79 and v81, QAIRT 2.48 to 2.50", ND_HTP_V73, true, false},
    {"htp-v69:2.48", "HTP v68 and v69, QAIRT 2.48 to 2.50", ND_HTP_V69, true, false},
};

static const struct nd_htp_operator *const families[] = {nd_htp_elements, nd_htp_functions16, nd_htp_products,
                                                         nd_htp_means,    nd_htp_norms,       nd_htp_softmaxes,
                                                         nd_htp_tables,   nd_htp_moves};

const struct nd_layer_arithmetic *nd_layer_arithmetics(size_t *n)
{
    *n = sizeof arithmetics / sizeof arithmetics[0];
    return arithmetics;
}

const struct nd_layer_arithmetic *nd_layer_arithmetic_at(size_t place)
{
    return &arithmetics[place];
}

const struct nd_layer_arithmetic *nd_layer_arithmetic_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof arithmetics / sizeof arithmetics[0]; i++)
        if (strcmp(arithmetics[i].name, name) == 0)
            return &arithmetics[i];
    return NULL;
}

static nd_htp_family *family_of(const char *op_type, bool is_of_words)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const struct nd_htp_operator *row = families[i]; row->op_types != NULL; row++)
            if (row->is_of_words == is_of_words && nd_has_word(row->op_types, op_type))
                return row->family;
    return NULL;
}

/* Asks the family that has the operator of the layer. */
static enum nd_status ask(const struct nd_htp_job *job, bool is_of_words, struct nd_error *err)
{
    nd_htp_family *family = family_of(nd_htp_op_type(job->layer), is_of_words);
    struct nd_error why;
    enum nd_status status = family != NULL ? family(job, &why) : ND_OK;
    if (status == ND_ERR_UNSUPPORTED) { /* its operator is not evaluated */
        nd_array_deinit(job->qvalues);
        return ND_OK;
    }
    if (status != ND_OK && err != NULL)
        *err = why;
    return status;
}

/* No operator, ONNX's, or the Gelu that ONNX Runtime makes of its parts, which the HTP computes as ONNX's. */
static bool has_known_domain(const Onnx__NodeProto *node)
{
    const char *domain = node != NULL ? nd_onnx_domain(node->domain) : "";
    return domain[0] == '\0' ||
           (strcmp(domain, "com.microsoft") == 0 && strcmp(nd_onnx_text(node->op_type), "Gelu") == 0);
}

static enum nd_status run(const struct nd_layer_arithmetic *arithmetic, const struct nd_exact_layer *layer,
                          bool is_signed, struct nd_layer_memory *memory, struct nd_array *qvalues,
                          bool *is_covered, struct nd_error *err)
{
    const struct nd_htp_job job = {.arithmetic = arithmetic,
                                   .layer = layer,
                                   .call = layer->call,
                                   .memory = memory,
                                   .is_signed = is_signed,
                                   .qvalues = qvalues,
                                   .is_covered = is_covered};
    *is_covered = false;
    if (layer->dtype == ND_DTYPE_F32) {
        nd_htp_note_tensor(memory, layer);
        return nd_htp_floats(&job, err);
    }
    if (!has_known_domain(layer->call->node) || (layer->dtype != ND_DTYPE_U8 && layer->dtype != ND_DTYPE_U16))
        return ND_OK;
    nd_htp_note_tensor(memory, layer);
    ND_TRY(nd_htp_hand_on_halves(&job, err));
    if (layer->dtype == ND_DTYPE_U16)
        ND_TRY(ask(&job, true, err));
    if (!*is_covered && nd_htp_is_chain(layer))
        ND_TRY(nd_htp_chain(&job, err));
    if (!*is_covered && layer->call->node != NULL && nd_htp_reads_floats(layer))
        ND_TRY(nd_htp_halves(&job, err));
    if (!*is_covered)
        ND_TRY(ask(&job, false, err));
    return ND_OK;
}

enum nd_status nd_layer_arithmetic_run(const struct nd_layer_arithmetic *arithmetic,
                                       const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                       struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    struct nd_htp_moved moved;
    const struct nd_exact_layer *alone = nd_htp_before_moves(layer, &moved);
    const struct nd_exact_layer *seen = layer->dtype == ND_DTYPE_F32 ? layer : nd_htp_as_unsigned(alone, &room);
    ND_TRY_MEMORY(seen != NULL, err);
    ND_TRY(run(arithmetic, seen, seen->dtype != layer->dtype, memory, qvalues, is_covered, err));
    if (*is_covered && seen != alone)
        nd_htp_sign(layer, qvalues);
    if (alone == layer)
        return ND_OK;
    nd_htp_note_tensor(memory, layer);
    return *is_covered ? nd_htp_name_axes(layer, qvalues, err) : ND_OK;
}

enum nd_status nd_layer_run_as_v81(const struct nd_layer_arithmetic *arithmetic,
                                   const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                   struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    struct nd_layer_arithmetic other = *arithmetic;
    *is_covered = false;
    bool is_wide = layer->dtype == ND_DTYPE_U16 || layer->dtype == ND_DTYPE_I16;
    if (arithmetic->arch != ND_HTP_V73 || !is_wide || !nd_htp_is_other_on_v81(layer))
        return ND_OK;
    other.is_v81 = true;
    return nd_layer_arithmetic_run(&other, layer, memory, qvalues, is_covered, err);
}
