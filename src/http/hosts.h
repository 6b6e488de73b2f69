/* Checks of the fields Host and Origin of requests.
 *
 * A browser lets any page send requests to this machine. Host exposes a page whose name was pointed at it (DNS
 * rebinding); Origin exposes pages of other sites. Any thread. */
#ifndef HT_HTTP_HOSTS_H
#define HT_HTTP_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

/* Lists of a server's options, borrowed. */
typedef struct http_host_rules {
    const char *const *host; /* further names: "name", "*.domain" (its subdomains), or "*" (any) */
    size_t n_hosts;
    const char *const
        *origin; /* pages of other sites: "https://name", with a port if it has one, or ":*" for any port; "null" (pages
                                * from files); or "*" (any) */
    size_t n_origins;
} http_host_rules;

/* Whether a request to the address `local` (NULL: not from a network) may name this host, with or without a port:
 * localhost and its subdomains, 127.0.0.0/8, [::1], `local` itself, or a listed name. DNS rebinding needs a name, so
 * `local` is safe. host NULL, which HTTP/1.0 allows, is allowed: browsers always send Host. */
bool http_host_allowed(const char *host, const char *local, const http_host_rules *rules);

/* Sentences of the two refusals. Callers compare them in order to name the options that allow a host or origin. */
extern const char http_host_refused[], http_origin_refused[];

typedef enum http_origin {
    HTTP_ORIGIN_SAME,    /* of the same host, at any port */
    HTTP_ORIGIN_LISTED,  /* a listed site: it may read responses (CORS) */
    HTTP_ORIGIN_FOREIGN, /* an unlisted site: refused */
} http_origin;

/* Classifies the field Origin of a request to `host`. A listed origin is HTTP_ORIGIN_LISTED even for the same host. */
http_origin http_origin_of(const char *origin, const char *host, const http_host_rules *rules);

#endif
