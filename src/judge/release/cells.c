/* What every part of a qualification uses: the words of verdicts, the cell of a device, texts that the result owns, and its end.
 * docs/reference/campaign.md. */
#include "judge/release/qualify.h"

#include <stdlib.h>
#include <string.h>

const char *nd_case_verdict_name(enum nd_case_verdict verdict)
{
    static const char *const names[] = {"passed",       "warned",         "failed",
                                        "inconclusive", "not comparable", "device failed"};
    return names[verdict];
}

enum nd_exit nd_case_exit_code(enum nd_case_verdict verdict)
{
    static const enum nd_exit qvalues[] = {ND_EXIT_SAME,         ND_EXIT_SAME,           ND_EXIT_DIFFERS,
                                           ND_EXIT_INCONCLUSIVE, ND_EXIT_NOT_COMPARABLE, ND_EXIT_DEVICE_FAILED};
    return qvalues[verdict];
}

enum nd_case_verdict nd_case_verdict_worse(enum nd_case_verdict a, enum nd_case_verdict b)
{
    enum nd_exit of_a = nd_case_exit_code(a), of_b = nd_case_exit_code(b);
    if (of_a == of_b)
        return a > b ? a : b; /* passed and warned */
    return nd_exit_worse(of_a, of_b) == of_a ? a : b;
}

enum nd_case_verdict nd_case_verdict_of_answer(enum nd_answer_kind kind)
{
    static const enum nd_case_verdict verdicts[] = {[ND_ANSWER_INCONCLUSIVE] = ND_CASE_INCONCLUSIVE,
                                                    [ND_ANSWER_YES] = ND_CASE_PASSED,
                                                    [ND_ANSWER_NO] = ND_CASE_FAILED};
    return verdicts[kind];
}

size_t nd_qualify_find_cell(const struct nd_qualify_model *model, size_t n_devices, const char *to)
{
    for (size_t d = 0; d < n_devices; d++)
        if (strcmp(model->cells[d].label, to) == 0)
            return d;
    return strcmp(to, ND_REFERENCE_FLOAT) == 0 ? model->float64 : model->quantised;
}

const char *nd_qualify_text(const struct nd_qualification *q, const char *text)
{
    json_t *clean = nd_json_string(text);
    if (clean == NULL)
        nd_arena_fail(q->arena);
    const char *copy = nd_arena_text(q->arena, json_string_value(clean));
    json_decref(clean);
    return copy;
}
