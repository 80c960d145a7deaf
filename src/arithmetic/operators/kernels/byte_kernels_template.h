/* Quantised values as bytes, and numbers made of them: a part of gemm_kernels_template.c. */

static void widen(const uint8_t *x, int zero, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int16_t)(x[i] - zero);
}

static void to_floats(const uint8_t *x, int zero, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(x[i] - zero);
}

static bool narrow(const double *x, double low, size_t n, uint8_t *out)
{
    int32_t n_broken = 0;
    for (size_t i = 0; i < n; i++) {
        double qvalue = x[i] - low;
        int32_t whole = (int32_t)(qvalue >= 0 && qvalue <= UINT8_MAX ? qvalue : 0);
        n_broken |= (double)whole != qvalue;
        out[i] = (uint8_t)whole;
    }
    return n_broken == 0;
}

static void spread(const uint8_t *x, double low, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] + low;
}

static void look_up(const uint8_t *table, const uint8_t *x, size_t n, uint8_t *restrict out)
{
    size_t i = 0;
#if defined __AVX512VBMI__
    const __m512i first = _mm512_loadu_si512(table), second = _mm512_loadu_si512(table + 64),
                  third = _mm512_loadu_si512(table + 128), last = _mm512_loadu_si512(table + 192);
    for (; i + 64 <= n; i += 64) {
        __m512i places = _mm512_loadu_si512(x + i); /* their lowest 7 bits choose, and the highest one of two */
        __m512i low = _mm512_permutex2var_epi8(first, places, second);
        __m512i high = _mm512_permutex2var_epi8(third, places, last);
        _mm512_storeu_si512(out + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high));
    }
#endif
    for (; i < n; i++)
        out[i] = table[x[i]];
}
