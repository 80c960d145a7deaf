/* What an entry of the golden store, or a bundle, says of one capture, and how one such record stands to
 * another. docs/reference/store.md. */
#include "judge/golden/store.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

static const char library_prefix[] = "library ";

const char *nd_axis_name(enum nd_axis axis)
{
    static const char *const names[ND_N_AXES] = {"sdk", "chipset", "model", "probes", "options", "host"};
    return names[axis];
}

static void nd_axes_hide(const char *text, char out[static ND_HIDDEN_BYTES])
{
    char hex[ND_SHA256_HEX_BYTES];
    nd_sha256_bytes(text, strlen(text), hex);
    snprintf(out, ND_HIDDEN_BYTES, "#%.16s", hex);
}

/* ---- collecting ---- */

struct collected {
    json_t *axes[ND_N_AXES];
    bool is_whole;
};

static void put(struct collected *out, enum nd_axis axis, const char *key, const char *value)
{
    json_auto_t *name = nd_json_string(key);
    if (name == NULL ||
        json_object_set_new(out->axes[axis], json_string_value(name), nd_json_string(value)) != 0)
        out->is_whole = false;
}

static bool is_one_of(const char *key, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(key, *names) == 0)
            return true;
    return false;
}

/* The runtime's own: below a folder that is called like it, or named like one wherever it lies (a phone). */
static bool is_of_runtime(const char *path, const char *id)
{
    size_t n = strlen(id);
    for (const char *at = path; n > 0 && (at = strstr(at, id)) != NULL; at++)
        if (at > path && at[-1] == '/' && at[n] == '/')
            return true;
    const char *base = nd_path_base(path);
    return strncmp(base, "libonnxruntime", 14) == 0 || strncmp(base, "libQnn", 6) == 0;
}

/* "library libQnnHtp.so" = "build-id <digits>" or, without one, "sha256 <digits>". key: "library_<nnn>_path".
 */
static void put_library(struct collected *out, const struct nd_capture *capture, const char *key,
                        const char *path)
{
    const char *id = nd_capture_string(capture, "runtime", "id");
    if (!is_of_runtime(path, id != NULL ? id : ""))
        return;
    int n_stem = (int)(strlen(key) - strlen("_path"));
    char build_key[64], sha_key[64], value[160];
    snprintf(build_key, sizeof build_key, "%.*s_build_id", n_stem, key);
    snprintf(sha_key, sizeof sha_key, "%.*s_sha256", n_stem, key);
    const char *build = nd_capture_string(capture, "runtime", build_key);
    const char *sha = nd_capture_string(capture, "runtime", sha_key);
    bool has_build = build != NULL && build[0] != '\0';
    snprintf(value, sizeof value, "%s %.128s", has_build ? "build-id" : "sha256",
             has_build     ? build
             : sha != NULL ? sha
                           : "unknown");
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf name = {0};
    nd_strbuf_printf(&name, "%s%s", library_prefix, nd_path_base(path));
    if (name.text != NULL && !name.failed)
        put(out, ND_AXIS_SDK, name.text, value);
    else
        out->is_whole = false;
}

static void put_option(struct collected *out, const char *key, const char *value)
{
    /* They follow from the chipset, or say where a profile lay and what stands in it besides its items. */
    static const char *const of_chipset[] = {"option_soc_model",    "option_htp_arch",
                                             "option_profile_file", "option_profile_sha256",
                                             "option_profile_text", NULL};
    if (is_one_of(key, of_chipset))
        return;
    if (strcmp(key, "option_profile") == 0)
        put(out, ND_AXIS_CHIPSET, "profile", value); /* what an emulated device is */
    else if (strcmp(key, "option_backend_path") == 0)
        put(out, ND_AXIS_OPTIONS, key, nd_path_base(value)); /* the folder is that of the runtime */
    else
        put(out, ND_AXIS_OPTIONS, key, value);
}

