/* How one record stands to another. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "judge/golden/store_record.h"

struct pairing {
    const json_t *ref, *test, *shown; /* tensors of each, `shown` with plain names */
    const json_t *ref_probes, *test_probes, *shown_probes;
    size_t *test_probe; /* [probes of ref]: that of test with the same inputs, or SIZE_MAX */
    struct nd_golden_difference *out;
};

static const json_t *member(const json_t *array, size_t i, const char *key)
{
    return json_object_get(json_array_get(array, i), key);
}

static const char *name_of(const json_t *array, size_t i)
{
    return nd_record_text(json_array_get(array, i), "name");
}

static size_t find(const json_t *list, size_t hint, const char *name)
{
    size_t n = json_array_size(list);
    if (hint < n && strcmp(name_of(list, hint), name) == 0)
        return hint; /* mostly both have the same */
    for (size_t i = 0; i < n; i++)
        if (strcmp(name_of(list, i), name) == 0)
            return i;
    return SIZE_MAX;
}

/* Room for all that the lists can come to. */
static bool make_room(struct pairing *pairing)
{
    struct nd_golden_difference *out = pairing->out;
    size_t n_probes = json_array_size(pairing->ref_probes);
    pairing->test_probe = nd_calloc(n_probes, sizeof *pairing->test_probe);
    out->probes.items = nd_calloc(n_probes, sizeof *out->probes.items);
    out->different = nd_calloc(json_array_size(pairing->ref), sizeof *out->different);
    out->missing.items = nd_calloc(json_array_size(pairing->ref), sizeof *out->missing.items);
    out->extra.items = nd_calloc(json_array_size(pairing->test), sizeof *out->extra.items);
    return pairing->test_probe != NULL && out->probes.items != NULL && out->different != NULL &&
           out->missing.items != NULL && out->extra.items != NULL;
}

static const char *probe_inputs(const json_t *record, const char *name)
{
    const json_t *axes = json_object_get(record, "axes");
    return nd_record_text(json_object_get(axes, nd_axis_name(ND_AXIS_PROBES)), name);
}

static void pair_probes(struct pairing *pairing, const json_t *ref, const json_t *test)
{
    struct nd_golden_names *common = &pairing->out->probes;
    for (size_t p = 0; p < json_array_size(pairing->ref_probes); p++) {
        const char *name = name_of(pairing->ref_probes, p);
        size_t at = find(pairing->test_probes, p, name);
        const char *inputs = probe_inputs(ref, name);
        bool is_same = at != SIZE_MAX && inputs[0] != '\0' && strcmp(inputs, probe_inputs(test, name)) == 0;
        pairing->test_probe[p] = is_same ? at : SIZE_MAX;
        if (is_same)
            common->items[common->n++] = name_of(pairing->shown_probes, p);
    }
}

/* Other types, and another number of completed samples, are a difference on all probes. */
static bool is_equal_on(const struct pairing *pairing, size_t e, size_t at, size_t p)
{
    const json_t *ref = json_array_get(pairing->ref, e), *test = json_array_get(pairing->test, at);
    size_t q = pairing->test_probe[p];
    return strcmp(nd_record_text(ref, "type"), nd_record_text(test, "type")) == 0 &&
           json_equal(json_array_get(json_object_get(ref, "digests"), p),
                      json_array_get(json_object_get(test, "digests"), q)) &&
           json_equal(member(pairing->ref_probes, p, "samples"), member(pairing->test_probes, q, "samples"));
}

