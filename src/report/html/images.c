/* The inputs of changed samples as pictures, where they look like some: 8-bit PNG, small enough to be in a
 * page. */
#include <math.h>
#include <zlib.h>

#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "report/html/html.h"

enum {
    MIN_SIDE = 4,  /* pixels: fewer are no picture */
    MAX_SIDE = 96, /* pixels of a picture in the page: chosen, so that fifty of them are below 1.5 MB */
    MAX_ALL_BYTES = 768 << 10 /* of all pictures of a page, as PNG: chosen */
};

/* How an input is a picture. */
struct raster {
    size_t height, width, n_channels;
    size_t row_step, column_step, channel_step; /* in elements */
};

/* [N=1,] C x H x W or H x W x C with 1 or 3 channels, or H x W. Photographs of 3 or 4 dimensions; two are a
 * picture too where both are large enough. */
static bool find_raster(const struct nd_shape *shape, struct raster *out)
{
    int64_t dims[ND_MAX_RANK];
    int n = 0;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] != 1 || n > 0)
            dims[n++] = shape->dims[i];
    while (n > 2 && dims[n - 1] == 1) /* H x W x 1 */
        n--;
    for (int i = 0; i < n; i++)
        if (dims[i] < 1 || dims[i] > 1 << 14)
            return false;
    size_t a = n > 0 ? (size_t)dims[0] : 0, b = n > 1 ? (size_t)dims[1] : 0, c = n > 2 ? (size_t)dims[2] : 0;
    if (shape->rank >= 3 && n == 2)
        *out = (struct raster){a, b, 1, b, 1, 0};
    else if (n == 3 && a == 3)
        *out = (struct raster){b, c, 3, c, 1, b * c};
    else if (n == 3 && c == 3)
        *out = (struct raster){a, b, 3, b * 3, 3, 1};
    else
        return false;
    return out->height >= MIN_SIDE && out->width >= MIN_SIDE;
}

/* ---- PNG ---- */

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void put_chunk(struct nd_strbuf *out, const char *type, const unsigned char *data, size_t n)
{
    unsigned char length[4], sum[4];
    uLong crc = crc32(crc32(0, NULL, 0), (const unsigned char *)type, 4);
    if (n > 0)
        crc = crc32(crc, data, (uInt)n);
    put_u32(length, (uint32_t)n);
    put_u32(sum, (uint32_t)crc);
    nd_strbuf_append(out, (const char *)length, 4);
    nd_strbuf_append(out, type, 4);
    if (n > 0)
        nd_strbuf_append(out, (const char *)data, n);
    nd_strbuf_append(out, (const char *)sum, 4);
}

/* rows: for each row a zero (no filter) and its pixels. */
static void put_png(struct nd_strbuf *out, const unsigned char *rows, size_t height, size_t width,
                    size_t n_channels)
{
    unsigned char header[13] = {[8] = 8, [9] = n_channels == 3 ? 2 : 0};
    uLong n = (uLong)(height * (1 + width * n_channels));
    uLongf n_packed = compressBound(n);
    ND_FREED unsigned char *packed = nd_calloc(n_packed, 1);
    if (packed == NULL || compress2(packed, &n_packed, rows, n, Z_BEST_COMPRESSION) != Z_OK) {
        out->failed = true;
        return;
    }
    put_u32(header, (uint32_t)width);
    put_u32(header + 4, (uint32_t)height);
    nd_strbuf_append(out, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(out, "IHDR", header, sizeof header);
    put_chunk(out, "IDAT", packed, n_packed);
    put_chunk(out, "IEND", NULL, 0);
}

/* ---- a picture ---- */

/* The values from the least to the greatest become 0 to 255; of several pixels that one of the page stands for,
 * the one in the middle. */
static void draw(const struct raster *raster, const double *values, size_t n, struct nd_strbuf *png)
{
    size_t most = raster->height > raster->width ? raster->height : raster->width;
    size_t step = (most + MAX_SIDE - 1) / MAX_SIDE;
    size_t height = raster->height / step, width = raster->width / step, at = 0;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        low = isfinite(values[i]) && values[i] < low ? values[i] : low;
        high = isfinite(values[i]) && values[i] > high ? values[i] : high;
    }
    ND_FREED unsigned char *rows = nd_calloc(height, 1 + width * raster->n_channels);
    if (rows == NULL) {
        png->failed = true;
        return;
    }
    for (size_t y = 0; y < height; y++) {
        rows[at++] = 0;
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < raster->n_channels; c++) {
                double v = values[(y * step + step / 2) * raster->row_step +
                                  (x * step + step / 2) * raster->column_step + c * raster->channel_step];
                double part = high > low ? (v - low) / (high - low) : 0;
                rows[at++] = (unsigned char)(isfinite(part) ? 255 * part + 0.5 : 0);
            }
    }
    put_png(png, rows, height, width, raster->n_channels);
}

