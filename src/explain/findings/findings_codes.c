/* Codes as a capture labels them. Healthy devices differ from the reference by some steps, so whatever could be
 * that says nothing: only what is far from the reference counts. */
#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "explain/findings/findings_internal.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"

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

static double least_of(double a, double b)
{
    return b < a ? b : a;
}

static double greatest_of(double a, double b)
{
    return b > a ? b : a;
}

static void widen(struct nd_code_look *look, const double *ref, const double *codes, size_t n)
{
    double low, high, ref_low, ref_high;
    nd_gemm_kernels()->range(codes, n, &low, &high);
    nd_gemm_kernels()->range(ref, n, &ref_low, &ref_high);
    bool is_first = look->n == 0;
    look->low = is_first ? low : least_of(look->low, low);
    look->high = is_first ? high : greatest_of(look->high, high);
    look->ref_low = is_first ? ref_low : least_of(look->ref_low, ref_low);
    look->ref_high = is_first ? ref_high : greatest_of(look->ref_high, ref_high);
}

void nd_look_at_codes(struct nd_code_look *look, enum nd_dtype dtype, const double *ref, const double *codes,
                      size_t n)
{
    const struct nd_pairs pairs = {codes, ref, n};
    struct nd_code_ends ends;
    struct nd_ends_counted found;
    nd_code_range(dtype, &ends.low, &ends.high);
    ends.near = slack(ends.low, ends.high);
    /* Of an unsigned type the upper half is negative when read as signed, and the reverse. */
    bool is_type_signed = ends.low < 0;
    ends.least_signed = is_type_signed ? -HUGE_VAL : (ends.high - ends.low + 1) / 2;
    ends.most_signed = is_type_signed ? 0 : HUGE_VAL;
    nd_gemm_kernels()->count_ends(&ends, &pairs, &found);
    look->n_near += found.n_near;
    look->n_signed += found.n_signed;
    look->n_signed_near += found.n_signed_near;
    for (int end = 0; end < ND_N_ENDS; end++) {
        look->at_end[end] += found.at_end[end];
        look->ref_at_end[end] += found.ref_at_end[end];
        look->far[end] += found.far[end];
    }
    if (n > 0)
        widen(look, ref, codes, n);
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
