/* What writing and reading share of libhdf5: its lock, its errors, its types. */
#include "capture/hdf5/libhdf5.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/hdf5/index.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* The program's error printing while the lock is held; guarded by it. */
static H5E_auto2_t kept_printer;
static void *kept_printer_data;
static bool has_kept_printer;

void nd_hdf5_lock(void)
{
    pthread_mutex_lock(&mutex);
    has_kept_printer = H5Eget_auto2(H5E_DEFAULT, &kept_printer, &kept_printer_data) >= 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void nd_hdf5_unlock(void)
{
    if (has_kept_printer)
        H5Eset_auto2(H5E_DEFAULT, kept_printer, kept_printer_data);
    pthread_mutex_unlock(&mutex);
}

void nd_hdf5_close(hid_t *id)
{
    if (*id >= 0)
        H5Idec_ref(*id);
}

static herr_t keep_first(unsigned n, const H5E_error2_t *error, void *data)
{
    char *text = data;
    if (n == 0 && error->desc != NULL)
        snprintf(text, sizeof(((struct nd_error *)0)->message), "%s", error->desc);
    return 0;
}

enum nd_status nd_hdf5_fail(struct nd_error *err, enum nd_error_id id, const char *object, const char *fmt, ...)
{
    char text[sizeof err->message], inner[sizeof err->message] = "no reason given";
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, inner);
    H5Eclear2(H5E_DEFAULT);
    /* Of a failed read or write it reports addresses and times too; only the system's own words matter. */
    static const char system_mark[] = "error message = '";
    char *reason = strstr(inner, system_mark);
    if (reason != NULL) {
        reason += sizeof system_mark - 1;
        reason[strcspn(reason, "'")] = '\0';
    }
    return nd_fail(err, id, object, "%s: %s", text, reason != NULL ? reason : inner);
}

struct search {
    const char *text;
    bool is_found;
};

static herr_t look_for(unsigned n, const H5E_error2_t *error, void *data)
{
    (void)n;
    struct search *search = data;
    if (error->desc != NULL && strstr(error->desc, search->text) != NULL)
        search->is_found = true;
    return 0;
}

bool nd_hdf5_error_mentions(const char *text)
{
    struct search search = {.text = text};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_for, &search);
    return search.is_found;
}

/* IEEE half precision, laid out as h5py does for numpy's float16. */
static hid_t make_half(void)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 &&
        (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, 15) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

hid_t nd_hdf5_type_make(enum nd_dtype dtype)
{
    const enum nd_dtype stored = nd_index_stored_dtype(dtype);
    const hid_t types[] = {
        [ND_DTYPE_F32] = H5T_IEEE_F32LE, [ND_DTYPE_F64] = H5T_IEEE_F64LE, [ND_DTYPE_U8] = H5T_STD_U8LE,
        [ND_DTYPE_I8] = H5T_STD_I8LE,    [ND_DTYPE_U16] = H5T_STD_U16LE,  [ND_DTYPE_I16] = H5T_STD_I16LE,
        [ND_DTYPE_U32] = H5T_STD_U32LE,  [ND_DTYPE_I32] = H5T_STD_I32LE,  [ND_DTYPE_U64] = H5T_STD_U64LE,
        [ND_DTYPE_I64] = H5T_STD_I64LE};
    if (stored == ND_DTYPE_F16)
        return make_half();
    bool is_known = (size_t)stored < sizeof types / sizeof types[0] && types[stored] > 0;
    return is_known ? H5Tcopy(types[stored]) : H5I_INVALID_HID;
}

hid_t nd_hdf5_text_make(size_t n_bytes)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, n_bytes) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

enum nd_dtype nd_hdf5_type_dtype(hid_t type)
{
    static const enum nd_dtype stored[] = {ND_DTYPE_U8,  ND_DTYPE_I8,  ND_DTYPE_U16, ND_DTYPE_I16,
                                           ND_DTYPE_U32, ND_DTYPE_I32, ND_DTYPE_U64, ND_DTYPE_I64,
                                           ND_DTYPE_F16, ND_DTYPE_F32, ND_DTYPE_F64};
    H5T_class_t type_class = H5Tget_class(type);
    if (type_class != H5T_INTEGER && type_class != H5T_FLOAT)
        return ND_DTYPE_NONE;
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        hid_t candidate = nd_hdf5_type_make(stored[i]);
        bool is_equal = candidate >= 0 && H5Tequal(type, candidate) > 0;
        H5Tclose(candidate);
        if (is_equal)
            return stored[i];
    }
    return ND_DTYPE_NONE;
}

