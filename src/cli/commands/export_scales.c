/* Exports the scales of a model that a command wrote, for other quantisers. */
#include "cli/commands/export_scales.h"

#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "npudiff/model/encodings.h"

int cli_check_exports(const char *command, const struct cli_exports *exports, const char *output,
                      const char *option)
{
    const struct {
        const char *option, *path;
    } files[] = {{"--encodings", exports->encodings}, {"--overrides", exports->overrides}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].path != NULL && output == NULL)
            return cli_usage_error(command, "%s needs %s: it is about that file", files[i].option, option);
        if (files[i].path != NULL &&
            cli_check_output(files[i].path, exports->force, "--force overwrites it") != 0)
            return ND_EXIT_TROUBLE;
    }
    return 0;
}

int cli_export_scales(const char *path, const struct cli_exports *exports)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    struct nd_encodings *encodings = NULL;
    const char *const paths[] = {exports->encodings, exports->overrides};
    static const enum nd_encodings_format formats[] = {ND_ENCODINGS_AIMET, ND_ENCODINGS_OVERRIDES};
    if (exports->encodings == NULL && exports->overrides == NULL)
        return 0;
    enum nd_status status = nd_model_load(path, &model, &err);
    if (status == ND_OK)
        status = nd_encodings_of_model(model, &encodings, &err);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0] && status == ND_OK; i++)
        if (paths[i] != NULL)
            status = nd_encodings_write(encodings, formats[i], paths[i], exports->force, &err);
    nd_encodings_destroy(&encodings);
    nd_model_destroy(&model);
    return status == ND_OK ? ND_EXIT_SAME : cli_report_error(&err);
}
