/* Captures in memory that answer like those of npudiff/capture.h and capture/view.h: for tests of what stands
 * on captures without files, also with digests that lie. Include in one file of a binary that takes nothing
 * else from the capture library. Sizes are those of tests: up to 8 tensors, 4 probes, 16 samples. */
#ifndef ND_TESTS_FAKE_CAPTURE_H
#define ND_TESTS_FAKE_CAPTURE_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "capture/read/view.h"
#include "core/error.h"

enum { FAKE_TENSORS = 8, FAKE_PROBES = 4, FAKE_SAMPLES = 16, FAKE_BYTES = 1 << 15, FAKE_ATTRS = 8 };

struct nd_capture {
    const char *path;
    enum nd_capture_status state;
    struct {
        const char *group, *key, *value;
    } attrs[FAKE_ATTRS];
    struct nd_tensor tensors[FAKE_TENSORS]; /* strings and arrays are borrowed from the test */
    const char *providers[FAKE_TENSORS];
    size_t n_tensors;
    struct nd_capture_probe probes[FAKE_PROBES];
    size_t n_probes;
    unsigned char outputs[FAKE_PROBES][FAKE_TENSORS][FAKE_BYTES]; /* all samples, back to back */
    unsigned char *large[FAKE_PROBES][FAKE_TENSORS];         /* instead of outputs, borrowed; NULL: outputs */
    const unsigned char *claimed[FAKE_PROBES][FAKE_TENSORS]; /* the digests are of this; NULL: of the data */
    size_t chunk_bytes[FAKE_TENSORS];                        /* 0: contiguous */
    bool digest_only;
    bool unstable[FAKE_TENSORS];           /* the first byte of later repeats differs */
    bool lying[FAKE_TENSORS];              /* the digests are not of the data */
    bool is_changed;                       /* somebody wrote into the file */
    unsigned char inputs[FAKE_PROBES][64]; /* one byte per sample of input 0 */
    atomic_size_t n_reads;                 /* calls that read outputs, and the bytes: reset by tests */
    atomic_size_t n_bytes_read;
};

enum nd_status nd_capture_open(const char *path, struct nd_capture **out, struct nd_error *err)
{
    (void)path;
    (void)out;
    (void)err;
    return ND_ERR_IO;
}

void nd_capture_close(struct nd_capture **capture)
{
    free(*capture);
    *capture = NULL;
}

const char *nd_capture_path(const struct nd_capture *capture)
{
    return capture->path;
}

enum nd_capture_status nd_capture_state(const struct nd_capture *capture)
{
    return capture->state;
}

const char *nd_capture_state_name(enum nd_capture_status state)
{
    return state == ND_CAPTURE_COMPLETE ? "complete" : state == ND_CAPTURE_FAILED ? "failed" : "partial";
}

const char *nd_capture_string(const struct nd_capture *capture, const char *group, const char *key)
{
    for (size_t i = 0; i < FAKE_ATTRS && capture->attrs[i].group != NULL; i++)
        if (strcmp(capture->attrs[i].group, group) == 0 && strcmp(capture->attrs[i].key, key) == 0)
            return capture->attrs[i].value;
    return NULL;
}

/* No list of attributes: they are asked for by name. */
size_t nd_capture_n_attrs(const struct nd_capture *capture)
{
    (void)capture;
    return 0;
}

const struct nd_attr *nd_capture_attr(const struct nd_capture *capture, size_t i)
{
    (void)capture;
    (void)i;
    return NULL;
}

/* No nodes and no logs: what placement there is, tensors tell. */
size_t nd_capture_n_nodes(const struct nd_capture *capture)
{
    (void)capture;
    return 0;
}

const struct nd_capture_node *nd_capture_node(const struct nd_capture *capture, size_t node)
{
    (void)capture;
    (void)node;
    return NULL;
}

size_t nd_capture_n_logs(const struct nd_capture *capture)
{
    (void)capture;
    return 0;
}

const char *nd_capture_log_name(const struct nd_capture *capture, size_t log)
{
    (void)capture;
    (void)log;
    return NULL;
}

const char *nd_capture_log_text(const struct nd_capture *capture, size_t log)
{
    (void)capture;
    (void)log;
    return NULL;
}

