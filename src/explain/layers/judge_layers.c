/* Which arithmetic of whole layers a device has, and which of its layers do not follow it. */
#include "explain/layers/device_arithmetics.h"

#include <math.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"

static bool covers(const struct nd_observed_arithmetic *observed, size_t arithmetic)
{
    const struct nd_layer_tally *layers = observed->layers;
    return observed->is_counted && layers != NULL && layers->n[arithmetic] > 0 &&
           layers->n[arithmetic] == observed->n_qvalues &&
           !(layers->doubt[arithmetic] >= 1 && layers->wrong[arithmetic] > 0);
}

/* Whether all quantised values of the layer are the program's, as far as that is complete. */
static bool nd_follows(const struct nd_observed_arithmetic *observed, size_t arithmetic)
{
    if (!covers(observed, arithmetic))
        return false;
    uint64_t wrong = observed->layers->wrong[arithmetic];
    return wrong == 0 || (observed->layers->max[arithmetic] <= 1 &&
                          (double)wrong <= observed->layers->doubt[arithmetic] * (double)observed->n_qvalues);
}

/* Whether its quantised values are those of arithmetic in floats. */
static bool is_plain(const struct nd_observed_arithmetic *observed)
{
    size_t n;
    nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (nd_is_plain(p) && observed->tally->far[p] == 0)
            return true;
    return false;
}

static bool fits_some(const struct nd_observed_arithmetic *observed)
{
    size_t n;
    nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (observed->tally->wrong[p] == 0)
            return true;
    return false;
}

/* By what arithmetics of values say, before any of layers is thought of. */
static bool is_explained(const struct nd_observed_arithmetic *observed)
{
    return observed->arithmetic != SIZE_MAX && observed->follows;
}

/* Layers that only the arithmetic explains, and layers that speak against it: what rounding explains as well.
 */
static void count_layers(const struct nd_observed_arithmetic *observations, size_t n, size_t arithmetic,
                         size_t *n_for, size_t *n_against)
{
    *n_for = *n_against = 0;
    for (size_t i = 0; i < n; i++) {
        const struct nd_observed_arithmetic *observed = &observations[i];
        bool is_else = is_explained(observed) || fits_some(observed) || is_plain(observed);
        if (!covers(observed, arithmetic) || observed->tally->n_open == 0)
            continue;
        *n_for += nd_follows(observed, arithmetic) && !is_else;
        *n_against += !nd_follows(observed, arithmetic) && is_else;
    }
}

/* As of fixed point arithmetics (judge_layers.c): two layers that follow it outweigh any number of layers in
 * floats. */
static bool outweighs(const struct nd_observed_arithmetic *observations, size_t n, size_t n_for,
                      size_t n_against)
{
    if (n_for > n_against)
        return true;
    for (size_t i = 0; i < n; i++)
        if (observations[i].arithmetic != SIZE_MAX && !nd_is_plain(observations[i].arithmetic))
            return false;
    return n_for >= 2;
}

static size_t choose(const struct nd_observed_arithmetic *observations, size_t n)
{
    size_t n_for, n_against, most = 0, found = SIZE_MAX;
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        count_layers(observations, n, p, &n_for, &n_against);
        if (n_for <= most || !outweighs(observations, n, n_for, n_against))
            continue;
        most = n_for;
        found = p;
    }
    return found;
}

/* Where most layers of a kind do something else, and that is not what a processor without the arithmetic does,
 * the arithmetic is wrong about the kind. */
static bool is_unlike_its_kind(const struct nd_observed_arithmetic *observations, size_t n, size_t i,
                               size_t arithmetic)
{
    size_t n_kind = 0, n_follow = 0;
    for (size_t k = 0; k < n; k++) {
        if (!covers(&observations[k], arithmetic) ||
            strcmp(observations[k].op_types, observations[i].op_types) != 0)
            continue;
        n_kind++;
        n_follow += nd_follows(&observations[k], arithmetic);
    }
    return n_kind >= 2 && 2 * n_follow < n_kind && !is_plain(&observations[i]);
}

