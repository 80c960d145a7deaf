/* One part of the model: cutting it out, feeding it, running it, judging it. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <zip.h>

#include "arithmetic/operators/array.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/launch.h"
#include "improve/reduce/reducer.h"
#include "model/graph/parts.h"
#include "npudiff/capture/logs.h"

/* Whether two failures are the same one, and which nodes a failure names. */

/* ---- texts ---- */

/* The byte after a name in quotes that starts at text, or text itself. */
static const char *skip_quoted(const char *text)
{
    if (strchr("'\"`", *text) == NULL)
        return text;
    size_t n = strcspn(text + 1, "'\"`\n");
    return text[1 + n] == text[0] ? text + n + 2 : text;
}

void nd_failure_normalise(const char *text, char *out, size_t size)
{
    size_t n = 0;
    while (*text != '\0' && n + 4 < size) {
        const char *end = skip_quoted(text);
        if (end != text) {
            memcpy(out + n, "'*'", 3);
            n += 3;
            text = end;
        } else if (text[0] == '0' && text[1] == 'x') {
            memcpy(out + n, "0x*", 3);
            n += 3;
            for (text += 2; isxdigit((unsigned char)*text); text++)
                ;
        } else if (isdigit((unsigned char)*text)) {
            size_t digits = strspn(text, "0123456789");
            for (size_t i = 0; digits < 5 && i < digits && n + 1 < size; i++)
                out[n++] = text[i];
            if (digits >= 5)
                out[n++] = '#';
            text += digits;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = '\0';
}

/* ---- reading ---- */

static void copy_string(const struct nd_capture *capture, const char *key, char *out, size_t size)
{
    const char *text = nd_capture_string(capture, "failure", key);
    if (text != NULL)
        snprintf(out, size, "%.*s", (int)size - 1, text);
}

/* How well a finding says why: one that names the operator, one that names what is wrong with it, anything else
 * that failed; what the backend had against the node that was not placed in the end; nothing. */
static unsigned rank_reason(const struct nd_capture_finding *finding, const char *log_node)
{
    bool is_failure = strcmp(finding->severity, "failure") == 0;
    if (!is_failure || strcmp(finding->kind, "fallback") == 0)
        return strcmp(finding->kind, "validation") == 0 && log_node != NULL &&
               strcmp(finding->node, log_node) == 0;
    if (strcmp(finding->kind, "preparation") == 0 && finding->op[0] != '\0')
        return 4;
    return ND_IS_ONE_OF(finding->kind, "quantisation", "memory", "version", "arch", "library", "device") ? 3
                                                                                                         : 2;
}

/* A line without what every line begins with: where in the runtime it was written. */
static const char *skip_source(const char *line)
{
    static const char *const marks[] = {"ERROR:", "<E> ", "] "};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *found = strstr(line, marks[i]);
        if (found != NULL)
            return found + strlen(marks[i]);
    }
    return line;
}

static void read_cause(const struct nd_capture *capture, struct nd_reduction_failure *out)
{
    const struct nd_capture_finding *best = NULL;
    const char *log_node = nd_capture_string(capture, "failure", "log_node");
    unsigned best_rank = 0;
    for (size_t i = 0; i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *finding = nd_capture_finding(capture, i);
        unsigned rank = rank_reason(finding, log_node);
        if (rank > best_rank) {
            best = finding;
            best_rank = rank;
        }
    }
    if (best == NULL)
        return;
    snprintf(out->cause_kind, sizeof out->cause_kind, "%.15s", best->kind);
    snprintf(out->cause, sizeof out->cause, "%.191s", skip_source(best->text));
}

/* Which operators fall back is the reason; the first stands for all: "Erf". */
static void read_fell_back(const char *message, struct nd_reduction_failure *out)
{
    const char *colon = strstr(message, ": ");
    if (colon == NULL)
        return;
    snprintf(out->op, sizeof out->op, "%.*s", (int)strcspn(colon + 2, " "), colon + 2);
    snprintf(out->cause, sizeof out->cause, "%s does not run on the NPU", out->op);
    snprintf(out->cause_kind, sizeof out->cause_kind, "fallback");
}

void nd_failure_read(const struct nd_capture_outcome *outcome, const struct nd_capture *capture,
                     struct nd_reduction_failure *out)
{
    *out = (struct nd_reduction_failure){.id = outcome->failure.id};
    snprintf(out->stage, sizeof out->stage, "%s", outcome->stage);
    snprintf(out->message, sizeof out->message, "%.511s", outcome->failure.message);
    if (capture != NULL) {
        /* That of the outcome also tells what the logs say, with names and counts. */
        copy_string(capture, "message", out->message, sizeof out->message);
        copy_string(capture, "qnn_stage", out->qnn_stage, sizeof out->qnn_stage);
        copy_string(capture, "symbol", out->symbol, sizeof out->symbol);
        copy_string(capture, "operator", out->op, sizeof out->op);
        copy_string(capture, "node", out->node, sizeof out->node);
        int64_t code = nd_capture_integer(capture, "failure", "raw_code", INT64_MIN);
        out->has_raw_code = code != INT64_MIN;
        out->raw_code = out->has_raw_code ? code : 0;
    }
    if (out->id == ND_E_DEVICE_FALLBACK)
        read_fell_back(out->message, out);
    else if (capture != NULL)
        read_cause(capture, out);
}

bool nd_failure_is_same(const struct nd_reduction_failure *a, const struct nd_reduction_failure *b)
{
    char left[sizeof a->message], right[sizeof b->message];
    if (strcmp(a->stage, b->stage) != 0 || a->id != b->id || strcmp(a->op, b->op) != 0 ||
        strcmp(a->cause_kind, b->cause_kind) != 0)
        return false;
    if (a->id == ND_E_DEVICE_FALLBACK)
        return true;
    if (strcmp(a->qnn_stage, b->qnn_stage) != 0 || a->has_raw_code != b->has_raw_code ||
        a->raw_code != b->raw_code)
        return false;
    nd_failure_normalise(a->message, left, sizeof left);
    nd_failure_normalise(b->message, right, sizeof right);
    return strcmp(left, right) == 0;
}

/* ---- which nodes it speaks of ---- */

static void squeeze(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text != '\0' && *text != '.' && n + 1 < size; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
}

/* "q::QNN_Elu" is what becomes of Elu and Selu, "q::ScatterNd.tcm" of ScatterND. */
static bool is_of_kind(const char *op, const char *op_type)
{
    char made[64], asked[64];
    const char *name = strncmp(op, "q::", 3) == 0 ? op + 3 : op;
    squeeze(strncmp(name, "QNN_", 4) == 0 ? name + 4 : name, made, sizeof made);
    squeeze(op_type, asked, sizeof asked);
    if (strlen(made) < 3 || strlen(asked) < 2)
        return false;
    return strstr(made, asked) != NULL || strstr(asked, made) != NULL ||
           (strcmp(made, "select") == 0 && strcmp(asked, "where") == 0);
}

static void raise(unsigned *score, size_t node, unsigned points)
{
    if (node != SIZE_MAX && score[node] < points)
        score[node] = points;
}

/* A kind of which there is next to nothing else in the model says more than a name. */
static void score_kinds(const struct nd_model *model, const char *op, unsigned *score)
{
    enum { BY_RARE_KIND = ND_FAILURE_BEST_SCORE, BY_KIND = 1, RARE = 4 };
    size_t n_of_kind = 0;
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        n_of_kind += is_of_kind(op, nd_model_node(model, n)->op_type);
    for (size_t n = 0; n < nd_model_n_nodes(model); n++)
        if (is_of_kind(op, nd_model_node(model, n)->op_type))
            raise(score, n, n_of_kind <= RARE ? BY_RARE_KIND : BY_KIND);
}

enum nd_status nd_failure_score_nodes(const struct nd_model *model, const struct nd_reduction_failure *failure,
                                      const struct nd_capture *capture, unsigned *score, struct nd_error *err)
{
    size_t n = nd_model_n_nodes(model);
    ND_FREED const char **names = nd_calloc(n, sizeof *names);
    ND_TRY_MEMORY(names != NULL, err);
    for (size_t i = 0; i < n; i++) {
        names[i] = nd_model_node(model, i)->name;
        score[i] = 0;
    }
    /* By the names that the findings give, which are those of whatever the device was at when it gave up, after
     * it had moved operators about. */
    enum { BY_NODE = 3, BY_FINDING = 2, BY_WARNING = 1 };
    if (failure->node[0] != '\0')
        raise(score, nd_failure_find_node(names, n, failure->node), BY_NODE);
    for (size_t i = 0; capture != NULL && i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *finding = nd_capture_finding(capture, i);
        if (finding->node[0] != '\0' && strcmp(finding->severity, "note") != 0)
            raise(score, nd_failure_find_node(names, n, finding->node),
                  strcmp(finding->severity, "failure") == 0 ? BY_FINDING : BY_WARNING);
    }
    if (failure->op[0] != '\0')
        score_kinds(model, failure->op, score);
    return ND_OK;
}

/* What tensors of the whole model held when a reference ran it, and how far what a device computed is from what
 * it should be. */

/* The index of the tensor that records the tensor, or SIZE_MAX. */
static size_t nd_recorded_find(const struct nd_capture *capture, const char *tensor)
{
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
        if (strcmp(nd_capture_tensor(capture, e)->onnx_name, tensor) == 0)
            return e;
    return SIZE_MAX;
}

enum nd_status nd_recorded_add(struct nd_recorded *recorded, struct nd_capture **capture, bool is_of_part,
                               struct nd_error *err)
{
    size_t n = nd_capture_n_tensors(*capture);
    ND_TRY_MEMORY(
        nd_grow((void **)&recorded->known, &recorded->capacity, recorded->n_known + n, sizeof *recorded->known),
        err);
    for (size_t e = 0; e < n; e++) {
        struct nd_tensor tensor = *nd_capture_tensor(*capture, e);
        /* A reference hands out floats in double precision; the model itself computes in float32. */
        if (tensor.dtype == ND_DTYPE_F64)
            tensor.dtype = ND_DTYPE_F32;
        recorded->known[recorded->n_known++] = tensor;
    }
    recorded->is_of_part[recorded->n_captures] = is_of_part;
    recorded->captures[recorded->n_captures++] = *capture;
    *capture = NULL;
    return ND_OK;
}

void nd_recorded_deinit(struct nd_recorded *recorded)
{
    for (size_t i = 0; i < recorded->n_captures; i++)
        nd_capture_close(&recorded->captures[i]);
    free(recorded->known);
    *recorded = (struct nd_recorded){0};
}

/* Sample number `sample` of all probes together: which probe, and which of its own. */
static bool locate_array(const struct nd_recorded *recorded, size_t *probe, size_t *sample)
{
    for (*probe = 0; *probe < recorded->n_probes; ++*probe) {
        if (*sample < recorded->probes[*probe]->n_samples)
            return true;
        *sample -= recorded->probes[*probe]->n_samples;
    }
    return false;
}

static bool read_probe(const struct nd_recorded *recorded, const struct nd_wanted_record *wanted)
{
    size_t p, sample = wanted->sample, size_bytes = wanted->size_bytes;
    if (!locate_array(recorded, &p, &sample))
        return false;
    const struct nd_probe *probe = recorded->probes[p];
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        if (strcmp(input->name, wanted->tensor) != 0 || input->sample_bytes != size_bytes)
            continue;
        if (size_bytes > 0)
            memcpy(wanted->out, (const unsigned char *)input->data + sample * size_bytes, size_bytes);
        return true;
    }
    return false;
}

