/* The stages of nd_sweep: sweep.c lists what is run, sweep.c runs and compares it. */
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

#endif
