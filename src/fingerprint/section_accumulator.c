/* Sums of half precision products, and how wide sums of integer products are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fingerprint/accumulator_device.h"
#include "fingerprint/long_sums.h"
#include "fingerprint/section.h"

static const char types_of_integers[] = "u8 x u8, long sums";

static const char *types_of(enum nd_accumulator_form form)
{
    return form == ND_ACCUMULATOR_MATMUL_OF_INPUTS ? "float x float, inputs" : "float x float";
}

/* More are not listed; the text has all of their properties. */
enum { MOST_NAMES = 32 };

static json_t *name_programs(const struct nd_accumulator_findings *found)
{
    char buf[ND_ACCUMULATOR_NAME_BYTES];
    json_t *names = json_array();
    for (size_t i = 0; names != NULL && i < found->n && i < MOST_NAMES; i++)
        json_array_append_new(names, json_string(nd_accumulator_name(&found->items[i], buf)));
    return names;
}

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
static json_t *describe(const struct nd_accumulator_findings *found)
{
    json_t *out = json_object();
    bool is_whole = out != NULL;
    char said[ND_ACCUMULATOR_PROPERTY_BYTES];
    size_t n;
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; is_whole && i < n; i++)
        if (!is_open(found, p[i].say)) {
            p[i].say(&found->items[0], said);
            is_whole = nd_section_set(out, p[i].key, json_string(said));
        }
    if (is_whole && found->readings.is_one_up)
        is_whole = nd_section_set(out, "conversion_to_float32", json_string("one unit of float32 too large"));
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static bool describe_long(const struct nd_accumulator_fingerprint *f, json_t *parameters)
{
    bool is_all;
    size_t n_terms = whole_terms(f, &is_all);
    return n_terms == 0 ||
           nd_section_set(parameters, is_all ? "terms_added_exactly_at_least" : "terms_added_exactly",
                          json_integer((json_int_t)n_terms));
}

static bool tell_long(const struct nd_accumulator_fingerprint *f, struct nd_strbuf *text)
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
    return !text->failed;
}

/* Lines of the text, as an array. */
static json_t *lines_of(const char *text)
{
    json_t *lines = json_array();
    while (lines != NULL && text != NULL && *text != '\0') {
        size_t n = strcspn(text, "\n");
        json_array_append_new(lines, json_stringn(text, n));
        text += n + (text[n] == '\n');
    }
    return lines;
}

static bool tell_undecided(const struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form,
                           json_t *entry)
{
    const struct nd_accumulator_findings *found = &f->sheets[form].found;
    char probe[96] = "none known: what is left agreed on all random products";
    bool is_all;
    size_t n;
    if (found->n == 0)
        return nd_section_undecided(entry, "the accumulator",
                                    found->readings.has_tree
                                        ? "types and roundings that this version does not know"
                                        : "orders that this version does not know");
    /* The adder of all terms: what rounds once does not tell of what it keeps between two of them. */
    if (found->readings.exact_block == ND_BATTERY_TERMS) {
        snprintf(probe, sizeof probe, "sums of more than %zu terms, of which something is lost",
                 form == ND_ACCUMULATOR_MATMUL ? whole_terms(f, &is_all) : (size_t)ND_BATTERY_TERMS);
        return found->n == 1 ||
               nd_section_undecided(entry, "which program: they gave the same sums everywhere", probe);
    }
    const struct nd_accumulator_property_of *p = nd_accumulator_properties(&n);
    for (size_t i = 0; i < n; i++)
        if (is_open(found, p[i].say) && !nd_section_undecided(entry, p[i].label, probe))
            return false;
    return true;
}

static bool set_answers(json_t *entry, struct nd_digest digest)
{
    char text[40];
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
    return nd_section_set(entry, "answers", json_string(text));
}

static bool set_evidence(json_t *entry, const struct nd_accumulator_sheet *sheet)
{
    const struct nd_accumulator_findings *found = &sheet->found;
    json_t *evidence = json_pack(
        "{s:I, s:I, s:I, s:I, s:I}", "outputs", (json_int_t)(sheet->is_as_matmul ? 0 : found->n_outputs),
        "accumulators", (json_int_t)found->n_hypotheses, "left", (json_int_t)found->n, "fresh",
        (json_int_t)(found->n_confirmed + found->n_failed), "right", (json_int_t)found->n_confirmed);
    return nd_section_set(entry, "evidence", evidence);
}

/* What ran elsewhere says nothing of this device. */
static bool tell_elsewhere(const struct nd_accumulator_asked *asked, enum nd_accumulator_form form,
                           json_t *entries)
{
    static const char text[] = "a model of floats: a device that has none leaves it to the CPU";
    json_t *entry = nd_section_entry(entries, nd_accumulator_form_operator(form), types_of(form),
                                     "not on the NPU", asked->provider);
    return entry != NULL && nd_section_set(entry, "text", json_pack("[s]", text));
}

static json_t *make_text(const struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form)
{
    struct nd_strbuf text = {0};
    json_t *lines = NULL;
    if (f->sheets[form].is_as_matmul)
        nd_strbuf_puts(&text, "the accumulator of MatMul by a constant: no random product differs\n");
    else
        nd_accumulator_findings_write(&f->sheets[form].found, &text);
    if (form != ND_ACCUMULATOR_MATMUL || tell_long(f, &text))
        lines = text.failed ? NULL : lines_of(text.text);
    nd_strbuf_deinit(&text);
    return lines;
}

