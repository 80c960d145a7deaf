/* Reads logs of runtimes and phones (ONNX Runtime, QNN, LiteRT, ExecuTorch, RKNN, OpenVINO, NeuroPilot,
 * llama.cpp, Android's logcat, the kernel), and finds the lines about fallback, failures and versions.
 *
 * Each line is matched by its text, never by its tag, with the table in src/capture/logs/patterns.def. A line
 * that matches gives a finding. So does any other line that has an error level, a word for an error or an error
 * code, unless it denies the error. Other lines are counted, and passed to a callback on request. No content of
 * a log makes a function fail: any bytes, lines of any length and files of any size are read in bounded memory.
 *
 * Example:
 *
 *     static bool print_finding(void *context, const struct nd_log_finding *finding)
 *     {
 *         (void)context;
 *         printf("line %zu, %s: %s\n", finding->line, nd_log_kind_name(finding->kind), finding->text);
 *         return true; // go on
 *     }
 *
 *     static enum nd_status read_log(const char *path, struct nd_error *err)
 *     {
 *         const struct nd_log_options options = {
 *             .struct_size = sizeof options, .name = path, .visit = print_finding};
 *         struct nd_log_summary summary;
 *         return nd_log_read_file(path, &options, &summary, err);
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_LOGS_H
#define NPUDIFF_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npudiff/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_model;

enum nd_log_kind {
    ND_LOG_FALLBACK,     /* nodes run elsewhere than asked */
    ND_LOG_PLACEMENT,    /* how many nodes run where */
    ND_LOG_FUSION,       /* operators were fused */
    ND_LOG_QUANTISATION, /* scales and offsets */
    ND_LOG_PREPARATION,  /* an operator of the graph could not be constructed */
    ND_LOG_FAILURE,      /* a graph did not compose, finalize or execute */
    ND_LOG_VALIDATION,   /* a backend refuses a node */
    ND_LOG_VERSION,      /* versions that do not fit together */
    ND_LOG_ARCH,         /* the architecture is not the configured one */
    ND_LOG_LIBRARY,      /* a library that is missing or cannot be loaded */
    ND_LOG_DEVICE,       /* the chipset, its driver or the transport */
    ND_LOG_MEMORY,       /* not enough of it */
    ND_LOG_ERROR,        /* a line that no pattern knows speaks of an error */
    ND_LOG_LIMIT,        /* from npudiff itself: findings were left out */
};
enum { ND_LOG_N_KINDS = ND_LOG_LIMIT + 1 };

/* note: harmless; warning: may matter, also an unknown error without a code; bad: something does not run, or
 * runs elsewhere than asked. */
enum nd_log_severity { ND_LOG_NOTE, ND_LOG_WARNING, ND_LOG_BAD };

/* Where a graph was when it failed. */
enum nd_log_stage { ND_LOG_STAGE_NONE, ND_LOG_STAGE_COMPOSE, ND_LOG_STAGE_FINALIZE, ND_LOG_STAGE_EXECUTE };

/* A number in a line, with its meaning: "needed", "available", "found", "used", "soc", "value",
 * "expected", "count", "scale", "offset", "status", "total", "index"; "on_cpu": how many of "total" nodes an
 * NPU did not take. */
struct nd_log_amount {
    char name[12];
    double value;
};
enum { ND_LOG_MAX_AMOUNTS = 4 };

/* What one line says. A text is "" if the line does not say it. */
struct nd_log_finding {
    enum nd_log_kind kind;
    enum nd_log_severity severity;
    enum nd_log_stage stage;
    size_t line;  /* from 1 */
    char *log;    /* name of the file or log */
    char *op;     /* "q::Transpose.2D", "Conv", or a provider */
    char *node;   /* as the log calls it */
    char *op_id;  /* "0x402800000019" */
    char *tensor; /* the name of a tensor; or of a library, key or version, in lines about those */
    bool has_code;
    int64_t code;
    const char *symbol; /* "QNN_COMMON_ERROR_MEM_ALLOC", or "" */
    size_t n_amounts;
    struct nd_log_amount amounts[ND_LOG_MAX_AMOUNTS];
    char *text; /* the line, without colours and control bytes; at most 4096 bytes of it */
};

