/* Versions: the release, and the binary interface (ABI) that programs are compiled for. */
#ifndef HEARTH_VERSION_H
#define HEARTH_VERSION_H

#include <hearth/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release, "0.2.0". */
HT_API const char *ht_version(void);

/* The interface version of these headers, part of the shared library's name (libhearth.so.1). It grows when a
 * function or a struct changes or is removed, and programs must be recompiled. New functions, enumerators and fields
 * at the end of options do not change it. */
#define HT_ABI_VERSION 1
/* The interface version of the library; do not use these headers with one that does not return HT_ABI_VERSION. For
 * programs that load the library themselves; a linker checks the name. */
HT_API int ht_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif
