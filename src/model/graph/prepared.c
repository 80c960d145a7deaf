/* Models that hold, or name, a binary made for one NPU beforehand: EPContext nodes. */
#include "model/graph/prepared.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "npudiff/core/parse.h"

enum { BLOCK_BYTES = 1 << 20, OVERLAP_BYTES = 64 };

/* Copies what fits and looks like a name or version: it is printed later. */
static void take_word(const char *from, size_t n, char *to, size_t n_to)
{
    size_t i = 0;
    while (i < n && i + 1 < n_to && from[i] > ' ' && from[i] < 0x7f && from[i] != ';') {
        to[i] = from[i];
        i++;
    }
    to[i] = '\0';
}

/* Finds "soc_type=SM8650;" in a piece of a binary. At the end of a piece that is not the last one the word may
 * be cut: it is left for the next piece. */
static bool find_chipset(const char *bytes, size_t n, bool is_last, struct nd_prepared *out)
{
    static const char mark[] = "soc_type=";
    size_t n_mark = sizeof mark - 1;
    const char *at = memmem(bytes, n, mark, n_mark);
    size_t n_left = at != NULL ? n - (size_t)(at - bytes) : 0;
    if (at == NULL || (!is_last && n_left < OVERLAP_BYTES))
        return false;
    take_word(at + n_mark, n_left - n_mark, out->chipset, sizeof out->chipset);
    return true;
}

/* Binaries may have gigabytes: a piece at a time, each with the end of the one before it. */
static enum nd_status read_binary(const char *path, struct nd_prepared *out, struct nd_error *err)
{
    ND_FREED char *block = nd_calloc(OVERLAP_BYTES + BLOCK_BYTES, 1);
    int fd = -1;
    ND_TRY_MEMORY(block != NULL, err);
    ND_TRY(nd_file_open(path, &fd, NULL, err));
    ND_CLEANUP(nd_stdio_close) FILE *file = fdopen(fd, "rb");
    if (file == NULL) {
        close(fd);
        return nd_fail_memory(err);
    }
    for (size_t n = 1; n > 0;) {
        n = fread(block + OVERLAP_BYTES, 1, BLOCK_BYTES, file);
        if (ferror(file))
            return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
        if (find_chipset(block, OVERLAP_BYTES + n, n < BLOCK_BYTES, out))
            break;
        memmove(block, block + n, OVERLAP_BYTES);
    }
    return ND_OK;
}

/* "v2:6:2.51.0:5.51.0:0:57:0:0": the sixth is the chipset. */
static void read_metadata(const Onnx__ModelProto *proto, struct nd_prepared *out)
{
    for (size_t i = 0; i < proto->n_metadata_props; i++) {
        const char *at = nd_onnx_text(proto->metadata_props[i]->value);
        if (strcmp(nd_onnx_text(proto->metadata_props[i]->key), "ep_compatibility_info.QNNExecutionProvider") !=
                0 ||
            strncmp(at, "v2:", 3) != 0)
            continue;
        for (int field = 0; at != NULL && field < 5; field++)
            at = (at = strchr(at, ':')) != NULL ? at + 1 : NULL;
        char number[8] = "";
        uint64_t value;
        if (at != NULL)
            take_word(at, strcspn(at, ":"), number, sizeof number);
        if (nd_parse_u64(number, &value) && value < 100000)
            out->soc_model = (int)value;
    }
}

static void read_node(const Onnx__NodeProto *node, struct nd_prepared *out)
{
    const Onnx__AttributeProto *sdk = nd_onnx_attribute(node, "ep_sdk_version");
    const Onnx__AttributeProto *binary = nd_onnx_attribute(node, "ep_cache_context");
    out->exists = true;
    if (sdk != NULL && sdk->has_s && sdk->s.len > 0 && out->sdk[0] == '\0') {
        size_t skip = sdk->s.data[0] == 'v';
        take_word((const char *)sdk->s.data + skip, sdk->s.len - skip, out->sdk, sizeof out->sdk);
    }
    if (out->chipset[0] == '\0' && binary != NULL && binary->has_s)
        find_chipset((const char *)binary->s.data, binary->s.len, true, out);
}

enum nd_status nd_prepared_read(const struct nd_model *model, struct nd_prepared *out, struct nd_error *err)
{
    struct nd_prepared found = {0};
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_node; i++)
        if (nd_external_is_prepared(graph->node[i]))
            read_node(graph->node[i], &found);
    if (found.exists)
        read_metadata(model->proto, &found);
    for (size_t i = 0; found.exists && found.chipset[0] == '\0' && i < model->external.n; i++)
        ND_TRY(read_binary(model->external.files[i].path, &found, err));
    *out = found;
    return ND_OK;
}
