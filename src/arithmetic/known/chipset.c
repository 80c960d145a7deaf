/* The chipsets that are known by name, and how a name is looked up: docs/architecture.md#chipset says how to
 * add one. */
#include <string.h>
#include <strings.h>

#include "npudiff/arithmetic/chipset.h"

/* Sources: the QNN_SOC_MODEL tables of LiteRT and ExecuTorch. "8 Elite Gen 5" is SM8850 (gen5); plain "8 Gen 5"
 * is SM8845. */
static const struct nd_chipset chipsets[] = {
    {"SM8450", 36, "v69", "gen1", "Snapdragon 8 Gen 1"},
    {"SM8550", 43, "v73", "gen2", "Snapdragon 8 Gen 2"},
    {"SM8650", 57, "v75", "gen3", "Snapdragon 8 Gen 3"},
    {"SM8750", 69, "v79", "gen4", "Snapdragon 8 Elite"},
    {"SM8850", 87, "v81", "gen5", "Snapdragon 8 Elite Gen 5"},
    {"SM8350", 30, "v68", "", "Snapdragon 888"},
    {"SM8475", 42, "v69", "", "Snapdragon 8+ Gen 1"},
    {"SM8635", 68, "v73", "", "Snapdragon 8s Gen 3"},
    {"SM8845", 97, "v81", "", "Snapdragon 8 Gen 5"},
    {"SM7325", 35, "v68", "", "Snapdragon 778G"},
    {"SM7350", 32, "v68", "", "Snapdragon 780G"},
    {"SM7450", 41, "v69", "", "Snapdragon 7 Gen 1"},
    {"SM7475", 54, "v69", "", "Snapdragon 7+ Gen 2"},
    {"SM7435", 61, "v73", "", "Snapdragon 7s Gen 2"},
    {"SM7550", 64, "v73", "", "Snapdragon 7 Gen 3"},
    {"SM7675", 70, "v73", "", "Snapdragon 7+ Gen 3"},
    {"SM6450", 50, "v73", "", "Snapdragon 6 Gen 1"},
    {"SC8380XP", 60, "v73", "", "Snapdragon X Elite"},
    {"SC8480XP", 88, "v81", "", "Snapdragon X2 Elite"},
    {"QCM6490", 93, "v68", "", "QCM6490"},
    {"QCS8550", 66, "v73", "", "QCS8550"},
    {"QCS9100", 77, "v73", "", "QCS9100"},
    {"QCS8300", 82, "v75", "", "QCS8300"},
};
enum { N_CHIPSETS = sizeof chipsets / sizeof chipsets[0] };

const struct nd_chipset *nd_chipsets(size_t *n)
{
    *n = N_CHIPSETS;
    return chipsets;
}

static const struct nd_chipset *find(const char *name, size_t n)
{
    for (size_t i = 0; n > 0 && i < N_CHIPSETS; i++)
        if ((strlen(chipsets[i].sm) == n && strncasecmp(chipsets[i].sm, name, n) == 0) ||
            (strlen(chipsets[i].alias) == n && strncasecmp(chipsets[i].alias, name, n) == 0))
            return &chipsets[i];
    return NULL;
}

const struct nd_chipset *nd_chipset_find(const char *name)
{
    size_t n = strlen(name), n_stem = strcspn(name, "-"); /* "SM8650-AC": a bin of it, of other clocks */
    const struct nd_chipset *chipset = find(name, n);
    return chipset == NULL && n_stem < n && n_stem >= strlen("SM8650") ? find(name, n_stem) : chipset;
}
