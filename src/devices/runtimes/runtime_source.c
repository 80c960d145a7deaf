/* Where a runtime is taken from: an archive or a folder. RECORD of a wheel has a line "PATH,sha256=DIGEST,SIZE"
 * for each of its files. */
#include "devices/runtimes/runtimes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"

/* The first file from `from` on that is "FOLDER.dist-info/<name>", such as RECORD; SIZE_MAX: there is none. */
static size_t nd_wheel_find(const struct nd_runtime_source *source, const char *name, size_t from)
{
    for (size_t i = from; i < source->n; i++) {
        const char *path = source->files[i].name, *slash = strchr(path, '/');
        static const char folder[] = ".dist-info";
        size_t n = sizeof folder - 1;
        if (slash != NULL && (size_t)(slash - path) > n && memcmp(slash - n, folder, n) == 0 &&
            strcmp(slash + 1, name) == 0)
            return i;
    }
    return SIZE_MAX;
}

static int by_name(const void *name, const void *file)
{
    return strcmp(name, ((const struct nd_source_file *)file)->name);
}

/* The path that a line begins with, as CSV: in quotes, which are doubled inside, or without any. *rest: what is
 * after its comma. NULL: it is none. */
static char *take_path(char *line, char **rest)
{
    char *from = line, *to = line;
    if (*line != '"') {
        *rest = strchr(line, ',');
        if (*rest != NULL)
            *(*rest)++ = '\0';
        return *rest != NULL ? line : NULL;
    }
    for (from++; *from != '\0' && (from[0] != '"' || from[1] == '"'); from++) {
        from += *from == '"';
        *to++ = *from;
    }
    bool is_whole = from[0] == '"' && from[1] == ',';
    *rest = from + 2;
    *to = '\0';
    return is_whole ? line : NULL;
}

static enum nd_status read_line(struct nd_runtime_source *source, char *line, size_t number,
                                struct nd_error *err)
{
    static const char algorithm[] = "sha256=";
    char *rest = NULL, *path = take_path(line, &rest);
    if (path == NULL)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: line %zu of its RECORD is not a path, a digest and a size",
                       source->path, number);
    struct nd_source_file *file =
        source->n > 0 ? bsearch(path, source->files, source->n, sizeof *source->files, by_name) : NULL;
    if (file == NULL || strncmp(rest, algorithm, sizeof algorithm - 1) != 0)
        return ND_OK; /* RECORD itself has no digest; what has none, or one of another kind, is not taken */
    rest += sizeof algorithm - 1;
    rest[strcspn(rest, ",=")] = '\0';
    if (file->digest != NULL)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: its RECORD has two lines about '%.200s'", source->path, path);
    file->digest = nd_strdup(rest);
    return file->digest != NULL ? ND_OK : nd_fail_memory(err);
}

/* Gives the files their digests. Lines about files that are not there are passed over. ND_E_RUNTIME_SOURCE: a
 * line that is none, or two of one file. text is used up. */
static enum nd_status nd_wheel_read_record(struct nd_runtime_source *source, char *text, struct nd_error *err)
{
    size_t number = 0;
    source->is_wheel = true;
    for (char *line = text, *next; *line != '\0'; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        line[strcspn(line, "\r")] = '\0';
        number++;
        if (*line != '\0')
            ND_TRY(read_line(source, line, number, err));
    }
    return ND_OK;
}

/* Hexadecimal digits as RECORD writes a digest. New memory; NULL when out of it. */
static char *as_recorded(const char *hex)
{
    unsigned char bytes[64] = {0};
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < 2 * n && i / 2 < sizeof bytes; i++) {
        int digit = hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10;
        bytes[i / 2] = (unsigned char)(bytes[i / 2] << 4 | digit);
    }
    char *text = nd_base64(bytes, n < sizeof bytes ? n : sizeof bytes);
    for (char *c = text; c != NULL && *c != '\0'; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c == '=' ? '\0' : *c;
    return text;
}

/* ND_E_RUNTIME_SOURCE when file i does not have the digest (as hexadecimal digits) that RECORD says, or RECORD
 * says none. */
static enum nd_status nd_wheel_check(const struct nd_runtime_source *source, size_t i, const char *hex,
                                     struct nd_error *err)
{
    const struct nd_source_file *file = &source->files[i];
    if (file->digest == NULL)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: its RECORD has no SHA-256 of '%.200s'", source->path, file->name);
    ND_FREED char *found = as_recorded(hex);
    ND_TRY_MEMORY(found != NULL, err);
    if (strcmp(found, file->digest) != 0)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: its RECORD says that '%.200s' has the SHA-256 %.64s, but it has %s",
                       source->path, file->name, file->digest, found);
    return ND_OK;
}

