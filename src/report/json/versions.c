/* The versions of the libraries that are in use, as they say themselves where they do. */
#include <elfutils/version.h>
#include <hdf5.h>
#include <jansson.h>
#include <libdeflate.h>
#include <nettle/version.h>
#include <protobuf-c/protobuf-c.h>
#include <yaml.h>
#include <zip.h>
#include <zlib.h>

#include "core/text/strbuf.h"
#include "npudiff/report/report.h"

char *nd_report_versions(void)
{
    struct nd_strbuf text = {0};
    unsigned int major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    nd_strbuf_printf(&text, "npudiff %s\n", nd_version());
    nd_strbuf_printf(&text, "HDF5 %u.%u.%u\n", major, minor, release);
    nd_strbuf_printf(&text, "jansson %s\n", jansson_version_str());
    nd_strbuf_printf(&text, "libdeflate %s\n", LIBDEFLATE_VERSION_STRING);
    nd_strbuf_printf(&text, "libelf %d.%d\n", _ELFUTILS_VERSION / 1000, _ELFUTILS_VERSION % 1000);
    nd_strbuf_printf(&text, "libyaml %s\n", yaml_get_version_string());
    nd_strbuf_printf(&text, "libzip %s\n", zip_libzip_version());
    nd_strbuf_printf(&text, "nettle %d.%d\n", NETTLE_VERSION_MAJOR, NETTLE_VERSION_MINOR);
    nd_strbuf_printf(&text, "protobuf-c %s\n", protobuf_c_version());
    nd_strbuf_printf(&text, "zlib %s\n", zlibVersion());
    return nd_strbuf_take(&text);
}
