/* Qnn_DataType_t: types of QNN by number and name (QnnTypes.h), and what they are here. */
#include "model/encodings/qnn_types.h"

#include <string.h>

#define PREFIX "QNN_DATATYPE_"

static const struct nd_qnn_type types[] = {
    {0x0008, PREFIX "INT_8", ND_DTYPE_I8, false},
    {0x0016, PREFIX "INT_16", ND_DTYPE_I16, false},
    {0x0032, PREFIX "INT_32", ND_DTYPE_I32, false},
    {0x0064, PREFIX "INT_64", ND_DTYPE_I64, false},
    {0x0108, PREFIX "UINT_8", ND_DTYPE_U8, false},
    {0x0116, PREFIX "UINT_16", ND_DTYPE_U16, false},
    {0x0132, PREFIX "UINT_32", ND_DTYPE_U32, false},
    {0x0164, PREFIX "UINT_64", ND_DTYPE_U64, false},
    {0x0216, PREFIX "FLOAT_16", ND_DTYPE_F16, false},
    {0x0232, PREFIX "FLOAT_32", ND_DTYPE_F32, false},
    {0x0264, PREFIX "FLOAT_64", ND_DTYPE_F64, false},
    {0x0304, PREFIX "SFIXED_POINT_4", ND_DTYPE_I4, true},
    {0x0308, PREFIX "SFIXED_POINT_8", ND_DTYPE_I8, true},
    {0x0316, PREFIX "SFIXED_POINT_16", ND_DTYPE_I16, true},
    {0x0332, PREFIX "SFIXED_POINT_32", ND_DTYPE_I32, true},
    {0x0404, PREFIX "UFIXED_POINT_4", ND_DTYPE_U4, true},
    {0x0408, PREFIX "UFIXED_POINT_8", ND_DTYPE_U8, true},
    {0x0416, PREFIX "UFIXED_POINT_16", ND_DTYPE_U16, true},
    {0x0432, PREFIX "UFIXED_POINT_32", ND_DTYPE_U32, true},
    {0x0508, PREFIX "BOOL_8", ND_DTYPE_BOOL, false},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

const struct nd_qnn_type *nd_qnn_type_of(uint32_t number)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const char *nd_qnn_type_name(uint32_t number)
{
    const struct nd_qnn_type *type = nd_qnn_type_of(number);
    return type != NULL ? type->name : PREFIX "UNDEFINED";
}

const struct nd_qnn_type *nd_qnn_type_read(const json_t *value)
{
    const char *name = json_string_value(value);
    if (json_is_integer(value))
        return json_integer_value(value) >= 0 && json_integer_value(value) <= UINT32_MAX
                   ? nd_qnn_type_of((uint32_t)json_integer_value(value))
                   : NULL;
    for (size_t i = 0; name != NULL && i < N_TYPES; i++)
        if (strcmp(name, types[i].name) == 0 || strcmp(name, types[i].name + strlen(PREFIX)) == 0)
            return &types[i];
    return NULL;
}

const struct nd_qnn_type *nd_qnn_type_quantised(enum nd_dtype dtype)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].is_fixed_point && types[i].dtype == dtype)
            return &types[i];
    return NULL;
}
