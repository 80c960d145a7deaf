/* A driver through which libhdf5 reads a file that it did not open itself. */
#include "capture/hdf5/read_driver.h"

#include <stdlib.h>
#include <string.h>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h> /* 1.14 has moved the class of drivers there */
#endif

#include "core/memory.h"

/* The access list keeps a copy of this. */
struct driver_info {
    struct nd_read_source *source;
};

struct driver_file {
    H5FD_t base; /* has to be first: libhdf5 fills it */
    struct nd_read_source *source;
    haddr_t eoa;
};

static H5FD_t *open_file(const char *name, unsigned flags, hid_t access, haddr_t max_address)
{
    (void)name;
    (void)max_address;
    const struct driver_info *info = H5Pget_driver_info(access);
    if (info == NULL || (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC)) != 0)
        return NULL;
    struct driver_file *file = nd_calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->source = info->source;
    return &file->base;
}

static herr_t close_file(H5FD_t *base)
{
    free((struct driver_file *)base);
    return 0;
}

/* What libhdf5's own driver of files says, of reading. */
static herr_t query(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->eoa;
}

static herr_t set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t address)
{
    (void)type;
    ((struct driver_file *)base)->eoa = address;
    return 0;
}

static haddr_t get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)base)->source->file_bytes;
}

/* What lies behind the end is zero, as libhdf5's own driver has it. */
static herr_t read_file(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n, void *to)
{
    (void)type;
    (void)transfer;
    struct nd_read_source *source = ((struct driver_file *)base)->source;
    uint64_t rest = at < source->file_bytes ? source->file_bytes - at : 0;
    size_t n_there = n < rest ? n : (size_t)rest;
    memset((char *)to + n_there, 0, n - n_there);
    if (n_there == 0)
        return 0;
    struct nd_error err = {0};
    enum nd_status status = source->read(source->context, at, to, n_there, &err);
    if (status != ND_OK && source->status == ND_OK) {
        source->status = status;
        source->err = err;
    }
    return status == ND_OK ? 0 : -1;
}

/* libhdf5 takes no driver without it. */
static herr_t refuse_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n,
                           const void *from)
{
    (void)base, (void)type, (void)transfer, (void)at, (void)n, (void)from;
    return -1;
}

static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 601, /* any that is neither libhdf5's own nor write_driver.c's; it is not stored in files */
#endif
    .name = "npudiff-read",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct driver_info),
    .open = open_file,
    .close = close_file,
    .query = query,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = read_file,
    .write = refuse_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

herr_t nd_read_driver_set(hid_t access, struct nd_read_source *source)
{
    static hid_t id = H5I_INVALID_HID; /* a program that calls H5close takes it away */
    const struct driver_info info = {source};
    if (id < 0 || H5Iget_type(id) != H5I_VFL)
        id = H5FDregister(&driver);
    return id < 0 ? -1 : H5Pset_driver(access, id, &info);
}