static bool tell_nearest(const struct nd_accumulator_findings *found, json_t *entry)
{
    char buf[ND_ACCUMULATOR_NAME_BYTES];
    return nd_section_set(entry, "nearest", json_string(nd_accumulator_name(&found->nearest, buf))) &&
           nd_section_set(entry, "nearest_wrong",
                          json_integer((json_int_t)(found->n_outputs - found->n_nearest)));
}

static bool tell(const struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form, json_t *entries)
{
    const struct nd_accumulator_sheet *sheet = &f->sheets[form];
    bool is_known = nd_accumulator_is_confirmed(&sheet->found);
    json_t *entry = nd_section_entry(entries, nd_accumulator_form_operator(form), types_of(form),
                                     is_known ? "identified" : "not identified", sheet->asked.provider);
    if (entry == NULL || !nd_section_set(entry, "text", make_text(f, form)) || !set_evidence(entry, sheet) ||
        !nd_section_set(entry, "programs", name_programs(&sheet->found)) || !tell_undecided(f, form, entry))
        return false;
    if (!sheet->is_as_matmul && !set_answers(entry, sheet->answers))
        return false;
    if (sheet->found.n == 0)
        return tell_nearest(&sheet->found, entry);
    return !is_known ||
           (nd_section_set(entry, "parameters", describe(&sheet->found)) &&
            (form != ND_ACCUMULATOR_MATMUL || describe_long(f, json_object_get(entry, "parameters"))));
}

static enum nd_status tell_form(const struct nd_accumulator_fingerprint *f, enum nd_accumulator_form form,
                                json_t *entries, struct nd_error *err)
{
    const struct nd_accumulator_asked *asked = &f->sheets[form].asked;
    if (asked->has_failed)
        return nd_section_failed(entries, nd_accumulator_form_operator(form), types_of(form), &asked->failure,
                                 err);
    bool is_whole = asked->is_on_npu ? tell(f, form, entries) : tell_elsewhere(asked, form, entries);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* ---- integers ---- */

/* NULL: neither, or not known. */
static const char *behaviour_of(const struct nd_long_sums *s)
{
    if (s->n_beyond == 0 || s->n_wrapped == s->n_saturated)
        return NULL;
    return s->n_wrapped == s->n_beyond ? "wraps" : s->n_saturated == s->n_beyond ? "saturates" : NULL;
}

static void say_width(const struct nd_long_sums *s, struct nd_strbuf *out)
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
                         s->failure.failure.message);
}

static json_t *describe_integers(const struct nd_long_sums *s)
{
    int n_bits = nd_long_sums_bits(s);
    const char *behaviour = behaviour_of(s);
    json_t *out = json_pack("{s:I}", "bits_more_than", (json_int_t)nd_long_sums_excluded_bits(s));
    bool is_whole =
        out != NULL && (n_bits == 0 || nd_section_set(out, "bits", json_integer(n_bits))) &&
        (behaviour == NULL || nd_section_set(out, "beyond", json_string(behaviour))) &&
        (s->wrong == 0 || nd_section_set(out, "wrong_from", json_integer((json_int_t)s->wrong))) &&
        (!s->has_pairs || nd_section_set(out, "pairs_saturate", json_boolean(s->n_pairs_wrong > 0)));
    if (is_whole)
        return out;
    json_decref(out);
    return NULL;
}

static bool tell_integers(const struct nd_long_sums *s, json_t *entries)
{
    struct nd_strbuf text = {0};
    json_t *entry = nd_section_entry(entries, "MatMul", types_of_integers,
                                     s->is_on_npu ? "bounded" : "not on the NPU", s->provider);
    if (entry == NULL || !s->is_on_npu)
        return entry != NULL;
    say_width(s, &text);
    json_t *evidence = json_pack("{s:I, s:I, s:I, s:I, s:I}", "models", (json_int_t)s->n_models, "codes",
                                 (json_int_t)s->n_codes, "wrong", (json_int_t)s->n_wrong, "pairs",
                                 (json_int_t)s->n_pairs, "pairs_wrong", (json_int_t)s->n_pairs_wrong);
    /* What is claimed, and not the codes, which are those of the requantisation, too. */
    const int64_t claim[] = {s->right,
                             s->wrong,
                             (int64_t)s->n_wrapped,
                             (int64_t)s->n_saturated,
                             (int64_t)s->n_cancelled_wrong,
                             (int64_t)s->n_pairs_wrong};
    bool is_whole = nd_section_set(entry, "text", lines_of(text.text)) &&
                    nd_section_set(entry, "evidence", evidence) &&
                    nd_section_set(entry, "parameters", describe_integers(s)) &&
                    set_answers(entry, nd_digest_bytes(claim, sizeof claim));
    nd_strbuf_deinit(&text);
    if (!is_whole || s->wrong != 0)
        return is_whole;
    return nd_section_undecided(entry, "the width of the accumulator", "longer sums");
}

static enum nd_status take_integers(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_long_sums sums;
    enum nd_status status = nd_long_sums_take(bench, &sums, err);
    if (status != ND_OK)
        return status;
    if (sums.has_failed)
        status = nd_section_failed(entries, "MatMul", types_of_integers, &sums.failure, err);
    else if (!tell_integers(&sums, entries))
        status = nd_fail_memory(err);
    nd_long_sums_deinit(&sums);
    return status;
}

enum nd_status nd_section_accumulator_f16(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    struct nd_accumulator_fingerprint f;
    enum nd_status status = nd_accumulator_fingerprint_take(bench, ND_CONFIRMING_VECTORS, &f, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; status == ND_OK && i < f.n_sheets; i++)
        status = tell_form(&f, (enum nd_accumulator_form)i, entries, err);
    nd_accumulator_fingerprint_deinit(&f);
    return status == ND_OK ? take_integers(bench, entries, err) : status;
}