/* ---- how libhdf5 reads and writes files ---- */

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h> /* 1.14 has moved the class of drivers there */
#endif

#include "core/memory.h"

/* The access list keeps a copy of this. */
struct driver_info {
    void *end; /* a nd_write_target or nd_read_source */
};

struct driver_file {
    H5FD_t base; /* has to be first: libhdf5 fills it */
    void *end;
    haddr_t eoa, eof;
};

/* ---- what both have ---- */

static H5FD_t *make_file(void *end, haddr_t eof)
{
    struct driver_file *file = nd_calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->end = end;
    file->eof = eof;
    return &file->base;
}

static herr_t close_file(H5FD_t *base)
{
    free((struct driver_file *)base);
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
    return ((const struct driver_file *)base)->eof;
}

/* id: of the registered driver. */
static herr_t set_driver(hid_t access, hid_t *id, const H5FD_class_t *driver, void *end)
{
    const struct driver_info info = {end};
    if (*id < 0 || H5Iget_type(*id) != H5I_VFL) /* a program that calls H5close takes it away */
        *id = H5FDregister(driver);
    return *id < 0 ? -1 : H5Pset_driver(access, *id, &info);
}

/* ---- writing; failed writes are kept and reported at the end ---- */

enum { PAGE_BYTES = 4096 };
struct nd_write_page {
    struct nd_write_page *next;
    off_t at; /* a multiple of PAGE_BYTES */
    unsigned char bytes[PAGE_BYTES];
};

void nd_write_target_init(struct nd_write_target *target, int fd)
{
    *target = (struct nd_write_target){.fd = fd};
}

void nd_write_target_deinit(struct nd_write_target *target)
{
    for (struct nd_write_page *page = target->aside, *next; page != NULL; page = next) {
        next = page->next;
        free(page);
    }
    target->aside = NULL;
}

/* Fills what cannot be read, such as what lies behind the end, with zeros. */
static void read_whole(int fd, unsigned char *to, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t got = pread(fd, to, n, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        to += got;
        n -= (size_t)got;
        at += got;
    }
    memset(to, 0, n);
}

static int write_whole(int fd, const unsigned char *from, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t put = pwrite(fd, from, n, at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : ENOSPC;
        from += put;
        n -= (size_t)put;
        at += put;
    }
    return 0;
}

/* Copies what a page and the bytes at `at` have in common, one way or the other. */
static void copy_common(struct nd_write_page *page, unsigned char *bytes, size_t n, off_t at, bool into_page)
{
    off_t begin = at > page->at ? at : page->at;
    off_t end = at + (off_t)n < page->at + PAGE_BYTES ? at + (off_t)n : page->at + PAGE_BYTES;
    if (begin >= end)
        return;
    unsigned char *here = page->bytes + (begin - page->at), *there = bytes + (begin - at);
    memcpy(into_page ? here : there, into_page ? there : here, (size_t)(end - begin));
}

/* Pages that were written since the failure hide those of the file. */
static void read_target(const struct nd_write_target *target, unsigned char *to, size_t n, off_t at)
{
    read_whole(target->fd, to, n, at);
    for (struct nd_write_page *page = target->aside; page != NULL; page = page->next)
        copy_common(page, to, n, at, false);
}

/* Without memory it is lost, which only means that libhdf5 may stumble over what it reads. */
static void write_aside(struct nd_write_target *target, unsigned char *from, size_t n, off_t at)
{
    for (off_t here = at - at % PAGE_BYTES; here < at + (off_t)n; here += PAGE_BYTES) {
        struct nd_write_page *page = target->aside;
        while (page != NULL && page->at != here)
            page = page->next;
        if (page == NULL) {
            page = malloc(sizeof *page);
            if (page == NULL)
                return;
            read_whole(target->fd, page->bytes, PAGE_BYTES, here);
            page->at = here;
            page->next = target->aside;
            target->aside = page;
        }
        copy_common(page, from, n, at, true);
    }
}

