/* A probe for the inputs of a model. */
#ifndef ND_PROBE_FOR_MODEL_H
#define ND_PROBE_FOR_MODEL_H

#include "core/error.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

/* nd_probe_create with the model's inputs as targets. Values and labels are not checked: nd_probes_for_model
 * does. */
enum nd_status nd_probe_for_model(const struct nd_model *model, const char *spec, struct nd_probe **out,
                                  struct nd_error *err);

#endif
