/* Which program of whole units a device has, and which of its units do not follow it. */
#include "explain/layers/judge_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/layers/device_programs.h"
#include "explain/stages.h"

static bool covers(const struct nd_habit *habit, size_t program)
{
    const struct nd_unit_tally *units = habit->units;
    return habit->is_counted && units != NULL && units->n[program] > 0 && units->n[program] == habit->n_codes &&
           !(units->doubt[program] >= 1 && units->wrong[program] > 0);
}

/* Whether all codes of the unit are the program's, as far as that is complete. */
static bool nd_follows(const struct nd_habit *habit, size_t program)
{
    if (!covers(habit, program))
        return false;
    uint64_t wrong = habit->units->wrong[program];
    return wrong == 0 || (habit->units->max[program] <= 1 &&
                          (double)wrong <= habit->units->doubt[program] * (double)habit->n_codes);
}

bool nd_follows_other(const struct nd_habit *habit, enum nd_alternative alternative, size_t program)
{
    const struct nd_other_tally *other = &habit->units->others[alternative];
    return habit->is_counted && other->n[program] > 0 && other->n[program] == habit->n_codes &&
           other->wrong[program] == 0;
}

/* Whether its codes are those of arithmetic in floats. */
static bool is_plain(const struct nd_habit *habit)
{
    size_t n;
    nd_programs(&n);
    for (size_t p = 0; p < n; p++)
        if (nd_is_plain(p) && habit->tally->far[p] == 0)
            return true;
    return false;
}

static bool fits_some(const struct nd_habit *habit)
{
    size_t n;
    nd_programs(&n);
    for (size_t p = 0; p < n; p++)
        if (habit->tally->wrong[p] == 0)
            return true;
    return false;
}

/* By what programs of values say, before any of units is thought of. */
static bool is_explained(const struct nd_habit *habit)
{
    return habit->program != SIZE_MAX && habit->follows;
}

/* Units that only the program explains, and units that speak against it: what rounding explains as well. */
static void count_units(const struct nd_habit *habits, size_t n, size_t program, size_t *n_for,
                        size_t *n_against)
{
    *n_for = *n_against = 0;
    for (size_t i = 0; i < n; i++) {
        const struct nd_habit *habit = &habits[i];
        bool is_else = is_explained(habit) || fits_some(habit) || is_plain(habit);
        if (!covers(habit, program) || habit->tally->n_open == 0)
            continue;
        *n_for += nd_follows(habit, program) && !is_else;
        *n_against += !nd_follows(habit, program) && is_else;
    }
}

/* As of fixed point programs (judge_layers.c): two units that follow it outweigh any number of units in floats.
 */
static bool outweighs(const struct nd_habit *habits, size_t n, size_t n_for, size_t n_against)
{
    if (n_for > n_against)
        return true;
    for (size_t i = 0; i < n; i++)
        if (habits[i].program != SIZE_MAX && !nd_is_plain(habits[i].program))
            return false;
    return n_for >= 2;
}

static size_t choose(const struct nd_habit *habits, size_t n)
{
    size_t n_for, n_against, most = 0, found = SIZE_MAX;
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        count_units(habits, n, p, &n_for, &n_against);
        if (n_for <= most || !outweighs(habits, n, n_for, n_against))
            continue;
        most = n_for;
        found = p;
    }
    return found;
}

/* Where most units of a kind do something else, and that is not what a processor without the program does, the
 * program is wrong about the kind. */
static bool is_unlike_its_kind(const struct nd_habit *habits, size_t n, size_t i, size_t program)
{
    size_t n_kind = 0, n_follow = 0;
    for (size_t k = 0; k < n; k++) {
        if (!covers(&habits[k], program) || strcmp(habits[k].op_types, habits[i].op_types) != 0)
            continue;
        n_kind++;
        n_follow += nd_follows(&habits[k], program);
    }
    return n_kind >= 2 && 2 * n_follow < n_kind && !is_plain(&habits[i]);
}

static enum nd_standing stand(const struct nd_habit *habits, size_t n, size_t i, size_t program)
{
    if (!habits[i].is_counted)
        return ND_STANDING_NONE;
    if (!covers(&habits[i], program))
        return ND_STANDING_UNKNOWN;
    if (nd_follows(&habits[i], program))
        return ND_STANDING_FOLLOWS;
    return is_unlike_its_kind(habits, n, i, program) ? ND_STANDING_UNKNOWN : ND_STANDING_FAULTY;
}

