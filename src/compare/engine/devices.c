#include "compare/engine/devices.h"

#include <stdlib.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "capture/read/environment.h"
#include "compare/engine/format_text.h"

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
    struct nd_strbuf text = {0};
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
    nd_strbuf_deinit(&text);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_placement(const struct nd_capture *capture, struct nd_compared_device *device,
                                         struct nd_error *err)
{
    struct nd_placement_report *report = NULL;
    enum nd_status status = nd_placement_examine(NULL, capture, &report, err);
    if (status != ND_OK)
        return status;
    device->is_npu = report->is_npu;
    device->npu_share = report->share;
    nd_placement_destroy(&report);
    return ND_OK;
}

enum nd_status nd_device_describe(const struct nd_capture *capture, struct nd_compared_device *device,
                                  struct nd_error *err)
{
    const char *path = nd_capture_path(capture);
    char *environment = nd_capture_environment(capture);
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
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        enum nd_status status = nd_text_set(texts[i].field, err, "%s", texts[i].value);
        if (status != ND_OK) {
            free(environment);
            return status;
        }
    }
    device->environment = environment;
    if (environment == NULL)
        return nd_fail_memory(err);
    device->status = nd_capture_state(capture);
    device->first_edge = SIZE_MAX;
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

enum nd_status nd_devices_number_labels(struct nd_compared_device *devices, size_t n, struct nd_error *err)
{
    for (size_t i = 1; i < n; i++) {
        if (count_earlier(devices, i, devices[i].label) == 0)
            continue;
        char *numbered = NULL;
        size_t number = 2;
        do {
            enum nd_status status = nd_text_set(&numbered, err, "%s#%zu", devices[i].label, number++);
            if (status != ND_OK)
                return status;
        } while (count_earlier(devices, i, numbered) > 0);
        free(devices[i].label);
        devices[i].label = numbered;
    }
    return ND_OK;
}

bool nd_device_fell_back(const struct nd_compared_device *device, const struct nd_edge *edge,
                         const char *provider)
{
    static const char *const expected[] = {"", "cpu", "reference",
                                           "import"}; /* an import may not say what it is */
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (strcmp(device->kind, expected[i]) == 0)
            return false;
    return !edge->is_model_input && strcmp(provider, "CPUExecutionProvider") == 0;
}

void nd_compared_device_deinit(struct nd_compared_device *device)
{
    free(device->uri);
    free(device->label);
    free(device->capture);
    free(device->content_digest);
    free(device->chipset);
    free(device->runtime);
    free(device->kind);
    free(device->environment);
    free(device->failure);
    free(device->configuration);
    *device = (struct nd_compared_device){0};
}
