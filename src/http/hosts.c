#include "http/hosts.h"

#include "http/text.h"

#include <arpa/inet.h>
#include <string.h>

const char http_host_refused[] = "This server is not asked under the name in Host; it has to be allowed.";
const char http_origin_refused[] = "Pages of the site in Origin may not ask this server; it has to be allowed.";

enum { NAME_BYTES = 256 };

/* The host of "host:port" or "[address]:port", lower-case, without brackets and without a final dot. False: none, or too long. */
static bool host_part(const char *host, char out[NAME_BYTES]) {
    const bool bracket = *host == '[';
    size_t n = bracket ? strcspn(++host, "]") : strcspn(host, ":");
    if (!bracket && n && host[n - 1] == '.') n--;
    if (n == 0 || n >= NAME_BYTES) return false;
    for (size_t i = 0; i < n; i++) out[i] = http_lower(host[i]);
    out[n] = '\0';
    return true;
}

static bool has_suffix(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && http_same_word(name + n - m, suffix);
}

static bool is_loopback(const char *name) {
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, name, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
    return strcmp(name, "localhost") == 0 || has_suffix(name, ".localhost");
}

/* Whether both are the same numeric address, in any spelling. */
static bool same_address(const char *a, const char *b) {
    unsigned char x[sizeof(struct in6_addr)], y[sizeof x];
    if (inet_pton(AF_INET, a, x) == 1 && inet_pton(AF_INET, b, y) == 1)
        return memcmp(x, y, sizeof(struct in_addr)) == 0;
    return inet_pton(AF_INET6, a, x) == 1 && inet_pton(AF_INET6, b, y) == 1 && memcmp(x, y, sizeof x) == 0;
}

static bool host_matches(const char *name, const char *rule) {
    if (strcmp(rule, "*") == 0 || http_same_word(name, rule) || same_address(name, rule)) return true;
    return strncmp(rule, "*.", 2) == 0 && has_suffix(name, rule + 1);
}

bool http_host_allowed(const char *host, const char *local, const http_host_rules *rules) {
    char name[NAME_BYTES];
    if (!host || !local) return true;
    if (!host_part(host, name)) return false;
    if (is_loopback(name) || same_address(name, local)) return true;
    for (size_t i = 0; i < rules->n_hosts; i++)
        if (host_matches(name, rules->host[i])) return true;
    return false;
}

/* Whether "scheme://host:port" is the rule, which may end with ":*". */
static bool origin_matches(const char *origin, const char *rule) {
    const size_t n = strlen(rule);
    if (strcmp(rule, "*") == 0 || http_same_word(origin, rule)) return true;
    if (n < 2 || strcmp(rule + n - 2, ":*") != 0) return false;
    for (size_t i = 0; i < n - 2; i++)
        if (http_lower(origin[i]) != http_lower(rule[i])) return false; /* stops at the end of `origin` */
    const char *port = origin + n - 2;
    return *port == '\0' || (*port == ':' && port[1] && port[1 + strspn(port + 1, "0123456789")] == '\0');
}

http_origin http_origin_of(const char *origin, const char *host, const http_host_rules *rules) {
    char from[NAME_BYTES], to[NAME_BYTES];
    for (size_t i = 0; i < rules->n_origins; i++)
        if (origin_matches(origin, rules->origin[i])) return HTTP_ORIGIN_LISTED;
    const char *authority = strstr(origin, "://");
    const bool same =
        authority && host && host_part(authority + 3, from) && host_part(host, to) && strcmp(from, to) == 0;
    return same ? HTTP_ORIGIN_SAME : HTTP_ORIGIN_FOREIGN;
}
