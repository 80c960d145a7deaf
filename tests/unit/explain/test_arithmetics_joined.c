/* A Concat whose inputs have other encodings than it has, and layers that are made together with the one
 * before, held against what the simulator of the HTP makes of random quantised values
 * (golden/programs/joined-*, made by tools/oracles/make_htp_concat_oracle.py, and layers-*, made by
 * tools/oracles/make_htp_layers_oracle.py): several side by side in a model. */
#include "support/main.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/trials/layer_trial.h"
#include "arithmetic/trials/twin.h"
#include "explain/plan/plan.h"
#include "support/arithmetic_qvalues.h"

enum { MAX_BYTES = 1 << 18 };

struct trial {
    size_t arithmetic; /* of nd_layer_arithmetics */
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array *inputs, *given; /* [n of the model], [n_edges] the simulator's quantised values */
    struct nd_alternatives alternatives;
    struct nd_layer_trial trial;
    size_t n_concats, n_bad, n_qvalues,
        n_differing;          /* quantised values that are not what the inputs' quantised values would give */
    const char *prefix;       /* of its files */
    size_t n_layers, n_fused; /* layers of layers-*; those that only fusion explains */
    bool may_be_open;         /* a Relu that is not covered is no fault */
    size_t n_open;            /* how many there are */
    size_t n_unbelieved;      /* MatMuls that are in doubt in every value */
    enum nd_alternative alternative; /* that layers may be made in */
};

static const char *maker_of(const struct trial *t, size_t tensor)
{
    const struct nd_model_layer *layer = tensor != SIZE_MAX ? nd_model_layer_of_tensor(t->model, tensor) : NULL;
    return layer != NULL ? layer->op_types : "input";
}

static void look_at_concat(struct trial *t, const struct nd_exact_layer *layer)
{
    const struct nd_array *given = &t->given[layer->tensor],
                          *made = nd_layer_trial_other(&t->trial, ND_ALTERNATIVE_FUSED, t->arithmetic);
    size_t n_wrong = 0;
    t->n_concats++;
    for (size_t i = 0; made != NULL && i < given->n; i++)
        n_wrong += made->x[i] != given->x[i];
    if (made == NULL || made->n != given->n || n_wrong > 0) {
        t->n_bad++;
        print_message("Concat of %s and %s: %s, %zu of %zu quantised values differ\n",
                      maker_of(t, layer->input_tensors[0]), maker_of(t, layer->input_tensors[1]),
                      made != NULL ? "covered" : "not covered", n_wrong, given->n);
    }
    t->n_qvalues += given->n;
}

static size_t count_wrong(const struct nd_array *made, const struct nd_array *given)
{
    size_t n = 0;
    for (size_t i = 0; i < given->n; i++)
        n += i >= made->n || made->x[i] != given->x[i];
    return n;
}

/* What the arithmetic makes of the layer, alone or with the one before it, is what the simulator has; but for
 * what is in doubt. */
static void look_at_layer(struct trial *t, const struct nd_exact_layer *layer)
{
    const struct nd_layer_trial *trial = &t->trial;
    const struct nd_array *given = &t->given[layer->tensor],
                          *fused = nd_layer_trial_other(trial, t->alternative, t->arithmetic);
    bool is_matmul = strcmp(maker_of(t, layer->tensor), "MatMul") == 0;
    double doubt = trial->doubt[t->arithmetic] * (double)given->n;
    if (!is_matmul && doubt >= (double)given->n) /* it follows in every value, or it is not known */
        doubt = 0;
    const struct nd_array *alone =
        trial->is_covered[t->arithmetic] ? &trial->made[trial->alike[t->arithmetic]] : NULL;
    bool is_alone = alone != NULL && (double)count_wrong(alone, given) <= doubt;
    bool is_fused = !is_alone && fused != NULL && count_wrong(fused, given) == 0;
    t->n_layers++;
    t->n_unbelieved += is_matmul && doubt >= (double)given->n;
    t->n_fused += is_fused;
    t->n_qvalues += given->n;
    bool is_open =
        t->may_be_open && alone == NULL && fused == NULL && strcmp(maker_of(t, layer->tensor), "Relu") == 0;
    t->n_open += is_open;
    if (is_alone || is_fused || is_open)
        return;
    t->n_bad++;
    print_message("%s on %zu: %zu alone, %zu fused of %zu quantised values differ\n",
                  maker_of(t, layer->tensor), t->arithmetic,
                  alone != NULL ? count_wrong(alone, given) : given->n,
                  fused != NULL ? count_wrong(fused, given) : given->n, given->n);
}

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct trial *t = context;
    (void)qvalues;
    *is_made = false;
    enum nd_status status = nd_layer_trial_run(&t->trial, layer, &t->given[layer->tensor], err);
    if (status == ND_OK && strcmp(t->prefix, "layers-") == 0)
        look_at_layer(t, layer);
    else if (status == ND_OK && strcmp(maker_of(t, layer->tensor), "Concat") == 0)
        look_at_concat(t, layer);
    return status;
}

