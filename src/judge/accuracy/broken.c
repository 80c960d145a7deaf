/* Whether the reference of a campaign is broken itself. */
#include "judge/accuracy/broken.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/accuracy/fleet_accuracy.h"

/* What the outputs of one probe come to. */
struct found {
    const char *probe;
    const int64_t *labels; /* or NULL */
    size_t n_samples;
    const char *classifier;     /* the first output that can have classes, or NULL */
    size_t n_labelled, n_right; /* n_right over all such outputs */
    const char *nan;            /* the first float output without any number, or NULL */
};

static void count_right(struct found *found, const int64_t *classes)
{
    found->n_labelled = 0;
    for (size_t i = 0; i < found->n_samples; i++) {
        found->n_labelled += found->labels[i] >= 0;
        found->n_right += found->labels[i] >= 0 && classes[i] == found->labels[i];
    }
}

static bool has_number(const int64_t *classes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (classes[i] >= 0)
            return true;
    return false;
}

static enum nd_status look_at(const struct nd_capture *capture, size_t probe, size_t e, struct found *found,
                              struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
    size_t n_elems = 0;
    int64_t *classes = NULL;
    bool is_float = nd_dtype_is_float(tensor->dtype);
    if (!tensor->is_model_output || !nd_capture_has_outputs(capture, probe, e) || tensor->shape.rank < 0 ||
        nd_shape_n_elems(&tensor->shape, &n_elems, NULL) != ND_OK || n_elems == 0 ||
        (!is_float && (found->labels == NULL || n_elems < 2)))
        return ND_OK;
    enum nd_status status = nd_top1_read(capture, probe, e, &classes, err);
    if (status != ND_OK)
        return status;
    if (is_float && found->nan == NULL && found->n_samples > 0 && !has_number(classes, found->n_samples))
        found->nan = tensor->name;
    if (found->labels != NULL && n_elems >= 2) {
        found->classifier = found->classifier != NULL ? found->classifier : tensor->name;
        count_right(found, classes);
    }
    free(classes);
    return ND_OK;
}

/* NULL where the probe says nothing against the capture. */
static enum nd_status tell(const struct found *found, char **why, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (found->nan != NULL)
        nd_strbuf_printf(&text, "every value of '%s' with '%s' is NaN", found->nan, found->probe);
    else if (found->classifier != NULL && found->n_right == 0 && found->n_labelled >= ND_BROKEN_MIN_SAMPLES)
        nd_strbuf_printf(
            &text,
            "not one of the %zu labelled samples of '%s' is right at '%s': the inputs, the labels or "
            "the run are wrong",
            found->n_labelled, found->probe, found->classifier);
    if (text.len == 0 && !text.failed)
        return ND_OK;
    *why = nd_strbuf_take(&text);
    return *why != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_broken_find(const struct nd_capture *capture, char **why, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *why = NULL;
    for (size_t p = 0; status == ND_OK && *why == NULL && p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        struct found found = {.probe = probe->name, .labels = probe->labels, .n_samples = probe->n_samples};
        for (size_t e = 0; status == ND_OK && e < nd_capture_n_tensors(capture); e++)
            status = look_at(capture, p, e, &found, err);
        if (status == ND_OK)
            status = tell(&found, why, err);
    }
    return status;
}

bool nd_broken_has_fell_back(size_t before, size_t now, size_t n)
{
    return n >= ND_BROKEN_MIN_SAMPLES && before > now && (double)(before - now) > ND_BROKEN_FALL * (double)n;
}
