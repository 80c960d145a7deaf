/* What a capture says of its device, model, runtime and host, so that it can be judged years later. */
#ifndef ND_RECORD_PROVENANCE_H
#define ND_RECORD_PROVENANCE_H

#include "capture/read/attr_list.h"
#include "devices/capture_request.h"
#include "npudiff/devices/device.h"

struct nd_identity; /* remote/identity.h */

struct nd_remote;

/* n_passes: over how many sessions the edges are spread. The caller frees *out with nd_attr_list_deinit. */
enum nd_status nd_provenance_collect(const struct nd_device *device, const struct nd_model *model,
                                     const struct nd_capture_options *options, size_t n_passes,
                                     struct nd_attr_list *out, struct nd_error *err);
/* What another machine said of itself; battery and temperatures only where what differs between two equal runs
 * may be stored. */
enum nd_status nd_provenance_add_identity(struct nd_attr_list *provenance, const struct nd_identity *identity,
                                          struct nd_error *err);
/* Agent and models that ran there, by the digests that the machine measured before the run. */
enum nd_status nd_provenance_add_measured(struct nd_attr_list *provenance, const struct nd_remote *remote,
                                          struct nd_error *err);
/* The edge whose session failed, in a capture of prefixes. */
enum nd_status nd_provenance_add_failed_edge(struct nd_attr_list *provenance, const char *edge,
                                             struct nd_error *err);
/* What planning the sessions came to: how many were tried before those that recorded, and the edges that none
 * shows, as lines of name, tab and reason (NULL: none). */
enum nd_status nd_provenance_add_planning(struct nd_attr_list *provenance, size_t n_tried, const char *left_out,
                                          struct nd_error *err);
/* Names the edges that were recorded through their floats; nothing where there is none. */
enum nd_status nd_provenance_add_floats(struct nd_attr_list *provenance, const struct nd_capture_job *capture,
                                        struct nd_error *err);
/* Nodes that recording moved to the CPU, one a line. */
enum nd_status nd_provenance_add_moved(struct nd_attr_list *provenance, const char *nodes,
                                       struct nd_error *err);
#endif
