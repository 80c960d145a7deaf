/* What is compared with what: probes that were fed alike, tensors, and those that the user selects.
 * docs/reference/metrics.md#alignment. */
#include "compare/matching/matching.h"

#include <fnmatch.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/capture.h"
#include "npudiff/core/parse.h"

/* H(digest so far, H(name), H(description), digest of the bytes); the description keeps equal bytes of other
 * types apart. */
static struct nd_digest chain(struct nd_digest so_far, const struct nd_capture_input *input,
                              struct nd_digest data)
{
    char shape[128], line[256];
    nd_shape_format(&input->shape, shape, sizeof shape);
    int n = snprintf(line, sizeof line, "%s %s", nd_dtype_name(input->dtype), shape);
    struct nd_digest parts[4] = {so_far, nd_digest_bytes(input->name, strlen(input->name)),
                                 nd_digest_bytes(line, (size_t)n), data};
    return nd_digest_bytes(parts, sizeof parts);
}

/* One digest per stored sample [n_samples] over the names, types, shapes and digests of its inputs, owned by
 * the caller; *out is NULL when the capture holds no inputs of this probe or no sample. ND_ERR_MEMORY. */
static enum nd_status nd_input_digests(const struct nd_capture *capture, size_t probe, struct nd_digest **out,
                                       struct nd_error *err)
{
    const struct nd_capture_probe *described = nd_capture_probe(capture, probe);
    *out = NULL;
    if (described->n_inputs == 0 || described->n_samples == 0)
        return ND_OK;
    struct nd_digest *digests = nd_calloc(described->n_samples, sizeof *digests);
    ND_TRY_MEMORY(digests != NULL, err);
    for (size_t i = 0; i < described->n_inputs; i++)
        for (size_t s = 0; s < described->n_samples; s++)
            digests[s] =
                chain(digests[s], &described->inputs[i], nd_capture_input_digest(capture, probe, i, s));
    *out = digests;
    return ND_OK;
}

/* The names of all captures' tensors, or of all their probes. */
struct item_kind {
    size_t (*count)(const struct nd_capture *);
    const char *(*name)(const struct nd_capture *, size_t);
    size_t (*find)(const struct nd_capture *, const char *);
};

static const char *tensor_name(const struct nd_capture *capture, size_t i)
{
    return nd_capture_tensor(capture, i)->name;
}

static const char *probe_name(const struct nd_capture *capture, size_t i)
{
    return nd_capture_probe(capture, i)->name;
}

static const struct item_kind tensor_kind = {nd_capture_n_tensors, tensor_name, nd_capture_find_tensor};
static const struct item_kind probe_kind = {nd_capture_n_probes, probe_name, nd_capture_find_probe};

static bool is_in_earlier_capture(const struct nd_aligned_captures *a, const struct item_kind *kind,
                                  size_t capture, const char *name)
{
    for (size_t c = 0; c < capture; c++)
        if (kind->find(a->captures[c], name) != SIZE_MAX)
            return true;
    return false;
}

static enum nd_status align_items(const struct nd_aligned_captures *a, const struct item_kind *kind,
                                  const char ***names, size_t **table, size_t *n_items, struct nd_error *err)
{
    size_t capacity = 0, n = 0;
    for (size_t c = 0; c < a->n_captures; c++) {
        for (size_t i = 0; i < kind->count(a->captures[c]); i++) {
            const char *name = kind->name(a->captures[c], i);
            if (is_in_earlier_capture(a, kind, c, name))
                continue;
            ND_TRY_MEMORY(nd_grow((void **)names, &capacity, n + 1, sizeof **names), err);
            (*names)[n++] = name;
        }
    }
    size_t n_cells;
    ND_TRY_MEMORY(
        nd_size_mul(n, a->n_captures, &n_cells) && (*table = nd_calloc(n_cells, sizeof **table)) != NULL, err);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < a->n_captures; c++)
            (*table)[i * a->n_captures + c] = kind->find(a->captures[c], (*names)[i]);
    *n_items = n;
    return ND_OK;
}

