/* Where layers were computed: the evidence of their quantised values, floats, neighbours and placement, summed
 * up. */
#include <inttypes.h>
#include <math.h>

#include "core/memory.h"
#include "core/statistics/series.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/fallback/fallback.h"
#include "explain/stages.h"
#include "npudiff/compare/latency.h"

/* A whole run: one that calls itself an NPU's and is not, whatever its runtime did by itself, and one that was
 * slower than others and truer to the floats. */

/* "CPU", "GPU" or "reference" where an import states that its device is one; else NULL. */
static const char *fallback_stated_other(const struct nd_capture *capture)
{
    static const char *const kinds[][2] = {{"cpu", "CPU"}, {"gpu", "GPU"}, {"reference", "reference"}};
    const char *kind = nd_capture_string(capture, "device", "kind");
    bool is_import = nd_capture_string(capture, "import", "format") != NULL;
    for (size_t i = 0; is_import && kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind, kinds[i][0]) == 0)
            return kinds[i][1];
    return NULL;
}

/* ---- its layers ---- */

/* Layers of one run are no independent witnesses: together they weigh as the strongest two of a side. */
static double two_strongest(const double *values, size_t n, double sign)
{
    double first = 0, second = 0;
    for (size_t s = 0; s < n; s++) {
        double x = sign * values[s];
        if (x > first) {
            second = first;
            first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return fmin(first + second, ND_FALLBACK_MAX);
}

static void count_layers(const struct nd_plan *plan, struct nd_explained_device *device)
{
    struct nd_explained_execution *run = &device->execution;
    for (size_t s = 0; s < plan->n_steps; s++) {
        if (nd_plan_tensor(plan, s)->is_model_input)
            continue;
        enum nd_execution verdict = device->layers[s].execution.verdict;
        run->n_npu += verdict == ND_EXECUTION_NPU;
        run->n_not_npu += verdict == ND_EXECUTION_NOT_NPU;
        run->n_unknown += verdict == ND_EXECUTION_UNKNOWN;
    }
}

static enum nd_status judge_layers(const double *values, size_t n_steps, struct nd_explained_execution *run,
                                   struct nd_error *err)
{
    double for_npu = two_strongest(values, n_steps, 1), against = two_strongest(values, n_steps, -1);
    size_t n_npu = 0, n_not = 0;
    for (size_t s = 0; s < n_steps; s++) {
        n_npu += values[s] >= ND_FALLBACK_DECISION;
        n_not += values[s] <= -ND_FALLBACK_DECISION;
    }
    if (n_npu > 0 ||
        n_not == 0) /* what others were computed by is no evidence against the NPU's having a part */
        return nd_fallback_add(run, "layers", for_npu > against || n_npu > 0 ? for_npu : -against, err,
                               "of the layers whose values tell, %zu were computed by an NPU and %zu were not",
                               n_npu, n_not);
    return nd_fallback_add(
        run, run->is_called_npu ? "whole-run-cpu" : "layers", -against, err,
        "of %zu layers whose values tell, none was computed by an NPU%s", n_not,
        run->is_called_npu ? ", which the device is called: as by a runtime that retried on the CPU by itself"
                           : "");
}

static enum nd_status judge_placement_of_run(const struct nd_capture *capture,
                                             struct nd_explained_execution *run, struct nd_error *err)
{
    const char *stated = fallback_stated_other(capture);
    if (stated != NULL)
        return nd_fallback_add(run, "stated", -ND_FALLBACK_MAX, err,
                               "the import states that the device is a %s", stated);
    size_t n_npu = 0, n_not = 0;
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        const char *provider = nd_capture_tensor_provider(capture, e);
        if (nd_capture_tensor(capture, e)->is_model_input || provider[0] == '\0')
            continue;
        bool is_cpu = strcmp(provider, "CPUExecutionProvider") == 0;
        if (!is_cpu && !run->is_called_npu)
            continue; /* an emulated device's own */
        n_npu += !is_cpu;
        n_not += is_cpu;
    }
    if (n_npu + n_not == 0)
        return ND_OK;
    return nd_fallback_add(run, "placement", n_npu > 0 ? ND_FALLBACK_MAX : -ND_FALLBACK_MAX, err,
                           "the capture says that %zu layers ran on an NPU's provider and %zu on the CPU's",
                           n_npu, n_not);
}

/* ---- times ---- */

/* Some of the runs went another way: which way, and in which layer, times alone do not tell. */
static enum nd_status judge_latency(const struct nd_plan_source *source, struct nd_explained_execution *run,
                                    struct nd_error *err)
{
    static const double of_modes = 1, of_tied = 3; /* bits; chosen (docs/science/fallback.md#the-run) */
    struct nd_latency latency;
    struct nd_error ignored = {0};
    if (!run->is_called_npu ||
        nd_latency_of_capture(source->capture, source->probe, NULL, &latency, &ignored) != ND_OK)
        return ND_OK; /* times that make no sense are no evidence */
    bool is_tied = latency.join.state == ND_JOIN_KNOWN && latency.join.n_tied > 0;
    if (is_tied)
        return nd_fallback_add(
            run, "latency-modes", -of_tied, err,
            "%zu of %zu slow runs gave other bits than the fast runs of the same samples, from '%s' on",
            latency.join.n_slow_other, latency.join.n_slow,
            latency.join.first_tied < nd_capture_n_tensors(source->capture)
                ? nd_capture_tensor(source->capture, latency.join.first_tied)->name
                : "?");
    if (latency.verdict != ND_LATENCY_TWO_MODES)
        return ND_OK;
    return nd_fallback_add(
        run, "latency-modes", -of_modes, err,
        "its runs are of two speeds, %.4g and %.4g us, with the same bits as far as runs were repeated",
        latency.modes[0].median_us, latency.modes[1].median_us);
}

static enum nd_status find_median(const struct nd_plan_source *source, double *out, struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(source->capture, source->probe);
    size_t n_all = probe->n_samples * probe->n_repeats, n = 0;
    double *us = nd_calloc(n_all, sizeof *us);
    if (us == NULL && n_all > 0)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_all && probe->latency_us != NULL; i++)
        if (probe->latency_us[i] > 0)
            us[n++] = probe->latency_us[i];
    nd_series_sort(us, n);
    *out = n > 0 ? us[n / 2] : NAN;
    free(us);
    return ND_OK;
}

