/* Names of tensors, probes and logs as names of HDF5 links, and back. */
#include "capture/read/link_names.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

static void append_escaped(struct nd_strbuf *buf, const char *name)
{
    if (name[0] == '\0')
        nd_strbuf_puts(buf, "%00");
    else if (name[strspn(name, ".")] == '\0')
        nd_strbuf_printf(buf, "%%2E%s", name + 1);
    else
        for (const char *at = name; *at != '\0'; at++) {
            if (*at == '%')
                nd_strbuf_puts(buf, "%25");
            else if (*at == '/')
                nd_strbuf_puts(buf, "%2F");
            else
                nd_strbuf_append(buf, at, 1);
        }
}

char *nd_name_escape(const char *name)
{
    struct nd_strbuf buf = {0};
    append_escaped(&buf, name);
    return nd_strbuf_take(&buf);
}

enum nd_status nd_name_unescape(const char *link, const char *path, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    for (const char *at = link; *at != '\0'; at++) {
        char decoded = *at;
        if (strncmp(at, "%25", 3) == 0)
            decoded = '%';
        else if (strncmp(at, "%2F", 3) == 0)
            decoded = '/';
        else if (strncmp(at, "%2E", 3) == 0)
            decoded = '.';
        if (strcmp(link, "%00") != 0)
            nd_strbuf_append(&buf, &decoded, 1);
        if (*at == '%' && strlen(at) >= 3)
            at += 2;
    }
    char *name = nd_strbuf_take(&buf);
    /* One spelling for each name: whatever does not come back is not ours. */
    char *again = name != NULL ? nd_name_escape(name) : NULL;
    enum nd_status status = ND_OK;
    if (again == NULL)
        status = nd_fail_memory(err);
    else if (strcmp(again, link) != 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is not a name that npudiff writes", path);
    free(again);
    if (status == ND_OK)
        *out = name;
    else
        free(name);
    return status;
}

char *nd_name_path(const char *group, const char *name)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_printf(&buf, "%s/", group);
    append_escaped(&buf, name);
    return nd_strbuf_take(&buf);
}

char *nd_name_probe_path(const char *probe, const char *part, const char *name)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_puts(&buf, "/probes/");
    append_escaped(&buf, probe);
    nd_strbuf_printf(&buf, "/%s", part);
    if (name != NULL) {
        nd_strbuf_puts(&buf, "/");
        append_escaped(&buf, name);
    }
    return nd_strbuf_take(&buf);
}
