/* Quantised values that the simulator of the HTP made, of golden/programs. */
#ifndef ND_TESTS_SUPPORT_ARITHMETIC_QVALUES_H
#define ND_TESTS_SUPPORT_ARITHMETIC_QVALUES_H

#include <stdio.h>
#include <stdlib.h>

/* All of "<group><name>.<part>.bin", fewer than max_bytes; how many bytes. */
static size_t read_arithmetic_qvalues(const char *group, const char *name, const char *part,
                                      unsigned char *bytes, size_t max_bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/programs/%s%s.%s.bin", getenv("GOLDEN"), group, name, part);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, max_bytes, file);
    assert_true(n > 0 && n < max_bytes);
    assert_int_equal(fclose(file), 0);
    return n;
}

#endif
