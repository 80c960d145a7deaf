#include "compare/findings/groups.h"

#include <stdlib.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

void nd_classes_make(size_t n, const bool *has_data, bool (*is_equal)(const void *context, size_t a, size_t b),
                     const void *context, int *classes)
{
    int n_classes = 0;
    for (size_t i = 0; i < n; i++) {
        classes[i] = -1;
        for (int k = 0; has_data[i] && k < n_classes && classes[i] < 0; k++) {
            bool joins = true;
            for (size_t j = 0; j < i && joins; j++)
                joins = classes[j] != k || is_equal(context, j, i);
            classes[i] = joins ? k : -1;
        }
        if (has_data[i] && classes[i] < 0)
            classes[i] = n_classes++;
    }
}

/* Whether two devices agree on one tensor, worked out once for all pairs: agrees[a * n + b]. */
struct tensor_equality {
    size_t n;
    bool *agrees;
};

static bool tensor_is_equal(const void *context, size_t a, size_t b)
{
    const struct tensor_equality *equality = context;
    return equality->agrees[a * equality->n + b];
}

/* All common samples of all probes have equal digests, and there is at least one. */
static enum nd_status has_equal_digests(const struct nd_matching *alignment, size_t tensor, size_t a, size_t b,
                                        bool *equal, struct nd_error *err)
{
    size_t n_total = 0;
    *equal = false;
    for (size_t p = 0; p < alignment->n_probes; p++) {
        bool in_a = nd_aligned_probe(alignment, p, a) != NULL, in_b = nd_aligned_probe(alignment, p, b) != NULL;
        if (!in_a && !in_b)
            continue;
        size_t n_common;
        char *reason;
        enum nd_status status = nd_align_samples(alignment, p, a, b, &n_common, &reason, err);
        if (status != ND_OK)
            return status;
        free(reason);
        bool is_unlike = n_common == 0 && (in_a != in_b || (nd_aligned_probe(alignment, p, a)->n_samples > 0 &&
                                                            nd_aligned_probe(alignment, p, b)->n_samples > 0));
        if (is_unlike)
            return ND_OK; /* the probe is missing in one, or was fed otherwise */
        for (size_t s = 0; s < n_common; s++)
            if (!nd_aligned_is_equal(alignment, tensor, p, a, b, s))
                return ND_OK;
        n_total += n_common;
    }
    *equal = n_total > 0;
    return ND_OK;
}

static enum nd_status compare_digests(const struct nd_matching *alignment, size_t tensor, size_t a, size_t b,
                                      bool *equal, struct nd_error *err)
{
    bool is_alike;
    *equal = false;
    enum nd_status status = nd_align_is_alike(nd_aligned_tensor(alignment, tensor, a),
                                              nd_aligned_tensor(alignment, tensor, b), &is_alike, err);
    return status == ND_OK && is_alike ? has_equal_digests(alignment, tensor, a, b, equal, err) : status;
}

static bool has_samples(const struct nd_matching *alignment, size_t tensor, size_t capture)
{
    for (size_t p = 0; p < alignment->n_probes && nd_aligned_tensor(alignment, tensor, capture) != NULL; p++) {
        const struct nd_capture_probe *probe = nd_aligned_probe(alignment, p, capture);
        if (probe != NULL && probe->n_samples > 0)
            return true;
    }
    return false;
}

