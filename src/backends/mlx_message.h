/* Messages between Hearth and mlx_bridge.py: one JSON object a line.
 *
 * Requests have an `id` that grows, and a `command`:
 *
 *   load      path, adapter {path, scale} or null         -> info
 *   generate  ids, max_tokens, stop_ids, sampler {...}    -> begin, tokens..., done
 *   chat      the same; keeps the cache for the next one  -> begin, tokens..., done
 *   info                                                  -> info
 *   inspect   ids                                         -> keys..., done
 *   cancel    target, an earlier id                          nothing by itself: its target ends with done
 *   quit                                                     nothing
 *
 * An error event may replace or end the response to any request but the last two. An event has the id of its request,
 * an `event`, and exactly the fields of that event. Anything else is rejected with the cause. */
#ifndef HT_BACKENDS_MLX_MESSAGE_H
#define HT_BACKENDS_MLX_MESSAGE_H

#include "formats/json.h"

#include <hearth/backend.h>

typedef enum ht_mlx_event_kind {
    HT_MLX_INFO = 1,
    HT_MLX_BEGIN,
    HT_MLX_TOKENS,
    HT_MLX_KEYS,
    HT_MLX_DONE,
    HT_MLX_ERROR
} ht_mlx_event_kind;

enum { HT_MLX_TOKENS_MAX = 64 }; /* of an event */

/* An event; texts are lent until ht_mlx_event_free. */
typedef struct ht_mlx_event {
    ht_mlx_event_kind kind;
    int64_t id;
    ht_json *root;
    ht_backend_info info;              /* of HT_MLX_INFO */
    int64_t reused;                    /* of HT_MLX_BEGIN: tokens of the prompt that the cache held */
    int32_t tokens[HT_MLX_TOKENS_MAX]; /* of HT_MLX_TOKENS */
    int n_tokens;                      /* 1 or more */
    ht_backend_keys keys;              /* of HT_MLX_KEYS; the numbers are not their own */
    float *numbers;                    /* keys, then values */
    ht_finish finish;                  /* of HT_MLX_DONE; HT_FINISH_CALLBACK: cancelled */
    int32_t stop_id;                   /* likewise: the token that ended it; -1: none */
    int64_t peak_memory_bytes;         /* likewise */
    ht_status status;                  /* of HT_MLX_ERROR */
    const char *message;               /* likewise, UTF-8 without control characters */
} ht_mlx_event;

/* Reads a line of n bytes. HT_ERR_FORMAT for an invalid event, HT_ERR_MEMORY. The caller frees *e, also after a
 * failure. */
ht_status ht_mlx_event_read(const char *line, size_t n, ht_mlx_event *e, ht_error *err);
void ht_mlx_event_free(ht_mlx_event *e);
const char *ht_mlx_event_name(ht_mlx_event_kind kind);

/* A request as a line, with the fields of `more`, whose reference it takes. NULL: out of memory, also when `more` is
 * NULL. */
char *ht_mlx_request_write(int64_t id, const char *command, ht_json *more);

#endif
