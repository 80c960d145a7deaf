/* Emulated devices: what their items mean, and that each fault is what it says, where it says, and nothing
 * else. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "emulator/emulate.h"

/* ---- items ---- */

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
        const char *text, *edge, *op_type;
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
        assert_string_equal(item->edge != NULL ? item->edge : "-", known[i].edge != NULL ? known[i].edge : "-");
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

static void parse_programs_alone_are_of_all_units(void **state)
{
    (void)state;
    struct nd_emulation emulation;
    struct nd_error err = {0};
    assert_int_equal(nd_emulation_parse("double:8,stale@a/b,seed=4", &emulation, &err), ND_OK);
    assert_int_equal(emulation.n, 3);
    assert_int_equal(emulation.seed, 4);
    assert_int_equal(emulation.items[0].program.program.n_bits, 8);
    char *text = nd_emulation_text(&emulation);
    assert_string_equal(text, "round=double:8,stale@a/b,seed=4");
    free(text);
    nd_emulation_deinit(&emulation);
    const struct nd_emu_item *item = only_item(&emulation, "stochastic:5");
    assert_true(item->program.is_stochastic && item->program.seed == 5);
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
        {"round", "item 'round' is not of the form round[.OPTYPE][@EDGE]=PROGRAM"},
        {"round=", "is not of the form round"},
        {"round=flor", "item 'round=flor': no program 'flor'; there are half-even, half-away"},
        {"round=double:13", "no program 'double:13'; there are"},
        {"round=stochastic:x", "no program 'stochastic:x'; there are"},
        {"round.Conv@x=floor", "is not of the form round"},
        {"round.=floor", "is not of the form round"},
        {"round@=floor", "is not of the form round"},
        {"fallback", "is not of the form fallback=OPTYPE or fallback@EDGE"},
        {"fallback=", "is not of the form fallback"},
        {"fallback@x=Conv", "is not of the form fallback"},
        {"fuse", "is not of the form fuse@EDGE"},
        {"fuse@", "is not of the form fuse@EDGE"},
        {"fuse.Conv@x", "is not of the form fuse@EDGE"},
        {"stale@x=1", "is not of the form stale@EDGE"},
        {"zero-point@x=1", "is not of the form zero-point@EDGE=CHANNEL:AMOUNT"},
        {"zero-point@x=1:0", "AMOUNT not 0"},
        {"zero-point@x=-1:1", "is not of the form zero-point"},
        {"zero-point@x=1:1.5", "is not of the form zero-point"},
        {"scale@x=a:1.01", "is not of the form scale@EDGE=CHANNEL:FACTOR"},
        {"scale@x=1:nan", "FACTOR above 0"},
        {"scale@x=1:-1", "FACTOR above 0"},
        {"saturate@x=1", "saturate@EDGE=BITS, 2 to 52"},
        {"wrap@x=53", "wrap@EDGE=BITS, 2 to 52"},
        {"permute@x", "is not of the form permute@EDGE=SEED"},
        {"permute@x=-1", "is not of the form permute@EDGE=SEED"},
        {"flip@x=0", "PROBABILITY, above 0 to 1"},
        {"flip@x=1.5", "PROBABILITY, above 0 to 1"},
        {"window@x=1", "is not of the form window@EDGE=FIRST:COUNT"},
        {"window@x=1:0", "COUNT at least 1"},
        {"window@x=-1:2", "is not of the form window"},
        {"zero@x=1", "is not of the form zero@EDGE"},
        {"shift@x=0", "shift@EDGE=N, not 0"},
        {"transpose@x=1", "is not of the form transpose@EDGE"},
        {"clamp@x=9:1", "LOW not above HIGH"},
        {"cliff@x=y", "is not of the form cliff@EDGE=CODE"},
        {"cliff@x=1=2", "is not of the form cliff@EDGE=CODE"},
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

/* ---- models ---- */

enum { MAX_EDGES = 96 };

struct bench {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array input;
    struct nd_array plain[MAX_EDGES]; /* of a healthy device */
    struct nd_array codes[MAX_EDGES]; /* of the device */
    struct nd_array again[MAX_EDGES]; /* worked out once more from the codes of the device */
    struct nd_array *found;
};

static enum nd_status keep(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                           struct nd_error *err)
{
    (void)way;
    struct bench *bench = context;
    return nd_array_copy(values, &bench->found[edge], err);
}

static void open_bench(struct bench *b, const char *name)
{
    char path[512];
    struct nd_error err = {0};
    *b = (struct bench){0};
    snprintf(path, sizeof path, "%s/models/%s.onnx", getenv("GOLDEN"), name);
    if (nd_model_load(path, &b->model, &err) != ND_OK ||
        nd_exact_graph_create(b->model, &b->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(nd_model_n_edges(b->model) <= MAX_EDGES);
    const struct nd_model_io *io = nd_model_input(b->model, 0);
    assert_int_equal(nd_array_make(&b->input, io->dtype, &io->shape, &err), ND_OK);
}

static void close_bench(struct bench *b)
{
    for (size_t e = 0; e < MAX_EDGES; e++) {
        nd_array_deinit(&b->plain[e]);
        nd_array_deinit(&b->codes[e]);
        nd_array_deinit(&b->again[e]);
    }
    nd_array_deinit(&b->input);
    nd_exact_graph_destroy(&b->graph);
    nd_model_destroy(&b->model);
}

static void feed(struct bench *b, uint64_t seed)
{
    seed = seed * 2654435761u + 1;
    for (size_t i = 0; i < b->input.n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b->input.x[i] = (double)(seed >> 40) / 0x1p24;
    }
}

static struct nd_emulator *make_device(struct bench *b, struct nd_emulation *emulation, const char *text,
                                       size_t n_repeats)
{
    struct nd_error err = {0};
    struct nd_emulator *emulator = NULL;
    const struct nd_emulator_options options = {.struct_size = sizeof options, .n_repeats = n_repeats};
    if (nd_emulation_parse(text, emulation, &err) != ND_OK ||
        nd_emulator_create(emulation, b->model, b->graph, &options, &emulator, &err) != ND_OK)
        fail_msg("%s: %s", text, err.message);
    return emulator;
}

static void run_device(struct bench *b, struct nd_emulator *emulator)
{
    struct nd_error err = {0};
    b->found = b->codes;
    if (nd_emulator_run(emulator, &b->input, keep, b, &err) != ND_OK)
        fail_msg("%s", err.message);
}

/* By round half to even; given: from these codes. */
static void run_plain(struct bench *b, struct nd_array *into, const struct nd_array *given)
{
    struct nd_error err = {0};
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given};
    b->found = into;
    if (nd_exact_graph_run(b->graph, &b->input, &options, keep, b, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static size_t differing(const struct nd_array *a, const struct nd_array *b)
{
    size_t n = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        n += a->x[i] != b->x[i];
    return n;
}

static size_t edge_of(const struct bench *b, const char *name)
{
    size_t e = 0;
    while (e < nd_model_n_edges(b->model) && strcmp(nd_model_edge(b->model, e)->name, name) != 0)
        e++;
    assert_true(e < nd_model_n_edges(b->model));
    return e;
}

static void check_refuses_what_the_model_lacks(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int id;
        const char *message;
    } refused[] = {
        {"stale@residual/con", ND_E_MODEL_NO_EDGE,
         "item 'stale@residual/con': the model has no edge 'residual/con'; near it are 'residual/conv', "
         "'residual/relu'"},
        {"round@nowhere=floor", ND_E_MODEL_NO_EDGE, "the model has no edge 'nowhere'"},
        {"stale@image", ND_E_DEVICE_PROFILE, "edge 'image' is not made by a unit with fixed scales"},
        {"fallback=Cnv", ND_E_DEVICE_PROFILE, "no unit of the model has an operator 'Cnv'; near it are 'Conv'"},
        {"round.Softmax=floor", ND_E_DEVICE_PROFILE, "no unit of the model has an operator 'Softmax'"},
        {"saturate@pool=12", ND_E_DEVICE_PROFILE, "'pool' is a unit of MaxPool; only Conv, Gemm and MatMul"},
        {"scale@logits=10:1.1", ND_E_DEVICE_PROFILE, "edge 'logits' has 10 channels"},
        {"zero-point@logits=99:1", ND_E_DEVICE_PROFILE, "edge 'logits' has 10 channels"},
        {"window@logits=5:6", ND_E_DEVICE_PROFILE, "edge 'logits' has 10 elements"},
        {"window@logits=10:1", ND_E_DEVICE_PROFILE, "edge 'logits' has 10 elements"},
        {"transpose@logits", ND_E_DEVICE_PROFILE, "edge 'logits' is of rank 2"},
        {"fuse@logits", ND_E_DEVICE_PROFILE, "no unit reads edge 'logits'"},
        {"htp-v73,fuse@stem/relu", ND_E_DEVICE_PROFILE,
         "'depthwise/relu' reads an edge that is fused, and 'htp-v73' is a program on codes"},
        {"fuse@pool,zero@pool", ND_E_DEVICE_PROFILE,
         "'zero@pool' works on codes, and those of 'pool' are skipped"},
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

/* ---- faults ---- */

/* Every unit follows from the codes that the device shows for what it reads, but the faulty ones, and of those
 * with one fault as many codes differ as the device counted. */
static void check_truth(struct bench *b, const char *text, size_t n_samples)
{
    struct nd_emulation emulation;
    struct nd_emulator *emulator = make_device(b, &emulation, text, 1);
    uint64_t counts[MAX_EDGES] = {0};
    for (size_t s = 0; s < n_samples; s++) {
        struct nd_array given[MAX_EDGES];
        feed(b, s);
        run_device(b, emulator);
        for (size_t e = 0; e < MAX_EDGES; e++) {
            given[e] = b->codes[e];
            if (e >= nd_model_n_edges(b->model) || !nd_dtype_is_integer(nd_model_edge(b->model, e)->dtype))
                given[e].shape.rank = -1;
        }
        run_plain(b, b->again, given);
        for (size_t e = 0; e < nd_model_n_edges(b->model); e++)
            if (given[e].shape.rank >= 0)
                counts[e] += differing(&b->again[e], &b->codes[e]);
    }
    size_t n;
    const struct nd_emu_truth *truth = nd_emulator_truth(emulator, &n);
    for (size_t e = 0; e < nd_model_n_edges(b->model); e++) {
        uint64_t told = 0;
        for (size_t i = 0; i < n; i++)
            told += strcmp(truth[i].edge, nd_model_edge(b->model, e)->name) == 0 ? truth[i].n_changed : 0;
        if (told != counts[e])
            fail_msg("%s: %llu codes of '%s' are faulty; the truth says %llu", text,
                     (unsigned long long)counts[e], nd_model_edge(b->model, e)->name, (unsigned long long)told);
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
}

static void faults_are_where_the_truth_says(void **state)
{
    (void)state;
    static const char *const cnn[] = {
        "half-even",
        "fallback=Conv",
        "round@pointwise/relu=floor",
        "round@logits=stochastic:4",
        "fuse@residual/conv",
        "fuse@stem/relu,fuse@pool",
        "stale@residual/conv",
        "zero-point@residual/conv=3:2",
        "scale@residual/conv=2:1.02",
        "saturate@residual/conv=11",
        "wrap@logits=14",
        "permute@residual/conv=5",
        "flip@residual/conv=0.01",
        "window@residual/conv=10:100",
        "zero@pool",
        "shift@residual/relu=1",
        "transpose@residual/conv",
        "clamp@residual/conv=100:150",
        "cliff@residual/conv=150",
        "stale@logits,flip@pool=0.1,scale@stem/relu=*:0.99,fuse@depthwise/relu",
    };
    static const char *const vit[] = {"half-even", "fuse@%s", "stale@%s", "transpose@%s", "round@%s=to-zero"};
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    for (size_t i = 0; i < sizeof cnn / sizeof cnn[0]; i++)
        check_truth(&b, cnn[i], 2);
    close_bench(&b);
    open_bench(&b, "vit.w8a16");
    const struct nd_model_unit *middle = NULL; /* of rank 3, and read by somebody */
    for (size_t u = 0; u < nd_model_n_units(b.model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(b.model, u);
        if (nd_model_edge(b.model, unit->edge)->shape.rank == 3 && strstr(unit->op_types, "MatMul") != NULL)
            middle = unit;
    }
    assert_non_null(middle);
    for (size_t i = 0; i < sizeof vit / sizeof vit[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, vit[i], middle->name);
        check_truth(&b, text, 1);
    }
    close_bench(&b);
}

static void healthy_devices_are_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"cnn.w8a8", "cnn.w8a16", "vit.w8a8"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct bench b;
        struct nd_emulation emulation;
        open_bench(&b, names[k]);
        feed(&b, k);
        struct nd_emulator *emulator = make_device(&b, &emulation, "round=half-even", 1);
        run_device(&b, emulator);
        run_plain(&b, b.plain, NULL);
        for (size_t e = 0; e < nd_model_n_edges(b.model); e++)
            assert_int_equal(differing(&b.codes[e], &b.plain[e]), 0);
        size_t n;
        nd_emulator_truth(emulator, &n);
        assert_int_equal(n, 0);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
        close_bench(&b);
    }
}

/* What a fault of codes makes of the healthy ones, written down once more. */
static double expected_code(const char *word, const struct nd_array *plain, const struct nd_array *before,
                            size_t i, double zero)
{
    const int64_t *dims = plain->shape.dims;
    size_t n_channels = (size_t)dims[1], n_inner = (size_t)(dims[2] * dims[3]), n = plain->n;
    size_t channel = i / n_inner;
    double x = plain->x[i];
    if (strcmp(word, "stale") == 0)
        return before->x[i];
    if (strcmp(word, "zero") == 0)
        return zero;
    if (strcmp(word, "shift") == 0)
        return plain->x[(i + n - 3) % n];
    if (strcmp(word, "transpose") == 0)
        return plain->x[i % n_channels * n_inner + i / n_channels];
    if (strcmp(word, "clamp") == 0)
        return x < 100 ? 100 : x > 150 ? 150 : x;
    if (strcmp(word, "cliff") == 0)
        return x > 150 ? zero : x;
    if (strcmp(word, "window") == 0)
        return i >= 10 && i < 20 ? 0 : x;
    assert_string_equal(word, "zero-point");
    return channel == 3 ? fmin(x + 2, 255) : x;
}

static void faults_of_codes_are_as_documented(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"stale", ""},     {"zero", ""},          {"shift", "=-3"},     {"transpose", ""},
        {"cliff", "=150"}, {"clamp", "=100:150"}, {"window", "=10:10"}, {"zero-point", "=3:2"},
    };
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    size_t edge = edge_of(&b, "residual/conv");
    double zero = (double)nd_model_edge(b.model, edge)->quant.zero_point[0];
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
        char text[128];
        struct nd_emulation emulation;
        snprintf(text, sizeof text, "%s@residual/conv%s", words[k][0], words[k][1]);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        struct nd_array before = {0};
        for (uint64_t s = 0; s < 2; s++) {
            feed(&b, s);
            run_plain(&b, b.plain, NULL);
            run_device(&b, emulator);
            if (s == 0)
                assert_int_equal(nd_array_copy(&b.plain[edge], &before, NULL), ND_OK);
            for (size_t e = 0; e < edge; e++)
                assert_int_equal(differing(&b.codes[e], &b.plain[e]), 0);
            for (size_t i = 0; i < b.plain[edge].n; i++)
                assert_f64_bits(b.codes[edge].x[i],
                                expected_code(words[k][0], &b.plain[edge], &before, i, zero));
        }
        nd_array_deinit(&before);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

static void permute_leaves_no_channel(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t edge = edge_of(&b, "residual/conv");
    feed(&b, 5);
    run_plain(&b, b.plain, NULL);
    for (uint64_t seed = 0; seed < 20; seed++) {
        char text[64];
        snprintf(text, sizeof text, "permute@residual/conv=%llu", (unsigned long long)seed);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        run_device(&b, emulator);
        const struct nd_array *from = &b.plain[edge], *to = &b.codes[edge];
        size_t n_channels = (size_t)from->shape.dims[1], n_inner = from->n / n_channels;
        bool is_taken[256] = {false};
        for (size_t c = 0; c < n_channels; c++) {
            size_t source = 0;
            while (source < n_channels &&
                   (is_taken[source] ||
                    memcmp(&to->x[c * n_inner], &from->x[source * n_inner], n_inner * sizeof *to->x) != 0))
                source++;
            assert_true(source < n_channels && source != c);
            is_taken[source] = true;
        }
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

/* ---- values ---- */

/* The values of one edge before rounding. */
struct values {
    size_t edge;
    double *v;
    size_t n;
};

static enum nd_status collect(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                              struct nd_error *err)
{
    (void)err;
    struct values *wanted = context;
    for (size_t i = 0; i < values->n; i++)
        codes->x[i] = nd_code_of_ratio(&values->v[i], (double)values->quant->zero_point[0], values->dtype,
                                       ND_ROUND_HALF_EVEN);
    if (values->edge != wanted->edge)
        return ND_OK;
    free(wanted->v);
    wanted->n = values->n;
    wanted->v = calloc(values->n, sizeof *wanted->v);
    for (size_t i = 0; i < values->n; i++)
        wanted->v[i] = nd_ratio_value(&values->v[i]);
    return ND_OK;
}

static enum nd_status ignore(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                             struct nd_error *err)
{
    (void)context;
    (void)edge;
    (void)values;
    (void)way;
    (void)err;
    return ND_OK;
}

static struct values values_of(struct bench *b, size_t edge)
{
    struct values values = {.edge = edge};
    const struct nd_exact_options options = {.struct_size = sizeof options, .round = collect};
    assert_int_equal(nd_exact_graph_run(b->graph, &b->input, &options, ignore, &values, NULL), ND_OK);
    assert_non_null(values.v);
    return values;
}

/* In every tenth of the fractions as many are rounded up as the fractions say, within five deviations. */
static void stochastic_rounds_up_as_often_as_the_fraction_says(void **state)
{
    (void)state;
    enum { N_BINS = 10 };
    double n_up[N_BINS] = {0}, expected[N_BINS] = {0}, variance[N_BINS] = {0};
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t edge = edge_of(&b, "stem/relu");
    struct nd_emulator *emulator = make_device(&b, &emulation, "stochastic:11", 1);
    double zero = (double)nd_model_edge(b.model, edge)->quant.zero_point[0];
    for (uint64_t s = 0; s < 30; s++) {
        feed(&b, s);
        struct values values = values_of(&b, edge);
        run_device(&b, emulator);
        for (size_t i = 0; i < values.n; i++) {
            double below = floor(values.v[i]), fraction = values.v[i] - below,
                   up = b.codes[edge].x[i] - zero - below;
            if (below < 0 || below > 250)
                continue; /* clipped */
            assert_true(up == 0 || up == 1);
            assert_true(fraction > 0 || up == 0);
            size_t bin = (size_t)(fraction * N_BINS);
            n_up[bin] += up;
            expected[bin] += fraction;
            variance[bin] += fraction * (1 - fraction);
        }
        free(values.v);
    }
    for (size_t i = 0; i < N_BINS; i++) {
        assert_true(variance[i] > 10);
        if (fabs(n_up[i] - expected[i]) > 5 * sqrt(variance[i]))
            fail_msg("bin %zu: %g rounded up, %g expected, deviation %g", i, n_up[i], expected[i],
                     sqrt(variance[i]));
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

static double confined(bool is_wrapped, double accumulator, int n_bits)
{
    int64_t range = (int64_t)1 << n_bits, a = (int64_t)accumulator;
    if (!is_wrapped)
        return a >= range / 2 ? (double)(range / 2 - 1) : a < -range / 2 ? (double)(-range / 2) : (double)a;
    a = ((a % range) + range) % range;
    return (double)(a >= range / 2 ? a - range : a);
}

static void accumulators_are_whole_numbers_of_so_many_bits(void **state)
{
    (void)state;
    static const char *const edges[] = {"residual/conv", "logits"};
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    feed(&b, 3);
    for (size_t k = 0; k < 4; k++) {
        const char *name = edges[k / 2];
        bool is_wrapped = k % 2 == 1;
        int n_bits = k / 2 == 0 ? 13 : 15;
        size_t e = edge_of(&b, name), n_steps;
        const struct nd_edge *edge = nd_model_edge(b.model, e);
        struct nd_wide *steps;
        struct nd_emulation emulation;
        char text[64];
        snprintf(text, sizeof text, "%s@%s=%d", is_wrapped ? "wrap" : "saturate", name, n_bits);
        assert_int_equal(nd_exact_accumulator_steps(b.graph, e, &steps, &n_steps, NULL), ND_OK);
        struct values values = values_of(&b, e);
        run_plain(&b, b.plain, NULL);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        run_device(&b, emulator);
        size_t n_outside = 0;
        for (size_t i = 0; i < values.n; i++) {
            size_t n_inner = edge->shape.rank == 4 ? (size_t)(edge->shape.dims[2] * edge->shape.dims[3]) : 1;
            double step = steps[i / n_inner % (size_t)edge->shape.dims[1] % n_steps].parts[0];
            double scale = (double)edge->quant.scale[0], accumulator = values.v[i] * scale / step;
            assert_true(fabs(accumulator - rint(accumulator)) < 0.02);
            double kept = confined(is_wrapped, rint(accumulator), n_bits), v = kept * step / scale;
            n_outside += kept != rint(accumulator);
            double code = fmin(fmax(rint(v) + (double)edge->quant.zero_point[0], 0), 255);
            if (fabs(v - floor(v) - 0.5) > 1e-9)
                assert_f64_bits(b.codes[e].x[i], code);
            if (kept == rint(accumulator))
                assert_f64_bits(b.codes[e].x[i], b.plain[e].x[i]);
        }
        assert_true(n_outside > 0 && n_outside < values.n);
        free(values.v);
        free(steps);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

static void accumulators_of_other_units_are_refused(void **state)
{
    (void)state;
    struct bench b;
    struct nd_wide *steps;
    size_t n;
    struct nd_error err = {0};
    open_bench(&b, "cnn.w8a8");
    assert_int_equal(nd_exact_accumulator_steps(b.graph, edge_of(&b, "pool"), &steps, &n, &err),
                     ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_EXACT_OPERATOR);
    assert_int_equal(nd_exact_accumulator_steps(b.graph, edge_of(&b, "image"), &steps, &n, &err),
                     ND_ERR_UNSUPPORTED);
    close_bench(&b);
}

/* ---- runs ---- */

/* Runs n_runs of the same sample and keeps the codes of an edge: made[run]. */
static void record_runs(struct bench *b, const char *text, size_t n_repeats, size_t edge, struct nd_array *made,
                        size_t n_runs)
{
    struct nd_emulation emulation;
    struct nd_emulator *emulator = make_device(b, &emulation, text, n_repeats);
    for (size_t r = 0; r < n_runs; r++) {
        run_device(b, emulator);
        assert_int_equal(nd_array_copy(&b->codes[edge], &made[r], NULL), ND_OK);
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
}

static void seeds_repeat_and_runs_differ(void **state)
{
    (void)state;
    enum { N = 4 };
    struct bench b;
    struct nd_array first[N] = {{.n = 0}}, second[N] = {{.n = 0}};
    open_bench(&b, "cnn.w8a8");
    feed(&b, 9);
    size_t edge = edge_of(&b, "residual/conv");
    /* flips: every run is another one, the same device makes the same, another seed others */
    record_runs(&b, "flip@residual/conv=0.05", 2, edge, first, N);
    record_runs(&b, "flip@residual/conv=0.05,seed=1", 2, edge, second, N);
    for (size_t r = 0; r < N; r++) {
        assert_int_equal(differing(&first[r], &second[r]), 0);
        for (size_t k = 0; k < r; k++)
            assert_true(differing(&first[r], &first[k]) > 0);
    }
    record_runs(&b, "flip@residual/conv=0.05,seed=2", 2, edge, second, N);
    assert_true(differing(&first[0], &second[0]) > 0);
    /* stochastic rounding: another one in every sample, the same in its repeats */
    record_runs(&b, "stochastic:1", 2, edge, first, N);
    record_runs(&b, "stochastic:2", 2, edge, second, N);
    assert_int_equal(differing(&first[0], &first[1]), 0);
    assert_true(differing(&first[1], &first[2]) > 0);
    assert_int_equal(differing(&first[2], &first[3]), 0);
    assert_true(differing(&first[0], &second[0]) > 0);
    for (size_t r = 0; r < N; r++) {
        nd_array_deinit(&first[r]);
        nd_array_deinit(&second[r]);
    }
    close_bench(&b);
}

static void stale_edges_show_the_sample_before_in_every_repeat(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t edge = edge_of(&b, "logits");
    struct nd_array before = {0};
    struct nd_emulator *emulator = make_device(&b, &emulation, "stale@logits", 3);
    for (uint64_t s = 0; s < 3; s++) {
        feed(&b, s);
        run_plain(&b, b.plain, NULL);
        for (size_t r = 0; r < 3; r++) {
            run_device(&b, emulator);
            assert_int_equal(differing(&b.codes[edge], s == 0 ? &b.plain[edge] : &before), 0);
        }
        assert_int_equal(nd_array_copy(&b.plain[edge], &before, NULL), ND_OK);
    }
    nd_array_deinit(&before);
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

static void programs_the_most_specific_counts(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    size_t n;
    open_bench(&b, "cnn.w8a8");
    struct nd_emulator *emulator = make_device(
        &b, &emulation, "round@logits=ceil,round.Conv=floor,round.Gemm=ceil,round=to-zero,fallback@pool", 1);
    const struct nd_emu_truth *truth = nd_emulator_truth(emulator, &n);
    assert_int_equal(n, 1); /* logits has the program of its operator */
    assert_string_equal(truth[0].edge, "pool");
    assert_string_equal(truth[0].kind, "fallback");
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    emulator = make_device(&b, &emulation, "round@logits=ceil,round.Gemm=floor,fallback=Add", 1);
    truth = nd_emulator_truth(emulator, &n);
    assert_int_equal(n, 2);
    assert_string_equal(truth[0].edge, "residual/relu");
    assert_string_equal(truth[0].kind, "fallback");
    assert_string_equal(truth[1].kind, "rounding");
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_words_take_their_values),
        cmocka_unit_test(parse_programs_alone_are_of_all_units),
        cmocka_unit_test(parse_refuses_what_is_no_item),
        cmocka_unit_test(check_refuses_what_the_model_lacks),
        cmocka_unit_test(check_refuses_what_a_capture_cannot_hold),
        cmocka_unit_test(faults_are_where_the_truth_says),
        cmocka_unit_test(healthy_devices_are_the_reference),
        cmocka_unit_test(faults_of_codes_are_as_documented),
        cmocka_unit_test(permute_leaves_no_channel),
        cmocka_unit_test(stochastic_rounds_up_as_often_as_the_fraction_says),
        cmocka_unit_test(accumulators_are_whole_numbers_of_so_many_bits),
        cmocka_unit_test(accumulators_of_other_units_are_refused),
        cmocka_unit_test(seeds_repeat_and_runs_differ),
        cmocka_unit_test(stale_edges_show_the_sample_before_in_every_repeat),
        cmocka_unit_test(programs_the_most_specific_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