static enum nd_standing stand(const struct nd_observed_arithmetic *observations, size_t n, size_t i,
                              size_t arithmetic)
{
    if (!observations[i].is_counted)
        return ND_STANDING_NONE;
    if (!covers(&observations[i], arithmetic))
        return ND_STANDING_UNKNOWN;
    if (nd_follows(&observations[i], arithmetic))
        return ND_STANDING_FOLLOWS;
    return is_unlike_its_kind(observations, n, i, arithmetic) ? ND_STANDING_UNKNOWN : ND_STANDING_FAULTY;
}

/* Of layers whose standing is not known. */
static size_t arithmetic_of_kind(const struct nd_observed_arithmetic *observations, size_t n,
                                 const char *op_types)
{
    enum { FEWEST = 3 }; /* layers; chosen: two follow one arithmetic by chance too easily, all but one must */
    size_t n_arithmetics, best = SIZE_MAX, most = 0, n_kind = 0;
    nd_rounding_rules(&n_arithmetics);
    for (size_t p = 0; p < n_arithmetics; p++) {
        size_t n_fitting = 0;
        n_kind = 0;
        for (size_t i = 0; i < n; i++) {
            const struct nd_observed_arithmetic *observed = &observations[i];
            if (observed->standing != ND_STANDING_UNKNOWN || observed->tally->n_open == 0 ||
                strcmp(observed->op_types, op_types) != 0)
                continue;
            n_kind++;
            n_fitting += observed->tally->wrong[p] == 0;
        }
        if (n_fitting <= most)
            continue;
        most = n_fitting;
        best = p;
    }
    return n_kind >= FEWEST && most + 1 >= n_kind ? best : SIZE_MAX;
}

/* Kinds of layers of which the arithmetic says nothing may have one of values: at least three layers, all but
 * one. */
static void settle_others(struct nd_observed_arithmetic *observations, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_observed_arithmetic *observed = &observations[i];
        observed->arithmetic = SIZE_MAX;
        observed->follows = observed->is_exact = true;
        if (!observed->is_counted || observed->standing != ND_STANDING_UNKNOWN)
            continue;
        /* The first layer of i's kind of which nothing is known: its arithmetic is that of all of them. */
        size_t first = 0;
        while (first < i &&
               (!observations[first].is_counted || observations[first].standing != ND_STANDING_UNKNOWN ||
                strcmp(observations[first].op_types, observations[i].op_types) != 0))
            first++;
        observed->arithmetic = first < i ? observations[first].arithmetic
                                         : arithmetic_of_kind(observations, n, observed->op_types);
        if (observed->arithmetic == SIZE_MAX)
            continue;
        observed->follows = observed->tally->wrong[observed->arithmetic] == 0;
        observed->is_of_values = true;
    }
    for (size_t i = 0; i < n; i++)
        if (observations[i].is_of_values)
            observations[i].standing = observations[i].follows ? ND_STANDING_FOLLOWS : ND_STANDING_FAULTY;
}

/* Of the arithmetics of one architecture the one that most layers follow; SIZE_MAX where no layer follows any,
 * and two or more of those that it covers speak against it: their values are plainly those of something else.
 */
static size_t choose_of(const struct nd_observed_arithmetic *observations, size_t n,
                        enum nd_expectation expectation, bool *is_refuted)
{
    enum { MANY_AGAINST = 2 }; /* chosen: one layer by itself may be faulty */
    size_t n_for, n_against, fewest_against = SIZE_MAX, found = SIZE_MAX, most = 0;
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        size_t n_following = 0;
        if (!nd_expects(expectation, p))
            continue;
        count_layers(observations, n, p, &n_for, &n_against);
        for (size_t i = 0; i < n; i++)
            n_following += nd_follows(&observations[i], p) && observations[i].tally->n_open > 0;
        if (found == SIZE_MAX || n_following > most) {
            found = p;
            most = n_following;
            fewest_against = n_against;
        }
    }
    *is_refuted = most == 0 && fewest_against >= MANY_AGAINST;
    return *is_refuted ? SIZE_MAX : found;
}