/* Captures that do not say it (imports) are compared with any, and the comparison notes that. */
static enum nd_status check_models(struct nd_aligned_captures *a, bool allow, bool *different,
                                   struct nd_error *err)
{
    const char *ref = NULL;
    size_t first = 0;
    *different = false;
    for (size_t c = 0; c < a->n_captures; c++) {
        const char *test = nd_capture_string(a->captures[c], "model", "sha256");
        if (test == NULL || test[0] == '\0') {
            a->unknown_models = true;
            continue;
        }
        if (ref == NULL) {
            ref = test;
            first = c;
        }
        if (strcmp(ref, test) == 0)
            continue;
        *different = true;
        const char *path = nd_capture_path(a->captures[c]);
        if (!allow)
            return nd_fail(err, ND_E_COMPARE_MODEL, path,
                           "'%s' and '%s' are of different models: sha256 %s and %s",
                           nd_capture_path(a->captures[first]), path, ref, test);
    }
    return ND_OK;
}

static enum nd_status digest_inputs(struct nd_aligned_captures *a, struct nd_error *err)
{
    a->inputs = nd_calloc(a->n_probes * a->n_captures, sizeof *a->inputs); /* the table of this size exists */
    ND_TRY_MEMORY(a->inputs != NULL, err);
    for (size_t i = 0; i < a->n_probes * a->n_captures; i++) {
        const struct nd_capture *capture = a->captures[i % a->n_captures];
        if (a->probes[i] == SIZE_MAX)
            continue;
        enum nd_status status = nd_input_digests(capture, a->probes[i], &a->inputs[i], err);
        if (status != ND_OK) {
            nd_error_context(err, "reading the inputs of '%s'", nd_capture_path(capture));
            return status;
        }
    }
    return ND_OK;
}

enum nd_status nd_matching_make(const struct nd_capture *const *captures, size_t n, bool allow_different_models,
                                struct nd_aligned_captures *out, bool *different_models, struct nd_error *err)
{
    ND_CLEANUP(nd_matching_deinit) struct nd_aligned_captures a = {.captures = captures, .n_captures = n};
    ND_TRY(check_models(&a, allow_different_models, different_models, err));
    ND_TRY(align_items(&a, &tensor_kind, &a.tensor_names, &a.tensors, &a.n_tensors, err));
    ND_TRY(align_items(&a, &probe_kind, &a.probe_names, &a.probes, &a.n_probes, err));
    ND_TRY(digest_inputs(&a, err));
    /* Some captures say what a probe fed and others do not: nothing tells that they saw the same. */
    for (size_t p = 0; p < a.n_probes; p++) {
        size_t n_known = 0, n_unknown = 0;
        for (size_t c = 0; c < a.n_captures; c++) {
            size_t probe = a.probes[p * a.n_captures + c];
            if (probe == SIZE_MAX)
                continue;
            bool is_known = nd_capture_probe(a.captures[c], probe)->n_inputs > 0;
            const char *import = nd_capture_string(a.captures[c], "import", "inputs");
            n_known += is_known;
            n_unknown += !is_known;
            a.unknown_inputs |= !is_known && import != NULL;
        }
        a.unknown_inputs |= n_known > 0 && n_unknown > 0;
    }
    return ND_GIVE(out, a);
}

void nd_matching_deinit(struct nd_aligned_captures *alignment)
{
    for (size_t i = 0; alignment->inputs != NULL && i < alignment->n_probes * alignment->n_captures; i++)
        free(alignment->inputs[i]);
    ND_FREE_ALL(alignment->inputs, alignment->tensors, alignment->probes, alignment->tensor_names,
                alignment->probe_names);
    *alignment = (struct nd_aligned_captures){0};
}

const struct nd_tensor *nd_aligned_tensor(const struct nd_aligned_captures *alignment, size_t tensor,
                                          size_t capture)
{
    size_t i = alignment->tensors[tensor * alignment->n_captures + capture];
    return i == SIZE_MAX ? NULL : nd_capture_tensor(alignment->captures[capture], i);
}

const struct nd_capture_probe *nd_aligned_probe(const struct nd_aligned_captures *alignment, size_t probe,
                                                size_t capture)
{
    size_t i = alignment->probes[probe * alignment->n_captures + capture];
    return i == SIZE_MAX ? NULL : nd_capture_probe(alignment->captures[capture], i);
}

