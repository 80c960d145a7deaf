/* A capture that is open: attributes and logs, what it holds, and whether that agrees with its digests.
 * docs/reference/capture-format.md. */
#include <assert.h>
#include <stdio.h>

#include "capture/fetch/fetch.h"
#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

/* What is being hashed, for the report. */
struct subject {
    const struct nd_capture *capture;
    const char *probe;
    const char *kind; /* "tensor" or "input" */
    const char *name;
    enum nd_dtype dtype;
    struct nd_capture_verification *out;
};

static void count_wrong(const struct subject *subject, size_t sample, size_t repeat)
{
    struct nd_capture_verification *out = subject->out;
    if (out->n_wrong++ > 0)
        return;
    int n = snprintf(out->first_wrong, sizeof out->first_wrong, "probe '%s', %s '%s', sample %zu",
                     subject->probe, subject->kind, subject->name, sample);
    if (repeat > 0 && n > 0 && (size_t)n < sizeof out->first_wrong)
        snprintf(out->first_wrong + n, sizeof out->first_wrong - (size_t)n, ", repeat %zu", repeat);
}

/* Digest of row i: digests[i * stride]; of a stored repeat, rows[i] says whose it is. */
struct expectation {
    const struct nd_digest *digests;
    size_t stride;
    const struct nd_repeat_row *rows;
};

/* Every byte is a value of every type but the 4-bit integers. */
static bool has_values_only(enum nd_dtype dtype, const unsigned char *data, size_t n_bytes)
{
    unsigned char outside = 0;
    if (dtype != ND_DTYPE_U4 && dtype != ND_DTYPE_I4)
        return true;
    unsigned char shift = dtype == ND_DTYPE_I4 ? 8 : 0; /* -8..7 as 0..15 */
    for (size_t i = 0; i < n_bytes; i++)
        outside |= (unsigned char)(data[i] + shift) & 0xf0;
    return outside == 0;
}

static void check_row(const struct subject *subject, const struct expectation *expected, size_t i,
                      const unsigned char *data, size_t row_bytes)
{
    size_t sample = i, repeat = 0;
    if (expected->rows != NULL) {
        sample = (size_t)expected->rows[i].sample;
        repeat = (size_t)expected->rows[i].repeat;
    }
    subject->out->n_tensors++;
    /* data NULL: the row could not even be decoded */
    if (data == NULL || !has_values_only(subject->dtype, data, row_bytes) ||
        !nd_digest_equal(nd_digest_bytes(data, row_bytes), expected->digests[i * expected->stride]))
        count_wrong(subject, sample, repeat);
}

/* Hashes every row, a chunk at a time so that none is inflated twice. */
static enum nd_status check_tensor(const struct subject *subject, const struct nd_index_object *object,
                                   const struct expectation *expected, struct nd_error *err)
{
    size_t n = (size_t)object->shape.dims[0];
    size_t row_bytes = n > 0 ? object->n_bytes / n : 0;
    size_t n_batch = object->chunks != NULL ? object->layout.samples_per_chunk : 1;
    n_batch = n_batch < n ? n_batch : n;
    size_t batch_bytes;
    enum nd_status status = ND_OK;
    ND_FREED unsigned char *data =
        nd_size_mul(n_batch, row_bytes, &batch_bytes) ? nd_tensor_alloc(batch_bytes) : NULL;
    ND_TRY_MEMORY(data != NULL, err);
    for (size_t first = 0; first < n && status == ND_OK; first += n_batch) {
        size_t n_rows = n - first < n_batch ? n - first : n_batch;
        status = nd_index_read(subject->capture->index, object, first, n_rows, data, err);
        bool is_read = status == ND_OK;
        if (status == ND_ERR_FORMAT)
            status = ND_OK; /* damage is what is looked for */
        for (size_t i = 0; i < n_rows && status == ND_OK; i++)
            check_row(subject, expected, first + i, is_read ? data + i * row_bytes : NULL, row_bytes);
    }
    return status;
}

