/* What is said of a layer: nothing but these functions assigns its state. Texts that are taken are empty
 * afterwards, also after an error. docs/reference/verdicts.md. */
#pragma once

#include "core/text/strbuf.h"
#include "npudiff/explain/explain.h"

/* Before anything is known of it: unexplained where it was examined. */
void nd_judge_open(struct nd_explained_layer *layer);

/* Known arithmetic gives its values: why is static. text, NULL for none, is copied, or taken. ND_ERR_MEMORY. */
enum nd_status nd_judge_follows(struct nd_explained_layer *layer, const char *why, const char *text,
                                struct nd_error *err);
enum nd_status nd_judge_follows_as(struct nd_explained_layer *layer, const char *why, struct nd_strbuf *text,
                                   struct nd_error *err);

/* fault, with a text that is copied; NULL: the one that is noted, or an error of no known kind. evidence is
 * taken. ND_ERR_MEMORY. */
enum nd_status nd_judge_faulty(struct nd_explained_layer *layer, enum nd_certainty certainty,
                               const struct nd_explained_fault *fault, struct nd_strbuf *evidence,
                               struct nd_error *err);

/* What a layer that stays unexplained resembles, and what speaks for it. */
enum nd_status nd_judge_resembles(struct nd_explained_layer *layer, const struct nd_explained_fault *fault,
                                  struct nd_error *err);
enum nd_status nd_judge_evidence(struct nd_explained_layer *layer, struct nd_strbuf *evidence,
                                 struct nd_error *err);

/* At the end, of an unexplained layer: within 1 LSB where its arithmetic is not known, and its values are off
 * exact rounding by at most one LSB, half of them at most, and by no bias. */
void nd_judge_within_lsb(struct nd_explained_layer *layer, bool is_known);