void nd_find_layer_arithmetics(struct nd_observed_arithmetic *observations, size_t n,
                               enum nd_expectation expectation, size_t *arithmetic, bool *is_possible,
                               bool *is_refuted)
{
    *is_refuted = false;
    *arithmetic = expectation == ND_EXPECT_FLOAT ? SIZE_MAX
                  : expectation == ND_EXPECT_ANY ? choose(observations, n)
                                                 : choose_of(observations, n, expectation, is_refuted);
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        bool is_asked_for = nd_expects(expectation, p);
        is_possible[p] = *arithmetic != SIZE_MAX && is_asked_for;
        for (size_t i = 0; i < n && is_possible[p]; i++)
            is_possible[p] = !nd_follows(&observations[i], *arithmetic) || nd_follows(&observations[i], p);
    }
    if (*arithmetic == SIZE_MAX)
        return;
    for (size_t i = 0; i < n; i++)
        observations[i].standing = stand(observations, n, i, *arithmetic);
    settle_others(observations, n);
}

bool nd_is_plain(size_t arithmetic)
{
    size_t n;
    const struct nd_rounding_rule *p = &nd_rounding_rules(&n)[arithmetic];
    return p->kind == ND_ROUNDED_AS_FLOAT32 ||
           (p->kind == ND_ROUNDED_ONCE && p->rounding <= ND_ROUND_HALF_DOWN);
}

static bool is_fixed_point(size_t arithmetic)
{
    size_t n;
    return nd_rounding_rules(&n)[arithmetic].kind == ND_ROUNDED_TWICE;
}

/* Only layers whose quantised values could tell arithmetics apart have a say. */
static bool is_informed(const struct nd_observed_arithmetic *observed)
{
    return observed->is_counted && observed->tally->n_open > 0 && !observed->is_apart;
}

static bool fits(const struct nd_observed_arithmetic *observed, size_t arithmetic, bool is_exact)
{
    return (is_exact ? observed->tally->wrong : observed->tally->far)[arithmetic] == 0;
}

/* The plain arithmetic that gives all quantised values of it, or all that floats can; SIZE_MAX: none. */
static size_t plain_of(const struct nd_observed_arithmetic *observed, bool *is_exact)
{
    size_t n_arithmetics;
    nd_rounding_rules(&n_arithmetics);
    for (size_t k = 0; k < 2; k++)
        for (size_t p = 0; p < n_arithmetics; p++)
            if (nd_is_plain(p) && fits(observed, p, k == 0)) {
                *is_exact = k == 0;
                return p;
            }
    return SIZE_MAX;
}

/* Tables of plain rounding say nothing of how the device multiplies, as long as other layers do. */
static void set_tables_apart(struct nd_observed_arithmetic *observations, size_t n)
{
    bool is_exact, has_others = false;
    for (size_t i = 0; i < n; i++)
        observations[i].is_apart = false;
    for (size_t i = 0; i < n; i++)
        has_others = has_others || (is_informed(&observations[i]) && !observations[i].is_table);
    for (size_t i = 0; i < n; i++)
        observations[i].is_apart = has_others && observations[i].is_table && is_informed(&observations[i]) &&
                                   plain_of(&observations[i], &is_exact) != SIZE_MAX;
}

/* The device's arithmetic where that gives every quantised value of the table, or else the rounding of its
 * entries. */
static void settle_table(struct nd_observed_arithmetic *observed, size_t device)
{
    observed->follows = true;
    observed->arithmetic = device != SIZE_MAX && fits(observed, device, observed->is_exact)
                               ? device
                               : plain_of(observed, &observed->is_exact);
}

/* A share of a device's layers: those of one operator type, or all. */
struct group {
    const struct nd_observed_arithmetic *observations;
    size_t n;
    const char *op_types; /* NULL: all */
    bool is_exact;
};

static bool has(const struct group *group, size_t i)
{
    const struct nd_observed_arithmetic *observed = &group->observations[i];
    return is_informed(observed) &&
           (group->op_types == NULL || strcmp(group->op_types, observed->op_types) == 0);
}

