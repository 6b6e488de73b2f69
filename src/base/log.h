/* Logging: writes a message to the callback of <hearth/log.h>. */
#ifndef HT_BASE_LOG_H
#define HT_BASE_LOG_H

#include <hearth/log.h>

void ht_log_write(ht_log_level level, const char *fmt, ...) HT_PRINTF(2, 3);

#endif
