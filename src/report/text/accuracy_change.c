#include "report/text/accuracy_change.h"

#include "core/statistics/evidence.h"

/* Chosen, as in certificates. */
static const double confidence = 0.95;

struct nd_accuracy_change nd_accuracy_change_of(const struct nd_alignment *alignment)
{
    size_t kept = alignment->n_right_before - alignment->n_right_to_wrong;
    size_t gained = alignment->n_right_after - kept;
    const struct nd_paired table = {.both_right = kept,
                                    .ref_only = alignment->n_right_to_wrong,
                                    .test_only = gained,
                                    .both_wrong =
                                        alignment->n_labelled - kept - alignment->n_right_to_wrong - gained};
    const struct nd_interval interval = nd_paired_tango(&table, confidence);
    return (struct nd_accuracy_change){100 * nd_paired_difference(&table), 100 * interval.low,
                                       100 * interval.high, confidence};
}
