// The error function's family. V is vec<float>, vec<double>, float or double.
//
//   V erf(V), erfc(V), erfinv(V)
//
// float: two polynomials, minimax by Lawson-weighted least squares, of x^2 up to 1 and of |x| - 2.46 up to 3.92, beyond
// which the result rounds to 1; under 1.5 ulp. erfinv as in M. Giles, Approximating the erfinv function (2010), under
// 4 ulp. erfc and double: the C library's, lane by lane; double erfinv takes Halley's steps from Winitzki's closed form.
#ifndef LITZ_MATH_ERF_H
#define LITZ_MATH_ERF_H
#include "math_log.h"

namespace litz {

LITZ_LIBM_UNARY(erf)
LITZ_LIBM_UNARY(erfc)

template <class V>
LITZ_FN V erf_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return erf_libm(x);
  } else {
    V a = abs_lanes(x), z = x * x;
    V near = polynomial(z, 0.12837917f, -0.37612626f, 0.11283585f, -0.026853811f, 0.0051883277f, -8.0101925e-4f,
                        7.8538576e-5f);
    V limit = splat<V>(3.92f);
    V u = blend<V>(limit < a, limit, a) - splat<V>(2.46f);
    V far = polynomial(u, 0.99949664f, 0.0026562405f, -0.0065345219f, 0.0098324129f, -0.0099141682f, 0.0067997118f,
                       -0.0029372263f, 4.5906164e-4f, 3.5598472e-4f, -2.9940478e-4f, 7.5760501e-5f, 2.4626359e-5f,
                       -1.7306889e-5f, 1.0639747e-7f, 1.0908163e-6f);
    return blend<V>(a < splat<V>(1), mul_add(x, near, x), copysign_lanes(far, x));
  }
}

template <class V>
LITZ_FN V erfc_lanes(V x) {
  return erfc_libm(x);
}

template <class V>
LITZ_FN V erfinv_start(V x) {
  V w = -log_lanes((splat<V>(1) - x) * (splat<V>(1) + x));
  V near = w - splat<V>(2.5f), far = sqrt_lanes(w) - splat<V>(3.0f);
  V p = polynomial(near, 1.50140941f, 0.246640727f, -0.00417768164f, -0.00125372503f, 0.000218580870f,
                   -4.39150654e-6f, -3.5233877e-6f, 3.43273939e-7f, 2.81022636e-8f);
  V q = polynomial(far, 2.83297682f, 1.00167406f, 0.00943887047f, -0.0076224613f, 0.00573950773f, -0.00367342844f,
                   0.00134934322f, 0.000100950558f, -0.000200214257f);
  return x * blend<V>(w < splat<V>(5.0f), p, q);
}

static __attribute__((noinline, unused)) double erfinv_scalar(double x) {
  double a = __builtin_fabs(x);
  if (!(a < 1)) return a == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  double tail = 1 - a, w = -__builtin_log(tail * (1 + a));
  // Winitzki's closed form is a start that is good to a few digits all the way to the ends.
  double b = 4.330746750799873 - w / 2;
  double y = __builtin_sqrt(__builtin_sqrt(b * b + w / 0.147) - b);
  for (int i = 0; i < 4; ++i) {
    double error = a < 0.5 ? a - __builtin_erf(y) : __builtin_erfc(y) - tail;
    double step = error * 0.886226925452758 * __builtin_exp(y * y);
    y += step / (1 - y * step);
  }
  return __builtin_copysign(y, x);
}

template <class V>
LITZ_FN V erfinv_lanes(V x) {
  if constexpr (!is_f32<V>) {
    for (int i = 0; i < lane_count<V>; ++i) x[i] = erfinv_scalar(x[i]);
    return x;
  } else {
    V one = splat<V>(1);
    V y = erfinv_start(x);
    return blend<V>(abs_lanes(x) == one, copysign_lanes(splat<V>(__builtin_inff()), x), y);
  }
}

LITZ_MATH_UNARY(erf)
LITZ_MATH_UNARY(erfc)
LITZ_MATH_UNARY(erfinv)

}  // namespace litz

#endif
