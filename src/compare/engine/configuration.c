/* Options that two devices of one kind were not given alike, and that are known to change bits: what a
 * difference may come from before any arithmetic does. Chipset and SDK are columns of their own. */
#include <string.h>

#include "core/error.h"
#include "core/text/strbuf.h"
#include "compare/engine/devices.h"
#include "npudiff/compare/config.h"

static bool is_option(const char *key)
{
    static const char *const told_elsewhere[] = {"runtime.option_soc_model", "runtime.option_backend_path"};
    for (size_t i = 0; i < sizeof told_elsewhere / sizeof told_elsewhere[0]; i++)
        if (strcmp(key, told_elsewhere[i]) == 0)
            return false;
    return strncmp(key, "runtime.option_", 15) == 0 || strcmp(key, "runtime.optimisation") == 0 ||
           strncmp(key, "htp.", 4) == 0;
}

static void list_changes(const struct nd_config_diff *diff, struct nd_strbuf *out)
{
    for (size_t i = 0; i < diff->n; i++) {
        const struct nd_config_change *change = &diff->changes[i];
        if (change->effect != ND_CONFIG_BITS || !is_option(change->key))
            continue;
        nd_strbuf_printf(out, "%s%s is %s, not %s", out->len > 0 ? "; " : "", change->key,
                         change->test != NULL ? change->test : "not set",
                         change->ref != NULL ? change->ref : "not set");
    }
}

enum nd_status nd_devices_describe_configuration(const struct nd_matching *alignment,
                                                 struct nd_compared_device *devices, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < alignment->n_captures; i++) {
        struct nd_strbuf text = {0};
        size_t other = 0;
        devices[i].configured_as = SIZE_MAX;
        while (other < i && strcmp(devices[other].kind, devices[i].kind) != 0)
            other++;
        if (other < i && devices[i].kind[0] != '\0') {
            struct nd_config_diff diff = {0};
            /* A configuration that cannot be read is no reason not to compare codes: `npudiff compare --config`
             * tells. */
            if (nd_config_diff(alignment->captures[other], alignment->captures[i], &diff, NULL) == ND_OK) {
                devices[i].configured_as = other;
                list_changes(&diff, &text);
                nd_config_diff_deinit(&diff);
            }
        }
        devices[i].configuration = nd_strbuf_take(&text);
        if (devices[i].configuration == NULL)
            status = nd_fail_memory(err);
    }
    return status;
}
