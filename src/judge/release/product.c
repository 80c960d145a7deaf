/* What one process makes for another that judges: a comparison, or the explanations of a model. A product lies
 * in the folder "parts" beside that of the captures, with a key (policy.h) of what it was made of, the
 * captures' bytes among it. Whoever finds no product of these captures does the work. */
#include <math.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/campaign/policy.h"
#include "judge/release/qualify.h"
#include "npudiff/core/parse.h"
#include "npudiff/explain/explain.h"

static enum nd_status nd_qualify_compare_shared(const struct nd_qualification *q,
                                                struct nd_qualify_model *model, size_t i, struct nd_error *err);

/* One sentence for each device that differs from the reference: where it begins, what does it, whose it is. */

static bool differs(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device)
{
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    return c != NULL && c->devices[test].first_tensor != SIZE_MAX;
}

/* A fault first, with its evidence; else where the difference begins, which is no accusation. */
static void put_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device)
{
    nd_strbuf_printf(out, "%s", nd_health_name(device->health));
    if (device->n_faulty > 0) {
        const struct nd_explained_step *step = &e->steps[device->faulty[0]];
        const struct nd_explained_layer *layer = &device->layers[device->faulty[0]];
        nd_strbuf_printf(out, ": '%s' (%s): %s%s%s", step->name, step->op_types,
                         layer->judgement.fault.kind != NULL ? layer->judgement.fault.kind : "",
                         layer->judgement.fault.kind != NULL ? ": " : "", layer->judgement.evidence);
    } else if (device->n_unexplained > 0) {
        const struct nd_explained_step *step = &e->steps[device->unexplained[0]];
        nd_strbuf_printf(out, ": %zu of %zu layers do not follow known arithmetic, first of all '%s' (%s): %s",
                         device->n_unexplained, e->n_steps, step->name, step->op_types,
                         device->layers[device->unexplained[0]].judgement.evidence);
    } else if (device->health == ND_HEALTH_HEALTHY) {
        const char *arithmetic = device->expected != NULL && !device->is_refuted ? device->expected
                                 : device->arithmetic != NULL                    ? device->arithmetic
                                                                                 : "known";
        size_t n_known = device->n_follow + device->n_within_lsb;
        if (n_known < e->n_steps)
            nd_strbuf_printf(out, ": %zu of %zu layers follow %s arithmetic; the others were not looked at",
                             n_known, e->n_steps, arithmetic);
        else if (device->n_within_lsb > 0)
            nd_strbuf_printf(
                out,
                ": %zu of %zu layers follow %s arithmetic; the others, of unknown arithmetic, are within 1 LSB",
                device->n_follow, e->n_steps, arithmetic);
        else
            nd_strbuf_printf(out, ": all %zu layers follow %s arithmetic", e->n_steps, arithmetic);
    }
    if (device->observer.n_changed > 0)
        nd_strbuf_printf(out, "; recording changes the outputs, and this is of the recorded graph");
    if (device->n_sources > 0)
        nd_strbuf_printf(out, "; it differs from exact rounding from '%s' (%s) on",
                         e->steps[device->sources[0]].name, e->steps[device->sources[0]].op_types);
}

static char *sentence_of(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    struct nd_strbuf out = {0};
    if (device->failure != NULL)
        nd_strbuf_printf(&out, "failed: %s", device->failure);
    else
        put_layers(&out, e, device);
    if (device->output.n_qvalues > 0 && !isnan(device->own_share))
        nd_strbuf_printf(&out, "; %.2f%% of its error at the outputs is its own, the rest quantisation",
                         100 * device->own_share);
    return nd_strbuf_take(&out);
}

static bool put_all(struct nd_qualify_model *model, const size_t *devices, size_t n,
                    const struct nd_explanation *e, const char *why_not)
{
    bool is_whole = true;
    for (size_t i = 0; i < n; i++) {
        char **out = &model->explanations[devices[i]];
        if (e != NULL) {
            *out = sentence_of(e, &e->devices[i]);
        } else {
            *out = nd_text("not explained: %s", why_not);
        }
        is_whole = is_whole && *out != NULL;
    }
    return is_whole;
}

