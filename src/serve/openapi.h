/* The description of the interface in the form of OpenAPI 3.1, made of the routes and of the tables of their members (fields.h): what requests
 * may be, and what answers and the events of streams are. Shapes with a name are described once, as components. */
#ifndef HT_SERVE_OPENAPI_H
#define HT_SERVE_OPENAPI_H

#include "serve/call.h"

/* GET /openapi.json. */
bool serve_openapi(serve_call *c);
extern const serve_shape serve_openapi_answer;

#endif
