/* Encodings as they are built while a file is read. */
#ifndef ND_ENCODINGS_BUILDING_H
#define ND_ENCODINGS_BUILDING_H

#include <jansson.h>

#include "core/error.h"
#include "core/text/names.h"
#include "npudiff/model/encodings.h"

struct nd_encodings {
    char *path;
    char *source;
    struct nd_encoding *items;
    size_t n, capacity;
    struct nd_names names; /* of items, each allocated apart */
};

/* One affine encoding as a file states it, in the ONNX convention already. */
struct nd_stated {
    const char *name;
    enum nd_encoding_role role;
    int bits;
    bool is_signed;
    bool is_symmetric;
    bool has_axis;
    int axis;
    size_t n;
    const double *scales;
    const double *zero_points;
};

/* Adds it after checking it. ND_E_ENCODINGS_FORMAT naming file and tensor. */
enum nd_status nd_encodings_add(struct nd_encodings *encodings, const struct nd_stated *stated,
                                struct nd_error *err);

/* Adds one that is listed only. */
enum nd_status nd_encodings_add_unhandled(struct nd_encodings *encodings, const char *name,
                                          enum nd_encoding_role role, const char *why, struct nd_error *err);

/* conversions.c: says of encodings of the model's edges which are conversions of others. ND_ERR_MEMORY. */
enum nd_status nd_encodings_find_conversions(struct nd_encodings *encodings, const struct nd_model *model,
                                             struct nd_error *err);

/* ---- JSON ---- */

/* Fails with "'<file>': tensor '<tensor>': key '<key>' <what>". */
enum nd_status nd_encodings_fail(const struct nd_encodings *encodings, const char *tensor, const char *key,
                                 struct nd_error *err, const char *fmt, ...) ND_PRINTF(5, 6);

/* An object of the file, and the tensor that it describes. */
struct nd_described {
    const struct nd_encodings *encodings;
    const char *tensor; /* for messages; nullable */
    const json_t *object;
};

/* The member as a number, a whole number, a text; ND_E_ENCODINGS_FORMAT when it is missing or another thing. */
enum nd_status nd_encodings_number(const struct nd_described *at, const char *key, double *out,
                                   struct nd_error *err);
enum nd_status nd_encodings_whole(const struct nd_described *at, const char *key, int low, int high, int *out,
                                  struct nd_error *err);
enum nd_status nd_encodings_text(const struct nd_described *at, const char *key, const char **out,
                                 struct nd_error *err);

/* The member as *n numbers in new memory: a number counts as one. It is NULL, and *n 0, for a list of lists. */
enum nd_status nd_encodings_numbers(const struct nd_described *at, const char *key, double **out, size_t *n,
                                    struct nd_error *err);

enum nd_status nd_encodings_read_aimet_0(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err);
enum nd_status nd_encodings_read_aimet_1(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err);
enum nd_status nd_encodings_read_aimet_2(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err);
enum nd_status nd_encodings_read_qnn(struct nd_encodings *encodings, const json_t *root, struct nd_error *err);

/* Adds one encoding by scale and offset, real = scale * (unsigned code + offset). */
enum nd_status nd_encodings_add_offset(struct nd_encodings *encodings, struct nd_stated *stated,
                                       double *offsets, struct nd_error *err);

#endif
