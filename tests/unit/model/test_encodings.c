/* Encodings of other tools: what is read, in which convention, what is refused and how; and models made with
 * them. */
#include "support/main.h"

#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "npudiff/model/encodings.h"
#include "onnx.pb-c.h"
#include "support/assert_text.h"
#include "support/scratch.h"

/* Writes the text as a file of the test's folder; its path. */
static char *file_of(const char *name, const char *text)
{
    char *path = in_folder(name);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    return path;
}

static struct nd_encodings *read_text(const char *text)
{
    struct nd_error err = {0};
    struct nd_encodings *encodings = NULL;
    char *path = file_of("some.encodings", text);
    expect_ok(nd_encodings_read(path, &encodings, &err), &err);
    free(path);
    return encodings;
}

static const struct nd_encoding *item_of(const struct nd_encodings *encodings, const char *name)
{
    size_t i = nd_encodings_find(encodings, name);
    assert_int_not_equal(i, SIZE_MAX);
    return nd_encodings_at(encodings, i);
}

static void assert_encoding(const struct nd_encoding *item, enum nd_dtype dtype, int bits, float scale,
                            int64_t zero)
{
    assert_int_equal(item->dtype, dtype);
    assert_int_equal(item->bits, bits);
    assert_f32_bits(item->quant.scale[0], scale);
    assert_int_equal(item->quant.zero_point[0], zero);
    assert_null(item->unhandled);
}

/* ---- what is read ---- */

static void aimet_0_offsets_become_zero_points(void **state)
{
    (void)state;
    struct nd_encodings *e = read_text(
        "{\"version\":\"0.6.1\",\"activation_encodings\":{"
        "\"a\":[{\"bitwidth\":8,\"dtype\":\"int\",\"is_symmetric\":\"False\",\"min\":-1.0,\"max\":1.55,"
        "\"offset\":-100,\"scale\":0.01}],"
        "\"s\":[{\"bitwidth\":16,\"dtype\":\"int\",\"is_symmetric\":\"True\",\"offset\":-32768.0,\"scale\":0.5}"
        "],"
        "\"u\":[{\"bitwidth\":8,\"dtype\":\"int\",\"is_symmetric\":true,\"offset\":0,\"scale\":0.5}],"
        "\"f\":[{\"bitwidth\":16,\"dtype\":\"float\"}],"
        "\"layer\":{\"input\":{\"0\":{\"bitwidth\":8,\"is_symmetric\":\"False\",\"offset\":-3,\"scale\":2}},"
        "\"output\":{}}},"
        "\"param_encodings\":{\"w\":[{\"bitwidth\":8,\"is_symmetric\":\"True\",\"offset\":-128,\"scale\":0.25},"
        "{\"bitwidth\":8,\"is_symmetric\":\"True\",\"offset\":-127,\"scale\":0.125}],"
        "\"n\":[{\"bitwidth\":4,\"is_symmetric\":\"True\",\"offset\":-8,\"scale\":0.25}]}}");
    assert_int_equal(nd_encodings_n(e), 7);
    assert_string_equal(nd_encodings_source(e), "AIMET 0.6.1");
    assert_encoding(item_of(e, "a"), ND_DTYPE_U8, 8, 0.01f, 100);
    assert_encoding(item_of(e, "s"), ND_DTYPE_I16, 16, 0.5f, 0);
    assert_encoding(item_of(e, "u"), ND_DTYPE_U8, 8, 0.5f, 0); /* symmetric, yet unsigned */
    assert_encoding(item_of(e, "layer.input[0]"), ND_DTYPE_U8, 8, 2.0f, 3);
    assert_encoding(item_of(e, "n"), ND_DTYPE_I4, 4, 0.25f, 0);
    assert_string_equal(item_of(e, "f")->unhandled, "float of 16 bits");
    const struct nd_encoding *w = item_of(e, "w");
    assert_encoding(w, ND_DTYPE_I8, 8, 0.25f, 0);
    assert_int_equal(w->quant.n, 2);
    assert_int_equal(w->quant.zero_point[1], -1); /* strictly symmetric: quantised value 0 of 0..254 is -128 */
    assert_int_equal(w->role, ND_ENCODING_PARAM);
    assert_false(w->has_axis);
    nd_encodings_destroy(&e);
}

