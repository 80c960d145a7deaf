/* The values of a capture against those of the twin of its chipset, bit by bit.
 * docs/reference/commands.md#npudiff-twin. */
#include "npudiff/judge/twin_check.h"

#include <math.h>
#include <string.h>

#include "arithmetic/operators/array.h"
#include "capture/read/environment.h"
#include "core/items.h"
#include "core/text/strbuf.h"

/* Both sides of a tensor. */
struct pair {
    size_t recorded;     /* tensor of the capture */
    size_t size_bytes;   /* of one sample */
    unsigned char *ours; /* [n_batch * size_bytes] */
    unsigned char *theirs;
};

struct job {
    const struct nd_capture *capture;
    struct nd_twin_model *twin;
    struct nd_twin_check *out;
    struct pair *pairs; /* [out->n_tensors] */
    size_t n_tensors;   /* of the twin */
    void **buffers;     /* [n_tensors]: pairs[].ours, NULL of those that are not compared */
    size_t n_inputs;
    void **inputs; /* [n_inputs] */
    size_t n_batch;
};

static void close_job(struct job *job)
{
    for (size_t i = 0; job->pairs != NULL && i < job->out->n_tensors; i++) {
        free(job->pairs[i].ours);
        free(job->pairs[i].theirs);
    }
    ND_FREE_ITEMS(job->inputs, job->n_inputs);
    ND_FREE_ALL(job->buffers, job->pairs);
    nd_twin_model_close(&job->twin);
}

/* ---- what is compared ---- */

/* What a device URI has after "twin:". */
static char *chip_of(const struct nd_capture *capture)
{
    const char *chipset = nd_capture_string(capture, "device", "chipset"), *sdk = nd_capture_sdk(capture);
    bool is_twin_of_one = chipset != NULL && chipset[0] != '\0';
    return !is_twin_of_one ? NULL
           : sdk != NULL   ? nd_text("%s@qairt-%.*s", chipset, (int)strcspn(sdk, "-+ "), sdk)
                           : nd_text("%s", chipset);
}

/* Samples that are computed at a time: many are faster on many cores, and each keeps all tensors. */
static const size_t batch_bytes = 64 << 20;
enum { MOST_AT_ONCE = 64 };

static enum nd_status allocate(struct job *job, struct nd_error *err)
{
    size_t n_bytes = 1, n;
    const struct nd_twin_value *inputs = nd_twin_model_values(job->twin, ND_TWIN_INPUT, &n);
    for (size_t i = 0; i < job->out->n_tensors; i++)
        n_bytes += 2 * job->pairs[i].size_bytes;
    job->n_batch = batch_bytes / n_bytes < MOST_AT_ONCE ? batch_bytes / n_bytes : MOST_AT_ONCE;
    job->n_batch += job->n_batch == 0;
    job->n_inputs = n;
    job->inputs = nd_calloc(n, sizeof *job->inputs);
    ND_TRY_MEMORY(job->inputs != NULL, err);
    for (size_t i = 0; i < n; i++)
        ND_TRY_MEMORY((job->inputs[i] = nd_calloc(job->n_batch, inputs[i].size_bytes)) != NULL, err);
    for (size_t i = 0; i < job->out->n_tensors; i++) {
        struct pair *pair = &job->pairs[i];
        pair->ours = nd_calloc(job->n_batch, pair->size_bytes);
        pair->theirs = nd_calloc(job->n_batch, pair->size_bytes);
        ND_TRY_MEMORY(pair->ours != NULL && pair->theirs != NULL, err);
    }
    for (size_t i = 0, k = 0; i < job->n_tensors; i++)
        job->buffers[i] = job->buffers[i] != NULL ? job->pairs[k++].ours : NULL;
    return ND_OK;
}

