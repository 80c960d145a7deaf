/* A certificate checked from nothing: digests, the arithmetics' behaviour, each layer's proof, and as the
 * options say the devices and the accuracy cost. */
#include <math.h>
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "improve/align/certificate/certificate.h"

/* What the files have in common that check a certificate. */

struct nd_certificate_checker {
    const struct nd_certificate *certificate;
    const struct nd_model *model;
    const struct nd_certificate_options *options;
    struct nd_certificate_check *check;
    struct nd_align_options align_options;
    struct nd_align_job job;
    size_t refusals_capacity;
};

/* The accuracy cost of a certificate, measured again with the models and inputs that it names; and how refusals
 * are noted. */

/* Of a level in decibels measured again: log10 of another C library may differ in its last bit. Chosen. */
static const double slack_db = 1e-9;

/* A text member, "" where there is none; and a member of the certificate. Borrowed. */
static const char *nd_certificate_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static const json_t *nd_certificate_member(const struct nd_certificate_checker *c, const char *key)
{
    return json_object_get(c->certificate->root, key);
}

/* Adds a refusal. ND_ERR_MEMORY. */
static enum nd_status nd_certificate_refuse(struct nd_certificate_checker *c, struct nd_error *err,
                                            const char *what, const char *fmt, ...)
{
    struct nd_certificate_check *check = c->check;
    char text[1024];
    ND_TRY_MEMORY(nd_grow((void **)&check->refusals, &c->refusals_capacity, check->n_refusals + 1,
                          sizeof *check->refusals),
                  err);
    ND_PRINT_ARGUMENTS(text, fmt);
    struct nd_certificate_refusal *refusal = &check->refusals[check->n_refusals++];
    *refusal = (struct nd_certificate_refusal){what, nd_strdup(text)};
    return refusal->text != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the accuracy cost ---- */

static enum nd_status check_accuracy_cost_file(const struct nd_certificate_checker *c, const char *key,
                                               const struct nd_model *model, struct nd_error *err)
{
    const json_t *file = json_object_get(nd_certificate_member(c, "files"), key);
    if (!json_is_object(file) || model == NULL) {
        if (!json_is_object(file) && model == NULL)
            return ND_OK;
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       model == NULL
                           ? "the accuracy cost was measured against a float model, '%s': give it, too"
                           : "the accuracy cost was measured without a float model%s",
                       model == NULL ? nd_certificate_text(file, "name") : "");
    }
    if (strcmp(nd_certificate_text(file, "sha256"), nd_model_sha256(model)) != 0)
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, nd_model_path(model),
                       "'%s' is a different file than '%s', with which the accuracy cost was measured",
                       nd_model_path(model), nd_certificate_text(file, "name"));
    return ND_OK;
}

static enum nd_status check_accuracy_cost_probes(const struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *probes = nd_certificate_member(c, "probes");
    size_t n = json_array_size(probes);
    if (n != c->options->n_probes)
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       "the accuracy cost was measured with %zu probes, and %zu are given; the first was '%s'",
                       n, c->options->n_probes, nd_certificate_text(json_array_get(probes, 0), "source"));
    for (size_t i = 0; i < n; i++) {
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        const json_t *probe = json_array_get(probes, i);
        ND_TRY(nd_certificate_probe_digest(c->options->probes[i], digits, err));
        if (strcmp(digits, nd_certificate_text(probe, "digest")) != 0)
            return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->options->probes[i]->source,
                           "'%s' has other values than '%s', with which the accuracy cost was measured",
                           c->options->probes[i]->source, nd_certificate_text(probe, "source"));
    }
    return ND_OK;
}

static bool is_level(const json_t *value, double level)
{
    if (json_is_string(value)) /* infinite */
        return isinf(level) && (level > 0) == (*json_string_value(value) != '-');
    if (!json_is_number(value))
        return isnan(level);
    double stated = json_number_value(value);
    return fabs(stated - level) <= slack_db * fmax(1, fabs(stated));
}