/* "fallback", "placement", ... */
ND_PUBLIC const char *nd_log_kind_name(enum nd_log_kind kind);
/* False if no kind has this name. */
ND_PUBLIC bool nd_log_kind_from_name(const char *name, enum nd_log_kind *out);
ND_PUBLIC const char *nd_log_severity_name(enum nd_log_severity severity);
/* "compose", "finalize", "execute", or "". */
ND_PUBLIC const char *nd_log_stage_name(enum nd_log_stage stage);

/* The name of an error code in QNN's headers, or "". Beware of 1002, QNN_COMMON_ERROR_MEM_ALLOC: HTP also
 * reports operators that it cannot construct with this code. */
ND_PUBLIC const char *nd_log_code_symbol(int64_t code);

/* Counts of a whole log. */
struct nd_log_summary {
    size_t n_lines;
    size_t n_unknown; /* lines that no pattern knows, empty ones among them */
    size_t n_cut;     /* lines longer than 16384 bytes; only their first 16384 bytes were matched */
    size_t n_findings;
    size_t n_by_kind[ND_LOG_N_KINDS];
    enum nd_log_severity worst;
    char encoding[24]; /* "bytes", "utf-16le", "utf-16be" (recognised by the byte order mark) */
};

/* Called for each finding, in the order of lines. The finding is valid during the call only. Returning false
 * ends the reading. */
typedef bool (*nd_log_visit)(void *context, const struct nd_log_finding *finding);
/* Called for each line that no pattern knows. The text is not NUL-terminated. */
typedef void (*nd_log_unknown)(void *context, size_t line, const char *text, size_t text_bytes);

struct nd_log_reader;

struct nd_log_options {
    size_t struct_size;
    const char *name; /* of the log; borrowed */
    nd_log_visit visit;
    nd_log_unknown unknown; /* nullable */
    void *context;
};

/* Reads a log piece by piece, cut anywhere; memory does not grow with the log. One thread. ND_ERR_MEMORY. The
 * caller destroys *out; end() must be called to see the last line. */
ND_PUBLIC enum nd_status nd_log_reader_create(const struct nd_log_options *options, struct nd_log_reader **out,
                                              struct nd_error *err);
ND_PUBLIC void nd_log_reader_feed(struct nd_log_reader *reader, const void *bytes, size_t n_bytes);
ND_PUBLIC void nd_log_reader_end(struct nd_log_reader *reader, struct nd_log_summary *out);
ND_PUBLIC void nd_log_reader_destroy(struct nd_log_reader **reader);

