// Exponentials. V is vec<float>, vec<double>, float or double.
//
//   V exp(V), exp2(V), expm1(V), sigmoid(V), tanh(V)
//
// float: Cody and Waite's reduction, polynomials fitted by least squares with Lawson's weights (minimax); under 1.5 ulp,
// denormal results included. double: the C library's, lane by lane.
#ifndef LITZ_MATH_EXP_H
#define LITZ_MATH_EXP_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(exp)
LITZ_LIBM_UNARY(exp2)
LITZ_LIBM_UNARY(expm1)
LITZ_LIBM_UNARY(tanh)

// lo <= x <= hi; NaN passes. The order of operands is that of x86's min and max, one instruction each.
template <class V>
LITZ_FN V clamp_keeping_nan(V x, elem<V> lo, elem<V> hi) {
  V l = splat<V>(lo), h = splat<V>(hi);
  x = blend<V>(h < x, h, x);
  return blend<V>(l > x, l, x);
}

// x = n ln 2 + r with |r| <= ln 2 / 2; returns r.
template <class V>
LITZ_FN V reduce_by_ln2(V x, V& n) {
  n = round_lanes(x * splat<V>(1.44269504f));
  V r = mul_add(n, splat<V>(-0.693359375f), x);
  return mul_add(n, splat<V>(2.12194440e-4f), r);
}

template <class V>
LITZ_FN V exp_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return exp_libm(x);
  } else {
    V n, r = reduce_by_ln2(clamp_keeping_nan(x, -104.0f, 89.0f), n);
    V p = polynomial(r, 1.0f, 1.0f, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
    return scale_by_power(p, n);
  }
}

template <class V>
LITZ_FN V exp2_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return exp2_libm(x);
  } else {
    x = clamp_keeping_nan(x, -151.0f, 129.0f);
    V n = round_lanes(x);
    V p = polynomial(x - n, 1.0f, 0.69314718f, 0.24022651f, 0.055504102f, 0.0096180374f, 0.0013333936f, 1.5466883e-4f,
                     1.5196043e-5f);
    return scale_by_power(p, n);
  }
}

// exp(x) = s (1 + q) with s a power of two, for x in [-104, 88]: sums with 1 + q keep one rounding error less.
template <class V>
LITZ_FN V exp_parts(V x, V& s) {
  V n, r = reduce_by_ln2(x, n);
  V p = polynomial(r, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
  s = scale_by_power(splat<V>(1), n);
  return mul_add(p, r * r, r);
}

// With e = exp(-|x|), which never overflows, and w = e / (1 + e): 1 - w for positive x, e - e w for negative x.
template <class V>
LITZ_FN V sigmoid_lanes(V x) {
  V one = splat<V>(1);
  if constexpr (!is_f32<V>) {
    V e = exp_lanes(-abs_lanes(x));
    return blend<V>(x < V{}, e, one) / (one + e);
  } else {
    V s, q = exp_parts(clamp_keeping_nan(-abs_lanes(x), -104.0f, 0.0f), s);
    V e = mul_add(s, q, s);
    V w = e / mul_add(s, q, one + s);
    V base = blend<V>(x < V{}, e, one);
    return mul_add(-base, w, base);
  }
}

template <class V>
LITZ_FN V expm1_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return expm1_libm(x);
  } else {
    // Half of each part, so that the largest results do not overflow on the way.
    V n, r = reduce_by_ln2(clamp_keeping_nan(x, -20.0f, 89.0f), n);
    V p = polynomial(r, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
    V h = scale_by_power(splat<V>(0.5f), n);
    V y = mul_add(mul_add(p, r * r, r), h, h - splat<V>(0.5f));
    return blend<V>(x == V{}, x, y + y);
  }
}

// With t = exp(-2|x|), tanh|x| = (1 - t) / (1 + t).
template <class V>
LITZ_FN V tanh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return tanh_libm(x);
  } else {
    V one = splat<V>(1), a = abs_lanes(x);
    V s, q = exp_parts(clamp_keeping_nan(a * splat<V>(-2), -40.0f, 0.0f), s);
    V y = mul_add(-s, q, one - s) / mul_add(s, q, one + s);
    return copysign_lanes(blend<V>(a < splat<V>(0x1p-12f), a, y), x);
  }
}

LITZ_MATH_UNARY(exp)
LITZ_MATH_UNARY(exp2)
LITZ_MATH_UNARY(expm1)
LITZ_MATH_UNARY(sigmoid)
LITZ_MATH_UNARY(tanh)

}  // namespace litz

#endif