struct nd_probe_values nd_aligned_values(const struct nd_aligned_captures *alignment, size_t tensor,
                                         size_t probe, size_t capture)
{
    size_t n = alignment->n_captures;
    return (struct nd_probe_values){alignment->captures[capture], alignment->probes[probe * n + capture],
                                    alignment->tensors[tensor * n + capture]};
}

bool nd_aligned_has_values(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                           size_t capture)
{
    const struct nd_probe_values item = nd_aligned_values(alignment, tensor, probe, capture);
    return nd_capture_has_outputs(item.capture, item.probe, item.tensor);
}

struct nd_digest nd_aligned_digest(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                                   size_t capture, size_t sample)
{
    const struct nd_probe_values item = nd_aligned_values(alignment, tensor, probe, capture);
    return nd_capture_digest(item.capture, item.probe, item.tensor, sample, 0);
}

bool nd_aligned_is_equal(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe, size_t a,
                         size_t b, size_t sample)
{
    const struct nd_digest *of_a = nd_aligned_tensor_digest(alignment, tensor, probe, a),
                           *of_b = nd_aligned_tensor_digest(alignment, tensor, probe, b);
    return (of_a != NULL && of_b != NULL && nd_digest_equal(*of_a, *of_b)) ||
           nd_digest_equal(nd_aligned_digest(alignment, tensor, probe, a, sample),
                           nd_aligned_digest(alignment, tensor, probe, b, sample));
}

const struct nd_digest *nd_aligned_tensor_digest(const struct nd_aligned_captures *alignment, size_t tensor,
                                                 size_t probe, size_t capture)
{
    const struct nd_probe_values item = nd_aligned_values(alignment, tensor, probe, capture);
    return nd_capture_tensor_digest(item.capture, item.probe, item.tensor);
}

static bool is_same_quant(const struct nd_quant *a, const struct nd_quant *b)
{
    if (a->n != b->n || (a->n > 1 && a->axis != b->axis))
        return false;
    return a->n == 0 || (memcmp(a->scale, b->scale, a->n * sizeof *a->scale) == 0 &&
                         memcmp(a->zero_point, b->zero_point, a->n * sizeof *a->zero_point) == 0);
}

static bool has_real_values(const struct nd_tensor *tensor)
{
    return nd_dtype_is_float(tensor->dtype) || (nd_dtype_is_integer(tensor->dtype) && tensor->quant.n > 0);
}

enum nd_status nd_align_tensors(const struct nd_tensor *ref, const struct nd_tensor *test, bool *is_mixed,
                                char **reason, struct nd_error *err)
{
    *reason = NULL;
    *is_mixed = false;
    if (ref == NULL || test == NULL)
        return nd_text_set(reason, err, "the tensor is missing in the %s", ref == NULL ? "reference" : "test");
    if (ref->dtype == ND_DTYPE_NONE || test->dtype == ND_DTYPE_NONE || ref->shape.rank < 0 ||
        test->shape.rank < 0)
        return nd_text_set(reason, err, "its type or shape is unknown");
    bool has_float = nd_dtype_is_float(ref->dtype) || nd_dtype_is_float(test->dtype);
    *is_mixed = ref->dtype != test->dtype && has_float && has_real_values(ref) && has_real_values(test);
    if (ref->dtype != test->dtype && !*is_mixed)
        return nd_text_set(reason, err, "%s against %s", nd_dtype_name(ref->dtype), nd_dtype_name(test->dtype));
    if (!nd_shape_equal(&ref->shape, &test->shape)) {
        char a[128], b[128];
        return nd_text_set(reason, err, "shape %s against %s", nd_shape_format(&ref->shape, a, sizeof a),
                           nd_shape_format(&test->shape, b, sizeof b));
    }
    if (!has_float && !is_same_quant(&ref->quant, &test->quant))
        return nd_text_set(reason, err, "scales or zero points differ");
    return ND_OK;
}

enum nd_status nd_align_is_alike(const struct nd_tensor *a, const struct nd_tensor *b, bool *is_alike,
                                 struct nd_error *err)
{
    ND_FREED char *reason = NULL;
    bool is_mixed;
    enum nd_status status = nd_align_tensors(a, b, &is_mixed, &reason, err);
    *is_alike = status == ND_OK && reason == NULL && !is_mixed;
    return status;
}

