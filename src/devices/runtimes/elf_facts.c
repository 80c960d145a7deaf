/* What an ELF file says of itself: for which machine it is, and what it needs. */
#include "devices/runtimes/runtimes.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"

enum {
    MAX_NEEDED = 256,
    MAX_BUILD_ID_BYTES = 64,
    MACHINE_HEXAGON = 164, /* EM_QDSP6; older <elf.h> do not name it */
};

/* What is read on the way to the facts. */
struct elf_file {
    const char *path;
    Elf *elf;
    uint64_t size_bytes;
    bool has_android_note;
    bool has_glibc; /* linked with it */
    bool has_bionic;
};

/* libelf fails in the same ways where memory is out; nd_elf_read has cleared errno. */
static enum nd_status fail_damaged(const struct elf_file *file, const char *what, struct nd_error *err)
{
    ND_TRY_MEMORY(errno != ENOMEM, err);
    return nd_fail(err, ND_E_RUNTIME_LIBRARY, file->path, "'%s' is damaged: %s", file->path, what);
}

/* A range of the file as bytes, or NULL where it is not inside. libelf owns it. */
static const char *range(const struct elf_file *file, uint64_t at, uint64_t size_bytes, Elf_Type type,
                         Elf_Data **data)
{
    if (at > file->size_bytes || size_bytes > file->size_bytes - at)
        return NULL;
    *data = elf_getdata_rawchunk(file->elf, (int64_t)at, size_bytes, type);
    return *data != NULL ? (*data)->d_buf : NULL;
}

/* ---- notes ---- */

static bool take_build_id(struct nd_elf_facts *facts, const unsigned char *bytes, size_t n)
{
    struct nd_strbuf text = {0};
    if (facts->build_id != NULL || n > MAX_BUILD_ID_BYTES)
        return true;
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(&text, "%02x", bytes[i]);
    facts->build_id = nd_strbuf_take(&text);
    return facts->build_id != NULL;
}

static enum nd_status read_notes(struct elf_file *file, const GElf_Phdr *segment, struct nd_elf_facts *facts,
                                 struct nd_error *err)
{
    Elf_Data *data = NULL;
    if (segment->p_filesz == 0)
        return ND_OK;
    const char *bytes = range(file, segment->p_offset, segment->p_filesz,
                              segment->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR, &data);
    if (bytes == NULL)
        return fail_damaged(file, "a note lies outside of it", err);
    GElf_Nhdr header;
    size_t at = 0, name_at, value_at;
    while ((at = gelf_getnote(data, at, &header, &name_at, &value_at)) > 0) {
        if (header.n_namesz == 8 && memcmp(bytes + name_at, "Android", 8) == 0)
            file->has_android_note = true;
        if (header.n_namesz == 4 && memcmp(bytes + name_at, "GNU", 4) == 0 &&
            header.n_type == NT_GNU_BUILD_ID &&
            !take_build_id(facts, (const unsigned char *)bytes + value_at, header.n_descsz))
            return nd_fail_memory(err);
    }
    return ND_OK;
}

/* ---- the dynamic section ---- */

/* The file offset of what is loaded at `address`; false when nothing of the file is. */
static bool offset_of(const struct elf_file *file, size_t n_segments, uint64_t address, uint64_t *at,
                      uint64_t *size_bytes)
{
    for (size_t i = 0; i < n_segments; i++) {
        GElf_Phdr segment;
        if (gelf_getphdr(file->elf, (int)i, &segment) == NULL || segment.p_type != PT_LOAD ||
            address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz)
            continue;
        uint64_t inside = address - segment.p_vaddr;
        if (segment.p_offset > UINT64_MAX - inside)
            return false;
        *at = segment.p_offset + inside;
        *size_bytes = segment.p_filesz - inside;
        return true;
    }
    return false;
}

struct dynamic {
    uint64_t strings_address, strings_bytes, soname;
    bool has_soname;
    size_t n_needed;
    uint64_t needed[MAX_NEEDED];
    const char *strings; /* of strings_bytes; libelf's */
};

