/* Holding what was found against fresh codes: random ones, under scales that nothing was solved with. */
#ifndef ND_FINGERPRINT_FRESH_H
#define ND_FINGERPRINT_FRESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fewer fresh codes confirm nothing, nor does a smaller share of right ones. */
enum { ND_CONFIRMING_CODES = 100000 };
#define ND_CONFIRMING_SHARE 0.999
bool nd_fresh_is_enough(uint64_t n_fresh, uint64_t n_right);

/* Of n programs, of which program i gave n_right[i] fresh codes, only those that gave the most stay, in their
 * order, at the front. How many; *most is what they gave, 0 without any. */
size_t nd_fresh_keep_best(void *programs, size_t program_bytes, size_t n, const uint64_t *n_right,
                          uint64_t *most);

#endif
