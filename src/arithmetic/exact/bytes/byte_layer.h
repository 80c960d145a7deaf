/* Layers of a quantised graph evaluated on quantised values as bytes, one layer at a time: for who evaluates
 * the same layers very often. What a layer gives is what nd_exact_graph_run gives with no options, in every
 * bit.
 *
 * A function of one quantised value is a table of 256, of two quantised values of 65536; a convolution by
 * constant weights adds up products of bytes, or of whole numbers of 16 bits, and rounds the sums while they
 * are in the caches. Each table and each line of a convolution is made by the evaluation in doubles itself. All
 * other layers are evaluated by it, too. */
#pragma once

#include "arithmetic/exact/eval_graph.h"

struct nd_byte_layers;

/* What one thread needs to evaluate layers. */
struct nd_byte_runner;

/* Finds the layers. shapes[n_edges]: rank < 0 of tensors that are not computed. Tables take limit_bytes at
 * most: layers without one are evaluated in doubles. The graph is borrowed. *out NULL: the graph is not one of
 * layers alone whose quantised values come from other layers and from the quantisers of inputs. ND_ERR_MEMORY,
 * and what evaluating a layer gives. */
enum nd_status nd_byte_layers_create(const struct nd_exact_graph *graph, const struct nd_shape *shapes,
                                     size_t limit_bytes, struct nd_byte_layers **out, struct nd_error *err);
void nd_byte_layers_destroy(struct nd_byte_layers **layers);

/* Layers in graph order, and the tensor that each makes and those that it reads. */
size_t nd_byte_layers_count(const struct nd_byte_layers *layers);
size_t nd_byte_layer_tensor(const struct nd_byte_layers *layers, size_t layer);
size_t nd_byte_layer_inputs(const struct nd_byte_layers *layers, size_t layer, const size_t **tensors);

/* Whether the layer takes bytes: quantised values less the least quantised value of their type. */
bool nd_byte_layer_is_quick(const struct nd_byte_layers *layers, size_t layer);

enum nd_status nd_byte_runner_create(const struct nd_byte_layers *layers, struct nd_byte_runner **out,
                                     struct nd_error *err);
void nd_byte_runner_destroy(struct nd_byte_runner **runner);

/* inputs[n] in the order of nd_byte_layer_inputs: all elements of each tensor; out: room for all of its own.
 * Only where the layer is quick. ND_ERR_IO, ND_ERR_MEMORY. */
enum nd_status nd_byte_layer_run(struct nd_byte_runner *runner, size_t layer, const uint8_t *const *inputs,
                                 uint8_t *out, struct nd_error *err);
/* Any layer, in doubles. inputs[n]: taken over, and freed in any case; *quantised values is freed by the
 * caller. Errors are those of nd_exact_graph_run. */
enum nd_status nd_byte_layer_evaluate(struct nd_byte_runner *runner, size_t layer, struct nd_array *inputs,
                                      struct nd_array *qvalues, struct nd_error *err);
/* The same with options, of which nothing is given, skipped or ignored; context: theirs. */
enum nd_status nd_byte_layer_evaluate_with(struct nd_byte_runner *runner, size_t layer,
                                           const struct nd_exact_options *options, void *context,
                                           struct nd_array *inputs, struct nd_array *qvalues,
                                           struct nd_error *err);
