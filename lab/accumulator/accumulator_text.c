/* What was found, in words. */
#include <stdio.h>
#include <string.h>

#include "lab/accumulator/accumulator.h"

enum { TREE_BYTES = 512, PROPERTY_BYTES = ND_ACCUMULATOR_PROPERTY_BYTES, N_PROPERTIES = 6 };

static const char *type_name(enum nd_sum_type type)
{
    static const char *const names[] = {
        [ND_SUM_EXACT] = "exact",
        [ND_SUM_F32] = "float32",
        [ND_SUM_F16] = "float16",
        [ND_SUM_BF16] = "bfloat16",
        [ND_SUM_TF32] = "10 fraction bits, wide exponent",
        [ND_SUM_13BITS] = "13 fraction bits, wide exponent",
    };
    return names[type];
}

static void say_order(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    char name[ND_SUM_ORDER_NAME_BYTES];
    snprintf(buf, PROPERTY_BYTES, "%s",
             item->sum == ND_SUM_EXACT ? "any (exact sums have none)" : nd_sum_order_name(&item->order, name));
}

static void say_sum(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    char aligned[40] = "";
    if (item->extra_bits >= 0)
        snprintf(aligned, sizeof aligned, ", aligned with %d more", item->extra_bits);
    if (item->sum == ND_SUM_EXACT)
        snprintf(buf, PROPERTY_BYTES, "exact");
    else
        snprintf(buf, PROPERTY_BYTES, "%s, %s%s", type_name(item->sum), nd_rounding_name(item->rounding),
                 aligned);
}

static void say_product(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    snprintf(buf, PROPERTY_BYTES, "%s",
             item->product != ND_SUM_EXACT ? type_name(item->product)
             : item->is_from_zero          ? "not rounded (fused), but the first of a sequence"
                                           : "not rounded (fused)");
}

static void say_flushing(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    bool is_any = item->is_flushing_inputs || item->is_flushing_sums || item->is_flushing_output;
    snprintf(buf, PROPERTY_BYTES, is_any ? "zero:%s%s%s" : "kept", item->is_flushing_inputs ? " inputs" : "",
             item->is_flushing_sums ? " sums" : "", item->is_flushing_output ? " output" : "");
}

static void say_overflow(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    bool is_half = item->output == ND_SUM_F16 || item->sum == ND_SUM_F16 || item->product == ND_SUM_F16;
    snprintf(buf, PROPERTY_BYTES, "%s",
             !is_half                              ? "none"
             : item->overflow == ND_SUM_TO_LARGEST ? "to 65504"
                                                   : "to infinity");
}

static void say_output(const struct nd_accumulator *item, char buf[PROPERTY_BYTES])
{
    snprintf(buf, PROPERTY_BYTES, "%s, %s", type_name(item->output), nd_rounding_name(item->output_rounding));
}

static const struct nd_accumulator_property_of properties[N_PROPERTIES] = {
    {"order", "order", say_order},          {"running sum", "running_sum", say_sum},
    {"products", "products", say_product},  {"subnormals", "subnormals", say_flushing},
    {"overflow", "overflow", say_overflow}, {"output", "output", say_output},
};

const struct nd_accumulator_property_of *nd_accumulator_properties(size_t *n)
{
    *n = N_PROPERTIES;
    return properties;
}

/* Every value that the set has, each once. */
static void write_property(const struct nd_accumulator_findings *findings, size_t property,
                           struct nd_strbuf *out)
{
    enum { MOST = 8 };
    char said[MOST][PROPERTY_BYTES], text[PROPERTY_BYTES];
    size_t n_said = 0;
    nd_strbuf_printf(out, "%s: ", properties[property].label);
    for (size_t i = 0; i < findings->n; i++) {
        bool is_said = false;
        properties[property].say(&findings->items[i], text);
        for (size_t k = 0; k < n_said && !is_said; k++)
            is_said = strcmp(said[k], text) == 0;
        if (is_said)
            continue;
        if (n_said == MOST) {
            nd_strbuf_puts(out, " or others");
            break;
        }
        nd_strbuf_printf(out, "%s%s", n_said > 0 ? " or " : "", text);
        memcpy(said[n_said++], text, sizeof text);
    }
    nd_strbuf_puts(out, "\n");
}

static void write_readings(const struct nd_accumulator_readings *readings, struct nd_strbuf *out)
{
    if (readings->has_tree) {
        char text[TREE_BYTES];
        nd_sum_tree_format(&readings->tree, text, sizeof text);
        nd_strbuf_printf(out, "tree of additions: %s\n", text);
    } else if (readings->exact_block > 0) {
        nd_strbuf_printf(out, "tree of additions: exact within blocks of %d neighbours\n",
                         readings->exact_block);
    } else {
        nd_strbuf_printf(out, "tree of additions: none fits, %zu of 496 pairs were read\n",
                         readings->n_pairs_read);
    }
    if (readings->min_width == readings->max_width)
        nd_strbuf_printf(out, "fraction bits that survive: %d%s\n", readings->min_width,
                         readings->min_width >= 26 ? " or more" : "");
    else
        nd_strbuf_printf(out, "fraction bits that survive: %d, up to %d where the large terms meet first\n",
                         readings->min_width, readings->max_width);
    if (readings->is_one_up)
        nd_strbuf_puts(out,
                       "conversion: half precision to float32 adds one unit in the last place of float32\n");
    nd_strbuf_printf(out, "sums beyond the range: of %zu, %zu whole, %zu infinite, %zu NaN, %zu at 65504\n",
                     readings->n_range, readings->n_wide, readings->n_infinite, readings->n_nan,
                     readings->n_largest);
}

void nd_accumulator_findings_write(const struct nd_accumulator_findings *findings, struct nd_strbuf *out)
{
    char name[ND_ACCUMULATOR_NAME_BYTES];
    write_readings(&findings->readings, out);
    nd_strbuf_printf(out, "not excluded: %zu of %zu accumulators by %zu outputs\n", findings->n,
                     findings->n_hypotheses, findings->n_outputs);
    if (findings->n == 0) {
        nd_strbuf_printf(out, "nearest, not claimed: %s, %zu of %zu outputs\n",
                         nd_accumulator_name(&findings->nearest, name), findings->n_nearest,
                         findings->n_outputs);
        return;
    }
    for (size_t p = 0; p < N_PROPERTIES; p++)
        write_property(findings, p, out);
    if (nd_accumulator_is_confirmed(findings))
        nd_strbuf_printf(out, "confirmed on %llu random vectors\n", (unsigned long long)findings->n_confirmed);
    else
        nd_strbuf_printf(out, "not confirmed: %llu random vectors agree, %llu do not, %d are needed\n",
                         (unsigned long long)findings->n_confirmed, (unsigned long long)findings->n_failed,
                         ND_CONFIRMING_VECTORS);
}
