// Exponentials and functions of them. V is vec<float>, vec<double>, float or double.
//
//   V exp(V), exp2(V), expm1(V), sigmoid(V), tanh(V)
//
// Cody and Waite's reduction (hi and lo parts of ln 2 as in Cephes for float, fdlibm for double); minimax polynomials,
// by Lawson-weighted least squares for float, from Chebyshev nodes in 60 digits for double. float: under 1.6 ulp, tanh
// and sigmoid 2; double: under 1.5 ulp, sigmoid, expm1 and tanh 2. Denormal results are rounded as others are. Where a
// register holds a table (AVX-512), exp, exp2 and sigmoid of floats are shorter, and exp and exp2 under 1 ulp.
#ifndef LITZ_MATH_EXP_H
#define LITZ_MATH_EXP_H
#include "float_ops.h"

namespace litz {

// lo <= x <= hi; NaN passes.
template <class V>
LITZ_FN V clamp_keeping_nan(V x, elem<V> lo, elem<V> hi) {
  return greater(splat<V>(lo), lesser(splat<V>(hi), x));
}

// Beyond these an exponential is infinite, or zero after rounding.
template <class V>
constexpr elem<V> exp_highest = is_f32<V> ? 89 : 710;
template <class V>
constexpr elem<V> exp_lowest = is_f32<V> ? -104 : -746;
// Under this exp(-x) overflows.
template <class V>
constexpr elem<V> sigmoid_vanishes = is_f32<V> ? -0x1.62e42ep6 : -0x1.62e42fefa39efp9;

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

#if defined(LITZ_BY_NAME)
// unit 2^n exp(r) = 2^n power (1 + tail) for 16 n an integer and |r| <= ln 2 / 32; returns tail. A register holds the
// powers 2^(k/16), chosen by the last four bits of n + 1.5 2^19. Where x and n are so large that r has no meaning, it is
// held to what a polynomial survives: scaling by n gives 0, infinity or NaN. Precise adds what the powers lose by rounding.
template <bool Precise, class V>
LITZ_FN V tail_by_table(V r, V place, V& power, float unit = 1) {
  const V powers = {1.0f,       1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
                    1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f, 1.6817928f, 1.7562522f, 1.8340081f, 1.9152066f};
  r = __builtin_ia32_rangeps512_mask(r, splat<V>(0.5f), 2, r, (short)-1, 4);  // the lesser magnitude
  power = table_lanes(powers * splat<V>(unit), place);
  V tail = polynomial(r, 1.0f, 0.50001617f, 0.16666769f);
  if constexpr (Precise) {
    const V lost = {0.0f, 4.6285471e-08f, -1.1992157e-08f, 4.7297824e-08f,
                    3.1934181e-08f, 3.6210573e-08f, -3.0990721e-08f, -7.4752132e-09f,
                    1.7114271e-08f, -3.0476834e-08f, 5.2333342e-09f, 6.1075916e-09f,
                    -1.4719605e-08f, -5.2587951e-09f, -6.1282598e-09f, 5.1406092e-09f};
    return mul_add(tail, r, table_lanes(lost, place));
  } else {
    return tail * r;
  }
}
// x = n ln 2 + r, with 16 n an integer.
template <class V>
LITZ_FN V reduce_by_sixteenths(V x, V& n, V& place) {
  place = mul_add(x, splat<V>(1.44269504f), splat<V>(0x1.8p19f));
  n = place - splat<V>(0x1.8p19f);
  return mul_add(n, splat<V>(2.12194440e-4f), mul_add(n, splat<V>(-0.693359375f), x));
}
struct exp_by_table {
  template <class V>
  LITZ_METHOD V operator()(V x) const {
    V n, place, r = reduce_by_sixteenths(x, n, place);
    V power, tail = tail_by_table<false>(r, place, power);
    return scale_by_power(mul_add(power, tail, power), n);
  }
};
struct exp2_by_table {
  template <class V>
  LITZ_METHOD V operator()(V x) const {
    V place = x + splat<V>(0x1.8p19f), n = place - splat<V>(0x1.8p19f);
    V power, tail = tail_by_table<false>((x - n) * splat<V>(0.693147181f), place, power);
    return scale_by_power(mul_add(power, tail, power), n);
  }
};
// The lesser of 1/2 and s is added first: it takes the least from the product.
struct sigmoid_by_table {
  template <class V>
  LITZ_METHOD V operator()(V x) const {
    V half_one = splat<V>(0.5f), n, place, r = reduce_by_sixteenths(-x, n, place);
    V power, tail = tail_by_table<true>(r, place, power, 0.5f);
    V s = scale_by_power(power, n);
    V divisor = mul_add(s, tail, lesser(s, half_one)) + greater(s, half_one);
    auto vanishes = x < splat<V>(sigmoid_vanishes<V>);
    return blend<V>(vanishes, V{}, half_one / divisor);
  }
};
// A scalar is to be as a lane of a vector is.
template <class F, class V>
LITZ_FN V in_register(V x) {
  typename vector_of<float, 16>::type whole = {};
  __builtin_memcpy(&whole, &x, sizeof(V));
  whole = F()(whole);
  __builtin_memcpy(&x, &whole, sizeof(V));
  return x;
}
#endif

template <class V>
LITZ_FN V exp_lanes(V x) {
#if defined(LITZ_BY_NAME)
  if constexpr (is_f32<V>) return in_register<exp_by_table>(x);
#endif
  V one = splat<V>(1);
  V n, r = reduce_by_ln2(clamp_keeping_nan(x, exp_lowest<V>, exp_highest<V>), n);
  return scale_by_power(mul_add(mul_add(exp_tail(r), r, one), r, one), n);
}

template <class V>
LITZ_FN V exp2_lanes(V x) {
#if defined(LITZ_BY_NAME)
  if constexpr (is_f32<V>) return in_register<exp2_by_table>(x);
#endif
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

// As eager computes it: where exp(-x) overflows the result is 0, though a denormal is nearer. With exp(-x) = 2 s (1 + q)
// half of the divisor is (1/2 + s q) + s, which loses less than the sum with the power itself.
template <class V>
LITZ_FN V sigmoid_lanes(V x) {
#if defined(LITZ_BY_NAME)
  if constexpr (is_f32<V>) return in_register<sigmoid_by_table>(x);
#endif
  V half_one = splat<V>(0.5), lowest = splat<V>(is_f32<V> ? -86 : -708);
  V n, r = reduce_by_ln2(greater(lowest, -x), n);
  V s = scale_by_power(half_one, n);
  V y = half_one / (mul_add(mul_add(exp_tail(r), r * r, r), s, half_one) + s);
  return blend<V>(x < splat<V>(sigmoid_vanishes<V>), V{}, y);
}

// Half of each part, so that the largest results do not overflow on the way. Where the half vanishes the result is x.
template <class V>
LITZ_FN V expm1_lanes(V x) {
  V n, r = reduce_by_ln2(clamp_keeping_nan(x, -40, exp_highest<V>), n);
  V half_power = scale_by_power(splat<V>(0.5), n);
  V y = mul_add(r, half_power, half_power - splat<V>(0.5));
  y = mul_add(exp_tail(r) * (r * r), half_power, y);
  return blend<V>(y == V{}, x, y + y);
}

// For s (1 + q) = exp(-2|x|), tanh|x| is a quotient of sums, each rounded. In double, where products are fused, one of
// Newton's steps takes back what rounding did to both and to the quotient.
template <class V>
LITZ_FN V tanh_lanes(V x) {
  V one = splat<V>(1), a = abs_lanes(x);
  V s, q = exp_parts(clamp_keeping_nan(a * splat<V>(-2), -45, 0), s);
  V less = one - s, more = one + s, above = mul_add(-s, q, less), below = mul_add(s, q, more);
  V y;
  if constexpr (is_f32<V> || !LITZ_HAS_FMA) {
    y = above / below;
  } else {
    V inverse = one / below, above_lost = mul_add(-s, q, less - above), below_lost = mul_add(s, q, more - below);
    y = above * inverse;
    y = mul_add(mul_add(-y, below_lost, mul_add(-y, below, above) + above_lost), inverse, y);
  }
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