/* Plain rounding of the inputs' quantised values gives other codes: the files do show the difference. */
static enum nd_status count_differing(void *context, const struct nd_exact_values *values,
                                      struct nd_array *qvalues, struct nd_error *err)
{
    struct trial *t = context;
    (void)err;
    double low, high;
    nd_qvalue_range(values->dtype, &low, &high);
    for (size_t i = 0; i < values->n; i++) {
        double qvalue = nd_ratio_value(&values->v[i]) + (double)values->quant->zero_point[0];
        qvalues->x[i] = fmin(fmax(rint(qvalue), low), high);
        t->n_differing += strcmp(maker_of(t, values->tensor), "Concat") == 0 &&
                          qvalues->x[i] != t->given[values->tensor].x[i];
    }
    return ND_OK;
}

static size_t read_qvalues(const struct trial *t, const char *name, const char *part, unsigned char *bytes)
{
    return read_arithmetic_qvalues(t->prefix, name, part, bytes, MAX_BYTES);
}

static size_t tensor_of(const struct nd_model *model, const char *name)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->name, name) == 0)
            return e;
    fail_msg("no tensor %s", name);
    return 0;
}

static size_t load(const struct nd_model_io *io, const unsigned char *bytes, struct nd_array *array)
{
    assert_int_equal(nd_array_make(array, io->dtype, &io->shape, NULL), ND_OK);
    nd_array_load(io->dtype, bytes, array->n, array->x);
    return array->n * nd_dtype_size_bytes(io->dtype);
}

static void open_trial(struct trial *t, const char *name, const char *arch)
{
    static unsigned char in[MAX_BYTES], out[MAX_BYTES];
    char path[512];
    struct nd_error err = {0};
    snprintf(path, sizeof path, "%s/programs/%s%s.onnx", getenv("GOLDEN"), t->prefix, name);
    if (nd_model_load(path, &t->model, &err) != ND_OK ||
        nd_exact_graph_create(t->model, &t->graph, &err) != ND_OK ||
        nd_alternatives_init(&t->alternatives, t->model, &err) != ND_OK ||
        nd_layer_trial_init(&t->trial, t->model, &t->alternatives, &err) != ND_OK)
        fail_msg("%s", err.message);
    size_t at = 0, n_tensors = nd_model_n_tensors(t->model), n_in = read_qvalues(t, name, "in", in),
           n_out = read_qvalues(t, name, arch, out);
    t->inputs = calloc(nd_model_n_inputs(t->model), sizeof *t->inputs);
    t->given = calloc(n_tensors, sizeof *t->given);
    assert_true(t->inputs != NULL && t->given != NULL);
    for (size_t e = 0; e < n_tensors; e++)
        t->given[e] = (struct nd_array){.shape.rank = -1};
    for (size_t i = 0; i < nd_model_n_inputs(t->model); i++)
        at += load(nd_model_input(t->model, i), in + at, &t->inputs[i]);
    assert_int_equal(at, n_in);
    at = 0;
    for (size_t i = 0; i < nd_model_n_outputs(t->model); i++) {
        const struct nd_model_io *io = nd_model_output(t->model, i);
        at += load(io, out + at, &t->given[tensor_of(t->model, io->name)]);
    }
    assert_int_equal(at, n_out);
}

static void close_trial(struct trial *t)
{
    for (size_t i = 0; i < nd_model_n_inputs(t->model); i++)
        nd_array_deinit(&t->inputs[i]);
    for (size_t e = 0; e < nd_model_n_tensors(t->model); e++)
        nd_array_deinit(&t->given[e]);
    free(t->inputs);
    free(t->given);
    nd_layer_trial_deinit(&t->trial);
    nd_alternatives_deinit(&t->alternatives);
    nd_exact_graph_destroy(&t->graph);
    nd_model_destroy(&t->model);
}

