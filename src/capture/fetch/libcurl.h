/* libcurl, loaded when it is first needed: no other command waits for it, and npudiff runs without it. */
#ifndef ND_FETCH_LIBCURL_H
#define ND_FETCH_LIBCURL_H

#if ND_HAVE_CURL_H
#define CURL_DISABLE_TYPECHECK /* functions are called through pointers */
#include <curl/curl.h>

#include "core/error.h"

struct nd_libcurl {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
    unsigned version; /* as LIBCURL_VERSION_NUM */
};

/* The same one for the whole process, never unloaded; any thread. ND_E_FETCH_LIBRARY: there is none, or it is
 * too old. object: the file that it is needed for. */
enum nd_status nd_libcurl(const struct nd_libcurl **out, const char *object, struct nd_error *err);
#endif
#endif
