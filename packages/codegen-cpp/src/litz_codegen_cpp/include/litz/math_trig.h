// Circular functions, angles in radians. V is vec<float>, vec<double>, float or double.
//
//   V sin(V), cos(V), tan(V), asin(V), acos(V), atan(V), atan2(V y, V x), hypot(V x, V y)
//
// Reduction by pi/2 in three parts (Cody and Waite), the quadrant logic of Cephes. float: minimax polynomials by
// Lawson-weighted least squares; sin and cos are under 1.6 ulp, tan, computed in double, under 1.5, the others under 2.
// double: sin and cos with fdlibm's polynomials, under 2 ulp; the others, and all where products are not fused, are the C
// library's, lane by lane. So are arguments of sin, cos and tan beyond 2^17.
#ifndef LITZ_MATH_TRIG_H
#define LITZ_MATH_TRIG_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(sin)
LITZ_LIBM_UNARY(cos)
LITZ_LIBM_UNARY(tan)
LITZ_LIBM_UNARY(asin)
LITZ_LIBM_UNARY(acos)
LITZ_LIBM_UNARY(atan)
LITZ_LIBM_BINARY(atan2)
LITZ_LIBM_BINARY(hypot)

// x = n pi/2 + r with |r| <= pi/4 (and a little), for |x| <= 2^17; returns r.
template <class V>
LITZ_FN V reduce_by_half_pi(V x, lane_mask<V>& n) {
  V k = round_lanes(x * splat<V>(elem<V>(0.6366197723675814)));
  n = to_integer(k);
  if constexpr (!is_f32<V>) {
    V r = mul_add(k, splat<V>(-1.5707963267948966), x);
    r = mul_add(k, splat<V>(-6.123233995736766e-17), r);
    return mul_add(k, splat<V>(1.4973849048591698e-33), r);
  } else if constexpr (LITZ_HAS_FMA) {
    V r = mul_add(k, splat<V>(-0x1.921fb6p+0f), x);
    r = mul_add(k, splat<V>(0x1.777a5cp-25f), r);
    return mul_add(k, splat<V>(0x1.ee59dap-50f), r);
  } else {
    // Without a fused product only double keeps the digits that cancel.
    typedef typename vector_of<double, lane_count<V>>::type D;
    D wide_k = convert_lanes<D>(k);
    D r = convert_lanes<D>(x) - wide_k * splat<D>(0x1.921fb544p+0);
    return convert_lanes<V>(r - wide_k * splat<D>(0x1.0b4611a626331p-34));
  }
}

// For |r| <= pi/4 and z = r^2.
template <class V>
LITZ_FN V sin_of_quarter(V r, V z) {
  V p;
  if constexpr (is_f32<V>)
    p = polynomial(z, -0.16666655f, 0.0083321584f, -1.9514957e-4f);
  else
    p = polynomial(z, -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
                   2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10);
  return mul_add(p * z, r, r);
}
template <class V>
LITZ_FN V cos_of_quarter(V z) {
  V p;
  if constexpr (is_f32<V>)
    p = polynomial(z, 0.041666646f, -0.0013887313f, 2.4432784e-5f);
  else
    p = polynomial(z, 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                   -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11);
  return mul_add(p, z * z, mul_add(z, splat<V>(-0.5f), splat<V>(1)));
}

// The sine of r + n pi/2.
template <class V>
LITZ_FN V sin_of_quadrant(V r, lane_mask<V> n) {
  typedef lane_mask<V> I;
  V z = r * r;
  I odd = (n & splat<I>(1)) != I{};
  V y = blend<V>(odd, cos_of_quarter(z), sin_of_quarter(r, z));
  return (V)((I)y ^ ((n & splat<I>(2)) << splat<I>(sizeof(elem<I>) * 8 - 2)));
}

