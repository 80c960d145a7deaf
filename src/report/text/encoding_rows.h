/* Encodings as rows of tables and JSON. Those for a screen have short texts besides. */
#ifndef ND_REPORT_ENCODING_ROWS_H
#define ND_REPORT_ENCODING_ROWS_H

#include <jansson.h>

#include "npudiff/compare/config.h"
#include "npudiff/model/encodings.h"

#endif
