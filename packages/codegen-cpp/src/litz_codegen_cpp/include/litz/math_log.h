// Logarithms. V is vec<float>, vec<double>, float or double.
//
//   V log(V), log2(V), log10(V), log1p(V)
//
// float: the mantissa is brought to [sqrt(1/2), sqrt(2)) as in Cephes and fdlibm, minimax polynomial of log(1 + f);
// under 1.5 ulp
// (log10: 2), denormal arguments included. double: the C library's, lane by lane.
#ifndef LITZ_MATH_LOG_H
#define LITZ_MATH_LOG_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(log)
LITZ_LIBM_UNARY(log2)
LITZ_LIBM_UNARY(log10)
LITZ_LIBM_UNARY(log1p)

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x; returns f.
template <class V>
LITZ_FN V split_exponent(V x, V& e) {
  typedef lane_mask<V> I;
  I tiny = x < splat<V>(0x1p-126f);
  I u = (I)blend<V>(tiny, x * splat<V>(0x1p23f), x) + splat<I>(0x3f800000 - 0x3f3504f3);
  e = from_integer<V>((u >> splat<I>(23)) - blend<I>(tiny, splat<I>(127 + 23), splat<I>(127)));
  return (V)((u & splat<I>(0x7fffff)) + splat<I>(0x3f3504f3)) - splat<V>(1);
}

// Zero gives -infinity, negative numbers NaN; infinity and NaN pass.
template <class V>
LITZ_FN V log_specials(V x, V y) {
  y = blend<V>(x < splat<V>(__builtin_inff()), y, x);
  y = blend<V>(x < V{}, splat<V>(__builtin_nanf("")), y);
  return blend<V>(x == V{}, splat<V>(-__builtin_inff()), y);
}

// log(1 + f) - f
template <class V>
LITZ_FN V log1p_tail(V f) {
  V p = polynomial(f, 0.33333313f, -0.25000009f, 0.20002119f, -0.16667996f, 0.14219551f, -0.12405591f, 0.11888175f,
                   -0.11675641f, 0.067466013f);
  V z = f * f;
  return mul_add(f * z, p, splat<V>(-0.5f) * z);
}

template <class V>
LITZ_FN V log_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return log_libm(x);
  } else {
    V e, f = split_exponent(x, e);
    V y = mul_add(e, splat<V>(-2.12194440e-4f), log1p_tail(f));
    return log_specials(x, mul_add(e, splat<V>(0.693359375f), y + f));
  }
}

// log(1 + f) times the constant hi + lo.
template <class V>
LITZ_FN V scaled_log1p(V f, float hi, float lo) {
  V t = mul_add(log1p_tail(f), splat<V>(hi), f * splat<V>(lo));
  return mul_add(f, splat<V>(hi), t);
}

template <class V>
LITZ_FN V log2_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return log2_libm(x);
  } else {
    V e, f = split_exponent(x, e);
    return log_specials(x, e + scaled_log1p(f, 1.44269502f, 1.92596299e-8f));
  }
}
template <class V>
LITZ_FN V log10_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return log10_libm(x);
  } else {
    V e, f = split_exponent(x, e);
    V y = scaled_log1p(f, 0.434294492f, -1.01010775e-8f);
    y = mul_add(e, splat<V>(-1.4320989e-8f), y);
    return log_specials(x, mul_add(e, splat<V>(0.301030010f), y));
  }
}
// Scaling x by the power of two s / 4 that brings 1 + x near 1 loses nothing, so that f is rounded once.
template <class V>
LITZ_FN V log1p_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return log1p_libm(x);
  } else {
    typedef lane_mask<V> I;
    V one = splat<V>(1);
    V u = one + x;
    I k = ((I)u + splat<I>(0x3f800000 - 0x3f3504f3)) >> splat<I>(23);
    k = k - splat<I>(127);
    V quarter = splat<V>(0.25f), s = power_of_two<V>(splat<I>(2) - k);
    V f = mul_add(x * quarter, s, mul_add(s, quarter, -one));
    V e = from_integer<V>(k);
    V y = mul_add(e, splat<V>(-2.12194440e-4f), log1p_tail(f));
    y = mul_add(e, splat<V>(0.693359375f), y + f);
    y = log_specials(u, y);
    return blend<V>(u == one, x, y);
  }
}

LITZ_MATH_UNARY(log)
LITZ_MATH_UNARY(log2)
LITZ_MATH_UNARY(log10)
LITZ_MATH_UNARY(log1p)

}  // namespace litz

#endif