// Where the reduction has not enough digits. Infinity comes here too, and leaves as NaN.
template <class V>
LITZ_FN bool any_beyond_reduction(V x) {
  return !none_of(abs_lanes(x) > splat<V>(0x1p17));
}
#define LITZ_FAR(name)                                                  \
  template <class V>                                                    \
  static __attribute__((noinline)) V name##_far(V x, V y) {             \
    return blend<V>(abs_lanes(x) <= splat<V>(0x1p17), y, name##_libm(x)); \
  }
LITZ_FAR(sin)
LITZ_FAR(cos)
LITZ_FAR(tan)
#undef LITZ_FAR

template <class V>
LITZ_FN V sin_lanes(V x) {
  if constexpr (!is_f32<V> && !LITZ_HAS_FMA) {
    return sin_libm(x);
  } else {
    lane_mask<V> n;
    V r = reduce_by_half_pi(x, n);
    V y = blend<V>(x == V{}, x, sin_of_quadrant(r, n));
    return __builtin_expect(any_beyond_reduction(x), 0) ? sin_far(x, y) : y;
  }
}
template <class V>
LITZ_FN V cos_lanes(V x) {
  if constexpr (!is_f32<V> && !LITZ_HAS_FMA) {
    return cos_libm(x);
  } else {
    lane_mask<V> n;
    V r = reduce_by_half_pi(x, n);
    V y = sin_of_quadrant(r, n + splat<lane_mask<V>>(1));
    return __builtin_expect(any_beyond_reduction(x), 0) ? cos_far(x, y) : y;
  }
}

// For |x| <= 2^17. The high part of pi/2 has few digits, so that k times it is exact.
template <class D>
LITZ_FN D tan_for_float(D x) {
  if constexpr (is_wide<D>) {
    return {tan_for_float(x.lo), tan_for_float(x.hi)};
  } else {
    typedef lane_mask<D> I;
    D k = round_lanes(x * splat<D>(0.6366197723675814)), one = splat<D>(1);
    D r = mul_add(k, splat<D>(-0x1.921fb544p+0), x);
    r = mul_add(k, splat<D>(-0x1.0b4611a626331p-34), r);
    D z = r * r;
    D p = polynomial(z, 0.33333349768518966, 0.13332662932595926, 0.054059955912501928, 0.021282003530542815,
                     0.010836264511550151, 8.8974209163561978e-05, 0.0043765536313218707);
    D t = mul_add(p * z, r, r);
    I odd = (to_integer(k) & splat<I>(1)) != I{};
    return blend<D>(odd, -one, t) / blend<D>(odd, t, one);
  }
}
template <class V>
LITZ_FN V tan_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return tan_libm(x);
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    V y = convert_lanes<V>(tan_for_float(convert_lanes<D>(x)));
    y = blend<V>(x == V{}, x, y);
    return __builtin_expect(any_beyond_reduction(x), 0) ? tan_far(x, y) : y;
  }
}

// The angle of the point (large, small) for 0 <= small <= large.
template <class V>
LITZ_FN V atan_of_ratio(V t) {
  V z = t * t;
  V p = polynomial(z, -0.33333328f, 0.19999671f, -0.14279833f, 0.11058222f, -0.088110849f, 0.067415819f,
                   -0.044689730f, 0.022539688f, -0.0073178723f, 0.0011137718f);
  return mul_add(p * z, t, t);
}
template <class V>
LITZ_FN V atan_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return atan_libm(x);
  } else {
    V one = splat<V>(1), a = abs_lanes(x);
    auto large = a > one;
    V p = atan_of_ratio(blend<V>(large, one / a, a));
    V reflected = splat<V>(1.57079637f) - (p + splat<V>(4.37113883e-8f));
    return copysign_lanes(blend<V>(large, reflected, p), x);
  }
}
template <class V>
LITZ_FN V atan2_lanes(V y, V x) {
  if constexpr (!is_f32<V>) {
    return atan2_libm(y, x);
  } else {
    V ax = abs_lanes(x), ay = abs_lanes(y);
    auto steep = ay > ax;
    V large = blend<V>(steep, ay, ax), small = blend<V>(steep, ax, ay);
    V t = small / large;
    t = blend<V>(small == large, splat<V>(1), t);
    t = blend<V>(large == V{}, V{}, t);
    V p = atan_of_ratio(t);
    p = blend<V>(steep, splat<V>(1.57079637f) - (p + splat<V>(4.37113883e-8f)), p);
    V reflected = splat<V>(3.14159274f) - (p + splat<V>(8.74227766e-8f));
    p = blend<V>((lane_mask<V>)x < lane_mask<V>{}, reflected, p);
    return blend<V>((x != x) | (y != y), x + y, copysign_lanes(p, y));
  }
}