static double error_of(const struct nd_explained_device *device)
{
    const struct nd_decomposition *o = &device->output;
    return o->n_qvalues > 0 ? o->quantisation + o->divergence + o->interaction : NAN;
}

static double divergence_of(const struct nd_explained_device *device)
{
    return device->output.n_qvalues > 0 ? device->output.divergence : NAN;
}

/* What computes in floats is truer to the model than its siblings, and on a phone it takes longer. */
static enum nd_status judge_accuracy(const struct nd_plan *plan, size_t device,
                                     struct nd_explained_device *devices, struct nd_error *err)
{
    /* Bits, and ratios; chosen (docs/science/fallback.md#the-run). */
    static const double weight = 3, much_truer = 0.25, much_slower = 1.5;
    double own_us, error = error_of(&devices[device]), divergence = divergence_of(&devices[device]);
    size_t n = 0;
    enum nd_status status = find_median(&plan->sources[device], &own_us, err);
    if (!nd_capture_is_called_npu(plan->sources[device].capture) || isnan(own_us) || isnan(error))
        return status;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
        double us;
        if (d == device || plan->sources[d].is_failed || !nd_capture_is_called_npu(plan->sources[d].capture))
            continue;
        status = find_median(&plan->sources[d], &us, err);
        bool is_outdone = error < error_of(&devices[d]) &&
                          divergence < much_truer * divergence_of(&devices[d]) && own_us > much_slower * us;
        if (!is_outdone) /* of all siblings, or it says nothing */
            return status;
        n++;
    }
    if (status != ND_OK || n == 0)
        return status;
    return nd_fallback_add(
        &devices[device].execution, "accurate-and-slow", -weight, err,
        "its outputs are nearer to the floats than those of %zu sibling%s, and it took longer: median %.4g us",
        n, n == 1 ? "" : "s", own_us);
}

/* ---- the verdict ---- */

/* One layer that was not computed by the NPU is enough for "partly"; what is said of the whole is said of what
 * tells. */
static void conclude_run(struct nd_explained_execution *run)
{
    nd_fallback_conclude(run);
    if (run->is_contradictory && run->verdict == ND_EXECUTION_UNKNOWN) {
        run->why_unknown = "the evidence contradicts itself";
        return;
    }
    if (run->n_npu > 0 && run->n_not_npu > 0)
        run->verdict = ND_EXECUTION_PARTLY;
    if (run->verdict == ND_EXECUTION_UNKNOWN)
        run->why_unknown = "nothing that was captured tells";
}

/* What is said of the run; its layers are concluded. values[n_steps]: the weights of their values alone. */
static enum nd_status fallback_judge_run(const struct nd_plan *plan, size_t device, const double *values,
                                         bool hides_placement, struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    struct nd_explained_execution *run = &out->devices[device].execution;
    run->is_called_npu = nd_capture_is_called_npu(source->capture);
    count_layers(plan, &out->devices[device]);
    ND_TRY(judge_layers(values, plan->n_steps, run, err));
    ND_TRY(judge_latency(source, run, err));
    ND_TRY(judge_accuracy(plan, device, out->devices, err));
    if (!hides_placement)
        ND_TRY(judge_placement_of_run(source->capture, run, err));
    conclude_run(run);
    return ND_OK;
}

/* Floats of steps that have no codes: science 2.3. On the grid of half precision, and there, whether they are
 * what the layer gives when it is computed in full and rounded to that grid once: what only passes through an
 * NPU is. */

/* Largest of half precision, and the least that has all its bits. */
static const double largest = 65504, least = 0x1p-14;

/* Step of half precision at x, which is normal there. */
static double step_at(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - 11);
}

void nd_fallback_count_floats(struct nd_fallback_floats *floats, const double *given, const double *own,
                              size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = fabs(given[i]);
        if (!isfinite(x) || x < least || x > largest)
            continue;
        double step = step_at(x), nearest = rint(x / step) * step;
        floats->n++;
        /* Qualcomm's simulator gives the float next to the one of half precision. */
        if (fabs(x - nearest) > step * 0x1p-13)
            continue;
        floats->n_on_grid++;
        if (own == NULL || !isfinite(own[i]))
            continue;
        floats->n_known++;
        floats->n_off += fabs(given[i] - own[i]) >= 0.75 * step;
    }
}