/* A text of the string table; NULL when it is not one. */
static const char *string_at(const struct dynamic *dynamic, uint64_t at)
{
    if (at >= dynamic->strings_bytes ||
        memchr(dynamic->strings + at, '\0', (size_t)(dynamic->strings_bytes - at)) == NULL)
        return NULL;
    return dynamic->strings + at;
}

static void note_entry(struct dynamic *dynamic, const GElf_Dyn *entry)
{
    if (entry->d_tag == DT_STRTAB) {
        dynamic->strings_address = entry->d_un.d_ptr;
    } else if (entry->d_tag == DT_STRSZ) {
        dynamic->strings_bytes = entry->d_un.d_val;
    } else if (entry->d_tag == DT_SONAME) {
        dynamic->soname = entry->d_un.d_val;
        dynamic->has_soname = true;
    } else if (entry->d_tag == DT_NEEDED && dynamic->n_needed < MAX_NEEDED) {
        dynamic->needed[dynamic->n_needed++] = entry->d_un.d_val;
    }
}

/* ONNX Runtime exports its one function as version VERS_<its own>, which so stands in the string table. */
static bool take_version(const struct dynamic *dynamic, struct nd_elf_facts *facts)
{
    static const char mark[] = "VERS_";
    for (uint64_t at = 0; at < dynamic->strings_bytes; at++) {
        const char *text = string_at(dynamic, at);
        if (text == NULL)
            return true;
        if (strncmp(text, mark, strlen(mark)) == 0 && text[strlen(mark)] >= '0' && text[strlen(mark)] <= '9') {
            facts->version = nd_strdup(text + strlen(mark));
            return facts->version != NULL;
        }
        at += strlen(text);
    }
    return true;
}

static enum nd_status take_dynamic(struct elf_file *file, const struct dynamic *dynamic,
                                   struct nd_elf_facts *facts, struct nd_error *err)
{
    const char *soname = dynamic->has_soname ? string_at(dynamic, dynamic->soname) : NULL;
    if (dynamic->has_soname && soname == NULL)
        return fail_damaged(file, "its name lies outside of its strings", err);
    facts->soname = nd_strdup(soname);
    facts->needed = nd_calloc(dynamic->n_needed, sizeof *facts->needed);
    ND_TRY_MEMORY(facts->needed != NULL && (soname == NULL || facts->soname != NULL) &&
                      take_version(dynamic, facts),
                  err);
    for (size_t i = 0; i < dynamic->n_needed; i++) {
        const char *needed = string_at(dynamic, dynamic->needed[i]);
        if (needed == NULL)
            return fail_damaged(file, "the name of a library that it needs lies outside of its strings", err);
        if (strcmp(needed, "libc.so.6") == 0)
            file->has_glibc = true;
        else if (strcmp(needed, "libc.so") == 0 || strcmp(needed, "liblog.so") == 0)
            file->has_bionic = true;
        facts->needed[facts->n_needed] = nd_strdup(needed);
        ND_TRY_MEMORY(facts->needed[facts->n_needed++] != NULL, err);
    }
    return ND_OK;
}

static enum nd_status read_dynamic(struct elf_file *file, const GElf_Phdr *segment, size_t n_segments,
                                   struct nd_elf_facts *facts, struct nd_error *err)
{
    struct dynamic dynamic = {0};
    Elf_Data *data = NULL;
    if (facts->needed != NULL)
        return fail_damaged(file, "it has two dynamic sections", err);
    if (range(file, segment->p_offset, segment->p_filesz, ELF_T_DYN, &data) == NULL)
        return fail_damaged(file, "its dynamic section lies outside of it (is it cut off?)", err);
    GElf_Dyn entry;
    for (int i = 0; gelf_getdyn(data, i, &entry) != NULL && entry.d_tag != DT_NULL; i++)
        note_entry(&dynamic, &entry);
    uint64_t at = 0, available = 0;
    Elf_Data *strings = NULL;
    if (!offset_of(file, n_segments, dynamic.strings_address, &at, &available) ||
        dynamic.strings_bytes > available || dynamic.strings_bytes == 0 ||
        (dynamic.strings = range(file, at, dynamic.strings_bytes, ELF_T_BYTE, &strings)) == NULL)
        return fail_damaged(file, "its strings lie outside of it (is it cut off?)", err);
    return take_dynamic(file, &dynamic, facts, err);
}

