/* What captures say of how their results were made, in what they differ, and which settings are known to change
 * results. docs/reference/capture-format.md. */
#include "compare/config/config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "arithmetic/operators/array.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* Encodings held against what captures hold. */

/* What was seen of one channel. */
struct seen {
    double lowest, highest;
    double low, high; /* the reals that the encoding can express at most */
    uint64_t n, n_nan, n_low, n_high;
};

struct tally {
    const struct nd_encoding *encoding;
    const struct nd_tensor *tensor;
    size_t n_channels; /* the encoding's scales */
    size_t inner;      /* elements of one channel that lie together */
    struct seen *seen;
};

static double qvalue_low(const struct nd_encoding *encoding)
{
    return nd_dtype_is_signed_integer(encoding->dtype) ? -ldexp(1, encoding->bits - 1) : 0;
}

static bool can_be_read(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_U8:
    case ND_DTYPE_I8:
    case ND_DTYPE_U16:
    case ND_DTYPE_I16:
    case ND_DTYPE_I32:
    case ND_DTYPE_F32:
    case ND_DTYPE_F64:
        return true;
    default:
        return false;
    }
}

/* The scale that the tensor's own codes have at an element; a tensor per channel has the encoding's channels.
 */
static double real_of(const struct tally *tally, const void *data, size_t i, size_t channel)
{
    const struct nd_quant *quant = &tally->tensor->quant;
    double value;
    nd_array_load(tally->tensor->dtype,
                  (const unsigned char *)data + i * nd_dtype_size_bytes(tally->tensor->dtype), 1, &value);
    if (quant->n == 0)
        return value;
    size_t at = quant->n == 1 ? 0 : channel;
    return (double)quant->scale[at] * (value - (double)quant->zero_point[at]);
}

/* A millionth of the range is room for the rounding of scales: a quantised value at the end counts as at the
 * end. */
static void look(struct tally *tally, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t channel = tally->n_channels > 1 ? i / tally->inner % tally->n_channels : 0;
        struct seen *seen = &tally->seen[channel];
        double real = real_of(tally, data, i, channel);
        double slack = 1e-6 * (seen->high - seen->low);
        if (isnan(real)) {
            seen->n_nan++;
            continue;
        }
        seen->n++;
        seen->lowest = real < seen->lowest ? real : seen->lowest;
        seen->highest = real > seen->highest ? real : seen->highest;
        seen->n_low += real <= seen->low + slack;
        seen->n_high += real >= seen->high - slack;
    }
}

static enum nd_status look_at_probe(struct tally *tally, const struct nd_capture *capture, size_t probe,
                                    size_t tensor, struct nd_error *err)
{
    size_t n, sample_bytes, n_samples = nd_capture_probe(capture, probe)->n_samples;
    ND_TRY(nd_shape_n_elems(&tally->tensor->shape, &n, err));
    ND_TRY(nd_shape_size_bytes(&tally->tensor->shape, tally->tensor->dtype, &sample_bytes, err));
    ND_FREED void *buf = nd_tensor_alloc(sample_bytes);
    ND_TRY_MEMORY(buf != NULL, err);
    for (size_t s = 0; s < n_samples; s++) {
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, s, 1, buf, err));
        look(tally, buf, n);
    }
    return ND_OK;
}

/* Which elements belong to which scale. */
static enum nd_status find_channels(struct tally *tally, struct nd_error *err)
{
    const struct nd_shape *shape = &tally->tensor->shape;
    const struct nd_quant *own = &tally->tensor->quant, *quant = &tally->encoding->quant;
    int axis = quant->axis;
    tally->n_channels = quant->n;
    tally->inner = 1;
    if (quant->n == 1 && own->n <= 1)
        return ND_OK;
    if (axis < 0 && tally->encoding->has_axis)
        axis += shape->rank;
    bool fits = quant->n > 1 && axis >= 0 && axis < shape->rank && shape->dims[axis] == (int64_t)quant->n &&
                (own->n <= 1 || (own->n == quant->n && own->axis == axis));
    if (!fits)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, tally->encoding->name,
                       "the encoding of '%s' has %zu scales, which do not lie along a dimension of the "
                       "captured tensor (%zu scales of its own)",
                       tally->encoding->name, quant->n, own->n);
    for (int d = axis + 1; d < shape->rank; d++)
        tally->inner *= (size_t)shape->dims[d];
    return ND_OK;
}

