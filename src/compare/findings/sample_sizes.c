#include "compare/findings/sample_sizes.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/operators/array.h"

/* 20 dB, as a whole tensor is called wrong (predicates.c); and a gap of 20 dB to all others. Both chosen. */
static const double least_gross = 0.1, least_gap = 10;

/* A sample of more elements is read once, by the engine, and not a second time here: chosen, as
 * ND_OUTPUT_WHOLE. */
static const size_t most_elems = (size_t)1 << 20;

/* Bytes of each side that are read at once: a chunk has 256 KiB of small samples, and is inflated once. Chosen.
 */
static const size_t block_bytes = (size_t)4 << 20;

struct reader {
    const struct nd_matching *alignment;
    size_t edge, test, probe, n_elems, sample_bytes;
    size_t block;            /* samples that are read at once, 1 or more */
    unsigned char *bytes[2]; /* of a block */
    double *values[2];       /* [n_elems] of the reference and of the test */
    size_t n;                /* elements of which the reference is finite */
    double sum, squares;
};

/* n: at most a block. */
static enum nd_status read_block(struct reader *r, size_t first, size_t n, struct nd_error *err)
{
    const size_t captures[2] = {0, r->test};
    enum nd_status status = ND_OK;
    for (size_t k = 0; k < 2 && status == ND_OK; k++) {
        const struct nd_capture_tensor tensor = nd_aligned_tensor(r->alignment, r->edge, r->probe, captures[k]);
        status = nd_capture_read_verified(&tensor, first, n, r->bytes[k], err);
    }
    return status;
}

/* The values of a sample of the block. */
static void load_sample(struct reader *r, size_t at)
{
    const size_t captures[2] = {0, r->test};
    for (size_t k = 0; k < 2; k++)
        nd_array_load(nd_aligned_edge(r->alignment, r->edge, captures[k])->dtype,
                      r->bytes[k] + at * r->sample_bytes, r->n_elems, r->values[k]);
}

/* The root mean square of a sample. */
static double measure(struct reader *r)
{
    double squares = 0;
    for (size_t i = 0; i < r->n_elems; i++) {
        double x = r->values[0][i], y = r->values[1][i];
        if (isfinite(x)) {
            r->n++;
            r->sum += x;
            r->squares += x * x;
        }
        if (isfinite(x) != isfinite(y))
            return HUGE_VAL;
        if (isfinite(x))
            squares += (y - x) * (y - x);
    }
    return sqrt(squares / (double)r->n_elems);
}

/* Leaves bytes and values NULL where the samples, n of them, are not to be read. */
static enum nd_status open_reader(struct reader *r, size_t n, struct nd_error *err)
{
    const struct nd_edge *edge = nd_aligned_edge(r->alignment, r->edge, 0);
    enum nd_status status = nd_shape_size_bytes(&edge->shape, edge->dtype, &r->sample_bytes, err);
    if (status == ND_OK)
        status = nd_shape_n_elems(&edge->shape, &r->n_elems, err);
    r->block = r->sample_bytes < block_bytes && r->sample_bytes > 0 ? block_bytes / r->sample_bytes : 1;
    if (r->block > n)
        r->block = n > 0 ? n : 1;
    for (size_t k = 0; k < 2 && status == ND_OK && r->n_elems > 0 && r->n_elems <= most_elems; k++) {
        r->bytes[k] = nd_tensor_alloc(r->block * r->sample_bytes);
        r->values[k] = nd_calloc(r->n_elems, sizeof *r->values[k]);
        if (r->bytes[k] == NULL || r->values[k] == NULL)
            status = nd_fail_memory(err);
    }
    return status;
}

static enum nd_status read_all(struct reader *r, size_t n, double *sizes, bool *is_known, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_read = 0;
    for (r->probe = 0; r->probe < r->alignment->n_probes && status == ND_OK && *is_known; r->probe++) {
        char *reason = NULL;
        size_t n_common = 0;
        status = nd_align_samples(r->alignment, r->probe, 0, r->test, &n_common, &reason, err);
        free(reason);
        *is_known = n_common == 0 || (nd_aligned_has_values(r->alignment, r->edge, r->probe, 0) &&
                                      nd_aligned_has_values(r->alignment, r->edge, r->probe, r->test));
        n_common = *is_known && n_common > n - n_read ? n - n_read : n_common;
        for (size_t s = 0; s < n_common && status == ND_OK && *is_known; s += r->block) {
            size_t n_block = n_common - s < r->block ? n_common - s : r->block;
            status = read_block(r, s, n_block, err);
            for (size_t i = 0; i < n_block && status == ND_OK; i++) {
                load_sample(r, i);
                sizes[n_read++] = measure(r);
            }
        }
    }
    *is_known = *is_known && n_read == n;
    return status;
}

enum nd_status nd_sample_sizes_read(const struct nd_matching *alignment, size_t edge, size_t test, size_t n,
                                    double *sizes, bool *is_known, struct nd_error *err)
{
    struct reader r = {.alignment = alignment, .edge = edge, .test = test};
    enum nd_status status = open_reader(&r, n, err);
    *is_known = r.bytes[0] != NULL && status == ND_OK;
    if (*is_known)
        status = read_all(&r, n, sizes, is_known, err);
    double mean = r.n > 0 ? r.sum / (double)r.n : 0;
    double spread = r.n > 0 ? sqrt(fmax(r.squares / (double)r.n - mean * mean, 0)) : 0;
    *is_known = *is_known && spread > 0;
    for (size_t s = 0; s < n && *is_known; s++)
        sizes[s] /= spread;
    for (size_t k = 0; k < 2; k++) {
        free(r.bytes[k]);
        free(r.values[k]);
    }
    return status;
}

bool nd_sample_sizes_part(const double *sizes, size_t n, bool *is_gross)
{
    double least = HUGE_VAL, most = 0; /* of gross samples; of the others */
    size_t n_gross = 0;
    for (size_t s = 0; s < n; s++) {
        if (isnan(sizes[s]))
            return false;
        is_gross[s] = sizes[s] >= least_gross;
        n_gross += is_gross[s];
        least = is_gross[s] ? fmin(least, sizes[s]) : least;
        most = is_gross[s] ? most : fmax(most, sizes[s]);
    }
    return n_gross > 0 && n_gross < n && least >= least_gap * most;
}