static bool is_fed_alike(const struct nd_aligned_captures *a, size_t probe, size_t ref, size_t test,
                         size_t n_samples)
{
    const struct nd_digest *x = a->inputs[probe * a->n_captures + ref];
    const struct nd_digest *y = a->inputs[probe * a->n_captures + test];
    for (size_t i = 0; x != NULL && y != NULL && i < n_samples; i++)
        if (!nd_digest_equal(x[i], y[i]))
            return false;
    return true;
}

size_t nd_align_n_common(const struct nd_aligned_captures *alignment, size_t probe, size_t ref, size_t test)
{
    const struct nd_capture_probe *r = nd_aligned_probe(alignment, probe, ref);
    const struct nd_capture_probe *t = nd_aligned_probe(alignment, probe, test);
    size_t n = r == NULL || t == NULL ? 0 : r->n_samples < t->n_samples ? r->n_samples : t->n_samples;
    return is_fed_alike(alignment, probe, ref, test, n) ? n : 0;
}

enum nd_status nd_align_samples(const struct nd_aligned_captures *alignment, size_t probe, size_t ref,
                                size_t test, size_t *n_common, char **reason, struct nd_error *err)
{
    const struct nd_capture_probe *r = nd_aligned_probe(alignment, probe, ref);
    const struct nd_capture_probe *t = nd_aligned_probe(alignment, probe, test);
    const char *name = alignment->probe_names[probe];
    *n_common = 0;
    *reason = NULL;
    if (r == NULL || t == NULL)
        return nd_text_set(reason, err, "probe '%s' is missing in the %s", name,
                           r == NULL ? "reference" : "test");
    size_t n = r->n_samples < t->n_samples ? r->n_samples : t->n_samples;
    size_t n_expected =
        r->n_samples_expected > t->n_samples_expected ? r->n_samples_expected : t->n_samples_expected;
    if (!is_fed_alike(alignment, probe, ref, test, n))
        return nd_text_set(reason, err, "probe '%s' has other inputs in the test", name);
    *n_common = n;
    if (n < n_expected)
        return nd_text_set(reason, err, "probe '%s': only %zu of %zu samples on both sides", name, n,
                           n_expected);
    return ND_OK;
}

/* Whether any capture says that it is an output of the model: an import may not know. */
static bool is_output(const struct nd_aligned_captures *a, size_t tensor)
{
    for (size_t c = 0; c < a->n_captures; c++) {
        const struct nd_tensor *one = nd_aligned_tensor(a, tensor, c);
        if (one != NULL && one->is_model_output)
            return true;
    }
    return false;
}

static size_t mark(const struct nd_aligned_captures *a, const char *pattern, bool *chosen)
{
    size_t n = 0;
    bool is_word = strcmp(pattern, "outputs") == 0;
    for (size_t e = 0; e < a->n_tensors; e++) {
        const char *name = a->tensor_names[e];
        /* A name always means itself, whatever a pattern reads in it. */
        if (strcmp(pattern, name) == 0 || (is_word ? is_output(a, e) : fnmatch(pattern, name, 0) == 0)) {
            chosen[e] = true;
            n++;
        }
    }
    return n;
}

static enum nd_status fail_no_match(const struct nd_aligned_captures *a, const char *pattern,
                                    struct nd_error *err)
{
    struct nd_strbuf examples = {0};
    char meant[ND_DID_YOU_MEAN_BYTES];
    if (strcmp(pattern, "outputs") == 0)
        return nd_fail(err, ND_E_OPTION_VALUE, pattern,
                       "no capture says which tensors are the model's outputs; name them instead");
    for (size_t e = 0; e < a->n_tensors && e < 5; e++)
        nd_strbuf_printf(&examples, "%s'%s'", e > 0 ? ", " : "", a->tensor_names[e]);
    ND_FREED char *list = nd_strbuf_take(&examples);
    return list == NULL ? nd_fail_memory(err)
                        : nd_fail(err, ND_E_OPTION_VALUE, pattern,
                                  "no tensor of the captures matches '%s'; examples of their tensors: %.400s%s",
                                  pattern, list,
                                  nd_did_you_mean(pattern, a->tensor_names, a->n_tensors,
                                                  sizeof *a->tensor_names, meant));
}

