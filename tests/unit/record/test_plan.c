#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "record/sessions/capture_run.h"

enum { MAX_SETS = 64, MOST = 3, MAX_KEPT = 512 };

static struct nd_model *model;
static size_t *tensors;
static size_t n_tensors;

static int load_model(void **state)
{
    (void)state;
    const char *root = getenv("GOLDEN");
    char *path = root != NULL ? nd_path_join(root, "models/vit.w8a8.onnx") : NULL;
    bool is_whole = path != NULL && nd_model_load(path, &model, NULL) == ND_OK &&
                    nd_model_select_tensors(model, "all", &tensors, &n_tensors, NULL) == ND_OK;
    free(path);
    return is_whole ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    nd_model_destroy(&model);
    free(tensors);
    return 0;
}

static unsigned int seed(void)
{
    const char *text = getenv("ND_SEED");
    unsigned int value = text != NULL ? (unsigned int)strtoul(text, NULL, 10) : 4711;
    print_message("# ND_SEED=%u\n", value);
    srandom(value);
    return value;
}

/* ---- a provider that does not show every set ---- */

/* Tensors of which a session shows no two or three together; with `needs_outputs` only beside the model's
 * outputs (what is cut off in front of them holds), with `needs_cut` only without. One tensor: it is guilty
 * alone. */
struct bad_set {
    size_t at[MOST]; /* indices into the model's tensors */
    size_t n;
    const char *node; /* that falls; NULL: that of at[0] */
};

enum method { ANY_METHOD, WITH_OUTPUTS, WITHOUT_OUTPUTS };

struct provider {
    struct bad_set sets[MAX_SETS];
    size_t n_sets;
    enum method method; /* in which a bad set does not hold */
    bool is_silent;     /* no node that falls has a name of the model */
    bool is_refusing;   /* the session does not come to be */
    uint64_t odd;     /* not 0: sets whose digest with this number is odd do not hold, but single tensors do */
    bool holds_alone; /* a session of one tensor always holds */
    bool has_floats;  /* a tensor that is shown as floats is in no bad set */
    unsigned char as_floats[256]; /* of tensors of the model */
    size_t n_trials;
    size_t fails_at;                   /* the trial that fails; SIZE_MAX: none */
    size_t has_time_for;               /* trials; 0: all */
    unsigned char kept[MAX_KEPT][256]; /* the sets that held, one flag for each tensor */
    size_t n_kept;
};

static bool is_in(const size_t *set, size_t n, size_t tensor)
{
    for (size_t i = 0; i < n; i++)
        if (set[i] == tensor)
            return true;
    return false;
}

static bool has_output(const size_t *exposed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nd_model_tensor(model, exposed[i])->is_model_output)
            return true;
    return false;
}

static bool is_bad(const struct bad_set *set, const size_t *exposed, size_t n)
{
    for (size_t i = 0; i < set->n; i++)
        if (!is_in(exposed, n, set->at[i]))
            return false;
    return true;
}

static void add_fell_back(struct nd_fell_back *fell_back, const char *name)
{
    char **grown = realloc(fell_back->names, (fell_back->n + 1) * sizeof *grown);
    assert_non_null(grown);
    fell_back->names = grown;
    grown[fell_back->n] = nd_strdup(name);
    assert_non_null(grown[fell_back->n++]);
}

static bool is_odd(const struct provider *provider, const size_t *exposed, size_t n)
{
    uint64_t hash = provider->odd;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ exposed[i]) * 1099511628211u;
    return provider->odd != 0 && n > 1 && (hash >> 40) % 2 == 1;
}