/* Of the probe's own samples. */
static enum nd_status read_narrowed(const struct nd_capture *capture, size_t probe, size_t tensor,
                                    size_t sample, const struct nd_wanted_record *wanted, struct nd_error *err)
{
    float *out = wanted->out;
    size_t n = wanted->size_bytes / sizeof *out;
    ND_FREED double *wide = nd_calloc(n, sizeof *wide);
    ND_TRY_MEMORY(wide != NULL, err);
    ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, sample, 1, wide, err));
    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
    return ND_OK;
}

static enum nd_status read_capture(const struct nd_recorded *recorded, size_t c,
                                   const struct nd_wanted_record *wanted, bool *is_found, struct nd_error *err)
{
    const struct nd_capture *capture = recorded->captures[c];
    size_t probe = 0, sample = wanted->sample, tensor = nd_recorded_find(capture, wanted->tensor),
           has_bytes = 0;
    if (tensor == SIZE_MAX || (!recorded->is_of_part[c] && !locate_array(recorded, &probe, &sample)))
        return ND_OK;
    const struct nd_tensor *known = nd_capture_tensor(capture, tensor);
    if (probe >= nd_capture_n_probes(capture) || sample >= nd_capture_probe(capture, probe)->n_samples ||
        !nd_capture_has_outputs(capture, probe, tensor))
        return ND_OK;
    bool is_narrowed = known->dtype == ND_DTYPE_F64 && wanted->dtype == ND_DTYPE_F32;
    enum nd_status status = nd_shape_size_bytes(&known->shape, known->dtype, &has_bytes, err);
    if (status != ND_OK || has_bytes != (is_narrowed ? 2 * wanted->size_bytes : wanted->size_bytes) ||
        (known->dtype != wanted->dtype && !is_narrowed))
        return status;
    status = is_narrowed ? read_narrowed(capture, probe, tensor, sample, wanted, err)
                         : nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, sample,
                                                    1, wanted->out, err);
    *is_found = status == ND_OK;
    return status;
}