size_t nd_capture_n_tensors(const struct nd_capture *capture)
{
    return capture->n_tensors;
}

const struct nd_tensor *nd_capture_tensor(const struct nd_capture *capture, size_t tensor)
{
    return &capture->tensors[tensor];
}

const char *nd_capture_tensor_provider(const struct nd_capture *capture, size_t tensor)
{
    return capture->providers[tensor] != NULL ? capture->providers[tensor] : "";
}

size_t nd_capture_find_tensor(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < capture->n_tensors; i++)
        if (strcmp(capture->tensors[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

size_t nd_capture_n_probes(const struct nd_capture *capture)
{
    return capture->n_probes;
}

const struct nd_capture_probe *nd_capture_probe(const struct nd_capture *capture, size_t probe)
{
    return &capture->probes[probe];
}

size_t nd_capture_find_probe(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < capture->n_probes; i++)
        if (strcmp(capture->probes[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

static size_t fake_sample_bytes(const struct nd_capture *capture, size_t tensor)
{
    size_t n = 0;
    if (nd_shape_size_bytes(&capture->tensors[tensor].shape, capture->tensors[tensor].dtype, &n, NULL) != ND_OK)
        abort();
    return n;
}

static const unsigned char *fake_outputs(const struct nd_capture *capture, size_t probe, size_t tensor)
{
    const unsigned char *large = capture->large[probe][tensor];
    return large != NULL ? large : capture->outputs[probe][tensor];
}

static void fake_count_read(const struct nd_capture *capture, size_t n_bytes)
{
    struct nd_capture *counted = (struct nd_capture *)(uintptr_t)capture;
    atomic_fetch_add(&counted->n_reads, 1);
    atomic_fetch_add(&counted->n_bytes_read, n_bytes);
}

size_t nd_capture_n_runs(const struct nd_capture *capture, size_t probe, size_t tensor, size_t sample)
{
    (void)tensor;
    (void)sample;
    return nd_capture_probe(capture, probe)->n_repeats;
}

struct nd_digest nd_capture_digest(const struct nd_capture *capture, size_t probe, size_t tensor, size_t sample,
                                   size_t repeat)
{
    size_t n = fake_sample_bytes(capture, tensor);
    if (sample >= capture->probes[probe].n_samples || repeat >= capture->probes[probe].n_repeats)
        abort();
    const unsigned char *claimed = capture->claimed[probe][tensor];
    struct nd_digest digest =
        nd_digest_bytes((claimed != NULL ? claimed : fake_outputs(capture, probe, tensor)) + sample * n, n);
    digest.low ^= (repeat > 0 && capture->unstable[tensor]) || capture->lying[tensor];
    return digest;
}

const struct nd_digest *nd_capture_tensor_digest(const struct nd_capture *capture, size_t probe, size_t tensor)
{
    (void)capture, (void)probe, (void)tensor;
    return NULL; /* so that the digests themselves are compared */
}

struct nd_digest nd_capture_input_digest(const struct nd_capture *capture, size_t probe, size_t input,
                                         size_t sample)
{
    (void)input;
    return nd_digest_bytes(capture->inputs[probe] + sample, 1);
}

bool nd_capture_has_outputs(const struct nd_capture *capture, size_t probe, size_t tensor)
{
    (void)probe;
    (void)tensor;
    return !capture->digest_only;
}

enum nd_status nd_capture_read_outputs(const struct nd_probe_values *item, size_t first, size_t n, void *buf,
                                       struct nd_error *err)
{
    const struct nd_capture *capture = item->capture;
    size_t probe = item->probe, tensor = item->tensor;
    size_t bytes = fake_sample_bytes(capture, tensor);
    if (capture->digest_only || first + n > capture->probes[probe].n_samples)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, NULL, "no such outputs");
    memcpy(buf, fake_outputs(capture, probe, tensor) + first * bytes, n * bytes);
    fake_count_read(capture, n * bytes);
    return ND_OK;
}

enum nd_status nd_capture_read_repeat(const struct nd_probe_values *tensor, size_t sample, size_t repeat,
                                      void *buf, struct nd_error *err)
{
    enum nd_status status = nd_capture_read_outputs(tensor, sample, 1, buf, err);
    if (status == ND_OK && repeat > 0 && tensor->capture->unstable[tensor->tensor])
        *(unsigned char *)buf ^= 1;
    return status;
}

/* Chunked data is given in memory of exactly its size, new at every call, so that sanitizers see who reads
 * beyond a view or keeps one for too long. */
/* Fakes may lie. */
enum nd_status nd_capture_read_verified(const struct nd_probe_values *tensor, size_t first, size_t n, void *buf,
                                        struct nd_error *err)
{
    return nd_capture_read_outputs(tensor, first, n, buf, err);
}

enum nd_status nd_capture_read_repeat_verified(const struct nd_probe_values *tensor, size_t sample,
                                               size_t repeat, void *buf, struct nd_error *err)
{
    return nd_capture_read_repeat(tensor, sample, repeat, buf, err);
}

enum nd_status nd_capture_fail_damaged(const struct nd_capture *capture, size_t probe, size_t tensor,
                                       size_t sample, struct nd_error *err)
{
    return nd_fail(err, ND_E_CAPTURE_DIGEST, capture->path,
                   "'%s' is damaged: tensor '%s', probe '%s', sample %zu", capture->path,
                   capture->tensors[tensor].name, capture->probes[probe].name, sample);
}

enum nd_status nd_capture_check_content(const struct nd_capture *capture, struct nd_error *err)
{
    (void)capture;
    (void)err;
    return ND_OK;
}

enum nd_status nd_capture_view_outputs(const struct nd_probe_values *tensor, size_t first_byte, size_t n_bytes,
                                       struct nd_view_scratch *scratch, const unsigned char **out,
                                       struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    size_t total = fake_sample_bytes(capture, tensor->tensor) * capture->probes[tensor->probe].n_samples;
    if (capture->digest_only || first_byte > total || n_bytes > total - first_byte)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, NULL, "no such outputs");
    const unsigned char *bytes = fake_outputs(capture, tensor->probe, tensor->tensor) + first_byte;
    fake_count_read(capture, n_bytes);
    if (capture->chunk_bytes[tensor->tensor] == 0 || n_bytes == 0) {
        *out = bytes;
        return ND_OK;
    }
    free(scratch->bytes);
    scratch->bytes = malloc(n_bytes);
    if (scratch->bytes == NULL)
        return nd_fail_memory(err);
    memcpy(scratch->bytes, bytes, n_bytes);
    *out = scratch->bytes;
    return ND_OK;
}

void nd_view_scratch_deinit(struct nd_view_scratch *scratch)
{
    free(scratch->bytes);
    *scratch = (struct nd_view_scratch){0};
}

size_t nd_capture_outputs_chunk_bytes(const struct nd_probe_values *tensor)
{
    return tensor->capture->digest_only ? 0 : tensor->capture->chunk_bytes[tensor->tensor];
}

bool nd_capture_is_stored_alike(const struct nd_probe_values *a, const struct nd_probe_values *b,
                                size_t first_byte, size_t n_bytes, struct nd_view_scratch *scratch_a,
                                struct nd_view_scratch *scratch_b)
{
    (void)scratch_a, (void)scratch_b;
    size_t chunk_bytes = a->capture->chunk_bytes[a->tensor];
    return chunk_bytes > 0 && chunk_bytes == b->capture->chunk_bytes[b->tensor] && n_bytes > 0 &&
           !a->capture->digest_only && !b->capture->digest_only &&
           memcmp(fake_outputs(a->capture, a->probe, a->tensor) + first_byte,
                  fake_outputs(b->capture, b->probe, b->tensor) + first_byte, n_bytes) == 0;
}

enum nd_status nd_capture_check_unchanged(const struct nd_capture *capture, struct nd_error *err)
{
    return capture->is_changed
               ? nd_fail(err, ND_E_CAPTURE_CHANGED, capture->path, "'%s' was changed", capture->path)
               : ND_OK;
}

enum nd_status nd_capture_read_inputs(const struct nd_probe_values *input, size_t first, size_t n, void *buf,
                                      struct nd_error *err)
{
    (void)err;
    memcpy(buf, input->capture->inputs[input->probe] + first, n);
    return ND_OK;
}

#endif