static void run_group(struct trial *t, const char *name, const char *arch, const char *arithmetic)
{
    struct nd_error err = {0};
    size_t n_arithmetics;
    while (strcmp(nd_layer_arithmetics(&n_arithmetics)[t->arithmetic].name, arithmetic) != 0)
        t->arithmetic++;
    open_trial(t, name, arch);
    nd_layer_trial_begin(&t->trial);
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .round = count_differing, .make = make, .given = t->given};
    if (nd_exact_graph_run(t->graph, t->inputs, &options, NULL, t, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_int_equal(t->n_bad, 0);
}

/* What makes the inputs gives every quantised value of every Concat, with the encoding of the Concat. */
static void expect_group(const char *name, const char *arch, const char *arithmetic)
{
    struct trial t = {.prefix = "joined-"};
    run_group(&t, name, arch, arithmetic);
    print_message("# joined-%s on %s: %zu Concats, %zu quantised values, %zu of them not those of the inputs\n",
                  name, arch, t.n_concats, t.n_qvalues, t.n_differing);
    assert_true(t.n_concats > 0 && t.n_differing > t.n_qvalues / 100);
    close_trial(&t);
}

/* What a twin claims of a tensor that was recorded. */
struct claims {
    const struct trial *t;
    const struct nd_twin *twin;
    size_t n, n_wrong;
};

static enum nd_status look_at_claim(void *context, size_t tensor, const struct nd_array *values,
                                    enum nd_exact_method method, struct nd_error *err)
{
    struct claims *c = context;
    const struct nd_array *given = &c->t->given[tensor];
    const struct nd_twin_mark *mark = &nd_twin_marks(c->twin)[tensor];
    (void)method, (void)err;
    if (given->n == 0 || mark->why != NULL || mark->is_behind)
        return ND_OK;
    size_t n_wrong = count_wrong(values, given);
    c->n++;
    c->n_wrong += n_wrong > 0;
    if (n_wrong > 0)
        print_message("%s '%s': %zu of %zu quantised values differ\n", maker_of(c->t, tensor),
                      nd_model_tensor(c->t->model, tensor)->name, n_wrong, given->n);
    return ND_OK;
}

/* Without the values of a chip: what the twin does not mark is what the simulator has. */
static void expect_claims(const char *prefix, const char *name, const char *arch, struct claims *all)
{
    struct trial t = {.prefix = prefix};
    struct nd_twin_chip chip;
    struct nd_twin *twin;
    assert_true(nd_twin_chip_of(arch, ND_TWIN_NEWEST_SDK, &chip));
    open_trial(&t, name, arch);
    assert_int_equal(nd_twin_create(t.model, t.graph, &chip, NULL, &twin, NULL), ND_OK);
    struct claims claims = {.t = &t, .twin = twin};
    assert_int_equal(nd_twin_run(twin, t.inputs, look_at_claim, &claims, NULL), ND_OK);
    if (claims.n_wrong > 0)
        print_message("%s%s on %s: %zu of %zu wrong\n", prefix, name, arch, claims.n_wrong, claims.n);
    all->n += claims.n;
    all->n_wrong += claims.n_wrong;
    nd_twin_destroy(&twin);
    close_trial(&t);
}

/* All groups, but for those of which a choice is not right yet, or known to be incomplete (16-centred). */
static void claims_are_the_simulators(void **state)
{
    static const char *const archs[] = {"v69", "v73"}, *const prefixes[] = {"joined-", "layers-"};
    static const char *const open[] = {"16-centred", "16-gelu_of_tanh", "8-grouped", "8-turned_norms"};
    (void)state;
    char path[512];
    struct claims all = {0};
    glob_t found;
    for (size_t k = 0; k < 4; k++) {
        snprintf(path, sizeof path, "%s/programs/%s*.%s.bin", getenv("GOLDEN"), prefixes[k / 2], archs[k % 2]);
        assert_int_equal(glob(path, 0, NULL, &found), 0);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char *name = strstr(found.gl_pathv[i], prefixes[k / 2]) + strlen(prefixes[k / 2]);
            bool is_open = false;
            *strchr(name, '.') = '\0';
            for (size_t o = 0; o < sizeof open / sizeof *open; o++)
                is_open = is_open || strcmp(open[o], name) == 0;
            if (!is_open)
                expect_claims(prefixes[k / 2], name, archs[k % 2], &all);
        }
        globfree(&found);
    }
    print_message("# %zu tensors claimed, %zu of them wrong\n", all.n, all.n_wrong);
    assert_int_equal(all.n_wrong, 0);
    assert_true(all.n > 2000);
}

static void expect_fused(const char *name, size_t n_fused_of_v69, size_t n_fused_of_v73)
{
    static const char *const archs[] = {"v69", "v73"}, *const arithmetics[] = {"htp-v69", "htp-v73"};
    for (size_t p = 0; p < 2; p++) {
        struct trial t = {.prefix = "layers-"};
        run_group(&t, name, archs[p], arithmetics[p]);
        print_message("# layers-%s on %s: %zu layers, %zu of them fused, %zu quantised values\n", name,
                      archs[p], t.n_layers, t.n_fused, t.n_qvalues);
        assert_true(t.n_layers > 0);
        assert_int_equal(t.n_fused, p == 1 ? n_fused_of_v73 : n_fused_of_v69);
        assert_int_equal(t.n_unbelieved, 0);
        close_trial(&t);
    }
}

