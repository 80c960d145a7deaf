/* The certificate of an aligned model. docs/reference/certificate.md. */
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/files/new_file.h"
#include "core/memory.h"
#include "core/statistics/evidence.h"
#include "improve/align/certificate/certificate.h"
#include "improve/align/outputs_json.h"

/* Of the intervals of right answers. Chosen, as everywhere in npudiff. */
static const double confidence = 0.95;

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *file_json(const struct nd_model *model)
{
    if (model == NULL)
        return json_null();
    return json_pack("{s:o, s:s}", "name", nd_json_string(nd_path_base(nd_model_path(model))), "sha256",
                     nd_model_sha256(model));
}

static json_t *files_json(const struct nd_align_job *job, const struct nd_model *written)
{
    return json_pack("{s:o, s:o, s:o}", "aligned", file_json(written), "model", file_json(job->original),
                     "float", file_json(job->options->float_model));
}

static json_t *inputs_json(const struct nd_model *model)
{
    json_t *inputs = json_array();
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        json_t *shape = json_array();
        for (int d = 0; d < input->shape.rank; d++)
            nd_tree_append(shape, json_integer(input->shape.dims[d]));
        nd_tree_append(inputs, json_pack("{s:o, s:o}", "name", nd_json_string(input->name), "shape", shape));
    }
    return inputs;
}

static enum nd_status arithmetics_json(const struct nd_align_job *job, json_t *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->n_arithmetics && status == ND_OK; i++) {
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        status = nd_align_behaviour(job->aligned, job->arithmetics[i], digits, err);
        if (status == ND_OK)
            nd_tree_append(out,
                           json_pack("{s:s, s:s}", "name", job->arithmetics[i]->name, "behaviour", digits));
    }
    return status;
}

static json_t *layers_json(const struct nd_alignment *result)
{
    json_t *layers = json_array();
    for (size_t i = 0; i < result->n_layers; i++) {
        const struct nd_alignment_layer *layer = &result->layers[i];
        bool is_covered = layer->n_channels > 0;
        nd_tree_append(layers,
                       json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "tensor", nd_json_string(layer->name),
                                 "operators", nd_json_string(layer->op_types), "state",
                                 nd_align_state_name(layer->state), "reason",
                                 layer->reason != NULL ? nd_json_string(layer->reason) : json_null(),
                                 "channels", is_covered ? count(layer->n_channels) : json_null(), "sums",
                                 is_covered ? json_real(layer->n_sums) : json_null(), "groups",
                                 layer->n_groups > 0 ? count(layer->n_groups) : json_null()));
    }
    return layers;
}

static json_t *counts_json(const struct nd_alignment *result)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "layers", count(result->n_layers), "proven",
                     count(result->n_proven), "tested", count(result->n_tested), "unknown",
                     count(result->n_unknown), "differ", count(result->n_differ), "float_tensors",
                     count(result->n_floats));
}

static json_t *right_json(size_t n_right, size_t n)
{
    struct nd_interval interval = nd_clopper_pearson(n_right, n, confidence);
    return json_pack("{s:o, s:[f, f]}", "right", count(n_right), "interval", interval.low, interval.high);
}

static json_t *answers_json(const struct nd_alignment *result)
{
    if (result->n_labelled == 0)
        return json_null();
    return json_pack("{s:o, s:f, s:o, s:o, s:o}", "labelled", count(result->n_labelled), "confidence",
                     confidence, "before", right_json(result->n_right_before, result->n_labelled), "after",
                     right_json(result->n_right_after, result->n_labelled), "classes_changed",
                     count(result->n_changed));
}

static json_t *accuracy_cost_json(const struct nd_alignment *result)
{
    if (result->n_outputs == 0)
        return json_null();
    return json_pack("{s:s, s:o, s:o, s:o}", "reference", result->float_model != NULL ? "float" : "quantised",
                     "samples", count(result->n_samples), "outputs", nd_alignment_outputs_json(result),
                     "answers", answers_json(result));
}

static enum nd_status probes_json(const struct nd_align_job *job, json_t *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->options->n_probes && status == ND_OK; i++) {
        const struct nd_probe *probe = job->options->probes[i];
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        status = nd_certificate_probe_digest(probe, digits, err);
        if (status == ND_OK)
            nd_tree_append(out, json_pack("{s:o, s:o, s:o, s:s}", "name", nd_json_string(probe->name), "source",
                                          nd_json_string(probe->source), "samples", count(probe->n_samples),
                                          "digest", digits));
    }
    return status;
}

static json_t *verification_json(const struct nd_alignment *result)
{
    if (result->n_devices == 0)
        return json_null();
    json_t *devices = json_array();
    for (size_t i = 0; i < result->n_devices; i++)
        nd_tree_append(devices, json_pack("{s:o, s:o}", "device", nd_json_string(result->devices[i]),
                                          "environment", nd_json_string(result->environments[i])));
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "devices", devices, "groups", nd_json_string(result->groups),
                     "tensors", count(result->n_tensors), "tensors_equal", count(result->n_tensors_equal),
                     "samples", count(result->n_device_samples));
}

static enum nd_status make(const struct nd_align_job *job, const struct nd_model *written, json_t **out,
                           struct nd_error *err)
{
    static const char *const results[] = {"aligned", "differs", "inconclusive"};
    const struct nd_alignment *result = job->result;
    json_t *arithmetics = json_array(), *probes = json_array();
    enum nd_status status = arithmetics_json(job, arithmetics, err);
    if (status == ND_OK)
        status = probes_json(job, probes, err);
    json_t *root = nd_json_document(
        ND_DOCUMENT_CERTIFICATE,
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result", results[result->end], "files",
                  files_json(job, written), "inputs", inputs_json(job->aligned), "arithmetics", arithmetics,
                  "counts", counts_json(result), "layers", layers_json(result), "probes", probes,
                  "accuracy_cost", accuracy_cost_json(result), "verification", verification_json(result)));
    if (status == ND_OK && root == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_json_stamp(root, err);
    if (status == ND_OK)
        *out = root;
    else
        json_decref(root);
    return status;
}

enum nd_status nd_align_certify(const struct nd_align_job *job, struct nd_error *err)
{
    struct nd_model *written = NULL;
    json_t *root = NULL;
    const char *path = job->options->certificate;
    enum nd_status status = nd_model_load(job->result->output, &written, err);
    if (status == ND_OK)
        status = make(job, written, &root, err);
    char *text = status == ND_OK ? nd_json_dump(root, 1) : NULL;
    if (status == ND_OK)
        status = text != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
    if (status == ND_OK)
        job->result->certificate = nd_strdup(path);
    if (status == ND_OK && job->result->certificate == NULL)
        status = nd_fail_memory(err);
    free(text);
    json_decref(root);
    nd_model_destroy(&written);
    return status;
}