static void aimet_1_lists_are_read(void **state)
{
    (void)state;
    struct nd_encodings *e =
        read_text("{\"version\":\"1.0.0\",\"activation_encodings\":["
                  "{\"name\":\"a\",\"enc_type\":\"PER_TENSOR\",\"dtype\":\"INT\",\"bw\":16,\"is_sym\":false,"
                  "\"scale\":[0.5],\"offset\":[-7]},"
                  "{\"name\":\"h\",\"enc_type\":\"PER_TENSOR\",\"dtype\":\"FLOAT\",\"bw\":16}],"
                  "\"param_encodings\":["
                  "{\"name\":\"w\",\"enc_type\":\"PER_CHANNEL\",\"dtype\":\"INT\",\"bw\":8,\"is_sym\":true,"
                  "\"scale\":[1,2],\"offset\":[-128,-128]},"
                  "{\"name\":\"b\",\"enc_type\":\"PER_BLOCK\",\"dtype\":\"INT\",\"bw\":4,\"is_sym\":true,"
                  "\"block_size\":64,\"scale\":[1,2],\"offset\":[-8,-8]},"
                  "{\"name\":\"l\",\"enc_type\":\"LPBQ\",\"dtype\":\"INT\",\"bw\":8,\"compressed_bw\":4,\"is_"
                  "sym\":true,\"block_size\":32,"
                  "\"per_block_int_scale\":[1],\"scale\":[1],\"offset\":[-128]}]}");
    assert_encoding(item_of(e, "a"), ND_DTYPE_U16, 16, 0.5f, 7);
    assert_encoding(item_of(e, "w"), ND_DTYPE_I8, 8, 1.0f, 0);
    assert_string_equal(item_of(e, "h")->unhandled, "float of 16 bits");
    assert_string_equal(item_of(e, "b")->unhandled, "in blocks of 64 (PER_BLOCK)");
    assert_string_equal(item_of(e, "l")->unhandled, "in blocks of 32 (LPBQ)");
    nd_encodings_destroy(&e);
}

static void aimet_2_is_onnx_already(void **state)
{
    (void)state;
    struct nd_encodings *e =
        read_text("{\"version\":\"2.0.0\",\"encodings\":["
                  "{\"name\":\"a\",\"output_dtype\":\"uint8\",\"y_scale\":0.5,\"y_zero_point\":7},"
                  "{\"name\":\"b\",\"output_dtype\":\"int32\",\"y_scale\":[1,2],\"axis\":0},"
                  "{\"name\":\"c\",\"output_dtype\":\"uint6\",\"y_scale\":[4],\"y_zero_point\":[63]},"
                  "{\"name\":\"k\",\"output_dtype\":\"int4\",\"y_scale\":[[1,2]],\"axis\":0,\"block_size\":2},"
                  "{\"name\":\"h\",\"output_dtype\":\"float8e4m3fn\",\"y_scale\":1},"
                  "{\"name\":\"z\",\"output_dtype\":\"int2\",\"y_scale\":1,\"y_zero_point\":-0.5}]}");
    assert_encoding(item_of(e, "a"), ND_DTYPE_U8, 8, 0.5f, 7);
    assert_encoding(item_of(e, "b"), ND_DTYPE_I32, 32, 1.0f, 0);
    assert_true(item_of(e, "b")->has_axis);
    assert_encoding(item_of(e, "c"), ND_DTYPE_U8, 6, 4.0f, 63);
    assert_string_equal(item_of(e, "k")->unhandled, "in blocks of 2");
    assert_string_equal(item_of(e, "h")->unhandled, "of type float8e4m3fn");
    assert_string_equal(item_of(e, "z")->unhandled, "a zero point between two quantised values");
    nd_encodings_destroy(&e);
    e = read_text("{\"version\":\"2.1.0\",\"activation_encodings\":[{\"name\":\"a\",\"output_dtype\":\"int8\","
                  "\"y_scale\":2}],"
                  "\"param_encodings\":[{\"name\":\"w\",\"output_dtype\":\"int4\",\"y_scale\":{\"x\":[1],\"x_"
                  "scale\":2}}]}");
    assert_encoding(item_of(e, "a"), ND_DTYPE_I8, 8, 2.0f, 0);
    assert_int_equal(item_of(e, "a")->role, ND_ENCODING_ACTIVATION);
    assert_string_equal(item_of(e, "w")->unhandled, "with scales that are quantised themselves");
    nd_encodings_destroy(&e);
}