static enum nd_status find_pairs(struct job *job, struct nd_error *err)
{
    const struct nd_twin_value *values = nd_twin_model_values(job->twin, ND_TWIN_TENSOR, &job->n_tensors);
    job->pairs = nd_calloc(job->n_tensors, sizeof *job->pairs);
    job->buffers = nd_calloc(job->n_tensors, sizeof *job->buffers);
    job->out->tensors = nd_calloc(job->n_tensors, sizeof *job->out->tensors);
    ND_TRY_MEMORY(job->pairs != NULL && job->buffers != NULL && job->out->tensors != NULL, err);
    for (size_t i = 0; i < job->n_tensors; i++) {
        size_t recorded = nd_capture_find_tensor(job->capture, values[i].io.name);
        if (recorded == SIZE_MAX)
            continue;
        const struct nd_tensor *tensor = nd_capture_tensor(job->capture, recorded);
        if (tensor->dtype != values[i].io.dtype || !nd_shape_equal(&tensor->shape, &values[i].io.shape)) {
            job->out->n_left_out++;
            continue;
        }
        struct nd_twin_checked *checked = &job->out->tensors[job->out->n_tensors];
        *checked = (struct nd_twin_checked){
            .name = values[i].io.name, .op_types = values[i].op_types, .has_values = true};
        job->pairs[job->out->n_tensors++] =
            (struct pair){.recorded = recorded, .size_bytes = values[i].size_bytes};
        job->buffers[i] = job; /* a mark; allocate puts the buffer there */
    }
    return job->out->n_tensors > 0
               ? allocate(job, err)
               : nd_fail(err, ND_E_COMPARE_NOTHING, NULL, "'%s' has no tensor in common with its twin",
                         nd_capture_path(job->capture));
}

/* ---- sample by sample ---- */

static double distance(enum nd_dtype dtype, const struct pair *pair, size_t sample, size_t k)
{
    size_t at = sample * pair->size_bytes + k * nd_dtype_size_bytes(dtype);
    double ours, theirs;
    nd_array_load(dtype, pair->ours + at, 1, &ours);
    nd_array_load(dtype, pair->theirs + at, 1, &theirs);
    return fabs(ours - theirs);
}

/* Whether the sample's bytes, or its digest where there are none, are equal. */
static bool is_equal(struct job *job, size_t probe, size_t i, size_t first, size_t sample)
{
    const struct pair *pair = &job->pairs[i];
    struct nd_twin_checked *checked = &job->out->tensors[i];
    enum nd_dtype dtype = nd_capture_tensor(job->capture, pair->recorded)->dtype;
    size_t size = nd_dtype_size_bytes(dtype), n = pair->size_bytes / size, at = sample * pair->size_bytes;
    checked->n_values += n;
    if (!nd_capture_has_outputs(job->capture, probe, pair->recorded)) {
        struct nd_digest ours = nd_digest_bytes(pair->ours + at, pair->size_bytes);
        struct nd_digest theirs = nd_capture_digest(job->capture, probe, pair->recorded, first + sample, 0);
        checked->has_values = false;
        return ours.low == theirs.low && ours.high == theirs.high;
    }
    if (memcmp(pair->ours + at, pair->theirs + at, pair->size_bytes) == 0)
        return true;
    for (size_t k = 0; k < n; k++)
        if (memcmp(pair->ours + at + k * size, pair->theirs + at + k * size, size) != 0) {
            checked->n_differing++;
            checked->largest = fmax(checked->largest, distance(dtype, pair, sample, k));
        }
    return false;
}

static enum nd_status check_batch(struct job *job, size_t probe, size_t first, size_t n, struct nd_error *err)
{
    const struct nd_capture_probe *fed = nd_capture_probe(job->capture, probe);
    size_t n_values;
    const struct nd_twin_value *inputs = nd_twin_model_values(job->twin, ND_TWIN_INPUT, &n_values);
    for (size_t i = 0; i < job->n_inputs; i++) {
        struct nd_probe_values input = {job->capture, probe, 0};
        while (input.tensor < fed->n_inputs && strcmp(fed->inputs[input.tensor].name, inputs[i].io.name) != 0)
            input.tensor++;
        if (input.tensor == fed->n_inputs || fed->inputs[input.tensor].dtype != inputs[i].io.dtype)
            return nd_fail(err, ND_E_COMPARE_NOTHING, NULL,
                           "'%s' does not hold the input '%s' of its probe '%s'", nd_capture_path(job->capture),
                           inputs[i].io.name, fed->name);
        ND_TRY(nd_capture_read_inputs(&input, first, n, job->inputs[i], err));
    }
    const struct nd_twin_samples samples = {
        .n = n, .inputs = (const void *const *)job->inputs, .tensors = job->buffers};
    ND_TRY(nd_twin_model_run(job->twin, &samples, err));
    bool differs[MOST_AT_ONCE] = {false};
    for (size_t i = 0; i < job->out->n_tensors; i++) {
        const struct nd_probe_values tensor = {job->capture, probe, job->pairs[i].recorded};
        if (nd_capture_has_outputs(job->capture, probe, tensor.tensor))
            ND_TRY(nd_capture_read_verified(&tensor, first, n, job->pairs[i].theirs, err));
        for (size_t s = 0; s < n; s++) {
            bool is_other = !is_equal(job, probe, i, first, s);
            differs[s] |= is_other;
            job->out->tensors[i].n_samples++;
            job->out->tensors[i].n_samples_differing += is_other;
        }
    }
    for (size_t s = 0; s < n; s++)
        job->out->n_samples_equal += !differs[s];
    job->out->n_samples += n;
    return ND_OK;
}

