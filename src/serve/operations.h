/* Endpoints for who runs the server: health, metrics, the version. */
#ifndef HT_SERVE_OPERATIONS_H
#define HT_SERVE_OPERATIONS_H

#include "serve/call.h"

/* Each answers a call, as a route runs it, with the shape of its answer, unless that is a text. */
bool serve_health(serve_call *c);
extern const serve_shape serve_health_answer;
bool serve_metrics_page(serve_call *c);
bool serve_version(serve_call *c);
extern const serve_shape serve_version_answer;

#endif