static void qnn_offsets_are_added(void **state)
{
    (void)state;
    struct nd_encodings *e =
        read_text("{\"info\":{\"graphs\":[{\"info\":{\"graphName\":\"g\",\"graphInputs\":["
                  "{\"info\":{\"name\":\"x\",\"dataType\":\"QNN_DATATYPE_UFIXED_POINT_8\",\"quantizeParams\":{"
                  "\"scaleOffset\":{\"scale\":0.5,\"offset\":-128}}}},"
                  "{\"info\":{\"name\":\"f\",\"dataType\":\"QNN_DATATYPE_FLOAT_32\",\"quantizeParams\":{}}}],"
                  "\"graphOutputs\":["
                  "{\"info\":{\"name\":\"y\",\"dataType\":1046,\"quantizeParams\":{\"scaleOffsetEncoding\":{"
                  "\"scale\":0.25,\"offset\":0}}}},"
                  "{\"info\":{\"name\":\"c\",\"dataType\":\"QNN_DATATYPE_SFIXED_POINT_8\",\"quantizeParams\":{"
                  "\"axisScaleOffset\":"
                  "{\"axis\":3,\"numScaleOffsets\":2,\"scaleOffset\":[{\"scale\":1,\"offset\":0},{\"scale\":2,"
                  "\"offset\":5}]}}}},"
                  "{\"info\":{\"name\":\"b\",\"dataType\":\"QNN_DATATYPE_SFIXED_POINT_8\",\"quantizeParams\":{"
                  "\"quantizationEncoding\":\"QNN_QUANTIZATION_ENCODING_BLOCK\"}}}"
                  "]}},{\"info\":{\"graphInputs\":[{\"info\":{\"name\":\"x\",\"dataType\":1032,"
                  "\"quantizeParams\":{\"scaleOffset\":{\"scale\":0.5,\"offset\":-128}}}}]}}]}}");
    assert_int_equal(nd_encodings_n(e), 4); /* floats are none; x of the second graph is the same */
    assert_encoding(item_of(e, "x"), ND_DTYPE_U8, 8, 0.5f, 128);
    assert_encoding(item_of(e, "y"), ND_DTYPE_U16, 16, 0.25f, 0);
    assert_int_equal(item_of(e, "c")->quant.zero_point[1], -5);
    assert_int_equal(item_of(e, "c")->quant.axis, 3);
    assert_string_equal(item_of(e, "b")->unhandled, "QNN_QUANTIZATION_ENCODING_BLOCK");
    nd_encodings_destroy(&e);
}

/* ---- what is refused ---- */

#define ACTIVATION(members)                                                                                    \
    "{\"version\":\"1.0.0\",\"activation_encodings\":[{\"name\":\"t\",\"enc_type\":\"PER_TENSOR\",\"dtype\":"  \
    "\"INT\"," members "}],\"param_encodings\":[]}"
#define OLD(members)                                                                                           \
    "{\"version\":\"0.6.1\",\"activation_encodings\":{\"t\":[{" members "}]},\"param_encodings\":{}}"

