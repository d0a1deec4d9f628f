// Division of floats that rounds to an integer. V is vec<float>, vec<double>, float or double.
//
//   V fmod(V a, V b)         C's: the sign of a; exact
//   V remainder(V a, V b)    Python's: the sign of b, as torch.remainder
//   V floor_div(V a, V b)    Python's, as torch.floor_divide: infinite or NaN where b is zero
//   V trunc_div(V a, V b)    trunc(a / b)
#ifndef LITZ_MATH_DIVIDE_H
#define LITZ_MATH_DIVIDE_H
#include "arithmetic.h"

namespace litz {

LITZ_LIBM_BINARY(fmod)

template <class V>
static __attribute__((noinline)) V fmod_far(V a, V b) {
  return fmod_libm(a, b);
}

// While the quotient has no more digits than a float, its integral part is right or one too large, and one fused
// product gives the rest exactly; other lanes, infinities and NaN too, send the whole vector to the C library.
template <class V>
LITZ_FN V fmod_lanes(V a, V b) {
#if LITZ_HAS_FMA
  if constexpr (sizeof(V) >= 16) {
    V q = trunc_lanes(a / b), size = abs_lanes(b);
    auto near = (abs_lanes(q) < splat<V>(is_f32<V> ? 0x1p22 : 0x1p51)) & (size < splat<V>(__builtin_inf()));
    if (__builtin_expect(all_of(near), 1)) {
      V r = mul_add(-q, b, a);
      V past = r * copysign_lanes(splat<V>(1), a);
      r = blend<V>(past < V{}, r + copysign_lanes(size, a), r);
      return copysign_lanes(r, a);
    }
  }
#endif
  return fmod_far(a, b);
}
template <class V>
LITZ_FN V remainder_lanes(V a, V b) {
  V zero = V{};
  V r = fmod_lanes(a, b);
  V shifted = blend<V>(b < zero, blend<V>(r > zero, r + b, r), blend<V>(r < zero, r + b, r));
  return blend<V>(r == zero, r, shifted);
}
// The quotient is made exact through the remainder, then rounded: a / b alone may round up to the next integer.
template <class V>
LITZ_FN V floor_div_lanes(V a, V b) {
  V zero = V{}, one = splat<V>(1);
  V r = fmod_lanes(a, b);
  V q = (a - r) / b;
  V lower = q - one;
  q = blend<V>(b < zero, blend<V>(r > zero, lower, q), blend<V>(r < zero, lower, q));
  V whole = floor_lanes(q);
  whole = blend<V>(q - whole > splat<V>(0.5), whole + one, whole);
  whole = blend<V>(q == zero, copysign_lanes(zero, a / b), whole);
  return blend<V>(b == zero, a / b, whole);
}
template <class V>
LITZ_FN V trunc_div_lanes(V a, V b) {
  return trunc_lanes(a / b);
}

LITZ_MATH_BINARY(fmod)
LITZ_MATH_BINARY(remainder)
LITZ_MATH_BINARY(floor_div)
LITZ_MATH_BINARY(trunc_div)

}  // namespace litz

#endif
