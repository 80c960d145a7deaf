/* Encodings as rows of tables and JSON. Those for a screen have short texts besides. */
#ifndef ND_REPORT_ENCODING_ROWS_H
#define ND_REPORT_ENCODING_ROWS_H

#include <jansson.h>

#include "npudiff/model/encodings.h"
#include "npudiff/compare/config.h"

json_t *nd_encoding_rows(const struct nd_encodings *encodings, bool has_texts);

/* Those that are the same are left out. */
json_t *nd_encoding_difference_rows(const struct nd_encodings_diff *diff, bool has_texts);
json_t *nd_encoding_use_rows(const struct nd_encodings_check *check, const struct nd_capture *capture);

#endif