static const struct {
    const char *text;
    const char *message; /* a part of it, behind the file's name */
} refused[] = {
    {"", "line 1, column 0: no JSON: the file is empty"},
    {"{\"version\":\n \"1.0.0\",}", "line 2, column 10: no JSON"},
    {"[1]", "holds neither AIMET encodings"},
    {"{\"version\":3}", "holds neither AIMET encodings"},
    {"{\"version\":\"3.0.0\"}", "key 'version' is '3.0.0', expected 0.6.1, 1.0.0, 2.0.0 or 2.1.0"},
    {"{\"version\":\"0.6.1\",\"activation_encodings\":{\"t\":[],\"t\":[]}}", "described twice"},
    {"{\"version\":\"0.6.1\",\"activation_encodings\":{\"t\":[]}}", "tensor 't' has no encoding"},
    {"{\"version\":\"0.6.1\"}", "key 'activation_encodings' is missing"},
    {"{\"version\":\"1.0.0\",\"activation_encodings\":{}}", "key 'activation_encodings' is another thing"},
    {"{\"version\":\"2.0.0\"}", "key 'activation_encodings' is missing, expected a list"},
    {OLD("\"bitwidth\":33,\"scale\":1,\"offset\":0"),
     "tensor 't': key 'bitwidth' is 33, expected a whole number from 2 to 32"},
    {OLD("\"bitwidth\":8.5,\"scale\":1,\"offset\":0"), "key 'bitwidth' is 8.5"},
    {OLD("\"bitwidth\":8,\"scale\":\"1\",\"offset\":0"),
     "tensor 't': key 'scale' is a text, expected a number"},
    {OLD("\"bitwidth\":8,\"offset\":0"), "tensor 't': key 'scale' is missing"},
    {OLD("\"bitwidth\":8,\"scale\":0,\"offset\":0"), "tensor 't': scale 0 is 0, expected a positive float32"},
    {OLD("\"bitwidth\":8,\"scale\":-1,\"offset\":0"), "scale 0 is -1"},
    {OLD("\"bitwidth\":8,\"scale\":1e-60,\"offset\":0"), "scale 0 is 1e-60"},
    {OLD("\"bitwidth\":8,\"scale\":NaN,\"offset\":0"), "no JSON"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":1"),
     "tensor 't': zero point 0 is -1, outside of the quantised values 0..255"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":-256"), "zero point 0 is 256"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":-5,\"min\":3"),
     "key 'min' is 3, and scale 1 with offset -5 give -5"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":-5,\"max\":3"),
     "key 'max' is 3, and scale 1 with offset -5 give 250"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":0,\"is_symmetric\":\"yes\""), "key 'is_symmetric'"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":0,\"dtype\":\"bool\""), "key 'dtype' is 'bool'"},
    {OLD("\"bitwidth\":8,\"scale\":1,\"offset\":0},{\"bitwidth\":4,\"scale\":1,\"offset\":0"), "of channel 1"},
    {ACTIVATION("\"bw\":8,\"is_sym\":false,\"scale\":[1,2],\"offset\":[0,0]"),
     "has 2 numbers, and 'enc_type' is PER_TENSOR"},
    {ACTIVATION("\"bw\":8,\"is_sym\":false,\"scale\":[1],\"offset\":[0,0]"),
     "key 'offset' has 2 numbers, and 'scale' has 1"},
    {ACTIVATION("\"bw\":8,\"is_sym\":false,\"scale\":[],\"offset\":[0]"), "key 'scale' is an empty list"},
    {ACTIVATION("\"bw\":8,\"is_sym\":false,\"scale\":[null],\"offset\":[0]"), "has null as element 0"},
    {ACTIVATION("\"bw\":8,\"scale\":[1],\"offset\":[0]"), "key 'is_sym' is missing"},
    {ACTIVATION("\"bw\":64,\"is_sym\":false,\"scale\":[1],\"offset\":[0]"), "key 'bw' is 64"},
    {"{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"t\",\"output_dtype\":\"int33\",\"y_scale\":1}]}",
     "key 'output_dtype' is 'int33'"},
    {"{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"t\",\"output_dtype\":\"int8\",\"y_scale\":1,\"y_zero_"
     "point\":[1,2]}]}",
     "key 'y_zero_point' has 2 numbers, and 'y_scale' has 1"},
    {"{\"version\":\"2.0.0\",\"encodings\":[{\"output_dtype\":\"int8\",\"y_scale\":1}]}",
     "key 'name' is missing"},
    {"{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"t\",\"output_dtype\":\"int8\",\"y_scale\":1},"
     "{\"name\":\"t\",\"output_dtype\":\"int8\",\"y_scale\":1}]}",
     "tensor 't' is described twice"},
    {"{\"info\":{\"graphs\":[{\"info\":{\"graphInputs\":[{\"info\":{\"name\":\"x\",\"dataType\":1032,"
     "\"quantizeParams\":"
     "{\"scaleOffset\":{\"scale\":0.5,\"offset\":128}}}}]}}]}}",
     "tensor 'x': zero point 0 is -128"},
};