static size_t count_informed(const struct group *group)
{
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        n += has(group, i);
    return n;
}

/* How many follow the arithmetic, and, unless `not` is SIZE_MAX, not that one. */
static size_t count_fitting(const struct group *group, size_t arithmetic, size_t not )
{
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        n += has(group, i) && fits(&group->observations[i], arithmetic, group->is_exact) &&
             (not == SIZE_MAX || !fits(&group->observations[i], not, group->is_exact));
    return n;
}

/* Places of an arithmetic that rounds twice; chosen: with more it differs from plain rounding in one of 500
 * values or fewer, which a layer may not have, and by no more than the doubt of floats. */
enum { RAREST_BITS = 8 };

static bool is_rare(size_t arithmetic)
{
    size_t n;
    return nd_rounding_rules(&n)[arithmetic].n_bits > RAREST_BITS;
}

/* The arithmetic that most follow; of equals the first of the list. */
static size_t commonest(const struct group *group, size_t *n_fitting)
{
    size_t n_arithmetics, best = 0;
    nd_rounding_rules(&n_arithmetics);
    *n_fitting = 0;
    for (size_t p = 0; p < n_arithmetics; p++) {
        size_t n = group->is_exact || !is_rare(p) ? count_fitting(group, p, SIZE_MAX) : 0;
        if (n > *n_fitting) {
            best = p;
            *n_fitting = n;
        }
    }
    return best;
}

/* Whether all that does not follow the arithmetic is of one operator type. */
static bool is_but_one_type(const struct group *group, size_t arithmetic)
{
    const char *type = NULL;
    for (size_t i = 0; i < group->n; i++) {
        if (!has(group, i) || fits(&group->observations[i], arithmetic, group->is_exact))
            continue;
        if (type != NULL && strcmp(type, group->observations[i].op_types) != 0)
            return false;
        type = group->observations[i].op_types;
    }
    return true;
}

/* Of the whole device; SIZE_MAX without a majority. */
static size_t arithmetic_of_device(const struct group *group)
{
    size_t n_fitting, best = commonest(group, &n_fitting);
    /* A processor that has integer arithmetic uses it where it can: two layers that follow a fixed point
     * arithmetic, and do not round plainly, outweigh any number of layers in floats; so does one, where only
     * one operator type is in floats. */
    size_t n_arithmetics, most = 0, found = best;
    nd_rounding_rules(&n_arithmetics);
    for (size_t p = 0; p < n_arithmetics && nd_is_plain(best); p++) {
        size_t n = is_fixed_point(p) && (group->is_exact || !is_rare(p)) ? count_fitting(group, p, best) : 0;
        if (n > most && (n >= 2 || is_but_one_type(group, p))) {
            most = n;
            found = p;
        }
    }
    if (found != best)
        n_fitting = count_fitting(group, best, found) + count_fitting(group, found, SIZE_MAX);
    return n_fitting > 0 && 2 * n_fitting > count_informed(group) ? found : SIZE_MAX;
}

/* Whether too few layers need the arithmetic, which is rare, to say that the device has it: a layer of few
 * values on which it differs from rounding half to even follows it by chance. */
static bool is_by_chance(const struct group *group, size_t arithmetic)
{
    enum { MIN_NEEDING = 2, FEW_LAYERS = 3 }; /* chosen: of fewer layers no two can need it */
    return is_rare(arithmetic) && count_informed(group) >= FEW_LAYERS &&
           count_fitting(group, arithmetic, nd_rounding_rule_half_even()) < MIN_NEEDING;
}

/* What rounds plainly may as well follow another program, as long as that would show in enough quantised
 * values; the device's, where nothing else fits. */
static size_t other_than_float(const struct group *group, size_t n_fitting, size_t device)
{
    size_t n_arithmetics;
    nd_rounding_rules(&n_arithmetics);
    for (size_t p = 0; p < n_arithmetics; p++)
        if (!nd_is_plain(p) && !is_rare(p) && p != device && count_fitting(group, p, SIZE_MAX) == n_fitting)
            return p;
    return device;
}

