/* Files of a campaign that are made once. Beside each lies "<file>.key": the digest of what the file was made
 * of, and that of the file itself; for a file that is made again the next time also the word "again". It is
 * written after the file: whoever is killed between the two makes the file again. */
#ifndef ND_JUDGE_KEYED_H
#define ND_JUDGE_KEYED_H

#include <stdbool.h>

#include "core/error.h"
#include "core/tensors/sha256.h"

struct nd_keyed {
    bool is_current; /* it was made for this key, and is whole */
    bool is_final;   /* and need not be made again */
    char sha256[ND_SHA256_HEX_BYTES];
};

/* Whether the file is there, made for this key of 64 digits. A file that is missing, or changed since, is not
 * current; one that is there and cannot be read just now is an error (ND_E_FILE_OPEN, ND_E_FILE_READ). */
enum nd_status nd_keyed_look(const char *path, const char *key, struct nd_keyed *out, struct nd_error *err);

/* Writes the key of a file of that digest. */
enum nd_status nd_keyed_write(const char *path, const char *key, const char *sha256, bool is_final,
                              struct nd_error *err);

/* Whether nothing is there. What cannot be reached just now is not missing: reading it says why. */
bool nd_keyed_is_missing(const char *path);

#endif