/* *is_found false: nobody recorded it, and wanted->out is all zeros. */
static enum nd_status recorded_read(const struct nd_recorded *recorded, const struct nd_wanted_record *wanted,
                                    bool *is_found, struct nd_error *err)
{
    *is_found = read_probe(recorded, wanted);
    for (size_t c = 0; !*is_found && c < recorded->n_captures; c++)
        ND_TRY(read_capture(recorded, c, wanted, is_found, err));
    if (!*is_found)
        memset(wanted->out, 0, wanted->size_bytes);
    return ND_OK;
}

/* ---- differences ---- */

static bool is_equal(enum nd_dtype dtype, const unsigned char *ref, const unsigned char *test, size_t size)
{
    if (memcmp(ref, test, size) == 0)
        return true;
    if (dtype == ND_DTYPE_F32) {
        float a, b;
        memcpy(&a, ref, sizeof a);
        memcpy(&b, test, sizeof b);
        return isnan(a) && isnan(b);
    }
    return false;
}

void nd_difference_of(enum nd_dtype dtype, bool is_qvalues, const void *ref, const void *test, size_t n,
                      struct nd_reduction_difference *out)
{
    size_t n_different = 0, size = nd_dtype_size_bytes(dtype);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *a = (const unsigned char *)ref + i * size,
                            *b = (const unsigned char *)test + i * size;
        n_different += !is_equal(dtype, a, b, size);
        if (is_qvalues) {
            double qvalues[2];
            nd_array_load(dtype, a, 1, &qvalues[0]);
            nd_array_load(dtype, b, 1, &qvalues[1]);
            worst = fmax(worst, fabs(qvalues[0] - qvalues[1]));
        }
    }
    out->max_lsb = is_qvalues ? worst : NAN;
    out->fraction = n > 0 ? (double)n_different / (double)n : 0;
}

