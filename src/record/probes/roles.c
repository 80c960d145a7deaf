#include "record/probes/roles.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

static const size_t no_role = SIZE_MAX;

static enum nd_status fail_missing(const struct nd_loader *loader, size_t input, const char *const *names,
                                   size_t n, const char *where, struct nd_error *err)
{
    struct nd_strbuf found = {0};
    const size_t most = 16;
    for (size_t i = 0; i < n && i < most; i++)
        nd_strbuf_printf(&found, i > 0 ? ", '%s'" : "'%s'", names[i]);
    if (n > most)
        nd_strbuf_puts(&found, ", ...");
    char *text = nd_strbuf_take(&found);
    if (text == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_fail(err, ND_E_PROBE_INPUT, where, "'%s' has no array for input '%s'; it has %s",
                                    where, loader->probe->inputs[input].name, n > 0 ? text : "none at all");
    free(text);
    return status;
}

static enum nd_status check_inputs(const struct nd_loader *loader, const size_t *roles,
                                   const char *const *names, size_t n, const char *where, struct nd_error *err)
{
    for (size_t input = 0; input < loader->probe->n_inputs; input++) {
        size_t i = 0;
        while (i < n && roles[i] != input)
            i++;
        if (i == n)
            return fail_missing(loader, input, names, n, where, err);
    }
    return ND_OK;
}

static enum nd_status check_arrays(const size_t *roles, const char *const *names, size_t n, const char *where,
                                   struct nd_error *err)
{
    size_t labels = no_role;
    for (size_t i = 0; i < n; i++) {
        if (roles[i] == no_role)
            return nd_fail(err, ND_E_PROBE_FORMAT, where, "array '%s' of '%s' belongs to no input of the model",
                           names[i], where);
        if (roles[i] != ND_ROLE_LABELS)
            continue;
        if (labels != no_role)
            return nd_fail(err, ND_E_PROBE_LABELS, where, "'%s' has two arrays of labels: '%s' and '%s'", where,
                           names[labels], names[i]);
        labels = i;
    }
    return ND_OK;
}

enum nd_status nd_roles_assign(const struct nd_loader *loader, const char *const *names, size_t n,
                               const char *where, size_t **out, struct nd_error *err)
{
    size_t *roles = nd_calloc(n, sizeof *roles);
    if (roles == NULL)
        return nd_fail_memory(err);
    size_t n_unlabelled = 0, unlabelled = 0;
    for (size_t i = 0; i < n; i++) {
        roles[i] = nd_loader_find_input(loader, names[i]);
        if (roles[i] == no_role && nd_loader_is_label_name(names[i]))
            roles[i] = ND_ROLE_LABELS;
        if (roles[i] != ND_ROLE_LABELS) {
            n_unlabelled++;
            unlabelled = i;
        }
    }
    if (loader->probe->n_inputs == 1 && n_unlabelled == 1)
        roles[unlabelled] = 0;
    enum nd_status status = check_inputs(loader, roles, names, n, where, err);
    if (status == ND_OK)
        status = check_arrays(roles, names, n, where, err);
    if (status == ND_OK) {
        *out = roles;
        roles = NULL;
    }
    free(roles);
    return status;
}
