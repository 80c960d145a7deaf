#include "judge/golden/store_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"

enum { TYPE_BYTES = 320, DIGEST_BYTES = 33 };

/* jansson refuses NULL values, so that a failed allocation anywhere ends as a failed append. */
static void put(json_t *object, const char *key, json_t *value, bool *is_whole)
{
    if (json_object_set_new(object, key, value) != 0)
        *is_whole = false;
}

static void append(json_t *array, json_t *value, bool *is_whole)
{
    if (json_array_append_new(array, value) != 0)
        *is_whole = false;
}

const char *nd_record_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

struct nd_golden_failure nd_record_failure(const json_t *record)
{
    const json_t *failure = json_object_get(record, "failure");
    return (struct nd_golden_failure){.has_failed = json_is_object(failure),
                                      .stage = nd_record_text(failure, "stage"),
                                      .message = json_string_value(json_object_get(failure, "message")),
                                      .code = json_integer_value(json_object_get(failure, "code"))};
}

/* ---- making ---- */

/* Equal bytes mean equal tensors only when the types are equal, too. */
static void describe_type(const struct nd_edge *edge, char out[static TYPE_BYTES])
{
    char shape[ND_MAX_RANK * 21 + 16] = "?";
    if (edge->shape.rank >= 0)
        nd_shape_format(&edge->shape, shape, sizeof shape);
    int n = snprintf(out, TYPE_BYTES, "%s %s", nd_dtype_name(edge->dtype), shape);
    if (edge->quant.n == 0)
        return;
    struct nd_digest digest[2] = {
        nd_digest_bytes(edge->quant.scale, edge->quant.n * sizeof *edge->quant.scale),
        nd_digest_bytes(edge->quant.zero_point, edge->quant.n * sizeof *edge->quant.zero_point)};
    struct nd_digest both = nd_digest_bytes(digest, sizeof digest);
    snprintf(out + n, TYPE_BYTES - (size_t)n, " axis %d %016" PRIx64, edge->quant.axis, both.low);
}

/* Digest of the digests of all samples, first repeat. */
static bool combine(const struct nd_capture *capture, size_t probe, size_t edge, char out[static DIGEST_BYTES])
{
    size_t n = nd_capture_probe(capture, probe)->n_samples;
    struct nd_digest *all = nd_calloc(n, sizeof *all);
    for (size_t s = 0; all != NULL && s < n; s++)
        all[s] = nd_capture_digest(capture, probe, edge, s, 0);
    if (all == NULL)
        return false;
    struct nd_digest digest = nd_digest_bytes(all, n * sizeof *all);
    free(all);
    snprintf(out, DIGEST_BYTES, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
    return true;
}

static json_t *edge_record(const struct nd_capture *capture, size_t e, bool *is_whole)
{
    const struct nd_edge *edge = nd_capture_edge(capture, e);
    char type[TYPE_BYTES], digest[DIGEST_BYTES] = "";
    describe_type(edge, type);
    json_t *record = json_object(), *digests = json_array();
    put(record, "name", nd_json_string(edge->name), is_whole);
    put(record, "op_types", nd_json_string(edge->op_types), is_whole);
    put(record, "type", json_string(type), is_whole);
    for (size_t p = 0; *is_whole && p < nd_capture_n_probes(capture); p++) {
        *is_whole = combine(capture, p, e, digest);
        append(digests, json_string(digest), is_whole);
    }
    put(record, "digests", digests, is_whole);
    return record;
}

/* Samples of which repeats are not alike, on any edge. */
static size_t count_unstable(const struct nd_capture *capture, size_t p)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t n_unstable = 0;
    for (size_t s = 0; s < probe->n_samples; s++) {
        bool is_stable = true;
        for (size_t e = 0; is_stable && e < nd_capture_n_edges(capture); e++)
            for (size_t r = 1, n = nd_capture_n_runs(capture, p, e, s); is_stable && r < n; r++)
                is_stable = nd_digest_equal(nd_capture_digest(capture, p, e, s, 0),
                                            nd_capture_digest(capture, p, e, s, r));
        n_unstable += !is_stable;
    }
    return n_unstable;
}

static json_t *probe_record(const struct nd_capture *capture, size_t p, bool *is_whole)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    json_t *record = json_object();
    put(record, "name", nd_json_string(probe->name), is_whole);
    put(record, "samples", json_integer((json_int_t)probe->n_samples), is_whole);
    put(record, "unstable", json_integer((json_int_t)count_unstable(capture, p)), is_whole);
    return record;
}

static json_t *failure_record(const struct nd_capture *capture, bool *is_whole)
{
    json_t *record = json_object();
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    json_int_t code = 0;
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (strcmp(attr->group, "failure") == 0 && strcmp(attr->key, "code") == 0 && attr->type == ND_ATTR_I64)
            code = (json_int_t)attr->i64;
    }
    put(record, "stage", nd_json_string(stage != NULL ? stage : ""), is_whole);
    put(record, "code", json_integer(code), is_whole);
    put(record, "message", nd_json_string(message != NULL ? message : ""), is_whole);
    return record;
}