/* ---- the file ---- */

static enum nd_status read_segments(struct elf_file *file, struct nd_elf_facts *facts, struct nd_error *err)
{
    size_t n = 0;
    if (elf_getphdrnum(file->elf, &n) != 0 || n > INT32_MAX)
        return fail_damaged(file, elf_errmsg(-1), err);
    for (size_t i = 0; i < n; i++) {
        GElf_Phdr segment;
        if (gelf_getphdr(file->elf, (int)i, &segment) == NULL)
            return fail_damaged(file, elf_errmsg(-1), err);
        if (segment.p_type == PT_LOAD &&
            (segment.p_offset > file->size_bytes || segment.p_filesz > file->size_bytes - segment.p_offset))
            ND_TRY(fail_damaged(file, "it is shorter than its header says (is it cut off?)", err));
        else if (segment.p_type == PT_NOTE)
            ND_TRY(read_notes(file, &segment, facts, err));
        else if (segment.p_type == PT_DYNAMIC)
            ND_TRY(read_dynamic(file, &segment, n, facts, err));
    }
    return ND_OK;
}

/* Android from its note or its libc; a library that is linked with neither libc counts as Linux. */
static void name_machine(const struct elf_file *file, const GElf_Ehdr *header, struct nd_elf_facts *facts)
{
    bool is_android = file->has_android_note || (file->has_bionic && !file->has_glibc);
    bool is_little = header->e_ident[EI_DATA] == ELFDATA2LSB, is_64 = header->e_ident[EI_CLASS] == ELFCLASS64;
    facts->abi = NULL;
    if (header->e_machine == EM_X86_64) {
        snprintf(facts->machine, sizeof facts->machine, "x86-64%s", is_android ? " Android" : "");
        facts->abi = is_64 && !is_android ? "x86_64-linux" : NULL;
    } else if (header->e_machine == EM_AARCH64) {
        snprintf(facts->machine, sizeof facts->machine, "AArch64%s", is_android ? " Android" : "");
        if (is_64 && is_little)
            facts->abi = is_android ? "aarch64-android" : "aarch64-linux";
    } else if (header->e_machine == MACHINE_HEXAGON) {
        snprintf(facts->machine, sizeof facts->machine, "Hexagon");
        facts->abi = "hexagon";
    } else if (header->e_machine == EM_ARM) {
        snprintf(facts->machine, sizeof facts->machine, "32-bit Arm");
    } else if (header->e_machine == EM_386) {
        snprintf(facts->machine, sizeof facts->machine, "32-bit x86");
    } else {
        snprintf(facts->machine, sizeof facts->machine, "machine %u", (unsigned int)header->e_machine);
    }
}

static enum nd_status read_open_elf(struct elf_file *file, bool *is_elf, struct nd_elf_facts *facts,
                                    struct nd_error *err)
{
    GElf_Ehdr header;
    *is_elf = elf_kind(file->elf) == ELF_K_ELF;
    if (!*is_elf)
        return ND_OK;
    if (gelf_getehdr(file->elf, &header) == NULL)
        return fail_damaged(file, elf_errmsg(-1), err);
    ND_TRY(read_segments(file, facts, err));
    name_machine(file, &header, facts);
    return ND_OK;
}

