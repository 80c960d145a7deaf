/* The CSV that Qualcomm's provider writes of a profile (profiling_file_path), also what qnn-profile-viewer
 * prints. It is not quoted: a line is split at its first six commas, and what is behind them is the identifier
 * (and, in newer versions, the source operators), kept as it stands. */
#ifndef ND_PLACEMENT_QNN_CSV_H
#define ND_PLACEMENT_QNN_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/text/strbuf.h"

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

#endif
