/* What every unit test file needs, in the order cmocka wants it. */
#ifndef ND_TESTS_MAIN_H
#define ND_TESTS_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_bits.h"
#include "support/sanitizer.h"

/* Sanitizers find the same in each round of a loop over seeds, and take up to ten times as long for it. */
enum { ND_SANITIZED_SHARE = ND_HAS_SANITIZER ? 4 : 1 };

#endif
