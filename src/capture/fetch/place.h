/* Where a name leads to: the URL that is asked, and how requests are signed. */
#ifndef ND_FETCH_PLACE_H
#define ND_FETCH_PLACE_H

#include <stdbool.h>

#include "core/error.h"

struct nd_fetch_place {
    char *shown; /* for messages */
    char *url;
    bool is_s3;
    /* Of a bucket whose requests are signed; else NULL. */
    char *signer; /* what libcurl's CURLOPT_AWS_SIGV4 takes */
    char *key, *secret;
    char *token_header; /* "x-amz-security-token: ...", or NULL */
};

/* s3://BUCKET/KEY with the usual AWS_* variables of the environment; the others stay as they are.
 * ND_E_FETCH_URL. The caller calls nd_fetch_place_deinit, also after an error. */
enum nd_status nd_fetch_place_find(const char *name, struct nd_fetch_place *place, struct nd_error *err);
void nd_fetch_place_deinit(struct nd_fetch_place *place);

#endif