static void summarise(const struct tally *tally, struct nd_encoding_use *use)
{
    uint64_t n_low = 0, n_high = 0;
    use->lowest = INFINITY;
    use->highest = -INFINITY;
    for (size_t c = 0; c < tally->n_channels; c++) {
        const struct seen *seen = &tally->seen[c];
        use->n_elements += seen->n;
        use->n_nan += seen->n_nan;
        n_low += seen->n_low;
        n_high += seen->n_high;
        if (seen->n == 0)
            continue;
        use->lowest = fmin(use->lowest, seen->lowest);
        use->highest = fmax(use->highest, seen->highest);
        double step = (double)tally->encoding->quant.scale[c];
        double span = fmin(seen->highest, seen->high) - fmax(seen->lowest, seen->low) + step;
        double share = span > 0 ? span / (seen->high - seen->low + step) : 0;
        use->used_range = fmax(use->used_range, fmin(share, 1));
    }
    use->has_values = use->n_elements > 0;
    if (!use->has_values)
        return;
    use->low_share = (double)n_low / (double)use->n_elements;
    use->high_share = (double)n_high / (double)use->n_elements;
}

static enum nd_status look_at_tensor(const struct nd_capture *capture, struct nd_encoding_use *use,
                                     struct nd_error *err)
{
    struct tally tally = {.encoding = use->encoding, .tensor = nd_capture_tensor(capture, use->tensor)};
    ND_TRY(find_channels(&tally, err));
    ND_FREED struct seen *seen = tally.seen = nd_calloc(tally.n_channels, sizeof *tally.seen);
    ND_TRY_MEMORY(seen != NULL, err);
    for (size_t c = 0; c < tally.n_channels; c++) {
        double scale = (double)use->encoding->quant.scale[c];
        double low = qvalue_low(use->encoding) - (double)use->encoding->quant.zero_point[c];
        tally.seen[c] = (struct seen){.lowest = INFINITY,
                                      .highest = -INFINITY,
                                      .low = scale * low,
                                      .high = scale * (low + ldexp(1, use->encoding->bits) - 1)};
    }
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        if (nd_capture_has_outputs(capture, p, use->tensor))
            ND_TRY(look_at_probe(&tally, capture, p, use->tensor, err));
    summarise(&tally, use);
    return ND_OK;
}

/* Whether the tensor's own parameters mean the same reals. */
static enum nd_status is_stated_same(const struct nd_encoding *encoding, const struct nd_tensor *tensor,
                                     bool *out, struct nd_error *err)
{
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *stated = NULL, *wanted = NULL;
    ND_CLEANUP(nd_encodings_diff_deinit) struct nd_encodings_diff diff = {0};
    struct nd_tensor copy = {.name = encoding->name, .dtype = encoding->dtype, .quant = encoding->quant};
    struct nd_tensor own = {.name = encoding->name, .dtype = tensor->dtype, .quant = tensor->quant};
    ND_TRY(nd_encodings_create("", "", &stated, err));
    *out = false;
    ND_TRY(nd_encodings_create("", "", &wanted, err));
    ND_TRY(nd_encodings_add_tensor(stated, &own, err));
    ND_TRY(nd_encodings_add_tensor(wanted, &copy, err));
    ND_TRY(nd_encodings_compare(wanted, stated, 0, &diff, err));
    *out = diff.n_same == 1 && encoding->bits == nd_encodings_at(wanted, 0)->bits;
    return ND_OK;
}

static enum nd_status use_encodings(const struct nd_encodings *encodings, const struct nd_capture *capture,
                                    struct nd_encodings_check *check, struct nd_error *err)
{
    for (size_t i = 0; i < nd_encodings_n(encodings); i++) {
        const struct nd_encoding *encoding = nd_encodings_at(encodings, i);
        size_t tensor = nd_capture_find_tensor(capture, encoding->name);
        /* Constants are not captured; where the role is unstated only the name can tell. */
        bool is_of_interest = encoding->role == ND_ENCODING_ACTIVATION || tensor != SIZE_MAX;
        if (encoding->unhandled != NULL || encoding->role == ND_ENCODING_PARAM || !is_of_interest)
            continue;
        struct nd_encoding_use *use = &check->uses[check->n_used++];
        *use = (struct nd_encoding_use){.encoding = encoding, .tensor = tensor};
        if (tensor == SIZE_MAX)
            continue;
        ND_TRY(is_stated_same(encoding, nd_capture_tensor(capture, tensor), &use->is_stated_same, err));
        const struct nd_tensor *captured = nd_capture_tensor(capture, tensor);
        bool has_meaning = !nd_dtype_is_integer(captured->dtype) || captured->quant.n > 0;
        if (has_meaning && can_be_read(captured->dtype))
            ND_TRY(look_at_tensor(capture, use, err));
    }
    return ND_OK;
}

