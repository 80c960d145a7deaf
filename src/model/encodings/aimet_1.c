/* AIMET 1.0.0: lists of objects with a name, lists of scales and offsets. */
#include <stdlib.h>
#include <string.h>

#include "model/encodings/building.h"

/* Adds what is only listed, when it is: *is_done tells. */
static enum nd_status pass_over(struct nd_encodings *encodings, const char *name, enum nd_encoding_role role,
                                const json_t *item, bool *is_done, struct nd_error *err)
{
    const struct nd_described at = {encodings, name, item};
    const char *kind = "PER_TENSOR", *dtype = "INT";
    int bits, block = 0;
    char why[96];
    enum nd_status status = nd_encodings_text(&at, "enc_type", &kind, err);
    if (status == ND_OK)
        status = nd_encodings_text(&at, "dtype", &dtype, err);
    if (status == ND_OK)
        status = nd_encodings_whole(&at, "bw", 2, 32, &bits, err);
    if (status != ND_OK)
        return status;
    bool is_float = strcmp(dtype, "FLOAT") == 0;
    bool is_blocks = strcmp(kind, "PER_BLOCK") == 0 || strcmp(kind, "LPBQ") == 0;
    bool is_plain = strcmp(kind, "PER_TENSOR") == 0 || strcmp(kind, "PER_CHANNEL") == 0;
    if (!is_float && strcmp(dtype, "INT") != 0)
        return nd_encodings_fail(encodings, name, "dtype", err, "is '%s', expected INT or FLOAT", dtype);
    if (!is_blocks && !is_plain)
        return nd_encodings_fail(encodings, name, "enc_type", err,
                                 "is '%s', expected PER_TENSOR, PER_CHANNEL, PER_BLOCK or LPBQ", kind);
    *is_done = is_float || is_blocks;
    if (is_blocks)
        status = nd_encodings_whole(&at, "block_size", 0, 1 << 30, &block, err);
    if (status != ND_OK || !*is_done)
        return status;
    if (is_float)
        snprintf(why, sizeof why, "float of %d bits", bits);
    else
        snprintf(why, sizeof why, "in blocks of %d (%s)", block, kind);
    return nd_encodings_add_unhandled(encodings, name, role, why, err);
}

static enum nd_status check_counts(const struct nd_encodings *encodings, const char *name, const json_t *item,
                                   size_t n_scales, size_t n_offsets, struct nd_error *err)
{
    const char *kind = json_string_value(json_object_get(item, "enc_type"));
    if (n_scales == 0 || n_offsets == 0)
        return nd_encodings_fail(encodings, name, "scale", err,
                                 "or 'offset' is a list of lists, expected numbers");
    if (n_scales != n_offsets)
        return nd_encodings_fail(encodings, name, "offset", err, "has %zu numbers, and 'scale' has %zu",
                                 n_offsets, n_scales);
    if (strcmp(kind, "PER_TENSOR") == 0 && n_scales != 1)
        return nd_encodings_fail(encodings, name, "scale", err, "has %zu numbers, and 'enc_type' is PER_TENSOR",
                                 n_scales);
    return ND_OK;
}

static enum nd_status read_item(struct nd_encodings *encodings, enum nd_encoding_role role, const json_t *item,
                                struct nd_error *err)
{
    struct nd_described at = {encodings, NULL, item};
    double *scales = NULL, *offsets = NULL;
    size_t n_offsets = 0;
    bool is_done = false;
    enum nd_status status = nd_encodings_text(&at, "name", &at.tensor, err);
    if (status == ND_OK)
        status = pass_over(encodings, at.tensor, role, item, &is_done, err);
    if (status != ND_OK || is_done)
        return status;
    struct nd_stated stated = {.name = at.tensor, .role = role};
    const json_t *symmetric = json_object_get(item, "is_sym");
    if (!json_is_boolean(symmetric))
        return nd_encodings_fail(encodings, stated.name, "is_sym", err, "is %s, expected a boolean",
                                 symmetric == NULL ? "missing" : "another thing");
    stated.is_symmetric = json_is_true(symmetric);
    stated.bits = (int)json_number_value(json_object_get(item, "bw"));
    status = nd_encodings_numbers(&at, "scale", &scales, &stated.n, err);
    if (status == ND_OK)
        status = nd_encodings_numbers(&at, "offset", &offsets, &n_offsets, err);
    if (status == ND_OK)
        status = check_counts(encodings, stated.name, item, stated.n, n_offsets, err);
    stated.scales = scales;
    if (status == ND_OK)
        status = nd_encodings_add_offset(encodings, &stated, offsets, err);
    free(scales);
    free(offsets);
    return status;
}

static enum nd_status read_group(struct nd_encodings *encodings, const json_t *root, const char *key,
                                 enum nd_encoding_role role, struct nd_error *err)
{
    const json_t *list = json_object_get(root, key), *item;
    size_t i;
    enum nd_status status = ND_OK;
    if (!json_is_array(list))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected a list of objects",
                                 list == NULL ? "missing" : "another thing");
    json_array_foreach(list, i, item)
    {
        status = read_item(encodings, role, item, err);
        if (status != ND_OK)
            break;
    }
    return status;
}

enum nd_status nd_encodings_read_aimet_1(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err)
{
    enum nd_status status = read_group(encodings, root, "activation_encodings", ND_ENCODING_ACTIVATION, err);
    if (status == ND_OK)
        status = read_group(encodings, root, "param_encodings", ND_ENCODING_PARAM, err);
    return status;
}
