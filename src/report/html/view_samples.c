/* Accuracy with intervals, and the samples whose prediction changed: input, classes, and the values of the
 * outputs side by side. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/statistics/distributions.h"
#include "report/html/html.h"

static const double level = 0.95; /* chosen: that of the other intervals of npudiff */

/* ---- accuracy ---- */

static void put_interval(struct nd_page *page, double correct, double samples)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES], text[2 * ND_HTML_TEXT_BYTES + 8];
    if (!(samples > 0) || !(correct >= 0) || correct > samples) {
        nd_html_cell(page, "?");
        return;
    }
    double alpha = (1 - level) / 2;
    double low = nd_binomial_lower((uint64_t)correct, (uint64_t)samples, alpha);
    double high = nd_binomial_upper((uint64_t)correct, (uint64_t)samples, alpha);
    snprintf(text, sizeof text, "%s to %s", nd_html_percent(low, a), nd_html_percent(high, b));
    nd_html_cell_number(page, text, low);
}

static void put_number(struct nd_page *page, const json_t *object, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double value = nd_doc_number(object, key);
    nd_html_cell_number(page, isnan(value) ? "" : nd_html_count(value, buf), value);
}

static void put_accuracy_row(struct nd_page *page, const struct nd_page_part *part, const json_t *row, size_t g)
{
    char buf[ND_HTML_TEXT_BYTES];
    size_t device = part->groups[g].device;
    const json_t *one = json_array_get(nd_doc_get(row, "devices"), device);
    const json_t *pair = device > 0 ? json_array_get(nd_doc_get(row, "pairs"), device - 1) : NULL;
    double p = nd_doc_number(pair, "p_value"), accuracy = nd_doc_number(one, "accuracy");
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", part->groups[g].label);
    put_number(page, one, "samples");
    if (nd_doc_is(row, "labels")) {
        put_number(page, one, "correct");
        nd_html_cell_number(page, nd_html_percent(accuracy, buf), accuracy);
        put_interval(page, nd_doc_number(one, "correct"), nd_doc_number(one, "samples"));
        put_number(page, pair, "right_to_wrong");
        put_number(page, pair, "wrong_to_right");
        put_number(page, pair, "wrong_to_wrong");
        nd_html_cell_number(page, isnan(p) ? "" : nd_html_real(p, buf), p);
    } else {
        double changed = nd_doc_number(pair, "samples") - nd_doc_number(pair, "agree");
        nd_html_cell_number(page, isnan(changed) ? "" : nd_html_count(changed, buf), changed);
    }
    nd_html_puts(page, "</tr>\n");
}

static void put_accuracy(struct nd_page *page, const struct nd_page_part *part, const json_t *row)
{
    nd_html_scroll(page, "Accuracy", false);
    nd_html_fill(page,
                 "<table class=\"sortable\"><caption>Top-1 predictions of output $n for the inputs of probe $n",
                 nd_doc_text(row, "tensor"), nd_doc_text(row, "probe"));
    nd_html_puts(page, nd_doc_is(row, "labels")
                           ? ". The intervals hold the accuracy with a probability of 95 %. p: how probable so "
                             "uneven a change is where the device is no better and no worse (McNemar's test)."
                           : ". The inputs have no labels: only changes can be counted.");
    if (nd_doc_text(row, "labels_missing_reason")[0] != '\0') {
        nd_html_fill(page, " Labels are not used: $t.", nd_doc_text(row, "labels_missing_reason"));
    }
    nd_html_puts(
        page, "</caption>\n<thead><tr><th scope=\"col\">Device</th><th scope=\"col\" class=\"n\">Samples</th>");
    nd_html_puts(page,
                 nd_doc_is(row, "labels")
                     ? "<th scope=\"col\" class=\"n\">Right</th><th scope=\"col\" class=\"n\">Accuracy</th><th "
                       "scope=\"col\" class=\"n\">95 % interval</th><th scope=\"col\" class=\"n\">Right to "
                       "wrong</th><th scope=\"col\" class=\"n\">Wrong to right</th><th scope=\"col\" "
                       "class=\"n\">Wrong to other wrong</th><th scope=\"col\" class=\"n\">p</th>"
                     : "<th scope=\"col\" class=\"n\">Predictions changed</th>");
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
    for (size_t g = 0; g < part->n_groups; g++)
        put_accuracy_row(page, part, row, g);
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* ---- changed samples ---- */

/* What all samples of a table have in common. */
struct sheet {
    const struct nd_page_part *part;
    const json_t *row;
    bool has_images, has_labels;
};

/* "" where there is no picture of the sample. */
static const char *find_image(const struct nd_page_part *part, const json_t *row, const json_t *sample)
{
    const json_t *images = nd_doc_get(part->documents[ND_PAGE_IMAGES], "images"), *image;
    size_t i, number = nd_doc_index(sample, "sample", SIZE_MAX);
    json_array_foreach(images, i, image) {
        if (nd_doc_index(image, "sample", SIZE_MAX) == number &&
            strcmp(nd_doc_text(image, "probe"), nd_doc_text(row, "probe")) == 0)
            return nd_doc_text(image, "png");
    }
    return "";
}

/* The class, and whether it is the label's. */
static void put_prediction(struct nd_page *page, const json_t *sample, size_t device)
{
    double label = nd_doc_number(sample, "label");
    double class = nd_doc_value(json_array_get(nd_doc_get(sample, "predictions"), device));
    double ref = nd_doc_value(json_array_get(nd_doc_get(sample, "predictions"), 0));
    const char *state = "plain";
    if (!isnan(label) && !isnan(class))
        state = class >= label && class <= label ? "right" : "wrong";
    nd_html_printf(page, "<td class=\"n %s%s\"", state, class < ref || class > ref ? " changed" : "");
    if (isnan(class) || class < 0)
        nd_html_puts(page, ">none");
    else
        nd_html_printf(page, " data-v=\"%.0f\">%.0f", class, class);
    if (strcmp(state, "plain") != 0)
        nd_html_printf(page, " <small>%s</small>", state);
    nd_html_puts(page, "</td>");
}

/* The outputs side by side: a row for each class of interest, a column for each group. */
static void put_values(struct nd_page *page, const struct nd_page_part *part, const json_t *sample)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *classes = nd_doc_get(sample, "classes"), *values = nd_doc_get(sample, "values"), *class;
    size_t i;
    nd_html_puts(
        page,
        "<td><details><summary>values</summary><table class=\"inner\"><thead><tr><th scope=\"col\">Class</th>");
    for (size_t g = 0; g < part->n_groups; g++) {
        nd_html_fill(page, "<th scope=\"col\">$n</th>", part->groups[g].label);
    }
    nd_html_puts(page, "</tr></thead><tbody>");
    json_array_foreach(classes, i, class) {
        nd_html_printf(page, "<tr><th scope=\"row\">%.0f</th>", nd_doc_value(class));
        for (size_t g = 0; g < part->n_groups; g++) {
            double value = nd_doc_value(json_array_get(json_array_get(values, part->groups[g].device), i));
            nd_html_cell_number(page, nd_html_real(value, buf), value);
        }
        nd_html_puts(page, "</tr>");
    }
    nd_html_puts(page, "</tbody></table></details></td>");
}

