/* Shared by the files of device/ only. */
#ifndef ND_DEVICE_INTERNAL_H
#define ND_DEVICE_INTERNAL_H

#include "npudiff/device.h"

/* The ABI of the machine that this runs on: "x86_64-linux", "aarch64-linux" or "aarch64-android". */
const char *nd_abi_here(void);

/* The runtime of that id for this machine, or the newest installed one for NULL. ND_E_RUNTIME_MISSING says what
 * to do. */
enum nd_status nd_runtime_find(const char *id, struct nd_runtime_info *out, struct nd_error *err);

/* The same for a machine of any ABI. Without an id the newest of ours ("qairt-…") that is there for it, else
 * the newest of any name. The message names the ABIs that the id has. */
enum nd_status nd_runtime_find_abi(const char *id, const char *abi, struct nd_runtime_info *out,
                                   struct nd_error *err);
void nd_runtime_info_deinit(struct nd_runtime_info *info);

/* What a device asks of its runtime. */
enum nd_runtime_need {
    ND_RUNTIME_FOR_CPU,     /* ONNX Runtime */
    ND_RUNTIME_FOR_NPU,     /* ONNX Runtime, the QNN provider and its backend */
    ND_RUNTIME_FOR_NET_RUN, /* qnn-net-run and the backend */
};

/* Whether it is there: ND_E_RUNTIME_MISSING says what is not and how it is added. */
enum nd_status nd_runtime_require(const struct nd_runtime_info *info, enum nd_runtime_need need,
                                  struct nd_error *err);

/* The QNN build id of a runtime, from its manifest or else (those of tools/setup) from its backend's bytes,
 * some 0.1 s: "v2.51.0.260929181845" in new memory, *out NULL when there is none. What a context binary names
 * as its SDK is held against it. */
enum nd_status nd_runtime_build_id(const struct nd_runtime_info *info, char **out, struct nd_error *err);

/* Whether one of info->files is of use on a device of that Hexagon architecture ("v75"; NULL: not known), for
 * that need: skeletons and stubs are for one architecture each (some 13 MB), and only qnn-net-run loads
 * libQnnHtpNetRunExtensions.so. */
bool nd_runtime_file_serves(const char *path, const char *arch, enum nd_runtime_need need);

/* Whether npudiff evaluates the device itself, without a runtime, by npudiff-agent-exact. */
bool nd_device_is_evaluated(enum nd_device_kind kind);

/* How an agent process ended. */
struct nd_agent_exit {
    struct nd_error
        error; /* id 0 unless it was killed by a signal or one of the host's limits, or left with an error */
    double elapsed_s;
    const char *stage; /* of an agent elsewhere that never wrote a record: "connect", "push", "start"; static */
    bool can_resume;   /* what it had done until then is safe, and a next run can go on from there */
};

/* What to start and how to watch it. */
struct nd_agent_start {
    const char *agent;  /* path of the executable */
    const char *folder; /* its working folder: job.nds is there, spool.nds, stdout.txt come there */
    const struct nd_capture_options *options;
    const char *label;
    size_t samples_total;
    uint64_t begun_ns; /* the time limit counts from here, over all agents of a capture; 0: from the start */
};

/* Starts an agent, watches its time, memory and progress, and waits for its end. A dead agent is an outcome
 * (exit->error), not an error; ND_E_DEVICE_AGENT when it cannot be started, ND_E_FILE_WRITE when it could not
 * store what it produced. */
enum nd_status nd_agent_launch(const struct nd_agent_start *start, struct nd_agent_exit *exit,
                               struct nd_error *err);

/* The path of npudiff-agent (see nd_capture_options.agent), in new memory; with is_exact that of
 * npudiff-agent-exact, which lies beside it. */
enum nd_status nd_agent_find(const char *wanted, bool is_exact, char **path, struct nd_error *err);

/* The agent for another machine, of that ABI: in $NPUDIFF_AGENTS, beside the program, in a build tree or in the
 * cache (<folder>/agents/<abi>/npudiff-agent); for this machine's own ABI else nd_agent_find. ND_E_DEVICE_AGENT
 * says how it is built. */
enum nd_status nd_agent_find_abi(const char *wanted, const char *abi, char **path, struct nd_error *err);

#endif
