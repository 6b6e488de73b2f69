/* The library's versions. */
#include <hearth/version.h>

const char *ht_version(void) { return HEARTH_VERSION; }
int ht_abi_version(void) { return HT_ABI_VERSION; }
