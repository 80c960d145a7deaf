/* What a twin says of a tensor that it does not know.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_ARITHMETIC_TWIN_MARK_H
#define NPUDIFF_ARITHMETIC_TWIN_MARK_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* If neither is set, the values of the tensor are claimed to be right in every bit. */
struct nd_twin_mark {
    const char *why; /* it was rounded exactly, or is not certain; static. NULL: neither */
    bool is_behind;  /* it follows from a tensor that is not known */
};

#ifdef __cplusplus
}
#endif
#endif
