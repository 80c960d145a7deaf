/* Which known defect of an SDK a layer has. The table: arithmetic/known/defects.def. */
#include "explain/known/defects.h"

#include <string.h>

#include "core/text/strbuf.h"

/* In the order of enum nd_layer_condition. */
static const struct nd_known_defect defects[] = {
#define ND_DEFECT(name, function, operators, layer, ...) {.condition = ND_LAYER_##name, __VA_ARGS__},
#include "arithmetic/known/defects.def"
};

const struct nd_known_defect *nd_known_defect_of(const struct nd_model *model,
                                                 const struct nd_exact_layer *layer)
{
    const struct nd_known_defect *found = NULL; /* the first, or the first that predicts values */
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++)
        if ((found == NULL || (!found->is_in_arithmetics && defects[i].is_in_arithmetics)) &&
            nd_layer_is(model, layer, defects[i].condition))
            found = &defects[i];
    return found;
}

const struct nd_known_defect *nd_known_defect_with(enum nd_layer_condition condition)
{
    return &defects[condition];
}

size_t nd_known_defect_index(const struct nd_known_defect *defect)
{
    return defect != NULL ? (size_t)(defect - defects) : SIZE_MAX;
}

const struct nd_known_defect *nd_known_defect_at(size_t index)
{
    return index < sizeof defects / sizeof *defects ? &defects[index] : NULL;
}

bool nd_known_defect_shows_as(const struct nd_known_defect *defect, enum nd_fault_kind kind)
{
    for (size_t i = 0; i < defect->n_kinds; i++)
        if (defect->kinds[i] == kind)
            return true;
    return false;
}

/* ---- what is said ---- */

/* "2.51.0" of what an import states, or of the runtime "qairt-2.51.0"; NULL: nobody says it. */
static const char *sdk_of(const struct nd_capture *capture)
{
    static const char prefix[] = "qairt-";
    const char *stated = nd_capture_string(capture, "runtime", "sdk_version");
    const char *id = nd_capture_string(capture, "runtime", "id");
    if (stated != NULL && stated[0] != '\0')
        return stated[0] == 'v' ? stated + 1 : stated;
    return id != NULL && strncmp(id, prefix, sizeof prefix - 1) == 0 ? id + sizeof prefix - 1 : NULL;
}

/* "2.51.0" and "2.51.0.251014" are of one release. */
static bool is_release(const char *sdk, const char *release)
{
    size_t n = strlen(release);
    return strncmp(sdk, release, n) == 0 && (sdk[n] < '0' || sdk[n] > '9');
}

char *nd_known_defect_text(const struct nd_known_defect *defect, const struct nd_capture *capture)
{
    struct nd_strbuf text = {0};
    const char *sdk = sdk_of(capture);
    nd_strbuf_printf(&text, "a known defect of QAIRT %s%s%s (measured on %s): %s",
                     defect->older_sdk != NULL ? defect->older_sdk : "",
                     defect->older_sdk != NULL ? " and " : "", defect->sdk, defect->archs, defect->what);
    if (sdk == NULL)
        nd_strbuf_printf(&text, "; the capture does not say which SDK made it");
    else if (!is_release(sdk, defect->sdk) &&
             !(defect->older_sdk != NULL && is_release(sdk, defect->older_sdk)))
        nd_strbuf_printf(&text, "; this capture was made with %s, which was not measured", sdk);
    return nd_strbuf_take(&text);
}
