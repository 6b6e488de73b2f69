/* The elementary functions of base/math_double_lanes.h on eight lanes. */
#ifndef HT_CPU_VECTOR_MATH_DOUBLE_H
#define HT_CPU_VECTOR_MATH_DOUBLE_H

#include "base/math_double.h"
#include "cpu/vector/simd_double.h"

/* Where x is not below 2^30 its parts are found one by one. */
HT_INLINE v8d v8d_far_angle_parts(v8d x, v8d r, v8d *n, v8d *r_low) {
    double one[4][8];
    v8d_store(one[0], x), v8d_store(one[1], r), v8d_store(one[2], *n), v8d_store(one[3], *r_low);
    for (int i = 0; i < 8; i++)
        if (fabs(one[0][i]) > 0x1p+30) one[1][i] = ht_far_angle_parts(one[0][i], &one[2][i], &one[3][i]);
    *n = v8d_load(one[2]), *r_low = v8d_load(one[3]);
    return v8d_load(one[1]);
}

#define HT_V(thing)     v8##thing
#define HT_MASK         m8
#define HT_M(thing)     m8_##thing
#define HT_LANES_INLINE HT_INLINE
#include "base/math_double_lanes.h"
#undef HT_V
#undef HT_MASK
#undef HT_M
#undef HT_LANES_INLINE

#endif
