/* The profile of an emulated device, from its URI or from a file. */
#ifndef ND_EMULATOR_PROFILE_H
#define ND_EMULATOR_PROFILE_H

#include "devices/emulator/emulate.h"

/* What a profile file said, for the capture. */
struct nd_profile_file {
    char *text; /* NULL: the profile was in the URI */
    char sha256[65];
};

/* `what` follows "emu:" in the URI: items, or the path of a .yaml or .yml file, a mapping of `items` (a list of
 * texts) and `seed`. ND_E_DEVICE_PROFILE: the message says what is wrong, of a file with line and column;
 * ND_E_FILE_OPEN, ND_E_FILE_READ. Both are the caller's on success. */
enum nd_status nd_profile_read(const char *what, struct nd_emulation *out, struct nd_profile_file *file,
                               struct nd_error *err);

#endif
