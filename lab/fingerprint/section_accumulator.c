/* Sums of half precision products, and how wide sums of integer products are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lab/accumulator/on_device.h"
#include "lab/fingerprint/long_sums.h"
#include "lab/fingerprint/section.h"

/* More are not listed; the text has all of their properties. */
enum { MAX_NAMES = 32 };

/* A property that those which are left do not share. */
static bool is_open(const struct nd_accumulator_findings *found, nd_accumulator_property *say)
{
    char first[ND_ACCUMULATOR_PROPERTY_BYTES], other[ND_ACCUMULATOR_PROPERTY_BYTES];
    say(&found->items[0], first);
    for (size_t i = 1; i < found->n; i++) {
        say(&found->items[i], other);
        if (strcmp(first, other) != 0)
            return true;
    }
    return false;
}

/* The terms whose sum loses nothing: 0 where not even neighbours do. *is_all: as far as was asked. */
static size_t whole_terms(const struct nd_accumulator_fingerprint *f, bool *is_all)
{
    size_t n = (size_t)f->sheets[ND_ACCUMULATOR_MATMUL].found.readings.exact_block;
    *is_all = n == ND_BATTERY_TERMS;
    for (size_t i = 0; i < f->n_long; i++) {
        const struct nd_accumulator_long *l = &f->longer[i];
        bool is_asked = !l->asked.has_failed && l->asked.is_on_npu;
        if (is_asked && l->n_whole == l->n)
            n = l->n_terms;
        *is_all = *is_all && (!is_asked || l->n_whole == l->n);
    }
    return n;
}

