/* The stages of nd_sweep: settings.c lists what is run, sweep_run.c runs and compares it. */
#ifndef ND_SWEEP_SWEEP_JOB_H
#define ND_SWEEP_SWEEP_JOB_H

#include "npudiff/improve/sweep.h"

struct nd_sweep_job {
    const struct nd_sweep_options *options;
    const struct nd_model *model;
    struct nd_sweep *result;
    struct nd_device *devices; /* [n_settings] */
    size_t n_devices;          /* that were parsed */
    char *folder;              /* for what nobody keeps */
};

/* Fills result->settings, and parses their devices. */
enum nd_status nd_sweep_list(struct nd_sweep_job *job, struct nd_error *err);
/* Runs and compares them. */
enum nd_status nd_sweep_run(struct nd_sweep_job *job, struct nd_error *err);

#endif
