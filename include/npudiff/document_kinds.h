/* The kinds of JSON documents: what the member "kind" of a document says. document_kinds.def has the list, and
 * docs/reference/schemas a JSON Schema for each of them.
 *
 * Example:
 *
 *     static char *no_probes(void)
 *     {
 *         return nd_report_document(ND_DOCUMENT_PROBES, "{\"probes\": []}");
 *     }
 *
 * Stability: unstable. Newer versions add kinds, and so the numbers of these names change. */
#ifndef NPUDIFF_DOCUMENT_KINDS_H
#define NPUDIFF_DOCUMENT_KINDS_H

#ifdef __cplusplus
extern "C" {
#endif

enum nd_document {
#define ND_DOCUMENT(name, word) ND_DOCUMENT_##name,
#include "npudiff/document_kinds.def"
#undef ND_DOCUMENT
};

#ifdef __cplusplus
}
#endif
#endif
