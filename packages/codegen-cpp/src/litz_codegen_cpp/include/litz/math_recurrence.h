// Sequences of a length known at run time. V is vec<float>, vec<double>, float or double.
//
//   V three_term(V n, V first, V a, V b, V c, V d, V e)   lane by lane: the term n, truncated, of 1, first and on by
//                    q[k + 1] = ((a k + b) q[k] - (c + d k) q[k - 1]) / (e k + 1), fused where it can be. 0 before the
//                    first term, for NaN and for what no int64_t holds
#ifndef LITZ_MATH_RECURRENCE_H
#define LITZ_MATH_RECURRENCE_H
#include "lanes.h"

namespace litz {

LITZ_FN float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LITZ_FN double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class T>
static __attribute__((noinline, unused)) T three_term_scalar(T n, T first, T a, T b, T c, T d, T e) {
  if (!(n > -1 && n < T(0x1p63))) return 0;
  if (n < 1) return 1;
  T before = 1, value = first;
  int64_t last = int64_t(n);
  for (int64_t k = 1; k < last && value == value; ++k) {
    T next = fused(fused(a, T(k), b), value, -(c + d * T(k)) * before) / (e * T(k) + 1);
    before = value;
    value = next;
  }
  return value;
}

template <class V>
LITZ_FN V three_term_halves(V n, V first, V a, V b, V c, V d, V e) {
  if constexpr (is_wide<V>) {
    return {three_term_halves(n.lo, first.lo, a.lo, b.lo, c.lo, d.lo, e.lo),
            three_term_halves(n.hi, first.hi, a.hi, b.hi, c.hi, d.hi, e.hi)};
  } else {
    for (int i = 0; i < lane_count<V>; ++i) n[i] = three_term_scalar(n[i], first[i], a[i], b[i], c[i], d[i], e[i]);
    return n;
  }
}
#define LITZ_THREE_TERM(V) \
  LITZ_FN V three_term(V n, V first, V a, V b, V c, V d, V e) { return three_term_halves(n, first, a, b, c, d, e); }
LITZ_THREE_TERM(vec<float>)
LITZ_THREE_TERM(vec<double>)
#undef LITZ_THREE_TERM
LITZ_FN float three_term(float n, float first, float a, float b, float c, float d, float e) {
  return three_term_scalar(n, first, a, b, c, d, e);
}
LITZ_FN double three_term(double n, double first, double a, double b, double c, double d, double e) {
  return three_term_scalar(n, first, a, b, c, d, e);
}

}  // namespace litz

#endif
