/* The stages of an explanation, in order: plan, evaluate, attribute, identify, diagnose, conclude. stages.h
 * says what each reads and makes. */
#include <math.h>

#include "capture/read/environment.h"
#include "core/documents/json_out.h"
#include "core/items.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "explain/evaluate/evaluation.h"
#include "explain/fallback/fallback.h"
#include "explain/findings/findings.h"
#include "explain/floats/floats.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/stages.h"
#include "explain/verdict/health.h"

/* The sums and tallies of an evaluation as bytes: 8 for each number, little-endian, on every machine the same.
 * One visit writes them, reads them, or counts how many there are. Below they become files. */

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
    put_count(codec, &tally->conditions);
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

enum { PART_FORMAT = 4, DIGEST_BYTES = 16, PLACE_BYTES = 24, HEAD_BYTES = DIGEST_BYTES + PLACE_BYTES };

/* The samples of part `part` of n_parts: as many as of every other part, or one less. */
static struct nd_sample_span part_span(size_t n_samples, size_t part, size_t n_parts)
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

/* The text (JSON) of part `part` of n_parts, whose samples are evaluated, in new memory. ND_ERR_MEMORY. */
static enum nd_status evaluation_part_format(struct nd_evaluation *evaluation, size_t part, size_t n_parts,
                                             char **out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    const struct nd_sample_span span = part_span(plan->n_samples, part, n_parts);
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
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' is part %.0f of %lld, and %zu files were given",
                       path, (double)part + 1, (long long)n, merge->n);
    if (merge->paths[part] != NULL)
        return nd_fail(err, ND_E_EXPLAIN_PART, path, "'%s' and '%s' are the same part: %lld of %lld",
                       merge->paths[part], path, (long long)part + 1, (long long)n);
    json_object_foreach(merge->of, key, value) {
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
        const struct nd_sample_span span = part_span(merge->evaluation->plan->n_samples, part, merge->n);
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

/* Fills an evaluation, which is all zero, from the files of all parts, in any order; one file is held at a
 * time. ND_ERR_IO; ND_ERR_FORMAT (ND_E_EXPLAIN_PART): damaged, of a different plan or version, missing or there
 * twice. */
static enum nd_status evaluation_parts_load(struct nd_evaluation *evaluation, const char *const *paths,
                                            size_t n, struct nd_error *err)
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

/* Whether a layer can be evaluated may depend on values: an index out of range, a shape that is computed. What
 * was missed in one sample is known of none, or means over samples would be of some of them only. */

/* A layer that its inputs keep from its reference has none because of theirs. */
static size_t unreached_from(const struct nd_plan *plan, const struct nd_explanation *out, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && out->steps[input].unreached_from != SIZE_MAX)
            return out->steps[input].unreached_from;
    }
    return step;
}

static enum nd_status mark_unevaluable_on_device(const struct nd_evaluation *evaluation,
                                                 struct nd_explanation *out, size_t device, size_t step,
                                                 struct nd_error *err)
{
    struct nd_explained_layer *layer = &out->devices[device].layers[step];
    layer->has_total = layer->has_total && out->steps[step].unreached_from == SIZE_MAX;
    size_t i = 0, n_samples = evaluation->plan->n_samples;
    while (i < n_samples && !nd_sums_of(evaluation, i, device, step)->is_missed)
        i++;
    if (i == n_samples)
        return ND_OK;
    layer->has_total = false;
    if (!layer->is_examined)
        return ND_OK;
    layer->is_examined = false;
    layer->why_not = nd_text("%s cannot be evaluated in sample %zu", out->steps[step].op_types, i);
    return layer->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

/* settle.c: what could not be evaluated in some sample is not examined, or has no reference, in any.
 * ND_ERR_MEMORY. */
static enum nd_status explain_mark_unevaluable(const struct nd_evaluation *evaluation,
                                               struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        struct nd_explained_step *step = &out->steps[s];
        for (size_t i = 0; i < evaluation->plan->n_samples; i++) {
            const struct nd_reference_sums *sums = nd_reference_sums_of(evaluation, i, s);
            if (sums->is_missed && step->unreached_from == SIZE_MAX)
                step->unreached_from = unreached_from(evaluation->plan, out, s);
            if (sums->is_float_missed && step->has_float) {
                step->has_float = false;
                step->lacks_float = true;
            }
        }
        for (size_t d = 0; d < plan->n_devices; d++)
            if (!plan->sources[d].is_failed)
                ND_TRY(mark_unevaluable_on_device(evaluation, out, d, s, err));
    }
    return ND_OK;
}

