/* How people call a capture, and where it was made; and attributes of a capture in the making: what it says of
 * its device, model, runtime and host. */
#pragma once

#include "npudiff/capture/capture.h"

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

/* The label of its device, else the URI, else the name of the file. Lives as long as the capture. */
const char *nd_capture_name(const struct nd_capture *capture);

/* "2.51.0" of what an import states, or of the runtime "qairt-2.51.0"; NULL: nobody says it. Borrowed. */
const char *nd_capture_sdk(const struct nd_capture *capture);

/* A copy of the name or, where one of the n_before names is equal, the name with a number: "gen3#2". NULL when
 * memory is out. */
char *nd_capture_unique_name(const struct nd_capture *capture, const char *const *before, size_t n_before);

/* "QAIRT 2.51.0, simulator", "QAIRT 2.51.0, real device", "ONNX Runtime 1.31.1, CPU", "emulated"; "" where the
 * capture does not say. NULL when memory is out. The caller frees it. */
char *nd_capture_environment(const struct nd_capture *capture);
