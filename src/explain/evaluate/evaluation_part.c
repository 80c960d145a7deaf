/* The sums and tallies of an evaluation as bytes: 8 for each number, little-endian, on every machine the same.
 * One visit writes them, reads them, or counts how many there are. evaluation_part.c makes files of them. */
#include "explain/evaluate/evaluation_part.h"

#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/base64.h"
#include "explain/evaluate/evaluation.h"

enum nd_codec_method { ND_CODEC_COUNT, ND_CODEC_WRITE, ND_CODEC_READ };

struct nd_codec {
    enum nd_codec_method method;
    unsigned char *bytes; /* room for what was counted; NULL while counting */
    size_t n;             /* bytes so far */
};

static void put_count(struct nd_codec *codec, uint64_t *value)
{
    enum { BYTES = 8 };
    unsigned char *at = codec->method != ND_CODEC_COUNT ? codec->bytes + codec->n : NULL;
    codec->n += BYTES;
    for (int i = 0; i < BYTES && codec->method == ND_CODEC_WRITE; i++)
        at[i] = (unsigned char)(*value >> 8 * i);
    if (codec->method != ND_CODEC_READ)
        return;
    *value = 0;
    for (int i = 0; i < BYTES; i++)
        *value |= (uint64_t)at[i] << 8 * i;
}

static void put_real(struct nd_codec *codec, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    put_count(codec, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void put_flag(struct nd_codec *codec, bool *value)
{
    uint64_t bit = *value;
    put_count(codec, &bit);
    *value = bit != 0;
}

static void put_counts(struct nd_codec *codec, uint64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_count(codec, &values[i]);
}

static void put_reals(struct nd_codec *codec, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_real(codec, &values[i]);
}

/* ---- a sample ---- */

static void put_part(struct nd_codec *codec, struct nd_part_sums *part)
{
    put_count(codec, &part->n_differing);
    put_real(codec, &part->max);
    put_real(codec, &part->sum);
    put_real(codec, &part->squares);
}

static void put_sums(struct nd_codec *codec, struct nd_sums *sums)
{
    put_count(codec, &sums->n_qvalues);
    put_count(codec, &sums->n_violations);
    put_flag(codec, &sums->is_missed);
    put_flag(codec, &sums->is_output_effect_missed);
    put_part(codec, &sums->introduced);
    put_part(codec, &sums->passed_on);
    put_part(codec, &sums->total);
    put_real(codec, &sums->q_times_d);
    put_real(codec, &sums->clipped_divergence);
    put_count(codec, &sums->n_output_effect_qvalues);
    put_count(codec, &sums->n_harmed);
    put_real(codec, &sums->output_effect_squares);
    put_real(codec, &sums->own_squares);
}

static void put_reference(struct nd_codec *codec, struct nd_reference_sums *sums)
{
    put_real(codec, &sums->signal);
    put_real(codec, &sums->quantisation);
    put_count(codec, &sums->n_clipped);
    put_real(codec, &sums->clipped_quantisation);
    put_flag(codec, &sums->is_double);
    put_flag(codec, &sums->is_missed);
    put_flag(codec, &sums->is_float_missed);
    put_count(codec, &sums->n_voted);
    put_count(codec, &sums->n_split);
    put_real(codec, &sums->margin);
    put_real(codec, &sums->common_error);
    put_real(codec, &sums->common_divergence);
}

/* What the evaluation has of one sample: of every device that is worked out, and the references. */
static void nd_codec_sample(struct nd_codec *codec, struct nd_evaluation *evaluation, size_t sample)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t s = 0; s < plan->n_steps; s++)
        put_reference(codec, nd_reference_sums_of(evaluation, sample, s));
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; nd_plan_is_worked_out(plan, d) && s < plan->n_steps; s++)
            put_sums(codec, nd_sums_of(evaluation, sample, d, s));
}

/* ---- tallies ---- */

static void put_qvalue_tally(struct nd_codec *codec, struct nd_qvalue_tally *tally)
{
    put_count(codec, &tally->n_nan);
    put_count(codec, &tally->n_open);
    put_counts(codec, tally->wrong, ND_MAX_ARITHMETICS);
    put_counts(codec, tally->far, ND_MAX_ARITHMETICS);
    put_count(codec, &tally->all_wrong);
}

