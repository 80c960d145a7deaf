#include "compare/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* digest = H(digest so far, H(description), H(bytes)); the description keeps equal bytes of other types apart.
 */
static struct nd_digest chain(struct nd_digest so_far, const struct nd_capture_input *input, const void *data,
                              size_t size_bytes)
{
    char shape[128], line[256];
    nd_shape_format(&input->shape, shape, sizeof shape);
    int n = snprintf(line, sizeof line, "%s %s", nd_dtype_name(input->dtype), shape);
    struct nd_digest parts[4] = {so_far, nd_digest_bytes(input->name, strlen(input->name)),
                                 nd_digest_bytes(line, (size_t)n), nd_digest_bytes(data, size_bytes)};
    return nd_digest_bytes(parts, sizeof parts);
}

static enum nd_status add_input(const struct nd_capture *capture, size_t probe, size_t input,
                                size_t block_bytes, struct nd_digest *digests, struct nd_error *err)
{
    const struct nd_capture_probe *described = nd_capture_probe(capture, probe);
    const struct nd_capture_input *what = &described->inputs[input];
    size_t sample_bytes, n_samples = described->n_samples;
    enum nd_status status = nd_shape_size_bytes(&what->shape, what->dtype, &sample_bytes, err);
    if (status != ND_OK)
        return status;
    size_t n_block = sample_bytes > 0 ? block_bytes / sample_bytes : n_samples;
    n_block = n_block == 0 ? 1 : n_block > n_samples ? n_samples : n_block;
    size_t buf_bytes;
    if (!nd_size_mul(n_block, sample_bytes, &buf_bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, what->name, "the samples of input '%s' do not fit", what->name);
    unsigned char *buf = nd_tensor_alloc(buf_bytes);
    if (buf == NULL)
        return nd_fail_memory(err);
    for (size_t first = 0; first < n_samples && status == ND_OK; first += n_block) {
        size_t n = n_samples - first < n_block ? n_samples - first : n_block;
        status = sample_bytes > 0 ? nd_capture_read_inputs(capture, probe, input, first, n, buf, err) : ND_OK;
        for (size_t i = 0; i < n && status == ND_OK; i++)
            digests[first + i] = chain(digests[first + i], what, buf + i * sample_bytes, sample_bytes);
    }
    free(buf);
    return status;
}

enum nd_status nd_input_digests(const struct nd_capture *capture, size_t probe, size_t block_bytes,
                                struct nd_digest **out, struct nd_error *err)
{
    const struct nd_capture_probe *described = nd_capture_probe(capture, probe);
    *out = NULL;
    if (described->n_inputs == 0 || described->n_samples == 0)
        return ND_OK;
    struct nd_digest *digests = nd_calloc(described->n_samples, sizeof *digests);
    if (digests == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < described->n_inputs && status == ND_OK; i++)
        status = add_input(capture, probe, i, block_bytes, digests, err);
    if (status == ND_OK)
        *out = digests;
    else
        free(digests);
    return status == ND_ERR_NOT_FOUND ? ND_OK : status;
}
