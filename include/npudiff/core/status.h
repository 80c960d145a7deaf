/* Status codes and error messages of libnpudiff: how every function tells that it failed.
 *
 * Every function that can fail returns `enum nd_status` and takes a `struct nd_error *` as its last
 * argument, which may be NULL. Where the function fails, it fills the error with a number that never
 * changes, a sentence, and the file, tensor or option that the failure is about. Out-parameters are written
 * on success only. "The captures differ" is a result, never an error.
 *
 * A `struct nd_error` belongs to one thread at a time; there is no global error state.
 *
 * Example:
 *
 *     static int report(enum nd_status status, const struct nd_error *err)
 *     {
 *         if (status == ND_OK)
 *             return 0;
 *         fprintf(stderr, "%s [ND-%d]\n", err->message, err->id);
 *         return (int)nd_status_exit_code(status);
 *     }
 *
 * Stability: stable. A change that breaks programs raises the number in the library's soname. */
#ifndef NPUDIFF_STATUS_H
#define NPUDIFF_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ND_PUBLIC __attribute__((visibility("default")))
#define ND_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define ND_PUBLIC
#define ND_PRINTF(fmt, args)
#endif

/* What kind of trouble it was. The values are stable. */
enum nd_status {
    ND_OK = 0,
    ND_ERR_USAGE = 1,          /* the caller asked for something that has no meaning */
    ND_ERR_IO = 2,             /* the operating system refused: missing file, no space, no permission */
    ND_ERR_FORMAT = 3,         /* data that is damaged or not what it claims to be */
    ND_ERR_UNSUPPORTED = 4,    /* valid, but nothing here can handle it */
    ND_ERR_NOT_FOUND = 5,      /* a named object does not exist */
    ND_ERR_NOT_COMPARABLE = 6, /* two things that have no common meaning */
    ND_ERR_DEVICE = 7,         /* a device failed: session, placement, crash, time or memory limit */
    ND_ERR_MEMORY = 8,         /* out of memory, or a size that does not fit */
};

/* One failure. `id` is the stable number printed as "ND-<id>" (npudiff/error_ids.h names them all);
 * `message` is lower case without a full stop and names its subject; `object` is the file, tensor or option
 * that it is about ("" when there is none). Both are NUL-terminated and cut to fit. */
struct nd_error {
    enum nd_status status;
    int id;
    char message[1024];
    char object[512];
};

/* Exit codes of every command that judges. Of several the most severe counts (nd_exit_worse), in this order:
 * trouble 2, device failed 5, not comparable 3, differs 1, inconclusive 4, same 0. A difference that was found
 * stands, whatever could not be answered beside it. */
enum nd_exit {
    ND_EXIT_SAME = 0,
    ND_EXIT_DIFFERS = 1,
    ND_EXIT_TROUBLE = 2,
    ND_EXIT_NOT_COMPARABLE = 3,
    ND_EXIT_INCONCLUSIVE = 4,
    ND_EXIT_DEVICE_FAILED = 5,
};

/* The more severe of two. Every place that puts results together asks this function. A number that is none of
 * these is as severe as trouble. Never fails. */
ND_PUBLIC enum nd_exit nd_exit_worse(enum nd_exit a, enum nd_exit b);

/* The exit code of a command that stops with `status`. Never fails. */
ND_PUBLIC enum nd_exit nd_status_exit_code(enum nd_status status);

/* The version of these headers, for the preprocessor. */
#define NPUDIFF_VERSION_MAJOR 0
#define NPUDIFF_VERSION_MINOR 2
#define NPUDIFF_VERSION_PATCH 0
/* Two versions compare as these numbers do: `#if NPUDIFF_VERSION >= NPUDIFF_VERSION_OF(0, 2, 0)`. */
#define NPUDIFF_VERSION_OF(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
#define NPUDIFF_VERSION NPUDIFF_VERSION_OF(NPUDIFF_VERSION_MAJOR, NPUDIFF_VERSION_MINOR, NPUDIFF_VERSION_PATCH)

/* The version of the library that runs, for instance "0.2.0". Static storage. */
ND_PUBLIC const char *nd_version(void);

#ifdef __cplusplus
}
#endif
#endif