static void contradictions_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct nd_error err = {0};
        struct nd_encodings *encodings = NULL;
        char *path = file_of("bad.encodings", refused[i].text);
        enum nd_status status = nd_encodings_read(path, &encodings, &err);
        if (status == ND_OK)
            fail_msg("accepted: %s", refused[i].text);
        assert_has(err.message, refused[i].message);
        assert_has(err.message, "bad.encodings");
        assert_null(encodings);
        free(path);
    }
}

/* A file cut off, or with one byte flipped, anywhere: an error or other encodings, never a crash. */
static void damaged_files_are_survived(void **state)
{
    (void)state;
    const char *golden = getenv("GOLDEN");
    char *path = nd_path_join(golden, "encodings/cnn.per-tensor.0.6.1.encodings"),
         *damaged = in_folder("damaged");
    void *text = NULL;
    size_t n, n_refused = 0;
    assert_int_equal(nd_file_read(path, 1 << 20, &text, &n, NULL), ND_OK);
    char *bytes = text;
    for (size_t i = 0; i < n; i += 3) {
        struct nd_encodings *encodings = NULL;
        char kept = bytes[i];
        bytes[i] = (char)(kept ^ (1 << (i % 7)));
        assert_int_equal(nd_file_put(damaged, bytes, i % 2 == 0 ? n : i, NULL), ND_OK);
        n_refused += nd_encodings_read(damaged, &encodings, NULL) != ND_OK;
        nd_encodings_destroy(&encodings);
        bytes[i] = kept;
    }
    assert_true(n_refused > n / 8);
    free(text);
    free(path);
    free(damaged);
}

/* ---- comparing ---- */

static struct nd_encodings_diff compare_texts(const char *ref, const char *test, double rtol,
                                              struct nd_encodings *pair[2])
{
    struct nd_error err = {0};
    struct nd_encodings_diff diff;
    pair[0] = read_text(ref);
    pair[1] = read_text(test);
    expect_ok(nd_encodings_compare(pair[0], pair[1], rtol, &diff, &err), &err);
    return diff;
}

static void differences_are_found(void **state)
{
    (void)state;
    struct nd_encodings *pair[2];
    struct nd_encodings_diff diff =
        compare_texts("{\"version\":\"2.0.0\",\"encodings\":["
                      "{\"name\":\"same\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"signed\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"scale\",\"output_dtype\":\"int8\",\"y_scale\":[2,2],\"axis\":0},"
                      "{\"name\":\"zero\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"bits\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"left\",\"output_dtype\":\"int8\",\"y_scale\":1}]}",
                      "{\"version\":\"2.0.0\",\"encodings\":["
                      "{\"name\":\"right\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"same\",\"output_dtype\":\"int8\",\"y_scale\":1},"
                      "{\"name\":\"signed\",\"output_dtype\":\"uint8\",\"y_scale\":1,\"y_zero_point\":128},"
                      "{\"name\":\"scale\",\"output_dtype\":\"int8\",\"y_scale\":[1,4],\"axis\":0},"
                      "{\"name\":\"zero\",\"output_dtype\":\"uint8\",\"y_scale\":1,\"y_zero_point\":125},"
                      "{\"name\":\"bits\",\"output_dtype\":\"int16\",\"y_scale\":1}]}",
                      0, pair);
    assert_int_equal(diff.n_same, 2);
    assert_int_equal(diff.n_different, 3);
    assert_int_equal(diff.n_only_ref, 1);
    assert_int_equal(diff.n_only_test, 1);
    assert_true(diff.items[1].is_same); /* int8 with 0 is uint8 with 128 */
    assert_f64_bits(diff.items[2].min_ratio, 0.5);
    assert_f64_bits(diff.items[2].largest_ratio, 2.0);
    assert_int_equal(diff.items[3].zero_point_difference, -3);
    assert_false(diff.items[4].is_same);
    assert_null(diff.items[5].test);
    assert_null(diff.items[6].ref);
    nd_encodings_diff_deinit(&diff);
    nd_encodings_destroy(&pair[0]);
    nd_encodings_destroy(&pair[1]);
}

