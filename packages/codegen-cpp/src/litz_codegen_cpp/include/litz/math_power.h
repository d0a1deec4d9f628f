// Powers and neighbours. V is vec<float>, vec<double>, float or double; I is vec<T> or T for any integer T.
//
//   V pow(V x, V y)          C's rules for specials
//   I pow(I x, I y)          wraps; a negative y gives 1 for x = 1, (-1)^y for x = -1, else 0
//   I gcd(I x, I y)          Euclid's, over the absolute values; of two zeros 0
//   V nextafter(V x, V y)    nextafter_bf16 and nextafter_f16 take floats that hold such numbers
//
// float pow: 2^(y log2 x) in double; under 0.6 ulp. double pow: the C library's, lane by lane.
#ifndef LITZ_MATH_POWER_H
#define LITZ_MATH_POWER_H
#include "arithmetic.h"
#include "math_wide.h"

namespace litz {

LITZ_LIBM_BINARY(pow)

template <class D>
LITZ_FN D power_for_float(D x, D y) {
  if constexpr (is_wide<D>) return {power_for_float(x.lo, y.lo), power_for_float(x.hi, y.hi)};
  else return exp2_for_float(y * log2_of_float(x));
}

template <class V>
LITZ_FN V pow_lanes(V x, V y) {
  if constexpr (!is_f32<V>) {
    return pow_libm(x, y);
  } else {
    typedef lane_mask<V> I;
    typedef typename vector_of<double, lane_count<V>>::type D;
    V zero = V{}, one = splat<V>(1), a = abs_lanes(x);
    V r = convert_lanes<V>(power_for_float(convert_lanes<D>(a), convert_lanes<D>(y)));
    // 1 to an infinite power has no logarithm to speak of.
    r = blend<V>(a == one, one, r);
    V half_y = y * splat<V>(0.5f);
    I whole = trunc_lanes(y) == y;
    I odd = whole & (trunc_lanes(half_y) != half_y);
    I negative = (I)x < I{};
    r = (V)((I)r | (odd & negative & sign_bit<V>()));
    I undefined = negative & ~whole & (x < zero) & (a < splat<V>(__builtin_inff()));
    r = blend<V>(undefined, splat<V>(__builtin_nanf("")), r);
    r = blend<V>((x != x) | (y != y), x + y, r);
    return blend<V>((x == one) | (y == zero), one, r);
  }
}

// One step of y's direction along the codes, which are the bits of x times a power of two.
template <class V>
LITZ_FN V step_code(V x, V y, V scaled, elem<lane_mask<V>> step) {
  typedef lane_mask<V> I;
  I away = (x < y) ^ ((I)x < I{});  // -1 where the magnitude grows
  I moved = (I)scaled - blend<I>(away, splat<I>(-step), splat<I>(step));
  return (V)blend<I>(x == V{}, (I)copysign_lanes((V)splat<I>(step), y), moved);
}
template <class V>
LITZ_FN V step_unless_equal(V x, V y, V stepped) {
  V r = blend<V>(x == y, y, stepped);
  return blend<V>((x != x) | (y != y), x + y, r);
}
template <class V>
LITZ_FN V nextafter_lanes(V x, V y) {
  return step_unless_equal(x, y, step_code(x, y, x, 1));
}
template <class V>
LITZ_FN V nextafter_bf16_lanes(V x, V y) {
  return step_unless_equal(x, y, step_code(x, y, x, 0x10000));
}
// Under 2^-112 the floats that half has, its denormals too, lie 2^13 codes apart; infinity is the one after 65504.
template <class V>
LITZ_FN V nextafter_f16_lanes(V x, V y) {
  V past = splat<V>(65536.0f), inf = splat<V>(__builtin_inff());
  V scaled = blend<V>(abs_lanes(x) == inf, copysign_lanes(past, x), x) * splat<V>(0x1p-112f);
  V r = step_code(x, y, scaled, 0x2000) * splat<V>(0x1p112f);
  return step_unless_equal(x, y, blend<V>(abs_lanes(r) >= past, copysign_lanes(inf, r), r));
}

LITZ_MATH_BINARY(pow)
LITZ_MATH_BINARY(nextafter)
#define LITZ_NARROW_NEXTAFTER(name)                                                          \
  template <class V>                                                                         \
  LITZ_FN V name##_halves(V x, V y) {                                                        \
    if constexpr (is_wide<V>) return {name##_halves(x.lo, y.lo), name##_halves(x.hi, y.hi)}; \
    else return name##_lanes(x, y);                                                          \
  }                                                                                          \
  LITZ_FN vec<float> name(vec<float> x, vec<float> y) { return name##_halves(x, y); }        \
  LITZ_FN float name(float x, float y) { return name##_lanes(splat<f32x4>(x), splat<f32x4>(y))[0]; }
LITZ_NARROW_NEXTAFTER(nextafter_bf16)
LITZ_NARROW_NEXTAFTER(nextafter_f16)
#undef LITZ_NARROW_NEXTAFTER

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

template <class V>
LITZ_FN V gcd(V x, V y) {
  V zero = splat<V>(0), a = abs(x), b = abs(y);
  while (any_lane(as_mask(a != zero))) {
    V rest = fmod(b, a);
    b = blend<V>(a == zero, b, a);
    a = blend<V>(a == zero, a, rest);
  }
  return b;
}

}  // namespace litz

#endif