enum nd_status nd_classes_of_tensor(const struct nd_matching *alignment, size_t tensor,
                                    struct nd_compared_tensor *compared, struct nd_error *err)
{
    size_t n = alignment->n_captures;
    struct tensor_equality equality = {.n = n, .agrees = nd_calloc(n * n, sizeof(bool))};
    bool *has_data = nd_calloc(n, sizeof *has_data);
    int *classes = nd_calloc(n, sizeof *classes);
    enum nd_status status = ND_OK;
    if (equality.agrees == NULL || has_data == NULL || classes == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        has_data[i] = has_samples(alignment, tensor, i);
    for (size_t a = 0; a < n && status == ND_OK; a++)
        for (size_t b = a + 1; b < n && status == ND_OK; b++)
            if (has_data[a] && has_data[b])
                status = compare_digests(alignment, tensor, a, b, &equality.agrees[a * n + b], err);
    if (status == ND_OK) {
        nd_classes_make(n, has_data, tensor_is_equal, &equality, classes);
        for (size_t i = 0; i < n; i++)
            compared->devices[i].class_id = classes[i];
    }
    free(equality.agrees);
    free(has_data);
    free(classes);
    return status;
}

bool nd_tensor_is_noisy(const struct nd_compared_tensor *tensor, size_t a, size_t b)
{
    const struct nd_tensor_on_device *x = &tensor->devices[a], *y = &tensor->devices[b];
    return x->class_id >= 0 && y->class_id >= 0 && (x->n_unstable > 0 || y->n_unstable > 0);
}

/* Overall: two devices agree when they are in one class on every tensor (or have both no data there), but for
 * those that are not repeatable on one of them. */
struct overall {
    const struct nd_comparison *comparison;
    bool outputs_only;
};

static bool overall_is_equal(const void *context, size_t a, size_t b)
{
    const struct overall *overall = context;
    for (size_t e = 0; e < overall->comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &overall->comparison->tensors[e];
        if (overall->outputs_only && !tensor->is_model_output)
            continue;
        if (tensor->devices[a].class_id != tensor->devices[b].class_id && !nd_tensor_is_noisy(tensor, a, b))
            return false;
    }
    return true;
}

static bool has_overall_data(const struct overall *overall, size_t device)
{
    for (size_t e = 0; e < overall->comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &overall->comparison->tensors[e];
        if ((!overall->outputs_only || tensor->is_model_output) && tensor->devices[device].class_id >= 0)
            return true;
    }
    return false;
}

/* "a | b = c": classes in order, then who has no data. A device with fewer samples than asked for gets a '*'.
 */
static char *render(const struct nd_comparison *comparison, const int *classes)
{
    struct nd_strbuf text = {0};
    const char *bar = "";
    for (int k = 0; k < (int)comparison->n_devices; k++) {
        const char *separator = bar;
        for (size_t i = 0; i < comparison->n_devices; i++) {
            const struct nd_compared_device *device = &comparison->devices[i];
            if (classes[i] != k)
                continue;
            nd_strbuf_printf(&text, "%s%s%s", separator, device->label,
                             device->n_samples < device->n_samples_expected ? "*" : "");
            separator = " = ";
            bar = " | ";
        }
    }
    for (size_t i = 0; i < comparison->n_devices; i++) {
        if (classes[i] >= 0)
            continue;
        nd_strbuf_printf(&text, "%s(%s: no data)", bar, comparison->devices[i].label);
        bar = " | ";
    }
    char *taken = nd_strbuf_take(&text);
    nd_strbuf_deinit(&text);
    return taken;
}

enum nd_status nd_classes_overall(struct nd_comparison *comparison, struct nd_error *err)
{
    size_t n = comparison->n_devices;
    bool *has_data = nd_calloc(n, sizeof *has_data);
    int *classes = nd_calloc(n, sizeof *classes);
    enum nd_status status = has_data != NULL && classes != NULL ? ND_OK : nd_fail_memory(err);
    for (int outputs_only = 0; outputs_only < 2 && status == ND_OK; outputs_only++) {
        struct overall overall = {comparison, outputs_only != 0};
        for (size_t i = 0; i < n; i++)
            has_data[i] = has_overall_data(&overall, i);
        nd_classes_make(n, has_data, overall_is_equal, &overall, classes);
        for (size_t i = 0; i < n; i++) {
            if (outputs_only)
                comparison->devices[i].output_class_id = classes[i];
            else
                comparison->devices[i].class_id = classes[i];
        }
        char **text = outputs_only ? &comparison->output_classes_text : &comparison->classes_text;
        *text = render(comparison, classes);
        if (*text == NULL)
            status = nd_fail_memory(err);
    }
    free(has_data);
    free(classes);
    return status;
}
