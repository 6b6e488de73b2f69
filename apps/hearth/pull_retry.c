#include "pull_retry.h"

#include "fail.h"
#include "terminal.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    DOUBLINGS_MAX = 5,     /* the longest wait is 32 times the first */
    RETRY_AFTER_MAX = 300, /* seconds that a server may ask for */
};

/* From a half to 1, so that many who were refused together do not come back together. */
static double jitter(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t x = (uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 20 ^ (uint64_t)getpid() << 40;
    for (int i = 0; i < 3; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return 0.5 + (double)(x >> 11) / (double)(1ULL << 53) / 2;
}

static void wait_for(const pull_settings *s, double seconds) {
    const double end = now_seconds() + seconds;
    for (double left = seconds; left > 0 && !pull_stopped(s); left = end - now_seconds()) {
        const double piece = left < 0.2 ? left : 0.2;
        const struct timespec t = {(time_t)0, (long)(piece * 1e9)};
        nanosleep(&t, NULL);
    }
}

ht_status retry_wait(retry *r, const char *what, const http_answer *answer, const ht_error *why, ht_error *err) {
    double seconds = r->settings->retry_delay *
                     ldexp(1, (int)(r->failures < DOUBLINGS_MAX ? r->failures : DOUBLINGS_MAX)) * jitter();
    if (r->failures++ >= r->settings->retries)
        return fail_with(err, why->status, "%.200s: %.400s; given up after %lld attempt%s", what, why->message,
                         (long long)r->failures, plural(r->failures));
    if (answer->retry_after > (double)RETRY_AFTER_MAX)
        return fail_with(err, why->status, "%.200s: %.400s; it asks to come back in %.0f s", what, why->message,
                         answer->retry_after);
    if (answer->retry_after > seconds) seconds = answer->retry_after;
    pull_note(r->show, "%.200s: %.400s; trying again in %.*f s", what, why->message, seconds < 10, seconds);
    wait_for(r->settings, seconds);
    return pull_stopped(r->settings) ? fail_with(err, HT_ERR_CANCELLED, "interrupted") : HT_OK;
}