/* Of units whose standing is not known. */
static size_t program_of_kind(const struct nd_habit *habits, size_t n, const char *op_types)
{
    enum { FEWEST = 3 }; /* units; chosen: two follow one program by chance too easily, all but one must */
    size_t n_programs, best = SIZE_MAX, most = 0, n_kind = 0;
    nd_programs(&n_programs);
    for (size_t p = 0; p < n_programs; p++) {
        size_t n_fitting = 0;
        n_kind = 0;
        for (size_t i = 0; i < n; i++) {
            const struct nd_habit *habit = &habits[i];
            if (habit->standing != ND_STANDING_UNKNOWN || habit->tally->n_open == 0 ||
                strcmp(habit->op_types, op_types) != 0)
                continue;
            n_kind++;
            n_fitting += habit->tally->wrong[p] == 0;
        }
        if (n_fitting <= most)
            continue;
        most = n_fitting;
        best = p;
    }
    return n_kind >= FEWEST && most + 1 >= n_kind ? best : SIZE_MAX;
}

/* The first unit of i's kind of which nothing is known: its program is that of all of them. */
static size_t first_unknown(const struct nd_habit *habits, size_t i)
{
    size_t first = 0;
    while (first < i && (!habits[first].is_counted || habits[first].standing != ND_STANDING_UNKNOWN ||
                         strcmp(habits[first].op_types, habits[i].op_types) != 0))
        first++;
    return first;
}

/* Kinds of units of which the program says nothing may have one of values: at least three units, all but one.
 */
static void settle_others(struct nd_habit *habits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_habit *habit = &habits[i];
        habit->program = SIZE_MAX;
        habit->follows = habit->is_exact = true;
        if (!habit->is_counted || habit->standing != ND_STANDING_UNKNOWN)
            continue;
        size_t first = first_unknown(habits, i);
        habit->program = first < i ? habits[first].program : program_of_kind(habits, n, habit->op_types);
        if (habit->program == SIZE_MAX)
            continue;
        habit->follows = habit->tally->wrong[habit->program] == 0;
        habit->is_of_values = true;
    }
    for (size_t i = 0; i < n; i++)
        if (habits[i].is_of_values)
            habits[i].standing = habits[i].follows ? ND_STANDING_FOLLOWS : ND_STANDING_FAULTY;
}

static bool is_of(size_t program, enum nd_expectation expectation)
{
    size_t n;
    const struct nd_unit_program *programs = nd_unit_programs(&n);
    return program < n && programs[program].arch == (expectation == ND_EXPECT_V69 ? ND_HTP_V69 : ND_HTP_V73);
}

/* Of the programs of one architecture the one that most units follow; SIZE_MAX where no unit follows any, and
 * two or more of those that it covers speak against it: their values are plainly those of something else. */
static size_t choose_of(const struct nd_habit *habits, size_t n, enum nd_expectation expectation,
                        bool *is_refuted)
{
    enum { MANY_AGAINST = 2 }; /* chosen: one unit by itself may be faulty */
    size_t n_for, n_against, fewest_against = SIZE_MAX, found = SIZE_MAX, most = 0;
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        size_t n_following = 0;
        if (!is_of(p, expectation))
            continue;
        count_units(habits, n, p, &n_for, &n_against);
        for (size_t i = 0; i < n; i++)
            n_following += nd_follows(&habits[i], p) && habits[i].tally->n_open > 0;
        if (found == SIZE_MAX || n_following > most) {
            found = p;
            most = n_following;
            fewest_against = n_against;
        }
    }
    *is_refuted = most == 0 && fewest_against >= MANY_AGAINST;
    return *is_refuted ? SIZE_MAX : found;
}

