/* Whether this program is built with the sanitizer of addresses or of threads. */
#ifndef ND_TESTS_SANITIZER_H
#define ND_TESTS_SANITIZER_H

#if defined __has_feature
#define ND_HAS_SANITIZER (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define ND_HAS_SANITIZER 1
#else
#define ND_HAS_SANITIZER 0
#endif

#endif
