// Logarithms. V is vec<float>, vec<double>, float or double.
//
//   V log(V), log2(V), log10(V), log1p(V)
//
// The mantissa is brought to [sqrt(1/2), sqrt(2)) as in Cephes and fdlibm. float: minimax polynomial of log(1 + f) by
// Lawson-weighted least squares. double: fdlibm's polynomial in f / (2 + f). Under 1.5 ulp, log2 and log10 under 2,
// denormal arguments included.
#ifndef LITZ_MATH_LOG_H
#define LITZ_MATH_LOG_H
#include "float_ops.h"

namespace litz {

// How a float's bits split: the exponent of 1 and the mantissa of sqrt(1/2), in place.
template <class V>
struct float_bits {
  typedef elem<lane_mask<V>> I;
  static constexpr int digits = is_f32<V> ? 23 : 52;
  static constexpr I bias = is_f32<V> ? 127 : 1023;
  static constexpr I one = bias << digits;
  static constexpr I root = is_f32<V> ? I(0x3f3504f3) : I(0x3fe6a09e667f3bcd);
  static constexpr I fraction = (I(1) << digits) - 1;
};

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x; returns f. Where instructions split a
// register, e is infinite at zero and infinity, and f is NaN for negative numbers, from which the logarithm follows.
template <class V>
LITZ_FN V split_exponent(V x, V& e) {
  typedef lane_mask<V> I;
  typedef float_bits<V> bits;
#if defined(LITZ_BY_NAME)
  // Mantissas in [1, 2), also of zeros; NaN for negative numbers.
  constexpr int mantissas = 12;
  typename vector_of<elem<V>, 64 / sizeof(elem<V>)>::type all = {};
  __builtin_memcpy(&all, &x, sizeof(V));
  auto exponent = all, mantissa = all;
  if constexpr (is_f32<V>) {
    exponent = __builtin_ia32_getexpps512_mask(all, all, (short)-1, 4);
    mantissa = __builtin_ia32_getmantps512_mask(all, mantissas, all, (short)-1, 4);
  } else {
    exponent = __builtin_ia32_getexppd512_mask(all, all, (char)-1, 4);
    mantissa = __builtin_ia32_getmantpd512_mask(all, mantissas, all, (char)-1, 4);
  }
  V m;
  __builtin_memcpy(&e, &exponent, sizeof(V));
  __builtin_memcpy(&m, &mantissa, sizeof(V));
  V one = splat<V>(1);
  auto upper = m >= (V)splat<I>(bits::root + (elem<I>(1) << bits::digits));
  e = blend<V>(upper, e + one, e);
  return blend<V>(upper, m * splat<V>(0.5), m) - one;
#else
  auto tiny = x < splat<V>(is_f32<V> ? 0x1p-126 : 0x1p-1022);
  V lift = splat<V>(is_f32<V> ? 0x1p23 : 0x1p52);
  I u = (I)blend<V>(tiny, x * lift, x) + splat<I>(bits::one - bits::root);
  I bias = blend<I>(tiny, splat<I>(bits::bias + bits::digits), splat<I>(bits::bias));
  e = from_integer<V>((u >> splat<I>(bits::digits)) - bias);
  return (V)((u & splat<I>(bits::fraction)) + splat<I>(bits::root)) - splat<V>(1);
#endif
}

// Zero gives -infinity, negative numbers NaN; infinity and NaN pass.
template <class V>
LITZ_FN V log_specials(V x, V y) {
  V inf = splat<V>(__builtin_inf());
  y = blend<V>(x < inf, y, x);
  y = blend<V>(x < V{}, splat<V>(__builtin_nan("")), y);
  return blend<V>(x == V{}, -inf, y);
}

// The value y of a logarithm from the parts of x.
template <class V>
LITZ_FN V log_of_split(V x, V y) {
#if defined(LITZ_BY_NAME)
  return y;
#else
  return log_specials(x, y);
#endif
}

// log(1 + f) - f
template <class V>
LITZ_FN V log1p_tail(V f) {
  V z = f * f;
  if constexpr (is_f32<V>) {
    V p = polynomial(f, 0.33333313f, -0.25000009f, 0.20002119f, -0.16667996f, 0.14219551f, -0.12405591f, 0.11888175f,
                     -0.11675641f, 0.067466013f);
    return mul_add(f * z, p, splat<V>(-0.5f) * z);
  } else {
    V s = f / (splat<V>(2) + f), w = s * s;
    V p = polynomial(w, 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                     2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                     1.479819860511658591e-01);
    V h = splat<V>(0.5) * z;
    return mul_add(s, mul_add(p, w, h), -h);
  }
}
// e ln 2 + log(1 + f)
template <class V>
LITZ_FN V log_of_parts(V e, V f) {
  V lo = splat<V>(elem<V>(is_f32<V> ? 3.19461845e-5 : 1.90821492927058770002e-10));
  V hi = splat<V>(elem<V>(is_f32<V> ? 0.693115234375 : 6.93147180369123816490e-01));
  return mul_add(e, hi, mul_add(e, lo, log1p_tail(f)) + f);
}
// log(1 + f) times the constant hi + lo.
template <class V>
LITZ_FN V scaled_log1p(V f, elem<V> hi, elem<V> lo) {
  V t = mul_add(log1p_tail(f), splat<V>(hi), f * splat<V>(lo));
  return mul_add(f, splat<V>(hi), t);
}

template <class V>
LITZ_FN V log_lanes(V x) {
  V e, f = split_exponent(x, e);
  return log_of_split(x, log_of_parts(e, f));
}
template <class V>
LITZ_FN V log2_lanes(V x) {
  V e, f = split_exponent(x, e);
  V y = is_f32<V> ? scaled_log1p(f, elem<V>(1.44269502f), elem<V>(1.92596299e-8f))
                  : scaled_log1p(f, elem<V>(1.4426950408889634), elem<V>(2.0355273740931033e-17));
  return log_of_split(x, e + y);
}
template <class V>
LITZ_FN V log10_lanes(V x) {
  V e, f = split_exponent(x, e);
  V y, hi;
  if constexpr (is_f32<V>) {
    y = mul_add(e, splat<V>(1.5481329e-8f), scaled_log1p(f, 0.434294492f, -1.01010775e-8f));
    hi = splat<V>(0.301029980f);
  } else {
    y = mul_add(e, splat<V>(5.270742310347266e-17), scaled_log1p(f, 0.4342944819032518, 1.098319650216765e-17));
    hi = splat<V>(0.30102999566398114);
  }
  return log_of_split(x, mul_add(e, hi, y));
}

// Scaling x by the power of two s / 4 that brings 1 + x near 1 loses nothing, so that f is rounded once.
template <class V>
LITZ_FN V log1p_lanes(V x) {
  typedef lane_mask<V> I;
  typedef float_bits<V> bits;
  V one = splat<V>(1), quarter = splat<V>(0.25);
  V u = one + x;
  I k = (((I)u + splat<I>(bits::one - bits::root)) >> splat<I>(bits::digits)) - splat<I>(bits::bias);
  V s = power_of_two<V>(splat<I>(2) - k);
  V f = mul_add(x * quarter, s, mul_add(s, quarter, -one));
  V y = log_specials(u, log_of_parts(from_integer<V>(k), f));
  return blend<V>(u == one, x, y);
}

LITZ_MATH_UNARY(log)
LITZ_MATH_UNARY(log2)
LITZ_MATH_UNARY(log10)
LITZ_MATH_UNARY(log1p)

}  // namespace litz

#endif