void nd_find_unit_habits(struct nd_habit *habits, size_t n, enum nd_expectation expectation, size_t *program,
                         bool *is_possible, bool *is_refuted)
{
    *is_refuted = false;
    *program = expectation == ND_EXPECT_FLOAT ? SIZE_MAX
               : expectation == ND_EXPECT_ANY ? choose(habits, n)
                                              : choose_of(habits, n, expectation, is_refuted);
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        bool is_asked_for = expectation == ND_EXPECT_ANY || is_of(p, expectation);
        is_possible[p] = *program != SIZE_MAX && is_asked_for;
        for (size_t i = 0; i < n && is_possible[p]; i++)
            is_possible[p] = !nd_follows(&habits[i], *program) || nd_follows(&habits[i], p);
    }
    if (*program == SIZE_MAX)
        return;
    for (size_t i = 0; i < n; i++)
        habits[i].standing = stand(habits, n, i, *program);
    settle_others(habits, n);
}

bool nd_is_plain(size_t program)
{
    size_t n;
    const struct nd_program *p = &nd_programs(&n)[program];
    return p->kind == ND_PROGRAM_FLOAT32 || (p->kind == ND_PROGRAM_SINGLE && p->rounding <= ND_ROUND_HALF_DOWN);
}

static bool is_fixed_point(size_t program)
{
    size_t n;
    return nd_programs(&n)[program].kind == ND_PROGRAM_DOUBLE;
}

/* Only units whose codes could tell programs apart have a say. */
static bool is_informed(const struct nd_habit *habit)
{
    return habit->is_counted && habit->tally->n_open > 0 && !habit->is_apart;
}

static bool fits(const struct nd_habit *habit, size_t program, bool is_exact)
{
    return (is_exact ? habit->tally->wrong : habit->tally->far)[program] == 0;
}

/* The plain program that gives all codes of it, or all that floats can; SIZE_MAX: none. */
static size_t plain_of(const struct nd_habit *habit, bool *is_exact)
{
    size_t n_programs;
    nd_programs(&n_programs);
    for (size_t k = 0; k < 2; k++)
        for (size_t p = 0; p < n_programs; p++)
            if (nd_is_plain(p) && fits(habit, p, k == 0)) {
                *is_exact = k == 0;
                return p;
            }
    return SIZE_MAX;
}

/* Tables of plain rounding say nothing of how the device multiplies, as long as other units do. */
static void set_tables_apart(struct nd_habit *habits, size_t n)
{
    bool is_exact, has_others = false;
    for (size_t i = 0; i < n; i++)
        habits[i].is_apart = false;
    for (size_t i = 0; i < n; i++)
        has_others = has_others || (is_informed(&habits[i]) && !habits[i].is_table);
    for (size_t i = 0; i < n; i++)
        habits[i].is_apart = has_others && habits[i].is_table && is_informed(&habits[i]) &&
                             plain_of(&habits[i], &is_exact) != SIZE_MAX;
}

/* The device's program where that gives every code of the table, or else the rounding of its entries. */
static void settle_table(struct nd_habit *habit, size_t device)
{
    habit->follows = true;
    if (device != SIZE_MAX && fits(habit, device, habit->is_exact))
        habit->program = device;
    else
        habit->program = plain_of(habit, &habit->is_exact);
}

/* A share of a device's units: those of one operator type, or all. */
struct group {
    const struct nd_habit *habits;
    size_t n;
    const char *op_types; /* NULL: all */
    bool is_exact;
};

static bool has(const struct group *group, size_t i)
{
    const struct nd_habit *habit = &group->habits[i];
    return is_informed(habit) && (group->op_types == NULL || strcmp(group->op_types, habit->op_types) == 0);
}

static size_t count_informed(const struct group *group)
{
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        n += has(group, i);
    return n;
}

/* How many follow the program, and, unless `not` is SIZE_MAX, not that one. */
static size_t count_fitting(const struct group *group, size_t program, size_t not )
{
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        n += has(group, i) && fits(&group->habits[i], program, group->is_exact) &&
             (not == SIZE_MAX || !fits(&group->habits[i], not, group->is_exact));
    return n;
}

/* The program that most follow; of equals the first of the list. */
static size_t commonest(const struct group *group, size_t *n_fitting)
{
    size_t n_programs, best = 0;
    nd_programs(&n_programs);
    *n_fitting = 0;
    for (size_t p = 0; p < n_programs; p++) {
        size_t n = count_fitting(group, p, SIZE_MAX);
        if (n > *n_fitting) {
            best = p;
            *n_fitting = n;
        }
    }
    return best;
}

