/* The library's version. */
#include <hearth/version.h>

const char *ht_version(void) { return HEARTH_VERSION; }
