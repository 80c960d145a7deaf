/* What a capture says of its device, model, runtime and host, so that it can be judged years later. */
#ifndef ND_DEVICE_PROVENANCE_H
#define ND_DEVICE_PROVENANCE_H

#include "npudiff/capture.h"
#include "npudiff/device.h"

struct nd_identity; /* remote/identity.h */

struct nd_provenance {
    struct nd_attr *attrs;
    size_t n;
    size_t capacity;
};

/* Add one attribute to a group ("" for the root). text may be NULL, which is "". False when out of memory: the
 * provenance is then only good for nd_provenance_deinit. */
bool nd_provenance_add_text(struct nd_provenance *provenance, const char *group, const char *key,
                            const char *text);
bool nd_provenance_add_number(struct nd_provenance *provenance, const char *group, const char *key,
                              int64_t number);
bool nd_provenance_add_real(struct nd_provenance *provenance, const char *group, const char *key, double real);

/* n_passes: over how many sessions the edges are spread. The caller frees *out with nd_provenance_deinit. */
enum nd_status nd_provenance_collect(const struct nd_device *device, const struct nd_model *model,
                                     const struct nd_capture_options *options, size_t n_passes,
                                     struct nd_provenance *out, struct nd_error *err);
/* What another machine said of itself; battery and temperatures only where what differs between two equal runs
 * may be stored. */
enum nd_status nd_provenance_add_identity(struct nd_provenance *provenance, const struct nd_identity *identity,
                                          struct nd_error *err);
/* The edge whose session failed, in a capture of prefixes. */
enum nd_status nd_provenance_add_failed_edge(struct nd_provenance *provenance, const char *edge,
                                             struct nd_error *err);
/* Nodes that recording moved to the CPU, one a line. */
enum nd_status nd_provenance_add_moved(struct nd_provenance *provenance, const char *nodes,
                                       struct nd_error *err);
void nd_provenance_deinit(struct nd_provenance *provenance);

/* Whether SOURCE_DATE_EPOCH is set: then nothing that differs between two equal runs is stored. */
bool nd_provenance_is_reproducible(void);

#endif
