"""Importing this removes from the environment what the caller of the tests may have set and what would change their outcome.
tests/support/hermetic.c does the same for the unit tests."""
import os

# Settings of other programs which npudiff, the agent and the dynamic loader obey.
FOREIGN = {"ADSP_LIBRARY_PATH", "ANDROID_SERIAL", "COLUMNS", "LD_LIBRARY_PATH", "NO_COLOR", "SOURCE_DATE_EPOCH"}
# Where the runtimes are is the machine's business; which library is tested, that of tools/check.sh.
KEPT = {"NPUDIFF_LIBRARY", "NPUDIFF_RUNTIMES"}

for name in list(os.environ):
    if name in FOREIGN or (name.startswith("NPUDIFF_") and name not in KEPT):
        del os.environ[name]
