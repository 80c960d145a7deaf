/* What the files of explain/ share. A job is planned once (plan.c), worked on sample by sample by several
 * threads (work_sample.c), and what they leave, sums per sample, is concluded in order of samples
 * (conclude_devices.c). */
#ifndef ND_EXPLAIN_EXPLAIN_JOB_H
#define ND_EXPLAIN_EXPLAIN_JOB_H

#include "explain/expectation.h"
#include "explain/unit_programs.h"
#include "npudiff/explain.h"

/* Sums over the codes of one step of one sample. */
struct nd_explain_part_sums {
    uint64_t n_differing;
    double max, sum, energy;
};

struct nd_explain_sums {
    uint64_t n_codes, n_violations;
    bool is_missed;      /* it could not be evaluated from the device's codes, or changed its shape */
    bool is_harm_missed; /* nor could what its local error does to the outputs */
    struct nd_explain_part_sums local, inherited, total;
    double q_times_d;
    double clipped_divergence; /* of elements that no code stands for */
    /* What the unit's local error alone does to the model's outputs, in the samples in which it is measured. */
    uint64_t n_harm_codes, n_harmed;
    double harm_energy;
    /* Of outputs: the device less the vote of the lineages, and its product with the error of that vote. */
    double own_energy, own_times_common;
};

/* What the references say of one step and sample, whatever the device. */
struct nd_explain_reference_sums {
    double signal, quantisation;
    uint64_t n_clipped; /* elements that no code stands for, and their part of the quantisation */
    double clipped_quantisation;
    bool is_double;
    bool is_missed, is_float_missed; /* there is no reference, or no float reference */
    /* Of outputs, from vote.c: codes on which lineages differ, by how many tally the plurality won there, and
     * the energy of the error of the vote against the float reference, and against the quantised one. */
    uint64_t n_voted, n_split;
    double margin, common_error, common_divergence;
};

/* A capture and where it keeps things. */
struct nd_explain_source {
    const struct nd_capture *capture;
    bool is_failed;
    enum nd_explain_expectation expectation;
    size_t same_as; /* the first device whose codes are the same, in every step; the device itself, else */
    size_t probe;   /* of the capture */
    size_t *edges;  /* [n_steps] of the capture, or SIZE_MAX: nothing that can be read in place */
    size_t *sample_bytes; /* [n_steps] */
};

struct nd_explain_job {
    const struct nd_model *model, *float_model;
    struct nd_exact_graph *graph, *float_graph;
    size_t *inputs;          /* [n_inputs of model]: which input of the probe */
    size_t *float_inputs;    /* [n_inputs of float_model]: which input of model */
    size_t *step_of_edge;    /* [n_edges of model] or SIZE_MAX: an edge that is not computed */
    size_t *step_of_float;   /* [n_edges of float_model] or SIZE_MAX */
    struct nd_shape *shapes; /* [n_steps] */
    struct nd_explain_alternatives alternatives;
    char **not_covered; /* [n_steps] why the step cannot be evaluated, whatever it reads; NULL: it can */
    size_t n_steps, n_devices, n_samples, n_harm_samples;
    size_t leader; /* the device whose inputs are read: that of the first capture that did not fail */
    struct nd_explain_source *sources;           /* [n_devices] */
    struct nd_explain_sums *sums;                /* [n_samples][n_devices][n_steps] */
    struct nd_explain_reference_sums *reference; /* [n_samples][n_steps] */
    struct nd_explain_tally *tally;              /* [n_devices][n_steps] */
    struct nd_explain_unit_tally *unit_tally;    /* [n_devices][n_steps] */
    struct nd_explain_habit *habits;             /* [n_devices][n_steps], from judge_layers.c on */
    size_t *unit_program; /* [n_devices] of nd_unit_programs, from judge_layers.c on; SIZE_MAX: none */
    struct nd_explanation *out;
};

static inline struct nd_explain_sums *nd_explain_sums_of(const struct nd_explain_job *job, size_t sample,
                                                         size_t device, size_t step)
{
    return &job->sums[(sample * job->n_devices + device) * job->n_steps + step];
}