static void put_attribute(struct collected *out, const struct nd_capture *capture, const struct nd_attr *attr)
{
    /* How it was called, which one of many it was, and what was sent there: no property of its kind. */
    static const char *const of_one[] = {"uri", "label", "marketing", "serial", "address", "measured", NULL};
    char number[64] = "";
    if (attr->type == ND_ATTR_I64)
        snprintf(number, sizeof number, "%" PRId64, attr->i64);
    else if (attr->type == ND_ATTR_F64)
        snprintf(number, sizeof number, "%a", attr->f64);
    const char *value = attr->type == ND_ATTR_STRING ? attr->string : number;
    if (strcmp(attr->group, "runtime") == 0) {
        const char *key = attr->key;
        static const char *const of_sdk[] = {"id", "ort_version", "ort_build_info", "provider_version", NULL};
        static const char *const of_options[] = {"provider", "optimisation", "threads", "fallback_allowed",
                                                 "passes",   "edges_in",     NULL};
        size_t n = strlen(key);
        if (strncmp(key, "library_", 8) == 0) {
            if (n > 13 && n < 48 && strcmp(key + n - 5, "_path") == 0)
                put_library(out, capture, key, value);
        } else if (is_one_of(key, of_sdk)) {
            put(out, ND_AXIS_SDK, key, value);
        } else if (is_one_of(key, of_options)) {
            put(out, ND_AXIS_OPTIONS, key, value);
        } else if (strncmp(key, "option_", 7) == 0) {
            put_option(out, key, value);
        } else if (strstr(key, "version") != NULL || strstr(key, "build") != NULL) {
            put(out, ND_AXIS_SDK, key, value); /* what later versions may write down of a runtime */
        }
    } else if (strcmp(attr->group, "device") == 0 && !is_one_of(attr->key, of_one))
        put(out, ND_AXIS_CHIPSET, attr->key, value);
    else if (strcmp(attr->group, "model") == 0 && strcmp(attr->key, "sha256") == 0)
        put(out, ND_AXIS_MODEL, attr->key, value);
    else if (strcmp(attr->group, "model") == 0 && strcmp(attr->key, "edges") == 0)
        put(out, ND_AXIS_OPTIONS, attr->key, value);
    else if (strcmp(attr->group, "host") == 0)
        put(out, ND_AXIS_HOST, attr->key, value);
}

/* "<digest of all samples of all inputs and of the inputs' names> x<samples>". */
static bool put_probe(struct collected *out, const struct nd_capture *capture, size_t p)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t n_samples = probe->n_samples_expected, n = 0, at = 0;
    struct nd_digest *all = NULL;
    if (nd_size_add(n_samples, 1, &n) && nd_size_mul(n, probe->n_inputs, &n))
        all = nd_calloc(n, sizeof *all);
    if (all == NULL)
        return false;
    for (size_t i = 0; i < probe->n_inputs; i++) {
        all[at++] = nd_digest_bytes(probe->inputs[i].name, strlen(probe->inputs[i].name));
        for (size_t s = 0; s < n_samples; s++)
            all[at++] = nd_capture_input_digest(capture, p, i, s);
    }
    struct nd_digest digest = nd_digest_bytes(all, n * sizeof *all);
    free(all);
    char value[64];
    snprintf(value, sizeof value, "%016" PRIx64 "%016" PRIx64 " x%zu", digest.high, digest.low, n_samples);
    put(out, ND_AXIS_PROBES, probe->name, value);
    return true;
}

/* Six objects of texts? */
static bool nd_axes_are_sound(const json_t *axes)
{
    const char *key;
    json_t *value;
    for (enum nd_axis a = 0; a < ND_N_AXES; a++) {
        json_t *axis = json_object_get(axes, nd_axis_name(a));
        if (!json_is_object(axis))
            return false;
        json_object_foreach(axis, key, value) {
            if (!json_is_string(value))
                return false;
        }
    }
    return true;
}

/* ---- comparing ---- */

