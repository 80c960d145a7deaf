/* Bytes to lines, lines to findings. The patterns are in one table; a line that none of them knows but that
 * holds an error code must not pass for nothing. */
#include "capture/logs/log_read.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/options.h"

/* ---- error codes in lines that no pattern knows ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of word when the line holds it at `at`, whatever its case, as a word of its own; else NULL. */
static const char *take_word(const char *line, const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);
    bool is_start = at == line || !is_letter(at[-1]);
    return is_start && (size_t)(end - at) >= n && strncasecmp(at, word, n) == 0 &&
                   (at + n == end || !is_letter(at[n]))
               ? at + n
               : NULL;
}

static const char *skip_any(const char *at, const char *end, const char *which)
{
    while (at < end && *at != '\0' && strchr(which, *at) != NULL)
        at++;
    return at;
}

/* A whole number that is not 0: decimal, negative, or 0x...; no share, size or time. */
static bool take_code(const char *at, const char *end, bool is_hex_only, int64_t *code)
{
    bool is_negative = at < end && *at == '-';
    at += is_negative;
    bool is_hex = end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    uint64_t value = 0;
    size_t n = 0;
    for (at += is_hex ? 2 : 0; at < end && n < 16; at++, n++) {
        char c = *at;
        int digit = is_digit(c)                      ? c - '0'
                    : is_hex && c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : is_hex && c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
        if (digit < 0)
            break;
        value = value * (is_hex ? 16 : 10) + (uint64_t)digit;
    }
    const char *next = at < end && *at == ' ' ? at + 1 : at;
    bool has_more = at < end && (is_letter(*at) || is_digit(*at) || (next < end && *next == '%') ||
                                 (*at == '.' && at + 1 < end && is_digit(at[1])));
    *code = is_negative ? -(int64_t)value : (int64_t)value;
    return n > 0 && value != 0 && value <= INT64_MAX && !has_more && (is_hex || !is_hex_only);
}

/* "err 17", "error code: 0x3ea", "with error = 1002", "status 0x1771". */
static bool find_code(const char *line, const char *end, int64_t *code)
{
    static const struct {
        const char *word;
        bool is_hex_only;
    } words[] = {{"error", false}, {"err", false}, {"errno", false}, {"error_code", false}, {"status", true}};
    for (const char *at = line; at < end; at++)
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const char *next = take_word(line, at, end, words[i].word);
            if (next == NULL)
                continue;
            next = skip_any(next, end, " ");
            const char *behind_code = take_word(line, next, end, "code");
            next = skip_any(behind_code != NULL ? behind_code : next, end, " =:(#'\"");
            if (take_code(next, end, words[i].is_hex_only, code))
                return true;
        }
    return false;
}

static bool find_symbol(const char *line, const char *end)
{
    const char *at = memmem(line, (size_t)(end - line), "QNN_", 4);
    for (; at != NULL; at = memmem(at + 1, (size_t)(end - at - 1), "QNN_", 4)) {
        const char *name_end = at;
        while (name_end < end && (is_letter(*name_end) || is_digit(*name_end)))
            name_end++;
        if (memmem(at, (size_t)(name_end - at), "_ERROR_", 7) != NULL)
            return true;
    }
    return false;
}

/* Whether a line that no pattern knows holds an error code other than 0 or the name of an error of QNN; *out
 * has the code. *is_warning: the line says of itself that it is no more than a warning. */
static bool nd_log_is_error(const char *line, size_t n, bool *is_warning, struct nd_log_match *out)
{
    static const char *const warnings[] = {"<W>", "[WARNING]", "WARNING:", "[warning]", "[W:"};
    const char *end = line + n;
    struct nd_log_match match = {0};
    match.has_code = find_code(line, end, &match.code);
    if (!match.has_code && !find_symbol(line, end))
        return false;
    *is_warning = false;
    for (size_t i = 0; i < sizeof warnings / sizeof warnings[0]; i++)
        *is_warning = *is_warning || memmem(line, n, warnings[i], strlen(warnings[i])) != NULL;
    *out = match;
    return true;
}

/* ---- the patterns ---- */

/* One table, longer than a file should be because it is data. The first pattern that matches a line is taken.
 */

#define NOTE ND_LOG_NOTE
#define WARN ND_LOG_WARNING
#define BAD ND_LOG_BAD
#define NO_STAGE ND_LOG_STAGE_NONE
#define COMPOSE ND_LOG_STAGE_COMPOSE
#define FINALIZE ND_LOG_STAGE_FINALIZE
#define EXECUTE ND_LOG_STAGE_EXECUTE

