/* What trials.c has done by one thread: one trial in one sample. */
#ifndef ND_QUANTISATION_TRIAL_RUN_H
#define ND_QUANTISATION_TRIAL_RUN_H

#include "quantisation/study.h"
#include "explain/evaluate/ripple.h"

struct nd_trial_worker {
    struct nd_loss_run run;
    struct nd_rerun cut;
    bool *is_given, *is_changed, *is_real; /* [n_edges] of the model */
    struct nd_array *given;                /* [n_edges] views */
    struct nd_array input;                 /* codes of a changed input, owned */
    const struct nd_array **replaced;      /* [n_tensors] */
    const size_t *outputs;                 /* [n_outputs] steps */
    size_t n_outputs;
    bool is_told[ND_LOSS_OUTPUTS]; /* of the outputs of the trial at hand */
    struct nd_ripple ripple;       /* without a plan: the study has no units */
    struct nd_packed packed_input;
    const struct nd_trial *trial; /* at hand */
    double *noise;                /* [n_outputs] of it */
    double watched;               /* error of its watched step, of the changed layers alone */
};

/* outputs[n_outputs]: steps, borrowed. end in any case, also of a zeroed one. ND_ERR_MEMORY. */
enum nd_status nd_trial_worker_begin(struct nd_trial_worker *worker, const struct nd_study *study,
                                     const size_t *outputs, size_t n_outputs, struct nd_error *err);
void nd_trial_worker_end(struct nd_trial_worker *worker);

/* worker->trial in the sample of worker->run, which was run: fills noise. Errors are those of
 * nd_exact_graph_run. */
enum nd_status nd_trial_worker_run(struct nd_trial_worker *worker, struct nd_error *err);
/* The error of the model as it is. */
double nd_trial_worker_base_noise(struct nd_trial_worker *worker, size_t step);
/* The error of the watched step without and with the changes, of the changed layers alone. */
enum nd_status nd_trial_worker_watch(struct nd_trial_worker *worker, double *without, double *with,
                                     struct nd_error *err);

#endif