/* How likely the quantised values of a layer are on an NPU, and on a CPU. Both are mixtures of beta-binomial
 * distributions: rates differ from layer to layer, and some layers are exact by chance or by nature.
 * docs/science/fallback.md says where the numbers come from. */

/* Of a CPU that computes in floats: quantised values next to a tie that fall the other way, by the width of the
 * quantised values. */
static const double plain_off[2] = {2e-5, 1e-3};
/* Of one that does not; and the chance that a quantised value that no float arithmetic gives comes from one
 * that does. The model of docs/science/fallback.md. */
static const double other_off = 0.1, far_on_cpu = 1e-6;
/* Share of layers that may be off by any share of their quantised values, more than others of their kind;
 * chosen. */
static const double by_anything = 0.1;

struct row {
    const char *op_type;
    struct nd_fallback_rates narrow, wide;
};

/* Everything that is not listed: half of the kinds of operators are exact in 8 bits, and one of 24 in 16. */
static const struct row unknown = {"", {0.5, 0.03, 0.002}, {0.05, 0.3, 0.002}};

static const struct row rows[] = {
    {"Conv", {0.003, 0.03, 0.002}, {0.003, 0.5, 0.002}},
    {"MatMul", {0.003, 0.03, 0.002}, {0.003, 0.5, 0.002}},
    {"Gemm", {0.003, 0.04, 0.002}, {0.003, 0.5, 0.002}},
    {"Einsum", {0.003, 0.03, 0.002}, {0.05, 0.5, 0.002}},
    {"Add", {0.003, 0.008, 0.002}, {0.003, 0.08, 0.002}},
    {"LayerNormalization", {0.003, 0.25, 0.002}, {0.003, 0.25, 0.002}},
    {"Softmax", {0.003, 0.015, 0.3}, {0.003, 0.5, 0.002}},
    {"ConvTranspose", {0.006, 0.03, 0.002}, {0.006, 0.5, 0.002}},
    {"CumSum", {0.006, 0.37, 0.002}, {0.006, 0.37, 0.002}},
    {"InstanceNormalization", {0.006, 0.017, 0.002}, {0.93, 0.01, 0.002}},
    {"Sub", {0.006, 0.005, 0.002}, {0.006, 0.05, 0.002}},
    {"Mul", {0.98, 0.01, 0.002}, {0.006, 0.02, 0.002}},
    {"Div", {0.5, 0.004, 0.002}, {0.006, 0.5, 0.002}},
    {"ReduceMean", {0.85, 0.005, 0.002}, {0.05, 0.1, 0.002}},
    {"ReduceSum", {0.5, 0.004, 0.002}, {0.006, 0.45, 0.002}},
    {"AveragePool", {0.65, 0.03, 0.002}, {0.006, 0.05, 0.002}},
    {"GlobalAveragePool", {0.8, 0.03, 0.002}, {0.05, 0.24, 0.002}},
    {"Abs", {0.98, 0.01, 0.002}, {0.006, 0.03, 0.002}},
    {"Elu", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Exp", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Gelu", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"HardSwish", {0.98, 0.01, 0.002}, {0.006, 0.18, 0.002}},
    {"Sigmoid", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Sin", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Sqrt", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
    {"Tanh", {0.98, 0.01, 0.002}, {0.006, 0.5, 0.002}},
};

/* By a constant nothing is known of a kind: whether such a layer is exact depends on the constant and the
 * scales. Division by 6 into a scale that is a sixth only copies quantised values. */
static const struct nd_fallback_rates by_constant[2] = {{0.98, 0.01, 0.002}, {0.5, 0.02, 0.002}};

static bool is_first(const char *op_types, const char *name)
{
    size_t length = strcspn(op_types, "+,");
    return strlen(name) == length && strncmp(name, op_types, length) == 0;
}

static bool is_one_of(const char *op_types, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_first(op_types, names[i]))
            return true;
    return false;
}

/* Whether the first operator combines two tensors element by element, such as Add. */
static bool nd_fallback_is_pairwise(const char *op_types)
{
    static const char *const pairwise[] = {"Add", "Div", "Max", "Min", "Mod", "Mul", "PRelu", "Pow", "Sub"};
    return is_one_of(op_types, pairwise, sizeof pairwise / sizeof *pairwise);
}

/* Whether it is an operator that moves quantised values, and may bring them to another encoding on the way. */
static bool nd_fallback_is_move(const char *op_types)
{
    static const char *const moves[] = {"Identity", "Pad", "Slice", "Split", "Transpose"};
    return is_one_of(op_types, moves, sizeof moves / sizeof *moves);
}

struct nd_fallback_rates nd_fallback_rates_of(const char *op_types, const struct nd_fallback_counts *counts)
{
    const struct row *row = &unknown;
    if (counts->is_by_constant)
        return by_constant[counts->is_wide];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_first(op_types, rows[i].op_type))
            row = &rows[i];
    return counts->is_wide ? row->wide : row->narrow;
}

void nd_fallback_learn(struct nd_fallback_rates *rates, double off, size_t n_siblings, bool is_same_layer)
{
    /* Siblings that are off count beside as many layers as stand for the prior knowledge, at most. */
    static const double looked_at = 10, same_layer_exact = 0.002;
    double known = fmin(looked_at, 0.5 / rates->exact);
    if (is_same_layer)
        rates->exact = fmin(rates->exact, same_layer_exact);
    else
        rates->exact *= known / (known + (double)n_siblings);
    rates->off = fmax(off, 1e-4);
}