static bool is_accuracy_cost(const struct nd_alignment *result, const json_t *cost)
{
    const json_t *outputs = json_object_get(cost, "outputs"), *answers = json_object_get(cost, "answers"),
                 *before = json_object_get(answers, "before"), *after = json_object_get(answers, "after");
    bool is_same = json_array_size(outputs) == result->n_outputs;
    for (size_t i = 0; i < result->n_outputs && is_same; i++) {
        const json_t *output = json_array_get(outputs, i);
        is_same = is_level(json_object_get(output, "sqnr_before_db"), result->outputs[i].sqnr_before_db) &&
                  is_level(json_object_get(output, "sqnr_after_db"), result->outputs[i].sqnr_after_db);
    }
    return is_same && (size_t)json_integer_value(json_object_get(answers, "labelled")) == result->n_labelled &&
           (size_t)json_integer_value(json_object_get(before, "right")) == result->n_right_before &&
           (size_t)json_integer_value(json_object_get(after, "right")) == result->n_right_after;
}

/* certificate_check.c: the accuracy cost, measured again. */
static enum nd_status nd_certificate_check_accuracy_cost(struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *cost = nd_certificate_member(c, "accuracy_cost");
    if (!json_is_object(cost))
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       "the certificate states no accuracy cost that could be measured again");
    ND_TRY(check_accuracy_cost_file(c, "model", c->options->model, err));
    ND_TRY(check_accuracy_cost_file(c, "float", c->options->float_model, err));
    ND_TRY(check_accuracy_cost_probes(c, err));
    c->job.original = c->job.model = c->options->model;
    c->align_options.n_samples = (size_t)json_integer_value(json_object_get(cost, "samples"));
    ND_TRY(nd_align_accuracy_cost(&c->job, NULL, err));
    c->check->is_accuracy_cost_checked = true;
    if (!is_accuracy_cost(c->job.result, cost))
        ND_TRY(nd_certificate_refuse(c, err, "accuracy_cost",
                                     "the accuracy cost is another one: '%s' has %.2f dB now",
                                     c->job.result->outputs[0].name, c->job.result->outputs[0].sqnr_after_db));
    return ND_OK;
}

const char *nd_certificate_end_name(enum nd_certificate_end end)
{
    static const char *const names[] = {"holds", "open", "differs", "refused"};
    return names[end];
}

void nd_certificate_options_init_sized(struct nd_certificate_options *options, size_t struct_size)
{
    const struct nd_certificate_options own = {0};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_certificate_check_destroy(struct nd_certificate_check **check)
{
    struct nd_certificate_check *old = *check;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_refusals; i++)
        free(old->refusals[i].text);
    ND_FREE_ITEMS(old->arithmetics, old->n_arithmetics);
    ND_FREE_ALL(old->refusals, old->certificate, old->model, old->version, old->groups, old);
    *check = NULL;
}

/* ---- digests ---- */

static enum nd_status check_content(struct nd_certificate_checker *c, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    const char *stated = nd_certificate_text(c->certificate->root, "digest");
    enum nd_status status = nd_json_digest(c->certificate->root, hex, err);
    if (status == ND_OK && strcmp(stated, hex) != 0)
        status = nd_certificate_refuse(c, err, "content",
                                       "the certificate was changed after it was written: the digest of its "
                                       "content is %s, and it states '%s'",
                                       hex, stated);
    return status;
}

/* What a member may be; a certificate of this format has all of them. */
static const struct {
    const char *name;
    json_type type;
    bool may_be_null;
} members[] = {
    {"npudiff", JSON_STRING, false},     {"result", JSON_STRING, false}, {"files", JSON_OBJECT, false},
    {"inputs", JSON_ARRAY, false},       {"counts", JSON_OBJECT, false}, {"arithmetics", JSON_ARRAY, false},
    {"layers", JSON_ARRAY, false},       {"probes", JSON_ARRAY, false},  {"accuracy_cost", JSON_OBJECT, true},
    {"verification", JSON_OBJECT, true},
};

static enum nd_status check_members(struct nd_certificate_checker *c, struct nd_error *err)
{
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const json_t *value = json_object_get(c->certificate->root, members[i].name);
        if (value == NULL ||
            (json_typeof(value) != members[i].type && !(members[i].may_be_null && json_is_null(value))))
            return nd_certificate_refuse(
                c, err, "content", "the certificate's '%s' is missing, or of a wrong type", members[i].name);
    }
    return ND_OK;
}