static enum nd_status try_exposed(void *context, const size_t *exposed, size_t n, struct nd_tried *out,
                                  struct nd_error *err)
{
    struct provider *provider = context;
    assert_true(n > 0); /* a model without outputs is none */
    for (size_t i = 1; i < n; i++)
        assert_true(exposed[i - 1] < exposed[i]);
    if (provider->n_trials++ == provider->fails_at)
        return nd_fail(err, ND_E_DEVICE_AGENT, "agent", "trial %zu fails", provider->n_trials - 1);
    bool applies =
        provider->method == ANY_METHOD || (provider->method == WITH_OUTPUTS) == has_output(exposed, n);
    out->holds = !is_odd(provider, exposed, n);
    for (size_t i = 0; applies && i < provider->n_sets; i++) {
        if (!is_bad(&provider->sets[i], exposed, n) || provider->as_floats[provider->sets[i].at[0]])
            continue;
        out->holds = false;
        if (provider->is_refusing)
            snprintf(out->reason, sizeof out->reason, "the session is stuck");
        else
            add_fell_back(&out->fell_back, provider->is_silent ? "Transpose_token_12"
                                           : provider->sets[i].node != NULL
                                               ? provider->sets[i].node
                                               : nd_model_tensor(model, provider->sets[i].at[0])->node);
    }
    if (out->holds && provider->n_kept < MAX_KEPT) {
        unsigned char *kept = provider->kept[provider->n_kept++];
        memset(kept, 0, sizeof provider->kept[0]);
        for (size_t i = 0; i < n; i++)
            kept[exposed[i]] = 1;
    }
    return ND_OK;
}

static bool has_time(void *context)
{
    const struct provider *provider = context;
    return provider->has_time_for == 0 || provider->n_trials < provider->has_time_for;
}

static bool use_floats(void *context, size_t tensor, bool as_floats)
{
    struct provider *provider = context;
    assert_true(provider->as_floats[tensor] != as_floats);
    provider->as_floats[tensor] = provider->has_floats && as_floats;
    return provider->has_floats;
}

static struct nd_recording recording_of(struct provider *provider)
{
    provider->fails_at = SIZE_MAX;
    provider->n_trials = 0;
    provider->n_kept = 0;
    assert_true(nd_model_n_tensors(model) <= sizeof provider->kept[0]);
    return (struct nd_recording){.model = model,
                                 .tensors = tensors,
                                 .n_tensors = n_tensors,
                                 .do_outputs_hold = true,
                                 .trial = try_exposed,
                                 .has_time = has_time,
                                 .use_floats = use_floats,
                                 .context = provider};
}

static bool is_checked(const struct nd_planned_pass *pass, size_t at)
{
    return is_in(pass->checks, pass->n_checks, at);
}

/* Every session of the plan is one that was tried as it is, and that held; but that of the outputs alone, which
 * is known to hold. */
static void check_tried(const struct provider *provider, const struct nd_pass_plan *plan, size_t p)
{
    unsigned char wanted[sizeof provider->kept[0]] = {0};
    bool is_of_outputs = true;
    for (size_t i = 0; i < n_tensors; i++)
        if (plan->pass_of_tensor[i] == p || is_checked(&plan->passes[p], i)) {
            wanted[tensors[i]] = 1;
            is_of_outputs = is_of_outputs && nd_model_tensor(model, tensors[i])->is_model_output;
        }
    for (size_t i = 0; i < provider->n_kept; i++)
        if (memcmp(provider->kept[i], wanted, sizeof wanted) == 0)
            return;
    assert_true(is_of_outputs);
}

/* Plans, and checks what holds for every plan. */
static void plan(struct provider *provider, struct nd_pass_plan *out)
{
    struct nd_error err = {0};
    const struct nd_recording recording = recording_of(provider);
    assert_int_equal(nd_plan_passes(&recording, out, &err), ND_OK);
    assert_int_equal(out->n_trials, provider->n_trials);
    assert_int_equal(out->n_tensors, n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        bool is_shown = out->pass_of_tensor[i] != SIZE_MAX;
        assert_true(!is_shown || out->pass_of_tensor[i] < out->n_passes);
        assert_true(is_shown == (out->reasons[i] == NULL));
        if (nd_model_tensor(model, tensors[i])->is_model_output)
            assert_int_equal(out->pass_of_tensor[i], 0);
    }
    for (size_t p = 0; p < out->n_passes; p++) {
        assert_true(is_in(out->pass_of_tensor, n_tensors, p));
        for (size_t i = 0; i < out->passes[p].n_checks; i++)
            assert_int_equal(out->pass_of_tensor[out->passes[p].checks[i]], 0);
        if (provider->n_kept < MAX_KEPT)
            check_tried(provider, out, p);
    }
}

static size_t n_left_out(const struct nd_pass_plan *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < n_tensors; i++)
        n += plan->pass_of_tensor[i] == SIZE_MAX;
    return n;
}

static size_t n_of_pass(const struct nd_pass_plan *plan, size_t pass)
{
    size_t n = 0;
    for (size_t i = 0; i < n_tensors; i++)
        n += plan->pass_of_tensor[i] == pass;
    return n;
}

