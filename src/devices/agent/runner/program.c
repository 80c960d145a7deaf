#include "devices/agent/runner/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"

enum { MAX_WORDS = 65536 }; /* bytes of a command line that are looked at; chosen */

/* The words of the command line, each with its NUL; how many bytes. */
static size_t read_words(pid_t pid, char *words)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, words, MAX_WORDS - 1) : -1;
    if (fd >= 0)
        close(fd);
    words[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* The first file among the words behind the program itself, by a path that leads there from here, in new
 * memory; NULL without one. */
static char *find_script(pid_t pid, const char *words, size_t n)
{
    char folder[64];
    struct stat info;
    snprintf(folder, sizeof folder, "/proc/%ld/cwd", (long)pid);
    for (const char *word = words + strlen(words) + 1; word < words + n; word += strlen(word) + 1) {
        char *path = word[0] != '-' && word[0] != '\0' ? nd_path_join(folder, word) : NULL;
        if (path != NULL && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            return path;
        free(path);
    }
    return NULL;
}

static void measure_file(const char *path, char hex[static ND_SHA256_HEX_BYTES])
{
    if (path == NULL || nd_sha256_file(path, hex, NULL) != ND_OK)
        nd_sha256_bytes("", 0, hex);
}

void nd_runner_measure(const char *path, pid_t pid, char hex[static ND_SHA256_HEX_BYTES])
{
    char digests[3][ND_SHA256_HEX_BYTES], executable[64];
    char *words = malloc(MAX_WORDS);
    size_t n = words != NULL ? read_words(pid, words) : 0;
    char *script = n > 0 ? find_script(pid, words, n) : NULL;
    snprintf(executable, sizeof executable, "/proc/%ld/exe", (long)pid);
    measure_file(path, digests[0]);
    measure_file(executable, digests[1]);
    measure_file(script, digests[2]);
    nd_sha256_bytes(digests, sizeof digests, hex);
    free(script);
    free(words);
}
