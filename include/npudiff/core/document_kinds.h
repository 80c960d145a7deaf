/* The kinds of JSON documents: what the member "kind" of a document says. document_kinds.def has the list, and
 * docs/reference/schemas a JSON Schema for each of them.
 *
 * Example:
 *
 *     static int is_of_captures(enum nd_document kind)    // for nd_report_document
 *     {
 *         return kind == ND_DOCUMENT_COMPARISON || kind == ND_DOCUMENT_EXPLANATION;
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
#include "npudiff/core/document_kinds.def"
#undef ND_DOCUMENT
};

#ifdef __cplusplus
}
#endif
#endif