/* Every pattern has to match: a misspelt name would otherwise pass as nothing to complain of. */
static enum nd_status mark_all(const struct nd_aligned_captures *a, const char *spec, bool *chosen,
                               struct nd_error *err)
{
    ND_FREED char *text = nd_strdup(spec);
    ND_TRY_MEMORY(text != NULL, err);
    for (char *rest = text, *pattern; (pattern = strsep(&rest, ",")) != NULL;)
        if (mark(a, pattern, chosen) == 0)
            return fail_no_match(a, pattern, err);
    return ND_OK;
}

enum nd_status nd_matching_select(struct nd_aligned_captures *a, const char *spec, struct nd_error *err)
{
    if (spec == NULL || strcmp(spec, "all") == 0)
        return ND_OK;
    ND_FREED bool *chosen = nd_calloc(a->n_tensors, sizeof *chosen);
    ND_TRY(chosen != NULL ? mark_all(a, spec, chosen, err) : nd_fail_memory(err));
    size_t n = 0;
    for (size_t e = 0; e < a->n_tensors; e++) {
        if (!chosen[e])
            continue;
        a->tensor_names[n] = a->tensor_names[e];
        memmove(a->tensors + n * a->n_captures, a->tensors + e * a->n_captures,
                a->n_captures * sizeof *a->tensors);
        n++;
    }
    a->n_left_out = a->n_tensors - n;
    a->n_tensors = n;
    return ND_OK;
}

static size_t mark_probes(const struct nd_aligned_captures *a, const char *pattern, bool *chosen)
{
    size_t n = 0;
    for (size_t p = 0; p < a->n_probes; p++)
        if (strcmp(pattern, a->probe_names[p]) == 0 || fnmatch(pattern, a->probe_names[p], 0) == 0) {
            chosen[p] = true;
            n++;
        }
    return n;
}

static enum nd_status fail_no_probe(const struct nd_aligned_captures *a, const char *pattern,
                                    struct nd_error *err)
{
    struct nd_strbuf names = {0};
    for (size_t p = 0; p < a->n_probes && p < 5; p++)
        nd_strbuf_printf(&names, "%s'%s'", p > 0 ? ", " : "", a->probe_names[p]);
    ND_FREED char *list = nd_strbuf_take(&names);
    return list == NULL ? nd_fail_memory(err)
                        : nd_fail(err, ND_E_OPTION_VALUE, pattern,
                                  "no probe of the captures matches '%s'; their probes: %.400s", pattern, list);
}

/* Of the tables of probes only the rows that are chosen. */
static void keep_probes(struct nd_aligned_captures *a, const bool *chosen)
{
    size_t n = 0, width = a->n_captures;
    for (size_t p = 0; p < a->n_probes; p++) {
        for (size_t c = 0; c < width && !chosen[p]; c++)
            free(a->inputs[p * width + c]);
        if (!chosen[p])
            continue;
        a->probe_names[n] = a->probe_names[p];
        memmove(a->probes + n * width, a->probes + p * width, width * sizeof *a->probes);
        memmove(a->inputs + n * width, a->inputs + p * width, width * sizeof *a->inputs);
        n++;
    }
    a->n_probes = n;
}

enum nd_status nd_matching_select_probes(struct nd_aligned_captures *a, const char *const *patterns, size_t n,
                                         struct nd_error *err)
{
    if (n == 0)
        return ND_OK;
    ND_FREED bool *chosen = nd_calloc(a->n_probes, sizeof *chosen);
    ND_TRY_MEMORY(chosen != NULL, err);
    for (size_t i = 0; i < n; i++)
        if (mark_probes(a, patterns[i], chosen) == 0)
            return fail_no_probe(a, patterns[i], err);
    keep_probes(a, chosen);
    return ND_OK;
}

enum nd_status nd_text_set(char **text, struct nd_error *err, const char *fmt, ...)
{
    char *made = NULL;
    ND_MAKE_ARGUMENTS(made, fmt);
    free(*text);
    *text = made;
    return made != NULL ? ND_OK : nd_fail_memory(err);
}
