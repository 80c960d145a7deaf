/* What writing and reading share of libhdf5: its lock, its errors, its types. */
#include "capture/hdf5/libhdf5.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

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
    switch (nd_index_stored_dtype(dtype)) {
    case ND_DTYPE_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case ND_DTYPE_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case ND_DTYPE_F16:
        return make_half();
    case ND_DTYPE_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case ND_DTYPE_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case ND_DTYPE_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case ND_DTYPE_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case ND_DTYPE_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case ND_DTYPE_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case ND_DTYPE_U64:
        return H5Tcopy(H5T_STD_U64LE);
    case ND_DTYPE_I64:
        return H5Tcopy(H5T_STD_I64LE);
    default:
        return H5I_INVALID_HID;
    }
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