enum nd_status nd_encodings_check(const struct nd_encodings *encodings, const struct nd_capture *capture,
                                  struct nd_encodings_check *out, struct nd_error *err)
{
    size_t n_tensors = nd_capture_n_tensors(capture);
    ND_CLEANUP(nd_encodings_check_deinit)
    struct nd_encodings_check check = {.uses = nd_calloc(nd_encodings_n(encodings), sizeof *check.uses),
                                       .without = nd_calloc(n_tensors, sizeof *check.without)};
    ND_TRY(check.uses != NULL && check.without != NULL ? use_encodings(encodings, capture, &check, err)
                                                       : nd_fail_memory(err));
    for (size_t e = 0; e < n_tensors; e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
        if (tensor->quant.n > 0 && nd_encodings_find(encodings, tensor->name) == SIZE_MAX)
            check.without[check.n_without++] = e;
    }
    return ND_GIVE(out, check);
}

void nd_encodings_check_deinit(struct nd_encodings_check *check)
{
    ND_FREE_ALL(check->uses, check->without);
    *check = (struct nd_encodings_check){0};
}

/* Takes over key and value (NULL: out of memory). */
static enum nd_status nd_config_add(struct nd_config_list *list, char *key, char *value, struct nd_error *err)
{
    if (key == NULL || value == NULL ||
        !nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items)) {
        ND_FREE_ALL(key, value);
        return nd_fail_memory(err);
    }
    list->items[list->n++] =
        (struct nd_config_item){.key = key, .value = value, .effect = nd_config_effect_of(key)};
    return ND_OK;
}

/* group, between and key as one text in new memory, or NULL. */
static char *nd_config_join(const char *group, const char *between, const char *key)
{
    size_t n = strlen(group) + strlen(between) + strlen(key) + 1;
    char *text = nd_calloc(n, 1);
    if (text != NULL)
        snprintf(text, n, "%s%s%s", group, between, key);
    return text;
}

static char *value_text(const struct nd_attr *attr)
{
    char buf[32];
    if (attr->type == ND_ATTR_STRING)
        return nd_strdup(attr->string);
    if (attr->type == ND_ATTR_I64)
        snprintf(buf, sizeof buf, "%lld", (long long)attr->i64);
    else
        nd_format_double(attr->f64, buf);
    return nd_strdup(buf);
}

/* Names of the same thing in other words, what is told elsewhere, and what counts or dates a run. */
static bool is_setting(const struct nd_attr *attr)
{
    if (ND_IS_ONE_OF(attr->key, "uri", "label", "marketing", ND_CONFIG_HTP_INNER, ND_CONFIG_HTP_OUTER, "passes",
                     "option_profile_text"))
        return false;
    if (strcmp(attr->group, "host") == 0)
        return strcmp(attr->key, "processor") == 0 || strcmp(attr->key, "machine") == 0;
    if (strcmp(attr->group, "runtime") == 0)
        return strncmp(attr->key, "library_", 8) != 0 && strncmp(attr->key, "untouched_", 10) != 0;
    return strcmp(attr->group, "device") == 0;
}

/* "library_000_path" and its build id or digest: as "library.<file name>". */
static enum nd_status add_library(const struct nd_capture *capture, const struct nd_attr *attr,
                                  struct nd_config_list *list, struct nd_error *err)
{
    static const char *const ids[] = {"build_id", "sha256"};
    size_t n = strlen(attr->key);
    if (strcmp(attr->group, "runtime") != 0 || attr->type != ND_ATTR_STRING ||
        strncmp(attr->key, "library_", 8) != 0 || n < 5 || strcmp(attr->key + n - 5, "_path") != 0)
        return ND_OK;
    const char *id = "";
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && id[0] == '\0'; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s%s", (int)(n - 4 < 40 ? n - 4 : 40), attr->key, ids[i]);
        const char *found = nd_capture_string(capture, "runtime", key);
        id = found != NULL ? found : "";
    }
    return nd_config_add(list, nd_config_join("library.", "", nd_path_base(attr->string)), nd_strdup(id), err);
}

static void deinit_list(struct nd_config_list *list)
{
    nd_config_deinit(&(struct nd_config){.n = list->n, .items = list->items});
}