enum nd_status nd_elf_read(const char *path, bool *is_elf, struct nd_elf_facts *out, struct nd_error *err)
{
    struct elf_file file = {.path = path};
    struct nd_elf_facts facts = {0};
    bool is = false;
    if (elf_version(EV_CURRENT) == EV_NONE)
        return nd_fail(err, ND_E_RUNTIME_LIBRARY, path, "libelf is too old");
    int fd;
    enum nd_status status = nd_file_open(path, &fd, &file.size_bytes, err);
    if (status != ND_OK)
        return status;
    errno = 0;
    if (file.size_bytes > 0) {
        file.elf = elf_begin(fd, ELF_C_READ, NULL);
        status = file.elf != NULL ? read_open_elf(&file, &is, &facts, err)
                                  : fail_damaged(&file, elf_errmsg(-1), err);
    }
    elf_end(file.elf);
    close(fd);
    if (status != ND_OK) {
        nd_elf_deinit(&facts);
        return status;
    }
    *is_elf = is;
    *out = facts;
    return ND_OK;
}

void nd_elf_deinit(struct nd_elf_facts *facts)
{
    ND_FREE_ALL(facts->soname, facts->build_id, facts->version);
    ND_FREE_ITEMS(facts->needed, facts->n_needed);
    *facts = (struct nd_elf_facts){0};
}

/* ---- QNN's build id ---- */

enum { BLOCK_BYTES = 1 << 20, MAX_QNN_BUILD_BYTES = 64 };

static size_t n_digits(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] >= '0' && text[i] <= '9')
        i++;
    return i;
}

/* Length of "v2.<n>.<n>.<six digits or more>" at the start of the text, or 0. */
static size_t qnn_build_bytes(const char *text, size_t n)
{
    size_t at = 2;
    if (n < 3 || text[0] != 'v' || text[1] != '2')
        return 0;
    for (int part = 0; part < 3; part++) {
        size_t digits = at < n && text[at] == '.' ? n_digits(text + at + 1, n - at - 1) : 0;
        if (digits < (part == 2 ? 6u : 1u) || digits > 16)
            return 0;
        at += 1 + digits;
    }
    return at;
}

/* Looks through the block; what may go on behind its end is left for the next one. */
static size_t search(const char *block, size_t n, size_t *found_bytes)
{
    for (const char *at = block; (at = memchr(at, 'v', (size_t)(block + n - at))) != NULL; at++) {
        *found_bytes = qnn_build_bytes(at, (size_t)(block + n - at));
        if (*found_bytes > 0)
            return (size_t)(at - block);
    }
    return n;
}

enum nd_status nd_elf_find_qnn_build(const char *path, char **out, struct nd_error *err)
{
    size_t n_kept = 0, n_read, found_bytes = 0;
    ND_CLEANUP(nd_stdio_close) FILE *file = fopen(path, "re");
    ND_FREED char *block = nd_calloc(BLOCK_BYTES + MAX_QNN_BUILD_BYTES, 1), *build = NULL;
    if (file == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    ND_TRY_MEMORY(block != NULL, err);
    while (build == NULL && (n_read = fread(block + n_kept, 1, BLOCK_BYTES, file)) > 0) {
        size_t n = n_kept + n_read, at = search(block, n, &found_bytes);
        bool may_go_on = at + found_bytes == n && feof(file) == 0;
        n_kept = n < MAX_QNN_BUILD_BYTES ? n : MAX_QNN_BUILD_BYTES;
        if (found_bytes > 0 && !may_go_on)
            ND_TRY_MEMORY((build = strndup(block + at, found_bytes)) != NULL, err);
        memmove(block, block + n - n_kept, n_kept);
    }
    if (build == NULL && n_kept > 0) { /* one that ends with the file */
        size_t at = search(block, n_kept, &found_bytes);
        build = found_bytes > 0 ? strndup(block + at, found_bytes) : NULL;
        ND_TRY_MEMORY(found_bytes == 0 || build != NULL, err);
    }
    if (ferror(file))
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    return ND_GIVE(out, build);
}