static void put_layer_tally(struct nd_codec *codec, struct nd_layer_tally *tally)
{
    uint64_t defect = nd_known_defect_index(tally->known_defect);
    put_counts(codec, tally->n, ND_MAX_LAYER_ARITHMETICS);
    put_counts(codec, tally->wrong, ND_MAX_LAYER_ARITHMETICS);
    put_counts(codec, tally->apart, ND_MAX_LAYER_ARITHMETICS);
    put_counts(codec, tally->apart_as_made, ND_MAX_LAYER_ARITHMETICS);
    put_counts(codec, tally->apart_as_exact, ND_MAX_LAYER_ARITHMETICS);
    put_reals(codec, tally->max, ND_MAX_LAYER_ARITHMETICS);
    put_reals(codec, tally->doubt, ND_MAX_LAYER_ARITHMETICS);
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++) {
        put_counts(codec, tally->others[k].n, ND_MAX_LAYER_ARITHMETICS);
        put_counts(codec, tally->others[k].wrong, ND_MAX_LAYER_ARITHMETICS);
        put_reals(codec, tally->others[k].max, ND_MAX_LAYER_ARITHMETICS);
    }
    put_count(codec, &defect);
    tally->known_defect = nd_known_defect_at((size_t)defect);
}

/* The tallies of a device, in the order of steps: [n_steps] each. They are not finished (nd_evaluate_finish).
 */
static void nd_codec_tallies(struct nd_codec *codec, size_t n_steps, struct nd_qvalue_tally *tally,
                             struct nd_layer_tally *layer_tally)
{
    for (size_t s = 0; s < n_steps; s++) {
        put_qvalue_tally(codec, &tally[s]);
        put_layer_tally(codec, &layer_tally[s]);
    }
}

enum { PART_FORMAT = 3, DIGEST_BYTES = 16, PLACE_BYTES = 24, HEAD_BYTES = DIGEST_BYTES + PLACE_BYTES };

struct nd_sample_span nd_part_span(size_t n_samples, size_t part, size_t n_parts)
{
    size_t each = n_samples / n_parts, more = n_samples % n_parts;
    return (struct nd_sample_span){part * each + (part < more ? part : more), each + (part < more)};
}

/* ---- what a part is of ---- */

static char *digest_of_steps(const struct nd_plan *plan)
{
    struct nd_strbuf text = {0};
    char digest[ND_SHA256_HEX_BYTES];
    for (size_t s = 0; s < plan->n_steps; s++) {
        nd_strbuf_printf(&text, "%s", plan->steps[s].name);
        for (int i = 0; i < plan->shapes[s].rank; i++)
            nd_strbuf_printf(&text, " %lld", (long long)plan->shapes[s].dims[i]);
        nd_strbuf_puts(&text, "\n");
    }
    size_t n_bytes = text.len;
    ND_FREED char *substituted = nd_strbuf_take(&text);
    if (substituted == NULL)
        return NULL;
    nd_sha256_bytes(substituted, n_bytes, digest);
    return nd_strdup(digest);
}

