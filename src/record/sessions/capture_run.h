/* Captures that the library makes for itself, to read at once. */
#ifndef ND_RECORD_CAPTURE_RUN_H
#define ND_RECORD_CAPTURE_RUN_H

#include "model/graph/prepared.h"
#include "npudiff/arithmetic/chipset.h"
#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"

/* nd_capture_run, and opens what it wrote. A device that gives no values is no error: *failure says why, its
 * status is never ND_OK then, and *out stays as it was. The caller closes *out. */
enum nd_status nd_capture_run_and_open(const struct nd_workload *workload, const char *path,
                                       const struct nd_capture_options *options, struct nd_capture **out,
                                       struct nd_error *failure, struct nd_error *err);

/* Where there is nothing to do without that device: the failure becomes the error, "'MODEL' on 'DEVICE': ...".
 */
enum nd_status nd_capture_pass_on(const struct nd_error *failure, const struct nd_model *model,
                                  const struct nd_device *device, struct nd_error *err);

enum { ND_BINARY_BYTES = 64 };

/* The chipset that a binary was made for, or NULL where it says none that is known. name: "SM8650 (v75)", or
 * what the binary says; "" when it says nothing. */
const struct nd_chipset *nd_binary_chipset(const struct nd_prepared *binary, char name[static ND_BINARY_BYTES]);

#endif