enum {
    MAX_FILES = 200000,
    MAX_DEPTH = 32,
    MAX_TEXT_BYTES = 1 << 20,
    MAX_RECORD_BYTES = 32 << 20, /* chosen: that of MAX_FILES files of 160 bytes a line */
    BLOCK_BYTES = 1 << 20,
    MAX_RATIO = 1032, /* DEFLATE makes nothing smaller than by this */
    UNIX_LINK = 0120000,
    UNIX_TYPE = 0170000,
};
static const uint64_t max_file_bytes = (uint64_t)4 << 30, max_total_bytes = (uint64_t)32 << 30;

/* ---- the list ---- */

/* Takes name over. */
static enum nd_status add_file(struct nd_runtime_source *source, size_t *capacity, char *name,
                               uint64_t size_bytes, uint64_t index, struct nd_error *err)
{
    if (name == NULL || !nd_grow((void **)&source->files, capacity, source->n + 1, sizeof *source->files)) {
        free(name);
        return nd_fail_memory(err);
    }
    source->files[source->n++] =
        (struct nd_source_file){.name = name, .size_bytes = size_bytes, .index = index};
    return ND_OK;
}

/* ---- folders ---- */

struct walk {
    struct nd_runtime_source *source;
    size_t capacity;
};

static enum nd_status walk_folder(struct walk *walk, const char *relative, int depth, struct nd_error *err);

static enum nd_status visit(struct walk *walk, const char *relative, const char *name, int depth,
                            struct nd_error *err)
{
    struct stat link, info;
    enum nd_status status = ND_OK;
    ND_FREED char *inside = relative[0] != '\0' ? nd_path_join(relative, name) : nd_strdup(name);
    ND_FREED char *path = inside != NULL ? nd_path_join(walk->source->path, inside) : NULL;
    if (path == NULL)
        status = nd_fail_memory(err);
    else if (lstat(path, &link) != 0 || stat(path, &info) != 0)
        ; /* a link to nothing, or gone meanwhile: not a file of the runtime */
    else if (S_ISDIR(link.st_mode))
        status = walk_folder(walk, inside, depth + 1, err);
    else if (S_ISREG(info.st_mode) && walk->source->n >= MAX_FILES)
        status = nd_fail(err, ND_E_RUNTIME_SOURCE, walk->source->path, "'%s' has more than %d files",
                         walk->source->path, MAX_FILES);
    else if (S_ISREG(info.st_mode)) {
        status = add_file(walk->source, &walk->capacity, inside, (uint64_t)info.st_size, 0, err);
        inside = NULL;
    }
    return status;
}

static enum nd_status walk_folder(struct walk *walk, const char *relative, int depth, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(walk->source->path, relative);
    ND_CLEANUP(nd_dir_close) DIR *dir = path != NULL ? opendir(path) : NULL;
    const struct dirent *entry;
    ND_TRY_MEMORY(path != NULL, err);
    if (dir == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    if (depth > MAX_DEPTH)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, path, "'%s' lies more than %d folders deep", path, MAX_DEPTH);
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ND_TRY(visit(walk, relative, entry->d_name, depth, err));
    return ND_OK;
}

/* ---- archives ---- */

static enum nd_status fail_archive(const struct nd_runtime_source *source, const char *member, const char *what,
                                   struct nd_error *err)
{
    return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path, "'%s' is refused: its member '%.200s' %s",
                   source->path, member, what);
}

/* Whether the name stays inside: no root, no drive, no "..", nothing that another program might read so. */
static bool is_name_safe(const char *name)
{
    if (name[0] == '/' || name[0] == '\0' || strchr(name, '\\') != NULL)
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        size_t n = strcspn(part, "/");
        if ((n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    return true;
}

/* Why a member cannot be taken, or NULL. */
static const char *refusal(struct zip *zip, const struct zip_stat *info)
{
    const zip_uint64_t needed =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_INDEX;
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    if ((info->valid & needed) != needed)
        return "has an incomplete entry";
    if (!is_name_safe(info->name))
        return "would lie outside of the folder";
    if (zip_file_get_external_attributes(zip, info->index, 0, &system, &attributes) == 0 &&
        system == ZIP_OPSYS_UNIX && ((attributes >> 16) & UNIX_TYPE) == UNIX_LINK)
        return "is a symbolic link";
    if ((info->valid & ZIP_STAT_ENCRYPTION_METHOD) && info->encryption_method != ZIP_EM_NONE)
        return "is encrypted";
    if (info->size > max_file_bytes || info->size / MAX_RATIO > info->comp_size)
        return "claims a size that it cannot have";
    return NULL;
}

static enum nd_status list_archive(struct nd_runtime_source *source, struct nd_error *err)
{
    zip_int64_t n = zip_get_num_entries(source->zip, 0);
    uint64_t total_bytes = 0;
    size_t capacity = 0;
    if (n > MAX_FILES)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path, "'%s' has more than %d members", source->path,
                       MAX_FILES);
    for (zip_int64_t i = 0; i < n; i++) {
        struct zip_stat info;
        zip_stat_init(&info);
        if (zip_stat_index(source->zip, (zip_uint64_t)i, 0, &info) != 0)
            return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path, "'%s' is damaged: %s", source->path,
                           zip_strerror(source->zip));
        const char *why = refusal(source->zip, &info);
        total_bytes += info.size;
        if (why == NULL && total_bytes > max_total_bytes)
            why = "makes it larger than 32 GiB";
        if (why != NULL)
            return fail_archive(source, info.valid & ZIP_STAT_NAME ? info.name : "", why, err);
        size_t length = strlen(info.name);
        if (info.name[length - 1] != '/')
            ND_TRY(add_file(source, &capacity, nd_strdup(info.name), info.size, info.index, err));
    }
    return ND_OK;
}

