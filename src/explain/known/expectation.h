/* Which arithmetic a capture's device has, by what the capture says of it. */
#pragma once

#include "npudiff/capture/capture.h"

enum nd_expectation {
    ND_EXPECT_ANY,   /* the capture does not say: the values identify it */
    ND_EXPECT_FLOAT, /* rounding once, half to even, of values in floats: a CPU */
    ND_EXPECT_V69,   /* htp-v69: HTP v68 and v69 */
    ND_EXPECT_V73,   /* htp-v73: HTP v73 and later */
};

/* From `kind`, `arch` and `chipset` of the capture's device. Emulated devices, GPUs, references, and CPUs that
 * an import states, have any arithmetic. */
enum nd_expectation nd_expect(const struct nd_capture *capture);
/* Of a Hexagon architecture, "v75". NULL or something else: ND_EXPECT_ANY. */
enum nd_expectation nd_expect_of_arch(const char *arch);
/* Whether the device may have that one of nd_layer_arithmetics. */
bool nd_expects(enum nd_expectation expectation, size_t arithmetic);
/* Whether the capture's device is an emulated one: one arithmetic makes everything, tables too. */
bool nd_is_emulated(const struct nd_capture *capture);
/* Whether it is a runner, exec:NAME: an engine with kernels of its own. */
bool nd_is_runner(const struct nd_capture *capture);
/* Whether values alone may show that a layer was computed elsewhere, in floats: not of an import that does not
 * say that an NPU made it, nor of one that states a CPU, a GPU or a reference; nor of a runner, which may have
 * a kernel of its own for each kind of layer. */
bool nd_can_fall_back(const struct nd_capture *capture);
/* "float", "v69", "v73"; NULL for ND_EXPECT_ANY. Static storage. */
const char *nd_expectation_name(enum nd_expectation expectation);
