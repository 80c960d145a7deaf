/* The items of an emulated device: what they mean, and what is refused. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "devices/emulator/emulate.h"
#include "support/emulated_model.h"

static struct nd_emu_item *only_item(struct nd_emulation *emulation, const char *text)
{
    struct nd_error err = {0};
    if (nd_emulation_parse(text, emulation, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_int_equal(emulation->n, 1);
    return &emulation->items[0];
}

static void parse_words_take_their_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tensor, *op_type;
        enum nd_emu_word word;
        int64_t channel, first, second;
        double real;
        uint64_t seed;
    } known[] = {
        {"round=double:8", NULL, NULL, ND_EMU_ROUND, 0, 0, 0, 0, 0},
        {"round.Conv=floor", NULL, "Conv", ND_EMU_ROUND, 0, 0, 0, 0, 0},
        {"round@a/b.c@d=ceil", "a/b.c@d", NULL, ND_EMU_ROUND, 0, 0, 0, 0, 0},
        {"round=htp-v69:2.48", NULL, NULL, ND_EMU_ROUND, 0, 0, 0, 0, 0},
        {"round=stochastic:7", NULL, NULL, ND_EMU_ROUND, 0, 0, 0, 0, 0},
        {"fallback=LayerNormalization", NULL, "LayerNormalization", ND_EMU_FALLBACK, 0, 0, 0, 0, 0},
        {"fallback@x", "x", NULL, ND_EMU_FALLBACK, 0, 0, 0, 0, 0},
        {"fuse@x", "x", NULL, ND_EMU_FUSE, 0, 0, 0, 0, 0},
        {"stale@x:0", "x:0", NULL, ND_EMU_STALE, 0, 0, 0, 0, 0},
        {"zero-point@x=3:-2", "x", NULL, ND_EMU_ZERO_POINT, 3, -2, 0, 0, 0},
        {"scale@x=*:1.002", "x", NULL, ND_EMU_SCALE, -1, 0, 0, 1.002, 0},
        {"saturate@x=16", "x", NULL, ND_EMU_SATURATE, 0, 16, 0, 0, 0},
        {"wrap@x=20", "x", NULL, ND_EMU_WRAP, 0, 20, 0, 0, 0},
        {"permute@x=18446744073709551615", "x", NULL, ND_EMU_PERMUTE, 0, 0, 0, 0, UINT64_MAX},
        {"flip@x=1e-3", "x", NULL, ND_EMU_FLIP, 0, 0, 0, 1e-3, 0},
        {"window@x=10:1", "x", NULL, ND_EMU_WINDOW, 0, 10, 1, 0, 0},
        {"zero@x", "x", NULL, ND_EMU_ZERO, 0, 0, 0, 0, 0},
        {"shift@x=-4", "x", NULL, ND_EMU_SHIFT, 0, -4, 0, 0, 0},
        {"transpose@x", "x", NULL, ND_EMU_TRANSPOSE, 0, 0, 0, 0, 0},
        {"clamp@x=-5:9", "x", NULL, ND_EMU_CLAMP, 0, -5, 9, 0, 0},
        {"cliff@x=200", "x", NULL, ND_EMU_CLIFF, 0, 200, 0, 0, 0},
        {"seed=9", NULL, NULL, ND_EMU_SEED, 0, 0, 0, 0, 9},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct nd_emulation emulation;
        const struct nd_emu_item *item = only_item(&emulation, known[i].text);
        assert_int_equal(item->word, known[i].word);
        assert_string_equal(item->tensor != NULL ? item->tensor : "-",
                            known[i].tensor != NULL ? known[i].tensor : "-");
        assert_string_equal(item->op_type != NULL ? item->op_type : "-",
                            known[i].op_type != NULL ? known[i].op_type : "-");
        assert_int_equal(item->channel, known[i].channel);
        assert_int_equal(item->first, known[i].first);
        assert_int_equal(item->second, known[i].second);
        assert_f64_bits(item->real, known[i].real);
        assert_true(item->seed == known[i].seed);
        nd_emulation_deinit(&emulation);
    }
}

static void parse_programs_alone_are_of_all_layers(void **state)
{
    (void)state;
    struct nd_emulation emulation;
    struct nd_error err = {0};
    assert_int_equal(nd_emulation_parse("double:8,stale@a/b,seed=4", &emulation, &err), ND_OK);
    assert_int_equal(emulation.n, 3);
    assert_int_equal(emulation.seed, 4);
    assert_int_equal(emulation.items[0].arithmetic.rule.n_bits, 8);
    char *text = nd_emulation_text(&emulation);
    assert_string_equal(text, "round=double:8,stale@a/b,seed=4");
    free(text);
    nd_emulation_deinit(&emulation);
    const struct nd_emu_item *item = only_item(&emulation, "stochastic:5");
    assert_true(item->arithmetic.is_stochastic && item->arithmetic.seed == 5);
    assert_int_equal(emulation.seed, 1);
    nd_emulation_deinit(&emulation);
}

static void parse_refuses_what_is_no_item(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"", "an item is empty"},
        {"round=floor,", "an item is empty"},
        {"blur@x", "item 'blur@x': no word 'blur'; there are round, fallback, fuse"},
        {"round", "item 'round' is not of the form round[.OPTYPE][@TENSOR]=ARITHMETIC"},
        {"round=", "is not of the form round"},
        {"round=flor", "item 'round=flor': no arithmetic 'flor'; there are half-even, half-away"},
        {"round=double:13", "no arithmetic 'double:13'; there are"},
        {"round=stochastic:x", "no arithmetic 'stochastic:x'; there are"},
        {"round.Conv@x=floor", "is not of the form round"},
        {"round.=floor", "is not of the form round"},
        {"round@=floor", "is not of the form round"},
        {"fallback", "is not of the form fallback=OPTYPE or fallback@TENSOR"},
        {"fallback=", "is not of the form fallback"},
        {"fallback@x=Conv", "is not of the form fallback"},
        {"fuse", "is not of the form fuse@TENSOR"},
        {"fuse@", "is not of the form fuse@TENSOR"},
        {"fuse.Conv@x", "is not of the form fuse@TENSOR"},
        {"stale@x=1", "is not of the form stale@TENSOR"},
        {"zero-point@x=1", "is not of the form zero-point@TENSOR=CHANNEL:AMOUNT"},
        {"zero-point@x=1:0", "AMOUNT not 0"},
        {"zero-point@x=-1:1", "is not of the form zero-point"},
        {"zero-point@x=1:1.5", "is not of the form zero-point"},
        {"scale@x=a:1.01", "is not of the form scale@TENSOR=CHANNEL:FACTOR"},
        {"scale@x=1:nan", "FACTOR above 0"},
        {"scale@x=1:-1", "FACTOR above 0"},
        {"saturate@x=1", "saturate@TENSOR=BITS, 2 to 52"},
        {"wrap@x=53", "wrap@TENSOR=BITS, 2 to 52"},
        {"permute@x", "is not of the form permute@TENSOR=SEED"},
        {"permute@x=-1", "is not of the form permute@TENSOR=SEED"},
        {"flip@x=0", "PROBABILITY, above 0 to 1"},
        {"flip@x=1.5", "PROBABILITY, above 0 to 1"},
        {"window@x=1", "is not of the form window@TENSOR=FIRST:COUNT"},
        {"window@x=1:0", "COUNT at least 1"},
        {"window@x=-1:2", "is not of the form window"},
        {"zero@x=1", "is not of the form zero@TENSOR"},
        {"shift@x=0", "shift@TENSOR=N, not 0"},
        {"transpose@x=1", "is not of the form transpose@TENSOR"},
        {"clamp@x=9:1", "LOW not above HIGH"},
        {"cliff@x=y", "is not of the form cliff@TENSOR=VALUE"},
        {"cliff@x=1=2", "is not of the form cliff@TENSOR=VALUE"},
        {"seed@x=1", "is not of the form seed=N"},
        {"seed=-1", "is not of the form seed=N"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct nd_emulation emulation;
        struct nd_error err = {0};
        assert_int_equal(nd_emulation_parse(refused[i][0], &emulation, &err), ND_ERR_USAGE);
        assert_int_equal(err.id, ND_E_DEVICE_PROFILE);
        if (strstr(err.message, refused[i][1]) == NULL)
            fail_msg("'%s' gives: %s", refused[i][0], err.message);
    }
}

static void check_refuses_what_the_model_lacks(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int id;
        const char *message;
    } refused[] = {
        {"stale@residual/con", ND_E_MODEL_NO_TENSOR,
         "item 'stale@residual/con': the model has no tensor 'residual/con'; near it are 'residual/conv', "
         "'residual/relu'"},
        {"round@nowhere=floor", ND_E_MODEL_NO_TENSOR, "the model has no tensor 'nowhere'"},
        {"stale@image", ND_E_DEVICE_PROFILE, "tensor 'image' is not made by a layer with fixed scales"},
        {"fallback=Cnv", ND_E_DEVICE_PROFILE,
         "no layer of the model has an operator 'Cnv'; near it are 'Conv'"},
        {"round.Softmax=floor", ND_E_DEVICE_PROFILE, "no layer of the model has an operator 'Softmax'"},
        {"saturate@pool=12", ND_E_DEVICE_PROFILE, "'pool' is a unit of MaxPool; only Conv, Gemm and MatMul"},
        {"scale@logits=10:1.1", ND_E_DEVICE_PROFILE, "tensor 'logits' has 10 channels"},
        {"zero-point@logits=99:1", ND_E_DEVICE_PROFILE, "tensor 'logits' has 10 channels"},
        {"window@logits=5:6", ND_E_DEVICE_PROFILE, "tensor 'logits' has 10 elements"},
        {"window@logits=10:1", ND_E_DEVICE_PROFILE, "tensor 'logits' has 10 elements"},
        {"transpose@logits", ND_E_DEVICE_PROFILE, "tensor 'logits' is of rank 2"},
        {"fuse@logits", ND_E_DEVICE_PROFILE, "no layer reads tensor 'logits'"},
        {"htp-v73,fuse@stem/relu", ND_E_DEVICE_PROFILE,
         "'depthwise/relu' reads a tensor that is fused, and 'htp-v73' is an arithmetic on quantised values"},
        {"fuse@pool,zero@pool", ND_E_DEVICE_PROFILE,
         "'zero@pool' works on quantised values, and those of 'pool' are skipped"},
    };
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct nd_emulation emulation;
        struct nd_error err = {0};
        assert_int_equal(nd_emulation_parse(refused[i].text, &emulation, &err), ND_OK);
        assert_int_not_equal(nd_emulation_check(&emulation, b.model, &err), ND_OK);
        assert_int_equal(err.id, refused[i].id);
        if (strstr(err.message, refused[i].message) == NULL)
            fail_msg("'%s' gives: %s", refused[i].text, err.message);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

static void check_refuses_what_a_capture_cannot_hold(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation = {0};
    struct nd_error err = {0};
    open_bench(&b, "cnn.w8a8");
    for (size_t i = 0; i < 2380; i++) /* 21 bytes each */
        assert_int_equal(nd_emulation_add(&emulation, "zero@pool", &err), ND_OK);
    assert_int_equal(nd_emulation_check(&emulation, b.model, &err), ND_OK);
    assert_int_equal(nd_emulation_add(&emulation, "zero@pool", &err), ND_OK);
    assert_int_equal(nd_emulation_check(&emulation, b.model, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_DEVICE_PROFILE);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_words_take_their_values),
        cmocka_unit_test(parse_programs_alone_are_of_all_layers),
        cmocka_unit_test(parse_refuses_what_is_no_item),
        cmocka_unit_test(check_refuses_what_the_model_lacks),
        cmocka_unit_test(check_refuses_what_a_capture_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
