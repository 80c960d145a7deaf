/* Options that two devices of one kind were not given alike, and that are known to change bits: what a
 * difference may come from before any arithmetic does. Chipset and SDK are columns of their own. */
#include "compare/engine/engine.h"

#include "capture/read/environment.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/config.h"

static bool is_option(const char *key)
{
    if (ND_IS_ONE_OF(key, "runtime.option_soc_model", "runtime.option_backend_path")) /* told elsewhere */
        return false;
    return strncmp(key, "runtime.option_", 15) == 0 || strcmp(key, "runtime.optimisation") == 0 ||
           strncmp(key, "htp.", 4) == 0;
}

static void list_changes(const struct nd_config_diff *diff, struct nd_strbuf *out)
{
    for (size_t i = 0; i < diff->n; i++) {
        const struct nd_config_change *change = &diff->changes[i];
        if (change->effect != ND_CONFIG_BITS || !is_option(change->key))
            continue;
        nd_strbuf_printf(out, "%s%s is %s, not %s", out->len > 0 ? "; " : "", change->key,
                         change->test != NULL ? change->test : "not set",
                         change->ref != NULL ? change->ref : "not set");
    }
}

/* Fills configured_as and configuration. ND_ERR_MEMORY. */
static enum nd_status nd_devices_describe_configuration(const struct nd_aligned_captures *alignment,
                                                        struct nd_compared_device *devices,
                                                        struct nd_error *err)
{
    for (size_t i = 0; i < alignment->n_captures; i++) {
        struct nd_strbuf text = {0};
        size_t other = 0;
        devices[i].configured_as = SIZE_MAX;
        while (other < i && strcmp(devices[other].kind, devices[i].kind) != 0)
            other++;
        if (other < i && devices[i].kind[0] != '\0') {
            struct nd_config_diff diff = {0};
            /* A configuration that cannot be read is no reason not to compare codes: `npudiff compare --config`
             * tells. */
            if (nd_config_diff(alignment->captures[other], alignment->captures[i], &diff, NULL) == ND_OK) {
                devices[i].configured_as = other;
                list_changes(&diff, &text);
                nd_config_diff_deinit(&diff);
            }
        }
        devices[i].configuration = nd_strbuf_take(&text);
        ND_TRY_MEMORY(devices[i].configuration != NULL, err);
    }
    return ND_OK;
}

static const char *first_of(const char *a, const char *b)
{
    return a != NULL && a[0] != '\0' ? a : b != NULL ? b : "";
}

/* "stage 'session', operator 'conv1': message", as far as the capture tells. */
static enum nd_status describe_failure(const struct nd_capture *capture, char **out, struct nd_error *err)
{
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *op = nd_capture_string(capture, "failure", "operator");
    const char *message = nd_capture_string(capture, "failure", "message");
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    const char *separator = "";
    if (stage != NULL && stage[0] != '\0') {
        nd_strbuf_printf(&text, "stage '%s'", stage);
        separator = ", ";
    }
    if (op != NULL && op[0] != '\0') {
        nd_strbuf_printf(&text, "%soperator '%s'", separator, op);
        separator = ", ";
    }
    if (message != NULL && message[0] != '\0')
        nd_strbuf_printf(&text, "%s%s", separator[0] != '\0' ? ": " : "", message);
    *out = nd_strbuf_take(&text);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_placement(const struct nd_capture *capture, struct nd_compared_device *device,
                                         struct nd_error *err)
{
    ND_CLEANUP(nd_placement_destroy) struct nd_placement_report *report = NULL;
    ND_TRY(nd_placement_examine(NULL, capture, &report, err));
    device->is_npu = report->is_npu;
    device->npu_share = report->share;
    return ND_OK;
}

/* Fills *device from the attributes of a capture; unknown texts become "". ND_ERR_MEMORY. */
static enum nd_status nd_device_describe(const struct nd_capture *capture, struct nd_compared_device *device,
                                         struct nd_error *err)
{
    const char *path = nd_capture_path(capture);
    device->environment = nd_capture_environment(capture);
    const char *uri = first_of(nd_capture_string(capture, "device", "uri"), NULL);
    struct {
        char **field;
        const char *value;
    } texts[] = {
        {&device->uri, uri},
        {&device->label, nd_capture_name(capture)},
        {&device->capture, path},
        {&device->content_digest, first_of(nd_capture_string(capture, "", "content_digest"), NULL)},
        {&device->chipset, first_of(nd_capture_string(capture, "device", "chipset"),
                                    nd_capture_string(capture, "device", "soc_model"))},
        {&device->runtime, first_of(nd_capture_string(capture, "runtime", "id"),
                                    nd_capture_string(capture, "runtime", "version"))},
        {&device->kind, first_of(nd_capture_string(capture, "device", "kind"), NULL)},
    };
    ND_TRY_MEMORY(device->environment != NULL, err);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ND_TRY(nd_text_set(texts[i].field, err, "%s", texts[i].value));
    device->status = nd_capture_state(capture);
    device->first_tensor = SIZE_MAX;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        device->n_samples += probe->n_samples;
        device->n_samples_expected += probe->n_samples_expected;
    }
    enum nd_status status = describe_placement(capture, device, err);
    return status == ND_OK ? describe_failure(capture, &device->failure, err) : status;
}

