#include "fingerprint/section.h"

#include "base/error.h"

bool nd_section_set(json_t *object, const char *key, json_t *value)
{
    return value != NULL && json_object_set_new(object, key, value) == 0;
}

json_t *nd_section_entry(json_t *entries, const char *operator_name, const char *types, const char *verdict,
                         const char *provider)
{
    json_t *entry = json_object();
    if (entry == NULL || json_array_append_new(entries, entry) != 0)
        return NULL;
    bool is_whole = nd_section_set(entry, "operator", json_string(operator_name)) &&
                    nd_section_set(entry, "types", json_string(types)) &&
                    nd_section_set(entry, "verdict", json_string(verdict)) &&
                    (provider[0] == '\0' || nd_section_set(entry, "provider", json_string(provider)));
    return is_whole ? entry : NULL;
}

bool nd_section_undecided(json_t *entry, const char *what, const char *probe)
{
    json_t *list = json_object_get(entry, "undecided");
    if (list == NULL) {
        list = json_array();
        if (!nd_section_set(entry, "undecided", list))
            return false;
    }
    json_t *item = json_pack("{s:s, s:s}", "what", what, "probe", probe);
    return item != NULL && json_array_append_new(list, item) == 0;
}

enum nd_status nd_section_failed(json_t *entries, const char *operator_name, const char *types,
                                 const struct nd_trial_result *result, struct nd_error *err)
{
    json_t *entry = nd_section_entry(entries, operator_name, types, "failed", result->provider);
    bool is_whole = entry != NULL && nd_section_set(entry, "failure", json_string(result->failure.message)) &&
                    nd_section_set(entry, "stage", json_string(result->stage));
    return is_whole ? ND_OK : nd_fail_memory(err);
}
