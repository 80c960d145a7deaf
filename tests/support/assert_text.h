/* Assertions about parts of long texts: the text goes to stderr whole, which cmocka would cut. Include after
 * cmocka.h. */
#ifndef ND_TESTS_ASSERT_TEXT_H
#define ND_TESTS_ASSERT_TEXT_H

#include <stdio.h>
#include <string.h>

static inline void assert_has(const char *text, const char *wanted)
{
    if (strstr(text, wanted) != NULL)
        return;
    fprintf(stderr, "%s\n", text); /* too long for cmocka */
    fail_msg("above there is no\n%s", wanted);
}

static inline void assert_has_not(const char *text, const char *unwanted)
{
    if (strstr(text, unwanted) == NULL)
        return;
    fprintf(stderr, "%s\n", text);
    fail_msg("above there is\n%s", unwanted);
}

#endif