static void expect_layers(const char *name, size_t n_fused_of_v73)
{
    expect_fused(name, 0, n_fused_of_v73);
}

/* v73 makes a LeakyRelu with the product before it. */
static void slopes_are_made_with_the_product(void **state)
{
    (void)state;
    expect_layers("8-sloped", 3);
    expect_layers("16-sloped", 3);
}

/* Of floats, and of quantised values to another encoding. */
static void resize_by_two_is_made_of_float16(void **state)
{
    (void)state;
    expect_layers("8-enlarged", 0);
    expect_layers("16-enlarged", 0);
}

/* To the same type and to the other; and what is moved to a third encoding behind it. */
static void encodings_change_without_an_operator(void **state)
{
    (void)state;
    expect_fused("16-requantised", 1, 1);
}

/* The greatest quantised value is divided: a defect. */
static void reciprocals_of_fine_numbers_are_too_small(void **state)
{
    (void)state;
    expect_layers("8-fine", 0);
}

/* Along the axis before the last one of the device in another way than along others. */
static void extremes_depend_on_the_axis(void **state)
{
    (void)state;
    expect_layers("16-extremes", 0);
}

/* Float16 between the quantised values of the input and those of the output. */
static void operators_without_quantisers_between_are_of_float16(void **state)
{
    (void)state;
    expect_layers("8-unquantised", 0);
    expect_layers("16-unquantised", 0);
    expect_layers("8-curved", 0);
    expect_layers("16-curved", 0);
}

/* Operands of 8 and of 16 bits: so, too, a single operator. */
static void operands_of_two_types_are_of_float16(void **state)
{
    (void)state;
    expect_layers("16-mixed", 0);
}

/* Of two and of three axes, with biases of 32 bits; v73 makes what comes after one of uint8 and two axes with
 * it. */
static void norms_of_columns_are_those_of_planes(void **state)
{
    (void)state;
    expect_layers("8-columns", 5);
    expect_layers("16-columns", 0);
}

/* Also with slopes of another type; v73 makes one with the MatMul before it. */
static void slopes_of_channels_have_any_rank(void **state)
{
    (void)state;
    expect_layers("8-leaning", 4);
    expect_layers("16-leaning", 2);
}

static void sums_next_to_a_power_of_two_have_one_bit_less(void **state)
{
    (void)state;
    expect_layers("8-sum_ratios", 0);
}

static void softmax_ignores_its_zero_point(void **state)
{
    (void)state;
    expect_layers("8-zeroed_softmax", 0);
}

static void log_softmax_is_made_of_whole_numbers(void **state)
{
    (void)state;
    expect_layers("8-log_softmax", 0);
}

static void powers_are_tables_and_products(void **state)
{
    (void)state;
    expect_layers("8-powers", 0);
    expect_layers("16-powers", 0);
}

/* Their biases are not rescaled, and their means are those of planes. */
static void convolutions_of_rows_keep_their_biases(void **state)
{
    (void)state;
    expect_layers("8-rows_of_conv", 0);
    expect_layers("16-rows_of_conv", 0);
    expect_layers("8-rows_transposed", 0);
    expect_layers("16-rows_transposed", 0);
}

static void gelu_in_parts_is_one_function(void **state)
{
    (void)state;
    expect_fused("8-gelu_of_tanh", 3, 3);
    expect_fused("16-gelu_of_tanh", 4, 4); /* and a Mul by a number, in blocks */
}

/* With a Pow by 2; with a Mul in its place each operator is one of its own. */
static void norms_in_parts_are_one_operation(void **state)
{
    (void)state;
    expect_fused("8-norm_in_parts", 3, 3);
    expect_fused("16-norm_in_parts", 3, 3);
    /* Of channels: of those that lie as a Conv has them, turned or not, and not of those of a graph input. */
    expect_fused("8-turned_norms", 4, 4);
    expect_fused("16-turned_norms", 4, 4);
}

/* With a Mul at the last; with a Div in its place each operator is one of its own. */
static void swishes_in_parts_are_one_function(void **state)
{
    (void)state;
    expect_fused("8-swish_in_parts", 7, 7); /* three, and each Clip with its Add; of words the Div */
    expect_fused("16-swish_in_parts", 8, 8);
}

