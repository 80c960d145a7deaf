/* What the default texts of all commands have in common: wrapped sentences, and the command to paste next. */
#include "report/text/summary.h"

#include <stdio.h>

#include "core/memory.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "report/text/tree.h"

size_t nd_summary_width(size_t width)
{
    if (width == 0)
        return ND_SUMMARY_WIDTH;
    return width > ND_SUMMARY_MIN_WIDTH ? width : ND_SUMMARY_MIN_WIDTH;
}

void nd_summary_put(struct nd_strbuf *out, size_t width, size_t indent, size_t hanging, const char *fmt, ...)
{
    ND_FREED char *text = NULL;
    ND_MAKE_ARGUMENTS(text, fmt);
    ND_FREED char *clean = text != NULL ? nd_clean_text(text) : NULL;
    if (clean == NULL) {
        out->failed = true;
    } else {
        nd_strbuf_printf(out, "%*s", (int)indent, "");
        nd_wrap_append(out, clean, hanging, width);
        nd_strbuf_puts(out, "\n");
    }
}

void nd_summary_put_lines(struct nd_strbuf *out, size_t width, const char *fmt, ...)
{
    char *text = NULL, *rest = NULL;
    ND_MAKE_ARGUMENTS(text, fmt);
    if (text == NULL) {
        out->failed = true;
        return;
    }
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        size_t indent = strspn(line, " ");
        nd_summary_put(out, width, indent, indent + 2, "%s", line + indent);
    }
    free(text);
}

void nd_summary_put_environments(struct nd_strbuf *out, size_t width, const char *const *labels,
                                 const char *const *environments, size_t n)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    bool is_shared = true;
    for (size_t i = 1; i < n; i++)
        is_shared = is_shared && strcmp(environments[i], environments[0]) == 0;
    for (size_t i = 0; i < n; i++) {
        bool is_said = environments[i][0] == '\0';
        for (size_t k = 0; k < i; k++)
            is_said = is_said || strcmp(environments[k], environments[i]) == 0;
        if (is_said)
            continue;
        nd_strbuf_printf(&line, "%s%s", line.len > 0 ? "; " : "ran on: ", environments[i]);
        if (is_shared)
            continue;
        nd_strbuf_puts(&line, " (");
        /* "gen1, gen3 and 4 more": the devices with the environment of device i. */
        enum { MAX_NAMES = 4 };
        size_t n_same = 0;
        for (size_t k = i; k < n; k++)
            if (strcmp(environments[k], environments[i]) == 0 && n_same++ < MAX_NAMES)
                nd_strbuf_printf(&line, "%s%s", n_same > 1 ? ", " : "", labels[k]);
        if (n_same > MAX_NAMES)
            nd_strbuf_printf(&line, " and %zu more", n_same - MAX_NAMES);
        nd_strbuf_puts(&line, ")");
    }
    if (line.len > 0)
        nd_summary_put(out, width, 0, 2, "%s", line.text);
    out->failed = out->failed || line.failed;
}

size_t nd_summary_count_lines(const struct nd_strbuf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += text->text[i] == '\n';
    return n;
}

/* Where line n of a text begins. */
static size_t line_start(const struct nd_strbuf *text, size_t n)
{
    size_t i = 0;
    while (n > 0 && i < text->len)
        n -= text->text[i++] == '\n';
    return i;
}

static size_t indent_of(const struct nd_strbuf *text, size_t line)
{
    return strspn(text->text + line_start(text, line), " ");
}

void nd_summary_append_cut(struct nd_strbuf *out, const struct nd_strbuf *text, size_t max_lines)
{
    size_t n = nd_summary_count_lines(text), most = max_lines > 1 ? max_lines - 1 : 1;
    out->failed = out->failed || text->failed;
    if (text->text == NULL || n <= max_lines) {
        nd_strbuf_append(out, text->text != NULL ? text->text : "", text->len);
        return;
    }
    while (most > 1 && indent_of(text, most) > indent_of(text, most - 1))
        most--; /* the first line that is left out would continue the last one */
    nd_strbuf_append(out, text->text, line_start(text, most));
    nd_strbuf_puts(out, "... (-v shows more)\n");
}

void nd_summary_put_next(struct nd_strbuf *out, size_t width, const char *why, const char *const *words,
                         size_t n_words)
{
    nd_summary_put_next_of(out, width, why, NULL, words, n_words);
}

void nd_summary_put_next_of(struct nd_strbuf *out, size_t width, const char *why, const char *model,
                            const char *const *words, size_t n_words)
{
    size_t column = 2, n_in_line = 0;
    nd_strbuf_puts(out, "\n");
    nd_summary_put(out, width, 0, 2, model != NULL ? "Next, %s (put in the path of '%s'):" : "Next, %s:", why,
                   model);
    nd_strbuf_puts(out, "  ");
    for (size_t i = 0; i < n_words; i++) {
        struct nd_strbuf word = {0};
        nd_shell_put(&word, words[i]);
        char *clean = nd_clean_text(word.text != NULL ? word.text : "");
        out->failed = out->failed || word.failed || clean == NULL;
        size_t n = clean != NULL ? nd_text_columns(clean) : 0;
        size_t reserve = i + 1 < n_words ? 2 : 0; /* for a backslash after it */
        if (n_in_line > 0 && column + 1 + n + reserve > width) {
            nd_strbuf_puts(out, " \\\n    ");
            column = 4;
            n_in_line = 0;
        }
        nd_strbuf_printf(out, "%s%s", n_in_line > 0 ? " " : "", clean != NULL ? clean : "");
        column += (n_in_line > 0) + n;
        n_in_line++;
        free(clean);
        nd_strbuf_deinit(&word);
    }
    nd_strbuf_puts(out, "\n");
}

bool nd_summary_lacks_inputs(const char *capture)
{
    struct nd_capture *opened = NULL;
    if (nd_capture_open(capture, &opened, NULL) != ND_OK)
        return false;
    bool lacks = nd_capture_n_probes(opened) > 0 && nd_capture_probe(opened, 0)->n_inputs == 0;
    nd_capture_close(&opened);
    return lacks;
}

void nd_summary_put_import_again(struct nd_strbuf *out, size_t width, const char *capture)
{
    nd_strbuf_puts(out, "\n");
    nd_summary_put(out, width, 0, 2,
                   "Next: import '%s' again with --inputs FILE, the inputs that the device was fed. Without "
                   "them no layer can be judged.",
                   capture);
}

void nd_summary_put_explain(struct nd_strbuf *out, size_t width, const char *why, const char *capture,
                            const char *model)
{
    if (nd_summary_lacks_inputs(capture)) {
        nd_summary_put_import_again(out, width, capture);
        return;
    }
    ND_CLEANUP(nd_capture_close) struct nd_capture *opened = NULL;
    bool is_open = nd_capture_open(capture, &opened, NULL) == ND_OK;
    const char *path = is_open ? nd_capture_model_path(opened) : NULL;
    const char *words[] = {"npudiff", "explain", "--quantised",
                           path != NULL    ? path
                           : model != NULL ? model
                                           : "MODEL.onnx",
                           capture};
    nd_summary_put_next_of(out, width, why, path == NULL ? model : NULL, words, sizeof words / sizeof words[0]);
}