bool nd_difference_exceeds(const struct nd_reduction_difference *difference,
                           const struct nd_reduce_options *options)
{
    /* NaN on either side is not looked at, and never more. */
    return difference->max_lsb > options->lsb || difference->fraction > options->fraction;
}

bool nd_difference_is_worse(const struct nd_reduction_difference *a, const struct nd_reduction_difference *b)
{
    double steps_a = isnan(a->max_lsb) ? 0 : a->max_lsb, steps_b = isnan(b->max_lsb) ? 0 : b->max_lsb;
    return steps_a > steps_b || (!(steps_a < steps_b) && a->fraction > b->fraction);
}

/* Sample `sample` of all probes together, as a capture of the whole model holds it. */
static void locate(const struct nd_capture *capture, size_t *probe, size_t *sample)
{
    for (*probe = 0; *probe + 1 < nd_capture_n_probes(capture); ++*probe) {
        if (*sample < nd_capture_probe(capture, *probe)->n_samples)
            return;
        *sample -= nd_capture_probe(capture, *probe)->n_samples;
    }
}

enum nd_status nd_difference_of_tensor(const struct nd_recorded *recorded, const struct nd_capture *test,
                                       size_t tensor, bool is_of_part, struct nd_reduction_difference *out,
                                       struct nd_error *err)
{
    const struct nd_tensor *known = nd_capture_tensor(test, tensor);
    size_t n = 0, n_bytes = 0;
    bool is_known = true;
    *out = (struct nd_reduction_difference){.max_lsb = NAN, .fraction = NAN};
    enum nd_status status = nd_shape_n_elems(&known->shape, &n, err);
    if (status == ND_OK)
        status = nd_shape_size_bytes(&known->shape, known->dtype, &n_bytes, err);
    if (status != ND_OK)
        return status;
    ND_FREED void *ref = nd_tensor_alloc(n_bytes), *got = nd_tensor_alloc(n_bytes);
    if (ref == NULL || got == NULL)
        status = nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && is_known && s < recorded->n_samples; s++) {
        size_t probe = 0, sample = s;
        struct nd_reduction_difference one = {.max_lsb = NAN};
        if (!is_of_part)
            locate(test, &probe, &sample);
        if (probe >= nd_capture_n_probes(test) || sample >= nd_capture_probe(test, probe)->n_samples)
            break;
        const struct nd_wanted_record wanted = {known->onnx_name, s, known->dtype, ref, n_bytes};
        status = recorded_read(recorded, &wanted, &is_known, err);
        if (status != ND_OK || !is_known)
            break;
        status = nd_capture_read_verified(&(struct nd_probe_values){test, probe, tensor}, sample, 1, got, err);
        nd_difference_of(known->dtype, known->quant.n > 0, ref, got, n, &one);
        if (status == ND_OK && (s == 0 || nd_difference_is_worse(&one, out)))
            *out = one;
    }
    if (!is_known)
        out->fraction = NAN;
    snprintf(out->tensor, sizeof out->tensor, "%.255s", known->name);
    return status;
}