static void tolerance_is_of_the_reference(void **state)
{
    (void)state;
    const char *one =
        "{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"t\",\"output_dtype\":\"int8\",\"y_scale\":1}]}";
    const char *near_one =
        "{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"t\",\"output_dtype\":\"int8\",\"y_scale\":1.001}]}";
    for (int i = 0; i < 2; i++) {
        struct nd_encodings *pair[2];
        struct nd_encodings_diff diff = compare_texts(one, near_one, i == 0 ? 0.0009 : 0.0011, pair);
        assert_int_equal(diff.n_same, i);
        nd_encodings_diff_deinit(&diff);
        nd_encodings_destroy(&pair[0]);
        nd_encodings_destroy(&pair[1]);
    }
}

/* ---- applying ---- */

static struct nd_model *golden_model(const char *name)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    char *path = nd_path_join(getenv("GOLDEN"), name);
    expect_ok(nd_model_load(path, &model, &err), &err);
    free(path);
    return model;
}

static struct nd_encodings *golden_encodings(const char *name)
{
    struct nd_error err = {0};
    struct nd_encodings *encodings = NULL;
    char *path = nd_path_join(getenv("GOLDEN"), name);
    expect_ok(nd_encodings_read(path, &encodings, &err), &err);
    free(path);
    return encodings;
}

/* What is read back from the model is what the file said, under the same names. */
static void applied_encodings_are_those_of_the_model(void **state)
{
    (void)state;
    static const char *const versions[] = {"0.6.1", "1.0.0", "2.0.0"};
    struct nd_model *model = golden_model("models/cnn.float.onnx");
    char *path = in_folder("qdq.onnx");
    for (size_t v = 0; v < 3; v++) {
        struct nd_error err = {0};
        struct nd_model *made = NULL;
        struct nd_encodings *back = NULL;
        struct nd_encodings_diff diff;
        char name[64];
        snprintf(name, sizeof name, "encodings/cnn.w8a16.%s.encodings", versions[v]);
        struct nd_encodings *encodings = golden_encodings(name);
        expect_ok(nd_encodings_apply(encodings, model, path, &err), &err);
        expect_ok(nd_model_load(path, &made, &err), &err);
        expect_ok(nd_encodings_of_model(made, &back, &err), &err);
        expect_ok(nd_encodings_compare(encodings, back, 0, &diff, &err), &err);
        assert_int_equal(diff.n_same, nd_encodings_n(encodings));
        assert_int_equal(diff.n_same, diff.n_items);
        nd_encodings_diff_deinit(&diff);
        nd_encodings_destroy(&back);
        nd_encodings_destroy(&encodings);
        nd_model_destroy(&made);
    }
    nd_model_destroy(&model);
    free(path);
}

static Onnx__ModelProto *unpack(const char *path)
{
    void *bytes = NULL;
    size_t n;
    assert_int_equal(nd_file_read(path, 1 << 24, &bytes, &n, NULL), ND_OK);
    Onnx__ModelProto *proto = onnx__model_proto__unpack(NULL, n, bytes);
    assert_non_null(proto);
    free(bytes);
    return proto;
}

/* The golden model as if it were of another opset, in a file. */
static char *with_opset(int64_t opset)
{
    char *from = nd_path_join(getenv("GOLDEN"), "models/cnn.float.onnx"), *to = in_folder("old.onnx");
    Onnx__ModelProto *proto = unpack(from);
    proto->opset_import[0]->version = opset;
    size_t n = onnx__model_proto__get_packed_size(proto);
    uint8_t *bytes = malloc(n);
    onnx__model_proto__pack(proto, bytes);
    assert_int_equal(nd_file_put(to, bytes, n, NULL), ND_OK);
    onnx__model_proto__free_unpacked(proto, NULL);
    free(bytes);
    free(from);
    return to;
}

/* How many nodes of a domain are QuantizeLinear or DequantizeLinear. */
static size_t n_quantising(const struct nd_model *model, const char *domain)
{
    size_t n = 0;
    for (size_t i = 0; i < nd_model_n_nodes(model); i++) {
        const struct nd_model_node *node = nd_model_node(model, i);
        n += strstr(node->op_type, "quantizeLinear") != NULL && strcmp(node->domain, domain) == 0;
        n += strcmp(node->op_type, "QuantizeLinear") == 0 && strcmp(node->domain, domain) == 0;
    }
    return n;
}