const struct nd_log_pattern nd_log_patterns[] = {
    /* ---- an operator that could not be constructed ---- */
    {ND_LOG_PREPARATION, BAD, FINALIZE, "could not create op: {op}",
     "graph_prepare.cc:203:ERROR:could not create op: q::flat_to_vtcm", "could not create option: q"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "Op creation failure, op id={id} ({op}) total_inputs={count}",
     "graph_prepare.cc:213::ERROR:Op creation failure, op id=0x13 (q::QNN_Elu) total_inputs=2",
     "Op creation success, op id=0x13 (q::QNN_Elu) total_inputs=2"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "Op creation failure, op id={id}",
     "QNN_LOG[1]: graph_prepare.cc:221::ERROR:Op creation failure, op id=0x40ff00000050 total_inputs=4",
     "Op creation failures: none"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "Op {id} preparation failed with err:{code}",
     "graph_prepare.cc:1187:ERROR:Op 0x102800000013 preparation failed with err:-1",
     "Op 0x102800000013 preparation finished with err:0"},
    {ND_LOG_MEMORY, BAD, FINALIZE,
     "\"{node}\" generated: Requires {needed} bytes of TCM, which is greater than the TCM size of {available}",
     "QnnDsp <E> \"norm1\" generated: Requires 0x2400000 bytes of TCM, which is greater than the TCM size of "
     "0x800000!",
     "\"norm1\" generated: Requires care"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "\"{node}\" generated: could not create op",
     "QnnDsp <E> \"node_token_15\" generated: could not create op", "\"node_token_15\" generated: warning"},
    {ND_LOG_PREPARATION, WARN, FINALIZE, "No registered op found for {id} '{op}'",
     "op_registry_prepare.cc:129:WARNING:No registered op found for 0x13 'q::QNN_Elu' (registries searched: "
     "core)",
     "One registered op found for 0x13 'q::QNN_Elu'"},
    {ND_LOG_PREPARATION, WARN, FINALIZE, "No constructible op for {id} '{op}'",
     "op_registry_prepare.cc:132:WARNING:No constructible op for 0x403700000016 'q::ScatterNd.tcm' (39 "
     "candidate(s) "
     "declined to construct)",
     "A constructible op for 0x403700000016 'q::ScatterNd.tcm'"},
    {ND_LOG_PREPARATION, WARN, FINALIZE, "no properties registered for {op}",
     "tcm_migration.cc:2034::ERROR: no properties registered for q::Batch_MatMul_Bias_w_scale.B",
     "properties registered for q::Batch_MatMul"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "Graph prepare failed during optimization with err: {code}",
     "graph_prepare.cc:2868:ERROR:Graph prepare failed during optimization with err: 17, Fatal Optimize",
     "Graph prepare failed during optimization: no err"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "Graph prepare TCM Migration action failed",
     "graph_prepare.cc:2808:ERROR:Graph prepare TCM Migration action failed",
     "Graph prepare TCM Migration action done"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "graph prepare failed {code}",
     "QnnDsp <E> RouterX86 graph prepare failed 12", "QnnDsp <V> RouterX86 graph prepare finished"},
    {ND_LOG_PREPARATION, BAD, FINALIZE, "prepare failed (err={code})",
     "<E> graphMainFinalizePostPrepare: prepare failed (err=1002), skipping post-prepare steps",
     "graphMainFinalizePostPrepare: prepare done (err=0)"},
    {ND_LOG_PREPARATION, NOTE, NO_STAGE, "  Input {count}: id=[{id}] op=[{op}]",
     "graph_prepare.cc:199:  Input 0: id=[0x401b00000014] op=[Dequantize@Ff.FB] output0=[14ConcreteTensor]",
     "  Inputs: id=[0x4] op=[Shape]"},
    {ND_LOG_QUANTISATION, BAD, COMPOSE, "has a bad scale",
     "graph_prepare.cc:3207::ERROR:Output def has a bad scale (nan, inf, or too small).", "has a good scale"},
    {ND_LOG_PREPARATION, BAD, COMPOSE, "has improper OutputDef",
     "graph_prepare.cc:3282::ERROR:node 18, output 0  has improper OutputDef", "has a proper OutputDef"},

    /* ---- stages of a graph ---- */
    {ND_LOG_FAILURE, BAD, FINALIZE, "Failed to finalize QNN graph. Error: {tensor}: {*}Code: {code}",
     "Failed to finalize QNN graph. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error., Code: "
     "1002",
     "Succeeded to finalize QNN graph."},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Failed to finalize QNN graph. Error code: {code}",
     "EP_FAIL : Failed to finalize QNN graph. Error code: 1002", "Finalized QNN graph. Error code: 0"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Failed to finalize Qnn Graph with error: {code}",
     "[ERROR] [Qnn ExecuTorch]: Failed to finalize Qnn Graph with error: 1002", "Finalized Qnn Graph"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Fail to compile QNN graph",
     "[ERROR] [Qnn ExecuTorch]: Fail to compile QNN graph", "compile QNN graph"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Failed to finalize QNN graph", "[error] Failed to finalize QNN graph.",
     "finalize QNN graph"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Failed to finalize graph (id: {count}) with err {code}",
     "QnnDsp <E> Failed to finalize graph (id: 1) with err 1002", "Finalized graph (id: 1)"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Finalize Graph for Idx = {count} failed with error = {code}",
     "Finalize Graph for Idx = 0 failed with error = 1002", "Finalize Graph for Idx = 0 done"},
    {ND_LOG_FAILURE, NOTE, FINALIZE, "QnnGraph_finalize done. status 0x0", "QnnGraph_finalize done. status 0x0",
     "QnnGraph_finalize done. status 0x3ea"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "QnnGraph_finalize done. status {code}",
     "QnnGraph_finalize done. status 0x3ea", "QnnGraph_finalize started"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed to compose Qnn graph", "EP_FAIL: Failed to compose Qnn graph.",
     "Composed Qnn graph."},
    {ND_LOG_FAILURE, BAD, COMPOSE,
     "graphAddNode() failed for node `{node}` of type `{op}` with error code {code}",
     "QNN.graphAddNode() failed for node `broken_token_2` of type `Conv2d` with error code 6007",
     "QNN.graphAddNode() done for node `a` of type `Conv2d`"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed to add node with err {code}",
     "QnnDsp <E> Failed to add node with err 6007", "Failed to add note"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed to append node {op}",
     "QnnDsp <E> Failed to append node qti.aisw::QNN_Conv2d", "Appended node qti.aisw::QNN_Conv2d"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed to construct common node for graph {count}",
     "QnnDsp <E> Failed to construct common node for graph 256", "Constructed common node for graph 256"},
    {ND_LOG_FAILURE, BAD, COMPOSE,
     "Failed to create tensor for node: {node} tensor_name: {tensor} error code: {code}",
     "Failed to create tensor for node: broken tensor_name: empty_codes_transpose error code: 7004",
     "Created tensor for node: broken tensor_name: a"},
    {ND_LOG_FAILURE, BAD, COMPOSE,
     "Node '{node}' OpType:{op} with domain:{tensor} was inserted using the NHWC format",
     "Node 'broken_token_2' OpType:LRN with domain:com.ms.internal.nhwc was inserted using the NHWC format as "
     "requested",
     "Node 'broken_token_2' OpType:LRN with domain:com.ms.internal.nhwc was moved"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed to compose graph",
     "[ ERROR ] Failed to compose graphs from model library", "Composing graphs"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Failed in composing graph", "Failed in composing graphs.",
     "composing graphs"},
    {ND_LOG_FAILURE, BAD, COMPOSE, "Graph Compose failure", "[ ERROR ] Graph Compose failure",
     "Graph composed"},
    {ND_LOG_FAILURE, BAD, FINALIZE, "Graph Finalize failure", "[ ERROR ] Graph Finalize failure",
     "Graph finalized"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "Graph Execution failure", "[ ERROR ] Graph Execution failure",
     "Graph executed"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "graph execute error. Error code: {code}",
     "QNN graph execute error. Error code: 6031", "QNN graph execute done"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "QNN graph execute error", "QNN graph execute error.", "QNN graph execute"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "Execute Graph for Idx = {count} failed with error = {code}",
     "Execute Graph for Idx = 0 failed with error = 6031", "Execute Graph for Idx = 0"},
    {ND_LOG_FAILURE, NOTE, EXECUTE, "QnnGraph_execute done. status 0x0", "QnnGraph_execute done. status 0x0",
     "QnnGraph_execute done. status 0x1771"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "QnnGraph_execute done. status {code}",
     "<I> QnnGraph_execute done. status 0x1771", "QnnGraph_execute started"},
    {ND_LOG_FAILURE, BAD, EXECUTE, "QnnGraph_execute failed{*}{code}", "QnnGraph_execute failed 0x1f4",
     "QnnGraph_execute done"},

    /* ---- a backend refuses a node ---- */
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "Validation FAILED for {count} nodes in OrtNodeUnit ({op})",
     "qnn_execution_provider.cc:1713 LogNodeSupport: Validation FAILED for 3 nodes in OrtNodeUnit (LRN) :",
     "Validation PASSED for 3 nodes in OrtNodeUnit (LRN) :"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "Validation FAILED", "LogNodeSupport: Validation FAILED",
     "Validation PASSED"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "has incorrect Value {value}, expected {*}{expected}",
     "[4294967295] has incorrect Value 69, expected >= 73.", "has correct Value 75, expected >= 73."},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "has incorrect Datatype {value}",
     "Input[1] has incorrect Datatype 0x416.", "Input[1] has the Datatype 0x416"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "has incorrect Rank {value}", "Input[0] has incorrect Rank 5.",
     "has Rank 5"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "QnnBackend_validateOpConfig failed {code}",
     "QnnDsp <E> QnnBackend_validateOpConfig failed 3110", "QnnBackend_validateOpConfig done"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE,
     "backendValidateOpConfig() failed for node `{node}` of type `{op}` with error code {code}",
     "QNN.backendValidateOpConfig() failed for node `broken_token_2` of type `Lrn` with error code 3110",
     "QNN.backendValidateOpConfig() done for node `a` of type `Lrn`"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "Failed to validate op {node} with error {code}",
     "QnnDsp <E> Failed to validate op broken_token_2 with error 0xc26", "Validated op broken_token_2"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "requested for the HTP Op '{op}' in the node '{node}'",
     "Unsupported input/output datatypes requested for the HTP Op 'Lrn' in the node 'broken_token_2'. There is "
     "a",
     "datatypes requested for the HTP Op Lrn"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "validateNativeOps{*} failed {code}",
     "<V> validateNativeOps broken_token_2:qti.aisw:Lrn htp op validator failed 3110",
     "validateNativeOps done"},
    {ND_LOG_VALIDATION, WARN, NO_STAGE, "registered validator failed => {code}",
     "<V> registered validator failed => 3110", "registered validator => 0"},

    /* ---- fallback and placement ---- */
    {ND_LOG_FALLBACK, BAD, NO_STAGE, "Fallback to CPU", "QNN EP: Fallback to CPU for node Erf", "no fallback"},
    {ND_LOG_FALLBACK, BAD, NO_STAGE, "fallback to CPU", "op erf will fallback to CPU", "fallback is off"},
    {ND_LOG_FALLBACK, BAD, NO_STAGE, "falling back to CPU", "Unsupported op, falling back to CPU", "falling"},
    {ND_LOG_FALLBACK, BAD, NO_STAGE, "Falling back to CPU", "Falling back to CPU execution",
     "Falling back to PCI"},
    {ND_LOG_FALLBACK, BAD, NO_STAGE, "Falling back to ['{op}'{*}] and retrying",
     "Falling back to ['CPUExecutionProvider'] and retrying.", "Falling back to retrying"},
    /* No fallback: it stands there also where only the graph's own quantisation is on the CPU, as it should be.
     */
    {ND_LOG_PLACEMENT, WARN, NO_STAGE, "Some nodes were not assigned to the preferred execution providers",
     "Some nodes were not assigned to the preferred execution providers which may or may not have an negative "
     "impact",
     "All nodes were assigned to the preferred execution providers"},
    {ND_LOG_PLACEMENT, WARN, NO_STAGE, "All nodes placed on [CPUExecutionProvider]. Number of nodes: {count}",
     "session_state.cc]  All nodes placed on [CPUExecutionProvider]. Number of nodes: 142",
     " All nodes placed on [QNNExecutionProvider]. Number of nodes: 142"},
    {ND_LOG_PLACEMENT, NOTE, NO_STAGE, "All nodes placed on [{op}]. Number of nodes: {count}",
     " All nodes placed on [QNNExecutionProvider]. Number of nodes: 12", "All nodes placed on QNN"},
    {ND_LOG_PLACEMENT, NOTE, NO_STAGE, "Node(s) placed on [{op}]. Number of nodes: {count}",
     " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2", "Node(s) placed"},

    /* One of the nodes behind such a line; the reader makes a fallback of one that is on the CPU. */
    {ND_LOG_PLACEMENT, NOTE, NO_STAGE, "VerifyEachNodeIsAssignedToAnEp:   {op} ({node})",
     "session_state.cc:1586 VerifyEachNodeIsAssignedToAnEp:   Erf (erf)",
     "VerifyEachNodeIsAssignedToAnEp: Node placements"},
    {ND_LOG_PLACEMENT, NOTE, NO_STAGE, "VerifyEachNodeIsAssignedToAnEp]   {op} ({node})",
     "[V:onnxruntime:, session_state.cc:1586 VerifyEachNodeIsAssignedToAnEp]   Erf (erf)",
     "VerifyEachNodeIsAssignedToAnEp] Node placements"},

    /* ---- fusion and quantisation ---- */
    {ND_LOG_FUSION, NOTE, NO_STAGE, "Fusing operation {op}", "Fusing operation Conv_3 with Relu_4",
     "operation fused"},
    {ND_LOG_FUSION, NOTE, NO_STAGE, "Fusing operation", "QnnDsp <I> Fusing operation", "operation"},
    {ND_LOG_QUANTISATION, NOTE, NO_STAGE, "Quantization params for {tensor}: scale={scale}, offset={offset}",
     "Quantization params for conv1: scale=0.0078125, offset=-128", "Quantization of conv1"},
    {ND_LOG_QUANTISATION, NOTE, NO_STAGE, "Quantization params for {tensor}: scale: {scale} offset: {offset}",
     "Quantization params for conv1: scale: 7.8e-3 offset: -128", "Quantization for conv1: scale: 1 offset: 0"},
    {ND_LOG_QUANTISATION, NOTE, NO_STAGE, "Quantization params", "Quantization params: (0.5, 3)", "params"},

    /* ---- versions ---- */
    {ND_LOG_VERSION, BAD, NO_STAGE, "incompatible binaries", "Context binary: incompatible binaries",
     "compatible binaries"},
    {ND_LOG_VERSION, BAD, NO_STAGE, "Context binary{*}version mismatch",
     "Context binary was made by another SDK: version mismatch", "Context binary version 3"},
    {ND_LOG_VERSION, BAD, NO_STAGE, "QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES",
     "contextCreateFromBinary: QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES", "QNN_COMMON_ERROR_SYSTEM"},
    {ND_LOG_VERSION, BAD, NO_STAGE, "Failed to create context from binary{*}{code}",
     "Failed to create context from binary. Error code: 1008", "Created context from binary"},
    {ND_LOG_VERSION, BAD, NO_STAGE,
     "Could not create context from binary for context index = {count} : err {code}",
     "Could not create context from binary for context index = 0 : err 5000", "created context from binary"},
    {ND_LOG_VERSION, BAD, NO_STAGE, "Skel lib id mismatch: expected ({tensor}), detected ({node})",
     "Skel lib id mismatch: expected (v2.20.0.231128), detected (v2.10.0.230425)", "Skel lib id: v2.20"},
    {ND_LOG_VERSION, BAD, NO_STAGE, "Stub lib id mismatch: expected ({tensor}), detected ({node})",
     "Stub lib id mismatch: expected (v2.20.0.231128), detected (v2.10.0.230425)", "Stub lib id: v2.20"},
    {ND_LOG_VERSION, WARN, NO_STAGE, "Unknown Key = {tensor} passed in config",
     "Unknown Key = devices/0/soc_model passed in config", "Key = devices/0/soc_model passed in config"},
    {ND_LOG_VERSION, NOTE, NO_STAGE, "Backend build version: {tensor}",
     "SetupBackend: Backend build version: v2.51.0.260929181845", "Backend version"},

    /* ---- architecture, chipset, transport ---- */
    {ND_LOG_ARCH, WARN, NO_STAGE,
     "Arch {found} set by custom config is different from arch associated with SoC {soc}, will overwrite it to "
     "{used}",
     "QnnDsp <W> Arch 68 set by custom config is different from arch associated with SoC 57, will overwrite it "
     "to 75",
     "Arch 75 set by custom config"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "No Snapdragon SOC detected",
     "transport error 4000, No Snapdragon SOC detected", "Detected Snapdragon SOC SM8350"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "Unsupported SoC model{*}: {soc}",
     "Dsp startup: Unsupported SoC model (SnapdragonModel): 66", "Supported SoC model: 57"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "Unsupported SoC model", "Unsupported SoC model", "SoC model"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "openSessionForPriority failed{*}status={status}",
     "openSessionForPriority failed on core 0, status=0x00000200", "openSessionForPriority done"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "Failed to find available PD", "Failed to find available PD for contextId 1",
     "found PD"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "Failed to create device. Error: {code}",
     "QNN SetupBackend failed Failed to create device. Error: 14001", "Failed to create device."},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "Failed to create device. Error: {tensor}",
     "QNN SetupBackend failed Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config "
     "values",
     "Created device."},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "transport error {code}", "QnnDsp <E> transport error 4000",
     "transport ready"},
    {ND_LOG_DEVICE, BAD, NO_STAGE, "DspTransport.openSession qnn_open failed, {code}",
     "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406", "DspTransport.openSession done"},
    {ND_LOG_DEVICE, NOTE, NO_STAGE, "Performance Estimates unsupported",
     "QnnDsp <W> Performance Estimates unsupported on soc SM8650", "Performance Estimates"},

    /* ---- libraries ---- */
    {ND_LOG_LIBRARY, NOTE, NO_STAGE, "libcdsprpc couldn't open", "libcdsprpc couldn't open, no fastrpc",
     "libcdsprpc opened"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Unable to load backend{*}dlerror(): {tensor}",
     "0.2ms [ ERROR ] Unable to load backend. dlerror(): libQnnHtp.so: cannot open shared object file",
     "Loaded backend"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Unable to load backend", "Unable to load backend", "Able to load backend"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Failed to load backendLib", "[ ERROR ] Failed to load backendLib!",
     "loaded backendLib"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Could not load backend : {tensor}",
     "[ ERROR ] Could not load backend : libQnnHtp.so", "load backend : libQnnHtp.so"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Could not load backend", "Could not load backend", "load backend"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Unable to load lib {tensor}", "Unable to load lib libQnnHtpV75Stub.so",
     "loaded lib libQnnHtpV75Stub.so"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Unable to load Remote symbols {code}",
     "QnnDsp <E> Unable to load Remote symbols 1008", "Remote symbols loaded"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Error while loading skel: {tensor}",
     "Error while loading skel: libQnnHtpV75Skel.so", "skel: loaded"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Skel.so not found", "libQnnHtpV75Skel.so not found", "Skel.so found"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Skel.so{*}not found",
     "remote_handle_open libQnnHtpV75Skel.so: file not found", "libQnnHtpV75Skel.so: found"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "Stub.so{*}not found",
     "dlopen failed: library \"libQnnHtpV75Stub.so\" not found", "library \"libQnnHtpV75Stub.so\" found"},
    {ND_LOG_LIBRARY, BAD, NO_STAGE, "dlopen failed: library \"{tensor}\"",
     "dlopen failed: library \"libQnnSystem.so\" is not accessible", "dlopen library \"libQnnSystem.so\""},
    {ND_LOG_LIBRARY, WARN, NO_STAGE, "PrepareLib isn't loaded",
     "QnnDsp <W> Function not called, PrepareLib isn't loaded!", "PrepareLib is loaded"},

    /* ---- memory ---- */
    {ND_LOG_MEMORY, BAD, FINALIZE,
     "A single op, \"{op}\" (Op ID: {id}), requires {needed} bytes of TCM, which is greater than the TCM size "
     "of "
     "{available}",
     "initial_sequencer_dp.cc:149:ERROR:A single op, \"q::ForceFormat_Crouton\" (Op ID: 1165b600001430), "
     "requires "
     "0x2400000 bytes of TCM, which is greater than the TCM size of 0x800000!",
     "A single op, \"q::Add\" (Op ID: 1), requires little"},
    {ND_LOG_MEMORY, NOTE, FINALIZE, "The name of the failing op before optimization is: \"{op}\" (Op ID: {id})",
     "initial_sequencer_dp.cc:156:ERROR:The name of the failing op before optimization is: "
     "\"q::QNN_InstanceNorm\" (Op ID: 1430).",
     "The name of the failing op is not known"},
    {ND_LOG_MEMORY, BAD, FINALIZE,
     "Operator named {op} ({id}) not sufficiently tiled to fit in TCM. Requires {needed} bytes",
     "tcm_migration.cc:2088:ERROR:Operator named q::*InputSlicePad (0x1654900000002) not sufficiently tiled to "
     "fit "
     "in TCM. Requires 12441600 bytes",
     "Operator named q::*InputSlicePad (0x1654900000002) tiled to fit in TCM"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "memory: needed {needed}{*}available {available}",
     "Not enough memory: needed 4096 bytes, available 1024 bytes", "memory: needed by nobody"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "Requires {needed} bytes, but only {available}",
     "Op requires too much VTCM. Requires 9437184 bytes, but only 8388608 bytes are available",
     "Requires care"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "requires at least {needed} bytes allocation > {available} limit",
     "graph requires at least 3770679296 bytes allocation > 2147483648 limit", "requires at least one"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "Failed to allocate {needed} bytes",
     "Failed to allocate 4194304 bytes of VTCM", "Allocated 4194304 bytes"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "tcm allocation failed", "ERROR: tcm allocation failed",
     "tcm allocation done"},
    {ND_LOG_MEMORY, BAD, NO_STAGE, "fa_alloc.cc{*}ERROR",
     "fa_alloc.cc:1934::ERROR:graph needs more than there is", "fa_alloc.cc:1: INFO"},
};