static void show_samples(void *context, size_t n_done, size_t n_samples)
{
    const struct nd_qualify_options *options = context;
    options->progress(options->progress_context, &(struct nd_qualify_progress){.n = 1,
                                                                               .label = "explain",
                                                                               .stage = "run",
                                                                               .done = n_done,
                                                                               .total = n_samples,
                                                                               .is_done = n_done == n_samples});
}

size_t nd_qualify_explain_parts(const struct nd_qualification *q)
{
    return q->options->n_explain_parts > 1 ? q->options->n_explain_parts : 1;
}

/* The captures of the devices that differ, and which devices these are. */
struct subjects {
    const struct nd_capture **captures;
    size_t *devices;
    size_t n;
};

static enum nd_status collect(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct subjects *out, struct nd_error *err)
{
    out->captures = nd_calloc(q->n_devices, sizeof(const struct nd_capture *));
    out->devices = nd_calloc(q->n_devices, sizeof *out->devices);
    ND_TRY_MEMORY(out->captures != NULL && out->devices != NULL, err);
    for (size_t d = 0; d < q->n_devices; d++)
        if (model->cells[d].prepared == NULL && differs(q, model, d)) {
            out->devices[out->n] = d;
            out->captures[out->n++] = model->cells[d].capture;
        }
    return ND_OK;
}

static void subjects_deinit(struct subjects *subjects)
{
    ND_FREE_ALL(subjects->captures, subjects->devices);
}

static struct nd_explain_options options_of(const struct nd_qualification *q)
{
    return (struct nd_explain_options){.struct_size = sizeof(struct nd_explain_options),
                                       .n_threads = q->options->n_threads,
                                       .omits_quantisation = true, /* a campaign does not tell of it */
                                       .progress = q->options->progress != NULL ? show_samples : NULL,
                                       .progress_context = (void *)(uintptr_t)q->options};
}

/* That something cannot be explained is no reason to withhold the verdict. */
static bool is_told(enum nd_status status)
{
    return status == ND_OK || status == ND_ERR_UNSUPPORTED || status == ND_ERR_NOT_COMPARABLE ||
           status == ND_ERR_NOT_FOUND;
}

/* A sentence for every device that differs. What cannot be explained says why. parts[n_parts]: files of all
 * parts that take the place of the evaluation; n_parts 0: none. */
static enum nd_status nd_qualify_explain_one(const struct nd_qualification *q, struct nd_qualify_model *model,
                                             const char *const *parts, size_t n_parts, struct nd_error *err)
{
    ND_CLEANUP(subjects_deinit) struct subjects subjects = {0};
    ND_CLEANUP(nd_explanation_destroy) struct nd_explanation *explanation = NULL;
    enum nd_status status = collect(q, model, &subjects, err);
    struct nd_explain_options options = options_of(q);
    options.merge = parts;
    options.n_merge = n_parts;
    if (status == ND_OK && subjects.n > 0 && q->options->say != NULL)
        q->options->say(q->options->say_context, "explaining");
    if (status == ND_OK && subjects.n > 0)
        status = nd_explain(model->model, model->float_model, subjects.captures, subjects.n, &options,
                            &explanation, err);
    if (is_told(status) && subjects.n > 0)
        status = put_all(model, subjects.devices, subjects.n, explanation, status != ND_OK ? err->message : "")
                     ? ND_OK
                     : nd_fail_memory(err);
    return status;
}

/* The text of one part, in new memory; NULL: no device differs, or it cannot be explained. */
static enum nd_status nd_qualify_explain_part(const struct nd_qualification *q,
                                              const struct nd_qualify_model *model, size_t part, char **text,
                                              struct nd_error *err)
{
    struct subjects subjects = {0};
    enum nd_status status = collect(q, model, &subjects, err);
    struct nd_explain_options options = options_of(q);
    options.part = part;
    options.n_parts = nd_qualify_explain_parts(q);
    if (status == ND_OK && subjects.n > 0)
        status = nd_explain_part(model->model, model->float_model, subjects.captures, subjects.n, &options,
                                 text, err);
    subjects_deinit(&subjects);
    return is_told(status) ? ND_OK : status;
}

