/* npudiff.json: docs/reference/prepared-folder.md says what every key means. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "record/qnn/prepare_internal.h"

enum { MANIFEST_VERSION = 1 };

/* jansson refuses NULL values, so that a failed allocation anywhere ends as a failed member. */
struct json {
    bool has_failed;
};

static void put(struct json *json, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        json->has_failed = true;
}

static void append(struct json *json, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        json->has_failed = true;
}

/* JSON is UTF-8; what is not (names of files may be anything) has its strange bytes replaced. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *plain = nd_strdup(text);
    for (char *at = plain; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    value = plain != NULL ? json_string(plain) : NULL;
    free(plain);
    return value;
}

static json_t *count_of(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *describe_shape(struct json *json, const struct nd_shape *shape)
{
    json_t *array = json_array();
    for (int d = 0; d < shape->rank; d++)
        append(json, array, json_integer(shape->dims[d]));
    return array;
}

static void put_quant(struct json *json, json_t *object, const struct nd_quant *quant)
{
    json_t *scales = quant != NULL ? json_array() : json_null();
    json_t *zero_points = quant != NULL ? json_array() : json_null();
    for (size_t i = 0; quant != NULL && i < quant->n; i++) {
        append(json, scales, json_real((double)quant->scale[i]));
        append(json, zero_points, json_integer(quant->zero_point[i]));
    }
    put(json, object, "scale", scales);
    put(json, object, "zero_point", zero_points);
    put(json, object, "axis", quant != NULL && quant->n > 1 ? json_integer(quant->axis) : json_null());
}

static json_t *describe_tensors(struct json *json, const struct nd_prepared_tensor *tensors, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct nd_prepared_tensor *tensor = &tensors[i];
        json_t *object = json_object();
        put(json, object, "name", text_of(tensor->name));
        put(json, object, "onnx_name", text_of(tensor->onnx_name));
        put(json, object, "context_name", text_of(tensor->context_name));
        put(json, object, "dtype", json_string(nd_dtype_name(tensor->dtype)));
        put(json, object, "qnn_dtype", json_string(nd_qnn_type_name(tensor->qnn_type)));
        put(json, object, "shape", describe_shape(json, &tensor->shape));
        put(json, object, "layout", json_string("onnx"));
        put_quant(json, object, tensor->quant);
        put(json, object, "size_bytes", count_of(tensor->size_bytes));
        append(json, array, object);
    }
    return array;
}

static json_t *describe_runtime(struct json *json, const struct nd_prepare_work *work)
{
    const struct nd_device *device = work->device;
    json_t *object = json_object(), *options = json_object();
    put(json, object, "id", text_of(device->runtime.id));
    put(json, object, "onnxruntime", text_of(device->runtime.ort_version));
    put(json, object, "provider", text_of(device->runtime.provider_version));
    put(json, object, "sdk", text_of(work->context.build_id));
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], "backend_path") != 0) /* where it lies on this machine */
            put(json, options, device->option_keys[i], text_of(device->option_values[i]));
    put(json, object, "options", options);
    return object;
}

static json_t *describe_context(struct json *json, const struct nd_prepared_context *context)
{
    json_t *object = json_object();
    put(json, object, "binary", json_string(ND_PREPARED_BINARY));
    put(json, object, "onnx", json_string(ND_PREPARED_ONNX));
    put(json, object, "sha256", json_string(context->sha256));
    put(json, object, "size_bytes", count_of(context->size_bytes));
    put(json, object, "graph", text_of(context->graph));
    put(json, object, "backend", count_of(context->backend));
    put(json, object, "core_api", json_string(context->core_api));
    put(json, object, "backend_api", json_string(context->backend_api));
    return object;
}

static json_t *describe_probes(struct json *json, const struct nd_prepare_work *work)
{
    json_t *array = json_array();
    for (size_t p = 0; p < work->n_probes; p++) {
        const struct nd_probe *probe = work->probes[p];
        json_t *object = json_object(), *labels = probe->labels != NULL ? json_array() : json_null();
        put(json, object, "name", text_of(probe->name));
        put(json, object, "source", text_of(probe->source));
        put(json, object, "n_samples", count_of(probe->n_samples));
        for (size_t s = 0; probe->labels != NULL && s < probe->n_samples; s++)
            append(json, labels, json_integer(probe->labels[s]));
        put(json, object, "labels", labels);
        append(json, array, object);
    }
    return array;
}

static json_t *describe_result(struct json *json, const struct nd_prepare_work *work, size_t probe,
                               size_t sample, const struct nd_digest *digests)
{
    json_t *object = json_object(), *inputs = json_array();
    put(json, object, "probe", count_of(probe));
    put(json, object, "sample", count_of(sample));
    for (size_t i = 0; i < work->n_inputs; i++) {
        char digest[33];
        char *path = nd_prepare_input_path(work, probe, sample, i);
        json_t *input = json_object();
        snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, digests[i].high, digests[i].low);
        put(json, input, "file", path != NULL ? json_string(path) : NULL);
        put(json, input, "xxh3", json_string(digest));
        append(json, inputs, input);
        free(path);
    }
    put(json, object, "inputs", inputs);
    return object;
}

static json_t *describe_results(struct json *json, const struct nd_prepare_work *work)
{
    json_t *array = json_array();
    size_t at = 0;
    for (size_t p = 0; p < work->n_probes; p++)
        for (size_t s = 0; s < work->probes[p]->n_samples; s++) {
            append(json, array, describe_result(json, work, p, s, &work->digests[at]));
            at += work->n_inputs;
        }
    return array;
}

static json_t *describe(struct json *json, const struct nd_prepare_work *work)
{
    const struct nd_chipset *chipset = work->device->chipset;
    const char *edges = work->options->edges;
    json_t *root = json_object(), *model = json_object(), *chip = json_object(), *fed = json_array();
    put(json, root, ND_PREPARED_KEY, json_integer(MANIFEST_VERSION));
    put(json, root, "npudiff", json_string(nd_version()));
    put(json, model, "file", text_of(nd_path_base(nd_model_path(work->model))));
    put(json, model, "sha256", json_string(nd_model_sha256(work->model)));
    put(json, model, "edges", text_of(edges != NULL ? edges : "all"));
    put(json, root, "model", model);
    put(json, chip, "sm", json_string(chipset->sm));
    put(json, chip, "soc_model", json_integer(chipset->soc_model));
    put(json, chip, "arch", json_string(chipset->arch));
    put(json, root, "chipset", chip);
    put(json, root, "runtime", describe_runtime(json, work));
    put(json, root, "context", describe_context(json, &work->context));
    put(json, root, "inputs", describe_tensors(json, work->inputs, work->n_inputs));
    put(json, root, "outputs", describe_tensors(json, work->outputs, work->n_outputs));
    for (size_t i = 0; i < work->n_fed; i++) {
        json_t *object = json_object();
        put(json, object, "edge", text_of(nd_model_edge(work->model, work->fed[i].edge)->name));
        put(json, object, "input", count_of(work->fed[i].input));
        append(json, fed, object);
    }
    put(json, root, "fed", fed);
    put(json, root, "probes", describe_probes(json, work));
    put(json, root, "results", describe_results(json, work));
    return root;
}

enum nd_status nd_prepare_manifest(const struct nd_prepare_work *work, struct nd_error *err)
{
    struct json json = {0};
    json_t *root = describe(&json, work);
    char *text = json.has_failed ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    enum nd_status status =
        text != NULL ? nd_prepare_put(work, "npudiff.json", text, strlen(text), err) : nd_fail_memory(err);
    free(text);
    json_decref(root);
    return status;
}
