/* What came of one session that was only tried. */
#ifndef ND_RECORD_TRIED_H
#define ND_RECORD_TRIED_H

#include <stdbool.h>
#include <stddef.h>

/* Names of nodes that did not go to the provider. */
struct nd_fell_back {
    char **names;
    size_t n;
};
void nd_fell_back_deinit(struct nd_fell_back *fell_back);
bool nd_fell_back_has(const struct nd_fell_back *fell_back, const char *node);

/* Leaves in `fallen` the nodes that are not in `own` as well. A node that a layout pass added goes by a number
 * that is another in every session: of those that differ by that alone, as many are left out as `own` has. */
void nd_fell_back_subtract(struct nd_fell_back *fell_back, const struct nd_fell_back *own);

/* What a session did that exposes some tensors. */
struct nd_tried {
    bool holds;                    /* it came to be, and exposing the tensors moved no node */
    bool is_placed;                /* it came to be, whatever its samples gave */
    struct nd_fell_back fell_back; /* the nodes that it moved; may be empty where it does not hold */
    char reason[256];              /* why it does not hold; empty where the fallen nodes say it */
};
void nd_tried_deinit(struct nd_tried *trial);

#endif
