/* Formatted text in new memory. */
#ifndef ND_COMPARE_FORMAT_TEXT_H
#define ND_COMPARE_FORMAT_TEXT_H

#include "core/error.h"

/* Replaces *text (freed first, may be NULL) by the formatted string. ND_ERR_MEMORY leaves *text NULL. */
enum nd_status nd_text_set(char **text, struct nd_error *err, const char *fmt, ...) ND_PRINTF(3, 4);

#endif
