/* A part of a comparison as JSON. */
#include <jansson.h>

#include "compare/engine/part.h"
#include "core/documents/json_out.h"
#include "core/error.h"

/* jansson refuses NULL values with -1, and so a failed allocation anywhere ends as a failed set: it is
 * remembered. */
struct writer {
    const struct nd_comparison *comparison;
    bool failed;
};

static const char *cut_name(enum nd_cut cut)
{
    static const char *const names[] = {"none", "tensors", "samples"};
    return names[cut];
}

static void put(struct writer *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void push(struct writer *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        w->failed = true;
}

/* Names need not be UTF-8: they are kept as the digest of their bytes. */
static json_t *name_value(const char *name)
{
    char digits[40];
    nd_part_name(name, digits);
    return json_string(digits);
}

static json_t *tensor_value(struct writer *w, const struct nd_compared_tensor *tensor)
{
    json_t *object = json_object(), *pairs = json_array();
    put(w, object, "name", name_value(tensor->name));
    put(w, object, "gate", json_string(tensor->gate));
    for (size_t p = 0; p < w->comparison->n_pairs; p++) {
        json_t *probes = json_array();
        for (size_t i = 0; i < w->comparison->n_probes; i++) {
            const char *state = tensor->pairs[p].probes[i].state;
            push(w, probes, state != NULL ? json_string(state) : json_null());
        }
        push(w, pairs, probes);
    }
    put(w, object, "pairs", pairs);
    return object;
}

static json_t *counts_value(struct writer *w, const size_t *counts, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        push(w, array, json_integer((json_int_t)counts[i]));
    return array;
}

static json_t *top1_value(struct writer *w, const struct nd_top1 *entry)
{
    json_t *object = json_object(), *devices = json_array(), *pairs = json_array();
    for (size_t c = 0; c < w->comparison->n_devices; c++) {
        const struct nd_top1_device *d = &entry->devices[c];
        size_t counts[] = {d->exists, d->n_samples, d->n_invalid, d->n_correct};
        push(w, devices, counts_value(w, counts, ND_PART_DEVICE_COUNTS));
    }
    for (size_t t = 1; t < w->comparison->n_devices; t++) {
        const struct nd_top1_pair *p = &entry->pairs[t - 1];
        size_t counts[] = {p->exists, p->n_samples, p->n_agree, p->n_lost, p->n_gained, p->n_changed_wrong};
        push(w, pairs, counts_value(w, counts, ND_PART_PAIR_COUNTS));
    }
    put(w, object, "devices", devices);
    put(w, object, "pairs", pairs);
    return object;
}

enum nd_status nd_compare_part_format(const struct nd_comparison *comparison, char **out, struct nd_error *err)
{
    if (comparison->cut == ND_CUT_NONE)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "this comparison is whole, not a part");
    struct writer w = {.comparison = comparison};
    json_t *root = nd_json_document(ND_DOCUMENT_PART, json_object()), *captures = json_array(),
           *probes = json_array(), *tensors = json_array(), *top1 = json_array();
    for (size_t c = 0; c < comparison->n_devices; c++)
        push(&w, captures, json_string(comparison->devices[c].content_digest));
    for (size_t p = 0; p < comparison->n_probes; p++)
        push(&w, probes, name_value(comparison->probes[p].name));
    for (size_t e = 0; e < comparison->n_tensors; e++)
        push(&w, tensors, tensor_value(&w, &comparison->tensors[e]));
    for (size_t i = 0; i < comparison->n_top1; i++)
        push(&w, top1, top1_value(&w, &comparison->top1[i]));
    put(&w, root, "npudiff_part", json_integer(ND_PART_FORMAT));
    put(&w, root, "cut", json_string(cut_name(comparison->cut)));
    put(&w, root, "part", json_integer((json_int_t)comparison->part));
    put(&w, root, "parts", json_integer((json_int_t)comparison->n_parts));
    put(&w, root, "pairs", json_integer((json_int_t)comparison->n_pairs));
    put(&w, root, "ulp_in", json_string(nd_dtype_name(comparison->ulp_in)));
    put(&w, root, "worst", json_integer((json_int_t)comparison->n_worst));
    put(&w, root, "captures", captures);
    put(&w, root, "probes", probes);
    put(&w, root, "tensors", tensors);
    put(&w, root, "top1", top1);
    char *text = !w.failed && nd_json_stamp(root, NULL) == ND_OK ? nd_json_dump(root, 1) : NULL;
    json_decref(root);
    ND_TRY_MEMORY(text != NULL, err);
    *out = text;
    return ND_OK;
}
