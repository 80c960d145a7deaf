/* Which libraries this process has loaded, and their build ids (NT_GNU_BUILD_ID). */
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "devices/agent/runtime/runtime.h"

enum { MAX_BUILD_ID_BYTES = 64 };

struct visit {
    nd_library_visitor call;
    void *context;
};

static size_t padded4(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* Finds the NT_GNU_BUILD_ID note in one PT_NOTE segment. */
static void read_build_id(const unsigned char *notes, size_t size_bytes, char hex[2 * MAX_BUILD_ID_BYTES + 1])
{
    while (size_bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) header;
        memcpy(&header, notes, sizeof header);
        size_t name_at = sizeof header;
        size_t value_at = name_at + padded4(header.n_namesz);
        size_t next = value_at + padded4(header.n_descsz);
        if (next > size_bytes)
            return;
        if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
            memcmp(notes + name_at, "GNU", 4) == 0 && header.n_descsz <= MAX_BUILD_ID_BYTES) {
            for (size_t i = 0; i < header.n_descsz; i++)
                snprintf(hex + 2 * i, 3, "%02x", notes[value_at + i]);
            return;
        }
        notes += next;
        size_bytes -= next;
    }
}

static int visit_object(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    (void)info_bytes;
    const struct visit *visit = context;
    char hex[2 * MAX_BUILD_ID_BYTES + 1] = "";
    for (size_t i = 0; i < info->dlpi_phnum && hex[0] == '\0'; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            read_build_id((const unsigned char *)(uintptr_t)(info->dlpi_addr + segment->p_vaddr),
                          segment->p_memsz, hex);
    }
    char self[4096];
    const char *path = info->dlpi_name;
    if (path == NULL || path[0] == '\0') { /* the program itself has no name here */
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n <= 0)
            return 0;
        self[n] = '\0';
        path = self;
    }
    visit->call(visit->context, path, hex);
    return 0;
}

void nd_runtime_visit_libraries(nd_library_visitor visit, void *context)
{
    struct visit wrapped = {.call = visit, .context = context};
    dl_iterate_phdr(visit_object, &wrapped);
}