/* log of the chance of one sequence of n with k where the rate has that mean and the beta distribution B(a, b).
 */
static double log_chance(double k, double n, double mean, double a)
{
    int sign;
    double b = a / fmin(mean, 0.5) - a;
    return lgamma_r(k + a, &sign) + lgamma_r(n - k + b, &sign) - lgamma_r(n + a + b, &sign) -
           lgamma_r(a, &sign) - lgamma_r(b, &sign) + lgamma_r(a + b, &sign);
}

static double log_mixture(double share, double log_first, double log_second)
{
    double first = log(share) + log_first, second = log1p(-share) + log_second, most = fmax(first, second);
    return most + log(exp(first - most) + exp(second - most));
}

double nd_fallback_weigh(const struct nd_fallback_counts *counts, const struct nd_fallback_rates *rates)
{
    if (counts->n <= 0)
        return 0;
    double n = counts->n / counts->spread, k = counts->n_off / counts->spread;
    double as_floats =
        log_chance(k, n, plain_off[counts->is_wide], 1) + (counts->n_far > 0 ? log(far_on_cpu) : 0);
    double off = log_mixture(by_anything, log_chance(k, n, 0.5, 1), log_chance(k, n, rates->off, 2));
    double on_npu = log_mixture(rates->exact, as_floats, off);
    double on_cpu = log_mixture(rates->other, log_chance(k, n, other_off, 1), as_floats);
    double bits = (on_npu - on_cpu) / log(2);
    return fmax(fmin(bits, ND_FALLBACK_MAX), -ND_FALLBACK_MAX);
}

double nd_fallback_weigh_arithmetic(uint64_t n_apart, uint64_t n_as_made, uint64_t n_as_exact, double spread)
{
    /* An NPU that has the arithmetic in some layers has it in all that it covers, but for what the arithmetic
     * is not complete in; a CPU has quantised values of it next to ties only. */
    static const double nearly_all = 0.95; /* of the quantised values; chosen */
    static const double of_one = 6.6; /* bits: one quantised value in a hundred otherwise; chosen, not measured
                                         (docs/science/fallback.md) */
    double n = (double)n_apart;
    if (n_apart == 0)
        return 0;
    if ((double)n_as_made >= nearly_all * n)
        return fmin(of_one * (double)n_as_made / spread, ND_FALLBACK_MAX);
    if ((double)n_as_exact >= nearly_all * n)
        return -fmin(of_one * (double)n_as_exact / spread, ND_FALLBACK_MAX);
    return 0;
}

/* What the quantised values of a layer say of where it was computed. */

/* Quantised values of one sample are alike: many come from the same values. How much that matters shows in the
 * spread from sample to sample. */
static double spread_of(const struct nd_evaluation *evaluation, size_t device, size_t step)
{
    size_t n_samples = evaluation->plan->n_samples;
    double n = 0, n_off = 0, squares = 0, expected = 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_sums *sums = nd_sums_of(evaluation, i, device, step);
        n += (double)sums->n_qvalues;
        n_off += (double)sums->introduced.n_differing;
    }
    double share = n > 0 ? n_off / n : 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_sums *sums = nd_sums_of(evaluation, i, device, step);
        double mean = (double)sums->n_qvalues * share, d = (double)sums->introduced.n_differing - mean;
        squares += d * d;
        expected += mean * (1 - share);
    }
    return n_samples > 1 && expected > 0 ? fmax(squares / expected, 1) : 1;
}

static void count_qvalues(struct nd_fallback *f, size_t device, size_t step)
{
    const struct nd_explained_layer *layer = &f->out->devices[device].layers[step];
    const struct nd_qvalue_tally *tally = nd_tally_of(f->evaluation, device, step);
    struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, step)];
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    counts->is_wide = nd_dtype_size_bytes(nd_plan_tensor(f->plan, step)->dtype) > 1;
    counts->is_by_constant = f->out->steps[step].is_layer && nd_plan_layer(f->plan, step)->n_inputs == 1 &&
                             nd_fallback_is_pairwise(f->plan->steps[step].op_types);
    counts->spread = 1;
    if (!f->out->steps[step].is_layer || !layer->is_examined)
        return;
    execution->n_off = tally->wrong[f->half_even];
    execution->n_far = tally->far[f->half_even];
    execution->n_deciding = tally->n_open > execution->n_off ? tally->n_open : execution->n_off;
    counts->n = (double)execution->n_deciding;
    counts->n_off = (double)execution->n_off;
    counts->n_far = (double)execution->n_far;
    counts->spread = spread_of(f->evaluation, device, step);
}

/* Exact quantised values have no spread to see: that of the run's others stands for it, as a correlation
 * between the quantised values of one sample: spread = 1 + (quantised values of a sample - 1) correlation. */
static void lend_spread(struct nd_fallback *f, size_t device)
{
    /* Measured on gen1 and gen3 of the simulator (QAIRT 2.51.0; nine models of golden/models and
     * golden/fallback; probe uniform:32:7, of ViT uniform:12:7): the mean over 255 layers is 0.0005, and 93 %
     * of them have less than this. */
    static const double usual = 0.001;
    double sum = 0, n = 0, n_samples = (double)f->plan->n_samples;
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        if (counts->n_far == 0 || counts->n < 2 * n_samples)
            continue;
        sum += (counts->spread - 1) / (counts->n / n_samples - 1);
        n++;
    }
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        if (counts->n_far == 0 && counts->n > n_samples)
            counts->spread = 1 + (counts->n / n_samples - 1) * fmin(n > 0 ? sum / n : usual, 1);
    }
}

