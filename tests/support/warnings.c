#include "support/warnings.h"

#include "support/test.h"

#include <hearth/log.h>

#include <stdio.h>
#include <string.h>

static char text[4096];
static int count;

static void take(ht_log_level level, const char *message, void *user) {
    (void)user;
    assert_int_equal(level, HT_LOG_WARNING);
    const size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "%s\n", message);
    count++;
}

void warnings_begin(void) {
    text[0] = '\0';
    count = 0;
    ht_log_set(take, HT_LOG_WARNING, NULL);
}

const char *warnings_end(int n) {
    ht_log_set(NULL, HT_LOG_WARNING, NULL);
    if (count != n) fail_msg("%d warnings, expected %d: %s", count, n, text);
    return text;
}
