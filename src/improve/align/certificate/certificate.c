/* Certificates as files, the digests in them, and the certificate of an aligned model.
 * docs/reference/certificate.md. */
#include "improve/align/certificate/certificate.h"

#include <stdio.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"
#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/evidence.h"
#include "core/tensors/digest_internal.h"
#include "core/tensors/scales.h"
#include "explain/plan/replay.h"
#include "improve/align/certificate/outputs_json.h"

/* ---- digests ---- */

static void nd_certificate_print_digest(struct nd_digest digest,
                                        char digits[static ND_CERTIFICATE_DIGEST_BYTES])
{
    snprintf(digits, ND_CERTIFICATE_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

enum nd_status nd_certificate_probe_digest(const struct nd_probe *probe,
                                           char digits[static ND_CERTIFICATE_DIGEST_BYTES],
                                           struct nd_error *err)
{
    ND_CLEANUP(nd_digest_stream_destroy) struct nd_digest_stream *stream = nd_digest_stream_create();
    ND_TRY_MEMORY(stream != NULL, err);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        nd_digest_stream_add(stream, input->name, strlen(input->name) + 1);
        nd_digest_stream_add(stream, input->data, probe->n_samples * input->sample_bytes);
    }
    if (probe->labels != NULL)
        nd_digest_stream_add(stream, probe->labels, probe->n_samples * sizeof *probe->labels);
    nd_certificate_print_digest(nd_digest_stream_value(stream), digits);
    return ND_OK;
}

/* ---- files ---- */

static enum nd_status take_root(struct nd_certificate *certificate, const char *data, size_t n_bytes,
                                struct nd_error *err)
{
    json_error_t where;
    const char *path = certificate->path;
    certificate->root = json_loadb(data, n_bytes, JSON_REJECT_DUPLICATES, &where);
    if (certificate->root == NULL)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path, "'%s' is no certificate: line %d, %s", path,
                       where.line, where.text);
    const char *kind = json_string_value(json_object_get(certificate->root, "kind"));
    if (kind == NULL || strcmp(kind, nd_document_word(ND_DOCUMENT_CERTIFICATE)) != 0)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path, "'%s' is no certificate: its kind is '%s'", path,
                       kind != NULL ? kind : "");
    const json_t *format = json_object_get(certificate->root, "format");
    if (!json_is_integer(format) || json_integer_value(format) != ND_JSON_FORMAT)
        return nd_fail(err, ND_E_CERTIFICATE_FORMAT, path,
                       "'%s' is a certificate of another format than %d, which this version reads", path,
                       ND_JSON_FORMAT);
    return ND_OK;
}

enum nd_status nd_certificate_read(const char *path, struct nd_certificate **out, struct nd_error *err)
{
    enum { MAX_BYTES = 256 << 20 };
    ND_CLEANUP(nd_certificate_destroy) struct nd_certificate *certificate = nd_calloc(1, sizeof *certificate);
    ND_FREED void *data = NULL;
    size_t n_bytes = 0;
    ND_TRY_MEMORY(certificate != NULL, err);
    certificate->path = nd_strdup(path);
    ND_TRY_MEMORY(certificate->path != NULL, err);
    ND_TRY(nd_file_read(path, MAX_BYTES, &data, &n_bytes, err));
    ND_TRY(take_root(certificate, data, n_bytes, err));
    return ND_GIVE(out, certificate);
}

void nd_certificate_destroy(struct nd_certificate **certificate)
{
    if (*certificate == NULL)
        return;
    json_decref((*certificate)->root);
    ND_FREE_ALL((*certificate)->path, *certificate);
    *certificate = NULL;
}

/* Of an open dimension of an input. */
static enum nd_status nd_align_set_dim(struct nd_model *model, size_t input, int axis, int64_t n,
                                       struct nd_error *err)
{
    const struct nd_model_io *open = nd_model_input(model, input);
    struct nd_strbuf text = {0};
    if (open->dim_params[axis] != NULL)
        nd_strbuf_puts(&text, open->dim_params[axis]);
    else
        nd_strbuf_printf(&text, "%s:%d", open->name, axis);
    ND_FREED char *name = nd_strbuf_take(&text);
    return name != NULL ? nd_model_set_dim(model, name, n, err) : nd_fail_memory(err);
}

