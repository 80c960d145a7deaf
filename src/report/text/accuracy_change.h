/* What an alignment does to the accuracy. */
#ifndef ND_REPORT_ACCURACY_CHANGE_H
#define ND_REPORT_ACCURACY_CHANGE_H

#include "npudiff/improve/align.h"

/* In points, after less before: the difference, and Tango's interval. docs/science/statistics.md#paired. */
struct nd_accuracy_change {
    double points, low, high;
    double confidence; /* of the interval */
};

/* Of the labelled samples; there is one at least. */
struct nd_accuracy_change nd_accuracy_change_of(const struct nd_alignment *alignment);

#endif