/* Where the differences of a device begin: layers with local mismatches before which there are none. */

static bool has_introduced(const struct nd_explained_layer *layer)
{
    return layer->is_examined && layer->introduced.n_differing > 0 && !layer->is_within_step;
}

/* Whether something that the step depends on has local mismatches; is_below[] of earlier steps says it of
 * those, has_any of all of them together. What floats between layers are made of is not known: it may be
 * everything before them. */
static bool has_ancestor(const struct nd_plan *plan, const struct nd_explained_device *device,
                         const bool *is_below, bool has_any, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    bool found = layer == NULL && has_any && !nd_plan_tensor(plan, step)->is_model_input;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        found = found || (input != SIZE_MAX && (is_below[input] || has_introduced(&device->layers[input])));
    }
    return found;
}

static enum nd_status find_sources(const struct nd_plan *plan, struct nd_explained_device *device,
                                   struct nd_error *err)
{
    ND_FREED bool *is_below = nd_calloc(plan->n_steps, sizeof *is_below);
    bool has_any = false;
    device->sources = nd_calloc(plan->n_steps, sizeof *device->sources);
    ND_TRY_MEMORY(is_below != NULL && device->sources != NULL, err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        is_below[s] = has_ancestor(plan, device, is_below, has_any, s);
        device->layers[s].is_source = has_introduced(&device->layers[s]) && !is_below[s];
        has_any = has_any || has_introduced(&device->layers[s]);
        if (device->layers[s].is_source)
            device->sources[device->n_sources++] = s;
    }
    return ND_OK;
}

static enum nd_verdict verdict_of(const struct nd_explained_device *device, size_t n_steps)
{
    bool is_within = false;
    for (size_t s = 0; s < n_steps; s++)
        is_within = is_within || device->layers[s].is_within_step;
    if (device->n_sources > 0)
        return ND_VERDICT_DIFFERS;
    if (device->n_examined == 0 || device->n_not_examined > 0)
        return ND_VERDICT_INCONCLUSIVE;
    return is_within ? ND_VERDICT_WITHIN : ND_VERDICT_SAME;
}

/* Where differences begin: is_source and sources, and verdict: how the devices differ from exact rounding.
 * ND_ERR_MEMORY. */
static enum nd_status explain_trace(const struct nd_plan *plan, struct nd_explanation *out,
                                    struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        struct nd_explained_device *device = &out->devices[d];
        if (!plan->sources[d].is_failed)
            ND_TRY(find_sources(plan, device, err));
        device->verdict = plan->sources[d].is_failed ? ND_VERDICT_FAILED : verdict_of(device, plan->n_steps);
        if (device->verdict > out->verdict)
            out->verdict = device->verdict;
    }
    return ND_OK;
}

/* ---- what the plan says ---- */