/* What the opset cannot express is said in ONNX Runtime's domain: the opset stays, and so does what the other
 * operators mean. */
static void an_old_opset_stays(void **state)
{
    (void)state;
    static const struct {
        int64_t opset;
        const char *encodings;
        size_t n_default, n_contrib;
    } cases[] = {
        {21, "encodings/cnn.w8a16.1.0.0.encodings", 23, 0},
        {20, "encodings/cnn.w8a16.1.0.0.encodings", 5, 18}, /* 5 weights of 8 bits */
        {13, "encodings/cnn.per-channel.1.0.0.encodings", 23, 0},
        {12, "encodings/cnn.per-channel.1.0.0.encodings", 18, 5}, /* weights have an axis */
        {9, "encodings/cnn.per-tensor.1.0.0.encodings", 0, 23},
    };
    char *path = in_folder("qdq.onnx");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err = {0};
        struct nd_model *old = NULL, *made = NULL;
        struct nd_encodings *encodings = golden_encodings(cases[i].encodings);
        char *old_path = with_opset(cases[i].opset);
        expect_ok(nd_model_load(old_path, &old, &err), &err);
        expect_ok(nd_encodings_apply(encodings, old, path, &err), &err);
        expect_ok(nd_model_load(path, &made, &err), &err);
        assert_int_equal(nd_model_opset(made), cases[i].opset);
        assert_int_equal(n_quantising(made, ""), cases[i].n_default);
        assert_int_equal(n_quantising(made, "com.microsoft"), cases[i].n_contrib);
        nd_model_destroy(&made);
        nd_model_destroy(&old);
        nd_encodings_destroy(&encodings);
        free(old_path);
    }
    free(path);
}

static const uint8_t *raw_data(const Onnx__ModelProto *proto, const char *name)
{
    for (size_t i = 0; i < proto->graph->n_initializer; i++)
        if (strcmp(proto->graph->initializer[i]->name, name) == 0)
            return proto->graph->initializer[i]->raw_data.data;
    fail_msg("no initializer '%s'", name);
    return NULL;
}

/* The quantised value of the first weight with a scale of `factor` times its magnitude. */
static int first_qvalue(float factor, const char *dtype, bool *is_negative)
{
    struct nd_error err = {0};
    char text[256], *float_path = nd_path_join(getenv("GOLDEN"), "models/cnn.float.onnx"),
                    *path = in_folder("w.onnx");
    float weight;
    Onnx__ModelProto *proto = unpack(float_path);
    memcpy(&weight, raw_data(proto, "stem.weight"), sizeof weight);
    onnx__model_proto__free_unpacked(proto, NULL);
    *is_negative = weight < 0;
    snprintf(text, sizeof text,
             "{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"stem.weight\",\"output_dtype\":\"%s\",\"y_"
             "scale\":%.17g}]}",
             dtype, (double)((weight < 0 ? -weight : weight) * factor));
    struct nd_encodings *encodings = read_text(text);
    struct nd_model *model = golden_model("models/cnn.float.onnx");
    expect_ok(nd_encodings_apply(encodings, model, path, &err), &err);
    proto = unpack(path);
    int qvalue = (int8_t)raw_data(proto, "stem.weight_quantized")[0];
    onnx__model_proto__free_unpacked(proto, NULL);
    nd_model_destroy(&model);
    nd_encodings_destroy(&encodings);
    free(float_path);
    free(path);
    return qvalue;
}

static void weights_are_rounded_half_to_even_and_clipped(void **state)
{
    (void)state;
    bool is_negative;
    assert_int_equal(first_qvalue(2.0f, "int8", &is_negative), 0); /* a half: to 0, not to 1 */
    int sign = is_negative ? -1 : 1;
    assert_int_equal(first_qvalue(1.0f, "int8", &is_negative), sign);
    assert_int_equal(first_qvalue(0.03125f, "int8", &is_negative), 32 * sign);
    assert_int_equal(first_qvalue(0.0009765625f, "int8", &is_negative), is_negative ? -128 : 127);
    assert_int_equal(first_qvalue(0.03125f, "int4", &is_negative),
                     is_negative ? -8 : 7); /* in a byte, of 4 bits */
    assert_int_equal(first_qvalue(0.03125f, "int6", &is_negative), is_negative ? -32 : 31);
}

