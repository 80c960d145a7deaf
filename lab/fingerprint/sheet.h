/* Reading datasheets, and what an entry of one claims. */
#ifndef ND_FINGERPRINT_SHEET_H
#define ND_FINGERPRINT_SHEET_H

#include <jansson.h>
#include <stdbool.h>

#include "npudiff/lab/fingerprint.h"

/* The datasheet as a tree, which the caller ends with json_decref. ND_ERR_FORMAT: it is none, of a version that
 * is not known, or its content is not that of its digest. */
enum nd_status nd_sheet_read(const struct nd_datasheet *from, json_t **out, struct nd_error *err);

/* The text member, "" when there is none. */
const char *nd_sheet_text(const json_t *object, const char *key);

/* The arithmetic that an entry claims, without counts and without what was asked. NULL: memory is out. */
json_t *nd_sheet_claim(const json_t *entry);

/* The digests of what the device answered, "" where the section gives none: they tell devices apart also where
 * no arithmetic does. */
const char *nd_sheet_answers(const json_t *entry);

bool nd_sheet_is_identified(const json_t *entry);

#endif
