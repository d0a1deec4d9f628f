// Hyperbolic functions but tanh, which is in math_erf.h. V is vec<float>, vec<double>, float or double.
//
//   V sinh(V), cosh(V), asinh(V), acosh(V), atanh(V)
#ifndef LITZ_MATH_HYPERBOLIC_H
#define LITZ_MATH_HYPERBOLIC_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(sinh)
LITZ_LIBM_UNARY(cosh)
LITZ_LIBM_UNARY(asinh)
LITZ_LIBM_UNARY(acosh)
LITZ_LIBM_UNARY(atanh)

template <class V>
LITZ_FN V sinh_lanes(V x) {
  return sinh_libm(x);
}
template <class V>
LITZ_FN V cosh_lanes(V x) {
  return cosh_libm(x);
}
template <class V>
LITZ_FN V asinh_lanes(V x) {
  return asinh_libm(x);
}
template <class V>
LITZ_FN V acosh_lanes(V x) {
  return acosh_libm(x);
}
template <class V>
LITZ_FN V atanh_lanes(V x) {
  return atanh_libm(x);
}

LITZ_MATH_UNARY(sinh)
LITZ_MATH_UNARY(cosh)
LITZ_MATH_UNARY(asinh)
LITZ_MATH_UNARY(acosh)
LITZ_MATH_UNARY(atanh)

}  // namespace litz

#endif