static enum nd_status check_file(struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *aligned = json_object_get(nd_certificate_member(c, "files"), "aligned");
    const char *stated = nd_certificate_text(aligned, "sha256"), *found = nd_model_sha256(c->model);
    if (strcmp(stated, found) == 0)
        return ND_OK;
    return nd_certificate_refuse(
        c, err, "file",
        "'%s' is a different file: its SHA-256 is %s, and the certificate is about '%s' with %s",
        nd_path_base(nd_model_path(c->model)), found, nd_certificate_text(aligned, "name"), stated);
}

static enum nd_status check_shapes(struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *inputs = nd_certificate_member(c, "inputs");
    bool is_same = json_array_size(inputs) == nd_model_n_inputs(c->model);
    for (size_t i = 0; i < nd_model_n_inputs(c->model) && is_same; i++) {
        const struct nd_model_io *input = nd_model_input(c->model, i);
        const json_t *stated = json_array_get(inputs, i), *shape = json_object_get(stated, "shape");
        is_same = strcmp(nd_certificate_text(stated, "name"), input->name) == 0 &&
                  json_array_size(shape) == (size_t)input->shape.rank;
        for (int d = 0; d < input->shape.rank && is_same; d++)
            is_same = json_integer_value(json_array_get(shape, (size_t)d)) == input->shape.dims[d];
    }
    return is_same ? ND_OK
                   : nd_certificate_refuse(
                         c, err, "file",
                         "the model's inputs have other names or dimensions than in the certificate");
}

static enum nd_status check_behaviour(struct nd_certificate_checker *c, const json_t *stated,
                                      const struct nd_layer_arithmetic *arithmetic, struct nd_error *err)
{
    char digits[ND_CERTIFICATE_DIGEST_BYTES];
    enum nd_status status = nd_align_behaviour(c->model, arithmetic, digits, err);
    if (status == ND_OK && strcmp(nd_certificate_text(stated, "behaviour"), digits) != 0)
        status = nd_certificate_refuse(c, err, "arithmetic",
                                       "%s of this npudiff (%s) gives other values for this model than %s of "
                                       "npudiff %s, which wrote the certificate: align the model again",
                                       arithmetic->name, nd_version(), arithmetic->name, c->check->version);
    return status;
}

/* Names that this version knows, and that behave as they did. */
static enum nd_status check_arithmetics(struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *stated = nd_certificate_member(c, "arithmetics"), *item;
    const char *names[ND_ALIGN_MAX_ARITHMETICS];
    size_t i, n = json_array_size(stated);
    if (n < 2 || n > ND_ALIGN_MAX_ARITHMETICS)
        return nd_certificate_refuse(c, err, "arithmetic",
                                     "the certificate names %zu arithmetics; 2 to %d can agree", n,
                                     ND_ALIGN_MAX_ARITHMETICS);
    json_array_foreach(stated, i, item) {
        names[i] = nd_certificate_text(item, "name");
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0)
                return nd_certificate_refuse(c, err, "arithmetic", "the certificate names '%s' twice",
                                             names[i]);
        if (nd_layer_arithmetic_from_name(names[i]) == NULL)
            return nd_certificate_refuse(c, err, "arithmetic",
                                         "this npudiff (%s) does not know the arithmetic '%s'", nd_version(),
                                         names[i]);
    }
    enum nd_status status = nd_align_find_arithmetics(&c->job, names, n, err);
    for (i = 0; i < c->job.n_arithmetics && status == ND_OK; i++)
        status = check_behaviour(c, json_array_get(stated, i), c->job.arithmetics[i], err);
    return status;
}

/* ---- layers ---- */

/* Whether the certificate states what the new proof covers: null where it covers no sums of products. */
static bool has_sums(const json_t *stated, const struct nd_alignment_layer *layer)
{
    const json_t *sums = json_object_get(stated, "sums"), *channels = json_object_get(stated, "channels");
    if (layer->n_channels == 0)
        return json_is_null(sums) && json_is_null(channels);
    return json_number_value(sums) == layer->n_sums &&
           (size_t)json_integer_value(channels) == layer->n_channels;
}

