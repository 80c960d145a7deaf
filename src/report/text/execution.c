/* Where layers were computed: evidence with its weight, both sides of it. */
#include <stdio.h>

#include "report/text/explain.h"
#include "report/text/tree.h"

enum { N_LISTED = 12 };

static void put_side(struct nd_strbuf *out, const struct nd_explained_execution *execution, bool is_for_npu,
                     size_t width)
{
    for (size_t i = 0; i < execution->n_evidence; i++) {
        const struct nd_execution_evidence *evidence = &execution->evidence[i];
        if (evidence->is_for_npu == is_for_npu)
            nd_explain_put_wrapped(out, width, 6, "%s the NPU, %.1f bits (%s): %s",
                                   is_for_npu ? "for" : "against", evidence->weight, evidence->kind,
                                   evidence->text);
    }
}

static void put_evidence(struct nd_strbuf *out, const struct nd_explained_execution *execution, size_t width)
{
    bool is_for_npu = execution->balance > 0;
    put_side(out, execution, is_for_npu, width);
    put_side(out, execution, !is_for_npu, width);
}

static const char *words_of(enum nd_execution verdict)
{
    return verdict == ND_EXECUTION_NPU       ? "by the NPU"
           : verdict == ND_EXECUTION_NOT_NPU ? "not by the NPU"
           : verdict == ND_EXECUTION_PARTLY  ? "partly by the NPU"
                                             : "not known where";
}

static void put_layer(struct nd_strbuf *out, const struct nd_explained_step *step,
                      const struct nd_explained_execution *execution, size_t width)
{
    nd_explain_put_wrapped(out, width, 4, "'%s' (%s): %s%s%s", step->name, step->op_types,
                           words_of(execution->verdict), execution->why_unknown != NULL ? ", " : "",
                           execution->why_unknown != NULL ? execution->why_unknown : "");
    put_evidence(out, execution, width);
}

/* A CPU's layer that was not computed by an NPU is where it should be. */
static bool is_odd(const struct nd_explained_execution *run, const struct nd_explained_execution *layer)
{
    enum nd_execution other = run->is_called_npu ? ND_EXECUTION_NOT_NPU : ND_EXECUTION_NPU;
    return layer->verdict == other || (layer->is_contradictory && layer->verdict == ND_EXECUTION_UNKNOWN);
}

static size_t count_odd(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++)
        n += is_odd(&device->execution, &device->layers[s].execution);
    return n;
}

/* Whether there is anything to say: of a CPU or an emulated device nobody asks. */
static bool is_worth_telling(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    const struct nd_explained_execution *run = &device->execution;
    bool is_plain =
        (run->verdict == ND_EXECUTION_NPU || run->verdict == ND_EXECUTION_UNKNOWN) && !run->is_contradictory;
    return run->is_called_npu && (count_odd(e, device) > 0 || !is_plain);
}

static bool is_whole(const struct nd_explained_execution *run)
{
    return run->is_called_npu && run->verdict == ND_EXECUTION_NOT_NPU;
}

static void put_line(struct nd_strbuf *out, const struct nd_explained_execution *run, size_t width)
{
    char unknown[48] = "";
    if (run->n_unknown > 0)
        snprintf(unknown, sizeof unknown, ", %zu not known", run->n_unknown);
    nd_explain_put_wrapped(out, width, 2, "computed %s: %zu of its layers by the NPU, %zu not%s",
                           is_whole(run) ? "by the CPU, the whole run" : words_of(run->verdict), run->n_npu,
                           run->n_not_npu, unknown);
}

void nd_explain_put_execution_line(struct nd_strbuf *out, const struct nd_explanation *e,
                                   const struct nd_explained_device *device, size_t width)
{
    if (is_worth_telling(e, device))
        put_line(out, &device->execution, width);
}

void nd_explain_put_execution(struct nd_strbuf *out, const struct nd_explanation *e,
                              const struct nd_explained_device *device, size_t width, bool with_layers)
{
    const struct nd_explained_execution *run = &device->execution;
    size_t n = 0;
    if (!is_worth_telling(e, device) && !(run->is_called_npu && with_layers))
        return;
    put_line(out, run, width);
    put_evidence(out, run, width);
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_execution *layer = &device->layers[s].execution;
        bool is_shown = with_layers ? layer->n_evidence > 0 : !is_whole(run) && is_odd(run, layer);
        if (is_shown && (n++ < N_LISTED || with_layers))
            put_layer(out, &e->steps[s], layer, width);
    }
    if (n > N_LISTED && !with_layers)
        nd_strbuf_printf(out, "    and %zu more\n", n - N_LISTED);
}
