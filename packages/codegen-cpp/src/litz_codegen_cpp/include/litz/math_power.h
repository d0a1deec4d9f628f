// Powers and neighbours. V is vec<float>, vec<double>, float or double; I is vec<T> or T for any integer T.
//
//   V pow(V x, V y)          the C library's, lane by lane
//   I pow(I x, I y)          wraps; a negative y gives 1 for x = 1, the sign of (-1)^y for x = -1, else 0
//   V nextafter(V x, V y)
#ifndef LITZ_MATH_POWER_H
#define LITZ_MATH_POWER_H
#include "arithmetic.h"

namespace litz {

LITZ_LIBM_BINARY(pow)
LITZ_LIBM_BINARY(nextafter)

template <class V>
LITZ_FN V pow_lanes(V x, V y) {
  return pow_libm(x, y);
}
template <class V>
LITZ_FN V nextafter_lanes(V x, V y) {
  return nextafter_libm(x, y);
}

LITZ_MATH_BINARY(pow)
LITZ_MATH_BINARY(nextafter)

LITZ_FN bool any_lane(bool c) { return c; }
LITZ_FN bool any_lane(mask m) { return any_true(m); }

template <class V>
LITZ_FN V pow(V x, V y) {
  V zero = splat<V>(0), one = splat<V>(1);
  V result = one, factor = x, left = y;
  if constexpr (is_signed<V>) {
    V odd = blend<V>((y & one) == one, x, one);
    V inverse = blend<V>(x == one, one, blend<V>(x == splat<V>(-1), odd, zero));
    result = blend<V>(y < zero, inverse, one);
    left = blend<V>(y < zero, zero, y);
  }
  while (any_lane(as_mask(left != zero))) {
    result = blend<V>((left & one) == one, mul_wrapping(result, factor), result);
    factor = mul_wrapping(factor, factor);
    left = V(left >> one);
  }
  return result;
}

}  // namespace litz

#endif