/* Of one operator type on a device that uses `device` (or SIZE_MAX: unknown) elsewhere. */
static size_t arithmetic_of_type(const struct group *group, size_t device)
{
    size_t n_fitting, best = commonest(group, &n_fitting), n_informed = count_informed(group);
    bool is_majority = n_informed >= 2 && 2 * n_fitting > n_informed;
    if (device == SIZE_MAX) /* some layers of unknown arithmetic fit by chance: all but one must */
        return n_informed >= 3 && n_fitting + 1 >= n_informed ? best : SIZE_MAX;
    if (is_majority && 2 * count_fitting(group, best, device) > n_informed) {
        bool is_float = nd_is_plain(best) && !nd_is_plain(device);
        return is_float ? other_than_float(group, n_fitting, device) : best;
    }
    /* In floats a whole type may leave the doubt that is allowed: then nothing is known of it. */
    bool is_unlike = n_informed >= 2 && 2 * count_fitting(group, device, SIZE_MAX) < n_informed;
    return is_unlike && !group->is_exact ? SIZE_MAX : device;
}

/* The first layer of i's operator type that is held to an arithmetic of its type; its arithmetic is that of all
 * of them. */
static size_t first_of_type(const struct nd_observed_arithmetic *observations, size_t i)
{
    size_t first = 0;
    while (first < i && (!observations[first].is_counted || observations[first].is_apart ||
                         strcmp(observations[first].op_types, observations[i].op_types) != 0))
        first++;
    return first;
}

void nd_find_observed_arithmetics(struct nd_observed_arithmetic *observations, size_t n,
                                  size_t *device_arithmetic)
{
    struct group all = {.observations = observations, .n = n, .is_exact = true};
    set_tables_apart(observations, n);
    size_t device = arithmetic_of_device(&all);
    /* What rounds plainly may well compute in floats: it is held to what those can do. */
    if (device == SIZE_MAX || nd_is_plain(device) || is_by_chance(&all, device)) {
        all.is_exact = false;
        device = arithmetic_of_device(&all);
    }
    for (size_t i = 0; i < n; i++) {
        struct group type = all;
        type.op_types = observations[i].op_types;
        size_t first = observations[i].is_counted ? first_of_type(observations, i) : i;
        observations[i].arithmetic = !observations[i].is_counted ? SIZE_MAX
                                     : first < i                 ? observations[first].arithmetic
                                                                 : arithmetic_of_type(&type, device);
        observations[i].is_exact = all.is_exact;
        observations[i].follows = observations[i].arithmetic == SIZE_MAX ||
                                  fits(&observations[i], observations[i].arithmetic, observations[i].is_exact);
        if (observations[i].is_apart)
            settle_table(&observations[i], device);
    }
    *device_arithmetic = device;
}

/* A layer that does not follow the device's arithmetic, and in all quantised values its own `places`, follows
 * that: integer engines shift each layer as its scales say. */
static void nd_settle_places(struct nd_observed_arithmetic *observations, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_observed_arithmetic *observed = &observations[i];
        if (!observed->is_counted || observed->follows || observed->places == SIZE_MAX ||
            !fits(observed, observed->places, true))
            continue;
        observed->arithmetic = observed->places;
        observed->is_exact = observed->follows = true;
    }
}

/* The same for a device that is known to compute in floats: no other program is thought of. */
static void nd_hold_to_float(struct nd_observed_arithmetic *observations, size_t n, size_t *device_arithmetic)
{
    size_t n_arithmetics, half_even = nd_rounding_rule_half_even();
    nd_rounding_rules(&n_arithmetics);
    for (size_t i = 0; i < n; i++) {
        observations[i].arithmetic = observations[i].is_counted ? half_even : SIZE_MAX;
        observations[i].is_exact = false;
        observations[i].follows = !observations[i].is_counted;
        for (size_t p = 0; p < n_arithmetics && observations[i].is_counted; p++)
            observations[i].follows =
                observations[i].follows || (nd_is_plain(p) && fits(&observations[i], p, false));
    }
    *device_arithmetic = half_even;
}

