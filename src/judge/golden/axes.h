/* What a capture was made with, sorted into six axes, so that two captures can be told apart by what changed
 * between them. docs/reference/store.md#axes. An axis is a flat JSON object of texts; all six are members of
 * one object. */
#ifndef ND_GOLDEN_AXES_H
#define ND_GOLDEN_AXES_H

#include <jansson.h>

#include "npudiff/judge/judge.h"

enum nd_axis {
    ND_AXIS_SDK,     /* the runtime: its id, versions and libraries */
    ND_AXIS_CHIPSET, /* the silicon or its simulator, the phone and its firmware */
    ND_AXIS_MODEL,
    ND_AXIS_PROBES,  /* what was fed */
    ND_AXIS_OPTIONS, /* of the provider, the session and the capture */
    ND_AXIS_HOST,
    ND_N_AXES,
};

/* "sdk", "chipset", "model", "probes", "options", "host". Static. */
const char *nd_axis_name(enum nd_axis axis);

/* New reference, or NULL when memory is out. */
json_t *nd_axes_of_capture(const struct nd_capture *capture);

/* "SM8650"; of a device that is no Snapdragon its profile or kind; "unknown". Borrowed from axes, or static. */
const char *nd_axes_chipset(const json_t *axes);

/* Fills the axes and the changes of *out. Libraries that one side alone loaded count only when the chipset is
 * the same: each chipset has libraries of its own. An option that follows from another axis that differs does
 * not make its own axis differ. Texts are borrowed from ref and test. False: out of memory. */
bool nd_axes_compare(const json_t *ref, const json_t *test, struct nd_golden_difference *out);

/* Six objects of texts? */
bool nd_axes_are_sound(const json_t *axes);

/* What stands for a name that must not be told: '#' and the first 16 digits of its SHA-256. */
enum { ND_HIDDEN_BYTES = 18 };
void nd_axes_hide(const char *text, char out[static ND_HIDDEN_BYTES]);

/* A copy of the axes without what a user may have chosen: names of probes, profiles, patterns and paths are
 * replaced by what stands for them. NULL when memory is out. */
json_t *nd_axes_hidden(const json_t *axes);

#endif
