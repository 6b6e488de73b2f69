/* Chat templates of Hearth's own, for checkpoints that have none and tell their format by a token of their vocabulary. */
#ifndef HT_CHECKPOINT_CHAT_FORMATS_H
#define HT_CHECKPOINT_CHAT_FORMATS_H

#include <stddef.h>

typedef struct ht_builtin_chat_format {
    const char *name;
    const char *opening; /* the token that opens a turn: the format of the first row whose token is there */
    const char *source;  /* the template */
} ht_builtin_chat_format;

/* Row i; NULL past the last one. */
const ht_builtin_chat_format *ht_builtin_chat_format_at(int i);

#endif
