/* Loads libcurl when a name of a server is first read. */
#include "capture/fetch/libcurl.h"

#if ND_HAVE_CURL_H
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* 7.85 has CURLOPT_PROTOCOLS_STR; since 7.88 the headers that npudiff adds are part of an S3 signature. */
enum { OLDEST = 0x075800 };

static struct nd_libcurl loaded;
static bool is_loaded;
static char problem[200] = "it cannot be started";

/* dlsym gives an object's pointer for a function's: POSIX has it so. */
static bool find(void *library, const char *name, void *function_at)
{
    *(void **)function_at = dlsym(library, name);
    return *(void **)function_at != NULL;
}

static void load(void)
{
    /* Debian's and others' name; that of the flavour with GnuTLS. */
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(problem, sizeof problem, "libcurl.so.4 is not there (Debian: libcurl4)");
        return;
    }
    CURLcode (*global_init)(long) = NULL;
    curl_version_info_data *(*version_info)(CURLversion) = NULL;
    if (!find(library, "curl_global_init", &global_init) ||
        !find(library, "curl_version_info", &version_info) ||
        !find(library, "curl_easy_init", &loaded.easy_init) ||
        !find(library, "curl_easy_setopt", &loaded.easy_setopt) ||
        !find(library, "curl_easy_perform", &loaded.easy_perform) ||
        !find(library, "curl_easy_cleanup", &loaded.easy_cleanup) ||
        !find(library, "curl_easy_strerror", &loaded.easy_strerror) ||
        !find(library, "curl_slist_append", &loaded.slist_append) ||
        !find(library, "curl_slist_free_all", &loaded.slist_free_all))
        return;
    const curl_version_info_data *version = version_info(CURLVERSION_NOW);
    loaded.version = version->version_num;
    if (loaded.version < OLDEST) {
        snprintf(problem, sizeof problem, "libcurl %s is older than 7.88", version->version);
        return;
    }
    is_loaded = global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

enum nd_status nd_libcurl(const struct nd_libcurl **out, const char *object, struct nd_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!is_loaded)
        return nd_fail(err, ND_E_FETCH_LIBRARY, object, "a file on a server needs libcurl: %s", problem);
    *out = &loaded;
    return ND_OK;
}
#endif