const size_t nd_log_n_patterns = sizeof nd_log_patterns / sizeof nd_log_patterns[0];

enum { MAX_LINE_BYTES = 16384, MAX_TEXT_BYTES = 4096, MAX_PIECE_BYTES = 512, READ_BYTES = 1 << 16 };

enum encoding { ENCODING_UNKNOWN, ENCODING_BYTES, ENCODING_UTF16LE, ENCODING_UTF16BE };

/* Pairs of neighbouring bytes in a pattern: a line without them need not be searched for it. */
enum { N_PAIRS = 4, PAIR_WORDS = (1 << 16) / 64 };

struct nd_log_reader {
    uint16_t (*pairs)[N_PAIRS]; /* per pattern */
    uint64_t seen[PAIR_WORDS];  /* those of the line; all 0 between lines */
    struct nd_log_options options;
    struct nd_log_summary summary;
    enum encoding encoding;
    unsigned char held[2]; /* the start of the file, or half a UTF-16 unit */
    size_t n_held;
    char line[MAX_LINE_BYTES + 1];
    size_t n_line;
    bool is_cut, is_stopped;
    bool is_on_cpu;   /* the nodes that are listed now */
    bool has_refused; /* a refused group of nodes whose names and reason follow on the next lines */
    struct nd_log_finding refused;
    /* Texts of the finding that is being made, and of the one that waits. */
    char pieces[2][5][MAX_TEXT_BYTES + 1];
};