/* Members that are the same in all parts, and in the explanation that they become. NULL: no memory. */
static json_t *describe(const struct nd_plan *plan)
{
    json_t *captures = json_array();
    ND_FREED char *steps = digest_of_steps(plan);
    bool is_whole = captures != NULL;
    for (size_t d = 0; d < plan->n_devices; d++) {
        const char *digest = nd_capture_string(plan->sources[d].capture, "", "content_digest");
        is_whole = is_whole && json_array_append_new(captures, json_string(digest != NULL ? digest : "")) == 0;
    }
    json_t *out = json_pack(
        "{s:s, s:s?, s:o?, s:o, s:I, s:I, s:s?}", "model", nd_model_sha256(plan->model), "float_model",
        plan->float_model != NULL ? nd_model_sha256(plan->float_model) : NULL, "captures", captures, "probe",
        nd_json_string(plan->probe), "samples", (json_int_t)plan->n_samples, "effect_samples",
        (json_int_t)plan->n_output_effect_samples, "layers", steps);
    if (!is_whole || steps == NULL) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

/* ---- records: a digest of what follows, the place, and the numbers ---- */

/* What is written or read at once: one sample, or the tallies of one device. */
struct record {
    struct nd_evaluation *evaluation;
    size_t part, sample, device;
    struct nd_qvalue_tally *tally; /* [n_steps], NULL: of a sample */
    struct nd_layer_tally *layer_tally;
};

static void visit(const struct record *record, struct nd_codec *codec)
{
    if (record->tally != NULL)
        nd_codec_tallies(codec, record->evaluation->plan->n_steps, record->tally, record->layer_tally);
    else
        nd_codec_sample(codec, record->evaluation, record->sample);
}

static size_t measure(const struct record *record)
{
    struct nd_codec codec = {.method = ND_CODEC_COUNT};
    visit(record, &codec);
    return codec.n;
}

static void put_digest(const unsigned char *bytes, size_t n, unsigned char digest[static DIGEST_BYTES])
{
    struct nd_digest of = nd_digest_bytes(bytes, n);
    for (int i = 0; i < DIGEST_BYTES; i++)
        digest[i] = (unsigned char)((i < 8 ? of.high : of.low) >> 8 * (i % 8));
}

/* So that a record counts only where it belongs: its part, sample and device, each as eight bytes. */
static void put_place(const struct record *record, unsigned char place[static PLACE_BYTES])
{
    const uint64_t numbers[] = {record->part, record->tally == NULL ? record->sample : UINT64_MAX,
                                record->device};
    for (size_t i = 0; i < PLACE_BYTES; i++)
        place[i] = (unsigned char)(numbers[i / 8] >> 8 * (i % 8));
}

/* NULL: no memory. */
static json_t *write_record(const struct record *record)
{
    size_t n = measure(record);
    ND_FREED unsigned char *bytes = nd_calloc(n + HEAD_BYTES, 1);
    if (bytes == NULL)
        return NULL;
    struct nd_codec codec = {.method = ND_CODEC_WRITE, .bytes = bytes + HEAD_BYTES};
    visit(record, &codec);
    put_place(record, bytes + DIGEST_BYTES);
    put_digest(bytes + DIGEST_BYTES, n + PLACE_BYTES, bytes);
    ND_FREED char *text = nd_base64(bytes, n + HEAD_BYTES);
    return text != NULL ? json_string(text) : NULL;
}

/* False: it is damaged, of a different size, or of a different place. */
static enum nd_status read_record(const struct record *record, const json_t *value, bool *is_whole,
                                  struct nd_error *err)
{
    size_t n = measure(record), n_read = 0;
    unsigned char digest[DIGEST_BYTES], place[PLACE_BYTES], *bytes = nd_calloc(n + HEAD_BYTES, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    *is_whole = json_is_string(value) &&
                nd_base64_read(json_string_value(value), bytes, n + HEAD_BYTES, &n_read) &&
                n_read == n + HEAD_BYTES;
    if (*is_whole) {
        put_digest(bytes + DIGEST_BYTES, n + PLACE_BYTES, digest);
        put_place(record, place);
        *is_whole =
            memcmp(digest, bytes, DIGEST_BYTES) == 0 && memcmp(place, bytes + DIGEST_BYTES, PLACE_BYTES) == 0;
    }
    if (*is_whole) {
        struct nd_codec codec = {.method = ND_CODEC_READ, .bytes = bytes + HEAD_BYTES};
        visit(record, &codec);
    }
    free(bytes);
    return ND_OK;
}

/* ---- writing ---- */

static struct record sample_record(struct nd_evaluation *evaluation, size_t part, size_t sample)
{
    return (struct record){.evaluation = evaluation, .part = part, .sample = sample};
}

static struct record tally_record(struct nd_evaluation *evaluation, size_t part, size_t device)
{
    size_t at = device * evaluation->plan->n_steps;
    return (struct record){.evaluation = evaluation,
                           .part = part,
                           .device = device,
                           .tally = evaluation->tally + at,
                           .layer_tally = evaluation->layer_tally + at};
}

enum nd_status nd_evaluation_part_format(struct nd_evaluation *evaluation, size_t part, size_t n_parts,
                                         char **out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    const struct nd_sample_span span = nd_part_span(plan->n_samples, part, n_parts);
    json_t *samples = json_array(), *tallies = json_array();
    bool is_whole = samples != NULL && tallies != NULL;
    for (size_t i = 0; is_whole && i < span.n; i++) {
        const struct record record = sample_record(evaluation, part, span.first + i);
        is_whole = json_array_append_new(samples, write_record(&record)) == 0;
    }
    for (size_t d = 0; is_whole && d < plan->n_devices; d++) {
        const struct record record = tally_record(evaluation, part, d);
        if (nd_plan_is_worked_out(plan, d))
            is_whole = json_array_append_new(tallies, write_record(&record)) == 0;
    }
    json_t *of = describe(plan);
    json_t *root = nd_json_document(ND_DOCUMENT_EXPLANATION_PART,
                                    json_pack("{s:i, s:I, s:I, s:o?, s:o?, s:o?}", "npudiff_part", PART_FORMAT,
                                              "part", (json_int_t)part, "parts", (json_int_t)n_parts, "of", of,
                                              "evaluated", samples, "tallies", tallies));
    char *text = is_whole && of != NULL && root != NULL ? nd_json_dump(root, 1) : NULL;
    json_decref(root);
    ND_TRY_MEMORY(text != NULL, err);
    *out = text;
    return ND_OK;
}

/* ---- reading ---- */

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* What the parts are put together to. */
struct merge {
    struct nd_evaluation *evaluation;
    json_t *of;         /* what they have to be of */
    const char **paths; /* [n] of the parts that were read, by part */
    size_t n;
    struct nd_qvalue_tally *tally; /* [n_steps] of one device, room for what is read */
    struct nd_layer_tally *layer_tally;
};

static enum nd_status check_kind(const struct merge *merge, const json_t *root, const char *path,
                                 struct nd_error *err)
{
    const char *version = json_string_value(json_object_get(root, "npudiff"));
    const char *word = json_string_value(json_object_get(root, "kind")), *key;
    json_int_t part = integer_of(root, "part"), n = integer_of(root, "parts");
    json_t *value;
    if (word == NULL || strcmp(word, nd_document_word(ND_DOCUMENT_EXPLANATION_PART)) != 0 ||
        integer_of(root, "npudiff_part") != PART_FORMAT)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' is not a part of an explanation", path);
    if (version == NULL || strcmp(version, nd_version()) != 0)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' was made by npudiff %s; this is npudiff %s", path,
                       version != NULL ? version : "of no version", nd_version());
    if (n < 1 || part < 0 || part >= n || (size_t)n != merge->n)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' is part %lld of %lld, and %zu files were given",
                       path, (long long)part + 1, (long long)n, merge->n);
    if (merge->paths[part] != NULL)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' and '%s' are the same part: %lld of %lld",
                       merge->paths[part], path, (long long)part + 1, (long long)n);
    json_object_foreach(merge->of, key, value)
    {
        if (!json_equal(value, json_object_get(json_object_get(root, "of"), key)))
            return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' does not fit: its '%s' is different", path, key);
    }
    return ND_OK;
}