/* What all that are left have in common. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_accumulator_findings *found)
{
    char said[ND_ACCUMULATOR_PROPERTY_BYTES];
    size_t n;
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; i < n; i++)
        if (!is_open(found, p[i].say)) {
            p[i].say(&found->items[0], said);
            nd_tell_text(e, out, p[i].key, said);
        }
    if (found->readings.is_one_up)
        nd_tell_text(e, out, "conversion_to_float32", "one unit of float32 too large");
}

static void describe_long(struct nd_experiment *e, json_t *out, const struct nd_accumulator_fingerprint *f)
{
    bool is_all;
    size_t n_terms = whole_terms(f, &is_all);
    if (n_terms > 0)
        nd_tell_int(e, out, is_all ? "terms_added_exactly_at_least" : "terms_added_exactly", (int64_t)n_terms);
}

static void say_long(const struct nd_accumulator_fingerprint *f, struct nd_strbuf *text)
{
    for (size_t i = 0; i < f->n_long; i++) {
        const struct nd_accumulator_long *l = &f->longer[i];
        if (l->asked.has_failed)
            nd_strbuf_printf(text, "sums of %zu terms: the device failed: %s\n", l->n_terms,
                             l->asked.failure.failure.message);
        else if (!l->asked.is_on_npu)
            nd_strbuf_printf(text, "sums of %zu terms: not on the NPU\n", l->n_terms);
        else
            nd_strbuf_printf(text, "sums of %zu terms: nothing is lost in %zu of %zu\n", l->n_terms, l->n_whole,
                             l->n);
    }
}

/* All lines; the text ends with it. */
static void tell_lines(struct nd_experiment *e, json_t *entry, struct nd_strbuf *text)
{
    if (text->failed)
        nd_experiment_check(e, nd_fail_memory(e->err));
    nd_tell_listed(e, entry, "text", NULL);
    for (const char *line = text->text; line != NULL && *line != '\0';) {
        size_t n = strcspn(line, "\n");
        nd_tell_line(e, entry, "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    nd_strbuf_deinit(text);
}

static void tell_undecided(struct nd_experiment *e, const struct nd_accumulator_fingerprint *f,
                           enum nd_accumulator_form form, json_t *entry)
{
    const struct nd_accumulator_findings *found = &f->sheets[form].found;
    char probe[96] = "none known: what is left agreed on all random products";
    bool is_all;
    size_t n;
    if (found->n == 0) {
        nd_tell_undecided(e, entry, "the accumulator",
                          found->readings.has_tree ? "types and roundings that this version does not know"
                                                   : "orders that this version does not know");
        return;
    }
    /* The adder of all terms: what rounds once does not tell of what it keeps between two of them. */
    if (found->readings.exact_block == ND_BATTERY_TERMS) {
        snprintf(probe, sizeof probe, "sums of more than %zu terms, of which something is lost",
                 form == ND_ACCUMULATOR_MATMUL ? whole_terms(f, &is_all) : (size_t)ND_BATTERY_TERMS);
        if (found->n > 1)
            nd_tell_undecided(e, entry, "which program: they gave the same sums everywhere", probe);
        return;
    }
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; i < n; i++)
        if (is_open(found, p[i].say))
            nd_tell_undecided(e, entry, p[i].label, probe);
}

static void tell_text(struct nd_experiment *e, const struct nd_accumulator_fingerprint *f,
                      enum nd_accumulator_form form, json_t *entry)
{
    struct nd_strbuf text = {0};
    if (f->sheets[form].is_as_matmul)
        nd_strbuf_puts(&text, "the accumulator of MatMul by a constant: no random product differs\n");
    else
        nd_accumulator_findings_write(&f->sheets[form].found, &text);
    if (form == ND_ACCUMULATOR_MATMUL)
        say_long(f, &text);
    tell_lines(e, entry, &text);
}

static void tell(struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form, json_t *entries)
{
    char buf[ND_ACCUMULATOR_NAME_BYTES];
    struct nd_accumulator_sheet *sheet = &f->sheets[form];
    const struct nd_accumulator_findings *found = &sheet->found;
    struct nd_experiment *e = &sheet->asked;
    bool is_known = nd_accumulator_is_confirmed(found);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    if (!e->is_on_npu) { /* what ran elsewhere says nothing of this device */
        nd_tell_line(e, entry, "a model of floats: a device that has none leaves it to the CPU");
        return;
    }
    tell_text(e, f, form, entry);
    nd_tell_counts(e, entry,
                   ND_COUNTS({"outputs", sheet->is_as_matmul ? 0 : found->n_outputs},
                             {"accumulators", found->n_hypotheses}, {"left", found->n},
                             {"fresh", found->n_confirmed + found->n_failed}, {"right", found->n_confirmed}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n && i < MAX_NAMES; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_accumulator_name(&found->items[i], buf));
    tell_undecided(e, f, form, entry);
    if (!sheet->is_as_matmul) {
        nd_experiment_add_digest(e, sheet->answers);
        nd_tell_text(e, entry, "answers", e->answers.text);
    }
    if (found->n == 0)
        nd_tell_nearest(e, entry, nd_accumulator_name(&found->nearest, buf),
                        found->n_outputs - found->n_nearest);
    json_t *parameters = is_known ? nd_tell_object(e, entry, "parameters") : NULL;
    if (is_known)
        describe(e, parameters, found);
    if (is_known && form == ND_ACCUMULATOR_MATMUL)
        describe_long(e, parameters, f);
}

/* ---- integers ---- */

/* NULL: neither, or not known. */
static const char *behaviour_of(const struct nd_long_sums *s)
{
    if (s->n_beyond == 0 || s->n_wrapped == s->n_saturated)
        return NULL;
    return s->n_wrapped == s->n_beyond ? "wraps" : s->n_saturated == s->n_beyond ? "saturates" : NULL;
}

static void say_width(const struct nd_experiment *e, const struct nd_long_sums *s, struct nd_strbuf *out)
{
    int n_bits = nd_long_sums_bits(s);
    const char *behaviour = behaviour_of(s);
    if (s->wrong == 0)
        nd_strbuf_printf(out, "no saturation or wrapping up to %d bits\n", nd_long_sums_excluded_bits(s));
    else if (n_bits > 0)
        nd_strbuf_printf(out, "an accumulator of %d bits that %s\n", n_bits,
                         behaviour != NULL ? behaviour : "neither wraps nor saturates as a whole");
    else
        nd_strbuf_printf(out, "an accumulator of more than %d bits\n", nd_long_sums_excluded_bits(s));
    nd_strbuf_printf(out, "sums up to %" PRId64 " come out", s->right);
    if (s->wrong > 0)
        nd_strbuf_printf(out, ", from %" PRId64 " on they do not: of %zu, %zu wrapped, %zu saturated", s->wrong,
                         s->n_beyond, s->n_wrapped, s->n_saturated);
    nd_strbuf_puts(out, "\n");
    if (s->has_pairs)
        nd_strbuf_printf(out, "pairs of 255 x 127: %s\n",
                         s->n_pairs_wrong == 0 ? "no saturation" : "they saturate at 16 bits or lose more");
    if (s->n_terms_failed > 0)
        nd_strbuf_printf(out, "sums of %zu terms: the device failed: %s\n", s->n_terms_failed,
                         e->failure.failure.message);
}

static void describe_integers(struct nd_experiment *e, json_t *out, const struct nd_long_sums *s)
{
    int n_bits = nd_long_sums_bits(s);
    const char *behaviour = behaviour_of(s);
    nd_tell_int(e, out, "bits_more_than", nd_long_sums_excluded_bits(s));
    if (n_bits > 0)
        nd_tell_int(e, out, "bits", n_bits);
    if (behaviour != NULL)
        nd_tell_text(e, out, "beyond", behaviour);
    if (s->wrong > 0)
        nd_tell_int(e, out, "wrong_from", s->wrong);
    if (s->has_pairs)
        nd_tell_bool(e, out, "pairs_saturate", s->n_pairs_wrong > 0);
}

static void tell_integers(struct nd_experiment *e, const struct nd_long_sums *s, json_t *entries)
{
    struct nd_strbuf text = {0};
    json_t *entry = nd_experiment_tell_verdict(e, entries, e->is_on_npu ? "bounded" : "not on the NPU");
    if (entry == NULL || !e->is_on_npu)
        return;
    say_width(e, s, &text);
    tell_lines(e, entry, &text);
    nd_tell_counts(e, entry,
                   ND_COUNTS({"models", e->n_asked}, {"values", s->n_qvalues}, {"wrong", s->n_wrong},
                             {"pairs", s->n_pairs}, {"pairs_wrong", s->n_pairs_wrong}));
    describe_integers(e, nd_tell_object(e, entry, "parameters"), s);
    /* What is claimed, and not the quantised values, which are those of the requantisation, too. */
    const int64_t claim[] = {s->right,
                             s->wrong,
                             (int64_t)s->n_wrapped,
                             (int64_t)s->n_saturated,
                             (int64_t)s->n_cancelled_wrong,
                             (int64_t)s->n_pairs_wrong};
    nd_experiment_add_digest(e, nd_digest_bytes(claim, sizeof claim));
    nd_tell_text(e, entry, "answers", e->answers.text);
    if (s->wrong == 0)
        nd_tell_undecided(e, entry, "the width of the accumulator", "longer sums");
}

enum nd_status nd_section_accumulator_f16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_accumulator_fingerprint f;
    enum nd_status status = nd_accumulator_fingerprint_take(bench, ND_CONFIRMING_VECTORS, &f, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; status == ND_OK && i < f.n_sheets; i++) {
        tell(&f, (enum nd_accumulator_form)i, entries);
        status = f.sheets[i].asked.status;
    }
    nd_accumulator_fingerprint_deinit(&f);
    if (status != ND_OK)
        return status;
    struct nd_experiment e = nd_experiment_begin(bench, "MatMul", "u8 x u8, long sums", err);
    struct nd_long_sums sums;
    nd_long_sums_take(&e, &sums);
    tell_integers(&e, &sums, entries);
    return nd_experiment_end(&e);
}