/* ---- all of them ---- */

struct album {
    struct nd_json *json;
    const struct nd_kernels *kernels;
    size_t n_bytes;
    /* The input that is drawn. */
    const struct nd_capture *capture;
    size_t probe;
    struct raster raster;
    struct nd_layout layout;
};

static enum nd_status read_values(const struct album *album, size_t sample, double *values,
                                  struct nd_error *err)
{
    const struct nd_layout *layout = &album->layout;
    ND_FREED unsigned char *bytes = nd_calloc(1, layout->sample_bytes + 64);
    ND_TRY_MEMORY(bytes != NULL, err);
    ND_TRY(nd_capture_read_inputs(&(struct nd_probe_values){album->capture, album->probe, 0}, sample, 1, bytes,
                                  err));
    for (size_t at = 0; at < layout->n_elems; at += ND_BLOCK) {
        double x[ND_BLOCK];
        size_t n = layout->n_elems - at < ND_BLOCK ? layout->n_elems - at : ND_BLOCK;
        nd_layout_load(layout, album->kernels, bytes + at * layout->elem_bytes, at, n, x);
        memcpy(values + at, x, n * sizeof x[0]);
    }
    return ND_OK;
}

static enum nd_status put_image(struct album *album, size_t sample, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf png = {0};
    ND_FREED double *values = nd_calloc(album->layout.n_elems, sizeof *values);
    ND_TRY(values != NULL ? read_values(album, sample, values, err) : nd_fail_memory(err));
    draw(&album->raster, values, album->layout.n_elems, &png);
    ND_FREED char *text = !png.failed ? nd_base64(png.text, png.len) : NULL;
    ND_TRY_MEMORY(text != NULL, err);
    album->n_bytes += png.len;
    nd_json_open_line(album->json, NULL, '{');
    nd_json_text(album->json, "probe", nd_capture_probe(album->capture, album->probe)->name);
    nd_json_count(album->json, "sample", sample);
    nd_json_text(album->json, "png", text);
    nd_json_close(album->json, '}');
    return ND_OK;
}

/* The pictures of one row's changed samples, from the reference's capture. */
static enum nd_status put_row(struct album *album, const struct nd_comparison *comparison,
                              const struct nd_top1 *row, struct nd_error *err)
{
    album->probe = nd_capture_find_probe(album->capture, comparison->probes[row->probe].name);
    if (album->probe == SIZE_MAX || nd_capture_probe(album->capture, album->probe)->n_inputs == 0)
        return ND_OK;
    const struct nd_capture_probe *about = nd_capture_probe(album->capture, album->probe);
    const struct nd_tensor input = {.name = about->inputs[0].name,
                                    .dtype = about->inputs[0].dtype,
                                    .shape = about->inputs[0].shape,
                                    .quant = {.axis = -1}};
    if (!find_raster(&input.shape, &album->raster) || nd_layout_make(&input, &album->layout, NULL) != ND_OK)
        return ND_OK;
    for (size_t i = 0; i < row->n_changed_kept && album->n_bytes < MAX_ALL_BYTES; i++)
        if (row->changed[i].sample < about->n_samples_expected)
            ND_TRY(put_image(album, row->changed[i].sample, err));
    return ND_OK;
}

enum nd_status nd_report_images_json(const struct nd_comparison *comparison,
                                     const struct nd_capture *const *captures, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = {.out = &buf};
    struct album album = {.json = &json, .capture = captures[0]};
    enum nd_status status = nd_kernels_choose(NULL, &album.kernels, err);
    nd_json_open(&json, NULL, '{');
    nd_json_open(&json, "images", '[');
    for (size_t i = 0; status == ND_OK && i < comparison->n_top1; i++)
        status = put_row(&album, comparison, &comparison->top1[i], err);
    nd_json_close(&json, ']');
    nd_json_close(&json, '}');
    if (status != ND_OK) {
        nd_strbuf_deinit(&buf);
        return status;
    }
    *out = nd_strbuf_take(&buf);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}
