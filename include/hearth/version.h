/* The library's version. */
#ifndef HEARTH_VERSION_H
#define HEARTH_VERSION_H

#include <hearth/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
HT_API const char *ht_version(void);

#ifdef __cplusplus
}
#endif
#endif