/* Whether all that does not follow the program is of one operator type. */
static bool is_but_one_type(const struct group *group, size_t program)
{
    const char *type = NULL;
    for (size_t i = 0; i < group->n; i++) {
        if (!has(group, i) || fits(&group->habits[i], program, group->is_exact))
            continue;
        if (type != NULL && strcmp(type, group->habits[i].op_types) != 0)
            return false;
        type = group->habits[i].op_types;
    }
    return true;
}

/* A processor that has integer arithmetic uses it where it can: two units that follow a fixed point program,
 * and do not round plainly, outweigh any number of units in floats; so does one, where only one operator type
 * is in floats. */
static size_t prefer_fixed_point(const struct group *group, size_t best)
{
    size_t n_programs, most = 0, found = best;
    nd_programs(&n_programs);
    for (size_t p = 0; p < n_programs && nd_is_plain(best); p++) {
        size_t n = is_fixed_point(p) ? count_fitting(group, p, best) : 0;
        if (n > most && (n >= 2 || is_but_one_type(group, p))) {
            most = n;
            found = p;
        }
    }
    return found;
}

/* Of the whole device; SIZE_MAX without a majority. */
static size_t program_of_device(const struct group *group)
{
    size_t n_fitting, best = commonest(group, &n_fitting);
    size_t found = prefer_fixed_point(group, best);
    if (found != best)
        n_fitting = count_fitting(group, best, found) + count_fitting(group, found, SIZE_MAX);
    return n_fitting > 0 && 2 * n_fitting > count_informed(group) ? found : SIZE_MAX;
}

/* What rounds plainly may as well follow another program, as long as that would show in enough codes; the
 * device's, where nothing else fits. */
static size_t other_than_float(const struct group *group, size_t n_fitting, size_t device)
{
    /* Places of a program that rounds twice; chosen: with more it differs from plain rounding in one of 500
     * values or fewer, which a layer may not have. */
    enum { RAREST_BITS = 8 };
    size_t n_programs;
    const struct nd_program *programs = nd_programs(&n_programs);
    for (size_t p = 0; p < n_programs; p++)
        if (!nd_is_plain(p) && programs[p].n_bits <= RAREST_BITS && p != device &&
            count_fitting(group, p, SIZE_MAX) == n_fitting)
            return p;
    return device;
}

/* Of one operator type on a device that uses `device` (or SIZE_MAX: unknown) elsewhere. */
static size_t program_of_type(const struct group *group, size_t device)
{
    size_t n_fitting, best = commonest(group, &n_fitting), n_informed = count_informed(group);
    bool is_majority = n_informed >= 2 && 2 * n_fitting > n_informed;
    if (device == SIZE_MAX) /* some units of unknown arithmetic fit by chance: all but one must */
        return n_informed >= 3 && n_fitting + 1 >= n_informed ? best : SIZE_MAX;
    if (is_majority && 2 * count_fitting(group, best, device) > n_informed) {
        bool is_float = nd_is_plain(best) && !nd_is_plain(device);
        return is_float ? other_than_float(group, n_fitting, device) : best;
    }
    /* In floats a whole type may leave the doubt that is allowed: then nothing is known of it. */
    bool is_unlike = n_informed >= 2 && 2 * count_fitting(group, device, SIZE_MAX) < n_informed;
    return is_unlike && !group->is_exact ? SIZE_MAX : device;
}

/* The first unit of i's operator type that is held to a program of its type; its program is that of all of
 * them. */
static size_t first_of_type(const struct nd_habit *habits, size_t i)
{
    size_t first = 0;
    while (first < i && (!habits[first].is_counted || habits[first].is_apart ||
                         strcmp(habits[first].op_types, habits[i].op_types) != 0))
        first++;
    return first;
}