static enum nd_status name_arithmetic(size_t arithmetic, char **out, struct nd_error *err)
{
    size_t n;
    char buf[ND_ROUNDING_RULE_NAME_BYTES];
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    *out = arithmetic < n ? nd_strdup(nd_rounding_rule_name(&arithmetics[arithmetic], buf)) : NULL;
    return *out != NULL || arithmetic >= n ? ND_OK : nd_fail_memory(err);
}

static enum nd_status name_layer_arithmetic(size_t arithmetic, char **out, struct nd_error *err)
{
    *out = nd_strdup(nd_layer_arithmetic_at(arithmetic)->name);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* Those that give every quantised value; of layers first, where the device has one. */
static enum nd_status list_arithmetics(const struct nd_observed_arithmetic *observed,
                                       struct nd_explained_layer *layer, struct nd_error *err)
{
    size_t n;
    nd_rounding_rules(&n);
    layer->arithmetics = nd_calloc(n + ND_MAX_LAYER_ARITHMETICS, sizeof *layer->arithmetics);
    ND_TRY_MEMORY(layer->arithmetics != NULL, err);
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        if (observed->standing == ND_STANDING_NONE || !nd_follows(observed, p))
            continue;
        ND_TRY(name_layer_arithmetic(p, &layer->arithmetics[layer->n_arithmetics], err));
        layer->n_arithmetics++;
    }
    for (size_t p = 0; p < n; p++) {
        if (observed->tally->wrong[p] > 0)
            continue;
        ND_TRY(name_arithmetic(p, &layer->arithmetics[layer->n_arithmetics], err));
        layer->n_arithmetics++;
    }
    return ND_OK;
}

static uint64_t fewest_wrong(const struct nd_qvalue_tally *tally)
{
    size_t n;
    nd_rounding_rules(&n);
    uint64_t fewest = tally->wrong[0];
    for (size_t p = 1; p < n; p++)
        fewest = tally->wrong[p] < fewest ? tally->wrong[p] : fewest;
    return fewest;
}

/* Of a device that has an arithmetic of layers. */
static enum nd_status judge_by_layer_arithmetic(struct nd_observed_arithmetic *observed, size_t arithmetic,
                                                struct nd_explained_layer *layer, struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(observed->tally), n_introduced = layer->introduced.n_differing;
    layer->is_covered = observed->layers->n[arithmetic] == layer->n_qvalues;
    observed->is_suspect = observed->standing == ND_STANDING_FAULTY;
    bool is_of_layers =
        layer->is_covered && observed->standing != ND_STANDING_UNKNOWN && !observed->is_of_values;
    layer->n_unexplained = is_of_layers             ? observed->layers->wrong[arithmetic]
                           : observed->is_of_values ? observed->tally->wrong[observed->arithmetic]
                                                    : fewest;
    if (observed->standing == ND_STANDING_FOLLOWS)
        fewest = layer->n_unexplained;
    layer->explained_fraction = n_introduced > 0 ? 1 - fmin((double)fewest / (double)n_introduced, 1) : 1;
    if (is_of_layers)
        ND_TRY(name_layer_arithmetic(arithmetic, &layer->arithmetic, err));
    else
        ND_TRY(name_arithmetic(observed->arithmetic, &layer->arithmetic, err));
    return list_arithmetics(observed, layer, err);
}

static enum nd_status judge_layer(struct nd_observed_arithmetic *observed, struct nd_explained_layer *layer,
                                  struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(observed->tally), n_introduced = layer->introduced.n_differing;
    bool is_known = observed->arithmetic != SIZE_MAX;
    observed->is_suspect = is_known && !observed->follows;
    layer->n_unexplained = fewest;
    if (is_known)
        layer->n_unexplained =
            (observed->is_exact ? observed->tally->wrong : observed->tally->far)[observed->arithmetic];
    layer->explained_fraction = n_introduced > 0 ? 1 - (double)fewest / (double)n_introduced : 1;
    ND_TRY(name_arithmetic(observed->arithmetic, &layer->arithmetic, err));
    return list_arithmetics(observed, layer, err);
}

