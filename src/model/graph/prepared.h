/* Models that hold, or name, a binary made for one NPU beforehand: EPContext nodes. */
#pragma once

#include "npudiff/model/model.h"

/* What such a model says of itself. All of it is empty where it says nothing. */
struct nd_prepared {
    bool exists;      /* there is an EPContext node */
    char sdk[64];     /* that prepared it: "2.51.0.260929181845" */
    char chipset[32]; /* that it was prepared for, as the binary has it: "SM8650" */
    int soc_model;    /* the same as QNN's number, as newer providers write it beside the graph; 0: not said */
};

/* Reads the nodes, the model's metadata and, in pieces, the binary: the options of its preparation stand in it
 * as text. What it does not say is left empty; that is no error. ND_ERR_IO when the binary cannot be read,
 * ND_ERR_MEMORY; *out is untouched then. */
enum nd_status nd_prepared_read(const struct nd_model *model, struct nd_prepared *out, struct nd_error *err);
