/* Whether a word is one of a few. */
#pragma once

#include <stdbool.h>

/* words ends with NULL. False for a word that is NULL. */
bool nd_is_one_of(const char *word, const char *const *words);

/* "Conv Gemm" has the word "Conv", and "" alone the word "". */
bool nd_has_word(const char *words, const char *word);

/* ND_IS_ONE_OF(op_type, "Conv", "Gemm") */
#define ND_IS_ONE_OF(word, ...) nd_is_one_of(word, (const char *const[]){__VA_ARGS__, NULL})
