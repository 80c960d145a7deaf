/* Channels that the quantisation makes one value, as where boxes and scores share one scale: what is below half
 * a step becomes zero. docs/reference/diagnoses.md#quantisation has the criteria. */
#include <math.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "model/graph/onnx.h"
#include "quantisation/study.h"

/* All chosen. More channels are tokens or places. Values of a channel that are looked at; one of so many
 * channels is worth telling; the share of a channel's float values that are not its least one: a Relu makes
 * some channels nearly always 0, and nobody misses the rest. */
enum { MAX_CHANNELS = 4096, FEWEST_VALUES = 8, ONE_OF = 8 };
static const double fewest_moving = 0.5;

/* Of a Concat the axis along which it puts parts together, else axis 1 of images and the last of others. */
static int channel_axis(const struct nd_study *study, size_t step)
{
    const struct nd_model *model = study->plan->model;
    const struct nd_shape *shape = &study->plan->shapes[step];
    const struct nd_model_node *node = nd_model_tensor_operator(model, study->plan->steps[step].tensor);
    int64_t axis = shape->rank > 3 ? 1 : shape->rank - 1;
    if (node != NULL && strcmp(node->op_type, "Concat") == 0)
        axis = nd_onnx_attribute_i(model->graph.nodes[node - model->nodes].proto, "axis", axis);
    axis += axis < 0 ? shape->rank : 0;
    return axis >= 0 && axis < shape->rank ? (int)axis : -1;
}

enum nd_status nd_flat_channels_init(struct nd_study *study, size_t step, struct nd_error *err)
{
    const struct nd_shape *shape = &study->plan->shapes[step];
    struct nd_flat_channels *flats = &study->flats[step];
    int axis = channel_axis(study, step);
    if (axis < 0 || shape->dims[axis] < 2 || shape->dims[axis] > MAX_CHANNELS)
        return ND_OK;
    flats->n = (size_t)shape->dims[axis];
    flats->n_inner = nd_dims_product(shape, axis + 1, shape->rank);
    flats->flat = nd_calloc(study->n_samples * flats->n, sizeof *flats->flat);
    return flats->flat != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_flat_channels_take(const struct nd_study *study, size_t step, size_t sample,
                           const struct nd_array *values, const struct nd_array *real)
{
    const struct nd_flat_channels *flats = &study->flats[step];
    size_t block = flats->n * flats->n_inner, n_outer = block > 0 ? values->n / block : 0;
    for (size_t c = 0; c < flats->n && n_outer > 0; c++) {
        struct nd_flat_channel *flat = &flats->flat[sample * flats->n + c];
        size_t first = c * flats->n_inner, n_moving = 0;
        double least = HUGE_VAL;
        flat->value = (float)real->x[first];
        for (int pass = 0; pass < 2; pass++)
            for (size_t k = 0; k < n_outer * flats->n_inner; k++) {
                size_t i = k / flats->n_inner * block + first + k % flats->n_inner;
                if (real->x[i] != real->x[first])
                    flat->value = NAN;
                least = pass == 0 ? fmin(least, values->x[i]) : least;
                n_moving += pass == 1 && values->x[i] != least;
            }
        flat->moving = (float)n_moving / (float)(n_outer * flats->n_inner);
    }
}

static bool is_constant(const struct nd_study *study, const struct nd_flat_channels *flats, size_t c)
{
    double moving = 0;
    for (size_t k = 0; k < study->n_samples; k++) {
        moving += (double)flats->flat[k * flats->n + c].moving;
        if (!(flats->flat[k * flats->n + c].value == flats->flat[c].value)) /* NaN is none */
            return false;
    }
    return moving >= fewest_moving * (double)study->n_samples;
}

enum nd_status nd_flat_channels_say(const struct nd_study *study, size_t step, struct nd_error *err)
{
    const struct nd_flat_channels *flats = &study->flats[step];
    const struct nd_tensor *tensor = nd_plan_tensor(study->plan, step);
    struct nd_quantised_layer *layer = &study->out->layers[step];
    size_t first = SIZE_MAX, last = 0, n = 0, n_elements = 0;
    bool are_zero = true;
    for (size_t c = 0; c < flats->n && tensor->quant.n == 1; c++)
        if (is_constant(study, flats, c)) {
            first = first == SIZE_MAX ? c : first;
            last = c;
            n++;
            are_zero = are_zero && flats->flat[c].value == 0;
        }
    bool is_enough = nd_shape_n_elems(&study->plan->shapes[step], &n_elements, NULL) == ND_OK &&
                     n_elements / (flats->n + !flats->n) * study->n_samples >= FEWEST_VALUES;
    if (n == 0 || !is_enough || (n * ONE_OF < flats->n && !study->plan->steps[step].is_model_output))
        return ND_OK;
    struct nd_strbuf text = {0};
    if (last == first)
        nd_strbuf_printf(&text, "channel %zu is", first);
    else if (last - first + 1 == n)
        nd_strbuf_printf(&text, "channels %zu to %zu are", first, last);
    else
        nd_strbuf_printf(&text, "%zu channels from channel %zu on are", n, first);
    nd_strbuf_printf(&text,
                     " below %s of its scale %.4g, so %s %s; %zu of %zu channels %s constant where the "
                     "float model's are not",
                     are_zero ? "half a step" : "a step", (double)tensor->quant.scale[0],
                     n == 1 ? "it becomes" : "all of them become",
                     are_zero ? "0"
                     : n == 1 ? "one value"
                              : "one value each",
                     n, flats->n, n == 1 ? "is" : "are");
    layer->n_constant_channels = n;
    layer->constant_text = nd_strbuf_take(&text);
    return layer->constant_text != NULL ? ND_OK : nd_fail_memory(err);
}