/* The arithmetic, and all that what follows it leaves possible. */
static enum nd_status name_device_arithmetics(struct nd_explained_device *device, size_t arithmetic,
                                              size_t layer_arithmetic, const bool *is_possible,
                                              struct nd_error *err)
{
    device->arithmetics = nd_calloc(ND_MAX_LAYER_ARITHMETICS, sizeof *device->arithmetics);
    ND_TRY_MEMORY(device->arithmetics != NULL, err);
    if (layer_arithmetic == SIZE_MAX)
        return name_arithmetic(arithmetic, &device->arithmetic, err);
    ND_TRY(name_layer_arithmetic(layer_arithmetic, &device->arithmetic, err));
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        if (!is_possible[p])
            continue;
        ND_TRY(name_layer_arithmetic(p, &device->arithmetics[device->n_arithmetics], err));
        device->n_arithmetics++;
    }
    return ND_OK;
}

/* What it does is what it does everywhere, and yet costs much. */
static bool is_lossy(const struct nd_observed_arithmetic *observed, const struct nd_explained_layer *layer)
{
    static const double many_steps = 10; /* LSB; chosen: it only selects what is listed as a loss, no verdict */
    return observed->standing == ND_STANDING_FOLLOWS && !observed->is_of_values &&
           layer->introduced.max >= many_steps;
}

/* Share of the values of a layer that double precision may bring to the other side of a tie; chosen. */
static const double max_beside_ties = 0.01;

/* One rounding of a value in double precision next to a tie may fall either way; and a device in float32 that
 * does what it does everywhere is as good as it can be. */
static bool is_within_step(const struct nd_explained_step *step, const struct nd_explained_layer *layer,
                           const struct nd_observed_arithmetic *observed)
{
    if (layer->introduced.n_differing > 0 && observed->arithmetic != SIZE_MAX &&
        nd_is_plain(observed->arithmetic))
        return observed->follows && layer->introduced.max <= 1;
    return step->is_double && layer->introduced.n_differing > 0 && layer->introduced.max <= 1 &&
           (double)layer->introduced.n_differing < max_beside_ties * (double)layer->n_qvalues;
}

/* Says of a step that some of its exact values are no numbers. */
static enum nd_status tell_of_nan(size_t s, const struct nd_explained_layer *layer,
                                  struct nd_explained_device *device, struct nd_error *err)
{
    double share = (double)layer->n_nan / (double)layer->n_qvalues;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(
        &text,
        "%.3g %% of its exact values are not numbers (0 / 0, or the root, logarithm or power of a "
        "negative number). ONNX does not say which quantised value they have, so npudiff does not judge them",
        100 * share);
    return nd_explain_add_finding(device, s, "not-a-number", share, nd_strbuf_take(&text), err);
}

/* nd_observed_arithmetic.places of a layer: one number for all its channels. */
static size_t places_of(const struct nd_plan *plan, size_t s)
{
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    size_t n_steps = 0, n, found = SIZE_MAX;
    const struct nd_quant *quant = &nd_plan_tensor(plan, s)->quant;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    if (quant->n != 1 ||
        nd_exact_accumulator_steps(plan->graph, plan->steps[s].tensor, &steps, &n_steps, &ignored) != ND_OK)
        return SIZE_MAX;
    for (size_t i = 0; i < n_steps; i++) {
        int exponent;
        size_t p = 0;
        frexp(steps[i].parts[0] / (double)quant->scale[0], &exponent);
        while (p < n && !(arithmetics[p].kind == ND_ROUNDED_TWICE && arithmetics[p].n_bits == -exponent))
            p++;
        found = p == n || (i > 0 && p != found) ? SIZE_MAX : p;
        if (found == SIZE_MAX)
            break;
    }
    free(steps);
    return found;
}

