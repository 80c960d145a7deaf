#include "compare/matching/inputs.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

/* H(digest so far, H(name), H(description), digest of the bytes); the description keeps equal bytes of other
 * types apart. */
static struct nd_digest chain(struct nd_digest so_far, const struct nd_capture_input *input,
                              struct nd_digest data)
{
    char shape[128], line[256];
    nd_shape_format(&input->shape, shape, sizeof shape);
    int n = snprintf(line, sizeof line, "%s %s", nd_dtype_name(input->dtype), shape);
    struct nd_digest parts[4] = {so_far, nd_digest_bytes(input->name, strlen(input->name)),
                                 nd_digest_bytes(line, (size_t)n), data};
    return nd_digest_bytes(parts, sizeof parts);
}

enum nd_status nd_input_digests(const struct nd_capture *capture, size_t probe, struct nd_digest **out,
                                struct nd_error *err)
{
    const struct nd_capture_probe *described = nd_capture_probe(capture, probe);
    *out = NULL;
    if (described->n_inputs == 0 || described->n_samples == 0)
        return ND_OK;
    struct nd_digest *digests = nd_calloc(described->n_samples, sizeof *digests);
    if (digests == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < described->n_inputs; i++)
        for (size_t s = 0; s < described->n_samples; s++)
            digests[s] =
                chain(digests[s], &described->inputs[i], nd_capture_input_digest(capture, probe, i, s));
    *out = digests;
    return ND_OK;
}
