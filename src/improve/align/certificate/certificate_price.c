/* The price of a certificate, measured again with the models and inputs that it names; and how refusals are
 * noted. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "improve/align/certificate/certificate_check.h"
#include "core/memory.h"

/* Of a level in decibels that is measured again, since log10 of another C library may differ in its last bit.
 * Chosen. */
static const double slack_db = 1e-9;

const char *nd_certificate_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

const json_t *nd_certificate_member(const struct nd_certificate_checker *c, const char *key)
{
    return json_object_get(c->certificate->root, key);
}

enum nd_status nd_certificate_refuse(struct nd_certificate_checker *c, struct nd_error *err, const char *what,
                                     const char *fmt, ...)
{
    struct nd_certificate_check *check = c->check;
    char text[1024];
    va_list arguments;
    if (!nd_grow((void **)&check->refusals, &c->refusals_capacity, check->n_refusals + 1,
                 sizeof *check->refusals))
        return nd_fail_memory(err);
    va_start(arguments, fmt);
    vsnprintf(text, sizeof text, fmt, arguments);
    va_end(arguments);
    struct nd_certificate_refusal *refusal = &check->refusals[check->n_refusals++];
    *refusal = (struct nd_certificate_refusal){what, nd_strdup(text)};
    return refusal->text != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the price ---- */

static enum nd_status check_price_file(const struct nd_certificate_checker *c, const char *key,
                                       const struct nd_model *model, struct nd_error *err)
{
    const json_t *file = json_object_get(nd_certificate_member(c, "files"), key);
    if (!json_is_object(file) || model == NULL) {
        if (!json_is_object(file) && model == NULL)
            return ND_OK;
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       model == NULL ? "the price was measured against a float model, '%s': give it, too"
                                     : "the price was measured without a float model%s",
                       model == NULL ? nd_certificate_text(file, "name") : "");
    }
    if (strcmp(nd_certificate_text(file, "sha256"), nd_model_sha256(model)) != 0)
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, nd_model_path(model),
                       "'%s' is a different file than '%s', with which the price was measured",
                       nd_model_path(model), nd_certificate_text(file, "name"));
    return ND_OK;
}

static enum nd_status check_price_probes(const struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *probes = nd_certificate_member(c, "probes");
    size_t n = json_array_size(probes);
    if (n != c->options->n_probes)
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       "the price was measured with %zu probes, and %zu are given; the first was '%s'", n,
                       c->options->n_probes, nd_certificate_text(json_array_get(probes, 0), "source"));
    for (size_t i = 0; i < n; i++) {
        char digits[ND_CERTIFICATE_DIGEST_BYTES];
        const json_t *probe = json_array_get(probes, i);
        enum nd_status status = nd_certificate_probe_digest(c->options->probes[i], digits, err);
        if (status != ND_OK)
            return status;
        if (strcmp(digits, nd_certificate_text(probe, "digest")) != 0)
            return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->options->probes[i]->source,
                           "'%s' has other values than '%s', with which the price was measured",
                           c->options->probes[i]->source, nd_certificate_text(probe, "source"));
    }
    return ND_OK;
}

static bool is_level(const json_t *value, double level)
{
    if (json_is_string(value)) /* infinite */
        return isinf(level) && (level > 0) == (*json_string_value(value) != '-');
    if (!json_is_number(value))
        return isnan(level);
    double stated = json_number_value(value);
    return fabs(stated - level) <= slack_db * fmax(1, fabs(stated));
}

static bool is_price(const struct nd_alignment *result, const json_t *price)
{
    const json_t *outputs = json_object_get(price, "outputs"), *answers = json_object_get(price, "answers"),
                 *before = json_object_get(answers, "before"), *after = json_object_get(answers, "after");
    bool is_same = json_array_size(outputs) == result->n_outputs;
    for (size_t i = 0; i < result->n_outputs && is_same; i++) {
        const json_t *output = json_array_get(outputs, i);
        is_same = is_level(json_object_get(output, "sqnr_before_db"), result->outputs[i].sqnr_before_db) &&
                  is_level(json_object_get(output, "sqnr_after_db"), result->outputs[i].sqnr_after_db);
    }
    return is_same && (size_t)json_integer_value(json_object_get(answers, "labelled")) == result->n_labelled &&
           (size_t)json_integer_value(json_object_get(before, "right")) == result->n_right_before &&
           (size_t)json_integer_value(json_object_get(after, "right")) == result->n_right_after;
}

enum nd_status nd_certificate_check_price(struct nd_certificate_checker *c, struct nd_error *err)
{
    const json_t *price = nd_certificate_member(c, "price");
    if (!json_is_object(price))
        return nd_fail(err, ND_E_CERTIFICATE_INPUT, c->certificate->path,
                       "the certificate states no price that could be measured again");
    enum nd_status status = check_price_file(c, "model", c->options->model, err);
    if (status == ND_OK)
        status = check_price_file(c, "float", c->options->float_model, err);
    if (status == ND_OK)
        status = check_price_probes(c, err);
    c->job.original = c->job.model = c->options->model;
    c->align_options.n_samples = (size_t)json_integer_value(json_object_get(price, "samples"));
    if (status == ND_OK)
        status = nd_align_price(&c->job, NULL, err);
    c->check->is_price_checked = status == ND_OK;
    if (status == ND_OK && !is_price(c->job.result, price))
        status = nd_certificate_refuse(c, err, "price", "the price is another one: '%s' has %.2f dB now",
                                       c->job.result->outputs[0].name, c->job.result->outputs[0].sqnr_after_db);
    return status;
}
