/* NumPy's .npy format, read only. A header is a magic number, a version, and a Python dictionary literal such
 * as
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * of which exactly these three keys are accepted, in any order. */
#include <ctype.h>
#include <stdio.h>

#include "core/memory.h"
#include "record/probes/npz.h"

/* What is still to be parsed; the text has no NUL inside. */
struct cursor {
    const char *at;
};

static void skip_space(struct cursor *cursor)
{
    while (*cursor->at == ' ' || *cursor->at == '\t' || *cursor->at == '\n' || *cursor->at == '\r')
        cursor->at++;
}

static bool accept(struct cursor *cursor, char wanted)
{
    skip_space(cursor);
    if (*cursor->at != wanted)
        return false;
    cursor->at++;
    return true;
}

static bool accept_word(struct cursor *cursor, const char *word)
{
    skip_space(cursor);
    size_t n = strlen(word);
    if (strncmp(cursor->at, word, n) != 0)
        return false;
    cursor->at += n;
    return true;
}

/* A quoted string without escapes, which NumPy never writes here. Cut to fit. */
static bool parse_string(struct cursor *cursor, char *buf, size_t buf_size)
{
    skip_space(cursor);
    char quote = *cursor->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *start = cursor->at + 1;
    const char *end = strchr(start, quote);
    if (end == NULL || memchr(start, '\\', (size_t)(end - start)) != NULL)
        return false;
    size_t n = (size_t)(end - start);
    if (n >= buf_size)
        n = buf_size - 1;
    memcpy(buf, start, n);
    buf[n] = '\0';
    cursor->at = end + 1;
    return true;
}

static bool parse_bool(struct cursor *cursor, bool *out)
{
    if (accept_word(cursor, "True"))
        *out = true;
    else if (accept_word(cursor, "False"))
        *out = false;
    else
        return false;
    return true;
}

static bool parse_dim(struct cursor *cursor, int64_t *out)
{
    skip_space(cursor);
    if (!isdigit((unsigned char)*cursor->at))
        return false;
    int64_t value = 0;
    for (; isdigit((unsigned char)*cursor->at); cursor->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *cursor->at - '0', &value))
            return false;
    if (*cursor->at == 'L') /* Python 2 wrote long integers so */
        cursor->at++;
    *out = value;
    return true;
}

/* "()", "(3,)", "(3, 4)". rank counts also the dimensions beyond ND_NPY_MAX_RANK, which are not kept. */
static bool parse_shape(struct cursor *cursor, struct nd_npy *npy)
{
    if (!accept(cursor, '('))
        return false;
    npy->rank = 0;
    while (!accept(cursor, ')')) {
        int64_t dim;
        if (!parse_dim(cursor, &dim))
            return false;
        if (npy->rank < ND_NPY_MAX_RANK)
            npy->dims[npy->rank] = dim;
        npy->rank++;
        bool has_comma = accept(cursor, ',');
        skip_space(cursor);
        if (!has_comma && (*cursor->at != ')' || npy->rank == 1))
            return false; /* "(3)" is a number, not a tuple */
    }
    return true;
}

/* A structured type is a list; it is only skipped, brackets balanced, so that it can be refused by name. */
static bool skip_list(struct cursor *cursor, char *buf, size_t buf_size)
{
    size_t depth = 0;
    do {
        if (*cursor->at == '[' || *cursor->at == '(')
            depth++;
        else if (*cursor->at == ']' || *cursor->at == ')')
            depth--;
        else if (*cursor->at == '\0')
            return false;
        cursor->at++;
    } while (depth > 0);
    snprintf(buf, buf_size, "[...]");
    return true;
}

static bool parse_descr(struct cursor *cursor, struct nd_npy *npy)
{
    skip_space(cursor);
    if (*cursor->at == '[')
        return skip_list(cursor, npy->descr, sizeof npy->descr);
    if (!parse_string(cursor, npy->descr, sizeof npy->descr))
        return false;
    for (char *c = npy->descr; *c != '\0'; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
    return true;
}

/* The whole dictionary; every key exactly once. */
static bool parse_dictionary(struct cursor *cursor, struct nd_npy *npy)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false, false, false};
    if (!accept(cursor, '{'))
        return false;
    while (!accept(cursor, '}')) {
        char key[16];
        if (!parse_string(cursor, key, sizeof key) || !accept(cursor, ':'))
            return false;
        size_t k = 0;
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3 || seen[k])
            return false;
        seen[k] = true;
        if (!(k == 0   ? parse_descr(cursor, npy)
              : k == 1 ? parse_bool(cursor, &npy->is_fortran_order)
                       : parse_shape(cursor, npy)))
            return false;
        skip_space(cursor);
        if (!accept(cursor, ',') && *cursor->at != '}')
            return false;
    }
    skip_space(cursor);
    return *cursor->at == '\0' && seen[0] && seen[1] && seen[2];
}