static enum nd_status describe_layers(const struct nd_plan *plan, size_t d, struct nd_explained_device *device,
                                      struct nd_error *err)
{
    device->layers = nd_calloc(plan->n_steps, sizeof *device->layers);
    ND_TRY_MEMORY(device->layers != NULL, err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_planned_layer *from = &plan->sources[d].layers[s];
        device->layers[s].is_examined = from->is_examined;
        device->layers[s].has_total = from->has_total;
        device->layers[s].why_not = from->why_not != NULL ? nd_strdup(from->why_not) : NULL;
        if (from->why_not != NULL && device->layers[s].why_not == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

/* Its name is that of no device before it. */
static enum nd_status name_device(const struct nd_capture *capture, struct nd_explained_device *devices,
                                  size_t d, struct nd_error *err)
{
    ND_FREED const char **before = nd_calloc(d + 1, sizeof *before);
    ND_TRY_MEMORY(before != NULL, err);
    for (size_t i = 0; i < d; i++)
        before[i] = devices[i].label;
    devices[d].label = nd_capture_unique_name(capture, before, d);
    devices[d].environment = nd_capture_environment(capture);
    return devices[d].label != NULL && devices[d].environment != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_device(const struct nd_plan *plan, size_t d, struct nd_explained_device *device,
                                      struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[d];
    const char *uri = nd_capture_string(source->capture, "device", "uri");
    const char *chipset = nd_capture_string(source->capture, "device", "chipset");
    device->uri = nd_strdup(uri != NULL ? uri : "?");
    device->chipset = nd_strdup(chipset != NULL ? chipset : "");
    device->capture = nd_strdup(nd_capture_path(source->capture));
    ND_TRY_MEMORY(device->uri != NULL && device->chipset != NULL && device->capture != NULL, err);
    device->expected = nd_expectation_name(source->expectation);
    device->same_as = source->same_as;
    device->observer = source->observer;
    if (source->observer.differs != NULL) {
        device->observer.differs = nd_strdup(source->observer.differs);
        ND_TRY_MEMORY(device->observer.differs != NULL, err);
    }
    device->float_error = (double)NAN;
    if (plan->n_steps > 0)
        ND_TRY(describe_layers(plan, d, device, err));
    return source->is_failed ? nd_plan_failure(source->capture, &device->failure, err) : ND_OK;
}

static enum nd_status describe_steps(const struct nd_plan *plan, struct nd_explanation *out,
                                     struct nd_error *err)
{
    out->steps = nd_calloc(plan->n_steps, sizeof *out->steps);
    ND_TRY_MEMORY(out->steps != NULL, err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_explained_step *from = &plan->steps[s];
        struct nd_explained_step *step = &out->steps[out->n_steps++];
        *step = *from;
        step->name = nd_strdup(from->name);
        step->op_types = nd_strdup(from->op_types);
        step->inputs = nd_calloc(from->n_inputs + 1, sizeof *step->inputs);
        ND_TRY_MEMORY(step->name != NULL && step->op_types != NULL && step->inputs != NULL, err);
        for (size_t i = 0; i < from->n_inputs; i++)
            step->inputs[i] = from->inputs[i];
    }
    return ND_OK;
}

/* The option --probe that gives these inputs again: a built-in probe is its own source, others are files. */
static char *probe_option(const struct nd_plan *plan)
{
    size_t d = 0;
    while (d + 1 < plan->n_devices && plan->sources[d].is_failed)
        d++;
    const struct nd_capture_probe *probe = nd_capture_probe(plan->sources[d].capture, plan->sources[d].probe);
    size_t n = strlen(probe->name);
    bool is_built_in =
        strncmp(probe->source, probe->name, n) == 0 && (probe->source[n] == '\0' || probe->source[n] == ':');
    return nd_text("%s%s%s", is_built_in ? "" : probe->name, is_built_in ? "" : "=", probe->source);
}

/* Names of the model, the devices and the steps, and which layers are examined: what the plan says. out is
 * zeroed before. ND_ERR_MEMORY. */
static enum nd_status nd_explanation_begin(const struct nd_plan *plan, struct nd_explanation *out,
                                           struct nd_error *err)
{
    bool has_float = plan->float_model != NULL;
    out->devices = nd_calloc(plan->n_devices, sizeof *out->devices);
    out->model = nd_strdup(nd_model_path(plan->model));
    out->model_sha256 = nd_strdup(nd_model_sha256(plan->model));
    out->float_model = has_float ? nd_strdup(nd_model_path(plan->float_model)) : NULL;
    out->probe = plan->probe != NULL ? nd_strdup(plan->probe) : NULL;
    out->probe_source = plan->probe != NULL ? probe_option(plan) : NULL;
    if (out->devices == NULL || out->model == NULL || out->model_sha256 == NULL ||
        (has_float && out->float_model == NULL) ||
        (plan->probe != NULL && (out->probe == NULL || out->probe_source == NULL)))
        return nd_fail_memory(err);
    out->n_devices = plan->n_devices;
    out->n_samples = plan->n_samples;
    out->n_output_effect_samples = plan->n_output_effect_samples;
    ND_TRY(describe_steps(plan, out, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        ND_TRY(describe_device(plan, d, &out->devices[d], err));
    for (size_t d = 0; d < out->n_devices; d++)
        ND_TRY(name_device(plan->sources[d].capture, out->devices, d, err));
    return ND_OK;
}

/* ---- freed ---- */

static void deinit_execution(struct nd_explained_execution *execution)
{
    ND_FREE_EACH(execution->evidence, execution->n_evidence, .text);
}

static void deinit_layer(struct nd_explained_layer *layer)
{
    for (size_t i = 0; i < layer->n_arithmetics; i++)
        free(layer->arithmetics[i]);
    ND_FREE_ALL(layer->arithmetics, layer->arithmetic, layer->judgement.fault.text, layer->judgement.evidence,
                layer->judgement.known_defect, layer->judgement.follows_text, layer->why_not);
    deinit_execution(&layer->execution);
}

static void deinit_device(struct nd_explained_device *device, size_t n_steps)
{
    ND_DEINIT_EACH(deinit_layer, device->layers, n_steps);
    ND_FREE_EACH(device->findings, device->n_findings, .fault.text);
    deinit_execution(&device->execution);
    ND_FREE_ALL(device->sources, device->faulty, device->unexplained, device->losses, device->arithmetic);
    for (size_t i = 0; i < device->n_arithmetics; i++)
        free(device->arithmetics[i]);
    ND_FREE_ALL(device->arithmetics, device->uri, device->label, device->environment, device->chipset,
                device->capture, device->failure, device->observer.differs);
}

static void deinit_difference(struct nd_explained_difference *difference)
{
    for (size_t i = 0; i < difference->n_because; i++)
        free(difference->because[i].op_types);
    ND_FREE_ALL(difference->because, difference->op_types);
}

void nd_quantisation_destroy(struct nd_quantisation **quantisation)
{
    struct nd_quantisation *q = *quantisation;
    if (q == NULL)
        return;
    for (size_t s = 0; q->layers != NULL && s < q->n_layers; s++) {
        ND_FREE_ALL(q->layers[s].cause_text, q->layers[s].constant_text);
        for (size_t i = 0; i < q->layers[s].n_remedies; i++)
            free(q->layers[s].remedies[i].text);
        free(q->layers[s].remedies);
    }
    ND_FREE_ALL(q->layers, q->equalised, q->ranked, q->whole, q);
    *quantisation = NULL;
}

void nd_explanation_destroy(struct nd_explanation **explanation)
{
    struct nd_explanation *e = *explanation;
    if (e == NULL)
        return;
    for (size_t d = 0; e->devices != NULL && d < e->n_devices; d++)
        deinit_device(&e->devices[d], e->n_steps);
    for (size_t s = 0; e->steps != NULL && s < e->n_steps; s++)
        ND_FREE_ALL(e->steps[s].name, e->steps[s].op_types, e->steps[s].inputs);
    ND_DEINIT_EACH(deinit_difference, e->differences, e->n_differences);
    nd_quantisation_destroy(&e->quantisation);
    ND_FREE_ALL(e->devices, e->steps, e->model, e->model_sha256, e->float_model, e->probe, e->probe_source,
                e->majority.why_not, e);
    *explanation = NULL;
}

/* From the plan and the evaluation to what is said of the devices. */
static enum nd_status conclude(const struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    ND_CLEANUP(nd_observed_arithmetics_deinit) struct nd_observed_arithmetics observations = {0};
    ND_FREED struct nd_fallback_floats *floats = nd_calloc(plan->n_devices * plan->n_steps + 1, sizeof *floats);
    const struct nd_explain_job job = {plan, evaluation, &observations, out, options->is_strict, floats};
    ND_TRY_MEMORY(floats != NULL, err);
    ND_TRY(explain_mark_unevaluable(evaluation, out, err));
    ND_TRY(nd_explain_attribute(evaluation, out, err));
    ND_TRY(nd_explain_identify(evaluation, &observations, out, err));
    ND_TRY(explain_trace(plan, out, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_find_differences(&job, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_diagnose(&job, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_judge_floats(&job, options, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_find_execution(&job, options->hides_placement, err));
    return nd_explain_find_health(&job, err);
}

/* All samples; or what parts have of them. */
static enum nd_status evaluate(struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    if (options->n_merge > 0)
        ND_TRY(evaluation_parts_load(evaluation, options->merge, options->n_merge, err));
    else if (plan->n_samples > 0 && nd_plan_has_qvalues(plan))
        ND_TRY(nd_evaluate(evaluation, (struct nd_sample_span){0, plan->n_samples}, options, err));
    nd_evaluate_finish(evaluation);
    return ND_OK;
}

/* What is said, of what was planned. */
static enum nd_status explain(struct nd_plan *plan, const struct nd_explain_options *options,
                              nd_explain_study study, struct nd_explanation *out, struct nd_error *err)
{
    ND_CLEANUP(nd_evaluation_deinit) struct nd_evaluation evaluation = {0};
    ND_TRY(nd_explanation_begin(plan, out, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_plan_hold(plan, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_examine_captures(plan, out->devices, err));
    ND_TRY(nd_evaluation_init(&evaluation, plan, err));
    ND_TRY(evaluate(&evaluation, options, err));
    ND_TRY(conclude(&evaluation, options, out, err));
    nd_plan_release(plan); /* the study of quantisation reads no captures */
    return options->omits_quantisation ? ND_OK : study(plan, &out->quantisation, err);
}

/* Reads the options, and plans. deinit of the plan in any case. */
static enum nd_status begin(const struct nd_question *question, const struct nd_explain_options *options,
                            struct nd_explain_options *own, struct nd_plan *plan, struct nd_error *err)
{
    ND_TRY(nd_options_read(own, sizeof *own, options, err));
    for (size_t c = 0; c < question->n_captures; c++)
        ND_TRY(nd_capture_check_content(question->captures[c], err));
    ND_TRY(nd_plan_make(plan, question, own, err));
    return nd_plan_carry(plan, err);
}

enum nd_status nd_explain_with(const struct nd_question *question, const struct nd_explain_options *options,
                               nd_explain_study study, struct nd_explanation **out, struct nd_error *err)
{
    struct nd_explain_options own = {.struct_size = sizeof own};
    ND_CLEANUP(nd_explanation_destroy) struct nd_explanation *explanation = nd_calloc(1, sizeof *explanation);
    ND_CLEANUP(nd_plan_deinit) struct nd_plan plan = {0};
    ND_TRY_MEMORY(explanation != NULL, err);
    ND_TRY(begin(question, options, &own, &plan, err));
    ND_TRY(explain(&plan, &own, study, explanation, err));
    return ND_GIVE(out, explanation);
}

enum nd_status nd_explain_part(const struct nd_model *model, const struct nd_model *float_model,
                               const struct nd_capture *const *captures, size_t n_captures,
                               const struct nd_explain_options *options, char **out, struct nd_error *err)
{
    enum { MAX_PARTS = 65536 };
    const struct nd_question question = {model, float_model, captures, n_captures};
    struct nd_explain_options own = {.struct_size = sizeof own};
    ND_CLEANUP(nd_plan_deinit) struct nd_plan plan = {0};
    ND_CLEANUP(nd_evaluation_deinit) struct nd_evaluation evaluation = {0};
    ND_TRY(begin(&question, options, &own, &plan, err));
    if (own.part >= own.n_parts || own.n_parts > MAX_PARTS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "there is no part %zu of %zu", own.part + 1, own.n_parts);
    ND_TRY(nd_evaluation_init(&evaluation, &plan, err));
    if (plan.n_samples > 0 && nd_plan_has_qvalues(&plan))
        ND_TRY(nd_evaluate(&evaluation, part_span(plan.n_samples, own.part, own.n_parts), &own, err));
    return evaluation_part_format(&evaluation, own.part, own.n_parts, out, err);
}
