/* The inputs of a prepared folder as one file per input of the graph: thousands of small files would each cost
 * a command of the link. They are cut apart there. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "record/qnn/prepare_remote.h"

static const size_t max_list_bytes = (size_t)1 << 30;

/* In the folder there; once. $sizes is set before it. */
static const char expand_script[] =
    "[ -f .expanded ] && exit 0\n"
    "cd \"$(dirname \"$0\")\" || exit 1\n"
    "k=0\n"
    "while read -r line; do\n"
    "    i=0\n"
    "    set -- $sizes\n"
    "    for item in $line; do\n"
    "        path=${item#*:=}\n"
    "        [ -d \"${path%/*}\" ] || mkdir -p \"${path%/*}\" || exit 1\n"
    "        dd if=\"pack.$i\" of=\"$path\" bs=\"$1\" skip=$k count=1 2>/dev/null || {\n"
    "            echo \"cannot write '$path'\" >&2\n"
    "            exit 1\n"
    "        }\n"
    "        shift\n"
    "        i=$((i + 1))\n"
    "    done\n"
    "    k=$((k + 1))\n"
    "done < input_list.txt\n"
    ": > .expanded\n";

struct pack {
    FILE **files; /* by input */
    size_t *sizes;
    size_t n;
    size_t capacity;
    size_t sizes_capacity;
};

static char *pack_path(const char *scratch, size_t i)
{
    char name[40];
    snprintf(name, sizeof name, "pack.%zu", i);
    return nd_path_join(scratch, name);
}

static enum nd_status add_pack(struct pack *pack, const char *scratch, size_t size_bytes, struct nd_error *err)
{
    char *path = pack_path(scratch, pack->n);
    if (path == NULL || !nd_grow((void **)&pack->files, &pack->capacity, pack->n + 1, sizeof(FILE *)) ||
        !nd_grow((void **)&pack->sizes, &pack->sizes_capacity, pack->n + 1, sizeof *pack->sizes)) {
        free(path);
        return nd_fail_memory(err);
    }
    enum nd_status status = ND_OK;
    pack->files[pack->n] = fopen(path, "wbe");
    pack->sizes[pack->n] = size_bytes;
    if (pack->files[pack->n] == NULL)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    else
        pack->n++;
    free(path);
    return status;
}

/* Appends the file that an item of the input list names to pack i. */
static enum nd_status add_item(struct pack *pack, const char *folder, const char *scratch, size_t i,
                               const char *item, struct nd_error *err)
{
    const char *mark = strstr(item, ":=");
    char *path = nd_path_join(folder, mark != NULL ? mark + 2 : item);
    void *bytes = NULL;
    size_t n = 0;
    enum nd_status status =
        path != NULL ? nd_file_read(path, SIZE_MAX / 2, &bytes, &n, err) : nd_fail_memory(err);
    if (status == ND_OK && i == pack->n)
        status = add_pack(pack, scratch, n, err);
    if (status == ND_OK && (n != pack->sizes[i] || fwrite(bytes, 1, n, pack->files[i]) != n))
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot pack '%s': it has %zu bytes, the one before %zu",
                         path, n, pack->sizes[i]);
    free(bytes);
    free(path);
    return status;
}

static enum nd_status add_lines(struct pack *pack, const char *folder, const char *scratch,
                                struct nd_error *err)
{
    void *text = NULL;
    size_t n = 0;
    char *path = nd_path_join(folder, "input_list.txt");
    enum nd_status status =
        path != NULL ? nd_file_read(path, max_list_bytes, &text, &n, err) : nd_fail_memory(err);
    for (char *rest = text, *line; status == ND_OK && (line = strsep(&rest, "\n")) != NULL;) {
        size_t i = 0;
        for (char *item; status == ND_OK && (item = strsep(&line, " ")) != NULL;)
            if (item[0] != '\0')
                status = add_item(pack, folder, scratch, i++, item, err);
    }
    free(text);
    free(path);
    return status;
}

static enum nd_status close_packs(struct pack *pack, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < pack->n; i++)
        if (fclose(pack->files[i]) != 0 && status == ND_OK)
            status = nd_fail(err, ND_E_FILE_WRITE, NULL, "cannot pack the inputs: %s", strerror(errno));
    return status;
}

static enum nd_status add_script(const struct pack *pack, const char *scratch, struct nd_bundle *bundle,
                                 struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text,
                   "# Written by npudiff: cuts the packed inputs into the files of input_list.txt.\nsizes='");
    for (size_t i = 0; i < pack->n; i++)
        nd_strbuf_printf(&text, "%s%zu", i > 0 ? " " : "", pack->sizes[i]);
    nd_strbuf_printf(&text, "'\n%s", expand_script);
    size_t n = text.len;
    char *script = nd_strbuf_take(&text);
    char *path = nd_path_join(scratch, "expand.sh");
    enum nd_status status =
        script != NULL && path != NULL ? nd_file_put(path, script, n, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_bundle_add(bundle, "expand.sh", path, true, err);
    for (size_t i = 0; status == ND_OK && i < pack->n; i++) {
        char *packed = pack_path(scratch, i);
        status = packed != NULL ? nd_bundle_add(bundle, nd_path_base(packed), packed, false, err)
                                : nd_fail_memory(err);
        free(packed);
    }
    free(script);
    free(path);
    return status;
}

enum nd_status nd_prepared_pack(const char *folder, const char *scratch, struct nd_bundle *bundle,
                                struct nd_error *err)
{
    struct pack pack = {0};
    enum nd_status status = nd_dir_make(scratch, err);
    if (status == ND_OK)
        status = add_lines(&pack, folder, scratch, err);
    enum nd_status closed = close_packs(&pack, status == ND_OK ? err : NULL);
    status = status != ND_OK ? status : closed;
    if (status == ND_OK)
        status = add_script(&pack, scratch, bundle, err);
    free(pack.files);
    free(pack.sizes);
    return status;
}
