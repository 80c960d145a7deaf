/* What the values of a comparison show, as JSON. */
#ifndef ND_REPORT_JSON_DIAGNOSES_H
#define ND_REPORT_JSON_DIAGNOSES_H

#include "core/documents/json_out.h"
#include "npudiff/compare/compare.h"

/* The members "diagnoses", "depth" and "predicate" of the object at hand. */
void nd_json_put_diagnoses(struct nd_json *json, const struct nd_comparison *comparison);

#endif