static void unknown_tensors_are_listed(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_encodings_match match;
    struct nd_model *model = golden_model("models/cnn.float.onnx");
    struct nd_encodings *e = read_text(
        "{\"version\":\"2.0.0\",\"encodings\":[{\"name\":\"nowhere\",\"output_dtype\":\"int8\",\"y_scale\":1},"
        "{\"name\":\"image\",\"output_dtype\":\"uint8\",\"y_scale\":1},"
        "{\"name\":\"logits\",\"output_dtype\":\"float16\",\"y_scale\":1},"
        "{\"name\":\"nobody\",\"output_dtype\":\"int8\",\"y_scale\":1}]}");
    expect_ok(nd_encodings_match(e, model, &match, &err), &err);
    assert_int_equal(match.n_applicable, 1);
    assert_int_equal(match.n_omitted, 3);
    assert_string_equal(match.omitted[0].name, "nowhere");
    assert_true(match.omitted[0].is_unknown);
    assert_string_equal(match.omitted[1].why, "of type float16");
    assert_false(match.omitted[1].is_unknown);
    assert_string_equal(match.omitted[2].name, "nobody");
    nd_encodings_match_deinit(&match);
    nd_encodings_destroy(&e);
    nd_model_destroy(&model);
}

static const struct {
    const char *model;
    const char *tensor; /* members of its encoding */
    const char *message;
} misfits[] = {
    {"models/cnn.float.onnx", "\"name\":\"stem.weight\",\"output_dtype\":\"int8\",\"y_scale\":[1,2],\"axis\":0",
     "tensor 'stem.weight' has 24 channels (dimension 0), and its encoding has 2 scales"},
    {"models/cnn.float.onnx", "\"name\":\"stem.weight\",\"output_dtype\":\"int8\",\"y_scale\":[1,2],\"axis\":4",
     "along which of its 4 dimensions"},
    {"models/cnn.float.onnx", "\"name\":\"pool\",\"output_dtype\":\"uint4\",\"y_scale\":1",
     "activation 'pool' has 4 bits"},
    {"models/cnn.float.onnx", "\"name\":\"pool\",\"output_dtype\":\"uint8\",\"y_scale\":[1,2],\"axis\":1",
     "tensor 'pool' has 48 channels (dimension 1), and its encoding has 2 scales"},
    {"models/cnn.float.onnx", "\"name\":\"elsewhere\",\"output_dtype\":\"uint8\",\"y_scale\":1",
     "none of the 1 encodings"},
    {"models/cnn.w8a8.onnx", "\"name\":\"pool\",\"output_dtype\":\"uint8\",\"y_scale\":1",
     "is quantised already"},
};

static void misfits_are_refused_and_leave_nothing(void **state)
{
    (void)state;
    char *path = in_folder("qdq.onnx"), text[512];
    for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
        struct nd_error err = {0};
        struct nd_model *model = golden_model(misfits[i].model);
        snprintf(text, sizeof text, "{\"version\":\"2.0.0\",\"encodings\":[{%s}]}", misfits[i].tensor);
        struct nd_encodings *e = read_text(text);
        assert_int_not_equal(nd_encodings_apply(e, model, path, &err), ND_OK);
        assert_has(err.message, misfits[i].message);
        assert_false(nd_path_exists(path));
        nd_encodings_destroy(&e);
        nd_model_destroy(&model);
    }
    free(path);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(aimet_0_offsets_become_zero_points),
        CASE(aimet_1_lists_are_read),
        CASE(aimet_2_is_onnx_already),
        CASE(qnn_offsets_are_added),
        CASE(contradictions_are_refused),
        CASE(damaged_files_are_survived),
        CASE(differences_are_found),
        CASE(tolerance_is_of_the_reference),
        CASE(applied_encodings_are_those_of_the_model),
        CASE(an_old_opset_stays),
        CASE(weights_are_rounded_half_to_even_and_clipped),
        CASE(unknown_tensors_are_listed),
        CASE(misfits_are_refused_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
