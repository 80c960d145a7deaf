#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "explain/audit/audit_checks.h"

static const struct {
    const char *name, *subject;
} kinds[ND_AUDIT_N_CHECKS] = {
    [ND_AUDIT_VALUES] = {"values", "values against their digests"},
    [ND_AUDIT_CONTENT] = {"content", "all else against its digest"},
    [ND_AUDIT_PLACES] = {"places", "places in the file"},
    [ND_AUDIT_SCALES] = {"scales", "scales and zero points"},
    [ND_AUDIT_COUNTS] = {"counts", "samples, labels, latencies"},
    [ND_AUDIT_MODEL] = {"model", "SHA-256 of the model"},
    [ND_AUDIT_TENSORS] = {"tensors", "tensors against the model"},
    [ND_AUDIT_EXACT] = {"exact", "values computed again"},
};

const char *nd_audit_name(enum nd_audit_kind kind)
{
    assert((int)kind < ND_AUDIT_N_CHECKS);
    return kinds[kind].name;
}

const char *nd_audit_subject(enum nd_audit_kind kind)
{
    assert((int)kind < ND_AUDIT_N_CHECKS);
    return kinds[kind].subject;
}

void nd_audit_wrong(struct nd_audit_check *check, const char *fmt, ...)
{
    if (check->n_wrong++ > 0)
        return;
    va_list rest;
    va_start(rest, fmt);
    vsnprintf(check->text, sizeof check->text, fmt, rest);
    va_end(rest);
}

void nd_audit_not_done(struct nd_audit_check *check, const char *fmt, ...)
{
    va_list rest;
    va_start(rest, fmt);
    vsnprintf(check->text, sizeof check->text, fmt, rest);
    va_end(rest);
    check->is_done = false;
}

static enum nd_status check_digests(const struct nd_capture *capture, struct nd_audit_check *checks,
                                    struct nd_error *err)
{
    struct nd_capture_verification found;
    enum nd_status status = nd_capture_verify(capture, &found, err);
    if (status != ND_OK)
        return status;
    checks[ND_AUDIT_VALUES].n = found.n_tensors;
    if (found.n_wrong > 0)
        nd_audit_wrong(&checks[ND_AUDIT_VALUES], "%s", found.first_wrong);
    checks[ND_AUDIT_VALUES].n_wrong = found.n_wrong;
    checks[ND_AUDIT_CONTENT].n = nd_capture_n_objects(capture);
    if (!found.content_matches)
        nd_audit_wrong(&checks[ND_AUDIT_CONTENT], "a name, shape, attribute or digest was changed");
    return ND_OK;
}

enum nd_status nd_capture_audit(const struct nd_capture *capture, const struct nd_model *model,
                                struct nd_audit *out, struct nd_error *err)
{
    struct nd_audit audit = {0};
    struct nd_audit_check *checks = audit.checks;
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
        checks[i].is_done = true;
    enum nd_status status = check_digests(capture, checks, err);
    if (status == ND_OK)
        status = nd_audit_places(capture, &checks[ND_AUDIT_PLACES], err);
    nd_audit_scales(capture, &checks[ND_AUDIT_SCALES]);
    nd_audit_counts(capture, &checks[ND_AUDIT_COUNTS]);
    if (status == ND_OK)
        status = nd_audit_model(capture, model, &checks[ND_AUDIT_MODEL], err);
    if (status == ND_OK)
        status = nd_audit_tensors(capture, model, &checks[ND_AUDIT_TENSORS], err);
    if (status == ND_OK)
        status = nd_audit_exact(capture, model, &checks[ND_AUDIT_EXACT], err);
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
        audit.n_wrong += checks[i].n_wrong > 0;
    if (status == ND_OK)
        *out = audit;
    return status;
}
