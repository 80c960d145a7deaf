/* What the logs of a failed device say of why: stage, code, operator, memory; and the findings as rows of a
 * table.
 */
#ifndef ND_CAPTURE_FAILURE_LOGS_H
#define ND_CAPTURE_FAILURE_LOGS_H

#include "capture/write/write.h"
#include "npudiff/capture/logs.h"
#include "npudiff/model/model.h"

/* Rows of /findings, and how much of a line they keep. */
enum { ND_FINDINGS_MAX_ROWS = 2000, ND_FINDINGS_MAX_TEXT = 240 };

/* The table /findings; nothing where there are none. Of very many the failures and warnings are kept first, and
 * the last row says how many were left out. */
enum nd_status nd_findings_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                 struct nd_error *err);

/* Attributes of /failure from the message of the failure and the findings, and the operator at the end of the
 * message. model is nullable: nodes are then called as the log calls them. */
enum nd_status nd_failure_write(struct nd_capture_writer *writer, const struct nd_log_findings *findings,
                                const struct nd_model *model, struct nd_error *failure, struct nd_error *err);

#endif
