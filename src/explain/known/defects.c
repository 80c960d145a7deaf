/* Which known defect of an SDK a layer has. The table: arithmetic/known/defects.def. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp.h"
#include "core/text/strbuf.h"
#include "explain/known/defects.h"
#include "explain/known/expectation.h"
#include "npudiff/devices/device.h"

/* The arithmetic that a capture asks for by what it says of its device. Values may refute it, but they do not
 * choose a different one: an arithmetic that fits by chance is not the chip's. */

enum nd_expectation nd_expect_of_arch(const char *arch)
{
    enum {
        LAST_OLD = 69
    }; /* v68 and v69 share one arithmetic, as do v73 and later ones (docs/science/htp-arithmetic.md) */
    if (arch == NULL || arch[0] != 'v' || strspn(arch + 1, "0123456789") != strlen(arch + 1))
        return ND_EXPECT_ANY;
    int version = atoi(arch + 1);
    return version == 0 ? ND_EXPECT_ANY : version <= LAST_OLD ? ND_EXPECT_V69 : ND_EXPECT_V73;
}

enum nd_expectation nd_expect(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    const char *arch = nd_capture_string(capture, "device", "arch");
    const char *sm = nd_capture_string(capture, "device", "chipset");
    bool is_import = nd_capture_string(capture, "import", "format") != NULL;
    if (kind != NULL && strcmp(kind, "cpu") == 0)
        return is_import ? ND_EXPECT_ANY
                         : ND_EXPECT_FLOAT; /* other runtimes compute in integers on a CPU, too */
    if (ND_IS_ONE_OF(kind, "emu", "exact", "float64", "gpu", "reference"))
        return ND_EXPECT_ANY;
    if (arch != NULL && arch[0] != '\0')
        return nd_expect_of_arch(arch);
    const struct nd_chipset *chipset = sm != NULL && sm[0] != '\0' ? nd_chipset_find(sm) : NULL;
    return chipset != NULL ? nd_expect_of_arch(chipset->arch) : ND_EXPECT_ANY;
}

bool nd_is_emulated(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    return kind != NULL && strcmp(kind, "emu") == 0;
}

bool nd_is_runner(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    return kind != NULL && strcmp(kind, "exec") == 0;
}

bool nd_can_fall_back(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    bool is_import = nd_capture_string(capture, "import", "format") != NULL;
    if (nd_is_runner(capture))
        return nd_expect(capture) != ND_EXPECT_ANY;
    if (kind != NULL && strcmp(kind, "twin") == 0)
        return false; /* what it does not know it rounds exactly */
    return !is_import || nd_expect(capture) != ND_EXPECT_ANY ||
           (kind != NULL && !ND_IS_ONE_OF(kind, "import", "cpu", "gpu", "reference"));
}

const char *nd_expectation_name(enum nd_expectation expectation)
{
    static const char *const names[] = {
        [ND_EXPECT_ANY] = NULL, [ND_EXPECT_FLOAT] = "float", [ND_EXPECT_V69] = "v69", [ND_EXPECT_V73] = "v73"};
    return names[expectation];
}

bool nd_expects(enum nd_expectation expectation, size_t arithmetic)
{
    size_t n;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    enum nd_htp_arch arch = expectation == ND_EXPECT_V69 ? ND_HTP_V69 : ND_HTP_V73;
    bool is_any = expectation == ND_EXPECT_ANY;
    return arithmetic < n && expectation != ND_EXPECT_FLOAT && (is_any || arithmetics[arithmetic].arch == arch);
}

/* In the order of enum nd_layer_condition. */
static const struct nd_known_defect defects[] = {
#define ND_DEFECT(name, function, operators, layer, foresight, ...)                                            \
    {.condition = ND_LAYER_##name, .is_in_arithmetics = ND_##foresight, __VA_ARGS__},
#include "arithmetic/known/defects.def"
};

const struct nd_known_defect *nd_known_defect_of(uint64_t conditions)
{
    uint64_t predicted = nd_layer_conditions_predicted(conditions);
    size_t c = 0;
    conditions = predicted != 0 ? predicted : conditions;
    while (c < ND_N_LAYER_CONDITIONS && (conditions >> c & 1) == 0)
        c++;
    return c < ND_N_LAYER_CONDITIONS ? &defects[c] : NULL;
}

bool nd_known_defect_shows_as(const struct nd_known_defect *defect, enum nd_fault_kind kind)
{
    /* These say more precisely what the lists have. */
    kind = kind == ND_FAULT_NOT_REQUANTISED ? ND_FAULT_ENCODING
           : kind == ND_FAULT_BOUNDS_LOST   ? ND_FAULT_UNCLAMPED
                                            : kind;
    for (size_t i = 0; i < defect->n_kinds; i++)
        if (defect->kinds[i] == kind)
            return true;
    return false;
}
