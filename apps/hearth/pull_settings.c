#include "pull_settings.h"

#include "fail.h"
#include "terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* As curl, Python's requests and OpenSSL have them named: for networks with authorities of their own. */
static const char *read_certificates(void) {
    static const char *const names[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"};
    const char *path = NULL;
    for (int i = 0; i < 3 && !path; i++) path = variable(names[i]);
    return path;
}

static ht_status read_endpoint(char **out, ht_error *err) {
    const char *given = variable("HF_ENDPOINT"), *url = given ? given : "https://huggingface.co";
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    const bool http = strncasecmp(url, "http://", 7) == 0, https = strncasecmp(url, "https://", 8) == 0;
    if (n <= (https ? 8 : 7) || (!http && !https) || strpbrk(url, "@?# \t\r\n\\"))
        return fail_with(err, HT_ERR_ARGUMENT,
                         "HF_ENDPOINT is \"%.200s\", expected the address of a hub, as https://huggingface.co", url);
    *out = strndup(url, n);
    return *out ? HT_OK : fail_memory(err, "the hub's address");
}

/* The path of the token's file in fresh memory; NULL where no variable names its place, or when memory ran out. */
static char *token_path(void) {
    const char *path = variable("HF_TOKEN_PATH"), *hub = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME"),
               *home = variable("HOME");
    char *out = NULL;
    int n = -1;
    if (path)
        n = asprintf(&out, "%s", path);
    else if (hub)
        n = asprintf(&out, "%s/token", hub);
    else if (cache)
        n = asprintf(&out, "%s/huggingface/token", cache);
    else if (home)
        n = asprintf(&out, "%s/.cache/huggingface/token", home);
    return n < 0 ? NULL : out;
}

enum { TOKEN_BYTES = 4096 };

/* The token without the white space around it, as a line of a header can hold it. The message does not show it. */
static ht_status take_token(const char *text, size_t n, const char *from, char **out, ht_error *err) {
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    while (n && strchr(" \t\r\n", *text)) text++, n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return fail_with(err, HT_ERR_ARGUMENT, "the token of %.300s is no token: it has a character that none has",
                             from);
    if (n == 0) return HT_OK;
    *out = strndup(text, n);
    return *out ? HT_OK : fail_memory(err, "the hub's token");
}

static ht_status read_token(char **out, ht_error *err) {
    char text[TOKEN_BYTES];
    const char *given = variable("HF_TOKEN");
    if (given) return take_token(given, strlen(given), "HF_TOKEN", out, err);
    char *path = token_path();
    FILE *file = path ? fopen(path, "re") : NULL;
    ht_status st = HT_OK;
    if (file) {
        const size_t n = fread(text, 1, sizeof text, file);
        if (ferror(file))
            st = fail_system(err, path, "read");
        else
            st = take_token(text, n, path, out, err);
        fclose(file);
    } else if (path && errno != ENOENT && errno != ENOTDIR)
        st = fail_system(err, path, "read");
    free(path);
    return st;
}

ht_status pull_settings_read(const options *o, pull_settings *out, ht_error *err) {
    *out = (pull_settings){.certificates = read_certificates(),
                           .retries = options_given(o, "retries") ? o->retries : 5,
                           .retry_delay = options_given(o, "retry-delay") ? o->retry_delay : 1,
                           .timeout = options_given(o, "timeout") ? o->timeout : 30,
                           .connections = options_given(o, "connections") ? o->connections : 4,
                           .quiet = o->quiet};
    const ht_status st = read_endpoint(&out->endpoint, err);
    return st ? st : read_token(&out->token, err);
}

bool pull_stopped(const pull_settings *s) {
    return ht_cancel_requested(interrupt_flag()) || (s->stop && atomic_load(s->stop));
}

void pull_settings_free(pull_settings *s) {
    free(s->endpoint);
    free(s->token);
    *s = (pull_settings){0};
}
