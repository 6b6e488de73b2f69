/* Text that a call allocates for its caller: UTF-8, NUL-terminated, freed by ht_text_free. */
#ifndef HEARTH_TEXT_H
#define HEARTH_TEXT_H

#include <hearth/status.h>

#ifdef __cplusplus
extern "C" {
#endif

HT_API void ht_text_free(char *text); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
