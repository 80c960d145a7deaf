#include "report/text/explain_words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nd_explain_clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

char *nd_explain_share(uint64_t n, uint64_t total, char buf[static 32])
{
    double percent = total > 0 ? 100 * (double)n / (double)total : 0;
    if (n == 0 || n == total)
        snprintf(buf, 32, "%.0f%%", percent);
    else if (percent < 0.01)
        snprintf(buf, 32, "<0.01%%");
    else
        snprintf(buf, 32, percent < 1 ? "%.2f%%" : "%.1f%%", fmin(percent, 99.9));
    return buf;
}

char *nd_explain_real(double value, char buf[static 32])
{
    if (isnan(value))
        snprintf(buf, 32, "-");
    else
        snprintf(buf, 32, "%.3g", value);
    return buf;
}

void nd_explain_shorten(const char *text, size_t max, char out[static EXPLAIN_CELL_BYTES])
{
    size_t n = strlen(text);
    max = max < EXPLAIN_CELL_BYTES - 1 ? max : EXPLAIN_CELL_BYTES - 1;
    if (n <= max) {
        memcpy(out, text, n + 1);
    } else {
        size_t head = (max - 2) / 2, tail = n - (max - 2 - head);
        while (head > 0 && ((unsigned char)text[head] & 0xc0) == 0x80)
            head--;
        while (((unsigned char)text[tail] & 0xc0) == 0x80)
            tail++;
        memcpy(out, text, head);
        memcpy(out + head, "..", 2);
        memcpy(out + head + 2, text + tail, n - tail + 1);
    }
    nd_explain_clean(out);
}

void nd_explain_put_wrapped(struct nd_strbuf *out, size_t width, size_t indent, const char *fmt, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, fmt);
    int n = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    if (n < 0) {
        out->failed = true;
        return;
    }
    nd_explain_clean(text);
    size_t column = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (column > 0 && column + 1 + strlen(word) > width) {
            nd_strbuf_puts(out, "\n");
            column = 0;
            indent += indent < 4 ? 2 : 0;
        }
        nd_strbuf_printf(out, "%*s%s", column == 0 ? (int)indent : 1, "", word);
        column += (column == 0 ? indent : 1) + strlen(word);
    }
    nd_strbuf_puts(out, "\n");
    free(text);
}

/* The sum over the layers whose effect was measured. */
static double all_effects(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    double sum = 0;
    for (size_t s = 0; s < e->n_steps; s++)
        sum += isnan(device->layers[s].effect) ? 0 : device->layers[s].effect;
    return sum;
}

double nd_explain_effect_share(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t step)
{
    double sum = all_effects(e, device);
    return sum > 0 ? device->layers[step].effect / sum : (double)NAN;
}

size_t nd_explain_greatest(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    size_t greatest = SIZE_MAX;
    for (size_t s = 0; s < e->n_steps; s++)
        if (device->layers[s].effect >
            (greatest == SIZE_MAX ? 0 : device->layers[greatest].effect)) /* not NaN */
            greatest = s;
    return greatest;
}

void nd_explain_say_evidence(const struct nd_explained_layer *layer, struct nd_strbuf *out)
{
    const struct nd_explained_fault *fault = &layer->fault;
    bool is_fault = layer->state == ND_LAYER_FAULTY;
    const char *certainty = is_fault ? nd_certainty_name(layer->certainty) : NULL;
    nd_strbuf_printf(out, "%s%s%s", certainty != NULL ? certainty : "", certainty != NULL ? ": " : "",
                     layer->evidence);
    if (is_fault && fault->rival != NULL)
        nd_strbuf_printf(out, "; '%s' explains the values as well", fault->rival);
    else if (is_fault && fault->kind == NULL)
        nd_strbuf_puts(out, "; which fault it is, is not known");
    else if (layer->certainty == ND_CERTAINTY_UNKNOWN)
        nd_strbuf_puts(out, "; no known fault predicts these values");
    else if (layer->certainty == ND_CERTAINTY_GUESS && fault->kind != NULL)
        nd_strbuf_printf(out, "; a guess, not proven: %s", fault->text);
}