/* What the certificate and the new proof say of one layer. */
static enum nd_status check_layer(struct nd_certificate_checker *c, const json_t *stated,
                                  const struct nd_alignment_layer *layer, struct nd_error *err)
{
    struct nd_certificate_check *check = c->check;
    const char *state = nd_certificate_text(stated, "state");
    if (strcmp(nd_certificate_text(stated, "tensor"), layer->name) != 0 ||
        strcmp(nd_certificate_text(stated, "operators"), layer->op_types) != 0)
        return nd_certificate_refuse(c, err, "layers",
                                     "the certificate has '%s' (%s) where the model has '%s' (%s)",
                                     nd_certificate_text(stated, "tensor"),
                                     nd_certificate_text(stated, "operators"), layer->name, layer->op_types);
    if (strcmp(state, "proven") == 0) {
        check->n_proven++;
        if (layer->state != ND_ALIGN_PROVEN)
            return nd_certificate_refuse(c, err, "proof", "'%s' is called proven, and is not: %s", layer->name,
                                         layer->reason);
        if (!has_sums(stated, layer))
            return nd_certificate_refuse(
                c, err, "proof",
                "the proof of '%s' covers %.0f sums of %zu channels, other numbers than the certificate states",
                layer->name, layer->n_sums, layer->n_channels);
        check->n_proven_again++;
        check->n_sums += layer->n_sums;
        return ND_OK;
    }
    if (strcmp(state, "differs") == 0) {
        check->n_differ++;
        return ND_OK;
    }
    if (strcmp(state, "tested") != 0 && strcmp(state, "unknown") != 0)
        return nd_certificate_refuse(c, err, "layers", "'%s' has the state '%s', which is none", layer->name,
                                     state);
    bool is_tested = strcmp(state, "tested") == 0;
    check->n_tested += is_tested;
    check->n_unknown += !is_tested;
    if (layer->state == ND_ALIGN_DIFFERS)
        return nd_certificate_refuse(c, err, c->options->n_devices > 0 ? "devices" : "proof",
                                     "'%s' is called %s, and %s", layer->name,
                                     is_tested ? "equal as tested" : "unknown", layer->reason);
    check->n_tested_again += is_tested && layer->state != ND_ALIGN_UNKNOWN;
    return ND_OK;
}

/* Whether the sums that a reader sees first are those of the layers. */
static bool has_counts(const struct nd_certificate_checker *c)
{
    const struct nd_certificate_check *check = c->check;
    const json_t *counts = nd_certificate_member(c, "counts");
    const size_t found[] = {check->n_layers, check->n_proven, check->n_tested, check->n_unknown,
                            check->n_differ};
    static const char *const keys[] = {"layers", "proven", "tested", "unknown", "differ"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_integer_value(json_object_get(counts, keys[i])) != (json_int_t)found[i])
            return false;
    bool is_aligned = check->n_unknown + check->n_differ == 0;
    return is_aligned || strcmp(nd_certificate_text(c->certificate->root, "result"), "aligned") != 0;
}

static enum nd_status check_layers(struct nd_certificate_checker *c, struct nd_error *err)
{
    const struct nd_alignment *result = c->job.result;
    const json_t *layers = nd_certificate_member(c, "layers");
    c->check->n_layers = result->n_layers;
    if (json_array_size(layers) != result->n_layers)
        return nd_certificate_refuse(c, err, "layers", "the certificate has %zu layers, and the model has %zu",
                                     json_array_size(layers), result->n_layers);
    for (size_t i = 0; i < result->n_layers; i++)
        ND_TRY(check_layer(c, json_array_get(layers, i), &result->layers[i], err));
    if (c->check->n_refusals == 0 && !has_counts(c))
        ND_TRY(nd_certificate_refuse(c, err, "layers",
                                     "the counts of the certificate are not those of its layers"));
    if (c->options->n_devices > 0 && c->check->n_refusals == 0 && result->n_tensors_equal < result->n_tensors &&
        c->check->n_unknown + c->check->n_differ == 0)
        ND_TRY(nd_certificate_refuse(c, err, "devices", "%zu of %zu tensors differ between the devices: %s",
                                     result->n_tensors - result->n_tensors_equal, result->n_tensors,
                                     result->groups));
    return ND_OK;
}

