/* Running a small model with a runtime, to see that it works. */
#ifndef ND_SDK_RUNTIME_TRIAL_H
#define ND_SDK_RUNTIME_TRIAL_H

#include "core/error.h"
#include "npudiff/devices/device.h"

struct nd_runtime_trial {
    const struct nd_runtime_checking *how;
    char *folder; /* temporary */
    struct nd_model *model;
    struct nd_probe *probe;
};

/* Writes the model, a sum of two uint8 tensors, and loads it. */
enum nd_status nd_runtime_trial_open(const struct nd_runtime_checking *how, struct nd_runtime_trial *out,
                                     struct nd_error *err);
void nd_runtime_trial_close(struct nd_runtime_trial *trial);

struct nd_runtime_trial_result {
    struct nd_error failure; /* what the device said; id 0: it ran and gave the sums */
    char version[64];        /* of ONNX Runtime, as it says itself */
};

/* Runs the model in an agent process, on the CPU or, with a chipset, on its simulator. Errors are what is not
 * the runtime's fault (no space, cancelled). */
enum nd_status nd_runtime_trial_run(struct nd_runtime_trial *trial, const char *id,
                                    const struct nd_chipset *chipset, struct nd_runtime_trial_result *out,
                                    struct nd_error *err);

#endif
