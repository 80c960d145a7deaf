/* How far inputs can bring the values of a unit: what rounding and clipping took from them is put back, this
 * way and that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "arithmetic/exact/linear/rounding.h"
#include "explain/exam/exam.h"

/* Half a step up or down: all up, all down, or by chance. */
static double step_of(size_t pattern, uint64_t *random)
{
    if (pattern < 2)
        return pattern == 0 ? 0.5 : -0.5;
    return nd_random_next(random) >> 30 != 0 ? 0.5 : -0.5; /* the highest of its 31 bits */
}

/* What such an operator leaves at the end of its codes was not cut off. */
static bool ends_by_itself(const char *op_types)
{
    static const char *const names[] = {"Relu", "Clip", "Sigmoid", "Softmax", "HardSwish"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(op_types, names[i]) != NULL)
            return true;
    return false;
}

static void move_input(struct nd_array *codes, const struct nd_edge *edge, size_t pattern, uint64_t *random)
{
    static const double cut_off = 0.25; /* of the range; chosen: what is clipped was hardly further out */
    double low, high;
    bool is_cut = !ends_by_itself(edge->op_types);
    nd_code_range(codes->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++) {
        double x = codes->x[i], out = is_cut && x == low ? -1 : is_cut && x == high ? 1 : 0;
        codes->x[i] += out != 0 ? out * cut_off * (high - low) : step_of(pattern, random);
    }
}

static void move_inputs(struct nd_exam *exam, size_t pattern)
{
    struct nd_reader *r = exam->reader;
    const struct nd_model_unit *unit = nd_plan_unit(exam->job->plan, exam->step);
    uint64_t random = pattern * 1000003 + exam->slot;
    for (size_t k = 0; k < unit->n_inputs; k++) {
        size_t edge = unit->inputs[k];
        bool is_first = true;
        for (size_t before = 0; before < k; before++)
            is_first = is_first && unit->inputs[before] != edge;
        if (is_first && r->given[edge].shape.rank >= 0 && nd_dtype_is_integer(r->given[edge].dtype))
            move_input(&r->given[edge], nd_model_edge(exam->job->plan->model, edge), pattern, &random);
    }
}

enum nd_status nd_exam_find_reach(struct nd_exam *exam, double *reach, struct nd_error *err)
{
    enum { PATTERNS = 4 };
    size_t n = exam->n_samples * exam->n;
    double *still = nd_calloc(n, sizeof *still), *moved = nd_calloc(n, sizeof *moved);
    enum nd_status status = still != NULL && moved != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t k = 0; k <= PATTERNS && status == ND_OK; k++) {
        for (size_t i = 0; i < exam->n_samples && status == ND_OK; i++) {
            status = nd_exam_load_sample(exam, i, err);
            if (k > 0)
                move_inputs(exam, k - 1);
            if (status == ND_OK)
                status = nd_exam_run(exam, exam->edge, k == 0 ? still : moved, err);
        }
        for (size_t i = 0; i < n && k > 0; i++)
            reach[i] = fmax(reach[i], fabs(moved[i] - still[i]));
    }
    free(still);
    free(moved);
    return status;
}
