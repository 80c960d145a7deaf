/* HTP configurations: what is read, how it is flattened, what each setting is known to do. */
#include "support/main.h"

#include <string.h>

#include "compare/config/config.h"
#include "core/error.h"
#include "core/files/file.h"
#include "support/assert_text.h"
#include "support/scratch.h"

static char *file_of(const char *name, const char *text)
{
    char *path = in_folder(name);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    return path;
}

/* "key=value;" of every leaf, in order. */
static char *flat(const char *text)
{
    struct nd_error err = {0};
    struct nd_config_list list = {0};
    static char out[1024];
    size_t n = 0;
    expect_ok(nd_config_flatten(&list, "htp", text, "file", &err), &err);
    out[0] = '\0';
    for (size_t i = 0; i < list.n; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s=%s;", list.items[i].key, list.items[i].value);
    struct nd_config config = {.n = list.n, .items = list.items};
    nd_config_deinit(&config);
    return out;
}

static void leaves_get_paths(void **state)
{
    (void)state;
    assert_string_equal(flat("{\"graphs\":[{\"graph_names\":[\"a\",\"b\"],\"vtcm_mb\":8,\"O\":3.5}],\"memory\":"
                             "{\"mem_type\":\"x\"}}"),
                        "htp.graphs[0].graph_names[0]=a;htp.graphs[0].graph_names[1]=b;htp.graphs[0].vtcm_mb=8;"
                        "htp.graphs[0].O=3.5;htp.memory.mem_type=x;");
    assert_string_equal(flat("{}"), "");
    assert_string_equal(flat("{\"a\":null,\"b\":true,\"c\":[]}"), "htp.a=null;htp.b=true;");
}

/* The form of very old SDKs is the same configuration. */
static void graphs_as_an_object_are_a_list_of_one(void **state)
{
    (void)state;
    char first[256];
    snprintf(first, sizeof first, "%s", flat("{\"graphs\":{\"vtcm_mb\":8}}"));
    assert_string_equal(first, flat("{\"graphs\":[{\"vtcm_mb\":8}]}"));
}

static void settings_are_known_by_their_last_part(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        enum nd_config_effect effect;
    } cases[] = {
        {"htp.graphs[0].O", ND_CONFIG_BITS},
        {"htp.graphs[1].dlbc_weights", ND_CONFIG_BITS},
        {"htp.devices[0].dsp_arch", ND_CONFIG_BITS},
        {"htp.devices[0].cores[0].perf_profile", ND_CONFIG_PERFORMANCE},
        {"htp.graphs[0].graph_names[0]", ND_CONFIG_UNKNOWN},
        {"htp.graphs[0].finalize_config", ND_CONFIG_UNKNOWN},
        {"htp.graphs[0].OO", ND_CONFIG_UNKNOWN},
        {"runtime.option_vtcm_mb", ND_CONFIG_BITS},
        {"runtime.option_htp_performance_mode", ND_CONFIG_PERFORMANCE},
        {"runtime.optimisation", ND_CONFIG_BITS},
        {"library.libQnnHtp.so", ND_CONFIG_BITS},
        {"library.libm.so.6", ND_CONFIG_BITS},
        {"library.libz.so.1", ND_CONFIG_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (nd_config_effect_of(cases[i].key) != cases[i].effect)
            fail_msg("'%s' is '%s'", cases[i].key, nd_config_effect_name(nd_config_effect_of(cases[i].key)));
}

static void the_inner_file_is_found_beside_the_outer(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_htp_config config;
    const char *
        inner = "{\"graphs\":[]}\n",
       *outer = "{\"backend_extensions\":{\"shared_library_path\":\"x.so\",\"config_file_path\":\"htp.json\"}}";
    char *inner_path = file_of("htp.json", inner), *outer_path = file_of("outer.json", outer);
    expect_ok(nd_htp_config_read(outer_path, &config, &err), &err);
    assert_string_equal(config.inner, inner);
    assert_string_equal(config.outer, outer);
    nd_htp_config_deinit(&config);
    expect_ok(nd_htp_config_read(inner_path, &config, &err), &err);
    assert_string_equal(config.inner, inner);
    assert_null(config.outer);
    nd_htp_config_deinit(&config);
    free(inner_path);
    free(outer_path);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1, column 0: the file is empty"},
        {"{\"graphs\":[\n}", "line 2"},
        {"[]", "is no JSON object"},
        {"{\"O\":1,\"O\":2}", "duplicate"},
        {"{\"backend_extensions\":{}}", "'backend_extensions.config_file_path' is no text"},
        {"{\"backend_extensions\":{\"config_file_path\":\"missing.json\"}}", "names 'missing.json'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err = {0};
        struct nd_htp_config config = {0};
        char *path = file_of("bad.json", cases[i][0]);
        assert_int_not_equal(nd_htp_config_read(path, &config, &err), ND_OK);
        assert_has(err.message, cases[i][1]);
        free(path);
    }
    char *large = malloc((32 << 10) + 2);
    memset(large, ' ', (32 << 10) + 1);
    large[(32 << 10) + 1] = '\0';
    struct nd_htp_config config = {0};
    char *path = file_of("large.json", large);
    assert_int_not_equal(nd_htp_config_read(path, &config, NULL), ND_OK);
    free(path);
    free(large);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(leaves_get_paths),
        CASE(graphs_as_an_object_are_a_list_of_one),
        CASE(settings_are_known_by_their_last_part),
        CASE(the_inner_file_is_found_beside_the_outer),
        CASE(bad_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
