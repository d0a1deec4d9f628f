// The gamma function's relatives. V is vec<float>, vec<double>, float or double.
//
//   V lgamma(V)      log |gamma(x)|
#ifndef LITZ_MATH_GAMMA_H
#define LITZ_MATH_GAMMA_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(lgamma)

template <class V>
LITZ_FN V lgamma_lanes(V x) {
  return lgamma_libm(x);
}

LITZ_MATH_UNARY(lgamma)

}  // namespace litz

#endif
