// Exponentials. V is vec<float>, vec<double>, float or double.
//
//   V exp(V), exp2(V), expm1(V), sigmoid(V)
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

// exp(|x|) of -|x| never overflows, so that neither end loses its relative accuracy.
template <class V>
LITZ_FN V sigmoid_lanes(V x) {
  V one = splat<V>(1);
  V e = exp_lanes(-abs_lanes(x));
  return blend<V>(x < V{}, e, one) / (one + e);
}

template <class V>
LITZ_FN V expm1_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return expm1_libm(x);
  } else {
    // 2^n (e^r - 1) + (2^n - 1); beyond the clamp the result is -1 or infinity.
    V n, r = reduce_by_ln2(clamp_keeping_nan(x, -20.0f, 89.0f), n);
    V q = polynomial(r, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
    V m = mul_add(q, r * r, r);
    V h = scale_by_power(splat<V>(0.5f), n);
    V s = mul_add(m, h, h - splat<V>(0.5f));
    return blend<V>(x == V{}, x, s + s);
  }
}

LITZ_MATH_UNARY(exp)
LITZ_MATH_UNARY(exp2)
LITZ_MATH_UNARY(expm1)
LITZ_MATH_UNARY(sigmoid)

}  // namespace litz

#endif