/* Devices against the references that gates name. */

const struct nd_qualify_comparison *nd_qualify_find_comparison(const struct nd_qualify_model *model, size_t ref)
{
    for (size_t i = 0; i < model->n_comparisons; i++)
        if (model->comparisons[i].ref == ref)
            return &model->comparisons[i];
    return NULL;
}

const struct nd_comparison *nd_qualify_compared(const struct nd_qualification *q,
                                                const struct nd_qualify_model *model, size_t device,
                                                size_t *test)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, q->campaign.reference);
    const struct nd_qualify_comparison *found = nd_qualify_find_comparison(model, ref);
    if (found == NULL || found->comparison == NULL || found->devices[device] == SIZE_MAX)
        return NULL;
    *test = found->devices[device];
    return found->comparison;
}

/* The captures that are compared, the reference first, and which device is which of them. */
static enum nd_status collect_of_compare(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                         struct nd_qualify_comparison *out, const struct nd_capture **captures,
                                         size_t *n, struct nd_error *err)
{
    out->devices = nd_calloc(model->n_cells, sizeof *out->devices);
    ND_TRY_MEMORY(out->devices != NULL, err);
    captures[(*n)++] = model->cells[out->ref].capture;
    for (size_t d = 0; d < q->n_devices; d++) {
        out->devices[d] = SIZE_MAX;
        if (d == out->ref || model->cells[d].failure != NULL)
            continue;
        out->devices[d] = *n;
        captures[(*n)++] = model->cells[d].capture;
    }
    return ND_OK;
}

static enum nd_status nd_qualify_compare_one(const struct nd_qualification *q,
                                             const struct nd_qualify_model *model,
                                             const struct nd_qualify_share *share,
                                             struct nd_qualify_comparison *out, struct nd_error *err)
{
    ND_FREED const struct nd_capture **captures = nd_calloc(model->n_cells, sizeof(const struct nd_capture *));
    size_t n = 0;
    ND_TRY_MEMORY(captures != NULL, err);
    ND_TRY(collect_of_compare(q, model, out, captures, &n, err));
    struct nd_compare_options options = nd_compare_options_default();
    options.n_threads = q->options->n_threads;
    options.allow_different_models = model->has_prepared;
    options.n_worst = 0;
    options.merge = share->parts;
    options.cut = share->is_part ? ND_CUT_SAMPLES : ND_CUT_NONE;
    options.n_parts = share->is_part;
    const char *why_not = model->cells[out->ref].failure != NULL ? model->cells[out->ref].failure
                          : n <= 1                               ? "no device is left to compare"
                                                                 : NULL;
    enum nd_status status =
        why_not != NULL ? ND_OK : nd_compare_captures(captures, n, &options, &out->comparison, err);
    if (status == ND_ERR_NOT_COMPARABLE)
        why_not = err->message;
    else
        ND_TRY(status);
    if (why_not != NULL)
        out->why_not = nd_strdup(why_not);
    return out->comparison != NULL || out->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

static void need(const struct nd_qualification *q, struct nd_qualify_model *model, const char *to)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, to);
    if (ref != SIZE_MAX && ref != model->float64 && nd_qualify_find_comparison(model, ref) == NULL)
        model->comparisons[model->n_comparisons++].ref = ref;
}

