#include "devices/phones/host_place.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

static enum nd_status fail(const char *path, const char *problem, struct nd_error *err)
{
    return nd_fail(err, ND_E_LEASE, path, "cannot lock '%s', a place of a host: %s", path, problem);
}

/* The folder of those who name none. It lies where everybody may write, so that somebody else's is refused. */
static enum nd_status make_own_folder(const char *path, struct nd_error *err)
{
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail(path, strerror(errno), err);
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return fail(path, "it is not a folder of yours", err);
    return ND_OK;
}

/* "<folder>/<host>.<number>.lock"; what may mean something in a name of a file is written %XX. */
static char *lock_path(const char *folder, const char *host, size_t number)
{
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/", folder);
    for (const char *at = host; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        nd_strbuf_printf(&path, c < 0x80 && (isalnum(c) || c == '-' || c == '_') ? "%c" : "%%%02X", c);
    }
    nd_strbuf_printf(&path, ".%zu.lock", number);
    return nd_strbuf_take(&path);
}

static enum nd_status try_lock(const char *path, bool *is_taken, int *place, struct nd_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return fail(path, strerror(errno), err);
    int rc;
    while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    int problem = rc != 0 ? errno : 0;
    *is_taken = rc == 0;
    if (rc == 0)
        *place = fd;
    else
        close(fd);
    return problem == 0 || problem == EWOULDBLOCK ? ND_OK : fail(path, strerror(problem), err);
}

enum nd_status nd_host_place_take(const struct nd_fleet *fleet, const struct nd_fleet_host *host,
                                  bool *is_taken, int *place, struct nd_error *err)
{
    struct nd_strbuf own = {0};
    nd_strbuf_printf(&own, "/tmp/npudiff-hosts-%lu", (unsigned long)geteuid());
    char *folder = fleet->locks != NULL ? nd_strdup(fleet->locks) : nd_strbuf_take(&own);
    enum nd_status status = folder != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && fleet->locks == NULL)
        status = make_own_folder(folder, err);
    *is_taken = false;
    for (size_t i = 0; status == ND_OK && !*is_taken && i < host->captures; i++) {
        char *path = lock_path(folder, host->name, i);
        status = path != NULL ? try_lock(path, is_taken, place, err) : nd_fail_memory(err);
        free(path);
    }
    nd_strbuf_deinit(&own);
    free(folder);
    return status;
}

void nd_host_place_leave(int place)
{
    flock(place, LOCK_UN); /* a child that was just made may still have it open */
    close(place);
}
