/* Options structs of callers that were compiled against another version of the public headers.
 *
 * The first member of such a struct is `size_t struct_size`: the size that the caller knows. New members are
 * only added at the end, after the old end of the struct (never into padding), and zero in them means what the
 * library did before they existed. npudiff/npudiff.h states these rules for callers; tools/abi checks them. */
#pragma once

#include <stddef.h>

#include "npudiff/core/status.h"

/* Copies what the caller gave over `own`, our struct of own_bytes, which holds the defaults before the call. A
 * shorter struct leaves the defaults in the members that it lacks; a longer one is accepted while the bytes
 * after ours are zero. given NULL: `own` keeps the defaults. own's struct_size is own_bytes afterwards.
 *
 * ND_E_OPTION_STRUCT: struct_size is smaller than itself: the caller did not set it. ND_E_OPTION_NEWER: a
 * member that this version does not know is set. `own` is then unchanged. */
enum nd_status nd_options_read(void *own, size_t own_bytes, const void *given, struct nd_error *err);

/* Fills the caller's struct of given_bytes from `own`, our struct of own_bytes that holds the defaults: a
 * shorter one gets the start, in a longer one the rest is zero. Its struct_size becomes given_bytes. */
void nd_options_write(void *given, size_t given_bytes, const void *own, size_t own_bytes);
