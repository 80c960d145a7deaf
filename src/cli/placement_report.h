/* What `npudiff placement` knows of its devices, and how it tells it. */
#ifndef ND_CLI_PLACEMENT_REPORT_H
#define ND_CLI_PLACEMENT_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "npudiff/evidence.h"

/* One device: its capture and what that says of placement. */
struct placement_device {
    struct nd_capture *capture;
    struct nd_placement_report *report; /* NULL: none could be made; error says why */
    struct nd_error error;
    const char *label, *uri; /* borrowed */
    bool has_failed;
};

struct placement_result {
    const struct nd_model *model;
    struct placement_device *devices;
    size_t n_devices;
    bool is_verbose;
};

/* Whether the node should be on the NPU and is known not to be. Quantisation that a provider added counts as
 * little as that of inputs and outputs. */
bool placement_is_fallen(const struct nd_placed_node *node);

/* Whether it is an import that does not state what computed it. */
bool placement_is_unstated(const struct placement_device *device);

/* How many nodes of the device are. */
size_t placement_n_fallen(const struct placement_device *device);

/* {"model", "devices", "operators"}: a new reference, NULL when memory is out. */
json_t *placement_json(const struct placement_result *result);

/* The matrix of chipsets and operators, then a part for every device. */
void placement_print(const struct placement_result *result);

/* The rows of the matrix: {"op_type", "count", "cells": [text]}. */
json_t *placement_matrix(const struct placement_result *result);

#endif
