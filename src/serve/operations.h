/* Endpoints for who runs the server: health, metrics, the version. */
#ifndef HT_SERVE_OPERATIONS_H
#define HT_SERVE_OPERATIONS_H

#include "serve/call.h"

/* Each answers a call, as a route runs it. */
bool serve_health(serve_call *c);
bool serve_metrics_page(serve_call *c);
bool serve_version(serve_call *c);

#endif