static const char *descr(enum nd_dtype dtype)
{
    static const char *const words[] = {
        [ND_DTYPE_F32] = "<f4", [ND_DTYPE_F64] = "<f8", [ND_DTYPE_F16] = "<f2", [ND_DTYPE_U8] = "|u1",
        [ND_DTYPE_I8] = "|i1",  [ND_DTYPE_U16] = "<u2", [ND_DTYPE_I16] = "<i2", [ND_DTYPE_U32] = "<u4",
        [ND_DTYPE_I32] = "<i4", [ND_DTYPE_U64] = "<u8", [ND_DTYPE_I64] = "<i8", [ND_DTYPE_BOOL] = "|b1",
    };
    return (size_t)dtype < sizeof words / sizeof words[0] ? words[dtype] : NULL;
}

enum { PREFIX_BYTES = 10, ALIGNMENT = 64 };

/* Everything before the data, padded so that the data is aligned. */
static void put_header(struct nd_strbuf *out, const struct nd_npz_array *array)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,", descr(array->dtype),
                     array->n_samples);
    for (int d = 0; d < array->shape.rank; d++)
        nd_strbuf_printf(&text, "%s%lld", d > 0 ? ", " : " ", (long long)array->shape.dims[d]);
    nd_strbuf_puts(&text, "), }");
    while (!text.failed && (PREFIX_BYTES + text.len + 1) % ALIGNMENT != 0)
        nd_strbuf_puts(&text, " ");
    nd_strbuf_puts(&text, "\n");
    const char prefix[PREFIX_BYTES] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.len & 0xff), (char)(text.len >> 8 & 0xff)};
    nd_strbuf_append(out, prefix, sizeof prefix);
    nd_strbuf_append(out, text.text, text.len);
    out->failed = out->failed || text.failed;
}

