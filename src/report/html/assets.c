#include "report/html/html.h"

#define ASSET(name)                                                                                            \
    extern const char nd_asset_file_##name##_begin[], nd_asset_file_##name##_end[];                            \
    struct nd_asset nd_asset_##name(void)                                                                      \
    {                                                                                                          \
        return (struct nd_asset){nd_asset_file_##name##_begin,                                                 \
                                 (size_t)(nd_asset_file_##name##_end - nd_asset_file_##name##_begin)};         \
    }

ASSET(style)
ASSET(script)
ASSET(chart_style)
ASSET(chart)
ASSET(graph)
