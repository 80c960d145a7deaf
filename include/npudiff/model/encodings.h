/* Quantisation parameters by the name of a tensor, from whatever file states them: AIMET's encodings
 * (0.6.1, 1.0.0, 2.0.0, 2.1.0), the JSON of qnn-context-binary-utility, quantised ONNX models, captures.
 *
 * All are kept in ONNX's convention: real = scale * (quantised value - zero_point). AIMET before 2.0.0 and QNN
 * write real = scale * (quantised value + offset), with unsigned quantised values and an offset of at most 0. A
 * symmetric encoding of theirs with offset -2^(bits-1) (or one more: strictly symmetric) becomes a signed type
 * with zero point
 * -(offset + 2^(bits-1)); every other one becomes an unsigned type with zero point -offset. The real values
 * are the same either way.
 *
 * An encoding that npudiff does not apply (floats, blocks, scales of scales) is listed with the reason and
 * never approximated. Encodings do not change after reading; several threads may then read them.
 *
 * Example:
 *
 *     static enum nd_status quantise(const char *encodings_path, const struct nd_model *model, const char *out,
 *                                    struct nd_error *err)
 *     {
 *         struct nd_encodings *encodings = NULL;
 *         enum nd_status status = nd_encodings_read(encodings_path, &encodings, err);
 *         if (status == ND_OK)
 *             status = nd_encodings_apply(encodings, model, out, err);
 *         nd_encodings_destroy(&encodings);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_ENCODINGS_H
#define NPUDIFF_ENCODINGS_H

#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_encoding_role {
    ND_ENCODING_UNSTATED, /* AIMET 2.0.0 does not say it */
    ND_ENCODING_ACTIVATION,
    ND_ENCODING_PARAM,
};

/* "", "activation", "param". Static. */
ND_PUBLIC const char *nd_encoding_role_name(enum nd_encoding_role role);

struct nd_encoding {
    char *name; /* of the tensor */
    enum nd_encoding_role role;
    enum nd_dtype dtype; /* the smallest integer type of ours that holds the quantised values; NONE where it is
                            not handled */
    int bits;            /* 2..32; quantised values use no more of dtype than that; 0 where it is not handled */
    bool is_symmetric;   /* as stated, else: a signed type with zero points 0 */
    bool has_axis;       /* the file states the axis of several scales; 0.6.1 and 1.0.0 never do */
    struct nd_quant quant; /* n is 0 where the encoding is not handled */
    char *converted_from;  /* the tensor whose values these are, too, in other quantised values ("requantise" in
                              a model);  NULL: none */
    size_t n_readers;
    char **readers;  /* [n_readers] of a converted tensor: names of the nodes that read it */
    char *unhandled; /* why it is listed only ("float of 16 bits", "in blocks of 64"); NULL: it is handled */
};

struct nd_encodings;

/* Reads a JSON file of up to 512 MiB: AIMET's encodings or the output of qnn-context-binary-utility, told apart
 * by what they hold. AIMET 0.6.1 from torch names layers and their inputs and outputs: "layer.input[0]".
 * ND_ERR_IO; ND_ERR_FORMAT: no JSON (with line and column), neither of the two, a key that is missing or of
 * another type, a scale that is not finite and positive, a zero point outside of the quantised values, a bit
 * width outside of 2..32, lists of different length, a range that contradicts scale and offset, a tensor that
 * is described twice; ND_ERR_UNSUPPORTED: another version; ND_ERR_MEMORY. Messages name the file, the tensor
 * and the key. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_encodings_read(const char *path, struct nd_encodings **out, struct nd_error *err);

/* Makes encodings of a quantised model: of its tensors, and of the constants that it dequantises. */
ND_PUBLIC enum nd_status nd_encodings_of_model(const struct nd_model *model, struct nd_encodings **out,
                                               struct nd_error *err);

/* Makes an empty set of encodings, to which tensors can be added. source says where they come from ("capture"),
 * path from which file. */
ND_PUBLIC enum nd_status nd_encodings_create(const char *path, const char *source, struct nd_encodings **out,
                                             struct nd_error *err);

/* Adds the tensor's quantisation under its name; a tensor of floats is passed over. ND_ERR_FORMAT for a name
 * that is there already. */
ND_PUBLIC enum nd_status nd_encodings_add_tensor(struct nd_encodings *encodings, const struct nd_tensor *tensor,
                                                 struct nd_error *err);

ND_PUBLIC void nd_encodings_destroy(struct nd_encodings **encodings);

ND_PUBLIC const char *nd_encodings_path(const struct nd_encodings *encodings);
ND_PUBLIC const char *nd_encodings_source(const struct nd_encodings *encodings); /* "AIMET 1.0.0", "QNN", ... */
ND_PUBLIC size_t nd_encodings_n(const struct nd_encodings *encodings);
ND_PUBLIC const struct nd_encoding *nd_encodings_at(const struct nd_encodings *encodings,
                                                    size_t i);                              /* as read */