/* ---- findings ---- */

static void hand_out(struct nd_log_reader *reader, const struct nd_log_finding *finding)
{
    reader->summary.n_findings++;
    reader->summary.n_by_kind[finding->kind]++;
    if (finding->severity > reader->summary.worst)
        reader->summary.worst = finding->severity;
    if (!reader->is_stopped && !reader->options.visit(reader->options.context, finding))
        reader->is_stopped = true;
}

static void hand_out_refused(struct nd_log_reader *reader)
{
    if (reader->has_refused)
        hand_out(reader, &reader->refused);
    reader->has_refused = false;
}

static char *put(char *to, struct nd_log_piece piece, size_t max)
{
    size_t n = piece.n < max ? piece.n : max;
    if (n > 0)
        memcpy(to, piece.text, n);
    to[n] = '\0';
    return to;
}

static struct nd_log_finding describe(struct nd_log_reader *reader, const struct nd_log_pattern *pattern,
                                      const struct nd_log_match *match, struct nd_log_piece text)
{
    bool waits = pattern->kind == ND_LOG_VALIDATION && match->op.n > 0 && match->node.n == 0;
    char(*pieces)[MAX_TEXT_BYTES + 1] = reader->pieces[waits];
    struct nd_log_finding finding = {
        .kind = pattern->kind,
        .severity = pattern->severity,
        .stage = pattern->stage,
        .line = reader->summary.n_lines,
        .log = (char *)(uintptr_t)(reader->options.name != NULL ? reader->options.name : ""),
        .op = put(pieces[0], match->op, MAX_PIECE_BYTES),
        .node = put(pieces[1], match->node, MAX_PIECE_BYTES),
        .op_id = put(pieces[2], match->id, MAX_PIECE_BYTES),
        .tensor = put(pieces[3], match->tensor, MAX_PIECE_BYTES),
        .has_code = match->has_code,
        .code = match->code,
        .symbol = match->has_code ? nd_log_code_symbol(match->code) : "",
        .n_amounts = match->n_amounts,
        .text = put(pieces[4], text, MAX_TEXT_BYTES),
    };
    memcpy(finding.amounts, match->amounts, sizeof finding.amounts);
    return finding;
}