static enum nd_status fail_damaged(const char *path, struct nd_error *err)
{
    return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' is damaged", path);
}

static enum nd_status add_tallies(const struct merge *merge, const json_t *root, const char *path,
                                  struct nd_error *err)
{
    size_t part = (size_t)integer_of(root, "part");
    const struct nd_plan *plan = merge->evaluation->plan;
    const json_t *tallies = json_object_get(root, "tallies");
    enum nd_status status = ND_OK;
    size_t k = 0;
    for (size_t d = 0; status == ND_OK && d < plan->n_devices; d++) {
        const struct record all = tally_record(merge->evaluation, part, d);
        struct record record = all;
        bool is_whole = true;
        if (!nd_plan_is_worked_out(plan, d))
            continue;
        record.tally = merge->tally;
        record.layer_tally = merge->layer_tally;
        status = read_record(&record, json_array_get(tallies, k++), &is_whole, err);
        for (size_t s = 0; status == ND_OK && is_whole && s < plan->n_steps; s++) {
            nd_qvalue_tally_merge(&record.tally[s], &all.tally[s]);
            nd_layer_tally_merge(&record.layer_tally[s], &all.layer_tally[s]);
        }
        status = status == ND_OK && !is_whole ? fail_damaged(path, err) : status;
    }
    return status == ND_OK && json_array_size(tallies) != k ? fail_damaged(path, err) : status;
}

static enum nd_status add_part(struct merge *merge, const char *path, struct nd_error *err)
{
    json_error_t where;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL && json_error_code(&where) == json_error_cannot_open_file)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s'", path);
    if (root == NULL)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' is not a part of an explanation: line %d, %s", path,
                       where.line, where.text);
    enum nd_status status = check_kind(merge, root, path, err);
    if (status == ND_OK) {
        size_t part = (size_t)integer_of(root, "part");
        const json_t *samples = json_object_get(root, "evaluated");
        const struct nd_sample_span span = nd_part_span(merge->evaluation->plan->n_samples, part, merge->n);
        bool is_whole = json_array_size(samples) == span.n;
        merge->paths[part] = path;
        for (size_t i = 0; status == ND_OK && is_whole && i < span.n; i++) {
            const struct record record = sample_record(merge->evaluation, part, span.first + i);
            status = read_record(&record, json_array_get(samples, i), &is_whole, err);
        }
        status = status == ND_OK && !is_whole ? fail_damaged(path, err) : status;
    }
    if (status == ND_OK)
        status = add_tallies(merge, root, path, err);
    json_decref(root);
    return status;
}

enum nd_status nd_evaluation_parts_load(struct nd_evaluation *evaluation, const char *const *paths, size_t n,
                                        struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct merge merge = {.evaluation = evaluation,
                          .of = describe(plan),
                          .paths = nd_calloc(n, sizeof *merge.paths),
                          .n = n,
                          .tally = nd_calloc(plan->n_steps, sizeof *merge.tally),
                          .layer_tally = nd_calloc(plan->n_steps, sizeof *merge.layer_tally)};
    bool is_made = merge.of != NULL && merge.paths != NULL && merge.tally != NULL && merge.layer_tally != NULL;
    enum nd_status status = is_made ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) /* n of n without a repetition: none is missing */
        status = add_part(&merge, paths[i], err);
    json_decref(merge.of);
    ND_FREE_ALL((void *)merge.paths, merge.tally, merge.layer_tally);
    return status;
}
