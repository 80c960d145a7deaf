/* The YAML of a campaign. */
#include "fuzz/fuzz.h"
#include "judge/campaign/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_campaign campaign;
    const char *path = fuzz_file("x.yaml", data, size);
    for (int without_policy = 0; without_policy < 2; without_policy++)
        if (nd_campaign_read(path, without_policy, &campaign, NULL) == ND_OK)
            nd_campaign_deinit(&campaign);
    return 0;
}