json_t *nd_record_of_capture(const struct nd_capture *capture)
{
    bool is_whole = true;
    enum nd_capture_status state = nd_capture_state(capture);
    json_t *record = json_object(), *probes = json_array(), *edges = json_array();
    put(record, "axes", nd_axes_of_capture(capture), &is_whole);
    put(record, "status", json_string(nd_capture_state_name(state)), &is_whole);
    put(record, "failure", state == ND_CAPTURE_FAILED ? failure_record(capture, &is_whole) : json_null(),
        &is_whole);
    for (size_t p = 0; is_whole && p < nd_capture_n_probes(capture); p++)
        append(probes, probe_record(capture, p, &is_whole), &is_whole);
    for (size_t e = 0; is_whole && e < nd_capture_n_edges(capture); e++)
        append(edges, edge_record(capture, e, &is_whole), &is_whole);
    put(record, "probes", probes, &is_whole);
    put(record, "edges", edges, &is_whole);
    if (!is_whole) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

bool nd_record_identity(const json_t *record, char hex[static ND_SHA256_HEX_BYTES])
{
    static const char *const parts[] = {"axes", "status", "failure", "probes", "edges"};
    json_t *plain = json_object();
    bool is_whole = plain != NULL;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        is_whole = is_whole && json_object_set(plain, parts[i], json_object_get(record, parts[i])) == 0;
    char *text = is_whole ? json_dumps(plain, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(plain);
    if (text == NULL)
        return false;
    nd_sha256_bytes(text, strlen(text), hex);
    free(text);
    return true;
}

/* ---- checking ---- */

static bool is_sound_edge(const json_t *edge, size_t n_probes)
{
    const json_t *digests = json_object_get(edge, "digests"), *digest;
    size_t i;
    if (!json_is_string(json_object_get(edge, "name")) || !json_is_string(json_object_get(edge, "type")) ||
        !json_is_array(digests) || json_array_size(digests) != n_probes)
        return false;
    json_array_foreach(digests, i, digest)
    {
        if (!json_is_string(digest) || json_string_length(digest) != DIGEST_BYTES - 1)
            return false;
    }
    return true;
}

const char *nd_record_problem(const json_t *record)
{
    const json_t *probes = json_object_get(record, "probes"), *edges = json_object_get(record, "edges"), *item;
    const json_t *failure = json_object_get(record, "failure");
    size_t i;
    if (!nd_axes_are_sound(json_object_get(record, "axes")))
        return "'axes' is not six objects of texts";
    if (!json_is_string(json_object_get(record, "status")))
        return "'status' is not a text";
    if (!json_is_null(failure) && !json_is_object(failure))
        return "'failure' is neither null nor an object";
    if (!json_is_array(probes) || !json_is_array(edges))
        return "'probes' and 'edges' are not both lists";
    json_array_foreach(probes, i, item)
    {
        if (!json_is_string(json_object_get(item, "name")) ||
            !json_is_integer(json_object_get(item, "samples")))
            return "a probe has no name or no number of samples";
    }
    json_array_foreach(edges, i, item)
    {
        if (!is_sound_edge(item, json_array_size(probes)))
            return "an edge has no name, no type or not one digest for each probe";
    }
    return NULL;
}

/* ---- hiding ---- */

static json_t *hidden_text(const json_t *object, const char *key)
{
    char hidden[ND_HIDDEN_BYTES];
    nd_axes_hide(nd_record_text(object, key), hidden);
    return json_string(hidden);
}

json_t *nd_record_hidden(const json_t *record)
{
    bool is_whole = true;
    const json_t *item, *failure = json_object_get(record, "failure");
    size_t i;
    json_t *hidden = json_object(), *probes = json_array(), *edges = json_array();
    put(hidden, "axes", nd_axes_hidden(json_object_get(record, "axes")), &is_whole);
    put(hidden, "status", json_incref(json_object_get(record, "status")), &is_whole);
    put(hidden, "failure",
        json_is_null(failure) ? json_null()
                              : json_pack("{s:s, s:I}", "stage", nd_record_text(failure, "stage"), "code",
                                          json_integer_value(json_object_get(failure, "code"))),
        &is_whole);
    json_array_foreach(json_object_get(record, "probes"), i, item)
    {
        append(probes,
               json_pack("{s:o, s:I, s:I}", "name", hidden_text(item, "name"), "samples",
                         json_integer_value(json_object_get(item, "samples")), "unstable",
                         json_integer_value(json_object_get(item, "unstable"))),
               &is_whole);
    }
    json_array_foreach(json_object_get(record, "edges"), i, item)
    {
        append(edges,
               json_pack("{s:o, s:o, s:O}", "name", hidden_text(item, "name"), "type",
                         hidden_text(item, "type"), "digests", json_object_get(item, "digests")),
               &is_whole);
    }
    put(hidden, "probes", probes, &is_whole);
    put(hidden, "edges", edges, &is_whole);
    if (!is_whole) {
        json_decref(hidden);
        hidden = NULL;
    }
    return hidden;
}
