/* Which libraries a run elsewhere loaded: their digests, for the capture. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "devices/phones/remote.h"
#include "devices/agent/spool/record_fields.h"

enum { MAX_LIBRARIES = 1000, HEX_DIGITS = ND_SHA256_HEX_BYTES - 1 };

void nd_remote_free_libraries(struct nd_remote *remote)
{
    for (size_t i = 0; i < remote->n_libraries; i++)
        free(remote->libraries[i].path);
    free(remote->libraries);
    remote->libraries = NULL;
    remote->n_libraries = 0;
}

/* Takes the path; what was sent there has a digest already. */
static enum nd_status add(struct nd_remote *remote, size_t *capacity, char *path, struct nd_error *err)
{
    const char *sha256 = NULL;
    if (path == NULL ||
        !nd_grow((void **)&remote->libraries, capacity, remote->n_libraries + 1, sizeof *remote->libraries)) {
        free(path);
        return nd_fail_memory(err);
    }
    struct nd_remote_library *library = &remote->libraries[remote->n_libraries++];
    *library = (struct nd_remote_library){.path = path};
    sha256 = nd_bundle_sha256(&remote->runtime, path);
    if (sha256 == NULL)
        sha256 = nd_bundle_sha256(&remote->agent, path);
    if (sha256 != NULL)
        memcpy(library->sha256, sha256, ND_SHA256_HEX_BYTES);
    return ND_OK;
}

static enum nd_status list(struct nd_remote *remote, const char *spool, struct nd_error *err)
{
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    size_t capacity = 0;
    enum nd_status status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && remote->n_libraries < MAX_LIBRARIES && nd_spool_next(&reader, &record))
        if (record.kind == ND_RECORD_LIBRARY)
            status = add(remote, &capacity, nd_fields_get(&record, "path"), err);
    nd_spool_reader_close(&reader);
    return status;
}

/* Prints a digest, or "-", for each library that has none yet. */
static char *question(const struct nd_remote *remote)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "for f in");
    for (size_t i = 0; i < remote->n_libraries; i++)
        if (remote->libraries[i].sha256[0] == '\0') {
            nd_strbuf_puts(&text, " ");
            nd_shell_quote(&text, remote->libraries[i].path);
        }
    nd_strbuf_puts(&text, "; do sha256sum < \"$f\" 2>/dev/null || echo -; done");
    return nd_strbuf_take(&text);
}

static void read_answer(struct nd_remote *remote, char *answer)
{
    char *rest = answer;
    for (size_t i = 0; i < remote->n_libraries; i++) {
        if (remote->libraries[i].sha256[0] != '\0')
            continue;
        const char *line = rest != NULL ? strsep(&rest, "\n") : NULL;
        if (line != NULL && strspn(line, "0123456789abcdef") == HEX_DIGITS)
            memcpy(remote->libraries[i].sha256, line, HEX_DIGITS);
    }
}

enum nd_status nd_remote_read_libraries(struct nd_remote *remote, const char *spool, struct nd_error *err)
{
    struct nd_remote_reply reply = {0};
    nd_remote_free_libraries(remote);
    enum nd_status status = list(remote, spool, err);
    if (status != ND_OK || remote->n_libraries == 0)
        return status;
    char *text = question(remote);
    if (text == NULL)
        return nd_fail_memory(err);
    status = nd_transport_shell(remote->transport, text, &reply, err);
    if (status == ND_OK)
        read_answer(remote, reply.out);
    nd_remote_reply_deinit(&reply);
    free(text);
    return status;
}
