#include "devices/agent/runner/mapped.h"

#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BUILD_ID_BYTES = 64 };

static bool read_note(Elf_Data *data, char *hex)
{
    GElf_Nhdr note;
    size_t name, value, at = 0;
    while (data != NULL && (at = gelf_getnote(data, at, &note, &name, &value)) > 0) {
        const unsigned char *bytes = data->d_buf;
        if (note.n_type != NT_GNU_BUILD_ID || note.n_descsz > MAX_BUILD_ID_BYTES)
            continue;
        for (size_t i = 0; i < note.n_descsz; i++)
            snprintf(hex + 2 * i, 3, "%02x", bytes[value + i]);
        return true;
    }
    return false;
}

static void read_build_id(const char *path, char *hex)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
    if (elf != NULL && elf_getphdrnum(elf, &n) == 0)
        for (size_t i = 0; i < n; i++) {
            GElf_Phdr segment;
            if (gelf_getphdr(elf, (int)i, &segment) == NULL || segment.p_type != PT_NOTE)
                continue;
            if (read_note(elf_getdata_rawchunk(elf, (int64_t)segment.p_offset, segment.p_filesz, ELF_T_NHDR),
                          hex))
                break;
        }
    elf_end(elf);
    if (fd >= 0)
        close(fd);
}

void nd_visit_mapped(pid_t pid, nd_library_visitor visit, void *context)
{
    char name[64], line[4608], last[4352] = "";
    snprintf(name, sizeof name, "/proc/%ld/maps", (long)pid);
    FILE *maps = fopen(name, "re");
    if (maps == NULL || elf_version(EV_CURRENT) == EV_NONE) {
        if (maps != NULL)
            fclose(maps);
        return;
    }
    while (fgets(line, sizeof line, maps) != NULL) {
        char access[8], path[4352] = "", hex[2 * MAX_BUILD_ID_BYTES + 1] = "";
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%*s %7s %*s %*s %*s %4351[^\n]", access, path) != 2 || access[2] != 'x' ||
            path[0] != '/' || strcmp(path, last) == 0)
            continue;
        snprintf(last, sizeof last, "%s", path);
        read_build_id(path, hex);
        visit(context, path, hex);
    }
    fclose(maps);
}
