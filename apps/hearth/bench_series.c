/* Statistics of a series of rounds: mean, deviation, median. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double series_mean(const series *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->values[i];
    return s->n ? sum / s->n : 0;
}

double series_deviation(const series *s) {
    double sum = 0, m = series_mean(s);
    for (int i = 0; i < s->n; i++) sum += (s->values[i] - m) * (s->values[i] - m);
    return s->n > 1 ? sqrt(sum / (s->n - 1)) : 0;
}

/* The value with as many below as above; there are few, so counting will do. */
double series_median(const series *s) {
    double low = 0, high = 0;
    for (int i = 0; i < s->n; i++) {
        int below = 0, equal = 0;
        for (int j = 0; j < s->n; j++) {
            below += s->values[j] < s->values[i];
            equal += s->values[j] == s->values[i];
        }
        if (below <= (s->n - 1) / 2 && (s->n - 1) / 2 < below + equal) low = s->values[i];
        if (below <= s->n / 2 && s->n / 2 < below + equal) high = s->values[i];
    }
    return (low + high) / 2;
}

void series_add(series *s, double value) { s->values[s->n++] = value; }
