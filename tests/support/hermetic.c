/* Linked into every unit test: before main(), removes from the environment what the caller of the tests may
   have set and what would change their outcome. tests/support/hermetic.py does the same for the tests in
   Python. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* Settings of other programs which npudiff, the agent and the dynamic loader obey. */
static const char *const foreign[] = {"ADSP_LIBRARY_PATH", "ANDROID_SERIAL", "COLUMNS",
                                      "LD_LIBRARY_PATH",   "NO_COLOR",       "SOURCE_DATE_EPOCH"};
/* Where the runtimes are is the machine's business, and meson says which agent is tested. */
static const char *const kept[] = {"NPUDIFF_AGENT", "NPUDIFF_RUNTIMES"};

static int is_in(const char *name, size_t length, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == length && strncmp(list[i], name, length) == 0)
            return 1;
    return 0;
}

__attribute__((constructor)) static void forget_the_callers_settings(void)
{
    static const char prefix[] = "NPUDIFF_";
    size_t i = 0;
    while (environ != NULL && environ[i] != NULL) {
        const char *entry = environ[i];
        size_t length = strcspn(entry, "=");
        int is_ours = strncmp(entry, prefix, strlen(prefix)) == 0;
        char name[256];
        if (length < sizeof name && (is_in(entry, length, foreign, sizeof foreign / sizeof *foreign) ||
                                     (is_ours && !is_in(entry, length, kept, sizeof kept / sizeof *kept)))) {
            memcpy(name, entry, length);
            name[length] = '\0';
            unsetenv(name); /* moves the entries behind it one place forward */
        } else
            i++;
    }
    /* valgrind shares memory with what it runs, which a confined reader gives up. */
    const char *preloaded = getenv("LD_PRELOAD");
    if (preloaded != NULL && strstr(preloaded, "vgpreload") != NULL)
        setenv("NPUDIFF_CONFINE", "off", 1);
}
