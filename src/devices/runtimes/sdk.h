/* What an installed SDK has to give: its libraries for a machine, and the agent that loads them there. */
#pragma once

#include "npudiff/devices/device.h"

/* The ABI of the machine that this runs on: "x86_64-linux", "aarch64-linux" or "aarch64-android". */
const char *nd_abi_here(void);

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

/* Whether one of info->files is of use on a device of that Hexagon architecture ("v75"; NULL: not known), for
 * that need: skeletons and stubs are for one architecture each (some 13 MB), and only qnn-net-run loads
 * libQnnHtpNetRunExtensions.so. */
bool nd_runtime_file_serves(const char *path, const char *arch, enum nd_runtime_need need);

/* The path of npudiff-agent (see nd_capture_options.agent), in new memory; with a suffix ("-exact",
 * else "") that of npudiff-agent-exact, which lies beside it. */
enum nd_status nd_agent_find(const char *wanted, const char *suffix, char **path, struct nd_error *err);

/* The agent for another machine, of that ABI: in $NPUDIFF_AGENTS, beside the program, in a build tree or in the
 * cache (<folder>/agents/<abi>/npudiff-agent); for this machine's own ABI else nd_agent_find. ND_E_DEVICE_AGENT
 * says how it is built. */
enum nd_status nd_agent_find_abi(const char *wanted, const char *abi, char **path, struct nd_error *err);

/* The error that no runtime of the list has this id, with the nearest one. */
enum nd_status nd_runtime_fail_unknown(const struct nd_runtime_list *list, const char *id,
                                       struct nd_error *err);
