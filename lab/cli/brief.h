/* The default texts of `npudiff fingerprint`: what was identified, one row for operators that compute alike. */
#ifndef ND_CLI_FINGERPRINT_BRIEF_H
#define ND_CLI_FINGERPRINT_BRIEF_H

#include <jansson.h>
#include <stdbool.h>

/* file: the datasheet's, for the next command; NULL: it was not written. 0, or the exit code of an error. */
int fingerprint_print_sheet(const json_t *sheet, const char *file);
int fingerprint_print_difference(const json_t *difference, const char *a, const char *b);

/* The table of a campaign (docs/reference/schemas/datasheet_campaign.json), which lies in this folder: the
 * steps, and where `verbose` each operator in each cell. */
int fingerprint_print_campaign(const json_t *table, const char *folder, bool verbose);

/* The arithmetic of an entry or claim in words: its first arithmetic, or what is nearest; "-" where nothing is
 * known. A new reference. */
json_t *fingerprint_arithmetic(const json_t *entry);

#endif