/* Where a quantised value of the root is one to 1e-5; two of eight are 2e-5 off. */
static void reciprocals_of_roots_are_one_operation(void **state)
{
    (void)state;
    expect_fused("8-inverse_roots", 6, 6);
    expect_fused("16-inverse_roots", 6, 6);
}

static void powers_logarithms_and_reciprocals_of_words_are_known(void **state)
{
    (void)state;
    expect_layers("16-exponents", 0);
}

/* Scales of a hostile model, whose products are infinite. */
static void gate_of_infinite_scales_is_not_known(void **state)
{
    (void)state;
    static const double scales[][3] = {{1e30, 1e30, 1e-30}, {3e38, 1, 1e-38}, {1e20, 1e18, 1}, {0, 1, 1}};
    for (size_t i = 0; i < 4; i++)
        for (int wide = 0; wide < 2; wide++) {
            const struct nd_htp_column column = {
                .scale_x = scales[i][0], .scale_w = scales[i][1], .scale_y = scales[i][2], .r = 1, .zero_y = 3};
            struct nd_htp_gate gate;
            bool is_known = nd_htp_gate_of(wide ? ND_DTYPE_U16 : ND_DTYPE_U8, &column, &gate);
            assert_true(!is_known || isfinite(gate.slope));
            assert_int_equal(is_known, false);
        }
}

/* So, too, a HardSwish. */
static void swishes_are_made_with_the_product(void **state)
{
    (void)state;
    expect_layers("8-swished", 5);
    expect_layers("16-swished", 5);
}

static void words_of_transposed_convolutions_may_be_padded(void **state)
{
    (void)state;
    expect_layers("16-transposed", 0);
}

static void padding_rescales_what_was_made(void **state)
{
    (void)state;
    expect_layers("8-pads", 0);
    expect_layers("16-pads", 0);
}

static void words_have_a_slope_for_each_channel(void **state)
{
    (void)state;
    expect_layers("16-bent", 0);
}

/* Those in the layout of a Conv are made as GlobalAveragePool. */
static void means_of_planes_follow_the_layout(void **state)
{
    (void)state;
    expect_layers("8-merged", 0); /* also behind a Reshape that puts rows behind one another */
    expect_layers("16-merged", 0);
    expect_layers("16-planes", 0);
}

/* A Relu that cuts nothing off is left out: what remains is rescaled as the layout has it. */
static void words_are_narrowed_as_the_layout_has_it(void **state)
{
    (void)state;
    expect_layers("16-narrow", 0);
}

static void floats_of_the_graph_are_halves(void **state)
{
    (void)state;
    expect_layers("8-floats", 0);
    expect_layers("8-ties", 0);
    expect_layers("16-floats", 0);
    expect_layers("8-chained", 0);
    expect_layers("16-chained", 0);
    expect_layers("8-carried", 0);
    expect_layers("16-carried", 0);
    expect_layers("16-near_halves", 0);
}

static void bytes_are_made_with_the_encoding_of_the_concat(void **state)
{
    (void)state;
    expect_group("8", "v69", "htp-v69");
    expect_group("8", "v73", "htp-v73");
}

static void words_are_made_with_the_encoding_of_the_concat(void **state)
{
    (void)state;
    expect_group("16", "v69", "htp-v69");
    expect_group("16", "v73", "htp-v73");
    expect_group("16-layout", "v69", "htp-v69");
    expect_group("16-layout", "v73", "htp-v73");
}

/* A zero point of 0; Sigmoid, Tanh of 16 bits; x Sigmoid(x). */
static void what_keeps_its_encoding_is_rescaled(void **state)
{
    (void)state;
    expect_group("8-rescaled", "v69", "htp-v69");
    expect_group("8-rescaled", "v73", "htp-v73");
    expect_group("16-rescaled", "v69", "htp-v69");
    expect_group("16-rescaled", "v73", "htp-v73");
}

static void moves_hand_on_what_was_made_for_the_concat(void **state)
{
    (void)state;
    expect_group("8-handed-on", "v69", "htp-v69");
    expect_group("8-handed-on", "v73", "htp-v73");
    expect_group("16-handed-on", "v69", "htp-v69");
    expect_group("16-handed-on", "v73", "htp-v73");
}

/* A Concat of a Concat; x HardSigmoid(x), which is a product. */
static void parts_of_parts_are_made_with_the_encoding_of_the_last_concat(void **state)
{
    (void)state;
    expect_group("8-nested", "v69", "htp-v69");
    expect_group("8-nested", "v73", "htp-v73");
}

/* A Split that has another encoding than what it splits. */
static void split_is_made_with_the_encoding_of_the_concat(void **state)
{
    (void)state;
    expect_group("8-divided", "v69", "htp-v69");
    expect_group("8-divided", "v73", "htp-v73");
    expect_group("16-divided", "v69", "htp-v69");
    expect_group("16-divided", "v73", "htp-v73");
}