/* What is asked of each step of the device. */
static void begin_observations(const struct nd_evaluation *evaluation, size_t d,
                               const struct nd_explained_device *device, struct nd_observed_arithmetic *layers)
{
    const struct nd_plan *plan = evaluation->plan;
    bool is_emulated = nd_is_emulated(plan->sources[d].capture);
    bool is_runner = nd_is_runner(plan->sources[d].capture);
    for (size_t s = 0; s < plan->n_steps; s++)
        layers[s] = (struct nd_observed_arithmetic){
            .op_types = plan->steps[s].op_types,
            .is_counted = plan->steps[s].is_layer && device->layers[s].is_examined &&
                          device->layers[s].judgement.fault.kind == NULL,
            .tally = nd_tally_of(evaluation, d, s),
            .layers = nd_layer_tally_of(evaluation, d, s),
            .n_qvalues = device->layers[s].n_qvalues,
            .places = is_runner && plan->steps[s].is_layer ? places_of(plan, s) : SIZE_MAX,
            .is_table = !is_emulated && nd_layer_is_table(plan->model, nd_plan_layer(plan, s))};
}

static enum nd_status identify_device(const struct nd_evaluation *evaluation, size_t d,
                                      struct nd_observed_arithmetics *observations, struct nd_explanation *out,
                                      struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *device = &out->devices[d];
    struct nd_observed_arithmetic *layers = &observations->layers[d * plan->n_steps];
    size_t arithmetic, *layer_arithmetic = &observations->layer_arithmetic[d];
    bool is_possible[ND_MAX_LAYER_ARITHMETICS];
    enum nd_expectation expectation = plan->sources[d].expectation;
    device->losses = nd_calloc(plan->n_steps, sizeof *device->losses);
    ND_TRY_MEMORY(device->losses != NULL, err);
    begin_observations(evaluation, d, device, layers);
    if (expectation == ND_EXPECT_FLOAT)
        nd_hold_to_float(layers, plan->n_steps, &arithmetic);
    else
        nd_find_observed_arithmetics(layers, plan->n_steps, &arithmetic);
    nd_settle_places(layers, plan->n_steps);
    nd_find_layer_arithmetics(layers, plan->n_steps, expectation, layer_arithmetic, is_possible,
                              &device->is_refuted);
    enum nd_status status = name_device_arithmetics(device, arithmetic, *layer_arithmetic, is_possible, err);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        struct nd_explained_layer *layer = &device->layers[s];
        if (layers[s].is_counted)
            status = *layer_arithmetic == SIZE_MAX
                         ? judge_layer(&layers[s], layer, err)
                         : judge_by_layer_arithmetic(&layers[s], *layer_arithmetic, layer, err);
        if (layers[s].is_counted && is_lossy(&layers[s], layer))
            device->losses[device->n_losses++] = s;
        layer->n_nan = layer->is_examined && layers[s].tally != NULL ? layers[s].tally->n_nan : 0;
        if (status == ND_OK && layer->n_nan > 0)
            status = tell_of_nan(s, layer, device, err);
        layer->is_within_step = layer->is_examined && is_within_step(&out->steps[s], layer, &layers[s]);
    }
    return status;
}

enum nd_status nd_explain_identify(const struct nd_evaluation *evaluation,
                                   struct nd_observed_arithmetics *observations, struct nd_explanation *out,
                                   struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    *observations = (struct nd_observed_arithmetics){
        .layers = nd_calloc(plan->n_devices * plan->n_steps, sizeof *observations->layers),
        .layer_arithmetic = nd_calloc(plan->n_devices, sizeof *observations->layer_arithmetic)};
    ND_TRY_MEMORY(observations->layers != NULL && observations->layer_arithmetic != NULL, err);
    for (size_t d = 0; d < plan->n_devices; d++)
        if (!plan->sources[d].is_failed)
            ND_TRY(identify_device(evaluation, d, observations, out, err));
    return ND_OK;
}

void nd_observed_arithmetics_deinit(struct nd_observed_arithmetics *observations)
{
    ND_FREE_ALL(observations->layers, observations->layer_arithmetic);
}
