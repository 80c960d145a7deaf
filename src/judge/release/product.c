/* What one process makes for another that judges: a comparison, or the explanations of a model. A product lies
 * in the folder "parts" beside that of the captures, with a key (keyed.h) of what it was made of, the captures'
 * bytes among it. Whoever finds no product of these captures does the work. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/campaign/keyed.h"
#include "judge/release/qualify.h"
#include "npudiff/core/parse.h"

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
    char *text = nd_strbuf_take(&key);
    if (relative != NULL)
        out->path = nd_path_join(q->folder, relative);
    free(relative);
    if (text == NULL || out->path == NULL) {
        free(text);
        product_deinit(out);
        return nd_fail_memory(err);
    }
    nd_sha256_bytes(text, n_bytes, out->key);
    free(text);
    return ND_OK;
}

/* Takes over `relative`. */
static enum nd_status product_init(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                   char *relative, struct product *out, struct nd_error *err)
{
    struct nd_keyed found = {0};
    enum nd_status status = product_name(q, model, relative, out, err);
    if (status == ND_OK && !q->options->force)
        status = nd_keyed_look(out->path, out->key, &found, err);
    out->is_there = found.is_final;
    if (status != ND_OK) {
        product_deinit(out);
        *out = (struct product){0};
    }
    return status;
}

/* Takes over `relative`. */
static enum nd_status has(const struct nd_qualification *q, const struct nd_qualify_model *model,
                          char *relative, bool *out, struct nd_error *err)
{
    struct product product;
    enum nd_status status = product_init(q, model, relative, &product, err);
    *out = product.is_there;
    product_deinit(&product);
    return status;
}

enum nd_status nd_qualify_has_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                         size_t ref, bool *out, struct nd_error *err)
{
    return has(q, model, nd_qualify_comparison_file(model, ref), out, err);
}

enum nd_status nd_qualify_has_explanation(const struct nd_qualification *q,
                                          const struct nd_qualify_model *model, bool *out, struct nd_error *err)
{
    return has(q, model, nd_qualify_explanation_file(model), out, err);
}

enum nd_status nd_qualify_has_explanation_part(const struct nd_qualification *q,
                                               const struct nd_qualify_model *model, size_t part, bool *out,
                                               struct nd_error *err)
{
    return has(q, model, nd_qualify_explanation_part_file(model, part, nd_qualify_explain_parts(q)), out, err);
}

static enum nd_status put(const struct product *product, const char *text, size_t n_bytes, struct nd_error *err)
{
    char sha256[ND_SHA256_HEX_BYTES];
    char *folder = nd_path_dir(product->path);
    enum nd_status status = folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    free(folder);
    if (status == ND_OK)
        status = nd_file_put(product->path, text, n_bytes, err);
    if (status != ND_OK)
        return status;
    nd_sha256_bytes(text, n_bytes, sha256);
    return nd_keyed_write(product->path, product->key, sha256, true, err);
}

/* ---- comparisons ---- */

static enum nd_status make_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                      size_t ref, const struct product *product, struct nd_error *err)
{
    const struct nd_qualify_share share = {.is_part = true};
    struct nd_qualify_comparison made = {.ref = ref};
    char *text = NULL;
    enum nd_status status = nd_qualify_compare_one(q, model, &share, &made, err);
    /* What cannot be compared is an empty file: that costs the one who judges nothing to find out. */
    if (status == ND_OK && made.comparison != NULL)
        status = nd_compare_part_format(made.comparison, &text, err);
    if (status == ND_OK)
        status = put(product, text != NULL ? text : "", text != NULL ? strlen(text) : 0, err);
    free(text);
    nd_comparison_destroy(&made.comparison);
    free(made.devices);
    free(made.why_not);
    return status;
}

enum nd_status nd_qualify_write_comparison(const struct nd_qualification *q,
                                           const struct nd_qualify_model *model, size_t ref, bool *is_made,
                                           struct nd_error *err)
{
    struct product product;
    enum nd_status status = product_init(q, model, nd_qualify_comparison_file(model, ref), &product, err);
    if (status != ND_OK)
        return status;
    *is_made = !product.is_there;
    if (*is_made)
        status = make_comparison(q, model, ref, &product, err);
    product_deinit(&product);
    return status;
}

