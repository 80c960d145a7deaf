#include "judge/accuracy/fleet_accuracy.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "compare/findings/top1_classes.h"

enum { SEED = 20240229 };

enum nd_status nd_top1_read(const struct nd_capture *capture, size_t probe, size_t edge, int64_t **classes,
                            struct nd_error *err)
{
    size_t n = nd_capture_probe(capture, probe)->n_samples;
    struct nd_layout layout;
    const struct nd_kernels *kernels;
    if (!nd_capture_has_outputs(capture, probe, edge))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, nd_capture_path(capture), "only digests of '%s' are stored",
                       nd_capture_edge(capture, edge)->name);
    enum nd_status status = nd_layout_make(nd_capture_edge(capture, edge), &layout, err);
    if (status == ND_OK)
        status = nd_kernels_choose(NULL, &kernels, err);
    if (status != ND_OK)
        return status;
    unsigned char *sample = nd_tensor_alloc(layout.sample_bytes);
    int64_t *found = nd_calloc(n, sizeof *found);
    if (sample == NULL || found == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_best best = {.index = -1};
        status = nd_capture_read_verified(&(struct nd_capture_tensor){capture, probe, edge}, i, 1, sample, err);
        if (status == ND_OK)
            nd_best_offer(&best, &layout, kernels, sample, 0, layout.n_elems);
        found[i] = best.index;
    }
    free(sample);
    if (status == ND_OK)
        *classes = found;
    else
        free(found);
    return status;
}

void nd_paired_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                     struct nd_paired *out, uint64_t *n_changed_wrong)
{
    *out = (struct nd_paired){0};
    *n_changed_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (labels[i] < 0)
            continue;
        bool is_ref_right = ref[i] == labels[i], is_test_right = test[i] == labels[i];
        if (is_ref_right)
            (*(is_test_right ? &out->both_right : &out->ref_only))++;
        else
            (*(is_test_right ? &out->test_only : &out->both_wrong))++;
        *n_changed_wrong += !is_ref_right && !is_test_right && ref[i] != test[i];
    }
}

/* Samples that have a label, one after the other. */
static size_t pack(const int64_t *labels, const int64_t *from, size_t n, int64_t *to)
{
    size_t n_packed = 0;
    for (size_t i = 0; i < n; i++)
        if (labels[i] >= 0)
            to[n_packed++] = from[i];
    return n_packed;
}

static void fill_rights(const int64_t *labels, const int64_t *classes, size_t n, unsigned char *rights)
{
    for (size_t i = 0; i < n; i++)
        if (labels[i] >= 0)
            *rights++ = classes[i] == labels[i];
}

static enum nd_status measure_spread(struct nd_accuracy_study *study, size_t n_labelled, double confidence,
                                     double margin, struct nd_error *err)
{
    unsigned char *rights = nd_calloc((study->n_devices + 2) * n_labelled, 1);
    if (rights == NULL)
        return nd_fail_memory(err);
    unsigned char *reference = rights + study->n_devices * n_labelled, *quantised = reference + n_labelled;
    for (size_t d = 0; d < study->n_devices; d++)
        fill_rights(study->labels, study->classes[d], study->n_samples, rights + d * n_labelled);
    if (study->reference != NULL)
        fill_rights(study->labels, study->reference, study->n_samples, reference);
    if (study->quantised != NULL)
        fill_rights(study->labels, study->quantised, study->n_samples, quantised);
    const struct nd_rights in = {.n_devices = study->n_devices,
                                 .n_samples = n_labelled,
                                 .devices = rights,
                                 .reference = study->reference != NULL ? reference : NULL,
                                 .quantised = study->quantised != NULL ? quantised : NULL};
    const struct nd_spread_options options = {.confidence = confidence, .margin = margin, .seed = SEED};
    enum nd_status status = nd_spread_measure(&in, &options, &study->spread, err);
    free(rights);
    return status;
}

enum nd_status nd_accuracy_study_measure(struct nd_accuracy_study *study, double confidence, double margin,
                                         struct nd_error *err)
{
    size_t n = study->n_samples, n_labelled = 0;
    for (size_t i = 0; i < n; i++)
        n_labelled += study->labels[i] >= 0;
    int64_t *classes = nd_calloc((study->n_devices + 1) * n_labelled, sizeof *classes);
    if (classes == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < study->n_devices; d++)
        pack(study->labels, study->classes[d], n, classes + d * n_labelled);
    int64_t *truth = classes + study->n_devices * n_labelled;
    pack(study->labels, study->labels, n, truth);
    const struct nd_predictions in = {
        .n_devices = study->n_devices, .n_samples = n_labelled, .classes = classes, .truth = truth};
    enum nd_status status = nd_churn_measure(&in, confidence, SEED, &study->churn, err);
    free(classes);
    return status == ND_OK ? measure_spread(study, n_labelled, confidence, margin, err) : status;
}

const int64_t *nd_accuracy_study_classes(const struct nd_accuracy_study *study, size_t device)
{
    for (size_t d = 0; d < study->n_devices; d++)
        if (study->devices[d] == device)
            return study->classes[d];
    return NULL;
}

void nd_accuracy_study_deinit(struct nd_accuracy_study *study)
{
    for (size_t d = 0; study->classes != NULL && d < study->n_devices; d++)
        free(study->classes[d]);
    free(study->classes);
    free(study->devices);
    free(study->quantised);
    free(study->reference);
    nd_churn_deinit(&study->churn);
    nd_spread_deinit(&study->spread);
    *study = (struct nd_accuracy_study){0};
}
