/* Records that are not what their readers read. A runtime that makes a tensor visible writes a copy of it, and
 * the copy may be wrong where the layers behind read the right values. A reader whose values are what known
 * arithmetic makes of what the tensor should be proves that. */
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/verdict/health.h"

static const char made_inputs[] = "made-inputs";

enum nd_status nd_explain_acquit_reader(const struct nd_explain_job *job,
                                        const struct nd_explain_record *record, struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[record->device].layers[record->reader];
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text,
                     "it did not read what was recorded of '%s': from the values that '%s' should have, %s",
                     job->out->steps[record->step].name, job->out->steps[record->step].name,
                     record->is_exact ? "known arithmetic gives all of its values"
                                      : "its values are within what known arithmetic may be off by");
    if (!record->is_exact) {
        layer->judgement.certainty = ND_CERTAINTY_UNKNOWN;
        return nd_judge_evidence(layer, &text, err);
    }
    enum nd_status status = nd_judge_follows_as(layer, made_inputs, &text, err);
    layer->n_unexplained = 0;
    layer->explained_fraction = 1;
    layer->effect = layer->harmed_share = (double)NAN; /* its difference from the record did nothing */
    return status;
}

/* The first layer that follows by what was recorded of the tensor, and so has read that; SIZE_MAX: none. */
static size_t find_reader_of_record(const struct nd_explain_job *job, const struct nd_explain_record *record)
{
    size_t tensor = job->plan->steps[record->step].tensor;
    for (size_t s = record->step + 1; s < job->plan->n_steps; s++) {
        const struct nd_explained_layer *layer = &job->out->devices[record->device].layers[s];
        const struct nd_model_layer *model_layer = nd_plan_layer(job->plan, s);
        bool follows =
            layer->judgement.state == ND_LAYER_FOLLOWS && layer->judgement.why_follows != made_inputs;
        for (size_t i = 0; follows && model_layer != NULL && i < model_layer->n_inputs; i++)
            if (model_layer->inputs[i] == tensor)
                return s;
    }
    return SIZE_MAX;
}

static enum nd_status blame(const struct nd_explain_job *job, const struct nd_explain_record *record,
                            struct nd_error *err)
{
    struct nd_explained_layer *layer = &job->out->devices[record->device].layers[record->step];
    struct nd_strbuf text = {0}, evidence = {0};
    size_t other = find_reader_of_record(job, record);
    nd_strbuf_printf(&text, "its record is wrong: '%s' computed from the right values",
                     job->out->steps[record->reader].name);
    nd_strbuf_printf(&evidence,
                     "%zu of %zu recorded values are not what the inputs of this layer give; '%s' computed "
                     "from the values that they do give",
                     record->n_wrong, record->n, job->out->steps[record->reader].name);
    if (other != SIZE_MAX)
        nd_strbuf_printf(&evidence, "; '%s' read the recorded ones", job->out->steps[other].name);
    else
        nd_strbuf_puts(&evidence, "; the network itself may be right");
    if (other == SIZE_MAX) /* nothing read it */
        layer->effect = layer->harmed_share = (double)NAN;
    ND_FREED char *said = nd_strbuf_take(&text);
    const struct nd_explained_fault fault = {.kind = nd_fault_name(ND_FAULT_WRONG_RECORD),
                                             .text = said,
                                             .channel = SIZE_MAX,
                                             .amount = (double)record->n_wrong / (double)record->n,
                                             .explained = 1};
    enum nd_status status = said != NULL ? nd_judge_faulty(layer, ND_CERTAINTY_PROVEN, &fault, &evidence, err)
                                         : nd_fail_memory(err);
    nd_strbuf_deinit(&evidence);
    return status;
}

enum nd_status nd_explain_blame_record(const struct nd_explain_job *job, const struct nd_explain_record *record,
                                       struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[record->device];
    const struct nd_explained_layer *layer = &device->layers[record->step];
    const char *wrong_record = nd_fault_name(ND_FAULT_WRONG_RECORD);
    struct nd_strbuf text = {0};
    if (layer->judgement.state ==
        ND_LAYER_FOLLOWS) /* its layer diagnosis has found an arithmetic that gives the record */
        return ND_OK;
    for (size_t i = 0; i < device->n_findings; i++) /* one reader is enough */
        if (device->findings[i].step == record->step && device->findings[i].fault.kind == wrong_record)
            return ND_OK;
    nd_strbuf_printf(&text,
                     "the record of this tensor is not what '%s' read: %zu of %zu values are wrong, and that "
                     "layer computed from the right ones",
                     job->out->steps[record->reader].name, record->n_wrong, record->n);
    enum nd_status status =
        nd_explain_add_finding(device, record->step, wrong_record, (double)record->n_wrong / (double)record->n,
                               nd_strbuf_take(&text), err);
    /* A reader whose arithmetic is known, and many values: then nothing but the record can be wrong. */
    bool is_proof = record->is_exact && record->n_mended >= ND_EXPLAIN_FEWEST_GROSS &&
                    nd_explain_is_known(job, record->device, record->reader);
    bool has_name = layer->judgement.state == ND_LAYER_FAULTY && layer->judgement.fault.kind != NULL;
    return status == ND_OK && is_proof && !has_name ? blame(job, record, err) : status;
}