static bool is_quantisation(const char *op)
{
    return strcmp(op, "QuantizeLinear") == 0 || strcmp(op, "DequantizeLinear") == 0;
}

/* "Node(s) placed on [provider]", then its nodes: one on the CPU is a fallback, but for the quantisation of the
 * graph's inputs and outputs, which belongs there. */
static void judge_placement(struct nd_log_reader *reader, struct nd_log_finding *finding)
{
    if (finding->kind != ND_LOG_PLACEMENT)
        return;
    if (finding->node[0] == '\0') {
        reader->is_on_cpu = strcmp(finding->op, "CPUExecutionProvider") == 0;
    } else if (reader->is_on_cpu && !is_quantisation(finding->op)) {
        finding->kind = ND_LOG_FALLBACK;
        finding->severity = ND_LOG_BAD;
    }
}

/* The lines behind "Validation FAILED for n nodes in OrtNodeUnit (op)": its nodes, then why. */
static bool is_about_refused(struct nd_log_reader *reader, struct nd_log_piece line)
{
    struct nd_log_match match;
    struct nd_log_finding *refused = &reader->refused;
    if (!reader->has_refused)
        return false;
    if (nd_log_matches("Operator type: {op} Node name: {node} Node index: ", line.text, line.n, &match)) {
        if (strlen(refused->op) == match.op.n && memcmp(refused->op, match.op.text, match.op.n) == 0)
            put(refused->node, match.node, MAX_PIECE_BYTES);
        return true;
    }
    if (nd_log_matches("REASON : QNN EP is configured to not take", line.text, line.n, &match)) {
        refused->severity = ND_LOG_NOTE; /* as it was asked to */
        return true;
    }
    return nd_log_matches("REASON : ", line.text, line.n, &match);
}

