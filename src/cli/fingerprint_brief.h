/* The default texts of `npudiff fingerprint`: what was identified, one row for operators that compute alike. */
#ifndef ND_CLI_FINGERPRINT_BRIEF_H
#define ND_CLI_FINGERPRINT_BRIEF_H

#include <jansson.h>

/* file: the datasheet's, for the next command; NULL: it was not written. 0, or the exit code of an error. */
int fingerprint_print_sheet(const json_t *sheet, const char *file);
int fingerprint_print_difference(const json_t *difference, const char *a, const char *b);

#endif