/* A tensor that is recorded and no output of the model. */
static size_t any_tensor(void)
{
    size_t tensor;
    do
        tensor = tensors[(size_t)random() % n_tensors];
    while (nd_model_tensor(model, tensor)->is_model_output);
    return tensor;
}

static void add_random_set(struct provider *provider, size_t n)
{
    struct bad_set *set = &provider->sets[provider->n_sets++];
    *set = (struct bad_set){0};
    while (set->n < n) {
        size_t tensor = any_tensor();
        if (!is_in(set->at, set->n, tensor))
            set->at[set->n++] = tensor;
    }
}

/* ---- tests ---- */

static void what_holds_at_once_takes_one_trial(void **state)
{
    (void)state;
    struct provider provider = {0};
    struct nd_pass_plan made = {0};
    plan(&provider, &made);
    assert_int_equal(made.n_passes, 1);
    assert_int_equal(made.n_trials, 1);
    assert_int_equal(n_left_out(&made), 0);
    nd_pass_plan_deinit(&made);
}

/* What the first run showed is not tried again. */
static void what_is_known_is_not_tried_again(void **state)
{
    (void)state;
    struct provider provider = {.sets = {{{tensors[5], tensors[9]}, 2, NULL}}, .n_sets = 1};
    struct nd_pass_plan made = {0}, again = {0};
    struct nd_tried first = {0};
    struct nd_recording recording = recording_of(&provider);
    assert_int_equal(nd_plan_passes(&recording, &made, NULL), ND_OK);
    recording = recording_of(&provider);
    assert_int_equal(try_exposed(&provider, tensors, n_tensors, &first, NULL), ND_OK);
    assert_false(first.holds);
    provider.n_trials = 0;
    recording.first = &first;
    assert_int_equal(nd_plan_passes(&recording, &again, NULL), ND_OK);
    assert_int_equal(again.n_trials + 1, made.n_trials);
    assert_memory_equal(again.pass_of_tensor, made.pass_of_tensor, n_tensors * sizeof *made.pass_of_tensor);
    nd_tried_deinit(&first);
    nd_pass_plan_deinit(&made);
    nd_pass_plan_deinit(&again);
}

/* Guilty only beside another one, or with two: everything is shown, and what stays together is what can. */
static void sets_at_random_are_split(void **state)
{
    (void)state;
    seed();
    size_t n_max_trials = 0, n_max_passes = 0;
    for (int round = 0; round < 300; round++) {
        struct provider provider = {.is_silent = random() % 2 == 1, .is_refusing = random() % 3 == 0};
        size_t n_sets = 1 + (size_t)random() % 6;
        for (size_t i = 0; i < n_sets; i++)
            add_random_set(&provider, 2 + (size_t)random() % 2);
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        assert_true(made.n_passes > 1);
        n_max_trials = made.n_trials > n_max_trials ? made.n_trials : n_max_trials;
        n_max_passes = made.n_passes > n_max_passes ? made.n_passes : n_max_passes;
        assert_true(made.n_trials < n_tensors); /* and not one for each tensor */
        nd_pass_plan_deinit(&made);
    }
    print_message("# at most %zu trials, %zu passes, %zu tensors\n", n_max_trials, n_max_passes, n_tensors);
}

/* Tensors that no session shows are left out with the reason, all others are shown. */
static void guilty_tensors_are_left_out_and_named(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < 300; round++) {
        struct provider provider = {.is_silent = random() % 2 == 1, .is_refusing = random() % 3 == 0};
        size_t n_sets = 1 + (size_t)random() % 5;
        for (size_t i = 0; i < n_sets; i++)
            add_random_set(&provider, 1);
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        for (size_t i = 0; i < n_tensors; i++) {
            bool is_guilty = false;
            for (size_t k = 0; k < n_sets; k++)
                is_guilty = is_guilty || provider.sets[k].at[0] == tensors[i];
            assert_int_equal(made.pass_of_tensor[i] == SIZE_MAX, is_guilty);
            if (is_guilty)
                assert_non_null(strstr(made.reasons[i], provider.is_refusing ? "is stuck"
                                                        : provider.is_silent ? "'Transpose_token_12'"
                                                                             : "to the CPU, first '"));
        }
        nd_pass_plan_deinit(&made);
    }
}

