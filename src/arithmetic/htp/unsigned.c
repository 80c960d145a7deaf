/* Signed quantised values: to the HTP those of int8 are those of uint8 with a zero point that is 128 higher,
 * and those of int16 are those of uint16, 32768 higher; only constant weights stay signed. So every formula is
 * written for unsigned ones. docs/science/htp-arithmetic.md#signed */
#include <stdlib.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

static enum nd_dtype unsigned_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_I8 ? ND_DTYPE_U8 : dtype == ND_DTYPE_I16 ? ND_DTYPE_U16 : dtype;
}

/* By how much the unsigned ones are higher. */
static int64_t offset_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_I8 ? -INT8_MIN : dtype == ND_DTYPE_I16 ? -INT16_MIN : 0;
}

/* Weights and biases of products, which are signed on unsigned layers, too; so are all weights of 16 bits. */
static bool is_weight(const struct nd_exact_layer *layer, size_t i)
{
    return i > 0 && nd_layer_is_product(layer) &&
           (layer->origins[i] == ND_EXACT_FROM_CONSTANT ||
            layer->call->inputs[i].values->dtype == ND_DTYPE_I16);
}

static bool is_shifted(const struct nd_exact_layer *layer, size_t i)
{
    const struct nd_linear_input *input = &layer->call->inputs[i];
    return input->values != NULL && input->quant != NULL && offset_of(input->values->dtype) != 0 &&
           !is_weight(layer, i);
}

static bool shift_quant(const struct nd_quant *from, int64_t offset, struct nd_quant *to)
{
    *to = *from;
    to->zero_point = nd_calloc(from->n > 0 ? from->n : 1, sizeof *to->zero_point);
    for (size_t i = 0; i < from->n && to->zero_point != NULL; i++)
        to->zero_point[i] = from->zero_point[i] + offset;
    return to->zero_point != NULL;
}

static bool shift_input(struct nd_htp_unsigned *room, size_t i)
{
    struct nd_linear_input *input = &room->inputs[i];
    int64_t offset = offset_of(input->values->dtype);
    if (nd_array_copy(input->values, &room->values[i], NULL) != ND_OK ||
        !shift_quant(input->quant, offset, &room->quants[i]))
        return false;
    for (size_t k = 0; k < room->values[i].n; k++)
        room->values[i].x[k] += (double)offset;
    room->values[i].dtype = unsigned_of(input->values->dtype);
    input->values = &room->values[i];
    input->quant = &room->quants[i];
    input->shorts = NULL; /* packed_weights are without the zero point: they stay */
    return true;
}

const struct nd_exact_layer *nd_htp_as_unsigned(const struct nd_exact_layer *layer,
                                                struct nd_htp_unsigned *room)
{
    size_t n = layer->call->n_inputs;
    bool is_any = offset_of(layer->dtype) != 0;
    room->n = 0;
    for (size_t i = 0; i < n && !is_any; i++)
        is_any = is_shifted(layer, i) && layer->origins[i] != ND_EXACT_FROM_CONSTANT;
    if (!is_any || n > ND_HTP_MAX_INPUTS)
        return layer;
    *room = (struct nd_htp_unsigned){.layer = *layer, .call = *layer->call, .n = n + 1};
    room->layer.call = &room->call;
    room->layer.dtype = unsigned_of(layer->dtype);
    room->call.inputs = room->inputs;
    bool has_room = shift_quant(layer->call->out_quant, offset_of(layer->dtype), &room->quants[n]);
    room->call.out_quant = &room->quants[n];
    for (size_t i = 0; i < n && has_room; i++) {
        room->inputs[i] = layer->call->inputs[i];
        if (is_shifted(layer, i))
            has_room = shift_input(room, i);
    }
    if (has_room)
        return &room->layer;
    nd_htp_unsigned_deinit(room);
    return NULL;
}

void nd_htp_unsigned_deinit(struct nd_htp_unsigned *room)
{
    for (size_t i = 0; i < room->n; i++) {
        free(room->quants[i].zero_point);
        if (i + 1 < room->n)
            nd_array_deinit(&room->values[i]);
    }
    room->n = 0;
}

bool nd_htp_ask(const struct nd_exact_layer *layer, bool (*question)(const struct nd_exact_layer *layer))
{
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(layer, &room);
    return seen != NULL && question(seen);
}

void nd_htp_sign(const struct nd_exact_layer *layer, struct nd_array *qvalues)
{
    double offset = (double)offset_of(layer->dtype);
    if (offset == 0)
        return;
    for (size_t k = 0; k < qvalues->n; k++)
        qvalues->x[k] -= offset;
    qvalues->dtype = layer->dtype;
}