// asin of a, z = a^2, for a up to 0.5405: there 2 asin(sqrt((1 - a) / 2)) falls below 1, and its rounding is halved.
template <class V>
LITZ_FN V asin_of_small(V a, V z) {
  V p = polynomial(z, 0.16666646f, 0.075013041f, 0.044366624f, 0.033029817f, 0.0099607529f, 0.043586228f);
  return mul_add(p * z, a, a);
}
template <class V>
LITZ_FN V asin_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return asin_libm(x);
  } else {
    V half_one = splat<V>(0.5f), a = abs_lanes(x);
    auto large = a > splat<V>(0.5405f);
    V z = blend<V>(large, mul_add(a, -half_one, half_one), x * x);
    V s = blend<V>(large, sqrt_lanes(z), a);
    V p = asin_of_small(s, z);
    V reflected = splat<V>(1.57079637f) - (p + p + splat<V>(4.37113883e-8f));
    return copysign_lanes(blend<V>(large, reflected, p), x);
  }
}
template <class V>
LITZ_FN V acos_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return acos_libm(x);
  } else {
    V half_one = splat<V>(0.5f), a = abs_lanes(x);
    auto large = a > splat<V>(0.5405f);
    V z = blend<V>(large, mul_add(a, -half_one, half_one), x * x);
    V s = blend<V>(large, sqrt_lanes(z), a);
    V p = asin_of_small(s, z);
    V near_one = p + p;
    V near_minus_one = splat<V>(3.14159274f) - (near_one + splat<V>(8.74227766e-8f));
    V middle = splat<V>(1.57079637f) - (copysign_lanes(p, x) + splat<V>(4.37113883e-8f));
    return blend<V>(large, blend<V>(x < V{}, near_minus_one, near_one), middle);
  }
}

// Infinite where either side is, even beside NaN, as in C. Powers of two keep the squares in range.
template <class V>
LITZ_FN V hypot_lanes(V x, V y) {
  if constexpr (!is_f32<V>) {
    return hypot_libm(x, y);
  } else {
    V ax = abs_lanes(x), ay = abs_lanes(y);
    V big = blend<V>(ax > ay, ax, ay);
    V scale = blend<V>(big > splat<V>(0x1p60f), splat<V>(0x1p-70f),
                       blend<V>(big < splat<V>(0x1p-60f), splat<V>(0x1p89f), splat<V>(1)));
    V unscale = blend<V>(big > splat<V>(0x1p60f), splat<V>(0x1p70f),
                         blend<V>(big < splat<V>(0x1p-60f), splat<V>(0x1p-89f), splat<V>(1)));
    V sx = ax * scale, sy = ay * scale;
    V h = sqrt_lanes(mul_add(sx, sx, sy * sy)) * unscale;
    V inf = splat<V>(__builtin_inff());
    return blend<V>((ax == inf) | (ay == inf), inf, h);
  }
}

LITZ_MATH_UNARY(sin)
LITZ_MATH_UNARY(cos)
LITZ_MATH_UNARY(tan)
LITZ_MATH_UNARY(asin)
LITZ_MATH_UNARY(acos)
LITZ_MATH_UNARY(atan)
LITZ_MATH_BINARY(atan2)
LITZ_MATH_BINARY(hypot)

}  // namespace litz

#endif
