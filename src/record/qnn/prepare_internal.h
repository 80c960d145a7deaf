/* Shared by prepare*.c only: a prepared folder in the making. */
#pragma once

#include "core/tensors/sha256.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "model/encodings/building.h"
#include "model/rewrite/native.h"
#include "npudiff/record/prepare.h"

#define ND_PREPARED_BINARY "context_qnn.bin" /* as ONNX Runtime calls what belongs to context.onnx */
#define ND_PREPARED_ONNX "context.onnx"

/* A tensor at an end of the context, which the context and the model agree on. */
struct nd_prepared_tensor {
    const char *name;      /* the model's input, or the tensor; borrowed from the model */
    const char *onnx_name; /* this and the next are borrowed from nd_prepare_work.native */
    const char *context_name;
    size_t index; /* of the model's input, or of its tensor */
    enum nd_dtype dtype;
    uint32_t qnn_type; /* Qnn_DataType_t */
    struct nd_shape shape;
    const struct nd_quant *quant; /* borrowed from the model; NULL where there are no codes */
    bool is_quantised_here;       /* an input of floats that the context takes as codes */
    size_t size_bytes;            /* of one sample */
};

/* What the context says of itself. */
struct nd_prepared_context {
    char build_id[64];
    char graph[256];
    char core_api[48];
    char backend_api[48];
    uint64_t backend;
    uint64_t soc_model;
    uint64_t n_graphs;
    char sha256[ND_SHA256_HEX_BYTES];
    uint64_t size_bytes;
};

struct nd_prepare_work {
    const struct nd_model *model;
    const struct nd_device *device;
    const struct nd_probe *const *probes;
    size_t n_probes;
    const struct nd_prepare_options *options;
    char *folder;    /* in which everything is made */
    char *scratch;   /* folder of the agent that makes the context */
    size_t *tensors; /* of the model: those that the context gives */
    size_t n_tensors;
    struct nd_fed { /* those asked for that are its inputs */
        size_t tensor;
        size_t input; /* of the context */
    } * fed;
    size_t n_fed;
    struct nd_native native;
    struct nd_prepared_context context;
    struct nd_prepared_tensor *inputs; /* in the context's order */
    size_t n_inputs;
    struct nd_prepared_tensor *outputs;
    size_t n_outputs;
    struct nd_digest *digests; /* [samples of all probes][n_inputs] */
    /* Gets copies of what the agent recorded of the runtime and the placement; nullable. */
    struct nd_spool_writer *records;
};

/* prepare.c: all of nd_prepare; the caller sets what was asked for and calls nd_prepare_work_deinit in any
 * case, until when `work` says what the folder holds. */
enum nd_status nd_prepare_folder(struct nd_prepare_work *work, const char *folder, struct nd_error *err);
void nd_prepare_work_deinit(struct nd_prepare_work *work);

/* prepare_context.c: makes the context in work->folder and fills context, inputs and outputs. */
enum nd_status nd_prepare_context(struct nd_prepare_work *work, struct nd_error *err);

/* The path of an input file within the folder, in new memory; NULL when out of memory. */
char *nd_prepare_input_path(const struct nd_prepare_work *work, size_t probe, size_t sample, size_t input);

/* ONNX's QuantizeLinear of n floats of one tensor, by the tensor's scales: x / scale in float32, half to even,
 * plus zero point, saturated. NaN gives the lowest code, as ONNX Runtime's vectors do. dtype is int8, uint8,
 * int16 or uint16; n_inner: element i belongs to channel (i / n_inner) % quant->n. */
void nd_prepare_quantise(const float *values, size_t n, const struct nd_quant *quant, size_t n_inner,
                         enum nd_dtype dtype, void *qvalues);

/* prepare.c: npudiff.json. Only it has an integer of that name. */
#define ND_PREPARED_KEY "npudiff_prepare"

/* A capture by qnn-net-run on another machine: the folder is prepared here, run there, and what comes back is
 * put down as an agent would have. */

/* One run of a prepared folder. */
struct nd_prepared_run {
    const char *folder;                /* here, as nd_prepare wrote it */
    const char *scratch;               /* a folder here, made, for what is sent */
    const struct nd_runtime_info *sdk; /* for that machine, with net_run; NULL: the machine has its own */
    const struct nd_capture_options *options;
    uint64_t begun_ns;
};

/* Sends the folder, and the SDK when there is one, to the machine (what it has is not sent again), runs run.sh
 * there, without the link if need be, and waits for its end. *out: the folder there in which output/ is, new
 * memory; *exit_code of qnn-net-run; *said: what it wrote, new memory. ND_ERR_DEVICE: the machine, or the link
 * (ND_E_LINK_LOST), or a limit; ND_E_CANCELLED. */
enum nd_status nd_prepared_run(struct nd_remote *remote, const struct nd_prepared_run *run, char **out,
                               int *exit_code, char **said, struct nd_error *err);

/* The run of capture->device, of way ND_REMOTE_QNN_NET_RUN, on capture->remote. As nd_capture_run_agent:
 * *folder, new memory, is where spool.nds and stdout.txt are; what fails there is an outcome (*exit). */
enum nd_status nd_prepared_capture(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                   struct nd_error *err);

/* prepare_capture.c: what came back, as a spool. */
struct nd_prepare_work;
struct nd_returned {
    const struct nd_capture_job *capture;
    const struct nd_prepare_work *work;
    struct nd_remote *remote;
    const char *prepared; /* the folder here */
    const char *out;      /* the folder there in which output/ is */
};
