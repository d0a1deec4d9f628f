// Circular functions, angles in radians. V is vec<float>, vec<double>, float or double.
//
//   V sin(V), cos(V), tan(V), asin(V), acos(V), atan(V), atan2(V y, V x), hypot(V x, V y)
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

template <class V>
LITZ_FN V sin_lanes(V x) {
  return sin_libm(x);
}
template <class V>
LITZ_FN V cos_lanes(V x) {
  return cos_libm(x);
}
template <class V>
LITZ_FN V tan_lanes(V x) {
  return tan_libm(x);
}
template <class V>
LITZ_FN V asin_lanes(V x) {
  return asin_libm(x);
}
template <class V>
LITZ_FN V acos_lanes(V x) {
  return acos_libm(x);
}
template <class V>
LITZ_FN V atan_lanes(V x) {
  return atan_libm(x);
}
template <class V>
LITZ_FN V atan2_lanes(V x, V y) {
  return atan2_libm(x, y);
}
template <class V>
LITZ_FN V hypot_lanes(V x, V y) {
  return hypot_libm(x, y);
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