ND_PUBLIC size_t nd_encodings_find(const struct nd_encodings *encodings, const char *name); /* SIZE_MAX: none */

/* ---- writing ---- */

enum nd_encodings_format {
    ND_ENCODINGS_AIMET,     /* AIMET 1.0.0: for AIMET, and for --quantization_overrides of QNN's converters */
    ND_ENCODINGS_OVERRIDES, /* {"TENSOR": [{"quant_type": "QUInt8", "scale": ..., "zero_point": ...}]}: the
                               value of TensorQuantOverrides of ONNX Runtime's quantiser, with types by name.
                               int32 has no name there, so that biases are left out. What some nodes read in
                               other quantised values is {"convert": {"quant_type", "scale", "zero_point",
                               "recv_nodes"}} there; AIMET's format has one encoding of each tensor: that in
                               which it is made
                             */
};

/* Those that are handled. ND_ERR_IO (ND_E_FILE_EXISTS without replace), ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_encodings_write(const struct nd_encodings *encodings,
                                            enum nd_encodings_format format, const char *path, bool replace,
                                            struct nd_error *err);

/* ---- applying ---- */

/* Adds what follows from the encodings that are there, and that AIMET exports in version 2.0.0 but not in older
 * ones: the output of an operator that only moves values (MaxPool, Flatten, Reshape, Transpose, ...) has the
 * encoding of its input; the constant bias of a Conv, ConvTranspose or Gemm is int32 with the scale of input
 * times weight. In graph order; what is described already stays. With it every layer of the model has quantised
 * values on all its tensors, which NPU providers need. Not thread-safe. *n_added: how many. ND_ERR_FORMAT where
 * a product of scales underflows; the encodings hold those added before then. */
ND_PUBLIC enum nd_status nd_encodings_complete(struct nd_encodings *encodings, const struct nd_model *model,
                                               size_t *n_added, struct nd_error *err);

/* An encoding that is not applied to a model. Strings are borrowed from the encodings, or static. */
struct nd_encodings_omission {
    const char *name;
    const char *why;
    bool is_unknown; /* the model has no such tensor */
};

struct nd_encodings_match {
    size_t n_applicable;
    size_t n_omitted;
    struct nd_encodings_omission *omitted; /* in the order of the encodings */
};

/* Which encodings fit the model by name and kind. */
ND_PUBLIC enum nd_status nd_encodings_match(const struct nd_encodings *encodings, const struct nd_model *model,
                                            struct nd_encodings_match *out, struct nd_error *err);
ND_PUBLIC void nd_encodings_match_deinit(struct nd_encodings_match *match);

/* Writes a copy of the float model in QDQ form with every encoding that nd_encodings_match does not omit: a
 * constant becomes quantised values and a DequantizeLinear; every other tensor gets a QuantizeLinear and a
 * DequantizeLinear behind it. A bias without an encoding stays float, as in AIMET's simulation.
 * ND_ERR_NOT_FOUND when nothing is applicable; ND_ERR_UNSUPPORTED: the model is quantised already, a constant
 * is no float32, or an activation has neither 8 nor 16 bits; ND_ERR_FORMAT (ND_E_ENCODINGS_MISMATCH): an
 * encoding does not fit its tensor; ND_ERR_IO. */
ND_PUBLIC enum nd_status nd_encodings_apply(const struct nd_encodings *encodings, const struct nd_model *model,
                                            const char *path, struct nd_error *err);

/* ---- comparing ---- */

struct nd_encoding_difference {
    const struct nd_encoding *ref;  /* NULL: only test has the tensor; both borrowed */
    const struct nd_encoding *test; /* NULL: only ref has it */
    bool is_same;       /* the same reals: all scales within rtol, the same zero points counted from the
                           lowest quantised value, as many bits; uint8 with 128 is int8 with 0 */
    bool is_comparable; /* both are there, handled, and have as many scales, or one of them one */
    double min_ratio;   /* of scales, test / ref; NaN unless comparable */
    double largest_ratio;
    int64_t zero_point_difference; /* test - ref, counted from the lowest quantised value; of the largest
                                      magnitude */
};

struct nd_encodings_diff {
    size_t n_same, n_different, n_only_ref, n_only_test;
    size_t n_items;
    struct nd_encoding_difference *items; /* in the order of ref, then what only test has */
};

/* Compares two sets of encodings tensor by tensor. Scales count as the same when they differ by at most rtol
 * (>= 0) times ref's scale; 0 demands the same float32. An encoding that is not handled on either side is
 * different unless both sides say the same. */
ND_PUBLIC enum nd_status nd_encodings_compare(const struct nd_encodings *ref, const struct nd_encodings *test,
                                              double rtol, struct nd_encodings_diff *out, struct nd_error *err);
ND_PUBLIC void nd_encodings_diff_deinit(struct nd_encodings_diff *diff);

#ifdef __cplusplus
}
#endif
#endif