struct comparing {
    const json_t *ref, *test; /* all axes of each */
    unsigned int differing;   /* bits of the axes that were compared before this one */
    struct nd_golden_difference *out;
    size_t capacity; /* of the changes */
    bool is_whole;
    const char *axis;
    bool skips_libraries; /* those that one side alone has */
    bool differs;
};

static const char *value_of(const json_t *axes, enum nd_axis axis, const char *key)
{
    const char *value = json_string_value(json_object_get(json_object_get(axes, nd_axis_name(axis)), key));
    return value != NULL ? value : "";
}

/* Whether an NPU ran it, through a provider that has options; the rest runs on a CPU. */
static bool is_npu(const json_t *axes)
{
    return strncmp(value_of(axes, ND_AXIS_CHIPSET, "kind"), "htp", 3) == 0;
}

/* Options that npudiff sets itself where the device has them (nd_device_default_options): on one side alone
 * they are a property of that side's device. */
static bool is_own_default(const char *key, const char *value)
{
    static const char *const named[] = {"provider", "option_backend_path", NULL};
    static const char *const switches[] = {"option_offload_graph_io_quantization",
                                           "option_enable_htp_fp16_precision", NULL};
    return is_one_of(key, named) || (is_one_of(key, switches) && strcmp(value, "1") == 0);
}

static bool is_usual_optimisation(const json_t *axes, const char *value)
{
    return value != NULL && strcmp(value, is_npu(axes) ? "all" : "disable") == 0;
}

/* The axis that an option follows from, so that it is no second change beside that axis; ND_N_AXES: from none.
 * How many sessions recorded the tensors is decided by what runs where: by the chipset and its libraries. */
static enum nd_axis cause_of(const struct comparing *to, const char *key, const char *ref, const char *test)
{
    static const char *const of_placement[] = {"passes", "edges_in", NULL};
    bool other_chipset = (to->differing & 1u << ND_AXIS_CHIPSET) != 0;
    bool other_sdk = (to->differing & 1u << ND_AXIS_SDK) != 0;
    if (strcmp(to->axis, nd_axis_name(ND_AXIS_OPTIONS)) != 0 || (!other_chipset && !other_sdk))
        return ND_N_AXES;
    bool has_prefixes = strcmp(value_of(to->ref, ND_AXIS_OPTIONS, "edges_in"), "prefixes") == 0 ||
                        strcmp(value_of(to->test, ND_AXIS_OPTIONS, "edges_in"), "prefixes") == 0;
    if (is_one_of(key, of_placement) && !has_prefixes)
        return other_chipset ? ND_AXIS_CHIPSET : ND_AXIS_SDK;
    bool is_one_sided = (ref == NULL) != (test == NULL);
    bool follows = (is_one_sided && is_own_default(key, ref != NULL ? ref : test)) ||
                   (strcmp(key, "optimisation") == 0 && is_npu(to->ref) != is_npu(to->test) &&
                    is_usual_optimisation(to->ref, ref) && is_usual_optimisation(to->test, test));
    return other_chipset && follows ? ND_AXIS_CHIPSET : ND_N_AXES;
}

static void compare_key(struct comparing *to, const char *key, const char *ref, const char *test)
{
    if (ref != NULL && test != NULL && strcmp(ref, test) == 0)
        return;
    /* Leave to fall back changes no value; what fell back is a failure on the side without leave. Early entries
     * have the address of one device of its kind. */
    if ((strcmp(to->axis, nd_axis_name(ND_AXIS_OPTIONS)) == 0 && strcmp(key, "fallback_allowed") == 0) ||
        (strcmp(to->axis, nd_axis_name(ND_AXIS_CHIPSET)) == 0 && strcmp(key, "address") == 0))
        return;
    if ((ref == NULL || test == NULL) && to->skips_libraries &&
        strncmp(key, library_prefix, strlen(library_prefix)) == 0)
        return;
    enum nd_axis cause = cause_of(to, key, ref, test);
    to->differs = to->differs || cause == ND_N_AXES;
    struct nd_golden_difference *out = to->out;
    to->is_whole = to->is_whole &&
                   nd_grow((void **)&out->changes, &to->capacity, out->n_changes + 1, sizeof *out->changes);
    if (to->is_whole)
        out->changes[out->n_changes++] =
            (struct nd_golden_change){.axis = to->axis,
                                      .key = key,
                                      .ref = ref,
                                      .test = test,
                                      .follows_from = cause != ND_N_AXES ? nd_axis_name(cause) : NULL};
}

