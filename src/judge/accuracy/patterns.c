#include "judge/accuracy/patterns.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* A pattern, its sample behind it: [width] bits, then a uint32_t. */
static size_t row_bytes(size_t width)
{
    return width + sizeof(uint32_t);
}

static bool is_unanimous(const unsigned char *row, const struct nd_rights *in)
{
    size_t n_right = 0, n = in->n_devices + (in->reference != NULL) + (in->quantised != NULL);
    for (size_t i = 0; i < in->n_devices + 2; i++)
        n_right += row[i];
    return n_right == 0 || n_right == n;
}

static void load(const struct nd_rights *in, size_t sample, unsigned char *row)
{
    for (size_t d = 0; d < in->n_devices; d++)
        row[d] = in->devices[d * in->n_samples + sample] != 0;
    row[in->n_devices] = in->reference != NULL && in->reference[sample] != 0;
    row[in->n_devices + 1] = in->quantised != NULL && in->quantised[sample] != 0;
}

static int compare_rows(const void *a, const void *b, void *width)
{
    return memcmp(a, b, *(const size_t *)width);
}

/* rows: those that are not unanimous. Room in out is for all of them. */
static void number(unsigned char *rows, size_t n_rows, struct nd_patterns *out)
{
    size_t stride = row_bytes(out->width), n = 1;
    qsort_r(rows, n_rows, stride, compare_rows, &out->width);
    for (size_t i = 0; i < n_rows; i++) {
        const unsigned char *row = rows + i * stride;
        if (i == 0 || memcmp(row, row - stride, out->width) != 0)
            memcpy(out->bits + n++ * out->width, row, out->width);
        uint32_t sample;
        memcpy(&sample, row + out->width, sizeof sample);
        out->of_sample[sample] = (uint32_t)(n - 1);
        out->counts[n - 1]++;
        out->counts[0]--;
    }
    out->n = n;
}

enum nd_status nd_patterns_make(const struct nd_rights *in, struct nd_patterns *out, struct nd_error *err)
{
    struct nd_patterns made = {.width = in->n_devices + 2};
    size_t stride = row_bytes(made.width), n_rows = 0;
    unsigned char *rows = nd_calloc(in->n_samples + 1, stride);
    for (size_t i = 0; i < in->n_samples && rows != NULL; i++) {
        unsigned char *row = rows + n_rows * stride;
        uint32_t sample = (uint32_t)i;
        load(in, i, row);
        memcpy(row + made.width, &sample, sizeof sample);
        n_rows += !is_unanimous(row, in);
    }
    made.bits = nd_calloc(n_rows + 1, made.width);
    made.of_sample = nd_calloc(in->n_samples, sizeof *made.of_sample);
    made.counts = nd_calloc(n_rows + 1, sizeof *made.counts);
    enum nd_status status = ND_OK;
    if (rows == NULL || made.bits == NULL || made.of_sample == NULL || made.counts == NULL) {
        status = nd_fail_memory(err);
        nd_patterns_deinit(&made);
    } else {
        made.counts[0] = (uint32_t)in->n_samples;
        number(rows, n_rows, &made);
        *out = made;
    }
    free(rows);
    return status;
}

void nd_patterns_deinit(struct nd_patterns *patterns)
{
    free(patterns->bits);
    free(patterns->of_sample);
    free(patterns->counts);
    *patterns = (struct nd_patterns){0};
}