static enum nd_status add_array(zip_t *zip, const char *path, const struct nd_npz_array *array,
                                struct nd_error *err)
{
    const zip_int64_t day_one = 315532800; /* 1980-01-01, the first that zip knows */
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf file = {0}, name = {0};
    if (descr(array->dtype) == NULL)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, array->name, "'%s' is %s, which NumPy's files lack",
                       array->name, nd_dtype_name(array->dtype));
    put_header(&file, array);
    nd_strbuf_append(&file, array->data, array->size_bytes);
    nd_strbuf_printf(&name, "%s.npy", array->name);
    bool is_whole = !file.failed && !name.failed;
    zip_source_t *source = is_whole ? zip_source_buffer(zip, file.text, file.len, 1) : NULL;
    enum nd_status status = is_whole && source != NULL ? ND_OK : nd_fail_memory(err);
    if (source != NULL) {
        file = (struct nd_strbuf){0}; /* the source frees it */
        zip_int64_t index = zip_file_add(zip, name.text, source, ZIP_FL_ENC_UTF_8);
        bool is_added = index >= 0 &&
                        zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
                        zip_file_set_mtime(zip, (zip_uint64_t)index, day_one, 0) == 0;
        if (index < 0)
            zip_source_free(source);
        if (!is_added)
            status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
    }
    return status;
}

enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err)
{
    int code = 0;
    enum nd_status status = ND_OK;
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_EXCL, &code);
    if (zip == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot create '%s'", path);
    for (size_t i = 0; status == ND_OK && i < n_arrays; i++)
        status = add_array(zip, path, &arrays[i], err);
    if (status != ND_OK) {
        zip_discard(zip);
        return status;
    }
    if (zip_close(zip) != 0) {
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, zip_strerror(zip));
        zip_discard(zip);
    }
    return status;
}

/* ---- sessions ---- */

void nd_run_deinit(struct nd_run *run)
{
    nd_capture_close(&run->capture);
    *run = (struct nd_run){0};
}

static void tell(const struct nd_reducer *reducer)
{
    const struct nd_reduce_options *options = reducer->options;
    if (options->progress == NULL)
        return;
    const struct nd_reduce_progress progress = {.step = reducer->step,
                                                .n_sessions = reducer->out->n_sessions,
                                                .session_limit = options->session_limit,
                                                .n_left = reducer->n_left,
                                                .n_tried = reducer->n_tried};
    options->progress(options->progress_context, &progress);
}

enum nd_status nd_reducer_run(struct nd_reducer *reducer, const struct nd_session *session, struct nd_run *run,
                              struct nd_error *err)
{
    const struct nd_reduce_options *given = reducer->options;
    struct nd_capture_options options;
    nd_capture_options_init(&options);
    options.tensors = session->tensors;
    options.replace = options.skips_untouched = true;
    /* References compute on the CPU anyway. */
    options.allow_fallback = given->allow_fallback || session->device != reducer->device;
    options.agent = given->agent;
    options.is_cancelled = given->is_cancelled;
    options.cancel_context = given->cancel_context;
    if (given->time_limit_s > 0)
        options.time_limit_s = given->time_limit_s;
    *run = (struct nd_run){0};
    ND_FREED char *path = nd_path_join(session->folder, session->name);
    ND_TRY_MEMORY(path != NULL, err);
    tell(reducer);
    reducer->out->n_sessions++;
    const struct nd_workload workload = {session->model, session->device, session->probes, session->n_probes};
    ND_TRY(nd_capture_run(&workload, path, &options, &run->outcome, err));
    return nd_capture_open(path, &run->capture, err);
}

/* ---- cutting out ---- */

struct feed {
    struct nd_npz_array *arrays;
    void **data;
    size_t n;
};

static void feed_deinit(struct feed *feed)
{
    ND_FREE_ITEMS(feed->data, feed->n);
    free(feed->arrays);
}

static enum nd_status fill_input(struct nd_smaller_model *candidate, const struct nd_reducer *reducer, size_t i,
                                 struct feed *feed, struct nd_error *err)
{
    const struct nd_model_io *input = nd_model_input(candidate->model, i);
    const struct nd_recorded *recorded = &reducer->recorded;
    size_t size = 0, total = 0;
    ND_TRY(nd_shape_size_bytes(&input->shape, input->dtype, &size, err));
    ND_TRY_MEMORY(nd_size_mul(size, recorded->n_samples, &total), err);
    ND_TRY_MEMORY((feed->data[i] = nd_tensor_alloc(total)) != NULL, err);
    feed->arrays[i] = (struct nd_npz_array){.name = input->name,
                                            .dtype = input->dtype,
                                            .shape = input->shape,
                                            .n_samples = recorded->n_samples,
                                            .data = feed->data[i],
                                            .size_bytes = total};
    for (size_t s = 0; s < recorded->n_samples; s++) {
        bool is_found = false;
        const struct nd_wanted_record wanted = {input->name, s, input->dtype,
                                                (unsigned char *)feed->data[i] + s * size, size};
        ND_TRY(recorded_read(recorded, &wanted, &is_found, err));
        candidate->is_all_recorded = candidate->is_all_recorded && is_found;
    }
    return ND_OK;
}