static enum nd_status check_samples(struct job *job, struct nd_error *err)
{
    for (size_t p = 0; p < nd_capture_n_probes(job->capture); p++) {
        size_t n_samples = nd_capture_probe(job->capture, p)->n_samples;
        for (size_t first = 0; first < n_samples; first += job->n_batch) {
            size_t left = n_samples - first;
            ND_TRY(check_batch(job, p, first, left < job->n_batch ? left : job->n_batch, err));
        }
    }
    return job->out->n_samples > 0 ? ND_OK
                                   : nd_fail(err, ND_E_COMPARE_NOTHING, NULL, "'%s' has no complete sample",
                                             nd_capture_path(job->capture));
}

static void conclude(struct job *job)
{
    struct nd_twin_check *out = job->out;
    size_t n;
    const struct nd_twin_value *values = nd_twin_model_values(job->twin, ND_TWIN_TENSOR, &n);
    for (size_t i = 0, k = 0; i < n; i++) {
        if (job->buffers[i] == NULL)
            continue;
        struct nd_twin_checked *tensor = &out->tensors[k++];
        tensor->mark = values[i].mark;
        tensor->largest = tensor->has_values ? tensor->largest : (double)NAN;
        bool differs = tensor->n_samples_differing > 0,
             is_claimed = tensor->mark.why == NULL && !tensor->mark.is_behind;
        enum nd_twin_end end = !differs ? ND_TWIN_EQUAL : is_claimed ? ND_TWIN_DIFFERS : ND_TWIN_MARKED;
        out->end = end > out->end ? end : out->end;
        out->n_equal += !differs;
        out->n_claimed += is_claimed;
        out->n_claimed_equal += is_claimed && !differs;
        out->n_values += tensor->n_values;
        out->n_differing += tensor->n_differing;
    }
}

enum nd_status nd_twin_check(const struct nd_capture *capture, const struct nd_model *model, const char *chip,
                             size_t n_threads, struct nd_twin_check **out, struct nd_error *err)
{
    ND_CLEANUP(nd_twin_check_destroy) struct nd_twin_check *check = nd_calloc(1, sizeof *check);
    ND_TRY_MEMORY(check != NULL, err);
    ND_CLEANUP(close_job) struct job job = {.capture = capture, .out = check};
    const char *sha256 = nd_capture_string(capture, "model", "sha256"), *path = nd_capture_path(capture);
    if (sha256 != NULL && strcmp(sha256, nd_model_sha256(model)) != 0)
        return nd_fail(err, ND_E_COMPARE_MODEL, NULL, "'%s' is of another model", path);
    check->struct_size = sizeof *check;
    check->capture = nd_strdup(path);
    check->device = nd_strdup(nd_capture_name(capture));
    const char *digest = nd_capture_string(capture, "", "content_digest");
    check->content_digest = digest != NULL ? nd_strdup(digest) : NULL;
    ND_TRY_MEMORY(check->capture != NULL && check->device != NULL &&
                      (digest == NULL || check->content_digest != NULL),
                  err);
    check->chip = chip != NULL ? nd_strdup(chip) : chip_of(capture);
    if (check->chip == NULL)
        return nd_fail(err, ND_E_COMPARE_NOTHING, NULL,
                       "'%s' does not say which Snapdragon made it, so that it has no twin", path);
    ND_TRY(nd_twin_model_open(model, check->chip, n_threads, &job.twin, err));
    ND_TRY(find_pairs(&job, err));
    ND_TRY(check_samples(&job, err));
    conclude(&job);
    return ND_GIVE(out, check);
}

const char *nd_twin_end_name(enum nd_twin_end end)
{
    static const char *const names[] = {"equal", "not-known", "differs"};
    return names[end];
}

void nd_twin_check_destroy(struct nd_twin_check **check)
{
    struct nd_twin_check *c = *check;
    if (c == NULL)
        return;
    ND_FREE_ALL(c->capture, c->device, c->chip, c->content_digest, c->tensors, c);
    *check = NULL;
}