enum nd_status nd_config_of_capture(const struct nd_capture *capture, struct nd_config *out,
                                    struct nd_error *err)
{
    ND_CLEANUP(deinit_list) struct nd_config_list list = {0};
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        ND_TRY(add_library(capture, attr, &list, err));
        if (is_setting(attr))
            ND_TRY(nd_config_add(&list, nd_config_join(attr->group, ".", attr->key), value_text(attr), err));
    }
    static const char *const texts[][2] = {{ND_CONFIG_HTP_INNER, "htp"}, {ND_CONFIG_HTP_OUTER, "htp_outer"}};
    for (size_t i = 0; i < 2; i++) {
        const char *text = nd_capture_string(capture, "runtime", texts[i][0]);
        if (text != NULL)
            ND_TRY(nd_config_flatten(&list, texts[i][1], text, nd_capture_path(capture), err));
    }
    if (list.n > 0)
        qsort(list.items, list.n, sizeof *list.items, nd_compare_texts);
    *out = (struct nd_config){.n = list.n, .items = list.items};
    list = (struct nd_config_list){0};
    return ND_OK;
}

void nd_config_deinit(struct nd_config *config)
{
    for (size_t i = 0; i < config->n; i++)
        ND_FREE_ALL(config->items[i].key, config->items[i].value);
    free(config->items);
    *config = (struct nd_config){0};
}

/* ---- differences ---- */

static enum nd_status add_change(struct nd_config_diff *diff, const struct nd_config_item *ref,
                                 const struct nd_config_item *test, struct nd_error *err)
{
    const struct nd_config_item *any = ref != NULL ? ref : test;
    struct nd_config_change *change = &diff->changes[diff->n++];
    *change = (struct nd_config_change){.key = nd_strdup(any->key),
                                        .ref = ref != NULL ? nd_strdup(ref->value) : NULL,
                                        .test = test != NULL ? nd_strdup(test->value) : NULL,
                                        .effect = any->effect};
    diff->n_bits += change->effect == ND_CONFIG_BITS;
    bool is_whole =
        change->key != NULL && (ref == NULL || change->ref != NULL) && (test == NULL || change->test != NULL);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static int rank_of(enum nd_config_effect effect)
{
    return effect == ND_CONFIG_BITS ? 0 : effect == ND_CONFIG_UNKNOWN ? 1 : 2;
}

static int by_effect(const void *a, const void *b)
{
    const struct nd_config_change *x = a, *y = b;
    int order = rank_of(x->effect) - rank_of(y->effect);
    return order != 0 ? order : strcmp(x->key, y->key);
}

/* Both are sorted; a key that is there several times (a library of one name in two places) is paired in order.
 */
static enum nd_status merge(const struct nd_config *ref, const struct nd_config *test,
                            struct nd_config_diff *diff, struct nd_error *err)
{
    for (size_t r = 0, t = 0; r < ref->n || t < test->n;) {
        int order = r == ref->n ? 1 : t == test->n ? -1 : strcmp(ref->items[r].key, test->items[t].key);
        const struct nd_config_item *left = order <= 0 ? &ref->items[r] : NULL;
        const struct nd_config_item *right = order >= 0 ? &test->items[t] : NULL;
        if (order != 0 || strcmp(left->value, right->value) != 0)
            ND_TRY(add_change(diff, left, right, err));
        r += order <= 0;
        t += order >= 0;
    }
    return ND_OK;
}

enum nd_status nd_config_diff(const struct nd_capture *ref, const struct nd_capture *test,
                              struct nd_config_diff *out, struct nd_error *err)
{
    ND_CLEANUP(nd_config_deinit) struct nd_config left = {0}, right = {0};
    ND_CLEANUP(nd_config_diff_deinit) struct nd_config_diff diff = {0};
    ND_TRY(nd_config_of_capture(ref, &left, err));
    ND_TRY(nd_config_of_capture(test, &right, err));
    diff.changes = nd_calloc(left.n + right.n, sizeof *diff.changes);
    ND_TRY_MEMORY(diff.changes != NULL, err);
    ND_TRY(merge(&left, &right, &diff, err));
    if (diff.n > 0)
        qsort(diff.changes, diff.n, sizeof *diff.changes, by_effect);
    return ND_GIVE(out, diff);
}

void nd_config_diff_deinit(struct nd_config_diff *diff)
{
    for (size_t i = 0; i < diff->n; i++)
        ND_FREE_ALL(diff->changes[i].key, diff->changes[i].ref, diff->changes[i].test);
    free(diff->changes);
    *diff = (struct nd_config_diff){0};
}

/* HTP backend configuration files: two JSON objects, the outer of which names the inner. */

/* An attribute holds less than 64 KiB; real files have 1 or 2. */
enum { MAX_FILE_BYTES = 32 << 10 };

static enum nd_status parse(const char *text, const char *path, json_t **out, struct nd_error *err)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s', line %d, column %d: %s", path,
                       where.line, where.column, text[0] == '\0' ? "the file is empty" : where.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s' is no JSON object", path);
    }
    *out = root;
    return ND_OK;
}