/* A fault says nothing of where a layer ran: a wrong scale or a permutation is off everywhere. Nor does an
 * error that no rounding makes, whether it has a name or not. */
static bool nd_fallback_is_spoilt(const struct nd_fallback *f, size_t device, size_t step)
{
    /* LSB of 8 and of 16 bits; chosen: 4 bits of the 8 or 16 are lost, which no HTP operator was seen to do
     * alone. */
    static const double most = 16, max_wide = 4096;
    const struct nd_explained_layer *layer = &f->out->devices[device].layers[step];
    bool is_place = layer->judgement.fault.kind == nd_fault_name(ND_FAULT_FALLBACK) ||
                    layer->judgement.fault.kind == nd_fault_name(ND_FAULT_ROUNDING);
    if ((layer->judgement.state == ND_LAYER_FAULTY && !is_place) ||
        (layer->judgement.state == ND_LAYER_UNEXPLAINED && layer->floats.n > 0))
        return true;
    return layer->judgement.state == ND_LAYER_UNEXPLAINED &&
           layer->introduced.max > (f->counts[nd_fallback_at(f, device, step)].is_wide ? max_wide : most);
}

/* What the NPU does in this very layer on other runs, or in layers of the kind on this one: as far as that is
 * plain from the operator alone. */
enum { MAX_SIBLINGS = 32 };
struct siblings {
    double rates[MAX_SIBLINGS]; /* of quantised values that are off, sorted */
    size_t n_layers;            /* at most MOST_SIBLINGS */
    bool is_same_layer;
};

/* Whether it tells what an NPU does. */
static bool is_telling(const struct nd_fallback *f, size_t device, size_t step)
{
    size_t k = nd_fallback_at(f, device, step);
    return f->alone[k] >= ND_FALLBACK_DECISION && f->counts[k].n > 0 && !nd_fallback_is_spoilt(f, device, step);
}

static void add_sibling(const struct nd_fallback *f, size_t device, size_t step, struct siblings *siblings)
{
    size_t k = nd_fallback_at(f, device, step), i = siblings->n_layers;
    if (i == MAX_SIBLINGS)
        return;
    double rate = f->counts[k].n_off / f->counts[k].n;
    for (; i > 0 && siblings->rates[i - 1] > rate; i--)
        siblings->rates[i] = siblings->rates[i - 1];
    siblings->rates[i] = rate;
    siblings->n_layers++;
}

/* The median, the lower one of two: one run that is broken must not set what is expected of the others. */
static double usual_rate(const struct siblings *siblings)
{
    return siblings->rates[(siblings->n_layers - 1) / 2];
}

static struct siblings find_siblings(const struct nd_fallback *f, size_t device, size_t step)
{
    struct siblings siblings = {.is_same_layer = true};
    for (size_t d = 0; d < f->plan->n_devices; d++)
        if (d != device && f->plan->sources[d].same_as != f->plan->sources[device].same_as &&
            is_telling(f, d, step))
            add_sibling(f, d, step, &siblings);
    if (siblings.n_layers > 0)
        return siblings;
    siblings.is_same_layer = false;
    const struct nd_fallback_kin *kin = &f->kin[nd_fallback_at(f, device, 0)];
    for (size_t s = kin[kin[step].kind].first; s != SIZE_MAX && siblings.n_layers < MAX_SIBLINGS;
         s = kin[s].next)
        if (s != step)
            add_sibling(f, device, s, &siblings);
    return siblings;
}

/* A layer whose quantised values follow known arithmetic in another way, fused with its neighbour for instance,
 * is no witness against the NPU. */
static bool follows_otherwise(const struct nd_explained_layer *layer)
{
    return layer->judgement.state == ND_LAYER_FOLLOWS && layer->judgement.why_follows != NULL &&
           strcmp(layer->judgement.why_follows, "exact") != 0;
}

/* Quantised values; chosen, as in accuse.c. Of 180 healthy networks (seeds 5000 to 5179) 16 layers of gen3 had
 * 2 to 19 quantised values apart from the arithmetic, all of them exact. */
enum { FEWEST_AGAINST = 20 };

/* A layer with quantised values that neither the device's arithmetic nor floats give: the arithmetic may be
 * incomplete there, as it is for a depthwise Conv of uint16 and stride 2. A CPU gives no quantised value that
 * is far from a tie, so the layer is no witness against the NPU. */
static bool is_neither(const struct nd_fallback *f, size_t device, size_t step)
{
    return f->out->devices[device].layers[step].judgement.state == ND_LAYER_UNEXPLAINED &&
           f->counts[nd_fallback_at(f, device, step)].n_far > 0;
}

/* Whether what speaks against the arithmetic is what it leaves open (nd_layer_arithmetic_doubt): an NPU has
 * such quantised values, too. Where each quantised value follows from one quantised value, those of one value
 * are any share of them: which of two ways the NPU goes is not known, and all quantised values of a background
 * may lie where the ways differ. */