/* Stored repeats are kept sorted by sample; hashing goes by row. */
static enum nd_status check_repeats(const struct subject *subject, size_t probe, size_t tensor,
                                    struct nd_error *err)
{
    const struct nd_probe_tensor *part = &subject->capture->probes[probe].tensors[tensor];
    ND_FREED struct nd_repeat_row *rows = nd_calloc(part->n_repeat_rows, sizeof *rows);
    ND_FREED struct nd_digest *digests = nd_calloc(part->n_repeat_rows, sizeof *digests);
    for (size_t i = 0; rows != NULL && digests != NULL && i < part->n_repeat_rows; i++) {
        const struct nd_repeat_row *row = &part->repeat_rows[i];
        rows[row->row] = *row;
        digests[row->row] =
            nd_capture_digest(subject->capture, probe, tensor, (size_t)row->sample, (size_t)row->repeat);
    }
    struct expectation expected = {digests, 1, rows};
    return rows != NULL && digests != NULL ? check_tensor(subject, part->repeats, &expected, err)
                                           : nd_fail_memory(err);
}

/* A run that has values of its own (another digest than the first run) has stored them: else whoever reads it
 * gets those of the first run. Opening makes sure of it for repeats. */
static void check_reruns(const struct subject *subject, size_t probe, size_t tensor)
{
    const struct nd_capture *capture = subject->capture;
    const struct nd_probe_data *data = &capture->probes[probe];
    for (size_t s = 0; data->n_reruns > 0 && s < data->probe.n_samples; s++)
        for (size_t r = 1, n = nd_capture_n_runs(capture, probe, tensor, s); r < n; r++)
            if (!nd_digest_equal(nd_capture_digest(capture, probe, tensor, s, 0),
                                 nd_capture_digest(capture, probe, tensor, s, r)) &&
                nd_capture_repeat_row(&data->tensors[tensor], s, r) == NULL) {
                subject->out->n_tensors++;
                count_wrong(subject, s, r);
            }
}

static enum nd_status check_probe(const struct nd_capture *capture, size_t p,
                                  struct nd_capture_verification *out, struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[p];
    for (size_t i = 0; i < data->probe.n_inputs; i++) {
        struct subject subject = {
            capture, data->probe.name, "input", data->probe.inputs[i].name, data->probe.inputs[i].dtype, out};
        struct expectation expected = {data->inputs[i].digests, 1, NULL};
        ND_TRY(check_tensor(&subject, data->inputs[i].object, &expected, err));
    }
    for (size_t i = 0; i < capture->n_tensors; i++) {
        const struct nd_probe_tensor *part = &data->tensors[i];
        struct subject subject = {
            capture, data->probe.name, "tensor", capture->tensors[i].name, capture->tensors[i].dtype, out};
        ND_TRY(nd_probe_need_digests(capture, p, i, err));
        struct expectation expected = {part->digests, data->probe.n_repeats, NULL};
        if (part->outputs != NULL)
            ND_TRY(check_tensor(&subject, part->outputs, &expected, err));
        if (part->repeats != NULL)
            ND_TRY(check_repeats(&subject, p, i, err));
        if (part->outputs != NULL)
            check_reruns(&subject, p, i);
    }
    return ND_OK;
}

/* Whether those that are stated are what the digests say. */
static bool nd_capture_are_tensor_digests_right(const struct nd_capture *capture)
{
    for (size_t p = 0; p < capture->n_probes; p++)
        for (size_t e = 0; e < capture->n_tensors; e++) {
            const struct nd_digest *stated = nd_capture_tensor_digest(capture, p, e);
            if (stated != NULL && !nd_digest_equal(*stated, nd_capture_make_tensor_digest(capture, p, e)))
                return false;
        }
    return true;
}

