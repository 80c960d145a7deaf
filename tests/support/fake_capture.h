/* Captures in memory that answer like those of npudiff/capture.h: for tests of what stands on captures without
 * files, also with digests that lie. Include in one file of a binary that does not link the capture library.
 * Sizes are those of tests: up to 8 edges, 4 probes, 16 samples. */
#ifndef ND_TESTS_FAKE_CAPTURE_H
#define ND_TESTS_FAKE_CAPTURE_H

#include <stdlib.h>
#include <string.h>

#include "npudiff/capture.h"

enum { FAKE_EDGES = 8, FAKE_PROBES = 4, FAKE_SAMPLES = 16, FAKE_BYTES = 1 << 15, FAKE_ATTRS = 8 };

struct nd_capture {
    const char *path;
    enum nd_capture_status state;
    struct {
        const char *group, *key, *value;
    } attrs[FAKE_ATTRS];
    struct nd_edge edges[FAKE_EDGES]; /* strings and arrays are borrowed from the test */
    const char *providers[FAKE_EDGES];
    size_t n_edges;
    struct nd_capture_probe probes[FAKE_PROBES];
    size_t n_probes;
    unsigned char outputs[FAKE_PROBES][FAKE_EDGES][FAKE_BYTES]; /* all samples, back to back */
    bool digest_only;
    bool unstable[FAKE_EDGES];             /* the second repeat differs */
    bool lying[FAKE_EDGES];                /* the digests are not of the data */
    unsigned char inputs[FAKE_PROBES][64]; /* one byte per sample of input 0 */
    size_t n_reads;                        /* samples that were read: reset by tests */
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

size_t nd_capture_n_edges(const struct nd_capture *capture)
{
    return capture->n_edges;
}

const struct nd_edge *nd_capture_edge(const struct nd_capture *capture, size_t edge)
{
    return &capture->edges[edge];
}

const char *nd_capture_edge_provider(const struct nd_capture *capture, size_t edge)
{
    return capture->providers[edge] != NULL ? capture->providers[edge] : "";
}

size_t nd_capture_find_edge(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < capture->n_edges; i++)
        if (strcmp(capture->edges[i].name, name) == 0)
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

static size_t fake_sample_bytes(const struct nd_capture *capture, size_t edge)
{
    size_t n = 0;
    if (nd_shape_size_bytes(&capture->edges[edge].shape, capture->edges[edge].dtype, &n, NULL) != ND_OK)
        abort();
    return n;
}

struct nd_digest nd_capture_digest(const struct nd_capture *capture, size_t probe, size_t edge, size_t sample,
                                   size_t repeat)
{
    size_t n = fake_sample_bytes(capture, edge);
    if (sample >= capture->probes[probe].n_samples || repeat >= capture->probes[probe].n_repeats)
        abort();
    struct nd_digest digest = nd_digest_bytes(capture->outputs[probe][edge] + sample * n, n);
    digest.low ^= (repeat > 0 && capture->unstable[edge]) || capture->lying[edge];
    return digest;
}

bool nd_capture_has_outputs(const struct nd_capture *capture, size_t probe, size_t edge)
{
    (void)probe;
    (void)edge;
    return !capture->digest_only;
}

enum nd_status nd_capture_read_outputs(const struct nd_capture *capture, size_t probe, size_t edge,
                                       size_t first, size_t n, void *buf, struct nd_error *err)
{
    (void)err;
    size_t bytes = fake_sample_bytes(capture, edge);
    if (capture->digest_only || first + n > capture->probes[probe].n_samples)
        return ND_ERR_NOT_FOUND;
    memcpy(buf, capture->outputs[probe][edge] + first * bytes, n * bytes);
    ((struct nd_capture *)(uintptr_t)capture)->n_reads += n;
    return ND_OK;
}

enum nd_status nd_capture_read_inputs(const struct nd_capture *capture, size_t probe, size_t input,
                                      size_t first, size_t n, void *buf, struct nd_error *err)
{
    (void)err;
    (void)input;
    memcpy(buf, capture->inputs[probe] + first, n);
    return ND_OK;
}

#endif