/* A function reads what is split, in one table with the change of the encoding. */
static void function_is_one_table_with_the_encoding_of_the_split(void **state)
{
    (void)state;
    expect_fused("8-divided", 1, 1);
}

/* So is what has the zero point 0 where the Concat has it. */
static void zeros_are_made_with_the_encoding_of_the_concat(void **state)
{
    (void)state;
    expect_group("8-zeros", "v69", "htp-v69");
    expect_group("8-zeros", "v73", "htp-v73");
    expect_group("16-zeros", "v69", "htp-v69");
    expect_group("16-zeros", "v73", "htp-v73");
}

/* What a Relu before the Concat reads is made so, whatever encodings are between. */
static void relus_are_handed_on_to_the_concat(void **state)
{
    (void)state;
    expect_group("8-narrowed", "v69", "htp-v69");
    expect_group("8-narrowed", "v73", "htp-v73");
    expect_group("16-narrowed", "v69", "htp-v69");
    expect_group("16-narrowed", "v73", "htp-v73");
}

static void signed_parts_are_brought_as_unsigned_ones(void **state)
{
    (void)state;
    expect_group("8-signed", "v69", "htp-v69");
    expect_group("8-signed", "v73", "htp-v73");
}

static void relu_of_what_was_moved_is_fused(void **state)
{
    (void)state;
    expect_fused("8-narrowed", 3, 3);
}

/* Mul and Add behind an InstanceNormalization of groups; of an input of the graph they are made apart. */
static void group_normalisation_in_parts_is_fused(void **state)
{
    (void)state;
    expect_fused("8-grouped", 4, 4);
    expect_fused("16-grouped", 6, 6);
}

/* Mul and Add of constants for the channels of the device (of no other axis), a Gelu of Tanh, and on v73 a
 * PRelu of a MatMul. */
static void pairs_are_one_operation(void **state)
{
    (void)state;
    expect_fused("8-pairs", 4, 5);
}

/* v73 makes a Relu whose zero point is not 0 with the Conv before it, and with some other products. */
static void relu_with_a_zero_point_is_made_with_the_product(void **state)
{
    (void)state;
    expect_layers("8-raised", 6);
    expect_layers("16-raised", 9);
}

static void expect_v73(const char *name)
{
    struct trial t = {.prefix = "layers-"};
    run_group(&t, name, "v73", "htp-v73");
    assert_true(t.n_layers > 0);
    close_trial(&t);
}

/* Multipliers below 2^-24 are 2^32 times as large, a defect, in a way that is known of v73 alone. */
static void tiny_multipliers_wrap(void **state)
{
    (void)state;
    expect_v73("16-tiny");
}

/* A Mul by a vector and its sum; where the sum keeps its axis, or the Mul is by a matrix, each is by itself. */
static void sums_of_products_are_products(void **state)
{
    (void)state;
    expect_fused("8-dots", 4, 4);
    expect_v73("16-dots");
}

/* Constant or calculated, as v73 has them. */
static void weights_may_have_sixteen_bits(void **state)
{
    (void)state;
    expect_v73("16-wide");
}

/* A root of a sum of squares, each a float16. */
static void lengths_are_chains(void **state)
{
    (void)state;
    expect_layers("8-lengths", 0);
    expect_layers("16-lengths", 0);
}

static void long_windows_by_two_keep_the_sum(void **state)
{
    (void)state;
    expect_layers("16-long_strided", 0);
}

/* Multipliers below 1/2 round, others cut. */
static void strided_convs_of_fine_outputs(void **state)
{
    (void)state;
    expect_layers("8-cut_strided", 0);
    expect_layers("16-cut_strided", 0);
}

static void slopes_of_channels_may_be_signed(void **state)
{
    (void)state;
    expect_layers("8-signed_slopes", 0);
}

/* And of 16 bits one that is quantised. */
static void slopes_may_be_floats(void **state)
{
    (void)state;
    expect_layers("8-float_slopes", 0);
    expect_layers("16-float_slopes", 0);
}

static void sums_of_few_bits_are_shifted_to_the_left(void **state)
{
    (void)state;
    expect_layers("8-steep_sums", 0);
}

static void operands_may_be_brought_to_bytes(void **state)
{
    (void)state;
    expect_layers("16-brought", 0);
}

static void a_mean_of_one_place_is_a_change_of_the_encoding(void **state)
{
    (void)state;
    expect_layers("8-single", 0);
    expect_layers("16-single", 0);
}

static void bytes_become_words_by_a_multiplier(void **state)
{
    (void)state;
    expect_layers("16-widened", 0);
}