/* The dimensions of the input of that name; NULL: the certificate has none. */
static const json_t *shape_of(const struct nd_certificate *certificate, const char *name)
{
    const json_t *inputs = json_object_get(certificate->root, "inputs"), *input;
    size_t i;
    json_array_foreach(inputs, i, input) {
        const char *other = json_string_value(json_object_get(input, "name"));
        if (other != NULL && strcmp(other, name) == 0)
            return json_object_get(input, "shape");
    }
    return NULL;
}

enum nd_status nd_certificate_set_dims(const struct nd_certificate *certificate, struct nd_model *model,
                                       struct nd_error *err)
{
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        const json_t *shape = shape_of(certificate, input->name);
        for (int d = 0; d < input->shape.rank; d++) {
            json_int_t n = json_integer_value(json_array_get(shape, (size_t)d));
            if (input->shape.dims[d] < 0 && n > 0)
                ND_TRY(nd_align_set_dim(model, i, d, n, err));
        }
    }
    return ND_OK;
}

/* ---- a digest of what an arithmetic makes of a model ---- */

struct witness {
    const struct nd_model *model;
    const struct nd_layer_arithmetic *arithmetic;
    struct nd_digest_stream *stream;
};

/* A nd_exact_make. */
static enum nd_status hear(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    const struct witness *w = context;
    enum nd_status status = nd_layer_arithmetic_run(w->arithmetic, layer, NULL, qvalues, is_made, err);
    if (status != ND_OK || !*is_made)
        return status;
    const char *name = nd_model_tensor(w->model, layer->tensor)->name;
    nd_digest_stream_add(w->stream, name, strlen(name) + 1);
    for (size_t i = 0; i < qvalues->n; i++) {
        int32_t qvalue = (int32_t)qvalues->x[i]; /* two's complement, little endian */
        unsigned char bytes[4];
        for (int b = 0; b < 4; b++)
            bytes[b] = (unsigned char)((uint32_t)qvalue >> (8 * b));
        nd_digest_stream_add(w->stream, bytes, sizeof bytes);
    }
    return ND_OK;
}

/* Quantised values over the whole range of the type, drawn with the name as the seed. */
static enum nd_status draw(const struct nd_tensor *tensor, struct nd_array *qvalues, struct nd_error *err)
{
    *qvalues = nd_no_array();
    if (tensor->quant.n == 0 || tensor->shape.rank < 0 || !nd_dtype_is_of_qvalues(tensor->dtype))
        return ND_OK;
    double low, high;
    nd_qvalue_range(tensor->dtype, &low, &high);
    enum nd_status status = nd_array_make(qvalues, tensor->dtype, &tensor->shape, err);
    uint64_t state = nd_digest_bytes(tensor->name, strlen(tensor->name)).low;
    for (size_t i = 0; status == ND_OK && i < qvalues->n; i++)
        qvalues->x[i] = low + (double)nd_splitmix_below(&state, (size_t)(high - low) + 1);
    return status;
}

static enum nd_status run(const struct witness *w, struct nd_array *given, struct nd_error *err)
{
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *graph = NULL;
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = hear, .given = given, .missed = nd_exact_let_go};
    ND_TRY(nd_inputs_create(w->model, &inputs, err));
    for (size_t e = 0; e < nd_model_n_tensors(w->model); e++)
        ND_TRY(draw(nd_model_tensor(w->model, e), &given[e], err));
    ND_TRY(nd_exact_graph_create(w->model, &graph, err));
    return nd_exact_graph_run(graph, inputs, &options, NULL, (void *)(uintptr_t)w, err);
}