static void decode_descr(struct nd_npy *npy)
{
    static const struct {
        const char *qvalue;
        enum nd_dtype dtype;
    } types[] = {
        {"f2", ND_DTYPE_F16}, {"f4", ND_DTYPE_F32}, {"f8", ND_DTYPE_F64}, {"i1", ND_DTYPE_I8},
        {"i2", ND_DTYPE_I16}, {"i4", ND_DTYPE_I32}, {"i8", ND_DTYPE_I64}, {"u1", ND_DTYPE_U8},
        {"u2", ND_DTYPE_U16}, {"u4", ND_DTYPE_U32}, {"u8", ND_DTYPE_U64}, {"b1", ND_DTYPE_BOOL},
    };
    char order = npy->descr[0];
    npy->dtype = ND_DTYPE_NONE;
    if (order == '\0' || strchr("<>|=", order) == NULL)
        return;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(npy->descr + 1, types[i].qvalue) == 0)
            npy->dtype = types[i].dtype;
    /* "|f4" has no byte order, and has a meaning for single bytes only. */
    if (order == '|' && nd_dtype_size_bytes(npy->dtype) != 1)
        npy->dtype = ND_DTYPE_NONE;
    npy->is_big_endian = order == '>' && nd_dtype_size_bytes(npy->dtype) > 1;
}

/* Sizes from the shape, checked against what is left of the source. */
static enum nd_status check_size(const struct nd_source *source, struct nd_npy *npy, struct nd_error *err)
{
    char shape[256];
    size_t n = 1, bytes;
    bool is_empty = false;
    for (int i = 0; i < npy->rank; i++)
        is_empty |= npy->dims[i] == 0;
    for (int i = 0; i < npy->rank && !is_empty; i++)
        if (!nd_size_mul(n, (size_t)npy->dims[i], &n))
            return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s has a shape %s that no memory can hold",
                           source->what, nd_npy_format_shape(npy, shape, sizeof shape));
    n = is_empty ? 0 : n;
    if (!nd_size_mul(n, nd_dtype_size_bytes(npy->dtype), &bytes))
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s has a shape %s that no memory can hold",
                       source->what, nd_npy_format_shape(npy, shape, sizeof shape));
    size_t n_left = source->size_bytes > source->n_read ? source->size_bytes - source->n_read : 0;
    if (bytes > n_left)
        return nd_fail(err, ND_E_FILE_SHORT, source->path,
                       "%s is cut off: %s of shape %s takes %zu bytes, %zu are there", source->what,
                       nd_dtype_name(npy->dtype), nd_npy_format_shape(npy, shape, sizeof shape), bytes, n_left);
    if (bytes < n_left)
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path,
                       "%s is longer than its header says: %s of shape %s takes %zu bytes, %zu are there",
                       source->what, nd_dtype_name(npy->dtype), nd_npy_format_shape(npy, shape, sizeof shape),
                       bytes, n_left);
    npy->n_elems = n;
    npy->size_bytes = bytes;
    return ND_OK;
}

/* The length of the dictionary, from the bytes before it. */
static enum nd_status read_length(struct nd_source *source, size_t *out, struct nd_error *err)
{
    unsigned char start[8], length[4];
    if (source->size_bytes - source->n_read < sizeof start)
        return nd_fail(err, source->size_bytes > 0 ? ND_E_PROBE_FORMAT : ND_E_FILE_SHORT, source->path,
                       "%s is not a .npy file: it has only %zu bytes", source->what, source->size_bytes);
    ND_TRY(nd_source_read(source, start, sizeof start, err));
    if (memcmp(start, "\x93NUMPY", 6) != 0)
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s is not a .npy file: it starts otherwise",
                       source->what);
    unsigned major = start[6], minor = start[7];
    if (major < 1 || major > 3 || minor != 0)
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path,
                       "%s has the .npy version %u.%u; 1.0, 2.0 and 3.0 are known", source->what, major, minor);
    ND_TRY(nd_source_read(source, length, major == 1 ? 2 : 4, err));
    size_t n = (size_t)length[0] | (size_t)length[1] << 8;
    if (major > 1)
        n |= (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (n > ND_NPY_MAX_HEADER_BYTES)
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path,
                       "%s has a .npy header of %zu bytes; at most %d are accepted", source->what, n,
                       ND_NPY_MAX_HEADER_BYTES);
    *out = n;
    return ND_OK;
}