static H5FD_t *open_to_write(const char *name, unsigned flags, hid_t access, haddr_t max_address)
{
    (void)name;
    (void)max_address;
    const struct driver_info *info = H5Pget_driver_info(access);
    struct nd_write_target *target = info != NULL ? info->end : NULL;
    struct stat stat;
    if (target == NULL || fstat(target->fd, &stat) != 0)
        return NULL;
    if ((flags & H5F_ACC_TRUNC) != 0) {
        if (ftruncate(target->fd, 0) != 0)
            target->error = errno;
        stat.st_size = 0;
    }
    return make_file(target, (haddr_t)stat.st_size);
}

static int compare_files(const H5FD_t *a, const H5FD_t *b)
{
    uintptr_t x = (uintptr_t)((const struct driver_file *)a)->end,
              y = (uintptr_t)((const struct driver_file *)b)->end;
    return (x > y) - (x < y);
}

/* As libhdf5's own driver of files has them, so that the bytes are the same. */
static herr_t query_of_write(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static herr_t read_back(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n, void *to)
{
    (void)type;
    (void)transfer;
    read_target(((struct driver_file *)base)->end, to, n, (off_t)at);
    return 0;
}

static herr_t write_file(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n, const void *from)
{
    (void)transfer;
    struct driver_file *file = (struct driver_file *)base;
    struct nd_write_target *target = file->end;
    if (target->error == 0)
        target->error = write_whole(target->fd, from, n, (off_t)at);
    if (target->error != 0 && type != H5FD_MEM_DRAW)
        write_aside(target, (unsigned char *)(uintptr_t)from, n, (off_t)at);
    if (at + n > file->eof)
        file->eof = at + n;
    return 0;
}

static herr_t truncate_file(H5FD_t *base, hid_t transfer, hbool_t is_closing)
{
    (void)transfer;
    (void)is_closing;
    struct driver_file *file = (struct driver_file *)base;
    struct nd_write_target *target = file->end;
    if (file->eoa == file->eof)
        return 0;
    if (target->error == 0 && ftruncate(target->fd, (off_t)file->eoa) != 0)
        target->error = errno;
    file->eof = file->eoa;
    return 0;
}

static const H5FD_class_t write_driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 600, /* any that is not libhdf5's own; it is not stored in files */
#endif
    .name = "npudiff-write",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct driver_info),
    .open = open_to_write,
    .close = close_file,
    .cmp = compare_files,
    .query = query_of_write,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = read_back,
    .write = write_file,
    .truncate = truncate_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

herr_t nd_write_driver_set(hid_t access, struct nd_write_target *target)
{
    static hid_t id = H5I_INVALID_HID; /* under the lock */
    return set_driver(access, &id, &write_driver, target);
}

/* ---- reading ---- */

static H5FD_t *open_to_read(const char *name, unsigned flags, hid_t access, haddr_t max_address)
{
    (void)name;
    (void)max_address;
    const struct driver_info *info = H5Pget_driver_info(access);
    if (info == NULL || (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC)) != 0)
        return NULL;
    return make_file(info->end, ((const struct nd_read_source *)info->end)->file_bytes);
}

/* What libhdf5's own driver of files says, of reading. */
static herr_t query_of_read(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

/* What lies behind the end is zero, as libhdf5's own driver has it. */
static herr_t read_source(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n, void *to)
{
    (void)type;
    (void)transfer;
    struct nd_read_source *source = ((struct driver_file *)base)->end;
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

static const H5FD_class_t read_driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 601, /* any that is neither libhdf5's own nor that of writing; it is not stored in files */
#endif
    .name = "npudiff-read",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(struct driver_info),
    .open = open_to_read,
    .close = close_file,
    .query = query_of_read,
    .get_eoa = get_eoa,
    .set_eoa = set_eoa,
    .get_eof = get_eof,
    .read = read_source,
    .write = refuse_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

herr_t nd_read_driver_set(hid_t access, struct nd_read_source *source)
{
    static hid_t id = H5I_INVALID_HID;
    return set_driver(access, &id, &read_driver, source);
}
