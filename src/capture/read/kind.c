/* What a capture says of the kind of its device. */
#include <string.h>

#include "npudiff/capture/capture.h"

bool nd_capture_is_called_npu(const struct nd_capture *capture)
{
    const char *kind = nd_capture_string(capture, "device", "kind");
    static const char *const others[] = {"cpu", "gpu",  "reference", "exact", "float64",
                                         "emu", "exec", "import",    ""};
    for (size_t i = 0; kind != NULL && i < sizeof others / sizeof others[0]; i++)
        if (strcmp(kind, others[i]) == 0)
            return false;
    return kind != NULL;
}
