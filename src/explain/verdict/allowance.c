/* How far the values of a layer may be off before anything is said of it: what is known of its arithmetic. */
#include <math.h>
#include <string.h>

#include "explain/exam/exam.h"
#include "explain/exam/input_quantiser.h"
#include "explain/verdict/health.h"

/* LSB of 8 bits; chosen. What a program covers it is wrong about by a bias or a multiplier that is rounded
 * otherwise, which moves a value of 8 bits by one. Operators without a program are off by two: two roundings,
 * each away. */
static const double of_covered = 1, of_uncovered = 2;
/* The same in LSB of 16 bits; chosen. The HTP brings second operands of products to 8 bits and takes some
 * functions from tables of 8 bits (docs/science/htp-arithmetic.md): an operator that nobody knows may do so,
 * and is then off by two steps of 8 bits. */
static const double of_covered_wide = 16, of_uncovered_wide = 512;

double nd_explain_known_allowance(bool is_wide)
{
    return is_wide ? of_covered_wide : of_covered;
}

/* Codes by which the forced encoding may place the last code elsewhere than the model's; chosen: quantisers
 * that write 1/65535 for a gate are off by one from 1/65536, and one code is no more than rounding does. */
static const double moved_codes = 1.5;

static bool is_elsewhere(const struct nd_quant *forced, const struct nd_quant *own)
{
    if (own->n != 1 || own->zero_point[0] != forced->zero_point[0])
        return true;
    return fabs((double)own->scale[0] / (double)forced->scale[0] - 1) * UINT16_MAX > moved_codes;
}

bool nd_explain_reads_forced(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, step);
    bool is_forced = false;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        const struct nd_forced *forced = job->plan->alternatives.forced[unit->inputs[i]];
        const struct nd_edge *edge = nd_model_edge(job->plan->model, unit->inputs[i]);
        is_forced = is_forced || (forced != NULL && is_elsewhere(&forced->quant, &edge->quant));
    }
    return is_forced && job->habits->unit_program[device] != SIZE_MAX;
}

unsigned nd_explain_forced(const struct nd_explain_job *job, size_t step)
{
    const struct nd_alternatives *a = &job->plan->alternatives;
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, step);
    unsigned forced = unit != NULL && a->is_forced_here[unit->edge] ? ND_EXAM_FORCED_OUTPUT : 0;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++)
        forced |= a->forced[unit->inputs[i]] != NULL ? ND_EXAM_FORCED_INPUTS : 0;
    return forced;
}

/* Layers that read an operand in an encoding that the provider forces, and products of two operands that are
 * calculated (docs/science/htp-arithmetic.md). */
static bool is_known_in_part(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, step);
    size_t n_calculated = 0;
    if (job->habits->unit_program[device] == SIZE_MAX || unit == NULL)
        return false;
    for (size_t i = 0; i < unit->n_inputs; i++)
        n_calculated += nd_model_unit_of_edge(job->plan->model, unit->inputs[i]) != NULL;
    bool is_product = strncmp(unit->op_types, "MatMul", strlen("MatMul")) == 0;
    return nd_explain_reads_forced(job, device, step) || (is_product && n_calculated > 1);
}

/* A later release need not have the defect that the program has. */
static bool may_be_mended(const struct nd_habit *habit)
{
    return habit->units->known_defect != NULL && habit->units->known_defect->is_in_programs;
}

bool nd_explain_is_known(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_habit *habit = nd_habit_of(job, device, step);
    size_t program = job->habits->unit_program[device];
    if (nd_explain_is_input_quantiser(job->plan, step))
        return true; /* ONNX says it, and input_quantiser.c has what devices do besides */
    if (program == SIZE_MAX)
        return habit->program != SIZE_MAX;
    return job->out->devices[device].units[step].is_covered && habit->units->doubt[program] < 1 &&
           !is_known_in_part(job, device, step) && !may_be_mended(habit);
}

double nd_explain_allowance(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_plan_source *source = &job->plan->sources[device];
    const struct nd_habit *habit = nd_habit_of(job, device, step);
    bool is_wide = nd_plan_is_wide(job->plan, step);
    bool is_input = nd_explain_is_input_quantiser(job->plan, step),
         is_htp = job->habits->unit_program[device] != SIZE_MAX;
    if (!is_htp && source->expectation == ND_EXPECT_ANY && (is_input || habit->program != SIZE_MAX))
        return 0; /* rounding of a known kind, and nothing else: complete */
    if (!is_htp && source->expectation == ND_EXPECT_FLOAT && is_input)
        return 0;
    if (habit->tally->n_open == 0 && nd_explain_is_known(job, device, step) && !is_input)
        return 0; /* it only moves codes: there is nothing to round */
    if (nd_explain_is_known(job, device, step) || source->expectation == ND_EXPECT_FLOAT)
        return nd_explain_known_allowance(is_wide);
    return is_wide ? of_uncovered_wide : of_uncovered;
}

bool nd_explain_multiplies_constants(const struct nd_explain_job *job, size_t step)
{
    static const char *const products[] = {"Conv", "Gemm", "MatMul"}; /* and ConvTranspose, Conv+Relu */
    const struct nd_model_unit *unit = nd_plan_unit(job->plan, step);
    for (size_t i = 0; unit != NULL && unit->n_inputs == 1 && i < sizeof products / sizeof *products; i++)
        if (strncmp(unit->op_types, products[i], strlen(products[i])) == 0)
            return true;
    return false;
}

bool nd_explain_is_product_by_constants(const struct nd_explain_job *job, size_t device, size_t step)
{
    return job->habits->unit_program[device] != SIZE_MAX && nd_explain_multiplies_constants(job, step);
}