static enum nd_status prove(struct nd_certificate_checker *c, struct nd_error *err)
{
    ND_TRY(nd_align_make_layers(&c->job, c->model, err));
    ND_TRY(nd_align_tell(&c->job, "prove", 0, 1, err));
    ND_TRY(nd_align_prove(&c->job, err));
    if (c->options->n_devices == 0)
        return ND_OK;
    ND_TRY(nd_dir_make_temporary(&c->job.folder, err));
    ND_TRY(nd_align_verify(&c->job, err));
    c->check->n_devices = c->job.result->n_devices;
    c->check->groups = nd_strdup(c->job.result->groups);
    return c->check->groups != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- all of it ---- */

static enum nd_status begin(struct nd_certificate_checker *c, struct nd_error *err)
{
    const struct nd_certificate_options *options = c->options;
    struct nd_align_options *own = &c->align_options;
    struct nd_certificate_check *check = c->check;
    nd_align_options_init(own);
    own->float_model = options->float_model;
    own->probes = options->probes;
    own->n_probes = options->n_probes;
    own->devices = options->devices;
    own->n_devices = options->n_devices;
    own->agent = options->agent;
    own->n_threads = options->n_threads;
    own->progress = options->progress;
    own->progress_context = options->progress_context;
    own->is_cancelled = options->is_cancelled;
    own->cancel_context = options->cancel_context;
    c->job.result = nd_calloc(1, sizeof *c->job.result);
    check->struct_size = sizeof *check;
    check->has_accuracy_cost = json_is_object(nd_certificate_member(c, "accuracy_cost"));
    check->certificate = nd_strdup(c->certificate->path);
    check->model = nd_strdup(nd_model_path(c->model));
    check->version = nd_strdup(nd_certificate_text(c->certificate->root, "npudiff"));
    ND_TRY_MEMORY(c->job.result != NULL && check->certificate != NULL && check->model != NULL &&
                      check->version != NULL,
                  err);
    if (options->n_devices == 1 || (options->n_devices > 0 && options->n_probes == 0))
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, NULL, "devices need inputs, and are two or more");
    return nd_model_check_static(c->model, err);
}

/* Names of arithmetics go over to the check, which outlives the job. */
static void take_arithmetics(struct nd_certificate_checker *c)
{
    c->check->arithmetics = c->job.result->arithmetics;
    c->check->n_arithmetics = c->job.result->n_arithmetics;
    c->job.result->arithmetics = NULL;
    c->job.result->n_arithmetics = 0;
}

static enum nd_status check_all(struct nd_certificate_checker *c, struct nd_error *err)
{
    static enum nd_status (*const checks[])(struct nd_certificate_checker *, struct nd_error *) = {
        check_content, check_members, check_file, check_shapes, check_arithmetics, prove, check_layers};
    enum nd_status status = begin(c, err);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == ND_OK && c->check->n_refusals == 0;
         i++)
        status = checks[i](c, err);
    if (status == ND_OK && c->check->n_refusals == 0 && c->options->model != NULL)
        status = nd_certificate_check_accuracy_cost(c, err);
    if (c->job.result != NULL)
        take_arithmetics(c);
    bool is_open = c->check->n_unknown > 0 || c->check->n_tested_again < c->check->n_tested;
    c->check->end = c->check->n_refusals > 0 ? ND_CERTIFICATE_REFUSED
                    : c->check->n_differ > 0 ? ND_CERTIFICATE_DIFFERS
                    : is_open                ? ND_CERTIFICATE_OPEN
                                             : ND_CERTIFICATE_HOLDS;
    return status;
}

enum nd_status nd_certificate_verify(const struct nd_certificate *certificate, const struct nd_model *model,
                                     const struct nd_certificate_options *options,
                                     struct nd_certificate_check **out, struct nd_error *err)
{
    struct nd_certificate_options own;
    nd_certificate_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    ND_CLEANUP(nd_certificate_check_destroy) struct nd_certificate_check *check = nd_calloc(1, sizeof *check);
    ND_TRY_MEMORY(check != NULL, err);
    struct nd_certificate_checker c = {
        .certificate = certificate, .model = model, .options = &own, .check = check};
    c.job = (struct nd_align_job){.options = &c.align_options, .model = model, .aligned = model};
    enum nd_status status = check_all(&c, err);
    nd_dir_remove(c.job.folder);
    ND_FREE_ALL(c.job.folder, c.job.layer_of_tensor);
    nd_alignment_destroy(&c.job.result);
    if (status == ND_OK) {
        *out = check;
        check = NULL;
    }
    return status;
}
