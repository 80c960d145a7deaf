/* nd_explain, as arithmetics call it: what each device does (src/explain/explain.c), and what the quantisation
 * costs. */
#include "npudiff/explain/explain.h"

#include "explain/stages.h"
#include "quantisation/study.h"

enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                          const struct nd_capture *const *captures, size_t n_captures,
                          const struct nd_explain_options *options, struct nd_explanation **out,
                          struct nd_error *err)
{
    const struct nd_question question = {model, float_model, captures, n_captures};
    return nd_explain_with(&question, options, nd_study_quantisation, out, err);
}