/* The whole of a file. ND_ERR_IO when it cannot be read. */
ND_PUBLIC enum nd_status nd_log_read_file(const char *path, const struct nd_log_options *options,
                                          struct nd_log_summary *out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_log_read_bytes(const void *bytes, size_t n_bytes,
                                           const struct nd_log_options *options, struct nd_log_summary *out,
                                           struct nd_error *err);

/* Findings that are kept, of one log or of several. Zeroed, it is empty. */
struct nd_log_findings {
    struct nd_log_finding *items;
    size_t n, capacity;
    size_t max;        /* keep at most so many; 0: 1000000 */
    size_t n_left_out; /* number of findings that were not kept */
    bool failed;       /* out of memory */
};
/* An nd_log_visit whose context is a struct nd_log_findings. */
ND_PUBLIC bool nd_log_findings_add(void *findings, const struct nd_log_finding *finding);
ND_PUBLIC void nd_log_findings_deinit(struct nd_log_findings *findings);

/* ---- what logs say altogether ---- */

enum nd_log_outcome {
    ND_LOG_OK,             /* known lines, none of a failure or fallback */
    ND_LOG_NOT_UNDERSTOOD, /* no line of a log is known */
    ND_LOG_ON_CPU,         /* nodes ran on a CPU, and nothing tells whether an NPU was wanted */
    ND_LOG_UNKNOWN_ERRORS, /* lines speak of errors that no pattern knows */
    ND_LOG_FELL_BACK,
    ND_LOG_FAILED,
};

struct nd_log_verdict {
    enum nd_log_outcome outcome;
    size_t n_failures, n_fallbacks, n_unknown_errors, n_warnings; /* findings */
    double on_cpu, total; /* the line with the most nodes that an NPU did not take; 0: no line has numbers */
    size_t n_refused;     /* operators that an NPU refused; 0 if other lines say where the nodes ran */
    const char *refused;  /* one of them, borrowed; "" */
};

/* The most severe outcome counts. A refused operator is a fallback, unless lines say where all nodes ran.
 * is_understood: every log has a line that is known. */
ND_PUBLIC void nd_log_judge(const struct nd_log_finding *findings, size_t n, bool is_understood,
                            struct nd_log_verdict *out);
/* "ok", "not-understood", "on-cpu", "unknown-errors", "fallback", "failed". */
ND_PUBLIC const char *nd_log_outcome_name(enum nd_log_outcome outcome);

/* ---- why a graph failed ----
 *
 * If an operator cannot be constructed, the operators that read its output fail, too: one root and its
 * followers. All lines with one operator id are one failure. A failure A follows a failure B if B makes an
 * input of A (according to the operator ids in the log), or if A's node depends on B's node in the model.
 * Further failures of the same node follow the first. A failure is unplaced if its node is uncertain and the
 * log does not name its inputs, unless it is the only failure. Only the first 5000 failures of a log are
 * examined.
 */

enum nd_failure_role { ND_FAILURE_ROOT, ND_FAILURE_FOLLOWER, ND_FAILURE_UNPLACED };

struct nd_failure {
    size_t finding; /* index of its first finding */
    const char *op; /* borrowed from the findings */
    const char *op_id;
    const char *log_node;   /* as the log calls it */
    const char *model_node; /* borrowed from the graph; "" if uncertain */
    enum nd_failure_role role;
    size_t root; /* index of the root that it follows; its own index for roots and unplaced ones */
};

struct nd_failure_cascade {
    struct nd_failure *failures; /* in the order of the log */
    size_t n, n_roots, n_followers, n_unplaced;
};

/* The parts of a model's graph that are needed here. */
struct nd_failure_graph {
    const char *const *names; /* of the nodes, unique */
    size_t n_nodes;
    const size_t (*links)[2]; /* producer and consumer, producers first in the order of nodes */
    size_t n_links;
};

/* graph may be NULL: then the operator ids in the log are the only evidence. ND_ERR_MEMORY. The caller deinits
 * *out, which borrows from findings and graph. */
ND_PUBLIC enum nd_status nd_failure_cascade_find(const struct nd_log_finding *findings, size_t n,
                                                 const struct nd_failure_graph *graph,
                                                 struct nd_failure_cascade *out, struct nd_error *err);
ND_PUBLIC void nd_failure_cascade_deinit(struct nd_failure_cascade *cascade);

/* The same with the graph of a model, which *out borrows from. */
ND_PUBLIC enum nd_status nd_failure_cascade_of_model(const struct nd_log_finding *findings, size_t n,
                                                     const struct nd_model *model,
                                                     struct nd_failure_cascade *out, struct nd_error *err);

/* The index of the node that a log calls log_node, or SIZE_MAX if that is uncertain. Tried in this order: a
 * node with exactly this name; the name without the "_token_<n>" that a layout transformation adds; a name of
 * which log_node is an extension, if there is only one such node. */
ND_PUBLIC size_t nd_failure_find_node(const char *const *names, size_t n_nodes, const char *log_node);

#ifdef __cplusplus
}
#endif
#endif
