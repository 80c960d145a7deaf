/* Findings as values: lists, names of kinds, and the names of QNN's error codes (QnnCommon.h, QnnGraph.h,
 * QnnTensor.h, QnnBackend.h). */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/capture/logs.h"

enum { DEFAULT_MAX = 1000000 };

static const char *const kind_names[] = {
    "fallback", "placement", "fusion",  "quantisation", "preparation", "failure",       "validation",
    "version",  "arch",      "library", "device",       "memory",      "unknown-error", "limit"};

const char *nd_log_kind_name(enum nd_log_kind kind)
{
    return kind_names[kind];
}

bool nd_log_kind_from_name(const char *name, enum nd_log_kind *out)
{
    for (int i = 0; i < ND_LOG_N_KINDS; i++)
        if (strcmp(kind_names[i], name) == 0) {
            *out = (enum nd_log_kind)i;
            return true;
        }
    return false;
}

const char *nd_log_severity_name(enum nd_log_severity severity)
{
    static const char *const names[] = {"note", "warning", "failure"};
    return names[severity];
}

const char *nd_log_stage_name(enum nd_log_stage stage)
{
    static const char *const names[] = {"", "compose", "finalize", "execute"};
    return names[stage];
}

static void finding_deinit(struct nd_log_finding *finding)
{
    free(finding->log);
    free(finding->op);
    free(finding->node);
    free(finding->op_id);
    free(finding->tensor);
    free(finding->text);
}

static bool copy_finding(const struct nd_log_finding *from, struct nd_log_finding *out)
{
    struct nd_log_finding copy = *from;
    copy.log = nd_strdup(from->log);
    copy.op = nd_strdup(from->op);
    copy.node = nd_strdup(from->node);
    copy.op_id = nd_strdup(from->op_id);
    copy.tensor = nd_strdup(from->tensor);
    copy.text = nd_strdup(from->text);
    if (copy.log == NULL || copy.op == NULL || copy.node == NULL || copy.op_id == NULL || copy.tensor == NULL ||
        copy.text == NULL) {
        finding_deinit(&copy);
        return false;
    }
    *out = copy;
    return true;
}

bool nd_log_findings_add(void *context, const struct nd_log_finding *finding)
{
    struct nd_log_findings *list = context;
    if (list->n >= (list->max != 0 ? list->max : DEFAULT_MAX)) {
        list->n_left_out++;
        return true;
    }
    if (!nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items) ||
        !copy_finding(finding, &list->items[list->n])) {
        list->failed = true;
        return false;
    }
    list->n++;
    return true;
}

void nd_log_findings_deinit(struct nd_log_findings *findings)
{
    for (size_t i = 0; i < findings->n; i++)
        finding_deinit(&findings->items[i]);
    free(findings->items);
    *findings = (struct nd_log_findings){0};
}

/* ---- QNN's error codes ---- */

static const struct {
    int64_t code;
    const char *symbol;
} error_codes[] = {
    {1000, "QNN_COMMON_ERROR_NOT_SUPPORTED"},
    {1002, "QNN_COMMON_ERROR_MEM_ALLOC"},
    {1003, "QNN_COMMON_ERROR_SYSTEM"},
    {1004, "QNN_COMMON_ERROR_INVALID_ARGUMENT"},
    {1005, "QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED"},
    {1006, "QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED"},
    {1007, "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION"},
    {1008, "QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES"},
    {1009, "QNN_COMMON_ERROR_LOADING_BINARIES"},
    {1010, "QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE"},
    {1011, "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION_FATAL"},
    {6000, "QNN_GRAPH_ERROR_INVALID_ARGUMENT"},
    {6001, "QNN_GRAPH_ERROR_INVALID_HANDLE"},
    {6002, "QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST"},
    {6003, "QNN_GRAPH_ERROR_INVALID_NAME"},
    {6004, "QNN_GRAPH_ERROR_INVALID_TENSOR"},
    {6005, "QNN_GRAPH_ERROR_INVALID_OP_CONFIG"},
    {6006, "QNN_GRAPH_ERROR_SET_PROFILE"},
    {6007, "QNN_GRAPH_ERROR_UNCONNECTED_NODE"},
    {6020, "QNN_GRAPH_ERROR_CREATE_FAILED"},
    {6021, "QNN_GRAPH_ERROR_OPTIMIZATION_FAILED"},
    {6022, "QNN_GRAPH_ERROR_FINALIZE_FAILED"},
    {6023, "QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED"},
    {6024, "QNN_GRAPH_ERROR_GRAPH_FINALIZED"},
    {6025, "QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL"},
    {6030, "QNN_GRAPH_ERROR_SIGNAL_IN_USE"},
    {6031, "QNN_GRAPH_ERROR_ABORTED"},
    {6032, "QNN_GRAPH_ERROR_PROFILE_IN_USE"},
    {6033, "QNN_GRAPH_ERROR_TIMED_OUT"},
    {6034, "QNN_GRAPH_ERROR_SUBGRAPH"},
    {6035, "QNN_GRAPH_ERROR_DISABLED"},
    {6036, "QNN_GRAPH_ERROR_DYNAMIC_TENSOR_SHAPE"},
    {6037, "QNN_GRAPH_ERROR_TENSOR_SPARSITY"},
    {6038, "QNN_GRAPH_ERROR_EARLY_TERMINATION"},
    {14001, "QNN_DEVICE_ERROR_INVALID_CONFIG"},
};

const char *nd_log_code_symbol(int64_t code)
{
    for (size_t i = 0; i < sizeof error_codes / sizeof error_codes[0]; i++)
        if (error_codes[i].code == code)
            return error_codes[i].symbol;
    return "";
}