/* Of v69 single values are not explained. */
static void second_operands_of_words_become_bytes(void **state)
{
    (void)state;
    expect_v73("16-centred");
}

static void running_sums_are_clipped_on_the_way(void **state)
{
    (void)state;
    expect_layers("8-cumulated", 0);
}

/* R5 and R6 of the page, where a tensor lies deciding, or the arithmetic of what made it. */
static void reshape_that_moves_nothing_follows_where_a_tensor_lies(void **state)
{
    (void)state;
    expect_fused("8-still", 6, 6);
}

static void resize_takes_the_mean_of_qvalues(void **state)
{
    (void)state;
    expect_fused("8-interpolated", 3, 3);
    expect_fused("16-interpolated", 3, 3);
    expect_fused("16-doubled", 2, 2);
}

static void resize_of_words_has_weights_of_fifteen_bits(void **state)
{
    (void)state;
    expect_layers("16-aligned", 0);
}

static void a_window_that_is_the_plane_makes_one_mean(void **state)
{
    (void)state;
    expect_layers("8-whole", 0);
    expect_layers("16-whole", 0);
}

static void what_names_axes_is_moved_behind_the_quantiser(void **state)
{
    (void)state;
    expect_layers("8-renamed", 0);
    expect_layers("16-renamed", 0);
}

static void means_of_windows_that_overlap_are_products(void **state)
{
    (void)state;
    expect_layers("16-pooled", 0);
}

/* With a zero point the quantised values are made in steps of 2^-16 and rescaled. */
static void word_softmax_of_any_axis_is_bit_exact(void **state)
{
    (void)state;
    expect_layers("16-shares", 0);
}

static void batch_normalization_with_a_relu_is_one_operation(void **state)
{
    (void)state;
    expect_layers("8-normed", 0);
    expect_layers("16-normed", 0);
}

static void floats_of_the_graph_that_are_moved_are_quantised_before(void **state)
{
    (void)state;
    expect_layers("8-given", 0);
    expect_layers("16-given", 0);
}

/* Multipliers half between two numbers, and those that become 2^15. */
static void sums_of_words_have_multipliers_of_fifteen_bits(void **state)
{
    (void)state;
    expect_layers("16-halved", 0);
}

/* Before a MatMul they change the encoding and nothing else. */
static void words_by_a_number_follow_what_reads_them(void **state)
{
    (void)state;
    expect_fused("16-numbered", 5, 5);
    expect_fused("16-attended", 5, 5);
}

static void curves_of_words_have_any_scale(void **state)
{
    (void)state;
    expect_layers("16-scaled", 0);
}

static void biases_of_channels_are_brought_to_one_scale(void **state)
{
    (void)state;
    expect_layers("16-biased", 0);
}

static void words_are_moved_to_another_encoding(void **state)
{
    (void)state;
    expect_layers("16-recoded", 0);
    struct trial t = {.prefix = "layers-", .alternative = ND_ALTERNATIVE_V81};
    run_group(&t, "16-recoded", "v81", "htp-v73");
    assert_int_equal(t.n_fused, 3); /* layers that are not those of v73 */
    close_trial(&t);
}

static void words_are_normalised_in_qf32(void **state)
{
    (void)state;
    expect_layers("16-deviations", 0);
}

/* The rows' multipliers lie next to where they are cut. */
static void norms_of_bytes_take_two_steps_to_their_root(void **state)
{
    (void)state;
    expect_layers("8-cuts", 0);
}