/* Digests that opening has not read are stood for by what is stated of them. */
static enum nd_status content_of(const struct nd_capture *capture, char hex[static ND_CONTENT_DIGEST_BYTES],
                                 struct nd_error *err)
{
    if (capture->deferred == NULL)
        return nd_content_digest(capture->index, NULL, hex, err);
    const struct nd_index *index = capture->index;
    ND_FREED const struct nd_digest **stated = nd_calloc(index->n_objects, sizeof(const struct nd_digest *));
    ND_TRY_MEMORY(stated != NULL, err);
    for (size_t p = 0; p < capture->n_probes; p++)
        for (size_t e = 0; e < capture->n_tensors; e++) {
            const struct nd_index_object *object = capture->probes[p].tensors[e].digests_object;
            if (object != NULL)
                stated[object - index->objects] = nd_capture_tensor_digest(capture, p, e);
        }
    return nd_content_digest(index, stated, hex, err);
}

enum nd_status nd_capture_check_content(const struct nd_capture *capture, struct nd_error *err)
{
    char digest[ND_CONTENT_DIGEST_BYTES];
    const char *stored = nd_capture_string(capture, "", "content_digest");
    if (capture->is_trusted || capture->is_checked)
        return ND_OK;
    enum nd_status status = content_of(capture, digest, err);
    bool is_right = status == ND_OK && stored != NULL && strcmp(stored, digest) == 0;
    if (is_right && capture->deferred == NULL)
        is_right = nd_capture_are_tensor_digests_right(capture);
    if (status == ND_OK && !is_right)
        return nd_fail(
            err, ND_E_CAPTURE_DIGEST, capture->path,
            "'%s' is damaged: its tables, attributes or digests are not what its content digest was made of; "
            "'npudiff verify' looks at everything",
            capture->path);
    if (status != ND_OK)
        nd_error_context(err, "'%s'", capture->path);
    return status;
}

enum nd_status nd_capture_verify(const struct nd_capture *capture, struct nd_capture_verification *out,
                                 struct nd_error *err)
{
    struct nd_capture_verification found;
    char digest[ND_CONTENT_DIGEST_BYTES];
    ND_TRY(nd_options_read(&found, sizeof found, out, err));
    found = (struct nd_capture_verification){0};
    enum nd_status status = nd_content_digest(capture->index, NULL, digest, err);
    if (status == ND_OK) {
        const char *stored = nd_capture_string(capture, "", "content_digest");
        found.content_matches =
            stored != NULL && strcmp(stored, digest) == 0 && nd_capture_are_tensor_digests_right(capture);
    } else if (status == ND_ERR_FORMAT) {
        status = ND_OK; /* a table that cannot be read does not match either */
    }
    for (size_t i = 0; i < capture->n_probes && status == ND_OK; i++)
        status = check_probe(capture, i, &found, err);
    if (status == ND_OK)
        nd_options_write(out, out->struct_size, &found, sizeof found);
    return status;
}

static enum nd_status set_attr(struct nd_attr *attr, const char *group, const char *path,
                               const struct nd_index_attr *found, struct nd_error *err)
{
    bool is_text = found->dtype == ND_DTYPE_NONE;
    if (!found->is_scalar || (!is_text && found->dtype != ND_DTYPE_I64 && found->dtype != ND_DTYPE_F64))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path,
                       "attribute '%s' of '%s' is not text, one int64 or one float64", found->name, path);
    attr->group = nd_strdup(group);
    attr->key = nd_strdup(found->name);
    attr->type = is_text ? ND_ATTR_STRING : found->dtype == ND_DTYPE_I64 ? ND_ATTR_I64 : ND_ATTR_F64;
    if (is_text)
        attr->string = strndup((const char *)found->bytes, found->n_bytes);
    else
        memcpy(attr->type == ND_ATTR_I64 ? (void *)&attr->i64 : (void *)&attr->f64, found->bytes, 8);
    if (attr->group == NULL || attr->key == NULL || (is_text && attr->string == NULL))
        return nd_fail_memory(err);
    return ND_OK;
}