static enum nd_status open_archive(struct nd_runtime_source *source, struct nd_error *err)
{
    int code = 0;
    zip_error_t error;
    source->zip = zip_open(source->path, ZIP_RDONLY, &code);
    if (source->zip != NULL)
        return list_archive(source, err);
    zip_error_init_with_code(&error, code);
    enum nd_status status =
        code == ZIP_ER_NOZIP ? nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                                       "'%s' is neither a folder nor a wheel or another zip file", source->path)
                             : nd_fail(err, ND_E_RUNTIME_SOURCE, source->path, "'%s' cannot be read: %s",
                                       source->path, zip_error_strerror(&error));
    zip_error_fini(&error);
    return status;
}

/* ---- opening ---- */

static enum nd_status read_record(struct nd_runtime_source *source, struct nd_error *err);

static enum nd_status check_names(const struct nd_runtime_source *source, struct nd_error *err)
{
    for (size_t i = 1; i < source->n; i++)
        if (strcmp(source->files[i - 1].name, source->files[i].name) == 0)
            return fail_archive(source, source->files[i].name, "is there twice", err);
    return ND_OK;
}

enum nd_status nd_runtime_source_open(const char *path, struct nd_runtime_source *out, struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_source_close) struct nd_runtime_source source = {.path = nd_strdup(path)};
    struct walk walk = {.source = &source};
    struct stat info;
    ND_CLEANUP(nd_fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ND_TRY_MEMORY(source.path != NULL, err);
    if (fd < 0 || fstat(fd, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        ND_TRY(walk_folder(&walk, "", 0, err));
    else if (S_ISREG(info.st_mode))
        ND_TRY(open_archive(&source, err));
    else
        return nd_fail(err, ND_E_RUNTIME_SOURCE, path, "'%s' is neither a folder nor a file", path);
    if (source.n > 1)
        qsort(source.files, source.n, sizeof *source.files, nd_compare_texts);
    ND_TRY(check_names(&source, err));
    if (source.zip != NULL)
        ND_TRY(read_record(&source, err));
    return ND_GIVE(out, source);
}

void nd_runtime_source_close(struct nd_runtime_source *source)
{
    if (source->zip != NULL)
        zip_discard(source->zip);
    ND_FREE_BOTH(source->files, source->n, .name, .digest);
    free(source->path);
    *source = (struct nd_runtime_source){0};
}

/* ---- reading ---- */

/* One file of either kind, being read. */
struct reader {
    const struct nd_runtime_source *source;
    const struct nd_source_file *file;
    struct zip_file *member;
    int fd;
};

static enum nd_status reader_open(struct reader *reader, const struct nd_runtime_source *source, size_t i,
                                  struct nd_error *err)
{
    *reader = (struct reader){.source = source, .file = &source->files[i], .fd = -1};
    if (source->zip != NULL) {
        reader->member = zip_fopen_index(source->zip, reader->file->index, 0);
        if (reader->member == NULL)
            return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path, "cannot read '%s' in '%s': %s",
                           reader->file->name, source->path, zip_strerror(source->zip));
        return ND_OK;
    }
    ND_FREED char *path = nd_path_join(source->path, reader->file->name);
    ND_TRY_MEMORY(path != NULL, err);
    return nd_file_open(path, &reader->fd, NULL, err);
}

static enum nd_status reader_read(struct reader *reader, void *buf, size_t size_bytes, size_t *n_read,
                                  struct nd_error *err)
{
    int64_t n;
    const char *reason;
    if (reader->member != NULL) {
        n = zip_fread(reader->member, buf, size_bytes);
        reason = n < 0 ? zip_file_strerror(reader->member) : "";
    } else {
        do
            n = read(reader->fd, buf, size_bytes);
        while (n < 0 && errno == EINTR);
        reason = n < 0 ? strerror(errno) : "";
    }
    if (n < 0)
        return nd_fail(err, reader->member != NULL ? ND_E_RUNTIME_SOURCE : ND_E_FILE_READ, reader->source->path,
                       "cannot read '%s' in '%s': %s", reader->file->name, reader->source->path, reason);
    *n_read = (size_t)n;
    return ND_OK;
}

static void reader_close(struct reader *reader)
{
    if (reader->member != NULL)
        zip_fclose(reader->member);
    nd_fd_close(&reader->fd);
}

struct cancelling {
    bool (*is_cancelled)(void *);
    void *context;
};

static enum nd_status copy(struct reader *reader, int fd, const char *to, const struct cancelling *cancelling,
                           struct nd_error *err)
{
    uint64_t total = 0;
    size_t n = 1;
    ND_FREED void *block = nd_calloc(BLOCK_BYTES, 1);
    ND_TRY_MEMORY(block != NULL, err);
    while (n > 0) {
        ND_TRY(reader_read(reader, block, BLOCK_BYTES, &n, err));
        ND_TRY(nd_file_write_all(fd, block, n, to, err));
        total += n;
        if (total > reader->file->size_bytes)
            break;
        if (cancelling->is_cancelled != NULL && cancelling->is_cancelled(cancelling->context))
            return nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request");
    }
    if (total != reader->file->size_bytes)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, reader->source->path,
                       "'%s' in '%s' is not as long as the list there says", reader->file->name,
                       reader->source->path);
    return ND_OK;
}

