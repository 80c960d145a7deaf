/* What every unit test file needs, in the order cmocka wants it. */
#ifndef ND_TESTS_MAIN_H
#define ND_TESTS_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_bits.h"

#endif
