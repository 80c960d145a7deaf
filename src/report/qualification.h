/* Reading the JSON of a campaign's result, for those who write it otherwise. */
#ifndef ND_REPORT_QUALIFICATION_H
#define ND_REPORT_QUALIFICATION_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* The parsed result; ND_E_RESULT_FORMAT when it is none. The caller gives *out back with json_decref. */
enum nd_status nd_qualification_parse(const char *json, json_t **out, struct nd_error *err);

/* A text member, or "" where there is none. */
const char *nd_qualification_text(const json_t *object, const char *key);

/* An entry of an array of objects by its number, or NULL. */
const json_t *nd_qualification_gate(const json_t *root, const json_t *one_case);

/* Whether a case is about that model and device. */
bool nd_qualification_is_about(const json_t *one_case, const json_t *model, const json_t *device);

#endif
