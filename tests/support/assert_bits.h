/* Assertions that compare floats by their bits: cmocka's assert_float_equal passes NaN against 1. Include after
 * cmocka.h. */
#ifndef ND_TESTS_ASSERT_BITS_H
#define ND_TESTS_ASSERT_BITS_H

#include <stdint.h>
#include <string.h>

#define assert_f32_bits(actual, expected)                                                                      \
    do {                                                                                                       \
        float a_ = (actual), e_ = (expected);                                                                  \
        uint32_t ab_, eb_;                                                                                     \
        memcpy(&ab_, &a_, sizeof ab_);                                                                         \
        memcpy(&eb_, &e_, sizeof eb_);                                                                         \
        assert_int_equal(ab_, eb_);                                                                            \
    } while (0)

#define assert_f64_bits(actual, expected)                                                                      \
    do {                                                                                                       \
        double a_ = (actual), e_ = (expected);                                                                 \
        uint64_t ab_, eb_;                                                                                     \
        memcpy(&ab_, &a_, sizeof ab_);                                                                         \
        memcpy(&eb_, &e_, sizeof eb_);                                                                         \
        assert_true(ab_ == eb_);                                                                               \
    } while (0)

#endif