static bool is_left_open(const struct nd_fallback *f, size_t device, size_t step, size_t arithmetic)
{
    const struct nd_layer_tally *layers = nd_layer_tally_of(f->evaluation, device, step);
    bool is_of_one_qvalue = f->counts[nd_fallback_at(f, device, step)].is_by_constant ||
                            nd_fallback_is_move(f->plan->steps[step].op_types);
    return layers->doubt[arithmetic] > 0 && layers->max[arithmetic] <= 1 &&
           (is_of_one_qvalue ||
            (double)layers->wrong[arithmetic] <= layers->doubt[arithmetic] * (double)layers->n[arithmetic]);
}

/* Where the device has an arithmetic of whole layers: the quantised values of the layer on which that and exact
 * rounding differ. *is_told stays false where they are neither's. Where there are none, and the arithmetic
 * gives all quantised values, these say nothing. A handful of quantised values that are exact tells nothing: a
 * fused layer may be exact by chance. Then the other weight, which is of the same quantised values, tells
 * nothing either. */
static enum nd_status judge_by_arithmetic(struct nd_fallback *f, size_t device, size_t step, bool *is_told,
                                          struct nd_error *err)
{
    size_t arithmetic = f->layer_arithmetic[device];
    const struct nd_layer_tally *layers = nd_layer_tally_of(f->evaluation, device, step);
    if (arithmetic == SIZE_MAX || layers->doubt[arithmetic] >= 1 ||
        layers->n[arithmetic] < f->out->devices[device].layers[step].n_qvalues)
        return ND_OK;
    double weight = nd_fallback_weigh_arithmetic(layers->apart[arithmetic], layers->apart_as_made[arithmetic],
                                                 layers->apart_as_exact[arithmetic],
                                                 f->counts[nd_fallback_at(f, device, step)].spread);
    bool gives_all = layers->wrong[arithmetic] == 0 && layers->apart[arithmetic] == 0;
    if (weight == 0 && !gives_all)
        return ND_OK;
    *is_told = true;
    if (gives_all) /* and so does exact rounding: an NPU gives these quantised values, too, however many there
                      are */
        return ND_OK;
    if (weight < 0 &&
        (is_neither(f, device, step) || layers->apart[arithmetic] < FEWEST_AGAINST ||
         is_left_open(f, device, step, arithmetic) || follows_otherwise(&f->out->devices[device].layers[step])))
        return ND_OK;
    f->values[nd_fallback_at(f, device, step)] = weight;
    const char *name = nd_layer_arithmetic_at(arithmetic)->name;
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "program", weight, err,
                           "of %" PRIu64 " quantised values on which %s and exact rounding differ %" PRIu64
                           " are the former's and %" PRIu64 " the latter's",
                           layers->apart[arithmetic], name, layers->apart_as_made[arithmetic],
                           layers->apart_as_exact[arithmetic]);
}

/* Whether it is known that the device's NPU does not round as floats do: an HTP's does not; of any other NPU
 * exact values tell nothing. */
static bool is_known_npu(const struct nd_fallback *f, size_t device)
{
    enum nd_expectation expected = f->plan->sources[device].expectation;
    return f->layer_arithmetic[device] != SIZE_MAX || expected == ND_EXPECT_V69 || expected == ND_EXPECT_V73;
}

/* After the quantised values of all devices are counted: fills values, and adds the evidence. ND_ERR_MEMORY. */
static enum nd_status nd_fallback_judge_qvalues(struct nd_fallback *f, size_t device, size_t step,
                                                struct nd_error *err)
{
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, step)];
    struct nd_fallback_rates rates = nd_fallback_rates_of(f->out->steps[step].op_types, counts);
    bool is_told = false;
    if (nd_fallback_is_spoilt(f, device, step))
        return ND_OK;
    enum nd_status status = judge_by_arithmetic(f, device, step, &is_told, err);
    if (status != ND_OK || is_told)
        return status;
    struct siblings siblings = {0};
    if (!counts->is_by_constant)
        siblings = find_siblings(f, device, step);
    if (siblings.n_layers > 0)
        nd_fallback_learn(&rates, usual_rate(&siblings), siblings.n_layers, siblings.is_same_layer);
    double weight = nd_fallback_weigh(counts, &rates);
    if (weight < 0 && siblings.n_layers == 0 && !is_known_npu(f, device))
        return ND_OK;
    f->values[nd_fallback_at(f, device, step)] = weight;
    const char *base = siblings.n_layers == 0   ? "as in such layers on simulated NPUs"
                       : siblings.is_same_layer ? "as in this layer on other runs of this comparison"
                                                : "as in other layers of its kind on this run";
    if (weight > 0)
        return nd_fallback_add(execution, "fixed-point", weight, err,
                               "%" PRIu64 " of %" PRIu64
                               " deciding quantised values are not what float arithmetic gives, %" PRIu64
                               " of them not next to a tie",
                               execution->n_off, execution->n_deciding, execution->n_far);
    return nd_fallback_add(
        execution, "bit-equal", weight, err,
        "%" PRIu64 " of %" PRIu64
        " deciding quantised values are not what float arithmetic gives, where an NPU would have some %.2g%% "
        "%s",
        execution->n_off, execution->n_deciding, 100 * rates.off, base);
}

