/* A folder for a device on which Qualcomm's own qnn-net-run runs: the model as a context binary, its inputs
 * in the device's own types, and a script that runs it.
 *
 * npudiff itself does not run on such a device. `npudiff import qnn-net-run` makes a capture of what the
 * run wrote.
 *
 * Example:
 *
 *     static enum nd_status prepare(const struct nd_model *model, const struct nd_probe *probe,
 *                                   struct nd_error *err)
 *     {
 *         struct nd_device device = {0};
 *         struct nd_prepared_summary summary;
 *         enum nd_status status = nd_device_parse("htp-sim:gen3", &device, err);
 *         if (status != ND_OK)
 *             return status;
 *         const struct nd_workload work = {model, &device, &probe, 1};
 *         status = nd_prepare(&work, "folder", NULL, &summary, err);
 *         if (status == ND_OK)
 *             printf("%llu bytes of context\n", (unsigned long long)summary.context_bytes);
 *         nd_device_deinit(&device);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_PREPARE_H
#define NPUDIFF_PREPARE_H

#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_prepare_options {
    size_t struct_size;                  /* sizeof(struct nd_prepare_options) */
    const char *tensors;                 /* as nd_model_select_tensors, but "none"; NULL: "all" */
    const char *agent;                   /* as nd_capture_options.agent */
    const char *profiling_level;         /* of qnn-net-run: "basic", "detailed", ...; NULL: no profile */
    double time_limit_s;                 /* for making the context; 0: none */
    bool (*is_cancelled)(void *context); /* as nd_capture_options.is_cancelled */
    void *cancel_context;
    bool replace; /* a prepared folder, or an empty one, that is there is replaced */
};
ND_PUBLIC void nd_prepare_options_init_sized(struct nd_prepare_options *options, size_t struct_size);
static inline void nd_prepare_options_init(struct nd_prepare_options *options)
{
    nd_prepare_options_init_sized(options, sizeof *options);
}

/* What nd_prepare made. Texts are cut to fit. */
struct nd_prepared_summary {
    char graph[256]; /* QNN's name of the graph */
    char sdk[64];    /* build that made the context: "2.51.0.260929181845" */
    uint64_t context_bytes;
    size_t n_inputs; /* of the context */
    size_t n_outputs;
    size_t n_results; /* inferences: samples of all probes */
};

/* Writes the new folder that docs/reference/prepared-folder.md describes: the model, with the tensors made
 * visible, as a context binary for the chipset of `device` (an "htp-sim:CHIPSET", whose runtime makes it in an
 * agent process), and the samples of the probes as its inputs. Input i of a probe is that of the model's input
 * i. Quantisation of inputs and outputs is left out of the context: it takes and gives quantised values.
 *
 * Nothing is left behind on failure. ND_E_FILE_EXISTS: the folder, or a file of its name, is there
 * (with `replace`: and is none that npudiff prepared);
 * ND_E_FILE_WRITE; ND_E_MODEL_DYNAMIC; ND_E_MODEL_NO_TENSOR; ND_E_OPTION_VALUE: a device that is no simulator,
 * or tensors "none"; ND_E_DEVICE_FALLBACK: nodes do not run on the NPU (the message names them);
 * ND_E_PREPARE_NAMES: two tensors would have one name there; ND_E_PREPARE_CONTEXT: the model came out as
 * several graphs, or the context contradicts the model; ND_E_PREPARE_INPUT: an input that cannot be quantised
 * here; ND_E_OPTION_CONFLICT: two probes of one name; ND_E_CANCELLED; and what makes a session fail. Thread
 * safe. */
ND_PUBLIC enum nd_status nd_prepare(const struct nd_workload *workload, const char *folder,
                                    const struct nd_prepare_options *options,
                                    struct nd_prepared_summary *summary, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