/* ---- one line ---- */

/* Colours ("ESC [ ... letter") and control bytes go, tabs become spaces. */
static size_t clean(char *line, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == 0x1b && i + 1 < n && line[i + 1] == '[') {
            for (i += 2; i < n && (line[i] < '@' || line[i] > '~');)
                i++;
        } else if (c == '\t') {
            line[kept++] = ' ';
        } else if (c >= 0x20 && c != 0x7f) {
            line[kept++] = line[i];
        }
    }
    line[kept] = '\0';
    return kept;
}

static struct nd_log_piece behind(struct nd_log_piece line, size_t n)
{
    return (struct nd_log_piece){line.text + n, line.n - n};
}

/* logcat's "11-21 20:33:01.123  1234  1235 I tag: " and "I/tag( 1234): " say who logged a line, not what. */
static struct nd_log_piece skip_logcat(struct nd_log_piece line)
{
    static const char severities[] = "VDIWEFS";
    char month[3], day[3], tag[MAX_PIECE_BYTES + 1];
    unsigned int pid, tid;
    char severity;
    int n = 0;
    if (line.n > 3 && strchr(severities, line.text[0]) != NULL && line.text[1] == '/') {
        const char *open = memchr(line.text, '(', line.n < 128 ? line.n : 128);
        const char *close = open != NULL ? memchr(open, ')', line.n - (size_t)(open - line.text)) : NULL;
        if (close != NULL && close - open < 9 && close + 1 < line.text + line.n && close[1] == ':')
            return behind(line, (size_t)(close + 2 - line.text));
    }
    if (line.n > 30 && line.text[2] == '-' && line.text[5] == ' ' && line.text[8] == ':' &&
        sscanf(line.text, "%2[0-9]-%2[0-9] %*[0-9:.] %u %u %c%n", month, day, &pid, &tid, &severity, &n) == 5 &&
        strchr(severities, severity) != NULL) {
        snprintf(tag, sizeof tag, "%.*s", (int)(line.n - (size_t)n < 128 ? line.n - (size_t)n : 128),
                 line.text + n);
        const char *colon = strstr(tag, ": ");
        if (colon != NULL)
            return behind(line, (size_t)n + (size_t)(colon + 2 - tag));
    }
    return line;
}

