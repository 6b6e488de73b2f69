/* Bits from a key for machines without a vector form: the same source, compiled for any of them. */
#define HT_ISA reference
#include "cpu/reference/reference.h"
#include "cpu/vector/random.c"

ht_status ht_plain_random_bits(const ht_call *call, ht_error *err) { return random_bits(call, err); }
