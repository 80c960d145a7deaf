#include <string.h>

#include "npudiff/core/tensor.h"

enum dtype_kind { KIND_OTHER, KIND_UNSIGNED, KIND_SIGNED, KIND_FLOAT };

static const struct dtype_row {
    enum nd_dtype dtype;
    const char *name;
    size_t size_bytes;
    enum dtype_kind kind;
} rows[] = {
    {ND_DTYPE_F32, "float32", 4, KIND_FLOAT},        {ND_DTYPE_U8, "uint8", 1, KIND_UNSIGNED},
    {ND_DTYPE_I8, "int8", 1, KIND_SIGNED},           {ND_DTYPE_U16, "uint16", 2, KIND_UNSIGNED},
    {ND_DTYPE_I16, "int16", 2, KIND_SIGNED},         {ND_DTYPE_I32, "int32", 4, KIND_SIGNED},
    {ND_DTYPE_I64, "int64", 8, KIND_SIGNED},         {ND_DTYPE_BOOL, "bool", 1, KIND_OTHER},
    {ND_DTYPE_F16, "float16", 2, KIND_FLOAT},        {ND_DTYPE_F64, "float64", 8, KIND_FLOAT},
    {ND_DTYPE_U32, "uint32", 4, KIND_UNSIGNED},      {ND_DTYPE_U64, "uint64", 8, KIND_UNSIGNED},
    {ND_DTYPE_BF16, "bfloat16", 2, KIND_FLOAT},      {ND_DTYPE_F8E4M3FN, "float8_e4m3fn", 1, KIND_FLOAT},
    {ND_DTYPE_F8E5M2, "float8_e5m2", 1, KIND_FLOAT}, {ND_DTYPE_U4, "uint4", 1, KIND_UNSIGNED},
    {ND_DTYPE_I4, "int4", 1, KIND_SIGNED},
};

static const struct dtype_row *find_row(enum nd_dtype dtype)
{
    static const struct dtype_row none = {ND_DTYPE_NONE, "none", 0, KIND_OTHER};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return &none;
}

const char *nd_dtype_name(enum nd_dtype dtype)
{
    return find_row(dtype)->name;
}

enum nd_dtype nd_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].dtype;
    return ND_DTYPE_NONE;
}

size_t nd_dtype_size_bytes(enum nd_dtype dtype)
{
    return find_row(dtype)->size_bytes;
}

bool nd_dtype_is_integer(enum nd_dtype dtype)
{
    enum dtype_kind kind = find_row(dtype)->kind;
    return kind == KIND_UNSIGNED || kind == KIND_SIGNED;
}

bool nd_dtype_is_signed_integer(enum nd_dtype dtype)
{
    return find_row(dtype)->kind == KIND_SIGNED;
}

bool nd_dtype_is_float(enum nd_dtype dtype)
{
    return find_row(dtype)->kind == KIND_FLOAT;
}
