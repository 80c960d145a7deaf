/* How biases enter products of uint8 codes: what is said of it. */
#include "lab/fingerprint/bias.h"
#include "lab/fingerprint/section.h"

/* Of the first arithmetic, which stands for all that are left. */
static void describe(struct nd_experiment *e, json_t *out, const struct nd_bias *b)
{
    static const char *const rescales[] = {"as it is", "rescaled, half-even", "rescaled, to-zero",
                                           "rescaled, floor"};
    const struct nd_bias_arithmetic *p = &b->found.arithmetics[0];
    nd_tell_text(e, out, "other_scale", rescales[p->rescale]);
    nd_tell_text(e, out, "precision", p->is_f32 ? "float32" : "double");
    nd_tell_text(e, out, "rounding", p->is_whole ? nd_rounding_name(p->rounding) : "none");
    nd_tell_text(e, out, "zero_point", p->joins_zero ? "added before rounding" : "apart");
    if (p->common_bits > 0) {
        nd_tell_int(e, out, "common_bits", p->common_bits);
        nd_tell_rounding(e, out, "common_rounding", p->common_rounding);
    }
    if (b->is_per_channel) {
        nd_tell_text(e, out, "bias_scale", p->has_largest_bias_scale ? "the greatest" : "the channel's");
        nd_tell_text(e, out, "weight_scale", p->has_largest_weight_scale ? "the greatest" : "the channel's");
    }
}

#define FIELD(member) ND_FIELD(struct nd_bias_arithmetic, member)
static const struct nd_issue issues[] = {
    {"double or float32", "more columns with great biases", {FIELD(is_f32)}},
    {"the common step of all biases",
     "biases at ties of the steps, next to a great one",
     {FIELD(common_bits), FIELD(common_rounding), FIELD(has_reciprocal)}},
    {"whose scales are taken",
     "more uneven scales",
     {FIELD(rescale), FIELD(has_largest_bias_scale), FIELD(has_largest_weight_scale)}},
    {"how the shift is rounded",
     "biases whose shift, or zero points whose quotient, is a tie",
     {FIELD(is_whole), FIELD(rounding), FIELD(joins_zero)}},
    {NULL, NULL, {{0}}}};

static void tell(struct nd_experiment *e, const struct nd_bias *b, json_t *entries)
{
    enum { MAX_NAMES = 4 };
    char buf[ND_BIAS_NAME_BYTES];
    const struct nd_bias_findings *found = &b->found;
    bool is_known = nd_experiment_is_confirmed(e, found->n_arithmetics);
    json_t *entry = nd_experiment_tell(e, entries, is_known);
    if (entry == NULL)
        return;
    nd_tell_counts(e, entry,
                   ND_COUNTS({"values", b->n_qvalues}, {"settings", e->n_asked}, {"refused", e->n_refused},
                             {"not_on_npu", e->n_elsewhere}, {"columns", found->n_readings},
                             {"columns_wrong", found->n_wrong}, {"possible_left", found->n_arithmetics},
                             {"fresh", e->n_fresh}, {"right", e->n_right}));
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < found->n_arithmetics && i < MAX_NAMES; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_bias_name(&found->arithmetics[i], buf));
    if (found->n_arithmetics == 0)
        nd_tell_unknown(e, entry);
    else if (is_known)
        describe(e, nd_tell_object(e, entry, "parameters"), b);
    nd_tell_issues(e, entry, issues, found->arithmetics, found->n_arithmetics, sizeof *found->arithmetics);
}

/* Without an arithmetic for the sums nothing is said about what is added to them. */
static void tell_unknown(struct nd_experiment *e, json_t *entries)
{
    json_t *entry = nd_experiment_tell(e, entries, false);
    if (entry != NULL)
        nd_tell_undecided(e, entry, "the biases",
                          "known programs for sums and weights: sections linear-u8 and weights");
}

enum nd_status nd_section_bias(struct nd_bench *bench, json_t *entries, struct nd_error *err)
{
    static const char *const types[] = {"u8 x u8 + i32 -> u8", "u8 x i8 per channel + i32 -> u8"};
    struct nd_experiment of_weights = nd_experiment_begin(bench, "Conv", types[0], err);
    struct nd_weights weights;
    nd_weights_take(&of_weights, &weights);
    bool is_known = nd_weights_are_known(&of_weights, &weights);
    enum nd_status status = of_weights.status;
    for (int i = 0; status == ND_OK && i < 2; i++) {
        struct nd_experiment e = nd_experiment_begin(bench, "Conv", types[i], err);
        struct nd_bias bias = {.weights = &weights, .is_per_channel = i == 1};
        of_weights.types = types[i];
        if (is_known) {
            nd_bias_take(&e, &bias);
            tell(&e, &bias, entries);
        } else {
            tell_unknown(&of_weights, entries);
            e.status = of_weights.status;
        }
        status = nd_experiment_end(&e);
    }
    nd_experiment_end(&of_weights);
    return status;
}