enum nd_status nd_qualify_list_comparisons(const struct nd_qualification *q, struct nd_qualify_model *model,
                                           struct nd_error *err)
{
    const struct nd_policy *policy = &q->campaign.policy;
    if (model->comparisons != NULL)
        return ND_OK;
    model->comparisons = nd_calloc(policy->n + 1, sizeof *model->comparisons);
    ND_TRY_MEMORY(model->comparisons != NULL, err);
    need(q, model, q->campaign.reference);
    for (size_t r = 0; r < policy->n; r++)
        if (nd_policy_has_tensors(policy->rules[r].gate) && !nd_policy_is_statistical(policy->rules[r].gate) &&
            nd_texts_match(&policy->rules[r].models, model->campaign->name))
            need(q, model, policy->rules[r].to);
    return ND_OK;
}

enum nd_status nd_qualify_compare(struct nd_qualification *q, struct nd_error *err)
{
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        struct nd_qualify_model *model = &q->models[m];
        ND_TRY(nd_qualify_list_comparisons(q, model, err));
        for (size_t i = 0; i < model->n_comparisons; i++)
            ND_TRY(nd_qualify_compare_shared(q, model, i, err));
    }
    return ND_OK;
}

/* Changes when a product made before can no longer be used, whatever the version says. */
#define PRODUCT_FORMAT "1"

enum { MAX_PRODUCT_BYTES = 1 << 30 /* chosen: that of a result */ };

struct product {
    char *path;
    char key[65];
    bool is_there; /* made of these captures */
};

static void product_deinit(struct product *product)
{
    free(product->path);
}

char *nd_qualify_comparison_file(const struct nd_qualify_model *model, size_t ref)
{
    struct nd_strbuf name = {0};
    const char *base =
        nd_path_base(model->cells[ref].relative); /* a label, as the name of a file, with ".h5" */
    nd_strbuf_printf(&name, "parts/%s/compare-%.*s.json", model->campaign->name, (int)(strlen(base) - 3), base);
    return nd_strbuf_take(&name);
}

char *nd_qualify_explanation_file(const struct nd_qualify_model *model)
{
    struct nd_strbuf name = {0};
    nd_strbuf_printf(&name, "parts/%s/explain.txt", model->campaign->name);
    return nd_strbuf_take(&name);
}

char *nd_qualify_explanation_part_file(const struct nd_qualify_model *model, size_t part, size_t n_parts)
{
    struct nd_strbuf name = {0};
    nd_strbuf_printf(&name, "parts/%s/explain-%zu-of-%zu.json", model->campaign->name, part + 1, n_parts);
    return nd_strbuf_take(&name);
}

/* ---- keys ---- */

/* Takes over `relative`. */
static enum nd_status product_name(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                   char *relative, struct product *out, struct nd_error *err)
{
    struct nd_strbuf key = {0};
    *out = (struct product){0};
    nd_strbuf_printf(&key, "npudiff %s " PRODUCT_FORMAT "\n%s\nreference %s\nmodel %s\nfloat %s\n",
                     nd_version(), relative != NULL ? relative : "", q->campaign.reference,
                     nd_model_sha256(model->model),
                     model->float_model != NULL ? nd_model_sha256(model->float_model) : "");
    for (size_t c = 0; c < model->n_cells; c++)
        nd_strbuf_printf(&key, "%s %s %s\n", model->cells[c].relative, model->cells[c].key,
                         model->cells[c].sha256);
    size_t n_bytes = key.len;
    ND_FREED char *text = nd_strbuf_take(&key);
    if (relative != NULL)
        out->path = nd_path_join(q->folder, relative);
    free(relative);
    ND_TRY_MEMORY(text != NULL && out->path != NULL, err);
    nd_sha256_bytes(text, n_bytes, out->key);
    return ND_OK;
}

/* Takes over `relative`. Whoever calls gives back *out after an error, too. */
static enum nd_status product_init(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                   char *relative, struct product *out, struct nd_error *err)
{
    struct nd_keyed found = {0};
    ND_TRY(product_name(q, model, relative, out, err));
    if (!q->options->force)
        ND_TRY(nd_keyed_look(out->path, out->key, &found, err));
    out->is_there = found.is_final;
    return ND_OK;
}

