/* Names of tensors, probes and logs as names of HDF5 links, where '/' separates and "." means "here". */
#ifndef ND_CAPTURE_NAMES_H
#define ND_CAPTURE_NAMES_H

/* '%' becomes "%25", '/' "%2F"; "" becomes "%00", and the first dot of a name of dots only "%2E". New memory,
 * or NULL when out of memory. */
char *nd_name_escape(const char *name);

/* The name that nd_name_escape wrote so, in new memory; NULL when there is none (or out of memory). */
char *nd_name_unescape(const char *link);

/* "<group>/<escaped name>" in new memory; NULL when out of memory. */
char *nd_name_path(const char *group, const char *name);

/* "/probes/<escaped probe>/<part>" in new memory, with "/<escaped name>" at its end unless name is NULL; NULL
 * when out of memory. */
char *nd_name_probe_path(const char *probe, const char *part, const char *name);

#endif
