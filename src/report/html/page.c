/* The page around the views: what it is made of, what the browser may run, and its data. */

#include "core/items.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "report/html/html.h"

enum { MAX_PARTS = 64 };

/* The views of a part in their order. */
static const struct {
    const char *id, *title;
    void (*write)(struct nd_page *page, const struct nd_page_part *part);
} views[] = {
    {"tensors", "Tensors", nd_view_tensors},    {"flow", "Error flow", nd_view_flow},
    {"budget", "Error budget", nd_view_budget}, {"samples", "Samples and accuracy", nd_view_samples},
    {"where", "Where it ran", nd_view_where},
};
enum { N_VIEWS = sizeof views / sizeof views[0] };

/* A file that assets.S holds. */
struct nd_asset {
    const char *text;
    size_t n_bytes;
};

#define ASSET(name)                                                                                            \
    extern const char nd_asset_file_##name##_begin[], nd_asset_file_##name##_end[];                            \
    static struct nd_asset asset_##name(void)                                                                  \
    {                                                                                                          \
        return (struct nd_asset){nd_asset_file_##name##_begin,                                                 \
                                 (size_t)(nd_asset_file_##name##_end - nd_asset_file_##name##_begin)};         \
    }

ASSET(style)
ASSET(script)
ASSET(chart_style)
ASSET(chart)
ASSET(graph)

/* The documents that a page can be made of: their kind, and its description. */
#define DOCUMENTS(X)                                                                                           \
    X(comparison, COMPARISON)                                                                                  \
    X(explanation, EXPLANATION)                                                                                \
    X(placement, PLACEMENT)                                                                                    \
    X(latency, LATENCY)                                                                                        \
    X(golden_checks, GOLDEN)                                                                                   \
    X(golden_difference, GOLDEN)                                                                               \
    X(golden_upgrades, GOLDEN)                                                                                 \
    X(golden_history, HISTORY)                                                                                 \
    X(qualification, QUALIFICATION)                                                                            \
    X(alignment, CHANGED)                                                                                      \
    X(promotion, CHANGED)
#define AS_ASSET(kind, page) ASSET(kind)
DOCUMENTS(AS_ASSET)
#define AS_ROW(kind, page) {#kind, asset_##kind, ND_PAGE_##page},
static const struct {
    const char *kind;
    struct nd_asset (*schema)(void);
    enum nd_page_document page;
} described[] = {DOCUMENTS(AS_ROW)};

/* *page: ND_PAGE_N_DOCUMENTS for one that no page can be made of. Images come of npudiff itself, and have no
 * description: their view takes nothing for granted. */
static enum nd_status check_document(const struct nd_report_document *document, const json_t *tree,
                                     enum nd_page_document *page, struct nd_error *err)
{
    *page = nd_doc_get(tree, "images") != NULL ? ND_PAGE_IMAGES : ND_PAGE_N_DOCUMENTS;
    for (size_t i = 0; i < sizeof described / sizeof described[0]; i++)
        if (strcmp(described[i].kind, nd_doc_text(tree, "kind")) == 0) {
            struct nd_asset schema = described[i].schema();
            *page = described[i].page;
            return nd_page_check(document, tree, described[i].kind, schema.text, schema.n_bytes, err);
        }
    return ND_OK;
}

/* Texts that are put in as they are. A browser runs what has one of these digests and nothing else. */
struct inline_text {
    const char *element; /* "script" or "style" */
    struct nd_asset asset;
};

struct whole_page {
    const struct nd_page_part *parts;
    size_t n_parts;
    const char *title;
    const char *views; /* HTML */
    const char *data;  /* JSON */
    struct inline_text texts[5];
    size_t n_texts;
};

/* ---- what may run ---- */

/* "'sha256-...'" of the text. */
static void put_digest(struct nd_strbuf *out, const struct nd_asset *asset)
{
    char hex[ND_SHA256_HEX_BYTES];
    unsigned char bytes[32];
    nd_sha256_bytes(asset->text, asset->n_bytes, hex);
    for (size_t i = 0; i < sizeof bytes; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    ND_FREED char *text = nd_base64(bytes, sizeof bytes);
    if (text == NULL)
        out->failed = true;
    else
        nd_strbuf_printf(out, " 'sha256-%s'", text);
}

static void put_policy(struct nd_strbuf *out, const struct whole_page *whole)
{
    static const char *const elements[] = {"script", "style"};
    nd_strbuf_puts(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
                        "data:; base-uri 'none'; form-action 'none'");
    for (size_t e = 0; e < 2; e++) {
        nd_strbuf_printf(out, "; %s-src", elements[e]);
        for (size_t i = 0; i < whole->n_texts; i++)
            if (strcmp(whole->texts[i].element, elements[e]) == 0)
                put_digest(out, &whole->texts[i].asset);
    }
    nd_strbuf_puts(out, "\">\n");
}

static void put_all_inline(struct nd_strbuf *out, const struct whole_page *whole, const char *element)
{
    for (size_t i = 0; i < whole->n_texts; i++)
        if (strcmp(whole->texts[i].element, element) == 0) {
            const struct inline_text *text = &whole->texts[i];
            nd_strbuf_printf(out, "<%s>", text->element);
            nd_strbuf_append(out, text->asset.text, text->asset.n_bytes);
            nd_strbuf_printf(out, "</%s>\n", text->element);
        }
}

/* A part that has nothing but a campaign's result stands above the models and has no views of its own. */
static bool has_views(const struct nd_page_part *part, size_t n_parts)
{
    bool has_some = n_parts == 1;
    for (int kind = 0; kind < ND_PAGE_N_DOCUMENTS; kind++)
        has_some =
            has_some || (kind != ND_PAGE_QUALIFICATION && kind != ND_PAGE_GOLDEN && kind != ND_PAGE_HISTORY &&
                         kind != ND_PAGE_CHANGED && part->documents[kind] != NULL);
    return has_some;
}

/* ---- the frame ---- */

/* Strings are the only place where JSON has a "<"; there it may be written as its number, so that no text of a
 * capture ends the element. */
static void put_data(struct nd_strbuf *out, const char *json)
{
    nd_strbuf_puts(out, "<script type=\"application/json\" id=\"data\">");
    for (const char *c = json; *c != '\0';) {
        size_t n = strcspn(c, "<");
        nd_strbuf_append(out, c, n);
        c += n;
        if (*c == '<') {
            nd_strbuf_puts(out, "\\u003c");
            c++;
        }
    }
    nd_strbuf_puts(out, "</script>\n");
}

static enum nd_status put_together(const struct whole_page *whole, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_page page = {.out = &buf};
    nd_html_puts(&page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    put_policy(page.out, whole);
    nd_html_fill(&page,
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
                 "name=\"color-scheme\" content=\"light dark\">\n<title>$t - npudiff report</title>\n",
                 whole->title);
    put_all_inline(page.out, whole, "style");
    nd_html_puts(&page, "</head>\n<body>\n");
    char now[32];
    nd_html_fill(&page,
                 "<a class=\"skip\" href=\"#verdict\">To the verdict</a>\n<header class=\"top\">\n<div><h1>$n",
                 whole->title);
    nd_html_printf(&page, "</h1>\n<p class=\"made\">npudiff report &middot; npudiff %s", nd_version());
    if (nd_utc_now("%Y-%m-%d %H:%M UTC", now, sizeof now))
        nd_html_printf(&page, " &middot; %s", now);
    nd_html_puts(&page,
                 "</p></div>\n<nav aria-label=\"Views\"><ul>\n<li><a href=\"#verdict\">Verdict</a></li>\n");
    for (size_t p = 0; p < whole->n_parts; p++) {
        const struct nd_page_part *part = &whole->parts[p];
        if (whole->n_parts > 1 && has_views(part, whole->n_parts)) {
            nd_html_printf(&page, "<li><a href=\"#%stensors\">", part->prefix);
            nd_html_fill(&page, "$n</a></li>\n", part->name);
        }
        for (size_t v = 0; whole->n_parts == 1 && v < N_VIEWS; v++)
            nd_html_printf(&page, "<li><a href=\"#%s%s\">%s</a></li>\n", part->prefix, views[v].id,
                           views[v].title);
    }
    nd_html_puts(&page, "</ul></nav>\n</header>\n");
    nd_html_puts(&page, "<main>\n");
    nd_html_puts(&page, whole->views);
    nd_html_puts(&page, "</main>\n<footer><p>This file is complete: it loads nothing and sends nothing. What "
                        "each number means: docs/guides/report.md of npudiff.</p></footer>\n");
    put_data(&buf, whole->data);
    put_all_inline(&buf, whole, "script");
    nd_html_puts(&page, "</body>\n</html>\n");
    *out = nd_strbuf_take(&buf);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the views ---- */

static void add_text(struct whole_page *whole, const char *element, struct nd_asset asset)
{
    whole->texts[whole->n_texts++] = (struct inline_text){element, asset};
}

static enum nd_status make(const struct nd_page_part *parts, size_t n_parts, const char *title, char **out,
                           struct nd_error *err)
{
    struct nd_strbuf html = {0}, json = {0};
    struct nd_page page = {.out = &html, .data = {.out = &json}};
    nd_json_open_line(&page.data, NULL, '{');
    nd_json_open_line(&page.data, "parts", '[');
    nd_html_puts(&page, "<section id=\"verdict\" aria-labelledby=\"verdict-title\">\n"
                        "<h2 id=\"verdict-title\" class=\"hidden\">Verdict</h2>\n");
    for (size_t p = 0; p < n_parts; p++)
        nd_view_verdict(&page, &parts[p]);
    nd_html_section_end(&page);
    for (size_t p = 0; p < n_parts; p++) {
        nd_json_open_line(&page.data, NULL, '{');
        nd_json_text(&page.data, "prefix", parts[p].prefix);
        for (size_t v = 0; v < N_VIEWS && has_views(&parts[p], n_parts); v++)
            views[v].write(&page, &parts[p]);
        nd_json_close(&page.data, '}');
    }
    nd_json_close(&page.data, ']');
    nd_json_close(&page.data, '}');
    ND_FREED char *views_text = nd_strbuf_take(&html), *data_text = nd_strbuf_take(&json);
    struct whole_page whole = {
        .parts = parts, .n_parts = n_parts, .title = title, .views = views_text, .data = data_text};
    add_text(&whole, "style", asset_style());
    if (page.has_chart) {
        add_text(&whole, "style", asset_chart_style());
        add_text(&whole, "script", asset_chart());
    }
    if (page.has_graph)
        add_text(&whole, "script", asset_graph());
    add_text(&whole, "script", asset_script());
    return views_text != NULL && data_text != NULL ? put_together(&whole, out, err) : nd_fail_memory(err);
}

/* ---- documents ---- */

static struct nd_page_part *part_of(struct nd_page_part *parts, size_t *n_parts, const char *model)
{
    for (size_t p = 0; p < *n_parts; p++)
        if (strcmp(parts[p].name, model) == 0)
            return &parts[p];
    if (*n_parts == MAX_PARTS)
        return NULL;
    struct nd_page_part *part = &parts[(*n_parts)++];
    part->name = model;
    return part;
}

static enum nd_status sort_document(struct nd_page_part *parts, size_t *n_parts,
                                    const struct nd_report_document *document, const json_t *tree,
                                    struct nd_error *err)
{
    enum nd_page_document kind;
    ND_TRY(check_document(document, tree, &kind, err));
    if (kind == ND_PAGE_N_DOCUMENTS)
        return nd_fail(err, ND_E_REPORT_DOCUMENT, document->name,
                       "'%s' is no result that a report can be made of: it can be made of what compare, "
                       "explain, placement, latency, golden check, golden diff, golden history, qualify, align "
                       "and promote print with --json",
                       document->name);
    struct nd_page_part *part = part_of(parts, n_parts, document->model != NULL ? document->model : "");
    if (part == NULL)
        return nd_fail(err, ND_E_REPORT_DOCUMENT, document->name, "more than %d models in one report",
                       MAX_PARTS);
    if (part->documents[kind] != NULL)
        return nd_fail(err, ND_E_REPORT_DOCUMENT, document->name,
                       "'%s' is the second result of one command: a report shows one of each", document->name);
    part->documents[kind] = tree;
    return ND_OK;
}

/* The model that the documents are about: the name of its file without the folder. */
static const char *title_of(const struct nd_page_part *part)
{
    const char *campaign = nd_doc_text(part->documents[ND_PAGE_QUALIFICATION], "campaign");
    if (campaign[0] != '\0')
        return campaign;
    for (int kind = 0; kind < ND_PAGE_N_DOCUMENTS; kind++) {
        const char *model = nd_doc_text(part->documents[kind], "model");
        const char *slash = strrchr(model, '/');
        if (model[0] != '\0')
            return slash != NULL ? slash + 1 : model;
    }
    return "Comparison of devices";
}

enum nd_status nd_report_page(const struct nd_report_document *documents, size_t n, const char *title,
                              char **out, struct nd_error *err)
{
    struct nd_page_part parts[MAX_PARTS] = {0};
    size_t n_parts = 0;
    enum nd_status status = ND_OK;
    ND_FREED json_t **trees = nd_calloc(n + 1, sizeof *trees);
    ND_TRY_MEMORY(trees != NULL, err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        json_error_t where;
        trees[i] = json_loads(documents[i].json, 0, &where);
        if (!json_is_object(trees[i]))
            status = nd_fail(err, ND_E_REPORT_DOCUMENT, documents[i].name,
                             "'%s' is no JSON object: line %d: %s", documents[i].name, where.line, where.text);
        else
            status = sort_document(parts, &n_parts, &documents[i], trees[i], err);
    }
    for (size_t p = 0; status == ND_OK && p < n_parts; p++) {
        if (p > 0)
            snprintf(parts[p].prefix, sizeof parts[p].prefix, "m%zu-", p + 1);
        status = nd_page_find_groups(&parts[p], err);
    }
    if (status == ND_OK)
        status = make(parts, n_parts, title != NULL ? title : title_of(&parts[0]), out, err);
    for (size_t p = 0; p < n_parts; p++) {
        ND_FREE_EACH(parts[p].groups, parts[p].n_groups, .label);
        parts[p].groups = NULL;
        parts[p].n_groups = 0;
    }
    for (size_t i = 0; i < n; i++)
        json_decref(trees[i]);
    return status;
}
