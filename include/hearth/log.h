/* Logging: the library never writes to a stream; it hands messages to a callback when one is set. */
#ifndef HEARTH_LOG_H
#define HEARTH_LOG_H

#include <hearth/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_log_level { HT_LOG_DEBUG, HT_LOG_INFO, HT_LOG_WARNING } ht_log_level;

/* Called with one message without a newline, valid during the call; may be called from several threads at once. */
typedef void ht_log_fn(ht_log_level level, const char *message, void *user);

/* Sets the process-wide callback and the lowest level it receives; NULL switches logging off (the default). */
HT_API void ht_log_set(ht_log_fn *fn, ht_log_level lowest, void *user);

#ifdef __cplusplus
}
#endif
#endif
