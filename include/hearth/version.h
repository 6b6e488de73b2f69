/* Versions: the release, and the binary interface (ABI) that programs are compiled for. */
#ifndef HEARTH_VERSION_H
#define HEARTH_VERSION_H

#include <hearth/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release, "0.2.0". */
HT_API const char *ht_version(void);

/* The interface of these headers, which is part of the shared library's name (libhearth.so.1). It grows when a function or a
 * struct changes or goes, so that programs have to be compiled anew; functions, enumerators and fields at the end of options
 * are added without. */
#define HT_ABI_VERSION 1
/* The interface of the library: one that does not say HT_ABI_VERSION is not to be used with these headers. For programs that
 * load the library by themselves; a linker looks at the name. */
HT_API int ht_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif
