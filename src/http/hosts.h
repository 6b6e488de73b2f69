/* Names under which a server may be asked, and pages of other sites that may ask it.
 *
 * A browser lets any page send requests to this machine. A page whose name is made to point here (DNS rebinding) gives itself away by the
 * name in Host; one of another site, by Origin. Any thread. */
#ifndef HT_HTTP_HOSTS_H
#define HT_HTTP_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

/* Lists of a server's options, lent. */
typedef struct http_host_rules {
    const char *const *host; /* further names: "name", "*.domain" (its subdomains), or "*" (any) */
    size_t n_hosts;
    const char *const
        *origin; /* pages of other sites: "https://name", with a port if it has one, or ":*" for any port; "null" (pages
                                * from files); or "*" (any) */
    size_t n_origins;
} http_host_rules;

/* Whether a request that came to the address `local` (NULL: not from a network) may name this host, with or without a port: localhost and its
 * subdomains, 127.0.0.0/8, [::1], the address that it came to, or one of the list. An address of numbers is no name that could point
 * elsewhere tomorrow. host NULL, as HTTP/1.0 may have it, is what no browser sends. */
bool http_host_allowed(const char *host, const char *local, const http_host_rules *rules);

/* Sentences of the refusals of either, by which the layer above knows them, as it alone knows where names are allowed. */
extern const char http_host_refused[], http_origin_refused[];

typedef enum http_origin {
    HTTP_ORIGIN_SAME,    /* of the same host, at any port */
    HTTP_ORIGIN_LISTED,  /* another site, of the list: it may read answers (CORS) */
    HTTP_ORIGIN_FOREIGN, /* another site: to be refused */
} http_origin;

/* What a field Origin of a request to `host` says. Of the same host and listed: listed. */
http_origin http_origin_of(const char *origin, const char *host, const http_host_rules *rules);

#endif
