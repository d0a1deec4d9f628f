// Hyperbolic functions; tanh is in math_exp.h. V is vec<float>, vec<double>, float or double.
//
//   V sinh(V), cosh(V), asinh(V), acosh(V), atanh(V)
//
// float: through exp and log1p, arranged so that nothing cancels or overflows on the way, under 2 ulp; atanh through a
// logarithm in double, under 0.6. double: the C library's, lane by lane.
#ifndef LITZ_MATH_HYPERBOLIC_H
#define LITZ_MATH_HYPERBOLIC_H
#include "math_exp.h"
#include "math_log.h"
#include "math_wide.h"

namespace litz {

LITZ_LIBM_UNARY(sinh)
LITZ_LIBM_UNARY(cosh)
LITZ_LIBM_UNARY(asinh)
LITZ_LIBM_UNARY(acosh)
LITZ_LIBM_UNARY(atanh)

// exp(a) / 2 for a >= 0, finite wherever cosh(a) is.
template <class V>
LITZ_FN V half_exp(V a) {
  V n, r = reduce_by_ln2(clamp_keeping_nan(a, 0.0f, 91.0f), n);
  V p = polynomial(r, 1.0f, 1.0f, 0.49999994f, 0.16666520f, 0.041668393f, 0.0083687808f, 0.0013814465f);
  return scale_by_power(p, n - splat<V>(1));
}

template <class V>
LITZ_FN V sinh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return sinh_libm(x);
  } else {
    V a = abs_lanes(x), z = x * x;
    V h = half_exp(a);
    V near = polynomial(z, 0.16666667f, 0.0083333496f, 1.9836160e-4f, 2.8169514e-6f);
    V far = copysign_lanes(h - splat<V>(0.25f) / h, x);
    return blend<V>(a < splat<V>(1), mul_add(near * z, x, x), far);
  }
}
template <class V>
LITZ_FN V cosh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return cosh_libm(x);
  } else {
    V h = half_exp(abs_lanes(x));
    return h + splat<V>(0.25f) / h;
  }
}

// log1p(a + a^2 / (1 + sqrt(1 + a^2))), which for large a is log(2 a).
template <class V>
LITZ_FN V asinh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return asinh_libm(x);
  } else {
    V one = splat<V>(1), a = abs_lanes(x);
    auto large = a > splat<V>(0x1p24f);
    V z = a * a;
    V t = a + z / (one + sqrt_lanes(one + z));
    V y = log1p_lanes(blend<V>(large, a, t));
    y = blend<V>(large, y + splat<V>(0.69314718f), y);
    return copysign_lanes(blend<V>(a < splat<V>(0x1p-12f), a, y), x);
  }
}
// With t = x - 1: log1p(t + sqrt(2 t + t^2)), which for large x is log(2 x).
template <class V>
LITZ_FN V acosh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return acosh_libm(x);
  } else {
    V t = x - splat<V>(1);
    auto large = x > splat<V>(0x1p24f);
    V y = log1p_lanes(blend<V>(large, x, t + sqrt_lanes(mul_add(t, t, t + t))));
    y = blend<V>(large, y + splat<V>(0.69314718f), y);
    return blend<V>(t < V{}, splat<V>(__builtin_nanf("")), y);
  }
}
// Half the logarithm of (1 + a) / (1 - a), in double.
template <class D>
LITZ_FN D atanh_for_float(D a) {
  if constexpr (is_wide<D>) {
    return {atanh_for_float(a.lo), atanh_for_float(a.hi)};
  } else {
    D one = splat<D>(1);
    return log2_of_float((one + a) / (one - a)) * splat<D>(0.34657359027997264);
  }
}
template <class V>
LITZ_FN V atanh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return atanh_libm(x);
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    V a = abs_lanes(x), y = convert_lanes<V>(atanh_for_float(convert_lanes<D>(a)));
    y = blend<V>(a > splat<V>(1), splat<V>(__builtin_nanf("")), y);
    return copysign_lanes(blend<V>(a < splat<V>(0x1p-12f), a, y), x);
  }
}

LITZ_MATH_UNARY(sinh)
LITZ_MATH_UNARY(cosh)
LITZ_MATH_UNARY(asinh)
LITZ_MATH_UNARY(acosh)
LITZ_MATH_UNARY(atanh)

}  // namespace litz

#endif
