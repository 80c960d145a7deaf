/* Where the agents are: that of this machine, and those for others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/runtimes/sdk.h"

static const char agent_name[] = "npudiff-agent";

/* Of the agents the one with the suffix, beside this one; NULL when there is none. Takes over `path`. */
static char *add_suffix(char *path, const char *suffix)
{
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s", path, suffix);
    char *made = nd_strbuf_take(&text);
    free(path);
    if (made != NULL && access(made, X_OK) == 0)
        return made;
    free(made);
    return NULL;
}

/* The folder of the running program, in new memory; NULL when it cannot be told. */
static char *own_folder(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    return nd_path_dir(self);
}

enum nd_status nd_agent_find(const char *wanted, const char *suffix, char **path, struct nd_error *err)
{
    const char *from_environment = getenv("NPUDIFF_AGENT");
    if (wanted == NULL && from_environment != NULL && from_environment[0] != '\0')
        wanted = from_environment;
    char *folder = own_folder();
    /* Beside the program when installed; beside its folder in a build tree; for other programs, where it was
     * installed. */
    char *beside = folder != NULL ? nd_path_join(folder, agent_name) : NULL;
    char *in_build = folder != NULL ? nd_path_join(folder, "../devices/agent/npudiff-agent") : NULL;
    char *of_lab = folder != NULL ? nd_path_join(folder, "../src/devices/agent/npudiff-agent") : NULL;
    const char *candidates[] = {wanted, wanted == NULL ? beside : NULL, wanted == NULL ? in_build : NULL,
                                wanted == NULL ? of_lab : NULL, wanted == NULL ? ND_INSTALLED_AGENT : NULL};
    char *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] != NULL && access(candidates[i], X_OK) == 0)
            found = realpath(candidates[i], NULL);
    if (found != NULL && suffix[0] != '\0')
        found = add_suffix(found, suffix);
    free(folder);
    free(beside);
    free(in_build);
    free(of_lab);
    if (found == NULL)
        return nd_fail(err, ND_E_DEVICE_AGENT, wanted, "cannot find the agent '%s%s' to run devices with",
                       wanted != NULL ? wanted : agent_name, suffix);
    *path = found;
    return ND_OK;
}

/* <folder>/<between>/<abi>/npudiff-agent by its full path, where it is; else NULL. */
static char *find_under(const char *folder, const char *between, const char *abi)
{
    struct nd_strbuf text = {0};
    if (folder == NULL || folder[0] == '\0')
        return NULL;
    nd_strbuf_printf(&text, "%s%s/%s/%s", folder, between, abi, agent_name);
    char *path = nd_strbuf_take(&text);
    char *found = path != NULL && access(path, R_OK) == 0 ? realpath(path, NULL) : NULL;
    free(path);
    return found;
}

enum nd_status nd_agent_find_abi(const char *wanted, const char *abi, char **path, struct nd_error *err)
{
    char *folder = own_folder(), *cached = nd_cache_folder("agents");
    char *found = find_under(getenv("NPUDIFF_AGENTS"), "", abi);
    /* Installed; in a build tree; made once for all. */
    if (found == NULL)
        found = find_under(folder, "/agents", abi);
    if (found == NULL)
        found = find_under(folder, "/../agents", abi);
    if (found == NULL)
        found = find_under(folder, "/../../agents", abi);
    if (found == NULL)
        found = find_under(cached, "", abi);
    free(folder);
    free(cached);
    if (found != NULL) {
        *path = found;
        return ND_OK;
    }
    if (strcmp(abi, nd_abi_here()) == 0)
        return nd_agent_find(wanted, "", path, err);
    return nd_fail(
        err, ND_E_DEVICE_AGENT, abi,
        "there is no npudiff-agent for %s; 'tools/build_agent %s' builds it, or $NPUDIFF_AGENTS names "
        "the folder that holds '%s/%s'",
        abi, abi, abi, agent_name);
}
