// Exponentials and what is made of them. V is vec<float>, vec<double>, float or double.
//
//   V exp(V), exp2(V), expm1(V), sigmoid(V), tanh(V)
//
// Cody and Waite's reduction (hi and lo parts of ln 2 as in Cephes for float, fdlibm for double); minimax polynomials,
// by Lawson-weighted least squares for float, from Chebyshev nodes in 60 digits for double. float: under 1.6 ulp, tanh
// 2; double: under 1.5 ulp, expm1 and tanh 2.5. Denormal results are rounded as others are.
#ifndef LITZ_MATH_EXP_H
#define LITZ_MATH_EXP_H
#include "float_ops.h"

namespace litz {

// lo <= x <= hi; NaN passes. The order of operands is that of x86's min and max, one instruction each.
template <class V>
LITZ_FN V clamp_keeping_nan(V x, elem<V> lo, elem<V> hi) {
  V l = splat<V>(lo), h = splat<V>(hi);
  x = blend<V>(h < x, h, x);
  return blend<V>(l > x, l, x);
}

// Beyond these an exponential is infinite, or zero after rounding.
template <class V>
constexpr elem<V> exp_highest = is_f32<V> ? 89 : 710;
template <class V>
constexpr elem<V> exp_lowest = is_f32<V> ? -104 : -746;

// x = n ln 2 + r with |r| <= ln 2 / 2; returns r. The high part of ln 2 has few digits, so that n times it is exact.
template <class V>
LITZ_FN V reduce_by_ln2(V x, V& n) {
  n = round_lanes(x * splat<V>(elem<V>(1.4426950408889634)));
  if constexpr (is_f32<V>) {
    V r = mul_add(n, splat<V>(-0.693359375f), x);
    return mul_add(n, splat<V>(2.12194440e-4f), r);
  } else {
    V r = mul_add(n, splat<V>(-6.93147180369123816490e-01), x);
    return mul_add(n, splat<V>(-1.90821492927058770002e-10), r);
  }
}

// (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2.
template <class V>
LITZ_FN V exp_tail(V r) {
  if constexpr (is_f32<V>)
    return polynomial(r, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
  else
    return polynomial(r, 0.5000000000000001, 0.16666666666666669, 0.04166666666662399, 0.008333333333330051,
                      0.0013888888917281794, 1.9841269863105968e-4, 2.480152119021773e-05, 2.7557268378684192e-06,
                      2.7620138719733994e-07, 2.5100424157005067e-08);
}

template <class V>
LITZ_FN V exp_lanes(V x) {
  V one = splat<V>(1);
  V n, r = reduce_by_ln2(clamp_keeping_nan(x, exp_lowest<V>, exp_highest<V>), n);
  return scale_by_power(mul_add(mul_add(exp_tail(r), r, one), r, one), n);
}

template <class V>
LITZ_FN V exp2_lanes(V x) {
  V one = splat<V>(1);
  if constexpr (is_f32<V>) {
    x = clamp_keeping_nan(x, -151.0f, 129.0f);
    V n = round_lanes(x), r = x - n;
    V p = polynomial(r, 0.69314718f, 0.24022651f, 0.055504102f, 0.0096180374f, 0.0013333936f, 1.5466883e-4f,
                     1.5196043e-5f);
    return scale_by_power(mul_add(p, r, one), n);
  } else {
    x = clamp_keeping_nan(x, -1076.0, 1025.0);
    V n = round_lanes(x), r = x - n;
    V p = polynomial(r, 0.6931471805599453, 0.24022650695910097, 0.0555041086648216, 0.009618129107606802,
                     0.001333355814641689, 1.5403530441881376e-4, 1.5252733829913582e-05, 1.3215442499383303e-06,
                     1.017806239865239e-07, 7.072603648460136e-09, 4.4549700323138963e-10);
    return scale_by_power(mul_add(p, r, one), n);
  }
}

// exp(x) = s (1 + q) with s a power of two, for x in range: sums with 1 + q keep one rounding error less.
template <class V>
LITZ_FN V exp_parts(V x, V& s) {
  V n, r = reduce_by_ln2(x, n);
  s = scale_by_power(splat<V>(1), n);
  return mul_add(exp_tail(r), r * r, r);
}

// As eager computes it: where exp(-x) overflows the result is 0, though a denormal is nearer.
template <class V>
LITZ_FN V sigmoid_lanes(V x) {
  V one = splat<V>(1);
  return one / (one + exp_lanes(-x));
}

// Half of each part, so that the largest results do not overflow on the way.
template <class V>
LITZ_FN V expm1_lanes(V x) {
  V n, r = reduce_by_ln2(clamp_keeping_nan(x, -40, exp_highest<V>), n);
  V half_power = scale_by_power(splat<V>(0.5), n);
  V y = mul_add(mul_add(exp_tail(r), r * r, r), half_power, half_power - splat<V>(0.5));
  return blend<V>(x == V{}, x, y + y);
}

// With t = exp(-2|x|), tanh|x| = (1 - t) / (1 + t).
template <class V>
LITZ_FN V tanh_lanes(V x) {
  V one = splat<V>(1), a = abs_lanes(x);
  V s, q = exp_parts(clamp_keeping_nan(a * splat<V>(-2), -45, 0), s);
  V y = mul_add(-s, q, one - s) / mul_add(s, q, one + s);
  V tiny = splat<V>(is_f32<V> ? 0x1p-12 : 0x1p-27);
  return copysign_lanes(blend<V>(a < tiny, a, y), x);
}

LITZ_MATH_UNARY(exp)
LITZ_MATH_UNARY(exp2)
LITZ_MATH_UNARY(expm1)
LITZ_MATH_UNARY(sigmoid)
LITZ_MATH_UNARY(tanh)

}  // namespace litz

#endif
