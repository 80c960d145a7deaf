/* Profiles. ONNX Runtime's (SessionEndProfiling): one JSON array of events, of which the kernels count. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/text/strbuf.h"

/* All runs of one kernel on one provider. */
struct nd_kernel {
    char *key; /* provider, US (0x1f), name */
    char *provider;
    const char *name;  /* of the node, or of what it was fused to; within key */
    size_t n;          /* runs after the first that have it */
    double first_us;   /* in the first run */
    double total_us;   /* in the others */
    bool is_quantiser; /* QuantizeLinear or DequantizeLinear */
};

struct nd_ort_profile {
    struct nd_kernel *kernels; /* in order of their first event */
    size_t n_kernels, capacity, runs_capacity;
    double *run_us;      /* [n_runs]: the whole runs; NaN: without a time */
    size_t n_runs;       /* that were finished */
    size_t n_unfinished; /* kernels behind the last finished run */
    struct nd_names keys;
};

/* Reads a profile, event by event, so that of a run only its time is kept. Only events of
 * category "Node" whose name ends in "_kernel_time" count, wherever they stand in their object; a run ends with
 * its "model_run". ND_ERR_FORMAT (ND_E_PROFILE_FORMAT) names the log and the event: not an array of objects,
 * cut off, a kernel without a duration or provider. name is that of the log. Deinit
 * *out after success. */
enum nd_status nd_ort_profile_read(const char *name, const char *text, size_t n_bytes,
                                   struct nd_ort_profile *out, struct nd_error *err);
void nd_ort_profile_deinit(struct nd_ort_profile *profile);

/* ---- the CSV that Qualcomm's provider writes of a profile (profiling_file_path), also what qnn-profile-viewer
 * prints. It is not quoted: a line is split at its first six commas, and what is behind them is the identifier
 * (and, in newer versions, the source operators), kept as it stands. ---- */

/* All rows of one message, unit and identifier. */
struct nd_qnn_event {
    char *key;                         /* message, unit and identifier, joined with US (0x1f) */
    char *message, *unit, *identifier; /* identifier "" where it was NULL */
    size_t n;
    double total;
};

struct nd_qnn_csv {
    struct nd_qnn_event *events; /* in order of their first row */
    size_t n_events, capacity;
    struct nd_names keys;
    size_t n_rows;
    size_t n_untimed;       /* rows whose timestamp is UNKNOWN */
    size_t n_malformed;     /* lines that are no row */
    size_t n_dropped;       /* rows of events beyond the limit of distinct ones */
    size_t first_malformed; /* its line, from 1 */
    bool is_truncated;      /* the last line is cut off; it does not count */
    char *unknown; /* words and columns that no known version has, as one text; "" when there are none */
};

/* name is that of the log. ND_ERR_FORMAT (ND_E_PROFILE_FORMAT): the header is not that of a version that is
 * known, the message says what it is. Deinit *out after success. */
enum nd_status nd_qnn_csv_read(const char *name, const char *text, size_t n_bytes, struct nd_qnn_csv *out,
                               struct nd_error *err);
void nd_qnn_csv_deinit(struct nd_qnn_csv *csv);

/* The bytes at the start of a NODE's identifier that are its name: "front" of "front:OpId_17 (cycles)"; 0 when
 * it has none. */
size_t nd_qnn_node_name(const char *identifier);
