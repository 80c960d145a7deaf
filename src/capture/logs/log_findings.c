/* Findings as values: lists, names of kinds, and the names of QNN's error codes (QnnCommon.h, QnnGraph.h,
 * QnnTensor.h, QnnBackend.h). */

#include "core/items.h"
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
    ND_FREE_ALL(finding->log, finding->op, finding->node, finding->op_id, finding->tensor, finding->text);
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
    ND_DEINIT_EACH(finding_deinit, findings->items, findings->n);
    *findings = (struct nd_log_findings){0};
}

/* ---- what logs say altogether ---- */

static double amount_of(const struct nd_log_finding *finding, const char *name)
{
    for (size_t i = 0; i < finding->n_amounts; i++)
        if (strcmp(finding->amounts[i].name, name) == 0)
            return finding->amounts[i].value;
    return 0;
}

/* A node, or an operator, that an NPU refused, or that fell back; "" for other findings. */
static const char *name_of(const struct nd_log_finding *finding, enum nd_log_kind kind, bool by_node)
{
    return finding->kind != kind || finding->severity == ND_LOG_NOTE ? ""
           : by_node                                                 ? finding->node
                                                                     : finding->op;
}

/* How many different names there are; *first is one of them. */
static size_t count_names(const struct nd_log_finding *findings, size_t n, enum nd_log_kind kind, bool by_node,
                          const char **first)
{
    enum { MOST = 1000 }; /* of which each is compared with all others */
    const char *names[MOST];
    size_t n_names = 0;
    for (size_t i = 0; i < n && n_names < MOST; i++) {
        const char *name = name_of(&findings[i], kind, by_node);
        size_t k = 0;
        while (k < n_names && strcmp(names[k], name) != 0)
            k++;
        if (*name != '\0' && k == n_names)
            names[n_names++] = name;
    }
    *first = n_names > 0 ? names[0] : "";
    return n_names;
}

void nd_log_judge(const struct nd_log_finding *findings, size_t n, bool is_understood,
                  struct nd_log_verdict *out)
{
    bool is_on_cpu = false, is_placed = false;
    *out = (struct nd_log_verdict){.refused = ""};
    for (size_t i = 0; i < n; i++) {
        const struct nd_log_finding *finding = &findings[i];
        bool is_bad = finding->severity == ND_LOG_BAD, is_fallback = finding->kind == ND_LOG_FALLBACK;
        double on_cpu = finding->severity != ND_LOG_NOTE ? amount_of(finding, "on_cpu") : 0;
        out->n_unknown_errors += finding->kind == ND_LOG_ERROR;
        out->n_fallbacks += is_bad && is_fallback;
        out->n_failures += is_bad && !is_fallback && finding->kind != ND_LOG_ERROR;
        out->n_warnings += finding->severity == ND_LOG_WARNING;
        is_on_cpu = is_on_cpu || on_cpu > 0;
        is_placed = is_placed || is_fallback || (finding->kind == ND_LOG_PLACEMENT && finding->n_amounts > 0);
        if (on_cpu > out->on_cpu) {
            out->on_cpu = on_cpu;
            out->total = amount_of(finding, "total");
        }
    }
    if (out->on_cpu == 0)
        out->on_cpu = (double)count_names(findings, n, ND_LOG_FALLBACK, true, &out->refused);
    out->refused = "";
    for (int by_node = 1; !is_placed && by_node >= 0 && out->n_refused == 0; by_node--)
        out->n_refused = count_names(findings, n, ND_LOG_VALIDATION, by_node != 0, &out->refused);
    out->outcome = out->n_failures > 0                          ? ND_LOG_FAILED
                   : out->n_fallbacks > 0 || out->n_refused > 0 ? ND_LOG_FELL_BACK
                   : out->n_unknown_errors > 0                  ? ND_LOG_UNKNOWN_ERRORS
                   : is_on_cpu                                  ? ND_LOG_ON_CPU
                   : is_understood                              ? ND_LOG_OK
                                                                : ND_LOG_NOT_UNDERSTOOD;
}

const char *nd_log_outcome_name(enum nd_log_outcome outcome)
{
    static const char *const names[] = {"ok",       "not-understood", "on-cpu", "unknown-errors",
                                        "fallback", "failed"};
    return names[outcome];
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
