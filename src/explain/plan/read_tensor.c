/* Reads one tensor of one sample of a capture, as an array. */
#include "explain/plan/read_tensor.h"

#include "core/error.h"
#include "core/memory.h"

static enum nd_status make_bytes(const struct nd_shape *shape, enum nd_dtype dtype, unsigned char **bytes,
                                 struct nd_error *err)
{
    size_t size_bytes;
    enum nd_status status = nd_shape_size_bytes(shape, dtype, &size_bytes, err);
    *bytes = status == ND_OK ? nd_tensor_room(size_bytes) : NULL;
    return status == ND_OK && *bytes == NULL ? nd_fail_memory(err) : status;
}

enum nd_status nd_read_tensor(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                              struct nd_array *out, struct nd_error *err)
{
    const struct nd_shape *shape = &nd_capture_tensor(place->capture, place->tensor)->shape;
    ND_FREED unsigned char *bytes = NULL;
    ND_TRY(make_bytes(shape, dtype, &bytes, err));
    ND_TRY(nd_capture_read_verified(place, sample, 1, bytes, err));
    ND_TRY(nd_array_make_room(out, dtype, shape, err));
    nd_array_load(dtype, bytes, out->n, out->x);
    return ND_OK;
}

enum nd_status nd_read_input(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                             struct nd_array *out, struct nd_error *err)
{
    ND_FREED unsigned char *bytes = NULL;
    ND_TRY(make_bytes(&out->shape, dtype, &bytes, err));
    ND_TRY(nd_capture_read_inputs(place, sample, 1, bytes, err));
    nd_array_load(dtype, bytes, out->n, out->x);
    return ND_OK;
}