/* The same where the floats of those tensors can be shown: these and no others are. */
static void guilty_tensors_are_shown_as_floats(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < 300; round++) {
        struct provider provider = {
            .is_silent = random() % 2 == 1, .is_refusing = random() % 3 == 0, .has_floats = true};
        unsigned char guilty[sizeof provider.as_floats] = {0};
        size_t n_sets = 1 + (size_t)random() % 5;
        for (size_t i = 0; i < n_sets; i++) {
            add_random_set(&provider, 1);
            guilty[provider.sets[i].at[0]] = 1;
        }
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        assert_memory_equal(provider.as_floats, guilty, sizeof guilty);
        nd_pass_plan_deinit(&made);
    }
}

/* Guilty only in the whole model: shown in one that is cut off in front of the outputs, which are then no
 * check, but what the tensor is computed from is. */
static void what_only_a_cut_model_shows_is_shown_there(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < 100; round++) {
        struct provider provider = {.method = WITH_OUTPUTS, .is_silent = random() % 2 == 1};
        size_t n_sets = 1 + (size_t)random() % 5;
        for (size_t i = 0; i < n_sets; i++)
            add_random_set(&provider, 1);
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        size_t last = made.n_passes - 1;
        for (size_t i = 0; i < made.passes[last].n_checks; i++)
            assert_false(nd_model_tensor(model, tensors[made.passes[last].checks[i]])->is_model_output);
        assert_true(made.n_passes == 2 || made.n_passes == 3);
        nd_pass_plan_deinit(&made);
    }
}

/* The other way round: guilty only where the model is cut. */
static void what_only_the_whole_model_shows_is_shown_there(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < 100; round++) {
        struct provider provider = {.method = WITHOUT_OUTPUTS};
        add_random_set(&provider, 1);
        add_random_set(&provider, 2);
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        assert_int_equal(made.n_passes, 1);
        nd_pass_plan_deinit(&made);
    }
}

/* Whether a set holds says nothing of its parts: still every tensor is shown, each session as it was tried. */
static void sets_without_any_order_are_shown(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < 50; round++) {
        struct provider provider = {.odd = (uint64_t)random() | 1};
        struct nd_pass_plan made = {0};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        nd_pass_plan_deinit(&made);
    }
}

/* One tensor of each block of a network, alone or with its neighbour: a handful of trials, whatever the number
 * of blocks. */
static void like_tensors_of_all_blocks_go_together(void **state)
{
    (void)state;
    struct provider provider = {0};
    struct nd_pass_plan made = {0};
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        if (strcmp(layer->op_types, "Softmax") == 0)
            provider.sets[provider.n_sets++] = (struct bad_set){{layer->tensor, layer->inputs[0]}, 2, NULL};
    }
    assert_in_range(provider.n_sets, 2, MAX_SETS);
    plan(&provider, &made);
    assert_int_equal(made.n_passes, 2);
    assert_int_equal(n_of_pass(&made, 1), provider.n_sets);
    assert_in_range(made.n_trials, 2, 8);
    nd_pass_plan_deinit(&made);
}

/* What each Softmax reads moves it where the outputs are recorded, too: two passes, found by four trials (all
 * at once, what no Softmax reads, the rest beside the outputs, the rest cut). */
static void what_fell_back_nodes_read_goes_to_a_second_pass(void **state)
{
    (void)state;
    struct provider provider = {.method = WITH_OUTPUTS};
    struct nd_pass_plan made = {0};
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        if (strcmp(layer->op_types, "Softmax") == 0)
            provider.sets[provider.n_sets++] =
                (struct bad_set){{layer->inputs[0]}, 1, nd_model_tensor(model, layer->tensor)->node};
    }
    assert_in_range(provider.n_sets, 2, MAX_SETS);
    plan(&provider, &made);
    assert_int_equal(made.n_passes, 2);
    assert_int_equal(made.n_trials, 4);
    assert_int_equal(n_left_out(&made), 0);
    assert_int_equal(n_of_pass(&made, 1), provider.n_sets);
    assert_true(made.passes[1].n_checks > 0);
    nd_pass_plan_deinit(&made);
}

