/* The description of the interface in the form of OpenAPI 3.1, made of the routes and of the tables of their members (fields.h): what requests
 * may be. What responses are is recorded in responses.json, by tests/serve/check_answers.py. */
#ifndef HT_SERVE_OPENAPI_H
#define HT_SERVE_OPENAPI_H

#include "serve/call.h"

/* GET /openapi.json. */
bool serve_openapi(serve_call *c);

#endif