/* Samples that are read together: a chunk holds several. */
enum { ND_EXPLAIN_BLOCK = 8 };

/* plan.c: checks the captures, prepares the graphs and finds what can be examined. deinit accepts what was only
 * begun; out stays. */
enum nd_status nd_explain_plan(struct nd_explain_job *job, const struct nd_capture *const *captures,
                               const struct nd_explain_options *options, struct nd_error *err);
void nd_explain_job_deinit(struct nd_explain_job *job);

/* accumulator_steps.c: takes a zeroed sample through the graph to learn the steps and what of them can be
 * evaluated, and matches the float model's edges with them. */
enum nd_status nd_explain_find_steps(struct nd_explain_job *job, struct nd_error *err);
/* Which step can be examined on that device, and why others cannot. */
enum nd_status nd_explain_match_device(struct nd_explain_job *job, size_t device, struct nd_error *err);
/* The unit that makes the edge, or NULL. */
const struct nd_model_unit *nd_explain_unit_of(const struct nd_model *model, size_t edge);

/* Whether the value, in codes, lies more than half a step beyond those of the type. */
bool nd_explain_is_clipped(double value, enum nd_dtype dtype);

/* work_sample.c: fills sums, reference and tally, and settles them. */
enum nd_status nd_explain_run(struct nd_explain_job *job, const struct nd_explain_options *options,
                              struct nd_error *err);
/* settle.c: what could not be evaluated in some sample is not examined, or has no reference, in any. */
enum nd_status nd_explain_settle(struct nd_explain_job *job, struct nd_error *err);
/* A nd_exact_missed that lets the edge go. */
enum nd_status nd_explain_let_go(void *context, size_t edge, const struct nd_error *why, struct nd_error *err);
/* Arrays for the model's inputs, zeroed structs before. */
enum nd_status nd_explain_make_inputs(const struct nd_model *model, struct nd_array *inputs,
                                      struct nd_error *err);

/* observer.c: fills `observer` of the devices. */
enum nd_status nd_explain_observe(struct nd_explain_job *job, const struct nd_capture *const *witnesses,
                                  size_t n_witnesses, struct nd_error *err);

/* reused.c: tensors that show what a later layer wrote into their buffer get that fault, and layers that read
 * them are not examined. Before nd_explain_judge, from the sums. ND_ERR_MEMORY. */
enum nd_status nd_explain_find_reused(struct nd_explain_job *job, size_t device, struct nd_error *err);

/* judge_layers.c: finds the device's programs and the units that do not follow them. */
enum nd_status nd_explain_judge(struct nd_explain_job *job, size_t device, struct nd_error *err);

/* differences.c: why devices with programs of units differ. */
enum nd_status nd_explain_find_differences(struct nd_explain_job *job, struct nd_error *err);

/* Whether any sample of the step came out otherwise when it was run again; whether no input of its unit did. */
bool nd_explain_differs_by_run(const struct nd_explain_job *job, size_t device, size_t step);
bool nd_explain_inputs_repeat(const struct nd_explain_job *job, size_t device, size_t step);

/* conclude.c, quality.c */
enum nd_status nd_explain_conclude(struct nd_explain_job *job, struct nd_error *err);
void nd_explain_quality_of_step(const struct nd_explain_job *job, size_t device, size_t step,
                                struct nd_decomposition *out);
enum nd_status nd_explain_quality_of_output(const struct nd_explain_job *job, size_t device,
                                            struct nd_error *err);

/* bootstrap.c: sums of one sample at the outputs, and the intervals that they give. The draws depend on n
 * only. */
struct nd_explain_energies {
    uint64_t n_codes;
    double quantisation, divergence, interaction;
    double common, own; /* what own_share is made of */
};
enum nd_status nd_explain_bootstrap(const struct nd_explain_energies *samples, size_t n,
                                    struct nd_explained_device *device, struct nd_error *err);

#endif