/* Three columns of as many lines, the last of numbers. */
static enum nd_status check_truth(const struct nd_capture *capture, struct nd_error *err)
{
    static const char *const keys[] = {"faulty", "kinds", "n_changed"};
    size_t n_lines[3];
    const char *profile = nd_capture_string(capture, "truth", "profile");
    bool is_whole = profile != NULL && strchr(profile, '\n') == NULL;
    for (size_t k = 0; k < 3 && is_whole; k++) {
        const char *text = nd_capture_string(capture, "truth", keys[k]);
        is_whole = text != NULL;
        n_lines[k] = is_whole && *text != '\0';
        for (; is_whole && *text != '\0'; text++) {
            n_lines[k] += *text == '\n';
            is_whole = k < 2 || *text == '\n' || (*text >= '0' && *text <= '9');
        }
        is_whole = is_whole && n_lines[k] == n_lines[0];
    }
    return is_whole ? ND_OK
                    : nd_fail(err, ND_E_CAPTURE_SCHEMA, "/truth",
                              "'/truth' is not profile and as many lines of faulty, kinds and n_changed");
}

/* Each fills its part of the capture; what was filled before a failure is freed by nd_capture_close. */
static enum nd_status nd_capture_load_attrs(struct nd_capture *capture, struct nd_error *err)
{
    size_t capacity = 0;
    for (size_t g = 0; g < ND_CAPTURE_N_GROUPS; g++) {
        char path[16];
        snprintf(path, sizeof path, "/%s", nd_capture_groups[g]);
        const struct nd_index_object *object = nd_index_find(capture->index, path);
        for (size_t i = 0; object != NULL && i < object->n_attrs; i++) {
            ND_TRY_MEMORY(
                nd_grow((void **)&capture->attrs, &capacity, capture->n_attrs + 1, sizeof *capture->attrs),
                err);
            struct nd_attr *attr = &capture->attrs[capture->n_attrs++];
            *attr = (struct nd_attr){0};
            ND_TRY(set_attr(attr, nd_capture_groups[g], path, &object->attrs[i], err));
        }
    }
    if (nd_index_find(capture->index, "/truth") != NULL)
        ND_TRY(check_truth(capture, err));
    const char *found = nd_capture_string(capture, "", "status");
    for (int i = ND_CAPTURE_COMPLETE; found != NULL && i <= ND_CAPTURE_PARTIAL; i++)
        if (strcmp(found, nd_capture_state_name((enum nd_capture_status)i)) == 0) {
            capture->state = (enum nd_capture_status)i;
            return ND_OK;
        }
    return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/",
                   "attribute 'status' is '%s' instead of complete, failed or partial",
                   found != NULL ? found : "missing");
}

static enum nd_status nd_capture_load_logs(struct nd_capture *capture, struct nd_error *err)
{
    size_t first, end;
    nd_index_range(capture->index, "/logs", &first, &end);
    capture->logs = nd_calloc(end - first, sizeof *capture->logs);
    ND_TRY_MEMORY(capture->logs != NULL, err);
    for (size_t i = first; i < end; i++) {
        const char *path = capture->index->objects[i].path;
        struct nd_capture_log *log = &capture->logs[capture->n_logs++];
        const struct nd_wanted bytes = {ND_DTYPE_U8, {.rank = 1, .dims = {-1}}, false};
        void *text = NULL;
        ND_TRY(nd_name_unescape(path + strlen("/logs/"), path, &log->name, err));
        ND_TRY(nd_capture_load(capture, path, &bytes, &text, NULL, err));
        log->text = text;
    }
    return ND_OK;
}

