/* What one thread needs to take samples through the model: read codes, and where the values of the sample at
 * hand are kept. */
#ifndef ND_EXPLAIN_WORKER_H
#define ND_EXPLAIN_WORKER_H

#include "explain/explain_job.h"

struct nd_explain_worker {
    struct nd_explain_job *job;
    bool is_made;
    struct nd_array *inputs;        /* [n_inputs of model] */
    struct nd_array *float_inputs;  /* [n_inputs of float_model]: views of inputs */
    struct nd_array *reference;     /* [n_steps] codes (or floats) of the quantised reference */
    struct nd_array *error;         /* [n_steps] first the float reference, then q in steps; rank < 0 without */
    struct nd_array *own;           /* [n_steps] codes computed from the device's own inputs; for harm only */
    struct nd_array *given;         /* [n_edges]: the device's codes; rank < 0 where nothing was captured */
    struct nd_array *chain;         /* [n_edges]: views, of harm.c and evidence.c */
    bool *is_skipped;               /* [n_edges], of the same */
    bool *is_below;                 /* [n_edges], of harm.c */
    double *ballots;                /* [n_devices][ballot_n], of vote.c: codes of one output */
    size_t *voters;                 /* [n_devices]: whose they are */
    size_t ballot_n;                /* elements of the largest output */
    unsigned char **raw_inputs;     /* [n_inputs]: a block of samples */
    unsigned char **raw;            /* [n_devices * n_steps]: the same, NULL where nothing is read */
    size_t *input_bytes;            /* [n_inputs] of a sample */
    struct nd_explain_tally *tally; /* [n_devices][n_steps] */
    struct nd_explain_unit_tally *unit_tally; /* [n_devices][n_steps] */
    struct nd_explain_trial trial;
    size_t sample, in_block, device; /* at hand */
    size_t harmful;                  /* the step at hand in harm.c */
};

/* Arrays of the job's shapes; deinit accepts a zeroed worker and one that was half made. */
enum nd_status nd_explain_worker_init(struct nd_explain_worker *w, struct nd_explain_job *job,
                                      struct nd_error *err);
void nd_explain_worker_deinit(struct nd_explain_worker *w);

/* Reads a block of n <= ND_EXPLAIN_BLOCK samples of the inputs and of all devices' codes. */
enum nd_status nd_explain_read_block(struct nd_explain_worker *w, size_t first, size_t n, struct nd_error *err);
/* Fills inputs with those of sample in_block of the block. */
void nd_explain_load_inputs(struct nd_explain_worker *w);
/* Fills given with the device's codes of that sample. */
enum nd_status nd_explain_load_device(struct nd_explain_worker *w, struct nd_error *err);

/* Stands for an array that is not there. */
struct nd_array nd_explain_no_array(void);

#endif
