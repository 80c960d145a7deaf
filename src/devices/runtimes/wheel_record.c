#include "devices/runtimes/wheel_record.h"

#include <stdlib.h>
#include <string.h>

#include "core/text/base64.h"
#include "core/memory.h"

size_t nd_wheel_find(const struct nd_runtime_source *source, const char *name, size_t from)
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

enum nd_status nd_wheel_read_record(struct nd_runtime_source *source, char *text, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t number = 0;
    source->is_wheel = true;
    for (char *line = text, *next; status == ND_OK && *line != '\0'; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n' ? (*next = '\0', 1) : 0;
        line[strcspn(line, "\r")] = '\0';
        number++;
        if (*line != '\0')
            status = read_line(source, line, number, err);
    }
    return status;
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

enum nd_status nd_wheel_check(const struct nd_runtime_source *source, size_t i, const char *hex,
                              struct nd_error *err)
{
    const struct nd_source_file *file = &source->files[i];
    if (file->digest == NULL)
        return nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                       "'%s' is refused: its RECORD has no SHA-256 of '%.200s'", source->path, file->name);
    char *found = as_recorded(hex);
    if (found == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    if (strcmp(found, file->digest) != 0)
        status = nd_fail(err, ND_E_RUNTIME_SOURCE, source->path,
                         "'%s' is refused: its RECORD says that '%.200s' has the SHA-256 %.64s, but it has %s",
                         source->path, file->name, file->digest, found);
    free(found);
    return status;
}