enum nd_status nd_qualify_compare_shared(const struct nd_qualification *q, struct nd_qualify_model *model,
                                         size_t i, struct nd_error *err)
{
    struct nd_qualify_comparison *out = &model->comparisons[i];
    struct nd_parts *parts = NULL;
    struct product product;
    enum nd_status status = product_init(q, model, nd_qualify_comparison_file(model, out->ref), &product, err);
    if (status != ND_OK)
        return status;
    const char *path = product.path;
    if (product.is_there && nd_parts_read(&path, 1, &parts, NULL) != ND_OK)
        parts = NULL; /* nothing was compared */
    const struct nd_qualify_share share = {.parts = parts};
    status = nd_qualify_compare_one(q, model, &share, out, err);
    nd_parts_destroy(&parts);
    product_deinit(&product);
    return status;
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

static void forget_explanations(const struct nd_qualification *q, struct nd_qualify_model *model)
{
    for (size_t d = 0; d < q->n_devices; d++) {
        free(model->explanations[d]);
        model->explanations[d] = NULL;
    }
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
    free(files->products);
    free((void *)files->paths);
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
    enum nd_status status = out->products != NULL && out->paths != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        char *name = nd_qualify_explanation_part_file(model, i, n);
        struct stat facts;
        status = product_init(q, model, name, &out->products[i], err);
        if (status != ND_OK)
            break;
        out->paths[out->n++] = out->products[i].path;
        *are_there = *are_there && out->products[i].is_there && stat(out->products[i].path, &facts) == 0 &&
                     facts.st_size > 0;
    }
    return status;
}

enum nd_status nd_qualify_write_explanation_part(struct nd_qualification *q, struct nd_qualify_model *model,
                                                 size_t part, bool *is_made, struct nd_error *err)
{
    struct product product;
    char *text = NULL;
    enum nd_status status = product_init(
        q, model, nd_qualify_explanation_part_file(model, part, nd_qualify_explain_parts(q)), &product, err);
    if (status != ND_OK)
        return status;
    *is_made = !product.is_there;
    if (*is_made)
        status = nd_qualify_compare(q, err);
    if (*is_made && status == ND_OK)
        status = nd_qualify_explain_part(q, model, part, &text, err);
    if (*is_made && status == ND_OK)
        status = put(&product, text != NULL ? text : "", text != NULL ? strlen(text) : 0, err);
    free(text);
    product_deinit(&product);
    return status;
}

static enum nd_status make_explanation(struct nd_qualification *q, struct nd_qualify_model *model,
                                       const struct product *product, struct nd_error *err)
{
    struct part_files parts = {0};
    struct nd_strbuf text = {0};
    bool are_there = false;
    enum nd_status status = nd_qualify_compare(q, err);
    if (status == ND_OK)
        status = find_parts(q, model, &parts, &are_there, err);
    if (status == ND_OK)
        status = nd_qualify_explain_one(q, model, parts.paths, are_there ? parts.n : 0, err);
    if (status == ND_OK)
        status = format_explanations(q, model, &text)
                     ? put(product, text.text != NULL ? text.text : "", text.len, err)
                     : nd_fail_memory(err);
    nd_strbuf_deinit(&text);
    part_files_deinit(&parts);
    return status;
}

enum nd_status nd_qualify_write_explanation(struct nd_qualification *q, struct nd_qualify_model *model,
                                            bool *is_made, struct nd_error *err)
{
    struct product product;
    enum nd_status status = product_init(q, model, nd_qualify_explanation_file(model), &product, err);
    if (status != ND_OK)
        return status;
    *is_made = !product.is_there;
    if (*is_made)
        status = make_explanation(q, model, &product, err);
    product_deinit(&product);
    return status;
}

enum nd_status nd_qualify_explain(struct nd_qualification *q, struct nd_qualify_model *model,
                                  struct nd_error *err)
{
    struct product product;
    void *text = NULL;
    size_t n_bytes;
    enum nd_status status = product_init(q, model, nd_qualify_explanation_file(model), &product, err);
    if (status != ND_OK)
        return status;
    bool is_read = product.is_there &&
                   nd_file_read(product.path, MAX_PRODUCT_BYTES, &text, &n_bytes, NULL) == ND_OK &&
                   parse_explanations(q, model, text);
    free(text);
    product_deinit(&product);
    if (is_read)
        return ND_OK;
    forget_explanations(q, model);
    return nd_qualify_explain_one(q, model, NULL, 0, err);
}
