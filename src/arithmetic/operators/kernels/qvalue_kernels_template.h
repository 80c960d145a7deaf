/* Quantised values that were made against quantised values that were expected: a part of
 * gemm_kernels_template.c. */

static bool narrow_words(const double *x, double low, size_t n, uint16_t *out)
{
    int32_t n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double qvalue = x[i] - low;
        int32_t whole = (int32_t)(qvalue >= 0 && qvalue <= UINT16_MAX ? qvalue : 0);
        n_broken |= (double)whole != qvalue;
        out[i] = (uint16_t)whole;
    }
    return n_broken == 0;
}

static void spread_words(const uint16_t *x, double low, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] + low;
}

/* Sums of 32 bits for each block: 255^2 * 2^15 fits. */
static void compare_bytes(const uint8_t *a, const uint8_t *b, size_t n, struct nd_qvalue_differences *out)
{
    enum { BLOCK = 1 << 15 };
    *out = (struct nd_qvalue_differences){0};
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = n - first < BLOCK ? n : first + BLOCK;
        int32_t n_differing = 0, sum = 0, max = 0, energy = 0;
        for (size_t i = first; i < end; i++) {
            int32_t d = a[i] - b[i], size = d < 0 ? -d : d;
            n_differing += d != 0;
            sum += d;
            energy += d * d;
            max = size > max ? size : max;
        }
        out->n_differing += (uint64_t)n_differing;
        out->sum += sum;
        out->energy += (uint64_t)energy;
        out->max = (uint64_t)max > out->max ? (uint64_t)max : out->max;
    }
}

/* Squares need 32 bits, and their sums 64. */
static void compare_words(const uint16_t *a, const uint16_t *b, size_t n, struct nd_qvalue_differences *out)
{
    enum { BLOCK = 1 << 14 };
    *out = (struct nd_qvalue_differences){0};
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t end = n - first < BLOCK ? n : first + BLOCK;
        int32_t n_differing = 0, sum = 0;
        uint32_t max = 0;
        uint64_t energy = 0;
        for (size_t i = first; i < end; i++) {
            int32_t d = a[i] - b[i];
            uint32_t size = (uint32_t)(d < 0 ? -d : d);
            n_differing += d != 0;
            sum += d;
            energy += size * size;
            max = size > max ? size : max;
        }
        out->n_differing += (uint64_t)n_differing;
        out->sum += sum;
        out->energy += energy;
        out->max = max > out->max ? max : out->max;
    }
}

static bool pair_keys(const struct nd_pairs *pairs, double low, uint32_t *restrict keys)
{
    const double *values = pairs->x, *qvalues = pairs->y;
    int32_t n_broken = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        double x = values[i] + ND_KEY_LARGEST, y = qvalues[i] - low;
        int32_t row = (int32_t)(x >= 0 && x <= 2 * ND_KEY_LARGEST ? x : -1);
        int32_t column = (int32_t)(y >= 0 && y <= UINT8_MAX ? y : -1);
        n_broken |= ((double)row != x) | ((double)column != y);
        keys[i] = (uint32_t)(row * (UINT8_MAX + 1) + column);
    }
    return n_broken == 0;
}

static void compare_methods(const double *given, const double *made, const double *exact, size_t n,
                            struct nd_methods_compared *out)
{
    int64_t n_wrong = 0, n_apart = 0, n_as_made = 0, n_as_exact = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        double off = size_of(given[i] - made[i]);
        int64_t is_apart = made[i] != exact[i], bits = bits_of(off);
        n_wrong += off != 0;
        n_apart += is_apart;
        n_as_made += is_apart & (off == 0);
        n_as_exact += is_apart & (given[i] == exact[i]);
        bits = off >= 0 ? bits : 0;       /* not of NaN */
        most = bits > most ? bits : most; /* sizes are ordered as their bits are */
    }
    *out = (struct nd_methods_compared){(uint64_t)n_wrong, (uint64_t)n_apart, (uint64_t)n_as_made,
                                        (uint64_t)n_as_exact, 0};
    memcpy(&out->max, &most, sizeof most);
}

