#include <string.h>

#include "explain/layers/device_programs.h"

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

void nd_settle_places(struct nd_habit *habits, size_t n)
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

void nd_hold_to_float(struct nd_habit *habits, size_t n, size_t *device_program)
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
