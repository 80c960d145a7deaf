/* What the files have in common that check a certificate. */
#ifndef ND_ALIGN_CERTIFICATE_CHECK_H
#define ND_ALIGN_CERTIFICATE_CHECK_H

#include "improve/align/certificate/certificate.h"
#include "core/error.h"

struct nd_certificate_checker {
    const struct nd_certificate *certificate;
    const struct nd_model *model;
    const struct nd_certificate_options *options;
    struct nd_certificate_check *check;
    struct nd_align_options align_options;
    struct nd_align_job job;
    size_t refusals_capacity;
};

/* A text member, "" where there is none; and a member of the certificate. Borrowed. */
const char *nd_certificate_text(const json_t *object, const char *key);
const json_t *nd_certificate_member(const struct nd_certificate_checker *c, const char *key);

/* Adds a refusal. ND_ERR_MEMORY. */
enum nd_status nd_certificate_refuse(struct nd_certificate_checker *c, struct nd_error *err, const char *what,
                                     const char *fmt, ...) ND_PRINTF(4, 5);

/* certificate_price.c: the price, measured again. */
enum nd_status nd_certificate_check_price(struct nd_certificate_checker *c, struct nd_error *err);

#endif
