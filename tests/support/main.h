/* What every unit test file needs, in the order cmocka wants it. */
#ifndef ND_TESTS_MAIN_H
#define ND_TESTS_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_bits.h"

/* Sanitizers find the same in each round of a loop over seeds, and take up to ten times as long for it. */
#if defined __has_feature
#define ND_HAS_SANITIZER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define ND_HAS_SANITIZER 1
#else
#define ND_HAS_SANITIZER 0
#endif
enum { ND_SANITIZED_SHARE = ND_HAS_SANITIZER ? 4 : 1 };

#endif
