/* EPContext models: what they say of their binary, and that the binary is part of the model. */
#include "support/main.h"

#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "model/graph/prepared.h"
#include "onnx.pb-c.h"
#include "support/scratch.h"

/* What a test says of one node, and of the model. */
struct prepared_case {
    int64_t embed_mode;
    const char *context; /* the binary, or the name of its file */
    size_t n_context;
    const char *sdk, *metadata;
};

static char *write_model(const struct prepared_case *in)
{
    Onnx__AttributeProto attributes[3] = {ONNX__ATTRIBUTE_PROTO__INIT, ONNX__ATTRIBUTE_PROTO__INIT,
                                          ONNX__ATTRIBUTE_PROTO__INIT};
    Onnx__AttributeProto *list[] = {&attributes[0], &attributes[1], &attributes[2]};
    const char *const names[] = {"embed_mode", "ep_cache_context", "ep_sdk_version"};
    for (size_t i = 0; i < 3; i++) {
        attributes[i].name = (char *)(uintptr_t)names[i];
        attributes[i].has_type = true;
        attributes[i].type =
            i == 0 ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT : ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        attributes[i].has_i = i == 0;
        attributes[i].i = in->embed_mode;
        attributes[i].has_s = i > 0;
    }
    attributes[1].s = (ProtobufCBinaryData){in->n_context, (uint8_t *)(uintptr_t)in->context};
    attributes[2].s = (ProtobufCBinaryData){strlen(in->sdk), (uint8_t *)(uintptr_t)in->sdk};
    char output[] = "y", op[] = "EPContext", domain[] = "com.microsoft", name[] = "part";
    char *outputs[] = {output};
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *nodes[] = {&node};
    node.op_type = op;
    node.domain = domain;
    node.name = name;
    node.n_output = 1;
    node.output = outputs;
    node.n_attribute = 3;
    node.attribute = list;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    graph.n_node = 1;
    graph.node = nodes;
    Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT, *entries[] = {&entry};
    char key[] = "ep_compatibility_info.QNNExecutionProvider";
    entry.key = key;
    entry.value = (char *)(uintptr_t)in->metadata;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    model.has_ir_version = true;
    model.ir_version = 10;
    model.graph = &graph;
    model.n_metadata_props = 1;
    model.metadata_props = entries;
    unsigned char bytes[4096];
    assert_true(onnx__model_proto__get_packed_size(&model) <= sizeof bytes);
    size_t n = onnx__model_proto__pack(&model, bytes);
    char *path = in_folder("m.onnx");
    assert_int_equal(nd_file_put(path, bytes, n, NULL), ND_OK);
    return path;
}

static struct nd_model *load(const struct prepared_case *in, enum nd_status expected)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char *path = write_model(in);
    enum nd_status status = nd_model_load(path, &model, &err);
    if (status != expected)
        fail_msg("%s", err.message);
    free(path);
    return model;
}

static struct nd_prepared read(const struct prepared_case *in)
{
    struct nd_prepared prepared = {.soc_model = -1};
    struct nd_model *model = load(in, ND_OK);
    assert_int_equal(nd_prepared_read(model, &prepared, NULL), ND_OK);
    nd_model_destroy(&model);
    return prepared;
}

static void put_binary(const char *name, size_t n_before, const char *text)
{
    size_t n = n_before + strlen(text);
    char *bytes = calloc(n + 1, 1), *path = in_folder(name);
    assert_non_null(bytes);
    memcpy(bytes + n_before, text, strlen(text));
    assert_int_equal(nd_file_put(path, bytes, n, NULL), ND_OK);
    free(bytes);
    free(path);
}