static uint16_t pair_at(const char *text)
{
    return (uint16_t)((unsigned char)text[0] << 8 | (unsigned char)text[1]);
}

static void see_pairs(struct nd_log_reader *reader, struct nd_log_piece line, bool are_seen)
{
    for (size_t i = 0; i + 1 < line.n; i++) {
        uint16_t pair = pair_at(line.text + i);
        if (are_seen)
            reader->seen[pair / 64] |= UINT64_C(1) << pair % 64;
        else
            reader->seen[pair / 64] = 0;
    }
}

static bool may_match(const struct nd_log_reader *reader, size_t pattern)
{
    for (int k = 0; k < N_PAIRS; k++) {
        uint16_t pair = reader->pairs[pattern][k];
        if ((reader->seen[pair / 64] >> pair % 64 & 1) == 0)
            return false;
    }
    return true;
}

/* The first pattern that matches; nd_log_n_patterns for none. */
static size_t find_pattern(struct nd_log_reader *reader, struct nd_log_piece line, struct nd_log_match *match)
{
    size_t i = 0;
    see_pairs(reader, line, true);
    while (i < nd_log_n_patterns &&
           !(may_match(reader, i) && nd_log_matches(nd_log_patterns[i].pattern, line.text, line.n, match)))
        i++;
    see_pairs(reader, line, false);
    return i;
}

/* Spread over the longest text between the captures of a pattern. */
static void find_pairs(struct nd_log_reader *reader)
{
    for (size_t i = 0; i < nd_log_n_patterns; i++) {
        const char *at = nd_log_patterns[i].pattern, *longest = at;
        size_t n_longest = 0;
        while (*at != '\0') {
            size_t n = strcspn(at, "{");
            if (n > n_longest) {
                longest = at;
                n_longest = n;
            }
            at += n;
            at += strcspn(at, "}");
            at += *at == '}';
        }
        assert(n_longest >= 2);
        for (size_t k = 0; k < N_PAIRS; k++)
            reader->pairs[i][k] = pair_at(longest + k * (n_longest - 2) / (N_PAIRS - 1));
    }
}

/* A line with an error code that no pattern knows. */
static bool take_error(struct nd_log_reader *reader, struct nd_log_piece line, struct nd_log_piece whole)
{
    static const struct nd_log_pattern unknown = {.kind = ND_LOG_ERROR, .severity = ND_LOG_BAD};
    struct nd_log_match match;
    bool is_warning;
    if (!nd_log_is_error(line.text, line.n, &is_warning, &match))
        return false;
    struct nd_log_finding finding = describe(reader, &unknown, &match, whole);
    finding.severity = is_warning ? ND_LOG_WARNING : ND_LOG_BAD;
    hand_out(reader, &finding);
    return true;
}

static void take_line(struct nd_log_reader *reader)
{
    reader->summary.n_lines++;
    reader->summary.n_cut += reader->is_cut;
    size_t n = clean(reader->line, reader->n_line);
    const struct nd_log_piece whole = {reader->line, n};
    const struct nd_log_piece line = skip_logcat(whole);
    reader->n_line = 0;
    reader->is_cut = false;
    if (is_about_refused(reader, line))
        return;
    hand_out_refused(reader);
    struct nd_log_match match;
    size_t i = find_pattern(reader, line, &match);
    if (i < nd_log_n_patterns) {
        struct nd_log_finding finding = describe(reader, &nd_log_patterns[i], &match, whole);
        judge_placement(reader, &finding);
        reader->has_refused = finding.text == reader->pieces[1][4];
        if (reader->has_refused)
            reader->refused = finding;
        else
            hand_out(reader, &finding);
        return;
    }
    if (take_error(reader, line, whole))
        return;
    reader->summary.n_unknown++;
    if (reader->options.unknown != NULL && !reader->is_stopped)
        reader->options.unknown(reader->options.context, reader->summary.n_lines, whole.text, whole.n);
}

/* ---- bytes ---- */

static void take_byte(struct nd_log_reader *reader, unsigned char byte)
{
    if (byte == '\n')
        take_line(reader);
    else if (reader->n_line < MAX_LINE_BYTES)
        reader->line[reader->n_line++] = (char)byte;
    else
        reader->is_cut = true;
}

