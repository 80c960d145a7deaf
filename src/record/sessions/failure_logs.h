/* What the logs of a failed device say of why: stage, code, operator, memory; and the findings as rows of a
 * table.
 */
#ifndef ND_CAPTURE_FAILURE_LOGS_H
#define ND_CAPTURE_FAILURE_LOGS_H

#include "capture/write/write.h"
#include "npudiff/capture/logs.h"
#include "npudiff/model/model.h"
#include "record/sessions/assemble_outputs.h"

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

/* Puts into the message of a refused placement which operators of the model do not run on the NPU, and why as
 * far as the provider said it in the log. Operators are counted as nd_model_is_operator does, in a session as
 * in the model. Leaves the message where the rows of the spool do not say which nodes these are, or memory is
 * out. */
void nd_fallback_say(const struct nd_spool_index *index, const struct nd_model *model,
                     struct nd_error *failure);

#endif
