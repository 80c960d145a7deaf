/* Codes as a capture labels them. Healthy devices differ from the reference by some steps, so whatever could be
 * that says nothing: only what is far from the reference counts. */
#include <math.h>

#include "eval/rounding.h"
#include "explain/findings/findings_internal.h"

/* Values. Chosen: fewer are no evidence. */
enum { MIN_CODES = 8 };

/* Saturation: the share of a tensor's values that lie at an end of the type while the reference is well inside,
 * and how many times as many as the reference has there. Chosen. With these and the next two, none of 18
 * captures without a fault has a finding: nine models of golden/models and golden/fallback on gen1 and gen3 of
 * the simulator (QAIRT 2.51.0, probe uniform:32:7, of ViT uniform:12:7). */
static const double least_share = 0.01, least_ratio = 5;
/* Wrong type: the share of a tensor's values that must be about the reference's when they are read as the
 * model's type. Chosen. */
static const double most_agree = 0.9;
/* LSB by which a healthy device may be off: at least the first, and a share of the type's range. Chosen. */
static const double least_slack = 3, slack_of_range = 1.0 / 64;

static double slack(double low, double high)
{
    return fmax(least_slack, floor((high - low) * slack_of_range));
}

void nd_look_at_codes(struct nd_code_look *look, enum nd_dtype dtype, const double *ref, const double *codes,
                      size_t n)
{
    double low, high;
    nd_code_range(dtype, &low, &high);
    double near = slack(low, high), sign_bit = (high - low + 1) / 2;
    for (size_t i = 0; i < n; i++) {
        bool is_near = fabs(codes[i] - ref[i]) <= near;
        /* Of an unsigned type the upper half is negative when read as signed, and the reverse. */
        bool is_signed = low < 0 ? codes[i] < 0 : codes[i] >= sign_bit;
        look->n_near += is_near;
        look->n_signed += is_signed;
        look->n_signed_near += is_signed && is_near;
        look->at_end[ND_LOW_END] += codes[i] == low;
        look->at_end[ND_HIGH_END] += codes[i] == high;
        look->ref_at_end[ND_LOW_END] += ref[i] == low;
        look->ref_at_end[ND_HIGH_END] += ref[i] == high;
        look->far[ND_LOW_END] += codes[i] == low && !is_near;
        look->far[ND_HIGH_END] += codes[i] == high && !is_near;
        bool is_first = look->n + i == 0;
        look->low = is_first ? codes[i] : fmin(look->low, codes[i]);
        look->high = is_first ? codes[i] : fmax(look->high, codes[i]);
        look->ref_low = is_first ? ref[i] : fmin(look->ref_low, ref[i]);
        look->ref_high = is_first ? ref[i] : fmax(look->ref_high, ref[i]);
    }
    look->n += n;
}

/* Where the reference is one code all over, agreement means little. */
bool nd_look_finds_wrong_type(const struct nd_code_look *look)
{
    return look->n >= MIN_CODES && look->ref_high > look->ref_low &&
           (double)look->n_near >= most_agree * (double)look->n &&
           (double)look->n_signed_near >= most_agree * (double)look->n_signed;
}

bool nd_look_finds_saturation(const struct nd_code_look *look, int end)
{
    return look->far[end] >= MIN_CODES && (double)look->far[end] >= least_share * (double)look->n &&
           (double)look->at_end[end] >= least_ratio * (double)look->ref_at_end[end];
}

/* A reference that itself stays within a few steps of one code may be that code on a healthy device. */
bool nd_look_finds_constant(const struct nd_code_look *look, enum nd_dtype dtype)
{
    double low, high;
    nd_code_range(dtype, &low, &high);
    return look->n >= MIN_CODES && look->low == look->high && look->ref_high - look->ref_low > slack(low, high);
}
