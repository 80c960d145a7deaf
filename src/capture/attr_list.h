/* Attributes of a capture in the making: what it says of its device, model, runtime and host. */
#ifndef ND_CAPTURE_ATTR_LIST_H
#define ND_CAPTURE_ATTR_LIST_H

#include <time.h>

#include "npudiff/capture.h"

struct nd_attr_list {
    struct nd_attr *attrs;
    size_t n;
    size_t capacity;
};

/* Add one attribute to a group ("" for the root). text may be NULL, which is "". False when out of memory: the
 * provenance is then only good for nd_attr_list_deinit. */
bool nd_attr_list_add_text(struct nd_attr_list *provenance, const char *group, const char *key,
                           const char *text);
bool nd_attr_list_add_number(struct nd_attr_list *provenance, const char *group, const char *key,
                             int64_t number);
bool nd_attr_list_add_real(struct nd_attr_list *provenance, const char *group, const char *key, double real);

void nd_attr_list_deinit(struct nd_attr_list *provenance);

/* The time that SOURCE_DATE_EPOCH sets. False where it is not set: then *out is left alone. */
bool nd_source_date_epoch(time_t *out);

/* Whether SOURCE_DATE_EPOCH is set: then nothing that differs between two equal runs is stored. */
bool nd_is_reproducible(void);

#endif
