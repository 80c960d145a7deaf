/* What certificates and reports say of the outputs of an aligned model. */
#include "improve/align/outputs_json.h"

#include "core/documents/json_out.h"

json_t *nd_alignment_outputs_json(const struct nd_alignment *alignment)
{
    json_t *outputs = json_array();
    for (size_t i = 0; i < alignment->n_outputs; i++) {
        const struct nd_alignment_output *output = &alignment->outputs[i];
        nd_tree_append(outputs, json_pack("{s:o, s:o, s:o, s:o}", "tensor", nd_json_string(output->name),
                                          "sqnr_before_db", nd_json_known(output->sqnr_before_db),
                                          "sqnr_after_db", nd_json_known(output->sqnr_after_db), "loss_db",
                                          nd_json_known(output->loss_db)));
    }
    return outputs;
}
