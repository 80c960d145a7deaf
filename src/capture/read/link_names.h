/* Names of tensors, probes and logs as names of HDF5 links, where '/' separates and "." means "here". */
#ifndef ND_CAPTURE_LINK_NAMES_H
#define ND_CAPTURE_LINK_NAMES_H

#include "core/error.h"

/* '%' becomes "%25", '/' "%2F"; "" becomes "%00", and the first dot of a name of dots only "%2E". New memory,
 * or NULL when out of memory. */
char *nd_name_escape(const char *name);

/* *out: the name that nd_name_escape wrote so, in new memory. ND_E_CAPTURE_SCHEMA about `path` when it never
 * writes this; ND_E_MEMORY. */
enum nd_status nd_name_unescape(const char *link, const char *path, char **out, struct nd_error *err);

/* "<group>/<escaped name>" in new memory; NULL when out of memory. */
char *nd_name_path(const char *group, const char *name);

/* "/probes/<escaped probe>/<part>" in new memory, with "/<escaped name>" at its end unless name is NULL; NULL
 * when out of memory. */
char *nd_name_probe_path(const char *probe, const char *part, const char *name);

#endif
