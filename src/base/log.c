#include "base/log.h"

#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock;
    ht_log_fn *fn;
    ht_log_level lowest;
    void *user;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ht_log_set(ht_log_fn *fn, ht_log_level lowest, void *user) {
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.lowest = lowest;
    sink.user = user;
    pthread_mutex_unlock(&sink.lock);
}

void ht_log_write(ht_log_level level, const char *fmt, ...) {
    pthread_mutex_lock(&sink.lock);
    ht_log_fn *fn = level >= sink.lowest ? sink.fn : NULL;
    void *user = sink.user;
    pthread_mutex_unlock(&sink.lock);
    if (!fn) return;
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    ht_utf8_trim(message);
    fn(level, message, user);
}