static bool compare_axis(struct comparing *to, json_t *ref, json_t *test)
{
    const char *key;
    json_t *value;
    json_object_foreach(ref, key, value) {
        compare_key(to, key, json_string_value(value), json_string_value(json_object_get(test, key)));
    }
    json_object_foreach(test, key, value) {
        if (json_object_get(ref, key) == NULL)
            compare_key(to, key, NULL, json_string_value(value));
    }
    return to->differs;
}

const char *nd_axes_sdk(const json_t *axes)
{
    const char *id = value_of(axes, ND_AXIS_SDK, "id");
    return id[0] != '\0' ? id : value_of(axes, ND_AXIS_SDK, "sdk_version");
}

/* The SM number; of a device that has none what it is. */
const char *nd_axes_chipset(const json_t *axes)
{
    static const char *const keys[] = {"chipset", "profile", "kind"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (value_of(axes, ND_AXIS_CHIPSET, keys[i])[0] != '\0')
            return value_of(axes, ND_AXIS_CHIPSET, keys[i]);
    return "unknown";
}

/* Fills the axes and the changes of *out. Libraries that one side alone loaded count only when the chipset is
 * the same: each chipset has libraries of its own. An option that follows from another axis that differs does
 * not make its own axis differ. Texts are borrowed from ref and test. False: out of memory. */
static bool nd_axes_compare(const json_t *ref, const json_t *test, struct nd_golden_difference *out)
{
    struct comparing to = {.ref = ref, .test = test, .out = out, .is_whole = true};
    const char *chipset = nd_axis_name(ND_AXIS_CHIPSET);
    bool is_same_chipset = json_equal(json_object_get(ref, chipset), json_object_get(test, chipset));
    for (enum nd_axis a = 0; a < ND_N_AXES; a++) {
        to.axis = nd_axis_name(a);
        to.skips_libraries = a == ND_AXIS_SDK && !is_same_chipset;
        to.differs = false;
        if (!compare_axis(&to, json_object_get(ref, to.axis), json_object_get(test, to.axis)))
            continue;
        to.differing |= 1u << a;
        out->axes[out->n_axes++] = to.axis;
    }
    out->is_same_model = (to.differing & 1u << ND_AXIS_MODEL) == 0;
    return to.is_whole;
}

/* ---- hiding ---- */

/* Facts of a device that say only what kind it is, by how they begin: docs/reference/capture-format.md. */
static bool is_of_kind(const char *key)
{
    static const char *const facts[] = {"kind",      "is_simulator", "chipset",  "soc_model", "arch",
                                        "transport", "way",          "phone",    "board",     "machine_",
                                        "firmware",  "android_",     "battery_", "thermal_"};
    const char *source = strstr(key, "_source"); /* of an import it may be a file */
    for (size_t i = 0; source == NULL && i < sizeof facts / sizeof facts[0]; i++)
        if (strncmp(key, facts[i], strlen(facts[i])) == 0)
            return true;
    return false;
}

static bool is_telling(enum nd_axis axis, const char *key, const char *value)
{
    if (axis == ND_AXIS_CHIPSET)
        return !is_of_kind(key); /* such as a profile, which may name tensors */
    if (axis != ND_AXIS_OPTIONS)
        return false;
    if (strcmp(key, "edges") == 0) /* patterns, if it is no word of ours */
        return strcmp(value, "all") != 0 && strcmp(value, "outputs") != 0 && strcmp(value, "none") != 0;
    /* Of the options of a provider all but numbers and single words may be a path or a name. */
    return strncmp(key, "option_", 7) == 0 && strcmp(key, "option_backend_path") != 0 &&
           (strlen(value) > 16 || strpbrk(value, "/\\@:. ") != NULL);
}

/* A copy of the axes without what a user may have chosen: names of probes, profiles, patterns and paths are
 * replaced by what stands for them. NULL when memory is out. */
static json_t *nd_axes_hidden(const json_t *axes)
{
    json_t *hidden = json_object();
    bool is_whole = hidden != NULL;
    const char *key;
    json_t *value;
    for (enum nd_axis a = 0; is_whole && a < ND_N_AXES; a++) {
        json_t *axis = json_object();
        is_whole = json_object_set_new(hidden, nd_axis_name(a), axis) == 0;
        json_object_foreach(json_object_get(axes, nd_axis_name(a)), key, value) {
            char name[ND_HIDDEN_BYTES], text[ND_HIDDEN_BYTES];
            nd_axes_hide(key, name);
            nd_axes_hide(json_string_value(value), text);
            json_t *shown =
                is_telling(a, key, json_string_value(value)) ? json_string(text) : json_incref(value);
            is_whole = is_whole && json_object_set_new(axis, a == ND_AXIS_PROBES ? name : key, shown) == 0;
        }
    }
    if (!is_whole) {
        json_decref(hidden);
        hidden = NULL;
    }
    return hidden;
}

enum { TYPE_BYTES = 320, DIGEST_BYTES = 33 };

/* jansson refuses NULL values, so that a failed allocation anywhere ends as a failed append. */
static void put_of_store_record(json_t *object, const char *key, json_t *value, bool *is_whole)
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
static void describe_type(const struct nd_tensor *tensor, char out[static TYPE_BYTES])
{
    char shape[ND_MAX_RANK * 21 + 16] = "?";
    if (tensor->shape.rank >= 0)
        nd_shape_format(&tensor->shape, shape, sizeof shape);
    int n = snprintf(out, TYPE_BYTES, "%s %s", nd_dtype_name(tensor->dtype), shape);
    if (tensor->quant.n == 0)
        return;
    struct nd_digest digest[2] = {
        nd_digest_bytes(tensor->quant.scale, tensor->quant.n * sizeof *tensor->quant.scale),
        nd_digest_bytes(tensor->quant.zero_point, tensor->quant.n * sizeof *tensor->quant.zero_point)};
    struct nd_digest both = nd_digest_bytes(digest, sizeof digest);
    snprintf(out + n, TYPE_BYTES - (size_t)n, " axis %d %016" PRIx64, tensor->quant.axis, both.low);
}

/* Digest of the digests of all samples, first repeat. */
static bool combine(const struct nd_capture *capture, size_t probe, size_t tensor,
                    char out[static DIGEST_BYTES])
{
    size_t n = nd_capture_probe(capture, probe)->n_samples;
    ND_FREED struct nd_digest *all = nd_calloc(n, sizeof *all);
    for (size_t s = 0; all != NULL && s < n; s++)
        all[s] = nd_capture_digest(capture, probe, tensor, s, 0);
    if (all == NULL)
        return false;
    struct nd_digest digest = nd_digest_bytes(all, n * sizeof *all);
    snprintf(out, DIGEST_BYTES, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
    return true;
}

static json_t *tensor_record(const struct nd_capture *capture, size_t e, bool *is_whole)
{
    const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
    char type[TYPE_BYTES], digest[DIGEST_BYTES] = "";
    describe_type(tensor, type);
    json_t *record = json_object(), *digests = json_array();
    put_of_store_record(record, "name", nd_json_string(tensor->name), is_whole);
    put_of_store_record(record, "op_types", nd_json_string(tensor->op_types), is_whole);
    put_of_store_record(record, "type", json_string(type), is_whole);
    for (size_t p = 0; *is_whole && p < nd_capture_n_probes(capture); p++) {
        *is_whole = combine(capture, p, e, digest);
        append(digests, json_string(digest), is_whole);
    }
    put_of_store_record(record, "digests", digests, is_whole);
    return record;
}

/* Samples of which repeats are not alike, on any tensor. */
static size_t count_unstable(const struct nd_capture *capture, size_t p)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t n_unstable = 0;
    for (size_t s = 0; s < probe->n_samples; s++) {
        bool is_stable = true;
        for (size_t e = 0; is_stable && e < nd_capture_n_tensors(capture); e++)
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
    put_of_store_record(record, "name", nd_json_string(probe->name), is_whole);
    put_of_store_record(record, "samples", json_integer((json_int_t)probe->n_samples), is_whole);
    put_of_store_record(record, "unstable", json_integer((json_int_t)count_unstable(capture, p)), is_whole);
    return record;
}

static json_t *failure_record(const struct nd_capture *capture, bool *is_whole)
{
    json_t *record = json_object();
    const char *stage = nd_capture_string(capture, "failure", "stage");
    const char *message = nd_capture_string(capture, "failure", "message");
    json_int_t code = (json_int_t)nd_capture_integer(capture, "failure", "code", 0);
    put_of_store_record(record, "stage", nd_json_string(stage != NULL ? stage : ""), is_whole);
    put_of_store_record(record, "code", json_integer(code), is_whole);
    put_of_store_record(record, "message", nd_json_string(message != NULL ? message : ""), is_whole);
    return record;
}

json_t *nd_record_of_capture(const struct nd_capture *capture)
{
    bool is_whole = true;
    enum nd_capture_status state = nd_capture_state(capture);
    json_t *record = json_object(), *probes = json_array(), *tensors = json_array();
    /* New reference, or NULL when memory is out. */
    struct collected out = {.is_whole = true};
    json_t *axes = json_object();
    for (enum nd_axis a = 0; a < ND_N_AXES; a++) {
        out.axes[a] = json_object(); /* borrowed from axes */
        if (json_object_set_new(axes, nd_axis_name(a), out.axes[a]) != 0)
            out.is_whole = false;
    }
    for (size_t i = 0; out.is_whole && i < nd_capture_n_attrs(capture); i++)
        put_attribute(&out, capture, nd_capture_attr(capture, i));
    for (size_t p = 0; out.is_whole && p < nd_capture_n_probes(capture); p++)
        out.is_whole = put_probe(&out, capture, p);
    if (out.is_whole) {
        /* Captures from before `edges_in` say by their passes what it was. */
        const json_t *options = out.axes[ND_AXIS_OPTIONS];
        const char *passes = json_string_value(json_object_get(options, "passes"));
        if (passes != NULL && json_object_get(options, "edges_in") == NULL)
            put(&out, ND_AXIS_OPTIONS, "edges_in", strcmp(passes, "1") == 0 ? "one session" : "passes");
    }
    if (!out.is_whole) {
        json_decref(axes);
        axes = NULL;
    }
    put_of_store_record(record, "axes", axes, &is_whole);
    put_of_store_record(record, "status", json_string(nd_capture_state_name(state)), &is_whole);
    put_of_store_record(record, "failure",
                        state == ND_CAPTURE_FAILED ? failure_record(capture, &is_whole) : json_null(),
                        &is_whole);
    for (size_t p = 0; is_whole && p < nd_capture_n_probes(capture); p++)
        append(probes, probe_record(capture, p, &is_whole), &is_whole);
    for (size_t e = 0; is_whole && e < nd_capture_n_tensors(capture); e++)
        append(tensors, tensor_record(capture, e, &is_whole), &is_whole);
    put_of_store_record(record, "probes", probes, &is_whole);
    put_of_store_record(record, "edges", tensors, &is_whole);
    if (!is_whole) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

/* ---- checking ---- */

static bool is_sound_tensor(const json_t *tensor, size_t n_probes)
{
    const json_t *digests = json_object_get(tensor, "digests"), *digest;
    size_t i;
    if (!json_is_string(json_object_get(tensor, "name")) || !json_is_string(json_object_get(tensor, "type")) ||
        !json_is_array(digests) || json_array_size(digests) != n_probes)
        return false;
    json_array_foreach(digests, i, digest) {
        if (!json_is_string(digest) || json_string_length(digest) != DIGEST_BYTES - 1)
            return false;
    }
    return true;
}

const char *nd_record_problem(const json_t *record)
{
    const json_t *probes = json_object_get(record, "probes"), *tensors = json_object_get(record, "edges"),
                 *item;
    const json_t *failure = json_object_get(record, "failure");
    size_t i;
    if (!nd_axes_are_sound(json_object_get(record, "axes")))
        return "'axes' is not six objects of texts";
    if (!json_is_string(json_object_get(record, "status")))
        return "'status' is not a text";
    if (!json_is_null(failure) && !json_is_object(failure))
        return "'failure' is neither null nor an object";
    if (!json_is_array(probes) || !json_is_array(tensors))
        return "'probes' and 'edges' are not both lists";
    json_array_foreach(probes, i, item) {
        if (!json_is_string(json_object_get(item, "name")) ||
            !json_is_integer(json_object_get(item, "samples")))
            return "a probe has no name or no number of samples";
    }
    json_array_foreach(tensors, i, item) {
        if (!is_sound_tensor(item, json_array_size(probes)))
            return "a tensor has no name, no type or not one digest for each probe";
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
    json_t *hidden = json_object(), *probes = json_array(), *tensors = json_array();
    put_of_store_record(hidden, "axes", nd_axes_hidden(json_object_get(record, "axes")), &is_whole);
    put_of_store_record(hidden, "status", json_incref(json_object_get(record, "status")), &is_whole);
    put_of_store_record(hidden, "failure",
                        json_is_null(failure)
                            ? json_null()
                            : json_pack("{s:s, s:I}", "stage", nd_record_text(failure, "stage"), "code",
                                        json_integer_value(json_object_get(failure, "code"))),
                        &is_whole);
    json_array_foreach(json_object_get(record, "probes"), i, item) {
        append(probes,
               json_pack("{s:o, s:I, s:I}", "name", hidden_text(item, "name"), "samples",
                         json_integer_value(json_object_get(item, "samples")), "unstable",
                         json_integer_value(json_object_get(item, "unstable"))),
               &is_whole);
    }
    json_array_foreach(json_object_get(record, "edges"), i, item) {
        append(tensors,
               json_pack("{s:o, s:o, s:O}", "name", hidden_text(item, "name"), "type",
                         hidden_text(item, "type"), "digests", json_object_get(item, "digests")),
               &is_whole);
    }
    put_of_store_record(hidden, "probes", probes, &is_whole);
    put_of_store_record(hidden, "edges", tensors, &is_whole);
    if (!is_whole) {
        json_decref(hidden);
        hidden = NULL;
    }
    return hidden;
}

/* ---- how one record stands to another ---- */

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
        struct nd_golden_names *common = &pairing.out->probes;
        for (size_t p = 0; p < json_array_size(pairing.ref_probes); p++) {
            const char *name = name_of(pairing.ref_probes, p);
            size_t at = find(pairing.test_probes, p, name);
            const char *inputs = probe_inputs(ref, name);
            bool is_same = at != SIZE_MAX && inputs[0] != '\0' && strcmp(inputs, probe_inputs(test, name)) == 0;
            pairing.test_probe[p] = is_same ? at : SIZE_MAX;
            if (is_same)
                common->items[common->n++] = name_of(pairing.shown_probes, p);
        }
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
    ND_FREE_ALL(difference->different, difference->changes, difference->probes.items, difference->missing.items,
                difference->extra.items);
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