/* ---- flattening ---- */

static enum nd_status flatten(struct nd_config_list *list, const char *prefix, const json_t *value,
                              struct nd_error *err);

static enum nd_status flatten_object(struct nd_config_list *list, const char *prefix, const json_t *object,
                                     struct nd_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool is_old = strcmp(key, "graphs") == 0 && json_is_object(value);
        ND_FREED char *name = nd_config_join(prefix, ".", is_old ? "graphs[0]" : key);
        ND_TRY_MEMORY(name != NULL, err);
        ND_TRY(flatten(list, name, value, err));
    }
    return ND_OK;
}

static enum nd_status flatten(struct nd_config_list *list, const char *prefix, const json_t *value,
                              struct nd_error *err)
{
    size_t i;
    const json_t *item;
    if (json_is_object(value))
        return flatten_object(list, prefix, value, err);
    if (!json_is_array(value)) {
        char *text = json_is_string(value) ? nd_strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        return nd_config_add(list, nd_strdup(prefix), text, err);
    }
    json_array_foreach(value, i, item) {
        char index[32];
        snprintf(index, sizeof index, "[%zu]", i);
        ND_FREED char *name = nd_config_join(prefix, "", index);
        ND_TRY_MEMORY(name != NULL, err);
        ND_TRY(flatten(list, name, item, err));
    }
    return ND_OK;
}

enum nd_status nd_config_flatten(struct nd_config_list *list, const char *prefix, const char *text,
                                 const char *path, struct nd_error *err)
{
    json_auto_t *root = NULL;
    ND_TRY(parse(text, path, &root, err));
    return flatten(list, prefix, root, err);
}

/* ---- reading ---- */

static enum nd_status read_text(const char *path, char **out, json_t **root, struct nd_error *err)
{
    ND_FREED void *text = NULL;
    size_t n;
    ND_TRY(nd_file_read(path, MAX_FILE_BYTES, &text, &n, err));
    if (strlen(text) != n)
        return nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s' holds a NUL", path);
    ND_TRY(parse(text, path, root, err));
    return ND_GIVE(out, text);
}