enum nd_status nd_runtime_source_extract(const struct nd_runtime_source *source, size_t i, const char *to,
                                         bool (*is_cancelled)(void *), void *context, struct nd_error *err)
{
    ND_CLEANUP(reader_close) struct reader reader = {.fd = -1};
    const struct cancelling cancelling = {.is_cancelled = is_cancelled, .context = context};
    char hex[ND_SHA256_HEX_BYTES];
    ND_TRY(reader_open(&reader, source, i, err));
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_WRITE, to, "cannot create '%s': %s", to, strerror(errno));
    enum nd_status status = copy(&reader, fd, to, &cancelling, err);
    if (status == ND_OK && source->is_wheel)
        status = nd_sha256_file(to, hex, err);
    if (status == ND_OK && source->is_wheel)
        status = nd_wheel_check(source, i, hex, err);
    if (close(fd) != 0 && status == ND_OK)
        status = nd_fail(err, ND_E_FILE_WRITE, to, "cannot write '%s': %s", to, strerror(errno));
    if (status != ND_OK)
        unlink(to);
    return status;
}

/* At most max_bytes of file i, ended by NUL, in new memory. */
static enum nd_status read_text(const struct nd_runtime_source *source, size_t i, size_t max_bytes, char **out,
                                size_t *n_bytes, struct nd_error *err)
{
    ND_CLEANUP(reader_close) struct reader reader = {.fd = -1};
    uint64_t size = source->files[i].size_bytes;
    size_t n = 0, n_read = 1, room = size < max_bytes ? (size_t)size : max_bytes;
    ND_FREED char *text = nd_calloc(room + 1, 1);
    ND_TRY_MEMORY(text != NULL, err);
    ND_TRY(reader_open(&reader, source, i, err));
    for (; n_read > 0 && n < room; n += n_read)
        ND_TRY(reader_read(&reader, text + n, room - n, &n_read, err));
    *n_bytes = n;
    return ND_GIVE(out, text);
}

enum nd_status nd_runtime_source_text(const struct nd_runtime_source *source, size_t i, char **out,
                                      struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    ND_FREED char *text = NULL;
    size_t n = 0;
    ND_TRY(read_text(source, i, MAX_TEXT_BYTES, &text, &n, err));
    if (source->is_wheel) {
        nd_sha256_bytes(text, n, hex);
        ND_TRY(nd_wheel_check(source, i, hex, err));
    }
    return ND_GIVE(out, text);
}

static enum nd_status read_record(struct nd_runtime_source *source, struct nd_error *err)
{
    static const char record[] = "RECORD";
    size_t file = nd_wheel_find(source, record, 0);
    if (file == SIZE_MAX && nd_wheel_find(source, "METADATA", 0) != SIZE_MAX)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: it is a wheel without RECORD, which says the digests of its files",
                       source->path);
    /* Several: installed packages that were packed again. */
    for (; file != SIZE_MAX; file = nd_wheel_find(source, record, file + 1)) {
        ND_FREED char *text = NULL;
        size_t n;
        if (source->files[file].size_bytes > MAX_RECORD_BYTES)
            return fail_archive(source, source->files[file].name, "is larger than 32 MiB", err);
        ND_TRY(read_text(source, file, MAX_RECORD_BYTES, &text, &n, err));
        ND_TRY(nd_wheel_read_record(source, text, err));
    }
    return ND_OK;
}
