#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/read/capture_internal.h"
#include "capture/fetch/fetch.h"

static enum nd_status list_objects(struct nd_capture *capture, struct nd_error *err)
{
    capture->objects = nd_calloc(capture->index->n_objects, sizeof *capture->objects);
    if (capture->objects == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < capture->index->n_objects; i++) {
        const struct nd_index_object *found = &capture->index->objects[i];
        if (found->is_group)
            continue;
        struct nd_capture_object *object = &capture->objects[capture->n_objects++];
        *object = (struct nd_capture_object){
            .path = found->path,
            .dtype = found->dtype,
            .text_bytes = found->dtype == ND_DTYPE_NONE ? found->elem_bytes : 0,
            .shape = found->shape,
            .stored_bytes = found->stored_bytes,
        };
        if (nd_index_attr(found, "dtype") == NULL)
            continue;
        enum nd_status status = nd_capture_tensor_dtype(found, &object->dtype, err);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/* So that digests are read when they are first asked for. */
static struct nd_deferred *deferred_create(void)
{
    struct nd_deferred *deferred = nd_calloc(1, sizeof *deferred);
    if (deferred != NULL && pthread_mutex_init(&deferred->lock, NULL) != 0) {
        free(deferred);
        return NULL;
    }
    return deferred;
}

static enum nd_status open_capture(const char *path, bool is_deferred, struct nd_capture **out,
                                   struct nd_error *err)
{
    struct nd_capture *capture = nd_calloc(1, sizeof *capture);
    if (capture == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    capture->path = nd_fetch_shown(path);
    capture->deferred = is_deferred ? deferred_create() : NULL;
    if (capture->path == NULL || (is_deferred && capture->deferred == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_index_open(path, &nd_capture_schema, &capture->index, err);
    if (status == ND_OK)
        status = nd_capture_load_attrs(capture, err);
    if (status == ND_OK)
        status = nd_capture_load_edges(capture, err);
    if (status == ND_OK)
        status = nd_capture_load_nodes(capture, err);
    if (status == ND_OK)
        status = nd_capture_load_logs(capture, err);
    if (status == ND_OK)
        status = nd_capture_load_findings(capture, err);
    if (status == ND_OK)
        status = nd_capture_load_probes(capture, err);
    if (status == ND_OK)
        status = list_objects(capture, err);
    if (status == ND_OK) {
        *out = capture;
        return ND_OK;
    }
    nd_error_context(err, "'%s'", capture->path != NULL ? capture->path : path);
    nd_capture_close(&capture);
    return status;
}

enum nd_status nd_capture_open_unchecked(const char *path, struct nd_capture **out, struct nd_error *err)
{
    return open_capture(path, false, out, err);
}

static enum nd_status open_checked(const char *path, bool is_deferred, struct nd_capture **out,
                                   struct nd_error *err)
{
    struct nd_capture *capture = NULL;
    enum nd_status status = open_capture(path, is_deferred, &capture, err);
    if (status == ND_OK)
        status = nd_capture_check_content(capture, err);
    if (status != ND_OK) {
        nd_capture_close(&capture);
        return status;
    }
    capture->is_checked = true;
    *out = capture;
    return ND_OK;
}

enum nd_status nd_capture_open(const char *path, struct nd_capture **out, struct nd_error *err)
{
    return open_checked(path, false, out, err);
}

enum nd_status nd_capture_open_deferred(const char *path, struct nd_capture **out, struct nd_error *err)
{
    return open_checked(path, true, out, err);
}

static void close_tables(struct nd_capture *capture)
{
    for (size_t i = 0; i < capture->n_attrs; i++) {
        free(capture->attrs[i].group);
        free(capture->attrs[i].key);
        free(capture->attrs[i].string);
    }
    for (size_t i = 0; i < capture->n_edges; i++) {
        if (capture->edges != NULL)
            nd_edge_deinit(&capture->edges[i]);
        if (capture->providers != NULL)
            free(capture->providers[i]);
    }
    nd_stored_table_deinit(&nd_node_table, capture->nodes, capture->n_nodes);
    nd_stored_table_deinit(&nd_finding_table, capture->findings, capture->n_findings);
    for (size_t i = 0; i < capture->n_logs; i++) {
        free(capture->logs[i].name);
        free(capture->logs[i].text);
    }
}

void nd_capture_close(struct nd_capture **capture_at)
{
    struct nd_capture *capture = *capture_at;
    if (capture == NULL)
        return;
    for (size_t i = 0; i < capture->n_probes; i++)
        nd_probe_data_deinit(&capture->probes[i], capture->n_edges);
    close_tables(capture);
    free(capture->attrs);
    free(capture->edges);
    free(capture->providers);
    free(capture->edge_keys);
    free(capture->nodes);
    free(capture->probes);
    free(capture->logs);
    free(capture->findings);
    free(capture->objects);
    if (capture->deferred != NULL)
        pthread_mutex_destroy(&capture->deferred->lock);
    free(capture->deferred);
    free(capture->path);
    nd_index_close(&capture->index);
    free(capture);
    *capture_at = NULL;
}

bool nd_capture_is_url(const char *name)
{
    return nd_fetch_is_url(name);
}

char *nd_capture_shown_name(const char *name)
{
    return nd_fetch_shown(name);
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
    switch (state) {
    case ND_CAPTURE_COMPLETE:
        return "complete";
    case ND_CAPTURE_FAILED:
        return "failed";
    case ND_CAPTURE_PARTIAL:
        return "partial";
    }
    return "unknown";
}

size_t nd_capture_n_attrs(const struct nd_capture *capture)
{
    return capture->n_attrs;
}

const struct nd_attr *nd_capture_attr(const struct nd_capture *capture, size_t i)
{
    assert(i < capture->n_attrs);
    return &capture->attrs[i];
}

const char *nd_capture_string(const struct nd_capture *capture, const char *group, const char *key)
{
    for (size_t i = 0; i < capture->n_attrs; i++)
        if (strcmp(capture->attrs[i].group, group) == 0 && strcmp(capture->attrs[i].key, key) == 0)
            return capture->attrs[i].string;
    return NULL;
}

size_t nd_capture_n_edges(const struct nd_capture *capture)
{
    return capture->n_edges;
}

const struct nd_edge *nd_capture_edge(const struct nd_capture *capture, size_t edge)
{
    assert(edge < capture->n_edges);
    return &capture->edges[edge];
}

const char *nd_capture_edge_provider(const struct nd_capture *capture, size_t edge)
{
    assert(edge < capture->n_edges);
    return capture->providers[edge];
}

static int compare_name(const void *name, const void *key)
{
    return strcmp(name, ((const struct nd_edge_key *)key)->name);
}

size_t nd_capture_find_edge(const struct nd_capture *capture, const char *name)
{
    const struct nd_edge_key *key =
        bsearch(name, capture->edge_keys, capture->n_edges, sizeof *capture->edge_keys, compare_name);
    return key != NULL ? key->edge : SIZE_MAX;
}

size_t nd_capture_n_nodes(const struct nd_capture *capture)
{
    return capture->n_nodes;
}

const struct nd_capture_node *nd_capture_node(const struct nd_capture *capture, size_t node)
{
    assert(node < capture->n_nodes);
    return &capture->nodes[node];
}

size_t nd_capture_n_probes(const struct nd_capture *capture)
{
    return capture->n_probes;
}

const struct nd_capture_probe *nd_capture_probe(const struct nd_capture *capture, size_t probe)
{
    assert(probe < capture->n_probes);
    return &capture->probes[probe].probe;
}

size_t nd_capture_find_probe(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < capture->n_probes; i++)
        if (strcmp(capture->probes[i].probe.name, name) == 0)
            return i;
    return SIZE_MAX;
}

size_t nd_capture_n_logs(const struct nd_capture *capture)
{
    return capture->n_logs;
}

const char *nd_capture_log_name(const struct nd_capture *capture, size_t log)
{
    assert(log < capture->n_logs);
    return capture->logs[log].name;
}

const char *nd_capture_log_text(const struct nd_capture *capture, size_t log)
{
    assert(log < capture->n_logs);
    return capture->logs[log].text;
}

size_t nd_capture_n_findings(const struct nd_capture *capture)
{
    return capture->n_findings;
}

const struct nd_capture_finding *nd_capture_finding(const struct nd_capture *capture, size_t i)
{
    assert(i < capture->n_findings);
    return &capture->findings[i];
}

struct nd_digest nd_capture_input_digest(const struct nd_capture *capture, size_t probe, size_t input,
                                         size_t sample)
{
    assert(probe < capture->n_probes);
    const struct nd_probe_data *data = &capture->probes[probe];
    assert(input < data->probe.n_inputs && sample < data->probe.n_samples_expected);
    return data->inputs[input].digests[sample];
}

bool nd_capture_has_outputs(const struct nd_capture *capture, size_t probe, size_t edge)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    return capture->probes[probe].edges[edge].outputs != NULL;
}

size_t nd_capture_n_objects(const struct nd_capture *capture)
{
    return capture->n_objects;
}

const struct nd_capture_object *nd_capture_object(const struct nd_capture *capture, size_t i)
{
    assert(i < capture->n_objects);
    return &capture->objects[i];
}