static enum nd_status read_inner(const char *outer_path, const char *name, char **out, struct nd_error *err)
{
    ND_FREED char *dir = nd_path_dir(outer_path);
    ND_FREED char *beside = dir != NULL ? nd_path_join(dir, name) : NULL;
    json_auto_t *root = NULL;
    enum nd_status status = beside == NULL ? nd_fail_memory(err) : ND_OK;
    if (status == ND_OK)
        status = read_text(nd_path_exists(beside) || !nd_path_exists(name) ? beside : name, out, &root, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s' names '%s'", outer_path, name);
    return status;
}

enum nd_status nd_htp_config_read(const char *path, struct nd_htp_config *out, struct nd_error *err)
{
    ND_CLEANUP(nd_htp_config_deinit) struct nd_htp_config config = {0};
    json_auto_t *root = NULL;
    ND_TRY(read_text(path, &config.inner, &root, err));
    const json_t *extensions = json_object_get(root, "backend_extensions");
    const json_t *name = json_object_get(extensions, "config_file_path");
    if (extensions == NULL && json_object_get(root, "context_configs") == NULL &&
        json_object_get(root, "graph_configs") == NULL)
        return ND_GIVE(out, config);
    config.outer = config.inner;
    config.inner = NULL;
    if (json_is_string(name))
        ND_TRY(read_inner(path, json_string_value(name), &config.inner, err));
    else if (extensions != NULL)
        return nd_fail(err, ND_E_CONFIG_FORMAT, path,
                       "HTP configuration '%s': key 'backend_extensions.config_file_path' is no text", path);
    return ND_GIVE(out, config);
}

void nd_htp_config_deinit(struct nd_htp_config *config)
{
    ND_FREE_ALL(config->outer, config->inner);
    *config = (struct nd_htp_config){0};
}

/* The one table of what is known of settings. Bits: the documentation of the HTP backend or of the provider
 * says that arithmetic or its order changes, or a difference was measured. Performance: clocks, votes,
 * profiling, memory that is only placed elsewhere. What is in neither list is not known. */

static const char *const changes_bits[] = {
    /* the backend's graph options */
    "O",
    "vtcm_mb",
    "hvx_threads",
    "num_cores",
    "dlbc",
    "dlbc_weights",
    "weights_packing",
    "advanced_activation_fusion",
    "short_depth_conv_on_hmx_off",
    "fold_relu_activation_into_conv_off",
    "use_high_precision_fp16_sigmoid",
    "monolithic_lstm",
    "fp16_relaxed_precision",
    /* which chip it prepares for */
    "soc_model",
    "soc_id",
    "dsp_arch",
    "htp_arch",
    "arch",
    "chipset",
    "kind",
    "is_simulator",
    /* ONNX Runtime and its QNN provider */
    "option_vtcm_mb",
    "option_soc_model",
    "option_htp_arch",
    "option_htp_graph_finalization_optimization_mode",
    "option_enable_htp_fp16_precision",
    "option_offload_graph_io_quantization",
    "option_htp_bf16_enable",
    "option_enable_htp_fp16_clamp_overflow",
    "option_enable_htp_monolithic_lstm",
    "option_op_packages",
    "option_backend_path",
    "option_backend_type",
    "option_enable_block_quant_weight_optimization",
    "optimisation",
    "threads",
    "id",
    "provider",
    "provider_version",
    "fallback_allowed",
    "processor",
    "machine",
    /* an emulated device, an exact one with another rounding */
    "option_profile",
    "option_rounding",
};

static const char *const changes_speed[] = {
    "perf_profile",
    "rpc_control_latency",
    "rpc_polling_time",
    "adaptive_polling_time",
    "ddr_perf_mode",
    "hmx_timeout_us",
    "profiling_level",
    "profiling_file_path",
    "pd_session",
    "mem_type",
    "file_read_memory_budget_in_mb",
    "io_memory_estimation",
    "init_acceleration",
    "max_spill_fill_buffer_for_group",
    "share_resources",
    "reused_io_limit_mb",
    "extended_udma",
    "weight_sharing_enabled",
    "concurrent_deserialization_patch",
    "shared_library_path",
    "config_file_path",
    "option_htp_performance_mode",
    "option_rpc_control_latency",
    "option_profiling_level",
    "option_profiling_file_path",
    "option_qnn_context_priority",
    "option_enable_htp_shared_memory_allocator",
    "option_enable_htp_spill_fill_buffer",
    "option_extended_udma",
    "option_num_graph_prepare_threads",
    "option_dump_json_qnn_graph",
    "option_json_qnn_graph_dir",
    "confined",
    "option_enable_vtcm_backup_buffer_sharing",
};

/* Libraries that compute. */
static const char *const computing[] = {"libQnn", "libonnxruntime", "libHtp", "libqnn", "libm.so", "libSnpe"};

const char *nd_config_effect_name(enum nd_config_effect effect)
{
    static const char *const names[] = {[ND_CONFIG_UNKNOWN] = "not known",
                                        [ND_CONFIG_BITS] = "can change bits",
                                        [ND_CONFIG_PERFORMANCE] = "performance only"};
    return names[effect];
}

/* Whether the last part of the key, less an index, is among the names. */
static bool is_listed(const char *key, const char *const *names, size_t n)
{
    const char *dot = strrchr(key, '.'), *last = dot != NULL ? dot + 1 : key;
    size_t length = strcspn(last, "[");
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == length && strncmp(names[i], last, length) == 0)
            return true;
    return false;
}

enum nd_config_effect nd_config_effect_of(const char *key)
{
    static const char library[] = "library.";
    if (strncmp(key, library, strlen(library)) == 0) {
        for (size_t i = 0; i < sizeof computing / sizeof computing[0]; i++)
            if (strncmp(key + strlen(library), computing[i], strlen(computing[i])) == 0)
                return ND_CONFIG_BITS;
        return ND_CONFIG_UNKNOWN;
    }
    if (is_listed(key, changes_bits, sizeof changes_bits / sizeof changes_bits[0]))
        return ND_CONFIG_BITS;
    if (is_listed(key, changes_speed, sizeof changes_speed / sizeof changes_speed[0]))
        return ND_CONFIG_PERFORMANCE;
    return ND_CONFIG_UNKNOWN;
}