enum nd_status nd_qualify_has_file(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                   char *relative, bool *out, struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    enum nd_status status = product_init(q, model, relative, &product, err);
    *out = product.is_there;
    return status;
}

static enum nd_status put(const struct product *product, const char *text, size_t n_bytes, struct nd_error *err)
{
    char sha256[ND_SHA256_HEX_BYTES];
    ND_FREED char *folder = nd_path_dir(product->path);
    ND_TRY(folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err));
    ND_TRY(nd_file_put(product->path, text, n_bytes, err));
    nd_sha256_bytes(text, n_bytes, sha256);
    return nd_keyed_write(product->path, product->key, sha256, true, err);
}

/* ---- comparisons ---- */

static enum nd_status make_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                      size_t ref, const struct product *product, struct nd_error *err)
{
    const struct nd_qualify_share share = {.is_part = true};
    struct nd_qualify_comparison made = {.ref = ref};
    ND_FREED char *text = NULL;
    enum nd_status status = nd_qualify_compare_one(q, model, &share, &made, err);
    /* What cannot be compared is an empty file: that costs the one who judges nothing to find out. */
    if (status == ND_OK && made.comparison != NULL)
        status = nd_compare_part_format(made.comparison, &text, err);
    if (status == ND_OK)
        status = put(product, text != NULL ? text : "", text != NULL ? strlen(text) : 0, err);
    nd_comparison_destroy(&made.comparison);
    ND_FREE_ALL(made.devices, made.why_not);
    return status;
}

enum nd_status nd_qualify_write_comparison(const struct nd_qualification *q,
                                           const struct nd_qualify_model *model, size_t ref, bool *is_made,
                                           struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    ND_TRY(product_init(q, model, nd_qualify_comparison_file(model, ref), &product, err));
    *is_made = !product.is_there;
    return *is_made ? make_comparison(q, model, ref, &product, err) : ND_OK;
}

/* The same as nd_qualify_compare_one and nd_qualify_explain_one, from such a file where it is there and made of
 * the same captures. */
static enum nd_status nd_qualify_compare_shared(const struct nd_qualification *q,
                                                struct nd_qualify_model *model, size_t i, struct nd_error *err)
{
    struct nd_qualify_comparison *out = &model->comparisons[i];
    ND_CLEANUP(nd_parts_destroy) struct nd_parts *parts = NULL;
    ND_CLEANUP(product_deinit) struct product product = {0};
    ND_TRY(product_init(q, model, nd_qualify_comparison_file(model, out->ref), &product, err));
    const char *path = product.path;
    if (product.is_there && nd_parts_read(&path, 1, &parts, NULL) != ND_OK)
        parts = NULL; /* nothing was compared */
    const struct nd_qualify_share share = {.parts = parts};
    return nd_qualify_compare_one(q, model, &share, out, err);
}

/* ---- explanations ----
 *
 * For each device of the campaign, in its order, a line with the number of bytes of its explanation, or "-",
 * and the explanation with a line's end. */

static bool format_explanations(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                struct nd_strbuf *out)
{
    for (size_t d = 0; d < q->n_devices; d++)
        if (model->explanations[d] == NULL)
            nd_strbuf_puts(out, "-\n");
        else
            nd_strbuf_printf(out, "%zu\n%s\n", strlen(model->explanations[d]), model->explanations[d]);
    return !out->failed;
}

/* False: it is no such text, or memory is out. */
static bool parse_explanations(const struct nd_qualification *q, struct nd_qualify_model *model,
                               const char *text)
{
    for (size_t d = 0; d < q->n_devices; d++) {
        char digits[32];
        uint64_t n_bytes;
        size_t n = strcspn(text, "\n");
        if (text[n] == '\0' || n >= sizeof digits)
            return false;
        memcpy(digits, text, n);
        digits[n] = '\0';
        text += n + 1;
        if (strcmp(digits, "-") == 0)
            continue;
        if (!nd_parse_u64(digits, &n_bytes) || strnlen(text, n_bytes) != n_bytes || text[n_bytes] != '\n' ||
            (model->explanations[d] = strndup(text, n_bytes)) == NULL)
            return false;
        text += n_bytes + 1;
    }
    return text[0] == '\0';
}

