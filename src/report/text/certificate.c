/* What `npudiff verify` says of a certificate, as JSON and as text. */
#include <stdlib.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "report/text/tree.h"

enum nd_status nd_report_certificate_json(const struct nd_certificate_check *check, char **out,
                                          struct nd_error *err)
{
    json_t *refusals = json_array(), *arithmetics = json_array();
    for (size_t i = 0; i < check->n_refusals; i++)
        nd_tree_append(refusals, json_pack("{s:s, s:o}", "what", check->refusals[i].what, "text",
                                           nd_json_string(check->refusals[i].text)));
    for (size_t i = 0; i < check->n_arithmetics; i++)
        nd_tree_append(arithmetics, nd_json_string(check->arithmetics[i]));
    json_t *counts = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers", nd_int(check->n_layers),
                               "proven", nd_int(check->n_proven), "proven_again", nd_int(check->n_proven_again),
                               "tested", nd_int(check->n_tested), "tested_again", nd_int(check->n_tested_again),
                               "unknown", nd_int(check->n_unknown), "differ", nd_int(check->n_differ), "sums",
                               nd_json_number(check->n_sums));
    return nd_tree_end(ND_DOCUMENT_CERTIFICATE_CHECK,
                       json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "verdict",
                                 nd_certificate_end_name(check->end), "certificate",
                                 nd_json_string(check->certificate), "model", nd_json_string(check->model),
                                 "written_by", nd_json_string(check->version), "refusals", refusals,
                                 "arithmetics", arithmetics, "counts", counts, "accuracy_cost_checked",
                                 (int)check->is_accuracy_cost_checked, "groups",
                                 check->groups != NULL ? nd_json_string(check->groups) : json_null()),
                       out, err);
}

static void say_headline(struct nd_report_screen *screen, const struct nd_certificate_check *check)
{
    const char *certificate = nd_path_base(check->certificate), *model = nd_path_base(check->model);
    size_t n_open = check->n_unknown + check->n_tested - check->n_tested_again;
    switch (check->end) {
    case ND_CERTIFICATE_HOLDS:
        nd_report_screen_put(screen, "VALID: '%s' holds for '%s': all %zu layers give the same bits\n",
                             certificate, model, check->n_layers);
        break;
    case ND_CERTIFICATE_OPEN:
        nd_report_screen_put(screen, "VALID SO FAR: '%s' holds for '%s', but %zu of %zu layers are open\n",
                             certificate, model, n_open, check->n_layers);
        break;
    case ND_CERTIFICATE_DIFFERS:
        nd_report_screen_put(screen, "VALID, NOT ALIGNED: '%s' says that %zu of %zu layers of '%s' differ\n",
                             certificate, check->n_differ, check->n_layers, model);
        break;
    case ND_CERTIFICATE_REFUSED:
        nd_report_screen_put(screen, "REFUSED: '%s' does not hold for '%s'\n", certificate, model);
        break;
    }
}

static void say_refusals(struct nd_report_screen *screen, const struct nd_certificate_check *check)
{
    enum { MOST = 12 }; /* lines of one screen */
    for (size_t i = 0; i < check->n_refusals && i < MOST; i++)
        nd_report_screen_put(screen, "* %s.\n", check->refusals[i].text);
    if (check->n_refusals > MOST)
        nd_report_screen_put(screen, "... and %zu more; --json lists all.\n", check->n_refusals - MOST);
}

static void say_layers(struct nd_report_screen *screen, const struct nd_certificate_check *check)
{
    struct nd_strbuf names = {0};
    for (size_t i = 0; i < check->n_arithmetics; i++)
        nd_strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", check->arithmetics[i]);
    char *text = nd_strbuf_take(&names);
    if (text != NULL)
        nd_report_screen_put(screen, "The file and the arithmetics (%s) are those of the certificate.\n", text);
    else
        nd_report_screen_lose(screen);
    free(text);
    nd_report_screen_put(screen, "Proven again: %zu of %zu layers, for %.4g sums of products.\n",
                         check->n_proven_again, check->n_layers, check->n_sums);
    if (check->n_tested > 0 && check->n_devices == 0)
        nd_report_screen_put(
            screen, "As tested: %zu layers; -d DEVICE -d DEVICE -p PROBE runs them again (not done).\n",
            check->n_tested);
    else if (check->n_tested > 0)
        nd_report_screen_put(screen, "Equal on the devices again: %zu of %zu layers that are as tested.\n",
                             check->n_tested_again, check->n_tested);
    if (check->groups != NULL)
        nd_report_screen_put(screen, "Devices: %s.\n", check->groups);
    if (check->n_unknown > 0)
        nd_report_screen_put(screen, "Unknown: %zu layers, which the certificate does not call equal.\n",
                             check->n_unknown);
    if (check->n_differ > 0)
        nd_report_screen_put(screen, "Different: %zu layers, as the certificate says.\n", check->n_differ);
    if (check->is_accuracy_cost_checked)
        nd_report_screen_put(screen, "The accuracy cost is as stated.\n");
    else if (check->has_accuracy_cost)
        nd_report_screen_put(screen, "The accuracy cost was not measured again; --model and -p do that.\n");
}

enum nd_status nd_report_certificate_brief(const struct nd_certificate_check *check, size_t width, char **out,
                                           struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    say_headline(screen, check);
    if (check->n_refusals > 0)
        say_refusals(screen, check);
    else
        say_layers(screen, check);
    return nd_report_screen_end(&screen, out, err);
}
