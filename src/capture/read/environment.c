/* What a capture says of its device and of where it was made, also while it is made: lists of attributes.
 * docs/reference/capture-format.md. */
#include "capture/read/environment.h"

#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/capture/captured_model.h"

/* ---- attributes of a capture in the making ---- */

static struct nd_attr *add(struct nd_attr_list *provenance, const char *group, const char *key)
{
    if (!nd_grow((void **)&provenance->attrs, &provenance->capacity, provenance->n + 1,
                 sizeof *provenance->attrs))
        return NULL;
    struct nd_attr *attr = &provenance->attrs[provenance->n++];
    *attr = (struct nd_attr){.group = nd_strdup(group), .key = nd_strdup(key)};
    return attr->group != NULL && attr->key != NULL ? attr : NULL;
}

bool nd_attr_list_add_text(struct nd_attr_list *provenance, const char *group, const char *key,
                           const char *text)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_STRING;
    attr->string = nd_strdup(text != NULL ? text : "");
    return attr->string != NULL;
}

bool nd_attr_list_add_number(struct nd_attr_list *provenance, const char *group, const char *key,
                             int64_t number)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_I64;
    attr->i64 = number;
    return true;
}

bool nd_attr_list_add_real(struct nd_attr_list *provenance, const char *group, const char *key, double real)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_F64;
    attr->f64 = real;
    return true;
}

void nd_attr_list_deinit(struct nd_attr_list *provenance)
{
    for (size_t i = 0; i < provenance->n; i++) {
        free(provenance->attrs[i].group);
        free(provenance->attrs[i].key);
        free(provenance->attrs[i].string);
    }
    free(provenance->attrs);
    *provenance = (struct nd_attr_list){0};
}

/* ---- what a capture says ---- */

bool nd_capture_is_called_npu(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    static const char *const others[] = {"cpu", "gpu",  "reference", "exact", "float64",
                                         "emu", "exec", "import",    "twin",  ""};
    return kind != NULL &&
           nd_find_text(others, sizeof others / sizeof others[0], sizeof others[0], kind) == NULL;
}

/* "" where it is not stated. */
static const char *stated(const struct nd_capture *capture, const char *group, const char *key)
{
    const char *text = nd_capture_string(capture, group, key);
    return text != NULL ? text : "";
}

const char *nd_capture_name(const struct nd_capture *capture)
{
    const char *label = stated(capture, "device", "label"), *uri = stated(capture, "device", "uri");
    return label[0] != '\0' ? label : uri[0] != '\0' ? uri : nd_path_base(nd_capture_path(capture));
}

const char *nd_capture_sdk(const struct nd_capture *capture)
{
    static const char prefix[] = "qairt-";
    const char *stated = nd_capture_string(capture, "runtime", "sdk_version");
    const char *id = nd_capture_string(capture, "runtime", "id");
    if (stated != NULL && stated[0] != '\0')
        return stated[0] == 'v' ? stated + 1 : stated;
    return id != NULL && strncmp(id, prefix, sizeof prefix - 1) == 0 ? id + sizeof prefix - 1 : NULL;
}

static bool is_taken(const char *name, const char *const *before, size_t n_before)
{
    size_t i = 0;
    while (i < n_before && strcmp(before[i], name) != 0)
        i++;
    return i < n_before;
}

char *nd_capture_unique_name(const struct nd_capture *capture, const char *const *before, size_t n_before)
{
    const char *plain = nd_capture_name(capture);
    char *name = nd_strdup(plain);
    for (size_t k = 2; name != NULL && is_taken(name, before, n_before); k++) {
        free(name);
        name = nd_text("%s#%zu", plain, k);
    }
    return name;
}

int64_t nd_capture_integer(const struct nd_capture *capture, const char *group, const char *key, int64_t absent)
{
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (attr->type == ND_ATTR_I64 && strcmp(attr->group, group) == 0 && strcmp(attr->key, key) == 0)
            return attr->i64;
    }
    return absent;
}

char *nd_capture_environment(const struct nd_capture *capture)
{
    const char *kind = stated(capture, "device", "kind"), *ort = stated(capture, "runtime", "ort_version");
    struct nd_strbuf text = {0};
    int64_t simulated = nd_capture_integer(capture, "device", "is_simulator", INT64_MIN);
    if (strcmp(kind, "emu") == 0) {
        nd_strbuf_puts(&text, "emulated");
    } else if (strcmp(kind, "twin") == 0) {
        nd_strbuf_printf(&text, "twin, %s", stated(capture, "runtime", "id"));
    } else if (strcmp(kind, "exact") == 0 || strcmp(kind, "float64") == 0) {
        nd_strbuf_puts(&text, "computed by npudiff");
    } else if (strcmp(kind, "cpu") == 0) {
        nd_strbuf_printf(&text, "ONNX Runtime%s%s, CPU", ort[0] != '\0' ? " " : "", ort);
    } else if (strcmp(kind, "exec") == 0) {
        nd_strbuf_printf(&text, "runner %s", stated(capture, "runtime", "runner"));
    } else {
        static const char qairt[] = "qairt-";
        const char *id = stated(capture, "runtime", "id"), *sdk = stated(capture, "runtime", "sdk_version");
        if (strncmp(id, qairt, strlen(qairt)) == 0)
            nd_strbuf_printf(&text, "QAIRT %s", id + strlen(qairt));
        else if (sdk[0] != '\0')
            nd_strbuf_printf(&text, "SDK %s", sdk);
        else
            nd_strbuf_puts(&text, id);
        if (simulated != INT64_MIN && nd_capture_is_called_npu(capture))
            nd_strbuf_printf(&text, "%s%s", text.len > 0 ? ", " : "",
                             simulated != 0 ? "simulator" : "real device");
    }
    const char *binary = stated(capture, "model", "binary_chipset"),
               *own = stated(capture, "device", "chipset");
    if (binary[0] != '\0' && (own[0] == '\0' || strncmp(binary, own, strlen(own)) != 0))
        nd_strbuf_printf(&text, "%s%s%s%s", own[0] == '\0' ? ", a binary for " : ", but the binary is for ",
                         binary, own[0] == '\0' ? "" : ", not for ", own);
    nd_strbuf_puts(&text, "");
    return nd_strbuf_take(&text);
}

const char *nd_capture_model_path(const struct nd_capture *capture)
{
    static const char *const keys[] = {"path", "file"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *path = stated(capture, "model", keys[i]);
        if (path[0] != '\0' && access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}