/* Tensor e of ref and `at` of test; it comes among the different ones when it is. False: out of memory. */
static bool pair_tensor(struct pairing *pairing, size_t e, size_t at)
{
    struct nd_golden_difference *out = pairing->out;
    size_t n_probes = json_array_size(pairing->ref_probes);
    const json_t *shown = json_array_get(pairing->shown, e);
    const char **probes = nd_calloc(n_probes, sizeof *probes);
    size_t n = 0;
    if (probes == NULL)
        return false;
    for (size_t p = 0; p < n_probes; p++)
        if (pairing->test_probe[p] != SIZE_MAX && !is_equal_on(pairing, e, at, p))
            probes[n++] = name_of(pairing->shown_probes, p);
    if (n == 0) {
        out->n_equal++;
        free(probes);
        return true;
    }
    out->different[out->n_different++] =
        (struct nd_golden_tensor){.name = nd_record_text(shown, "name"),
                                  .op_types = nd_record_text(shown, "op_types"),
                                  .index = e,
                                  .n_probes = n,
                                  .probes = probes};
    return true;
}

static bool pair_tensors(struct pairing *pairing)
{
    struct nd_golden_difference *out = pairing->out;
    bool is_whole = true;
    out->n_tensors = json_array_size(pairing->ref);
    for (size_t e = 0; is_whole && e < out->n_tensors; e++) {
        size_t at = find(pairing->test, e, name_of(pairing->ref, e));
        if (at != SIZE_MAX)
            is_whole = pair_tensor(pairing, e, at);
        else
            out->missing.items[out->missing.n++] = name_of(pairing->shown, e);
    }
    for (size_t e = 0; e < json_array_size(pairing->test); e++)
        if (find(pairing->ref, e, name_of(pairing->test, e)) == SIZE_MAX)
            out->extra.items[out->extra.n++] = name_of(pairing->test, e);
    return is_whole;
}

static bool is_same_end(const json_t *ref, const json_t *test)
{
    struct nd_golden_failure a = nd_record_failure(ref), b = nd_record_failure(test);
    return strcmp(nd_record_text(ref, "status"), nd_record_text(test, "status")) == 0 &&
           a.has_failed == b.has_failed && a.code == b.code && strcmp(a.stage, b.stage) == 0;
}

enum nd_status nd_record_compare(const json_t *ref, const json_t *test, const json_t *shown,
                                 struct nd_golden_difference *out, struct nd_error *err)
{
    const json_t *ref_axes = json_object_get(ref, "axes"), *test_axes = json_object_get(test, "axes");
    *out = (struct nd_golden_difference){0};
    struct pairing pairing = {.ref = json_object_get(ref, "edges"),
                              .test = json_object_get(test, "edges"),
                              .shown = json_object_get(shown, "edges"),
                              .ref_probes = json_object_get(ref, "probes"),
                              .test_probes = json_object_get(test, "probes"),
                              .shown_probes = json_object_get(shown, "probes"),
                              .out = out};
    const json_t *const owners[] = {ref_axes, test, shown};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        out->owners[i] = json_incref((json_t *)(uintptr_t)owners[i]);
    bool is_whole = make_room(&pairing) && nd_axes_compare(ref_axes, test_axes, out);
    if (is_whole) {
        pair_probes(&pairing, ref, test);
        is_whole = pair_tensors(&pairing);
    }
    out->is_same_chipset = strcmp(nd_axes_chipset(ref_axes), nd_axes_chipset(test_axes)) == 0;
    out->is_same_end = is_same_end(ref, test);
    free(pairing.test_probe);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

void nd_record_difference_deinit(struct nd_golden_difference *difference)
{
    for (size_t i = 0; i < difference->n_different; i++)
        free(difference->different[i].probes);
    free(difference->different);
    free(difference->changes);
    free(difference->probes.items);
    free(difference->missing.items);
    free(difference->extra.items);
    for (size_t i = 0; i < sizeof difference->owners / sizeof difference->owners[0]; i++)
        json_decref(difference->owners[i]);
    *difference = (struct nd_golden_difference){0};
}

bool nd_record_is_comparable(const struct nd_golden_difference *d)
{
    return d->is_same_model && d->probes.n > 0;
}

bool nd_record_is_equal(const struct nd_golden_difference *d)
{
    return d->is_same_end && d->n_different == 0 && d->missing.n == 0 && d->extra.n == 0;
}