static size_t count_earlier(const struct nd_compared_device *devices, size_t i, const char *label)
{
    size_t n = 0;
    for (size_t j = 0; j < i; j++)
        n += strcmp(devices[j].label, label) == 0;
    return n;
}

/* Gives devices of one label a number behind it ("cpu", "cpu#2"). */
static enum nd_status nd_devices_number_labels(struct nd_compared_device *devices, size_t n,
                                               struct nd_error *err)
{
    for (size_t i = 1; i < n; i++) {
        if (count_earlier(devices, i, devices[i].label) == 0)
            continue;
        char *numbered = NULL;
        size_t number = 2;
        do {
            ND_TRY(nd_text_set(&numbered, err, "%s#%zu", devices[i].label, number++));
        } while (count_earlier(devices, i, numbered) > 0);
        free(devices[i].label);
        devices[i].label = numbered;
    }
    return ND_OK;
}

static enum nd_status describe_probes(const struct nd_aligned_captures *alignment,
                                      struct nd_comparison *comparison, struct nd_error *err)
{
    comparison->probes = nd_calloc(alignment->n_probes, sizeof *comparison->probes);
    ND_TRY_MEMORY(comparison->probes != NULL, err);
    comparison->n_probes = alignment->n_probes;
    for (size_t p = 0; p < alignment->n_probes; p++) {
        struct nd_compared_probe *probe = &comparison->probes[p];
        ND_TRY(nd_text_set(&probe->name, err, "%s", alignment->probe_names[p]));
        for (size_t c = 0; c < alignment->n_captures; c++) {
            const struct nd_capture_probe *described = nd_aligned_probe(alignment, p, c);
            if (described != NULL && described->n_samples > probe->n_samples)
                probe->n_samples = described->n_samples;
        }
    }
    return ND_OK;
}

static enum nd_status describe_on_devices(const struct nd_aligned_captures *alignment, size_t e,
                                          struct nd_comparison *comparison, struct nd_error *err)
{
    struct nd_compared_tensor *tensor = &comparison->tensors[e];
    for (size_t c = 0; c < alignment->n_captures; c++) {
        struct nd_tensor_on_device *on = &tensor->devices[c];
        const struct nd_tensor *described = nd_aligned_tensor(alignment, e, c);
        const struct nd_capture *capture = alignment->captures[c];
        size_t index = alignment->tensors[e * alignment->n_captures + c];
        const char *provider = described != NULL ? nd_capture_tensor_provider(capture, index) : "";
        ND_TRY(nd_text_set(&on->provider, err, "%s", provider));
        on->class_id = -1;
        on->exists = described != NULL;
        if (described == NULL)
            continue;
        /* Whether a tensor was computed by the CPU provider on a device that says that it is something else
         * than a CPU or a reference. Model inputs are expected there. */
        /* an import may not say what it is */
        bool is_expected = ND_IS_ONE_OF(comparison->devices[c].kind, "", "cpu", "reference", "import");
        on->is_on_cpu =
            !is_expected && !described->is_model_input && strcmp(provider, "CPUExecutionProvider") == 0;
        nd_repeats_count(alignment, e, c, on);
        comparison->devices[c].n_unstable_tensors += on->n_unstable > 0;
        comparison->devices[c].n_cpu_tensors += on->is_on_cpu;
    }
    return ND_OK;
}

static const struct nd_tensor *first_description(const struct nd_aligned_captures *alignment, size_t e)
{
    const struct nd_tensor *first = NULL;
    for (size_t c = 0; c < alignment->n_captures; c++) {
        const struct nd_tensor *tensor = nd_aligned_tensor(alignment, e, c);
        if (tensor != NULL &&
            (first == NULL || (first->dtype == ND_DTYPE_NONE && tensor->dtype != ND_DTYPE_NONE)))
            first = tensor;
    }
    return first;
}

static enum nd_status describe_tensor(const struct nd_aligned_captures *alignment, size_t e,
                                      struct nd_comparison *comparison, struct nd_error *err)
{
    struct nd_compared_tensor *tensor = &comparison->tensors[e];
    const struct nd_tensor *described = first_description(alignment, e);
    size_t n = alignment->n_captures;
    tensor->dtype = described->dtype;
    tensor->shape = described->shape;
    tensor->is_quantised = described->quant.n > 0;
    tensor->is_model_input = described->is_model_input;
    tensor->is_model_output = described->is_model_output;
    tensor->devices = nd_calloc(n, sizeof *tensor->devices);
    tensor->pairs = nd_calloc(comparison->n_pairs, sizeof *tensor->pairs);
    ND_TRY_MEMORY(tensor->devices != NULL && tensor->pairs != NULL, err);
    size_t p = 0;
    for (size_t ref = 0; ref < n; ref++)
        for (size_t test = ref + 1; test < n && p < comparison->n_pairs; test++, p++) {
            tensor->pairs[p].ref = ref;
            tensor->pairs[p].test = test;
            tensor->pairs[p].probes = nd_calloc(alignment->n_probes, sizeof *tensor->pairs[p].probes);
            ND_TRY_MEMORY(tensor->pairs[p].probes != NULL, err);
        }
    ND_TRY(nd_text_set(&tensor->name, err, "%s", alignment->tensor_names[e]));
    ND_TRY(nd_text_set(&tensor->op_types, err, "%s", described->op_types != NULL ? described->op_types : ""));
    return describe_on_devices(alignment, e, comparison, err);
}