void nd_find_habits(struct nd_habit *habits, size_t n, size_t *device_program)
{
    struct group all = {.habits = habits, .n = n, .is_exact = true};
    set_tables_apart(habits, n);
    size_t device = program_of_device(&all);
    /* What rounds plainly may well compute in floats: it is held to what those can do. */
    if (device == SIZE_MAX || nd_is_plain(device)) {
        all.is_exact = false;
        device = program_of_device(&all);
    }
    for (size_t i = 0; i < n; i++) {
        struct group type = all;
        type.op_types = habits[i].op_types;
        size_t first = habits[i].is_counted ? first_of_type(habits, i) : i;
        habits[i].program = !habits[i].is_counted ? SIZE_MAX
                            : first < i           ? habits[first].program
                                                  : program_of_type(&type, device);
        habits[i].is_exact = all.is_exact;
        habits[i].follows =
            habits[i].program == SIZE_MAX || fits(&habits[i], habits[i].program, habits[i].is_exact);
        if (habits[i].is_apart)
            settle_table(&habits[i], device);
    }
    *device_program = device;
}

/* A unit that does not follow the device's program, and in all codes its own `places`, follows that: integer
 * engines shift each unit as its scales say. */
static void nd_settle_places(struct nd_habit *habits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_habit *habit = &habits[i];
        if (!habit->is_counted || habit->follows || habit->places == SIZE_MAX ||
            !fits(habit, habit->places, true))
            continue;
        habit->program = habit->places;
        habit->is_exact = habit->follows = true;
    }
}

/* The same for a device that is known to compute in floats: no other program is thought of. */
static void nd_hold_to_float(struct nd_habit *habits, size_t n, size_t *device_program)
{
    size_t n_programs, half_even = nd_half_even_program();
    nd_programs(&n_programs);
    for (size_t i = 0; i < n; i++) {
        habits[i].program = habits[i].is_counted ? half_even : SIZE_MAX;
        habits[i].is_exact = false;
        habits[i].follows = !habits[i].is_counted;
        for (size_t p = 0; p < n_programs && habits[i].is_counted; p++)
            habits[i].follows = habits[i].follows || (nd_is_plain(p) && fits(&habits[i], p, false));
    }
    *device_program = half_even;
}

static enum nd_status name_program(size_t program, char **out, struct nd_error *err)
{
    size_t n;
    char buf[ND_PROGRAM_NAME_BYTES];
    const struct nd_program *programs = nd_programs(&n);
    *out = program < n ? nd_strdup(nd_program_name(&programs[program], buf)) : NULL;
    return *out != NULL || program >= n ? ND_OK : nd_fail_memory(err);
}

