/* AIMET 2.0.0 and 2.1.0: ONNX's own parameters. The specification has two lists, by role; what AIMET 2.42
 * exports has one, "encodings", for all. Both are read. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/encodings/building.h"
#include "npudiff/core/parse.h"

/* "int8", "uint16"; false for every other type, which are floats. */
static bool parse_integer(const char *text, struct nd_stated *out)
{
    int64_t bits;
    bool is_unsigned = text[0] == 'u';
    text += is_unsigned;
    if (strncmp(text, "int", 3) != 0 || !nd_parse_i64(text + 3, &bits) || bits < 2 || bits > 32)
        return false;
    out->bits = (int)bits;
    out->is_signed = !is_unsigned;
    return true;
}

/* Why the item is listed only, or "". */
static enum nd_status find_reason(const struct nd_encodings *encodings, const char *name, const json_t *item,
                                  struct nd_stated *stated, char why[96], struct nd_error *err)
{
    const struct nd_described at = {encodings, name, item};
    const char *dtype;
    int block;
    why[0] = '\0';
    enum nd_status status = nd_encodings_text(&at, "output_dtype", &dtype, err);
    if (status != ND_OK)
        return status;
    if (!parse_integer(dtype, stated)) {
        if (strncmp(dtype, "float", 5) != 0 && strncmp(dtype, "bfloat", 6) != 0)
            return nd_encodings_fail(encodings, name, "output_dtype", err,
                                     "is '%s', expected int2..int32, uint2..uint32 or a float type", dtype);
        snprintf(why, 96, "of type %s", dtype);
        return ND_OK;
    }
    if (json_is_integer(json_object_get(item, "block_size"))) {
        status = nd_encodings_whole(&at, "block_size", 0, 1 << 30, &block, err);
        if (status == ND_OK)
            snprintf(why, 96, "in blocks of %d", block);
        return status;
    }
    if (json_object_get(item, "per_block_int_scale") != NULL ||
        json_is_object(json_object_get(item, "y_scale")))
        snprintf(why, 96, "with scales that are quantised themselves");
    return ND_OK;
}

static enum nd_status read_zero_points(const struct nd_encodings *encodings, const json_t *item,
                                       const struct nd_stated *stated, double **out, struct nd_error *err)
{
    const struct nd_described at = {encodings, stated->name, item};
    size_t n = stated->n;
    double *zero_points = NULL;
    enum nd_status status = ND_OK;
    const json_t *given = json_object_get(item, "y_zero_point");
    if (given == NULL || json_is_null(given)) {
        zero_points = nd_calloc(n, sizeof *zero_points);
        status = zero_points != NULL ? ND_OK : nd_fail_memory(err);
    } else {
        status = nd_encodings_numbers(&at, "y_zero_point", &zero_points, &n, err);
    }
    if (status == ND_OK && n != stated->n) {
        free(zero_points);
        return nd_encodings_fail(encodings, stated->name, "y_zero_point", err,
                                 "has %zu numbers, and 'y_scale' has %zu", n, stated->n);
    }
    if (status == ND_OK)
        *out = zero_points;
    return status;
}

static enum nd_status read_axis(const struct nd_encodings *encodings, const json_t *item,
                                struct nd_stated *stated, struct nd_error *err)
{
    const json_t *axis = json_object_get(item, "axis");
    stated->has_axis = axis != NULL && !json_is_null(axis);
    if (!stated->has_axis)
        return ND_OK;
    return nd_encodings_whole(&(struct nd_described){encodings, stated->name, item}, "axis", -ND_MAX_RANK,
                              ND_MAX_RANK - 1, &stated->axis, err);
}

static enum nd_status read_affine(struct nd_encodings *encodings, const json_t *item, struct nd_stated *stated,
                                  struct nd_error *err)
{
    double *scales = NULL, *zero_points = NULL;
    enum nd_status status = nd_encodings_numbers(&(struct nd_described){encodings, stated->name, item},
                                                 "y_scale", &scales, &stated->n, err);
    if (status == ND_OK && stated->n == 0)
        return nd_encodings_add_unhandled(encodings, stated->name, stated->role,
                                          "scales along several dimensions", err);
    if (status == ND_OK)
        status = read_axis(encodings, item, stated, err);
    if (status == ND_OK)
        status = read_zero_points(encodings, item, stated, &zero_points, err);
    stated->scales = scales;
    stated->zero_points = zero_points;
    stated->is_symmetric = stated->is_signed;
    for (size_t i = 0; status == ND_OK && i < stated->n; i++)
        stated->is_symmetric = stated->is_symmetric && zero_points[i] == 0;
    if (status == ND_OK)
        status = nd_encodings_add(encodings, stated, err);
    free(scales);
    free(zero_points);
    return status;
}

static enum nd_status read_list(struct nd_encodings *encodings, const json_t *list, const char *key,
                                enum nd_encoding_role role, struct nd_error *err)
{
    const json_t *item;
    size_t i;
    enum nd_status status = ND_OK;
    if (!json_is_array(list))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected a list of objects",
                                 list == NULL ? "missing" : "another thing");
    json_array_foreach(list, i, item)
    {
        struct nd_stated stated = {.role = role};
        char why[96];
        status = nd_encodings_text(&(struct nd_described){encodings, NULL, item}, "name", &stated.name, err);
        if (status == ND_OK)
            status = find_reason(encodings, stated.name, item, &stated, why, err);
        if (status == ND_OK && why[0] != '\0')
            status = nd_encodings_add_unhandled(encodings, stated.name, role, why, err);
        else if (status == ND_OK)
            status = read_affine(encodings, item, &stated, err);
        if (status != ND_OK)
            break;
    }
    return status;
}

enum nd_status nd_encodings_read_aimet_2(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err)
{
    const json_t *all = json_object_get(root, "encodings");
    if (all != NULL)
        return read_list(encodings, all, "encodings", ND_ENCODING_UNSTATED, err);
    enum nd_status status = read_list(encodings, json_object_get(root, "activation_encodings"),
                                      "activation_encodings", ND_ENCODING_ACTIVATION, err);
    if (status == ND_OK)
        status = read_list(encodings, json_object_get(root, "param_encodings"), "param_encodings",
                           ND_ENCODING_PARAM, err);
    return status;
}