enum nd_status nd_result_describe(const struct nd_aligned_captures *alignment, bool all_pairs,
                                  struct nd_comparison *comparison, struct nd_error *err)
{
    size_t n = alignment->n_captures;
    comparison->n_pairs = all_pairs ? n * (n - 1) / 2 : n - 1;
    comparison->devices = nd_calloc(alignment->n_captures, sizeof *comparison->devices);
    ND_TRY_MEMORY(comparison->devices != NULL, err);
    for (size_t c = 0; c < alignment->n_captures; c++) {
        comparison->n_devices = c + 1;
        ND_TRY(nd_device_describe(alignment->captures[c], &comparison->devices[c], err));
    }
    ND_TRY(nd_devices_describe_configuration(alignment, comparison->devices, err));
    ND_TRY(nd_devices_number_labels(comparison->devices, comparison->n_devices, err));
    ND_TRY(describe_probes(alignment, comparison, err));
    comparison->tensors = nd_calloc(alignment->n_tensors, sizeof *comparison->tensors);
    ND_TRY_MEMORY(comparison->tensors != NULL, err);
    for (size_t e = 0; e < alignment->n_tensors; e++) {
        comparison->n_tensors = e + 1;
        ND_TRY(describe_tensor(alignment, e, comparison, err));
    }
    return ND_OK;
}

static void part_deinit(struct nd_compared_part *part)
{
    ND_FREE_ALL(part->reason, part->state, part->difference.worst);
}

static void pair_deinit(struct nd_comparison *comparison, struct nd_compared_pair *pair)
{
    free(pair->label);
    part_deinit(&pair->total);
    for (size_t p = 0; pair->probes != NULL && p < comparison->n_probes; p++)
        part_deinit(&pair->probes[p]);
    for (size_t c = 0; pair->channels != NULL && c < pair->n_channels; c++)
        free(pair->channels[c].worst);
    ND_FREE_ALL(pair->channels, pair->probes);
}

static void tensor_deinit(struct nd_comparison *comparison, struct nd_compared_tensor *tensor)
{
    for (size_t p = 0; tensor->pairs != NULL && p < comparison->n_pairs; p++)
        pair_deinit(comparison, &tensor->pairs[p]);
    for (size_t c = 0; tensor->devices != NULL && c < comparison->n_devices; c++) {
        free(tensor->devices[c].provider);
        if (tensor->devices[c].noise != NULL)
            free(tensor->devices[c].noise->worst);
        free(tensor->devices[c].noise);
    }
    ND_FREE_ALL(tensor->pairs, tensor->devices, tensor->name, tensor->op_types, tensor->gate);
}

void nd_comparison_destroy(struct nd_comparison **comparison)
{
    struct nd_comparison *c = *comparison;
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_tensors; i++)
        tensor_deinit(c, &c->tensors[i]);
    for (size_t i = 0; i < c->n_devices; i++) {
        struct nd_compared_device *device = &c->devices[i];
        ND_FREE_ALL(device->uri, device->label, device->capture, device->content_digest, device->chipset,
                    device->runtime, device->kind, device->environment, device->failure, device->configuration);
        *device = (struct nd_compared_device){0};
    }
    for (size_t i = 0; i < c->n_probes; i++)
        free(c->probes[i].name);
    for (size_t i = 0; i < c->n_top1; i++) {
        ND_FREE_ALL(c->top1[i].labels_missing_reason, c->top1[i].devices, c->top1[i].pairs);
        for (size_t k = 0; k < c->top1[i].n_changed_kept; k++)
            ND_FREE_ALL(c->top1[i].changed[k].classes, c->top1[i].changed[k].values);
        free(c->top1[i].changed);
    }
    ND_FREE_ALL(c->tensors, c->devices, c->probes, c->top1, c->partings);
    for (size_t i = 0; i < c->n_diagnoses; i++)
        free(c->diagnoses[i].text);
    ND_FREE_ALL(c->diagnoses, c->depths);
    for (size_t i = 0; i < c->n_predicates; i++)
        ND_FREE_ALL(c->predicates[i].conditions[0], c->predicates[i].conditions[1], c->predicates[i].text);
    ND_FREE_ALL(c->predicates, c->classes_text, c->output_classes_text, c);
    *comparison = NULL;
}