static void take_run(struct nd_log_reader *reader, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        const unsigned char *end = memchr(bytes, '\n', n);
        size_t n_run = end != NULL ? (size_t)(end - bytes) : n;
        size_t n_room = MAX_LINE_BYTES - reader->n_line, n_kept = n_run < n_room ? n_run : n_room;
        memcpy(reader->line + reader->n_line, bytes, n_kept);
        reader->n_line += n_kept;
        reader->is_cut = reader->is_cut || n_kept < n_run;
        if (end == NULL)
            return;
        take_line(reader);
        bytes += n_run + 1;
        n -= n_run + 1;
    }
}

/* What the patterns look for is ASCII; of other characters only that there was one matters. */
static void take_unit(struct nd_log_reader *reader, const unsigned char unit[2])
{
    bool is_little = reader->encoding == ENCODING_UTF16LE;
    unsigned int value =
        is_little ? unit[0] | (unsigned int)unit[1] << 8 : unit[1] | (unsigned int)unit[0] << 8;
    if (value < 0x80) {
        take_byte(reader, (unsigned char)value);
    } else if (value < 0x800) {
        take_byte(reader, (unsigned char)(0xc0 | value >> 6));
        take_byte(reader, (unsigned char)(0x80 | (value & 0x3f)));
    } else if (value >= 0xd800 && value < 0xe000) {
        take_byte(reader, '?'); /* half of a pair */
    } else {
        take_byte(reader, (unsigned char)(0xe0 | value >> 12));
        take_byte(reader, (unsigned char)(0x80 | (value >> 6 & 0x3f)));
        take_byte(reader, (unsigned char)(0x80 | (value & 0x3f)));
    }
}

static void take_units(struct nd_log_reader *reader, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        reader->held[reader->n_held++] = bytes[i];
        if (reader->n_held == 2) {
            reader->n_held = 0;
            take_unit(reader, reader->held);
        }
    }
}

static void settle_encoding(struct nd_log_reader *reader)
{
    const unsigned char *held = reader->held;
    size_t n = reader->n_held;
    reader->encoding = n == 2 && held[0] == 0xff && held[1] == 0xfe   ? ENCODING_UTF16LE
                       : n == 2 && held[0] == 0xfe && held[1] == 0xff ? ENCODING_UTF16BE
                                                                      : ENCODING_BYTES;
    reader->n_held = 0;
    if (reader->encoding == ENCODING_BYTES)
        take_run(reader, held, n);
}

void nd_log_reader_feed(struct nd_log_reader *reader, const void *bytes, size_t n_bytes)
{
    const unsigned char *at = bytes;
    while (reader->encoding == ENCODING_UNKNOWN && n_bytes > 0) {
        reader->held[reader->n_held++] = *at++;
        n_bytes--;
        if (reader->n_held == 2)
            settle_encoding(reader);
    }
    if (reader->encoding == ENCODING_BYTES)
        take_run(reader, at, n_bytes);
    else if (n_bytes > 0)
        take_units(reader, at, n_bytes);
}

void nd_log_reader_end(struct nd_log_reader *reader, struct nd_log_summary *out)
{
    static const char *const names[] = {"bytes", "bytes", "utf-16le", "utf-16be"};
    if (reader->encoding == ENCODING_UNKNOWN)
        settle_encoding(reader);
    if (reader->n_line > 0 || reader->is_cut)
        take_line(reader);
    hand_out_refused(reader);
    snprintf(reader->summary.encoding, sizeof reader->summary.encoding, "%s", names[reader->encoding]);
    *out = reader->summary;
}

enum nd_status nd_log_reader_create(const struct nd_log_options *options, struct nd_log_reader **out,
                                    struct nd_error *err)
{
    struct nd_log_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    struct nd_log_reader *reader = nd_calloc(1, sizeof *reader);
    if (reader != NULL)
        reader->pairs = nd_calloc(nd_log_n_patterns, sizeof *reader->pairs);
    if (reader == NULL || reader->pairs == NULL) {
        nd_log_reader_destroy(&reader);
        return nd_fail_memory(err);
    }
    reader->options = own;
    find_pairs(reader);
    *out = reader;
    return ND_OK;
}

void nd_log_reader_destroy(struct nd_log_reader **reader)
{
    if (*reader != NULL)
        free((*reader)->pairs);
    free(*reader);
    *reader = NULL;
}

enum nd_status nd_log_read_bytes(const void *bytes, size_t n_bytes, const struct nd_log_options *options,
                                 struct nd_log_summary *out, struct nd_error *err)
{
    struct nd_log_reader *reader = NULL;
    enum nd_status status = nd_log_reader_create(options, &reader, err);
    if (status != ND_OK)
        return status;
    nd_log_reader_feed(reader, bytes, n_bytes);
    nd_log_reader_end(reader, out);
    nd_log_reader_destroy(&reader);
    return ND_OK;
}

enum nd_status nd_log_read_file(const char *path, const struct nd_log_options *options,
                                struct nd_log_summary *out, struct nd_error *err)
{
    struct nd_log_reader *reader = NULL;
    unsigned char *buffer = NULL;
    enum nd_status status = ND_OK;
    size_t n;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    buffer = malloc(READ_BYTES);
    status = buffer != NULL ? nd_log_reader_create(options, &reader, err) : nd_fail_memory(err);
    while (status == ND_OK && (n = fread(buffer, 1, READ_BYTES, file)) > 0)
        nd_log_reader_feed(reader, buffer, n);
    if (status == ND_OK && ferror(file))
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    if (status == ND_OK)
        nd_log_reader_end(reader, out);
    fclose(file);
    free(buffer);
    nd_log_reader_destroy(&reader);
    return status;
}
