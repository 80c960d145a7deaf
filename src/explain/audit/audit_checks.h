/* `npudiff verify --paranoid`: the checks of npudiff/audit.h, one function each. What goes in is an open
 * capture, and perhaps its model; what comes out says how much was looked at and what is wrong first. Next:
 * foreign/. */
#ifndef ND_AUDIT_AUDIT_CHECKS_H
#define ND_AUDIT_AUDIT_CHECKS_H

#include "npudiff/explain/audit.h"
#include "npudiff/model/model.h"

/* Counts one thing that is wrong, and keeps the words of the first. */
void nd_audit_wrong(struct nd_audit_check *check, const char *fmt, ...) ND_PRINTF(2, 3);

/* Says why a check is not made. */
void nd_audit_not_done(struct nd_audit_check *check, const char *fmt, ...) ND_PRINTF(2, 3);

enum nd_status nd_audit_places(const struct nd_capture *capture, struct nd_audit_check *check,
                               struct nd_error *err);
void nd_audit_scales(const struct nd_capture *capture, struct nd_audit_check *check);
void nd_audit_counts(const struct nd_capture *capture, struct nd_audit_check *check);
enum nd_status nd_audit_model(const struct nd_capture *capture, const struct nd_model *model,
                              struct nd_audit_check *check, struct nd_error *err);
enum nd_status nd_audit_tensors(const struct nd_capture *capture, const struct nd_model *model,
                                struct nd_audit_check *check, struct nd_error *err);
enum nd_status nd_audit_exact(const struct nd_capture *capture, const struct nd_model *model,
                              struct nd_audit_check *check, struct nd_error *err);

#endif