static enum nd_status write_inputs(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                   const char *path, struct nd_error *err)
{
    ND_CLEANUP(feed_deinit) struct feed feed = {.n = nd_model_n_inputs(candidate->model)};
    feed.arrays = nd_calloc(feed.n, sizeof *feed.arrays);
    feed.data = nd_calloc(feed.n, sizeof *feed.data);
    ND_TRY_MEMORY(feed.arrays != NULL && feed.data != NULL, err);
    candidate->is_all_recorded = true;
    for (size_t i = 0; i < feed.n; i++)
        ND_TRY(fill_input(candidate, reducer, i, &feed, err));
    return nd_npz_write(path, feed.arrays, feed.n, err);
}

static enum nd_status make_probe(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                 struct nd_error *err)
{
    if (nd_model_n_inputs(candidate->model) == 0) {
        const char *nothing = "zeros";
        return nd_probes_for_model_any(candidate->model, &nothing, 1, &candidate->probe, err);
    }
    ND_FREED char *path = nd_path_join(candidate->folder, "inputs.npz");
    size_t size = path != NULL ? strlen(path) + 16 : 0;
    ND_FREED char *spec = path != NULL ? malloc(size) : NULL;
    ND_TRY(spec != NULL ? write_inputs(candidate, reducer, path, err) : nd_fail_memory(err));
    snprintf(spec, size, "inputs=%s", path);
    const char *const specs[] = {spec};
    return nd_probes_for_model_any(candidate->model, specs, 1, &candidate->probe, err);
}

static bool has_wanted(const struct nd_reducer *reducer, const struct nd_model_cut *cut)
{
    for (size_t i = 0; i < cut->n_nodes; i++)
        if (cut->nodes[i] == reducer->wanted_node)
            return true;
    return reducer->wanted_node == SIZE_MAX;
}

enum nd_status nd_candidate_init(struct nd_smaller_model *candidate, const struct nd_reducer *reducer,
                                 const struct nd_model_cut *part, const char *folder, struct nd_error *err)
{
    struct nd_model_cut cut = *part;
    cut.known = reducer->recorded.known;
    cut.n_known = reducer->recorded.n_known;
    cut.output = reducer->wanted_tensor;
    *candidate = (struct nd_smaller_model){.folder = nd_strdup(folder)};
    ND_TRY_MEMORY(candidate->folder != NULL, err);
    if (!has_wanted(reducer, &cut))
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, reducer->options->tensor, "tensor '%s' is not in it",
                       reducer->options->tensor);
    ND_TRY(nd_dir_make(folder, err));
    ND_FREED char *path = nd_path_join(folder, "reproducer.onnx");
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(nd_model_write_subgraph(reducer->model, &cut, path, err));
    ND_TRY(nd_model_load(path, &candidate->model, err));
    ND_TRY(nd_model_check_static(candidate->model, err));
    return make_probe(candidate, reducer, err);
}

void nd_candidate_deinit(struct nd_smaller_model *candidate)
{
    nd_probe_destroy(&candidate->probe);
    nd_model_destroy(&candidate->model);
    free(candidate->folder);
    *candidate = (struct nd_smaller_model){0};
}

struct nd_session nd_candidate_session(const struct nd_smaller_model *candidate, const struct nd_device *device,
                                       const char *tensors, const char *name)
{
    return (struct nd_session){.model = candidate->model,
                               .device = device,
                               .probes = (const struct nd_probe *const *)&candidate->probe,
                               .n_probes = 1,
                               .tensors = tensors,
                               .folder = candidate->folder,
                               .name = name};
}

