// For functions of floats that are computed in double and rounded once. D is a register of doubles, or wide halves.
//
//   D log2_of_float(D x)     log2 x to 38 bits, for normal x >= 0; of infinity infinity, of zero its negative
//   D exp2_for_float(D t)    2^t to 34 bits where a float can hold it, else far out of a float's range
//
// Polynomials by Lawson-weighted least squares.
#ifndef LITZ_MATH_WIDE_H
#define LITZ_MATH_WIDE_H
#include "float_ops.h"

namespace litz {

template <class D>
LITZ_FN D log2_of_float(D x) {
  typedef lane_mask<D> I;
  I u = (I)x + splat<I>(0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
  D e = from_integer<D>((u >> splat<I>(52)) - splat<I>(1023));
  D f = (D)((u & splat<I>(0xfffffffffffff)) + splat<I>(0x3fe6a09e667f3bcd)) - splat<D>(1);
  D p = polynomial(f, 1.4426950408865709, -0.7213475203274017, 0.48089834880543314, -0.36067379317287057,
                   0.28853879547782485, -0.24044643113909608, 0.20610713075014742, -0.18043682040478018,
                   0.16021659428454219, -0.14249774594798179, 0.13027541487441405, -0.13463363385790114,
                   0.13251626282663867, -0.06973736666434648);
  D y = mul_add(p, f, e);
  y = blend<D>(x < splat<D>(__builtin_inf()), y, x);
  return blend<D>(x == D{}, splat<D>(-__builtin_inf()), y);
}
template <class D>
LITZ_FN D exp2_for_float(D t) {
  typedef lane_mask<D> I;
  D lo = splat<D>(-200), hi = splat<D>(200);
  t = blend<D>(hi < t, hi, t);
  t = blend<D>(lo > t, lo, t);
  D n = round_lanes(t);
  D p = polynomial(t - n, 0.9999999999613789, 0.6931471807298004, 0.2402265120114962, 0.055504103503499075,
                   0.009618026848506118, 0.0013333924036127015, 1.5469422076359662e-4, 1.5201816607313287e-5);
  return (D)((I)p + (to_integer(n) << splat<I>(52)));
}

}  // namespace litz

#endif