static void put_sample(struct nd_page *page, const struct sheet *sheet, const json_t *sample)
{
    const struct nd_page_part *part = sheet->part;
    double number = nd_doc_number(sample, "sample"), label = nd_doc_number(sample, "label");
    char buf[ND_HTML_TEXT_BYTES];
    nd_html_printf(page, "<tr><th scope=\"row\">%.0f</th>", number);
    if (sheet->has_images) {
        static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
        const char *image = find_image(sheet->part, sheet->row, sample);
        nd_html_puts(page, "<td>");
        if (image[0] != '\0' && strspn(image, base64) == strlen(image))
            nd_html_printf(page, "<img alt=\"input of sample %.0f\" src=\"data:image/png;base64,%s\">",
                           nd_doc_number(sample, "sample"), image);
        nd_html_puts(page, "</td>");
    }
    if (sheet->has_labels)
        nd_html_cell_number(page, nd_html_count(label, buf), label);
    for (size_t g = 0; g < part->n_groups; g++)
        put_prediction(page, sample, part->groups[g].device);
    put_values(page, part, sample);
    nd_html_puts(page, "</tr>\n");
}

static bool has_image(const struct nd_page_part *part, const json_t *row, const json_t *samples)
{
    const json_t *sample;
    size_t i;
    json_array_foreach(samples, i, sample) {
        if (find_image(part, row, sample)[0] != '\0')
            return true;
    }
    return false;
}

static void put_samples(struct nd_page *page, const struct nd_page_part *part, const json_t *row)
{
    char a[ND_HTML_TEXT_BYTES];
    const json_t *samples = nd_doc_get(row, "changed_samples"), *sample;
    double n = nd_doc_number(row, "n_changed_samples");
    const struct sheet sheet = {part, row, has_image(part, row, samples), nd_doc_is(row, "labels")};
    size_t i;
    if (!json_is_array(samples))
        return;
    if (!(n > 0)) {
        nd_html_puts(page, "<p>No prediction changed on any device.</p>\n");
        return;
    }
    nd_html_scroll(page, "Changed samples", true);
    nd_html_printf(page, "<table class=\"sortable samples\"><caption>Samples with a changed prediction: %s",
                   nd_html_count(n, a));
    if ((double)json_array_size(samples) < n)
        nd_html_printf(page, ", of which the first %zu are shown, those that became wrong first",
                       json_array_size(samples));
    nd_html_puts(page, ". A cell has the predicted class.</caption>\n<thead><tr><th scope=\"col\">Sample</th>");
    if (sheet.has_images)
        nd_html_puts(page, "<th scope=\"col\">Input</th>");
    if (sheet.has_labels)
        nd_html_puts(page, "<th scope=\"col\" class=\"n\">Label</th>");
    for (size_t g = 0; g < part->n_groups; g++) {
        nd_html_fill(page, "<th scope=\"col\" class=\"n\">$n</th>", part->groups[g].label);
    }
    nd_html_puts(page, "<th scope=\"col\">Outputs</th></tr></thead>\n<tbody>\n");
    json_array_foreach(samples, i, sample)
        put_sample(page, &sheet, sample);
    nd_html_puts(page, "</tbody></table></div>\n");
}

void nd_view_samples(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *rows = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "accuracy"), *row;
    size_t i, n = 0;
    nd_html_section(page, part, "samples", "Samples and accuracy");
    json_array_foreach(rows, i, row) {
        const json_t *device = json_array_get(nd_doc_get(row, "devices"), 0);
        if (nd_doc_text(row, "classes_by")[0] == '\0' || !(nd_doc_number(device, "samples") > 1))
            continue;
        put_accuracy(page, part, row);
        put_samples(page, part, row);
        n++;
    }
    if (n == 0)
        nd_html_absent(page,
                       "Accuracy and changed predictions are not in this report. They are when it is made of "
                       "captures with several inputs:",
                       "npudiff report REFERENCE.h5 TEST.h5 -o report.html");
    nd_html_section_end(page);
}