const char *nd_reducer_plain_tensors(const struct nd_reducer *reducer)
{
    return nd_device_is_evaluated(reducer->device->kind) ? "outputs" : "none";
}

/* ---- judging ---- */

/* What it gave, held against what was recorded, or against what the other device made of the same part. */
static enum nd_status worst_output(const struct nd_reducer *reducer, const struct nd_recorded *expected,
                                   const struct nd_capture *capture, struct nd_reduction_difference *out,
                                   struct nd_error *err)
{
    bool is_first = true;
    *out = (struct nd_reduction_difference){.max_lsb = NAN};
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        struct nd_reduction_difference one;
        const char *tensor = nd_capture_tensor(capture, e)->onnx_name;
        if (reducer->wanted_tensor != NULL && strcmp(tensor, reducer->wanted_tensor) != 0)
            continue;
        ND_TRY(nd_difference_of_tensor(expected, capture, e, true, &one, err));
        if (!isnan(one.fraction) && (is_first || nd_difference_is_worse(&one, out))) {
            *out = one;
            is_first = false;
        }
    }
    return ND_OK;
}

static enum nd_status judge_difference(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                       const struct nd_capture *capture, struct nd_reduction_difference *out,
                                       struct nd_error *err)
{
    const struct nd_device *against = reducer->options->against;
    if (against == NULL)
        return worst_output(reducer, &reducer->recorded, capture, out, err);
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    ND_CLEANUP(nd_recorded_deinit) struct nd_recorded expected = {.n_samples = reducer->recorded.n_samples};
    const struct nd_session session = nd_candidate_session(candidate, against, "outputs", "reference.h5");
    ND_TRY(nd_reducer_run(reducer, &session, &run, err));
    if (!run.outcome.has_failed)
        ND_TRY(nd_recorded_add(&expected, &run.capture, true, err));
    return worst_output(reducer, &expected, capture, out, err);
}

static enum nd_status judge(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                            const struct nd_run *run, enum nd_trial *trial,
                            struct nd_reduction_difference *difference, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *trial = ND_TRIAL_NOT;
    if (run->outcome.has_failed) {
        struct nd_reduction_failure failure;
        nd_failure_read(&run->outcome, run->capture, &failure);
        if (!reducer->options->has_difference && nd_failure_is_same(&failure, &reducer->out->failure))
            *trial = ND_TRIAL_SAME;
        else
            reducer->out->n_other++;
    } else if (reducer->options->has_difference) {
        status = judge_difference(reducer, candidate, run->capture, difference, err);
        if (status == ND_OK && nd_difference_exceeds(difference, reducer->options))
            *trial = ND_TRIAL_SAME;
    }
    reducer->out->n_same += *trial == ND_TRIAL_SAME;
    reducer->out->n_fine += status == ND_OK && *trial == ND_TRIAL_NOT && !run->outcome.has_failed;
    return status;
}

enum nd_status nd_candidate_try(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                size_t reserve, enum nd_trial *trial,
                                struct nd_reduction_difference *difference, struct nd_error *err)
{
    size_t n_needed = reserve + (reducer->options->has_difference && reducer->options->against != NULL ? 2 : 1);
    *difference = (struct nd_reduction_difference){.max_lsb = NAN};
    *trial = ND_TRIAL_STOP;
    if (reducer->out->n_sessions + n_needed > reducer->options->session_limit)
        return ND_OK;
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    const struct nd_session session = nd_candidate_session(
        candidate, reducer->device,
        reducer->options->has_difference ? "outputs" : nd_reducer_plain_tensors(reducer), "device.h5");
    enum nd_status status = nd_reducer_run(reducer, &session, &run, err);
    if (status == ND_OK) {
        status = judge(reducer, candidate, &run, trial, difference, err);
    } else if (status == ND_ERR_NOT_FOUND || status == ND_ERR_UNSUPPORTED || status == ND_ERR_USAGE) {
        /* Not for this device, or without a tensor that could differ: no agent was started. */
        reducer->out->n_sessions--;
        reducer->out->n_uncut++;
        *trial = ND_TRIAL_NOT;
        status = ND_OK;
    }
    return status;
}