static enum nd_status name_unit_program(size_t program, char **out, struct nd_error *err)
{
    size_t n;
    *out = nd_strdup(nd_unit_programs(&n)[program].name);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* Those that give every code; of units first, where the device has one. */
static enum nd_status list_programs(const struct nd_habit *habit, struct nd_explained_unit *unit,
                                    struct nd_error *err)
{
    size_t n;
    nd_programs(&n);
    unit->programs = nd_calloc(n + ND_MAX_UNIT_PROGRAMS, sizeof *unit->programs);
    if (unit->programs == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (habit->standing == ND_STANDING_NONE || !nd_follows(habit, p))
            continue;
        status = name_unit_program(p, &unit->programs[unit->n_programs], err);
        unit->n_programs += status == ND_OK;
    }
    for (size_t p = 0; p < n && status == ND_OK; p++) {
        if (habit->tally->wrong[p] > 0)
            continue;
        status = name_program(p, &unit->programs[unit->n_programs], err);
        unit->n_programs += status == ND_OK;
    }
    return status;
}

static uint64_t fewest_wrong(const struct nd_code_tally *tally)
{
    size_t n;
    nd_programs(&n);
    uint64_t fewest = tally->wrong[0];
    for (size_t p = 1; p < n; p++)
        fewest = tally->wrong[p] < fewest ? tally->wrong[p] : fewest;
    return fewest;
}

/* Of a device that has a program of units. */
static enum nd_status judge_by_unit_program(struct nd_habit *habit, size_t program,
                                            struct nd_explained_unit *unit, struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(habit->tally), n_local = unit->local.n_differing;
    unit->is_covered = habit->units->n[program] == unit->n_codes;
    habit->is_suspect = habit->standing == ND_STANDING_FAULTY;
    bool is_of_units = unit->is_covered && habit->standing != ND_STANDING_UNKNOWN && !habit->is_of_values;
    unit->n_unexplained = is_of_units           ? habit->units->wrong[program]
                          : habit->is_of_values ? habit->tally->wrong[habit->program]
                                                : fewest;
    if (habit->standing == ND_STANDING_FOLLOWS)
        fewest = unit->n_unexplained;
    unit->explained_fraction = n_local > 0 ? 1 - fmin((double)fewest / (double)n_local, 1) : 1;
    enum nd_status status = ND_OK;
    if (is_of_units)
        status = name_unit_program(program, &unit->program, err);
    else
        status = name_program(habit->program, &unit->program, err);
    return status == ND_OK ? list_programs(habit, unit, err) : status;
}

static enum nd_status judge_unit(struct nd_habit *habit, struct nd_explained_unit *unit, struct nd_error *err)
{
    uint64_t fewest = fewest_wrong(habit->tally), n_local = unit->local.n_differing;
    bool is_known = habit->program != SIZE_MAX;
    habit->is_suspect = is_known && !habit->follows;
    unit->n_unexplained = fewest;
    if (is_known)
        unit->n_unexplained = (habit->is_exact ? habit->tally->wrong : habit->tally->far)[habit->program];
    unit->explained_fraction = n_local > 0 ? 1 - (double)fewest / (double)n_local : 1;
    enum nd_status status = name_program(habit->program, &unit->program, err);
    return status == ND_OK ? list_programs(habit, unit, err) : status;
}

/* The program, and all that what follows it leaves possible. */
static enum nd_status name_device_programs(struct nd_explained_device *device, size_t program,
                                           size_t unit_program, const bool *is_possible, struct nd_error *err)
{
    device->programs = nd_calloc(ND_MAX_UNIT_PROGRAMS, sizeof *device->programs);
    if (device->programs == NULL)
        return nd_fail_memory(err);
    if (unit_program == SIZE_MAX)
        return name_program(program, &device->program, err);
    enum nd_status status = name_unit_program(unit_program, &device->program, err);
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS && status == ND_OK; p++) {
        if (!is_possible[p])
            continue;
        status = name_unit_program(p, &device->programs[device->n_programs], err);
        device->n_programs += status == ND_OK;
    }
    return status;
}

/* What it does is what it does everywhere, and yet costs much. */
static bool is_lossy(const struct nd_habit *habit, const struct nd_explained_unit *unit)
{
    static const double many_steps = 10; /* LSB; chosen: it only selects what is listed as a loss, no verdict */
    return habit->standing == ND_STANDING_FOLLOWS && !habit->is_of_values && unit->local.max >= many_steps;
}

/* Share of the values of a unit that double precision may bring to the other side of a tie; chosen. */
static const double most_beside_ties = 0.01;

/* One rounding of a value in double precision next to a tie may fall either way; and a device in float32 that
 * does what it does everywhere is as good as it can be. */
static bool is_within_step(const struct nd_explained_step *step, const struct nd_explained_unit *unit,
                           const struct nd_habit *habit)
{
    if (unit->local.n_differing > 0 && habit->program != SIZE_MAX && nd_is_plain(habit->program))
        return habit->follows && unit->local.max <= 1;
    return step->is_double && unit->local.n_differing > 0 && unit->local.max <= 1 &&
           (double)unit->local.n_differing < most_beside_ties * (double)unit->n_codes;
}

/* Says of a step that some of its exact values are no numbers. */
static enum nd_status tell_of_nan(size_t s, const struct nd_explained_unit *unit,
                                  struct nd_explained_device *device, struct nd_error *err)
{
    double share = (double)unit->n_nan / (double)unit->n_codes;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text,
                     "%.3g %% of its exact values are not numbers (0 / 0, or the root, logarithm or power of a "
                     "negative number). ONNX does not say which code they have, so npudiff does not judge them",
                     100 * share);
    return nd_explain_add_finding(device, s, "not-a-number", share, nd_strbuf_take(&text), err);
}

