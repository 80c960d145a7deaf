/* Fuzz targets: each file beside this one is one, for one kind of file that strangers send. libFuzzer calls it
 * (clang, -Dfuzzers=true), or driver.c. A target must not crash, hang or leak, whatever the bytes are; what is
 * in the files is not judged. */
#ifndef ND_TESTS_FUZZ_H
#define ND_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Changes size bytes in room for more, by chance: libFuzzer has it, or driver.c. The new size. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* A target may have it: the same, by what it knows of its files. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

/* A folder of this process, without '/' behind it; it goes at its end. Static. */
const char *fuzz_folder(void);

/* Writes the bytes to the file of that name in the folder, and gives its path: static, until the next call. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);

#endif