/* Layers of the same operators and width are of one kind. */
static enum nd_status find_kin(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    struct nd_names kinds[2] = {{0}}; /* narrow, wide */
    struct nd_fallback_kin *kin = &f->kin[nd_fallback_at(f, device, 0)];
    size_t n = f->plan->n_steps;
    bool is_made = true;
    for (size_t s = 0; s < n && is_made; s++) {
        struct nd_names *names = &kinds[f->counts[nd_fallback_at(f, device, s)].is_wide];
        size_t kind = nd_names_find(names, f->out->steps[s].op_types);
        is_made = kind != SIZE_MAX || nd_names_add(names, f->out->steps[s].op_types, s);
        kin[s] = (struct nd_fallback_kin){kind != SIZE_MAX ? kind : s, SIZE_MAX, SIZE_MAX};
    }
    for (size_t s = n; s-- > 0 && is_made;)
        if (is_telling(f, device, s)) {
            kin[s].next = kin[kin[s].kind].first;
            kin[kin[s].kind].first = s;
        }
    nd_names_deinit(&kinds[0]);
    nd_names_deinit(&kinds[1]);
    return is_made ? ND_OK : nd_fail_memory(err);
}

/* Fills counts, alone and kin of the device. ND_ERR_MEMORY. */
static enum nd_status nd_fallback_count_qvalues(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    for (size_t s = 0; s < f->plan->n_steps && !f->plan->sources[device].is_failed; s++)
        count_qvalues(f, device, s);
    lend_spread(f, device);
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        const struct nd_fallback_counts *counts = &f->counts[nd_fallback_at(f, device, s)];
        struct nd_fallback_rates rates = nd_fallback_rates_of(f->plan->steps[s].op_types, counts);
        f->alone[nd_fallback_at(f, device, s)] = nd_fallback_weigh(counts, &rates);
    }
    return find_kin(f, device, err);
}

/* ---- floats ---- */

static enum nd_status judge_floats(struct nd_fallback *f, size_t device, size_t step, struct nd_error *err)
{
    enum { FEWEST = 24 };
    /* A runtime may hand what the CPU computed through a piece of the NPU's that only moves it: in one of five
     * layers next to one it did (measured: docs/science/fallback.md). So being on the grid says little, and
     * being off it much. */
    static const double passed_on = 0.2, off_on_npu = 0.002, rounded_off = 0.02;
    /* Shares of the floats on the grid: at most the first is off it, the second or more is on it, anything
     * between is neither; chosen. */
    static const double off_grid = 0.5, on_grid = 0.98;
    const struct nd_fallback_floats *floats = &f->floats[nd_fallback_at(f, device, step)];
    struct nd_explained_execution *execution = nd_fallback_execution_of(f, device, step);
    double share = floats->n > 0 ? (double)floats->n_on_grid / (double)floats->n : 0, weight;
    bool is_off = share <= off_grid;
    if (floats->n < FEWEST || (!is_off && share < on_grid) || nd_fallback_is_spoilt(f, device, step))
        return ND_OK;
    if (is_off && nd_capture_is_called_npu(f->plan->sources[device].capture) && !is_known_npu(f, device))
        return ND_OK; /* there are NPUs that compute in float32 */
    if (is_off) {
        f->values[nd_fallback_at(f, device, step)] = log2(off_on_npu);
        return nd_fallback_add(execution, "off-fp16-grid", log2(off_on_npu), err,
                               "%zu of %zu floats have more bits than half precision",
                               floats->n - floats->n_on_grid, floats->n);
    }
    weight = -log2(passed_on);
    f->values[nd_fallback_at(f, device, step)] = weight;
    enum nd_status status = nd_fallback_add(
        execution, "fp16-grid", weight, err,
        "%zu of %zu floats are numbers of half precision, which an NPU may also have made of others'",
        floats->n_on_grid, floats->n);
    if (status != ND_OK || floats->n_off == 0)
        return status;
    const struct nd_fallback_rates rates = {.exact = 0.5, .off = 0.1, .other = off_on_npu};
    struct nd_fallback_counts counts = {
        .n = (double)floats->n_known, .n_off = (double)floats->n_off, .spread = 4};
    counts.n_far = counts.n_off > counts.n * rounded_off ? counts.n_off : 0;
    double more = nd_fallback_weigh(&counts, &rates);
    f->values[nd_fallback_at(f, device, step)] += fmax(more, 0);
    return nd_fallback_add(
        execution, "fp16-arithmetic", fmax(more, 0), err,
        "%zu of %zu are not what its own inputs give when they are rounded to half precision once",
        floats->n_off, floats->n_known);
}

/* ---- what is around it, and what is recorded ---- */

/* Layers of a run whose values tell where they were computed. */
struct decided {
    size_t n_npu, n_not;
};

/* Where nothing else was computed by an NPU, this one hardly was. The other way round it says nothing: single
 * layers that are not is what is looked for. */
static enum nd_status judge_neighbours(struct nd_fallback *f, size_t device, size_t step,
                                       const struct decided *all, struct nd_error *err)
{
    enum { FEWEST = 3 };
    static const double most = 5; /* bits; docs/science/fallback.md#the-run */
    double own = f->values[nd_fallback_at(f, device, step)];
    size_t n_npu = all->n_npu - (own >= ND_FALLBACK_DECISION);
    size_t n_not = all->n_not - (own <= -ND_FALLBACK_DECISION);
    if (n_npu + n_not < FEWEST)
        return ND_OK;
    double weight = fmin(fmax(log2(((double)n_npu + 0.5) / ((double)n_not + 0.5)), -most), 0);
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "neighbours", weight, err,
                           "of the run's other layers that tell, %zu were computed by an NPU and %zu were not",
                           n_npu, n_not);
}