/* Only one of the set at a time. */
static void tensors_that_exclude_one_another_get_a_pass_each(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 11; n++) {
        struct provider provider = {0};
        struct nd_pass_plan made = {0};
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < i; k++)
                provider.sets[provider.n_sets++] =
                    (struct bad_set){{tensors[5 * i + 2], tensors[5 * k + 2]}, 2, NULL};
        plan(&provider, &made);
        assert_int_equal(n_left_out(&made), 0);
        assert_in_range(made.n_passes, n, n + 1);
        nd_pass_plan_deinit(&made);
    }
}

/* What was not found in time is left out, and what was found is kept. */
static void time_that_is_over_ends_the_search(void **state)
{
    (void)state;
    struct provider provider = {0};
    struct nd_pass_plan made = {0};
    for (size_t i = 0; i < 8; i++)
        provider.sets[provider.n_sets++] = (struct bad_set){{tensors[7 * i + 3], tensors[7 * i + 5]}, 2, NULL};
    plan(&provider, &made);
    size_t n_whole = made.n_trials;
    assert_true(n_whole > 4);
    nd_pass_plan_deinit(&made);
    for (size_t n = 1; n < n_whole; n++) {
        provider.has_time_for = n;
        plan(&provider, &made);
        assert_in_range(made.n_trials, 0, n);
        assert_true(made.n_passes > 0);
        for (size_t i = 0; i < n_tensors; i++)
            if (made.pass_of_tensor[i] == SIZE_MAX)
                assert_non_null(strstr(made.reasons[i], "no time"));
        nd_pass_plan_deinit(&made);
    }
}

static void failing_trial_is_passed_on(void **state)
{
    (void)state;
    struct provider provider = {0};
    struct nd_pass_plan made = {0};
    for (size_t i = 0; i < 3; i++)
        provider.sets[provider.n_sets++] = (struct bad_set){{tensors[7 * i + 3], tensors[7 * i + 5]}, 2, NULL};
    plan(&provider, &made);
    size_t n_trials = made.n_trials;
    nd_pass_plan_deinit(&made);
    assert_true(n_trials > 4);
    for (size_t at = 0; at < n_trials; at++) {
        struct nd_error err = {0};
        char expected[64];
        const struct nd_recording recording = recording_of(&provider);
        provider.fails_at = at;
        assert_int_equal(nd_plan_passes(&recording, &made, &err), ND_ERR_IO);
        snprintf(expected, sizeof expected, "trial %zu fails", at);
        assert_string_equal(err.message, expected);
        assert_int_equal(provider.n_trials, at + 1);
        assert_null(made.pass_of_tensor);
    }
}

/* What falls anyway is no doing of the recording, whatever number a layout pass gave it in this session. */
static void own_nodes_are_subtracted(void **state)
{
    (void)state;
    static const char *const own[] = {"erf", "Transpose_token_3", "Transpose_token_4", "add_token_9"};
    static const char *const all[] = {"Transpose_token_7",  "erf", "add", "Transpose_token_8",
                                      "Transpose_token_11", "erf2"};
    struct nd_fell_back device = {0}, fell_back = {0};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        add_fell_back(&device, own[i]);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        add_fell_back(&fell_back, all[i]);
    nd_fell_back_subtract(&fell_back, &device);
    assert_int_equal(fell_back.n, 2);
    assert_string_equal(fell_back.names[0], "Transpose_token_11");
    assert_string_equal(fell_back.names[1], "erf2");
    nd_fell_back_deinit(&device);
    nd_fell_back_deinit(&fell_back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_holds_at_once_takes_one_trial),
        cmocka_unit_test(what_is_known_is_not_tried_again),
        cmocka_unit_test(sets_at_random_are_split),
        cmocka_unit_test(guilty_tensors_are_left_out_and_named),
        cmocka_unit_test(guilty_tensors_are_shown_as_floats),
        cmocka_unit_test(what_only_a_cut_model_shows_is_shown_there),
        cmocka_unit_test(what_only_the_whole_model_shows_is_shown_there),
        cmocka_unit_test(sets_without_any_order_are_shown),
        cmocka_unit_test(like_tensors_of_all_blocks_go_together),
        cmocka_unit_test(what_fell_back_nodes_read_goes_to_a_second_pass),
        cmocka_unit_test(tensors_that_exclude_one_another_get_a_pass_each),
        cmocka_unit_test(time_that_is_over_ends_the_search),
        cmocka_unit_test(failing_trial_is_passed_on),
        cmocka_unit_test(own_nodes_are_subtracted),
    };
    return cmocka_run_group_tests(tests, load_model, free_model);
}
