// The gamma function's relatives. V is vec<float>, vec<double>, float or double.
//
//   V lgamma(V)      log |gamma(x)|; the C library's in double, lane by lane
//   V digamma(V)     its derivative; in double, lane by lane: recurrence up to 10, then the asymptotic series and the
//                    reflection of Abramowitz and Stegun 6.3. Infinite at zero, with the opposite sign; NaN at poles
//
// float results are rounded from double.
#ifndef LITZ_MATH_GAMMA_H
#define LITZ_MATH_GAMMA_H
#include "float_ops.h"

// lgamma itself writes to a variable of the process.
extern "C" double lgamma_r(double, int*);

namespace litz {

static __attribute__((noinline, unused)) double lgamma_scalar(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

static __attribute__((noinline, unused)) double digamma_scalar(double x) {
  constexpr double pi = 3.141592653589793;
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double reflection = 0;
  if (x < 0) {
    double fraction = x - __builtin_trunc(x);
    if (fraction == 0) return __builtin_nan("");
    reflection = -pi / __builtin_tan(pi * fraction);
    x = 1 - x;
  }
  double shift = 0;
  for (; x < 10; x += 1) shift -= 1 / x;
  double w = 1 / (x * x);
  double series = w / 12;
  series = w * (691.0 / 32760 - series);
  series = w * (1.0 / 132 - series);
  series = w * (1.0 / 240 - series);
  series = w * (1.0 / 252 - series);
  series = w * (1.0 / 120 - series);
  series = w * (1.0 / 12 - series);
  return __builtin_log(x) - 0.5 / x - series + shift + reflection;
}

template <class V>
LITZ_FN V lgamma_lanes(V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(lgamma_scalar(x[i]));
  return x;
}
template <class V>
LITZ_FN V digamma_lanes(V x) {
  for (int i = 0; i < lane_count<V>; ++i) x[i] = elem<V>(digamma_scalar(x[i]));
  return x;
}

LITZ_MATH_UNARY(lgamma)
LITZ_MATH_UNARY(digamma)

}  // namespace litz

#endif