/* ---- and their parts ---- */

/* The paths of all parts of an explanation. */
struct part_files {
    size_t n;
    struct product *products; /* [n] */
    const char **paths;       /* [n] borrowed from these */
};

static void part_files_deinit(struct part_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        product_deinit(&files->products[i]);
    ND_FREE_ALL(files->products, (void *)files->paths);
}

/* None unless every part is there and says something. */
static enum nd_status find_parts(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                 struct part_files *out, bool *are_there, struct nd_error *err)
{
    size_t n = nd_qualify_explain_parts(q);
    *are_there = n > 1;
    if (n == 1)
        return ND_OK;
    out->products = nd_calloc(n, sizeof *out->products);
    out->paths = nd_calloc(n, sizeof *out->paths);
    ND_TRY_MEMORY(out->products != NULL && out->paths != NULL, err);
    for (size_t i = 0; i < n; i++) {
        struct product *product = &out->products[out->n++];
        struct stat facts;
        ND_TRY(product_init(q, model, nd_qualify_explanation_part_file(model, i, n), product, err));
        out->paths[i] = product->path;
        *are_there = *are_there && product->is_there && stat(product->path, &facts) == 0 && facts.st_size > 0;
    }
    return ND_OK;
}

enum nd_status nd_qualify_write_explanation_part(struct nd_qualification *q, struct nd_qualify_model *model,
                                                 size_t part, bool *is_made, struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    ND_FREED char *text = NULL;
    ND_TRY(product_init(q, model, nd_qualify_explanation_part_file(model, part, nd_qualify_explain_parts(q)),
                        &product, err));
    *is_made = !product.is_there;
    if (product.is_there)
        return ND_OK;
    ND_TRY(nd_qualify_compare(q, err));
    ND_TRY(nd_qualify_explain_part(q, model, part, &text, err));
    return put(&product, text != NULL ? text : "", text != NULL ? strlen(text) : 0, err);
}

static enum nd_status make_explanation(struct nd_qualification *q, struct nd_qualify_model *model,
                                       const struct product *product, struct nd_error *err)
{
    ND_CLEANUP(part_files_deinit) struct part_files parts = {0};
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    bool are_there = false;
    ND_TRY(nd_qualify_compare(q, err));
    ND_TRY(find_parts(q, model, &parts, &are_there, err));
    ND_TRY(nd_qualify_explain_one(q, model, parts.paths, are_there ? parts.n : 0, err));
    return format_explanations(q, model, &text)
               ? put(product, text.text != NULL ? text.text : "", text.len, err)
               : nd_fail_memory(err);
}

enum nd_status nd_qualify_write_explanation(struct nd_qualification *q, struct nd_qualify_model *model,
                                            bool *is_made, struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    ND_TRY(product_init(q, model, nd_qualify_explanation_file(model), &product, err));
    *is_made = !product.is_there;
    return *is_made ? make_explanation(q, model, &product, err) : ND_OK;
}

enum nd_status nd_qualify_explain(struct nd_qualification *q, struct nd_qualify_model *model,
                                  struct nd_error *err)
{
    ND_CLEANUP(product_deinit) struct product product = {0};
    ND_FREED void *text = NULL;
    size_t n_bytes;
    ND_TRY(product_init(q, model, nd_qualify_explanation_file(model), &product, err));
    bool is_read = product.is_there &&
                   nd_file_read(product.path, MAX_PRODUCT_BYTES, &text, &n_bytes, NULL) == ND_OK &&
                   parse_explanations(q, model, text);
    if (is_read)
        return ND_OK;
    for (size_t d = 0; d < q->n_devices; d++) {
        free(model->explanations[d]);
        model->explanations[d] = NULL;
    }
    return nd_qualify_explain_one(q, model, NULL, 0, err);
}