static void binary_beside_is_read_wherever_the_chipset_stands(void **state)
{
    (void)state;
    const struct prepared_case in = {.context = "m.bin",
                                     .n_context = 5,
                                     .sdk = "v2.51.0.260929181845",
                                     .metadata = "v2:6:2.51.0:5.51.0:0:57:0:0"};
    static const size_t at[] = {0,
                                1000,
                                (1 << 20) - 80,
                                (1 << 20) - 64,
                                (1 << 20) - 20,
                                (1 << 20) - 12,
                                (1 << 20) - 9,
                                (1 << 20) - 1,
                                1 << 20,
                                (1 << 21) - 3};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        put_binary("m.bin", at[i], "soc_type=SM8650;arch=75");
        struct nd_prepared found = read(&in);
        assert_true(found.exists);
        assert_string_equal(found.sdk, "2.51.0.260929181845");
        assert_string_equal(found.chipset, "SM8650");
        assert_int_equal(found.soc_model, 57);
    }
}

static void binary_inside_is_read(void **state)
{
    (void)state;
    static const char binary[] = "\0\0soc_type=SM8450;arch=69\0";
    const struct prepared_case in = {
        .embed_mode = 1, .context = binary, .n_context = sizeof binary, .sdk = "2.47.0", .metadata = ""};
    struct nd_prepared found = read(&in);
    assert_string_equal(found.sdk, "2.47.0");
    assert_string_equal(found.chipset, "SM8450");
    assert_int_equal(found.soc_model, 0);
}

static void what_is_not_said_stays_empty(void **state)
{
    (void)state;
    static const char *const metadata[] = {
        "",           "v2", "v2:", "v2:6:2.51.0:5.51.0:0", "v2:::::", "v2:::::x57:", "v2:::::99999999999:",
        "v3:::::57:0"};
    for (size_t i = 0; i < sizeof metadata / sizeof metadata[0]; i++) {
        const struct prepared_case in = {
            .embed_mode = 1, .context = "soc_type=", .n_context = 9, .sdk = "v", .metadata = metadata[i]};
        struct nd_prepared found = read(&in);
        assert_true(found.exists);
        assert_string_equal(found.sdk, "");
        assert_string_equal(found.chipset, "");
        assert_int_equal(found.soc_model, 0);
    }
}

static void words_are_cut_and_hold_nothing_unprintable(void **state)
{
    (void)state;
    char context[200] = "soc_type=", sdk[200];
    memset(context + 9, 'A', 100);
    memset(sdk, '2', sizeof sdk - 1);
    sdk[sizeof sdk - 1] = '\0';
    struct prepared_case in = {
        .embed_mode = 1, .context = context, .n_context = sizeof context, .sdk = sdk, .metadata = ""};
    struct nd_prepared found = read(&in);
    assert_int_equal(strlen(found.sdk), sizeof found.sdk - 1);
    assert_int_equal(strlen(found.chipset), sizeof found.chipset - 1);
    in.sdk = "v2.51\x1b[31m";
    in.context = "soc_type=SM\n";
    in.n_context = 12;
    found = read(&in);
    assert_string_equal(found.sdk, "2.51");
    assert_string_equal(found.chipset, "SM");
}

static void binary_is_part_of_the_model(void **state)
{
    (void)state;
    struct prepared_case in = {.context = "m.bin", .n_context = 5, .sdk = "v2.51.0", .metadata = ""};
    put_binary("m.bin", 10, "a");
    struct nd_model *a = load(&in, ND_OK);
    put_binary("m.bin", 10, "b");
    struct nd_model *b = load(&in, ND_OK);
    assert_string_not_equal(nd_model_sha256(a), nd_model_sha256(b));
    nd_model_destroy(&a);
    nd_model_destroy(&b);
    in.context = "n.bin"; /* is not there */
    load(&in, ND_ERR_IO);
    in.context = "../m.bin";
    in.n_context = 8;
    load(&in, ND_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(binary_beside_is_read_wherever_the_chipset_stands, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(binary_inside_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_not_said_stays_empty, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(words_are_cut_and_hold_nothing_unprintable, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(binary_is_part_of_the_model, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