enum nd_status nd_npy_open(struct nd_source *source, struct nd_npy *npy, struct nd_error *err)
{
    size_t n = 0;
    ND_TRY(read_length(source, &n, err));
    ND_FREED char *text = nd_calloc(n + 1, 1);
    ND_TRY_MEMORY(text != NULL, err);
    struct nd_npy made = {0};
    struct cursor cursor = {text};
    ND_TRY(nd_source_read(source, text, n, err));
    if (memchr(text, '\0', n) != NULL || !parse_dictionary(&cursor, &made))
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path,
                       "%s has a .npy header that cannot be understood at byte %zu of it", source->what,
                       (size_t)(cursor.at - text));
    if (made.rank > ND_NPY_MAX_RANK)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path, "%s has %d dimensions; at most %d are accepted",
                       source->what, made.rank, ND_NPY_MAX_RANK);
    decode_descr(&made);
    if (made.dtype != ND_DTYPE_NONE)
        ND_TRY(check_size(source, &made, err));
    *npy = made;
    return ND_OK;
}

/* ---- the data ---- */

static void swap_bytes(unsigned char *data, size_t n_elems, size_t size)
{
    for (size_t i = 0; i < n_elems; i++, data += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char kept = data[a];
            data[a] = data[b];
            data[b] = kept;
        }
}

/* Reads elements of which the first index runs fastest, and puts them where they are when the last one does. */
static enum nd_status read_fortran(struct nd_source *source, const struct nd_npy *npy, unsigned char *to,
                                   struct nd_error *err)
{
    enum { BLOCK_BYTES = 1 << 16 }; /* a multiple of every element's size */
    size_t size = nd_dtype_size_bytes(npy->dtype), stride[ND_NPY_MAX_RANK], step = 1, target = 0;
    int64_t index[ND_NPY_MAX_RANK] = {0};
    unsigned char block[BLOCK_BYTES];
    for (int d = npy->rank - 1; d >= 0; step *= (size_t)npy->dims[d--])
        stride[d] = step;
    for (size_t i = 0; i < npy->n_elems; i++) {
        size_t at = i * size % BLOCK_BYTES, n_left = npy->size_bytes - i * size;
        if (at == 0)
            ND_TRY(nd_source_read(source, block, n_left < BLOCK_BYTES ? n_left : BLOCK_BYTES, err));
        memcpy(to + target * size, block + at, size);
        for (int d = 0; d < npy->rank; d++) {
            target += stride[d];
            if (++index[d] < npy->dims[d])
                break;
            target -= stride[d] * (size_t)npy->dims[d];
            index[d] = 0;
        }
    }
    return ND_OK;
}

enum nd_status nd_npy_check_bools(const struct nd_source *source, const void *data, size_t n,
                                  struct nd_error *err)
{
    const unsigned char *bools = data;
    for (size_t i = 0; i < n; i++)
        if (bools[i] > 1)
            return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s has the bool %u at element %zu",
                           source->what, bools[i], i);
    return ND_OK;
}

enum nd_status nd_npy_read(struct nd_source *source, const struct nd_npy *npy, void *out, struct nd_error *err)
{
    ND_TRY(npy->is_fortran_order && npy->rank > 1 ? read_fortran(source, npy, out, err)
                                                  : nd_source_read(source, out, npy->size_bytes, err));
    ND_TRY(nd_source_finish(source, err));
    if (npy->is_big_endian)
        swap_bytes(out, npy->n_elems, nd_dtype_size_bytes(npy->dtype));
    return npy->dtype == ND_DTYPE_BOOL ? nd_npy_check_bools(source, out, npy->n_elems, err) : ND_OK;
}

char *nd_npy_format_shape(const struct nd_npy *npy, char *buf, size_t buf_size)
{
    size_t at = (size_t)snprintf(buf, buf_size, "(");
    for (int i = 0; i < npy->rank && at < buf_size; i++)
        at += (size_t)snprintf(buf + at, buf_size - at, i > 0 ? ", %lld" : "%lld", (long long)npy->dims[i]);
    if (at < buf_size)
        snprintf(buf + at, buf_size - at, npy->rank == 1 ? ",)" : ")");
    return buf;
}

char *nd_npy_format_dtype(const struct nd_npy *npy, char *buf, size_t buf_size)
{
    if (npy->dtype != ND_DTYPE_NONE)
        snprintf(buf, buf_size, "%s", nd_dtype_name(npy->dtype));
    else if (strcmp(npy->descr, "|O") == 0)
        snprintf(buf, buf_size, "an object array ('|O', a pickle), which is never loaded");
    else if (npy->descr[0] == '[')
        snprintf(buf, buf_size, "a structured type");
    else
        snprintf(buf, buf_size, "'%s'", npy->descr);
    return buf;
}
