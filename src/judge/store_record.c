#include "judge/store_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sha256.h"

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

static json_t *member(const json_t *array, size_t i, const char *key)
{
    return json_object_get(json_array_get(array, i), key);
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
    put(record, "name", nd_axes_text(edge->name), is_whole);
    put(record, "op_types", nd_axes_text(edge->op_types), is_whole);
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
            for (size_t r = 1; is_stable && r < probe->n_repeats; r++)
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
    put(record, "name", nd_axes_text(probe->name), is_whole);
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
    put(record, "stage", nd_axes_text(stage != NULL ? stage : ""), is_whole);
    put(record, "code", json_integer(code), is_whole);
    put(record, "message", nd_axes_text(message != NULL ? message : ""), is_whole);
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

/* ---- comparing ---- */

struct pairing {
    const json_t *ref, *test, *shown; /* edges of each, `shown` with plain names */
    const json_t *ref_probes, *test_probes, *shown_probes;
    size_t *test_probe; /* [probes of ref]: that of test with the same inputs, or SIZE_MAX */
    json_t *out;
    size_t n_equal;
    bool is_whole;
};

static size_t find(const json_t *list, size_t hint, const char *name)
{
    size_t n = json_array_size(list);
    if (hint < n && strcmp(nd_record_text(json_array_get(list, hint), "name"), name) == 0)
        return hint; /* mostly both have the same */
    for (size_t i = 0; i < n; i++)
        if (strcmp(nd_record_text(json_array_get(list, i), "name"), name) == 0)
            return i;
    return SIZE_MAX;
}

static const char *probe_inputs(const json_t *record, const char *name)
{
    const json_t *axes = json_object_get(record, "axes");
    return nd_record_text(json_object_get(axes, nd_axis_name(ND_AXIS_PROBES)), name);
}

static void pair_probes(struct pairing *pairing, const json_t *ref, const json_t *test)
{
    json_t *common = json_array();
    for (size_t p = 0; pairing->is_whole && p < json_array_size(pairing->ref_probes); p++) {
        const char *name = nd_record_text(json_array_get(pairing->ref_probes, p), "name");
        size_t at = find(pairing->test_probes, p, name);
        const char *inputs = probe_inputs(ref, name);
        bool is_same = at != SIZE_MAX && inputs[0] != '\0' && strcmp(inputs, probe_inputs(test, name)) == 0;
        pairing->test_probe[p] = is_same ? at : SIZE_MAX;
        if (is_same)
            append(common, json_incref(member(pairing->shown_probes, p, "name")), &pairing->is_whole);
    }
    put(pairing->out, "probes", common, &pairing->is_whole);
}

/* Names of the probes on which an edge differs. Other types, and another number of completed samples, are a
 * difference on all of them. */
static json_t *differing_probes(struct pairing *pairing, size_t e, size_t at)
{
    json_t *names = json_array();
    const json_t *ref = json_array_get(pairing->ref, e), *test = json_array_get(pairing->test, at);
    bool is_other_type = strcmp(nd_record_text(ref, "type"), nd_record_text(test, "type")) != 0;
    for (size_t p = 0; p < json_array_size(pairing->ref_probes); p++) {
        size_t q = pairing->test_probe[p];
        if (q == SIZE_MAX)
            continue;
        bool is_equal =
            json_equal(json_array_get(json_object_get(ref, "digests"), p),
                       json_array_get(json_object_get(test, "digests"), q)) &&
            json_equal(member(pairing->ref_probes, p, "samples"), member(pairing->test_probes, q, "samples"));
        if (is_other_type || !is_equal)
            append(names, json_incref(member(pairing->shown_probes, p, "name")), &pairing->is_whole);
    }
    return names;
}

static void pair_edges(struct pairing *pairing)
{
    json_t *different = json_array(), *missing = json_array(), *extra = json_array();
    for (size_t e = 0; pairing->is_whole && e < json_array_size(pairing->ref); e++) {
        size_t at = find(pairing->test, e, nd_record_text(json_array_get(pairing->ref, e), "name"));
        const json_t *shown = json_array_get(pairing->shown, e);
        if (at == SIZE_MAX) {
            append(missing, json_incref(json_object_get(shown, "name")), &pairing->is_whole);
            continue;
        }
        json_t *probes = differing_probes(pairing, e, at);
        if (json_array_size(probes) == 0)
            pairing->n_equal++;
        else
            append(different,
                   json_pack("{s:s, s:s, s:I, s:O}", "name", nd_record_text(shown, "name"), "op_types",
                             nd_record_text(shown, "op_types"), "index", (json_int_t)e, "probes", probes),
                   &pairing->is_whole);
        json_decref(probes);
    }
    for (size_t e = 0; pairing->is_whole && e < json_array_size(pairing->test); e++)
        if (find(pairing->ref, e, nd_record_text(json_array_get(pairing->test, e), "name")) == SIZE_MAX)
            append(extra, json_incref(member(pairing->test, e, "name")), &pairing->is_whole);
    put(pairing->out, "n_edges", json_integer((json_int_t)json_array_size(pairing->ref)), &pairing->is_whole);
    put(pairing->out, "n_equal", json_integer((json_int_t)pairing->n_equal), &pairing->is_whole);
    put(pairing->out, "different", different, &pairing->is_whole);
    put(pairing->out, "missing", missing, &pairing->is_whole);
    put(pairing->out, "extra", extra, &pairing->is_whole);
}

static bool is_same_end(const json_t *ref, const json_t *test)
{
    const json_t *a = json_object_get(ref, "failure"), *b = json_object_get(test, "failure");
    return json_equal(json_object_get(ref, "status"), json_object_get(test, "status")) &&
           json_equal(json_object_get(a, "code"), json_object_get(b, "code")) ==
               (json_is_object(a) && json_is_object(b)) &&
           strcmp(nd_record_text(a, "stage"), nd_record_text(b, "stage")) == 0;
}

static void pair_axes(struct pairing *pairing, const json_t *ref, const json_t *test)
{
    json_t *changed = json_array(), *names = json_array();
    unsigned int differing = nd_axes_compare(json_object_get(ref, "axes"), json_object_get(test, "axes"),
                                             changed, &pairing->is_whole);
    for (enum nd_axis a = 0; a < ND_N_AXES; a++)
        if ((differing & 1u << a) != 0)
            append(names, json_string(nd_axis_name(a)), &pairing->is_whole);
    put(pairing->out, "axes", names, &pairing->is_whole);
    put(pairing->out, "changed", changed, &pairing->is_whole);
    put(pairing->out, "same_model", json_boolean((differing & 1u << ND_AXIS_MODEL) == 0), &pairing->is_whole);
    bool is_same_chipset = strcmp(nd_axes_chipset(json_object_get(ref, "axes")),
                                  nd_axes_chipset(json_object_get(test, "axes"))) == 0;
    put(pairing->out, "same_chipset", json_boolean(is_same_chipset), &pairing->is_whole);
    put(pairing->out, "same_end", json_boolean(is_same_end(ref, test)), &pairing->is_whole);
}

json_t *nd_record_compare(const json_t *ref, const json_t *test, const json_t *shown)
{
    struct pairing pairing = {.ref = json_object_get(ref, "edges"),
                              .test = json_object_get(test, "edges"),
                              .shown = json_object_get(shown, "edges"),
                              .ref_probes = json_object_get(ref, "probes"),
                              .test_probes = json_object_get(test, "probes"),
                              .shown_probes = json_object_get(shown, "probes"),
                              .out = json_object(),
                              .is_whole = true};
    pairing.test_probe = nd_calloc(json_array_size(pairing.ref_probes), sizeof *pairing.test_probe);
    pairing.is_whole = pairing.test_probe != NULL;
    if (pairing.is_whole) {
        pair_axes(&pairing, ref, test);
        pair_probes(&pairing, ref, test);
        pair_edges(&pairing);
    }
    free(pairing.test_probe);
    if (!pairing.is_whole) {
        json_decref(pairing.out);
        pairing.out = NULL;
    }
    return pairing.out;
}

size_t nd_record_count(const json_t *comparison, const char *list)
{
    return json_array_size(json_object_get(comparison, list));
}

bool nd_record_is_comparable(const json_t *comparison)
{
    return json_is_true(json_object_get(comparison, "same_model")) && nd_record_count(comparison, "probes") > 0;
}

bool nd_record_is_equal(const json_t *comparison)
{
    return json_is_true(json_object_get(comparison, "same_end")) &&
           nd_record_count(comparison, "different") == 0 && nd_record_count(comparison, "missing") == 0 &&
           nd_record_count(comparison, "extra") == 0;
}
