/* What the JSON and the text of placement have in common. */
#ifndef ND_REPORT_REPORT_PLACEMENT_H
#define ND_REPORT_REPORT_PLACEMENT_H

#include <jansson.h>

#include "npudiff/report/report.h"

/* Whether the node should be on the NPU and is known not to be. */
bool nd_placed_is_fell_back(const struct nd_placed_node *node);

/* Whether it is an import that does not state what computed it. */
bool nd_placed_is_unstated(const struct nd_placed_device *device);

/* The rows of the matrix: {"op_type", "count", "cells": [text]}. */
json_t *nd_placement_matrix(const struct nd_placed_device *devices, size_t n);

#endif