static enum nd_status judge_placement(struct nd_fallback *f, size_t device, size_t step, struct nd_error *err)
{
    const struct nd_plan_source *source = &f->plan->sources[device];
    size_t tensor = nd_capture_find_tensor(source->capture, nd_plan_tensor(f->plan, step)->name);
    const char *provider = tensor != SIZE_MAX ? nd_capture_tensor_provider(source->capture, tensor) : "";
    const char *stated = fallback_stated_other(source->capture);
    if (!f->hides_placement && provider[0] == '\0' && stated != NULL)
        return nd_fallback_add(nd_fallback_execution_of(f, device, step), "stated", -ND_FALLBACK_MAX, err,
                               "the import states that the device is a %s", stated);
    if (f->hides_placement || provider[0] == '\0')
        return ND_OK;
    bool is_npu = strcmp(provider, "CPUExecutionProvider") != 0;
    if (is_npu && !nd_capture_is_called_npu(source->capture))
        return ND_OK; /* an emulated device's own */
    return nd_fallback_add(nd_fallback_execution_of(f, device, step), "placement",
                           is_npu ? ND_FALLBACK_MAX : -ND_FALLBACK_MAX, err, "the capture says %s", provider);
}

/* Why nothing can be said of a layer that left no evidence of its own. */
static const char *why_unknown(const struct nd_fallback *f, size_t device, size_t step)
{
    const struct nd_explained_layer *layer = &f->out->devices[device].layers[step];
    const struct nd_fallback_floats *floats = &f->floats[nd_fallback_at(f, device, step)];
    if (layer->execution.verdict != ND_EXECUTION_UNKNOWN)
        return NULL;
    if (layer->execution.is_contradictory)
        return "the evidence contradicts itself";
    if (floats->n > 0)
        return "its floats would be these wherever it ran";
    if (!f->out->steps[step].is_layer || !layer->is_examined)
        return "it was not examined";
    if (nd_fallback_is_spoilt(f, device, step))
        return "its values are spoilt, which says nothing of where it ran";
    if (layer->execution.n_deciding == 0)
        return "it only moves codes: they are the same wherever it runs";
    if (!is_known_npu(f, device))
        return "exact arithmetic, which not only CPUs have: values cannot tell";
    return "its quantised values may be these wherever it runs";
}

/* ---- all of it ---- */

static enum nd_status judge_step(struct nd_fallback *f, size_t device, size_t step, const struct decided *all,
                                 struct nd_error *err)
{
    enum nd_status status = judge_neighbours(f, device, step, all, err);
    if (status == ND_OK)
        status = judge_placement(f, device, step, err);
    nd_fallback_conclude(nd_fallback_execution_of(f, device, step));
    nd_fallback_execution_of(f, device, step)->why_unknown = why_unknown(f, device, step);
    return status;
}

static enum nd_status judge_values(struct nd_fallback *f, struct nd_error *err)
{
    const struct nd_plan *plan = f->plan;
    for (size_t d = 0; d < plan->n_devices; d++)
        ND_TRY(nd_fallback_count_qvalues(f, d, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; s < plan->n_steps; s++) {
            if (!nd_fallback_is_judged(f, d, s))
                continue;
            ND_TRY(nd_fallback_judge_qvalues(f, d, s, err));
            ND_TRY(judge_floats(f, d, s, err));
        }
    return ND_OK;
}

static enum nd_status judge_device(struct nd_fallback *f, size_t device, struct nd_error *err)
{
    if (f->plan->sources[device].is_failed)
        return ND_OK;
    struct decided all = {0};
    for (size_t s = 0; s < f->plan->n_steps; s++) {
        all.n_npu += f->values[nd_fallback_at(f, device, s)] >= ND_FALLBACK_DECISION;
        all.n_not += f->values[nd_fallback_at(f, device, s)] <= -ND_FALLBACK_DECISION;
    }
    for (size_t s = 0; s < f->plan->n_steps; s++)
        if (nd_fallback_is_judged(f, device, s))
            ND_TRY(judge_step(f, device, s, &all, err));
    return fallback_judge_run(f->plan, device, &f->values[nd_fallback_at(f, device, 0)], f->hides_placement,
                              f->out, err);
}

enum nd_status nd_find_execution(const struct nd_explain_job *job, bool hides_placement, struct nd_error *err)
{
    const struct nd_plan *plan = job->plan;
    size_t n = plan->n_devices * plan->n_steps; /* as in nd_evaluation_init, which was checked */
    struct nd_fallback f = {.plan = plan,
                            .evaluation = job->evaluation,
                            .layer_arithmetic = job->observations->layer_arithmetic,
                            .out = job->out,
                            .hides_placement = hides_placement,
                            .half_even = nd_rounding_rule_half_even(),
                            .counts = nd_calloc(n, sizeof *f.counts),
                            .floats = job->floats,
                            .kin = nd_calloc(n, sizeof *f.kin),
                            .alone = nd_calloc(n, sizeof *f.alone),
                            .values = nd_calloc(n, sizeof *f.values)};
    enum nd_status status = ND_OK;
    if (n > 0 && (f.counts == NULL || f.kin == NULL || f.alone == NULL || f.values == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = judge_values(&f, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = judge_device(&f, d, err);
    ND_FREE_ALL(f.counts, f.kin, f.alone, f.values);
    return status;
}
