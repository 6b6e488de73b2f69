/* Repetition of what failed for a while: waits that double, with jitter, or as long as the server asks. */
#ifndef HEARTH_APP_PULL_RETRY_H
#define HEARTH_APP_PULL_RETRY_H

#include "pull_http.h"
#include "pull_progress.h"

typedef struct retry {
    const pull_settings *settings;
    pull_progress *show;
    int64_t failures; /* in a row; whoever got further sets it to 0 */
} retry;

/* After a failure `why` of `what`: waits, and says so. Not HT_OK when it has failed often enough, when the server wants to be left alone for
 * longer than five minutes, or when it is to stop. */
ht_status retry_wait(retry *r, const char *what, const http_answer *answer, const ht_error *why, ht_error *err);

#endif