static void count_ends(const struct nd_qvalue_ends *ends, const struct nd_pairs *pairs,
                       struct nd_ends_counted *out)
{
    const struct nd_qvalue_ends e = *ends;
    const double *qvalues = pairs->x, *ref = pairs->y;
    int64_t n_near = 0, n_signed = 0, n_signed_near = 0, at_low = 0, at_high = 0, ref_low = 0, ref_high = 0;
    int64_t far_low = 0, far_high = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        int64_t is_near = size_of(qvalues[i] - ref[i]) <= e.near;
        int64_t is_signed = (qvalues[i] >= e.min_signed) & (qvalues[i] < e.max_signed);
        int64_t is_low = qvalues[i] == e.low, is_high = qvalues[i] == e.high;
        n_near += is_near;
        n_signed += is_signed;
        n_signed_near += is_signed & is_near;
        at_low += is_low;
        at_high += is_high;
        ref_low += ref[i] == e.low;
        ref_high += ref[i] == e.high;
        far_low += is_low & (is_near ^ 1);
        far_high += is_high & (is_near ^ 1);
    }
    *out = (struct nd_ends_counted){(uint64_t)n_near,
                                    (uint64_t)n_signed,
                                    (uint64_t)n_signed_near,
                                    {(uint64_t)at_low, (uint64_t)at_high},
                                    {(uint64_t)ref_low, (uint64_t)ref_high},
                                    {(uint64_t)far_low, (uint64_t)far_high}};
}

/* The whole number at or below x, 0 <= x < 2^51. */
static inline double whole_below(double x)
{
    double whole = nearest(x);
    return whole > x ? whole - 1 : whole;
}

/* Without a branch: a Relu cuts off as many as it lets through, in no order that a processor could guess. */
static size_t find_cases(const struct nd_case_limits *limits, const struct nd_pairs *pairs,
                         int32_t *restrict keys)
{
    const struct nd_case_limits l = *limits;
    const double *near = pairs->x, *given = pairs->y, inverse = 1 / l.n_cells;
    const double cut_off = 2 * l.n_cells * ND_CASE_OUTCOMES, in_doubt = cut_off + ND_CASE_OUTCOMES;
    int64_t n_wrong = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        double v = near[i], inside = v > -l.n_whole ? v : -l.n_whole;
        inside = inside < l.n_whole - 1 ? inside : l.n_whole - 1;
        double place = whole_below((inside + l.n_whole) * l.n_cells), above = whole_below(place * inverse);
        double whole = above - l.n_whole, cell = place - above * l.n_cells, qvalue = whole + l.zero;
        double outcome = given[i] - qvalue + 1;
        int64_t is_below = (v < l.cut_low) & (v > -l.largest), is_above = (v > l.cut_high) & (v < l.largest);
        int64_t is_one = (v > l.low) & (v < l.high) & (qvalue >= l.qvalue_low) & (qvalue < l.qvalue_high) &
                         (outcome >= 0) & (outcome < ND_CASE_OUTCOMES);
        int64_t is_half = (cell >= l.half_low) & (cell <= l.half_high);
        int64_t is_large = (whole >= l.large) | (whole <= -l.large);
        double key = ((whole < 0 ? l.n_cells : 0) + cell) * ND_CASE_OUTCOMES + whole_below(outcome);
        key = is_one & ~(is_half & is_large) ? key : in_doubt;
        keys[i] = (int32_t)(is_below | is_above ? cut_off : key);
        n_wrong += (is_below & (given[i] != l.end_qvalues[0])) | (is_above & (given[i] != l.end_qvalues[1]));
    }
    return (size_t)n_wrong;
}

static void find_range(const double *x, size_t n, double *low, double *high)
{
    enum { N = 16 };
    double least[N], most[N];
    size_t i = 0;
    for (size_t k = 0; k < N; k++)
        least[k] = most[k] = x[0];
    for (; i + N <= n; i += N)
        for (size_t k = 0; k < N; k++) {
            least[k] = x[i + k] < least[k] ? x[i + k] : least[k];
            most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
        }
    for (; i < n; i++) {
        least[0] = x[i] < least[0] ? x[i] : least[0];
        most[0] = x[i] > most[0] ? x[i] : most[0];
    }
    *low = *high = x[0];
    for (size_t k = 0; k < N; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
}