enum nd_status nd_align_behaviour(const struct nd_model *model, const struct nd_layer_arithmetic *arithmetic,
                                  char digits[static ND_CERTIFICATE_DIGEST_BYTES], struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    ND_FREED struct nd_array *given = nd_calloc(n_tensors, sizeof *given);
    struct witness w = {.model = model, .arithmetic = arithmetic, .stream = nd_digest_stream_create()};
    enum nd_status status = given != NULL && w.stream != NULL ? run(&w, given, err) : nd_fail_memory(err);
    if (status == ND_OK)
        nd_certificate_print_digest(nd_digest_stream_value(w.stream), digits);
    nd_digest_stream_destroy(&w.stream);
    for (size_t e = 0; given != NULL && e < n_tensors; e++)
        nd_array_deinit(&given[e]);
    return status;
}

/* ---- the outputs ---- */

json_t *nd_alignment_outputs_json(const struct nd_alignment *alignment)
{
    json_t *outputs = json_array();
    for (size_t i = 0; i < alignment->n_outputs; i++) {
        const struct nd_alignment_output *output = &alignment->outputs[i];
        nd_tree_append(outputs, json_pack("{s:o, s:o, s:o, s:o}", "tensor", nd_json_string(output->name),
                                          "sqnr_before_db", nd_json_known(output->sqnr_before_db),
                                          "sqnr_after_db", nd_json_known(output->sqnr_after_db), "loss_db",
                                          nd_json_known(output->loss_db)));
    }
    return outputs;
}

/* ---- the certificate of an aligned model ---- */

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
    for (size_t i = 0; i < job->n_arithmetics; i++) {
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        ND_TRY(nd_align_behaviour(job->aligned, job->arithmetics[i], digits, err));
        nd_tree_append(out, json_pack("{s:s, s:s}", "name", job->arithmetics[i]->name, "behaviour", digits));
    }
    return ND_OK;
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
    for (size_t i = 0; i < job->options->n_probes; i++) {
        const struct nd_probe *probe = job->options->probes[i];
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        ND_TRY(nd_certificate_probe_digest(probe, digits, err));
        nd_tree_append(out, json_pack("{s:o, s:o, s:o, s:s}", "name", nd_json_string(probe->name), "source",
                                      nd_json_string(probe->source), "samples", count(probe->n_samples),
                                      "digest", digits));
    }
    return ND_OK;
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
    ND_TRY(arithmetics_json(job, arithmetics, err));
    ND_TRY(probes_json(job, probes, err));
    json_auto_t *root = nd_json_document(
        ND_DOCUMENT_CERTIFICATE,
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result", results[result->end], "files",
                  json_pack("{s:o, s:o, s:o}", "aligned", file_json(written), "model", file_json(job->original),
                            "float", file_json(job->options->float_model)),
                  "inputs", inputs_json(job->aligned), "arithmetics", arithmetics, "counts",
                  json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "layers", count(result->n_layers), "proven",
                            count(result->n_proven), "tested", count(result->n_tested), "unknown",
                            count(result->n_unknown), "differ", count(result->n_differ), "float_tensors",
                            count(result->n_floats)),
                  "layers", layers_json(result), "probes", probes, "accuracy_cost", accuracy_cost_json(result),
                  "verification", verification_json(result)));
    ND_TRY_MEMORY(root != NULL, err);
    ND_TRY(nd_json_stamp(root, err));
    return ND_GIVE(out, root);
}

enum nd_status nd_align_certify(const struct nd_align_job *job, struct nd_error *err)
{
    ND_CLEANUP(nd_model_destroy) struct nd_model *written = NULL;
    json_auto_t *root = NULL;
    const char *path = job->options->certificate;
    ND_TRY(nd_model_load(job->result->output, &written, err));
    ND_TRY(make(job, written, &root, err));
    ND_FREED char *text = nd_json_dump(root, 1);
    ND_TRY(text != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err));
    job->result->certificate = nd_strdup(path);
    ND_TRY_MEMORY(job->result->certificate != NULL, err);
    return ND_OK;
}