/* nd_habit.places of a unit: one number for all its channels. */
static size_t places_of(const struct nd_plan *plan, size_t s)
{
    struct nd_wide *steps = NULL;
    struct nd_error ignored = {0};
    size_t n_steps = 0, n, found = SIZE_MAX;
    const struct nd_quant *quant = &nd_plan_edge(plan, s)->quant;
    const struct nd_program *programs = nd_programs(&n);
    if (quant->n != 1 ||
        nd_exact_accumulator_steps(plan->graph, plan->steps[s].edge, &steps, &n_steps, &ignored) != ND_OK)
        return SIZE_MAX;
    for (size_t i = 0; i < n_steps; i++) {
        int exponent;
        size_t p = 0;
        frexp(steps[i].parts[0] / (double)quant->scale[0], &exponent);
        while (p < n && !(programs[p].kind == ND_PROGRAM_DOUBLE && programs[p].n_bits == -exponent))
            p++;
        found = p == n || (i > 0 && p != found) ? SIZE_MAX : p;
        if (found == SIZE_MAX)
            break;
    }
    free(steps);
    return found;
}

/* What is asked of each step of the device. */
static void begin_habits(const struct nd_evaluation *evaluation, size_t d,
                         const struct nd_explained_device *device, struct nd_habit *units)
{
    const struct nd_plan *plan = evaluation->plan;
    bool is_emulated = nd_is_emulated(plan->sources[d].capture);
    bool is_runner = nd_is_runner(plan->sources[d].capture);
    for (size_t s = 0; s < plan->n_steps; s++)
        units[s] =
            (struct nd_habit){.op_types = plan->steps[s].op_types,
                              .is_counted = plan->steps[s].is_unit && device->units[s].is_examined &&
                                            device->units[s].fault.kind == NULL,
                              .tally = nd_tally_of(evaluation, d, s),
                              .units = nd_unit_tally_of(evaluation, d, s),
                              .n_codes = device->units[s].n_codes,
                              .places = is_runner && plan->steps[s].is_unit ? places_of(plan, s) : SIZE_MAX,
                              .is_table = !is_emulated && nd_unit_is_table(plan->model, nd_plan_unit(plan, s))};
}

static enum nd_status identify_device(const struct nd_evaluation *evaluation, size_t d,
                                      struct nd_habits *habits, struct nd_explanation *out,
                                      struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *device = &out->devices[d];
    struct nd_habit *units = &habits->units[d * plan->n_steps];
    size_t program, *unit_program = &habits->unit_program[d];
    bool is_possible[ND_MAX_UNIT_PROGRAMS];
    enum nd_expectation expectation = plan->sources[d].expectation;
    device->losses = nd_calloc(plan->n_steps, sizeof *device->losses);
    if (device->losses == NULL)
        return nd_fail_memory(err);
    begin_habits(evaluation, d, device, units);
    if (expectation == ND_EXPECT_FLOAT)
        nd_hold_to_float(units, plan->n_steps, &program);
    else
        nd_find_habits(units, plan->n_steps, &program);
    nd_settle_places(units, plan->n_steps);
    nd_find_unit_habits(units, plan->n_steps, expectation, unit_program, is_possible, &device->is_refuted);
    enum nd_status status = name_device_programs(device, program, *unit_program, is_possible, err);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        struct nd_explained_unit *unit = &device->units[s];
        if (units[s].is_counted)
            status = *unit_program == SIZE_MAX ? judge_unit(&units[s], unit, err)
                                               : judge_by_unit_program(&units[s], *unit_program, unit, err);
        if (units[s].is_counted && is_lossy(&units[s], unit))
            device->losses[device->n_losses++] = s;
        unit->n_nan = unit->is_examined && units[s].tally != NULL ? units[s].tally->n_nan : 0;
        if (status == ND_OK && unit->n_nan > 0)
            status = tell_of_nan(s, unit, device, err);
        unit->is_within_step = unit->is_examined && is_within_step(&out->steps[s], unit, &units[s]);
    }
    return status;
}

enum nd_status nd_explain_identify(const struct nd_evaluation *evaluation, struct nd_habits *habits,
                                   struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    *habits = (struct nd_habits){.units = nd_calloc(plan->n_devices * plan->n_steps, sizeof *habits->units),
                                 .unit_program = nd_calloc(plan->n_devices, sizeof *habits->unit_program)};
    enum nd_status status = habits->units != NULL && habits->unit_program != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        if (!plan->sources[d].is_failed)
            status = identify_device(evaluation, d, habits, out, err);
    return status;
}

void nd_habits_deinit(struct nd_habits *habits)
{
    free(habits->units);
    free(habits->unit_program);
}