static enum nd_status list_objects(struct nd_capture *capture, struct nd_error *err)
{
    capture->objects = nd_calloc(capture->index->n_objects, sizeof *capture->objects);
    ND_TRY_MEMORY(capture->objects != NULL, err);
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
        ND_TRY(nd_capture_tensor_dtype(found, &object->dtype, err));
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

static enum nd_status load(struct nd_capture *capture, const char *path, bool is_deferred, struct nd_error *err)
{
    capture->path = nd_fetch_shown(path);
    capture->deferred = is_deferred ? deferred_create() : NULL;
    ND_TRY_MEMORY(capture->path != NULL && (!is_deferred || capture->deferred != NULL), err);
    ND_TRY(nd_index_open(path, &nd_capture_schema, &capture->index, err));
    ND_TRY(nd_capture_load_attrs(capture, err));
    ND_TRY(nd_capture_load_tensors(capture, err));
    ND_TRY(nd_capture_load_nodes(capture, err));
    ND_TRY(nd_capture_load_logs(capture, err));
    ND_TRY(nd_capture_load_findings(capture, err));
    ND_TRY(nd_capture_load_probes(capture, err));
    return list_objects(capture, err);
}

static enum nd_status open_capture(const char *path, bool is_deferred, struct nd_capture **out,
                                   struct nd_error *err)
{
    struct nd_capture *capture = nd_calloc(1, sizeof *capture);
    ND_TRY_MEMORY(capture != NULL, err);
    enum nd_status status = load(capture, path, is_deferred, err);
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
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    ND_TRY(open_capture(path, is_deferred, &capture, err));
    ND_TRY(nd_capture_check_content(capture, err));
    capture->is_checked = true;
    return ND_GIVE(out, capture);
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
    for (size_t i = 0; i < capture->n_tensors; i++) {
        if (capture->tensors != NULL)
            nd_tensor_deinit(&capture->tensors[i]);
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

static void nd_probe_data_deinit(struct nd_probe_data *data, size_t n_tensors)
{
    struct nd_capture_probe *probe = &data->probe;
    for (size_t i = 0; data->tensors != NULL && i < n_tensors; i++) {
        free(atomic_load(&data->tensors[i].digests));
        free(data->tensors[i].repeat_rows);
    }
    for (size_t i = 0; i < probe->n_inputs; i++) {
        if (probe->inputs != NULL)
            free(probe->inputs[i].name);
        if (data->inputs != NULL)
            free(data->inputs[i].digests);
    }
    free(data->tensors);
    free(data->tensor_digests);
    free(data->inputs);
    free(data->reruns);
    free(data->rerun_digests);
    free(probe->inputs);
    free(probe->name);
    free(probe->source);
    free(probe->labels);
    free(probe->latency_us);
    *data = (struct nd_probe_data){0};
}

void nd_capture_close(struct nd_capture **capture_at)
{
    struct nd_capture *capture = *capture_at;
    if (capture == NULL)
        return;
    for (size_t i = 0; i < capture->n_probes; i++)
        nd_probe_data_deinit(&capture->probes[i], capture->n_tensors);
    close_tables(capture);
    free(capture->attrs);
    free(capture->tensors);
    free(capture->providers);
    free(capture->tensor_keys);
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
    return state == ND_CAPTURE_COMPLETE  ? "complete"
           : state == ND_CAPTURE_FAILED  ? "failed"
           : state == ND_CAPTURE_PARTIAL ? "partial"
                                         : "unknown";
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

size_t nd_capture_n_tensors(const struct nd_capture *capture)
{
    return capture->n_tensors;
}

const struct nd_tensor *nd_capture_tensor(const struct nd_capture *capture, size_t tensor)
{
    assert(tensor < capture->n_tensors);
    return &capture->tensors[tensor];
}

const char *nd_capture_tensor_provider(const struct nd_capture *capture, size_t tensor)
{
    assert(tensor < capture->n_tensors);
    return capture->providers[tensor];
}

static int compare_name(const void *name, const void *key)
{
    return strcmp(name, ((const struct nd_tensor_key *)key)->name);
}

size_t nd_capture_find_tensor(const struct nd_capture *capture, const char *name)
{
    const struct nd_tensor_key *key =
        bsearch(name, capture->tensor_keys, capture->n_tensors, sizeof *capture->tensor_keys, compare_name);
    return key != NULL ? key->tensor : SIZE_MAX;
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

bool nd_capture_has_outputs(const struct nd_capture *capture, size_t probe, size_t tensor)
{
    assert(probe < capture->n_probes && tensor < capture->n_tensors);
    return capture->probes[probe].tensors[tensor].outputs != NULL;
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

/* ---- the digest of everything that a capture holds ---- */

/* Whether the digests of its probe stand for the dataset's bytes: /probes/<probe>/inputs/, /outputs/, /repeats/
 * and /reruns/. */
static bool is_tensor(const struct nd_index_object *object)
{
    static const char *const parts[] = {"/inputs/", "/outputs/", "/repeats/", "/reruns/"};
    if (object->is_group || strncmp(object->path, "/probes/", 8) != 0)
        return false;
    const char *part = strchr(object->path + 8, '/');
    for (size_t i = 0; part != NULL && i < sizeof parts / sizeof parts[0]; i++)
        if (strncmp(part, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

/* /probes/<probe>/edge_digests: what it says follows from the digests. */
static bool is_derived(const struct nd_index_object *object)
{
    const char *part = strncmp(object->path, "/probes/", 8) == 0 ? strchr(object->path + 8, '/') : NULL;
    return part != NULL && strcmp(part, "/edge_digests") == 0;
}

static void format_digest(struct nd_digest digest, char hex[static ND_CONTENT_DIGEST_BYTES])
{
    snprintf(hex, ND_CONTENT_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
             (unsigned long long)digest.low);
}

/* A field ends with a NUL, which no name can contain. */
static void put_field(struct nd_strbuf *stream, const char *text)
{
    nd_strbuf_append(stream, text, strlen(text) + 1);
}

static void put_digest(struct nd_strbuf *stream, struct nd_digest digest)
{
    char hex[ND_CONTENT_DIGEST_BYTES];
    format_digest(digest, hex);
    put_field(stream, hex);
}

static void put_attrs(struct nd_strbuf *stream, const struct nd_index_object *object)
{
    bool is_root = object->path[1] == '\0';
    char text[64];
    for (size_t i = 0; i < object->n_attrs; i++) {
        const struct nd_index_attr *attr = &object->attrs[i];
        if (is_root && strcmp(attr->name, "content_digest") == 0)
            continue;
        put_field(stream, "attribute");
        put_field(stream, attr->name);
        put_field(stream, nd_index_type_name(attr->dtype, attr->n_bytes, text, sizeof text));
        snprintf(text, sizeof text, "%zu", attr->n);
        put_field(stream, attr->is_scalar ? "scalar" : text);
        put_digest(stream, nd_digest_bytes(attr->bytes, attr->n_bytes));
    }
}

static enum nd_status put_data(struct nd_strbuf *stream, const struct nd_index *index,
                               const struct nd_index_object *object, struct nd_error *err)
{
    ND_FREED void *data = nd_calloc(object->n_bytes, 1);
    ND_TRY_MEMORY(data != NULL, err);
    ND_TRY(nd_index_read(index, object, 0, (size_t)object->shape.dims[0], data, err));
    put_digest(stream, nd_digest_bytes(data, object->n_bytes));
    return ND_OK;
}

enum nd_status nd_content_digest(const struct nd_index *index, const struct nd_digest *const *known,
                                 char hex[static ND_CONTENT_DIGEST_BYTES], struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf stream = {0};
    for (size_t i = 0; i < index->n_objects; i++) {
        const struct nd_index_object *object = &index->objects[i];
        char text[256];
        if (is_derived(object))
            continue;
        put_field(&stream, object->is_group ? "group" : "dataset");
        put_field(&stream, object->path);
        if (!object->is_group) {
            put_field(&stream, nd_index_type_name(object->dtype, object->elem_bytes, text, sizeof text));
            put_field(&stream, nd_shape_format(&object->shape, text, sizeof text));
        }
        put_attrs(&stream, object);
        if (known != NULL && known[i] != NULL)
            put_digest(&stream, *known[i]);
        else if (!object->is_group && !is_tensor(object))
            ND_TRY(put_data(&stream, index, object, err));
    }
    ND_TRY_MEMORY(!stream.failed, err);
    format_digest(nd_digest_bytes(stream.text, stream.len), hex);
    return ND_OK;
}
