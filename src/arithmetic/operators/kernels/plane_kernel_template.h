/* Convolution of one plane, of elements of one type: who includes this defines ELEMENT, its TAPS
 * (gemm_kernels.h), and NAMED, which names what is made. */

typedef ELEMENT NAMED(plane_vector) __attribute__((vector_size(ND_VECTOR_BYTES)));
typedef ELEMENT NAMED(loose_plane)
    __attribute__((vector_size(ND_VECTOR_BYTES), aligned(sizeof(ELEMENT)), may_alias));

enum { NAMED(PLANE_LANES) = ND_VECTOR_BYTES / sizeof(ELEMENT) };

/* n_vectors registers of outputs that follow each other in rows with padding. */
static inline __attribute__((always_inline)) void NAMED(add_taps)(const struct TAPS *p, const ELEMENT *in,
                                                                  ELEMENT *out, size_t n_vectors)
{
    NAMED(plane_vector) sums[4];
    for (size_t v = 0; v < n_vectors; v++)
        sums[v] = (NAMED(plane_vector)){0};
    for (size_t t = 0; t < p->n_taps; t++) {
        NAMED(plane_vector) weight = p->weights[t] - (NAMED(plane_vector)){0};
        for (size_t v = 0; v < n_vectors; v++)
            sums[v] += weight *
                       *(const NAMED(loose_plane) *)(in + p->offsets[t] + (ptrdiff_t)(v * NAMED(PLANE_LANES)));
    }
    for (size_t v = 0; v < n_vectors; v++)
        *(NAMED(loose_plane) *)(out + v * NAMED(PLANE_LANES)) = sums[v];
}

/* All rows as one: where one ends, a few sums are made that nobody wants. */
static void NAMED(add_plane)(const struct TAPS *p)
{
    enum { LENGTH = 4 * NAMED(PLANE_LANES) };
    size_t n = (p->n_rows - 1) * p->in_row + p->n_columns;
    ELEMENT made[LENGTH];
    size_t row = 0, column = 0;
    for (size_t i = 0; i < n; i += LENGTH) {
        size_t m = n - i < LENGTH ? n - i : LENGTH;
        if (m > LENGTH / 2)
            NAMED(add_taps)(p, p->in + i, made, 4);
        else
            NAMED(add_taps)(p, p->in + i, made, 2);
        for (size_t k = 0; k < m;) {
            size_t left = p->in_row - column, end = k + left < m ? k + left : m;
            size_t wanted = column < p->n_columns ? p->n_columns - column : 0;
            wanted = wanted < end - k ? wanted : end - k;
            for (size_t w = 0; w < wanted; w++)
                p->out[row * p->n_columns + column + w] = (double)made[k + w];
            column += end - k;
            k = end;
            if (column == p->in_row) {
                column = 0;
                row++;
            }
        }
    }
}