/* How v73 makes it is not known: what a Relu by itself would give says nothing. */
static void relu_of_a_steep_product_is_not_covered(void **state)
{
    (void)state;
    struct trial t = {.prefix = "layers-", .may_be_open = true};
    run_group(&t, "8-steep", "v73", "htp-v73");
    assert_int_equal(t.n_open, 2);
    close_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_the_simulators),
        cmocka_unit_test(bytes_are_made_with_the_encoding_of_the_concat),
        cmocka_unit_test(words_are_made_with_the_encoding_of_the_concat),
        cmocka_unit_test(what_keeps_its_encoding_is_rescaled),
        cmocka_unit_test(moves_hand_on_what_was_made_for_the_concat),
        cmocka_unit_test(split_is_made_with_the_encoding_of_the_concat),
        cmocka_unit_test(function_is_one_table_with_the_encoding_of_the_split),
        cmocka_unit_test(zeros_are_made_with_the_encoding_of_the_concat),
        cmocka_unit_test(relus_are_handed_on_to_the_concat),
        cmocka_unit_test(signed_parts_are_brought_as_unsigned_ones),
        cmocka_unit_test(relu_of_what_was_moved_is_fused),
        cmocka_unit_test(group_normalisation_in_parts_is_fused),
        cmocka_unit_test(pairs_are_one_operation),
        cmocka_unit_test(relu_with_a_zero_point_is_made_with_the_product),
        cmocka_unit_test(tiny_multipliers_wrap),
        cmocka_unit_test(sums_of_products_are_products),
        cmocka_unit_test(weights_may_have_sixteen_bits),
        cmocka_unit_test(lengths_are_chains),
        cmocka_unit_test(running_sums_are_clipped_on_the_way),
        cmocka_unit_test(second_operands_of_words_become_bytes),
        cmocka_unit_test(bytes_become_words_by_a_multiplier),
        cmocka_unit_test(a_mean_of_one_place_is_a_change_of_the_encoding),
        cmocka_unit_test(slopes_of_channels_may_be_signed),
        cmocka_unit_test(slopes_may_be_floats),
        cmocka_unit_test(operands_may_be_brought_to_bytes),
        cmocka_unit_test(sums_of_few_bits_are_shifted_to_the_left),
        cmocka_unit_test(long_windows_by_two_keep_the_sum),
        cmocka_unit_test(strided_convs_of_fine_outputs),
        cmocka_unit_test(reshape_that_moves_nothing_follows_where_a_tensor_lies),
        cmocka_unit_test(resize_takes_the_mean_of_qvalues),
        cmocka_unit_test(resize_of_words_has_weights_of_fifteen_bits),
        cmocka_unit_test(what_names_axes_is_moved_behind_the_quantiser),
        cmocka_unit_test(a_window_that_is_the_plane_makes_one_mean),
        cmocka_unit_test(means_of_windows_that_overlap_are_products),
        cmocka_unit_test(word_softmax_of_any_axis_is_bit_exact),
        cmocka_unit_test(batch_normalization_with_a_relu_is_one_operation),
        cmocka_unit_test(floats_of_the_graph_that_are_moved_are_quantised_before),
        cmocka_unit_test(words_are_normalised_in_qf32),
        cmocka_unit_test(norms_of_bytes_take_two_steps_to_their_root),
        cmocka_unit_test(relu_of_a_steep_product_is_not_covered),
        cmocka_unit_test(sums_of_words_have_multipliers_of_fifteen_bits),
        cmocka_unit_test(words_by_a_number_follow_what_reads_them),
        cmocka_unit_test(biases_of_channels_are_brought_to_one_scale),
        cmocka_unit_test(words_are_moved_to_another_encoding),
        cmocka_unit_test(curves_of_words_have_any_scale),
        cmocka_unit_test(parts_of_parts_are_made_with_the_encoding_of_the_last_concat),
        cmocka_unit_test(slopes_are_made_with_the_product),
        cmocka_unit_test(swishes_are_made_with_the_product),
        cmocka_unit_test(gate_of_infinite_scales_is_not_known),
        cmocka_unit_test(resize_by_two_is_made_of_float16),
        cmocka_unit_test(words_of_transposed_convolutions_may_be_padded),
        cmocka_unit_test(encodings_change_without_an_operator),
        cmocka_unit_test(reciprocals_of_fine_numbers_are_too_small),
        cmocka_unit_test(extremes_depend_on_the_axis),
        cmocka_unit_test(operators_without_quantisers_between_are_of_float16),
        cmocka_unit_test(operands_of_two_types_are_of_float16),
        cmocka_unit_test(norms_of_columns_are_those_of_planes),
        cmocka_unit_test(slopes_of_channels_have_any_rank),
        cmocka_unit_test(sums_next_to_a_power_of_two_have_one_bit_less),
        cmocka_unit_test(softmax_ignores_its_zero_point),
        cmocka_unit_test(log_softmax_is_made_of_whole_numbers),
        cmocka_unit_test(powers_are_tables_and_products),
        cmocka_unit_test(convolutions_of_rows_keep_their_biases),
        cmocka_unit_test(gelu_in_parts_is_one_function),
        cmocka_unit_test(norms_in_parts_are_one_operation),
        cmocka_unit_test(swishes_in_parts_are_one_function),
        cmocka_unit_test(reciprocals_of_roots_are_one_operation),
        cmocka_unit_test(powers_logarithms_and_reciprocals_of_words_are_known),
        cmocka_unit_test(means_of_planes_follow_the_layout),
        cmocka_unit_test(words_are_narrowed_as_the_layout_has_it),
        cmocka_unit_test(floats_of_the_graph_are_halves),
        cmocka_unit_test(words_have_a_slope_for_each_channel),
        cmocka_unit_test(padding_rescales_what_was_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
