/* Which program of whole units a device has, and which of its units do not follow it. */
#include "explain/layers/unit_programs.h"

#include <string.h>

static bool covers(const struct nd_habit *habit, size_t program)
{
    const struct nd_unit_tally *units = habit->units;
    return habit->is_counted && units != NULL && units->n[program] > 0 && units->n[program] == habit->n_codes &&
           !(units->doubt[program] >= 1 && units->wrong[program] > 0);
}

bool nd_follows(const struct nd_habit *habit, size_t program)
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

/* As of fixed point programs (habits.c): two units that follow it outweigh any number of units in floats. */
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
