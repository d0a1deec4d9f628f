// Functions with a plateau at both ends. V is vec<float>, vec<double>, float or double.
//
//   V tanh(V), erf(V), erfc(V)
//
// float: x P(x^2) / Q(x^2), rational minimax fits by Lawson-weighted least squares over the range where the result
// differs from 1; under 2 ulp. erfc and double: the C library's, lane by lane.
#ifndef LITZ_MATH_ERF_H
#define LITZ_MATH_ERF_H
#include "float_ops.h"

namespace litz {

LITZ_LIBM_UNARY(tanh)
LITZ_LIBM_UNARY(erf)
LITZ_LIBM_UNARY(erfc)

template <class V>
LITZ_FN V tanh_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return tanh_libm(x);
  } else {
    V z = x * x;
    V p = polynomial(z, 1.0f, 0.1367991610937463f, 0.003868329006712818f, 2.8007481764228545e-05f, 3.0585067507078236e-08f, -1.2203490553598162e-11f);
    V q = polynomial(z, 1.0f, 0.47013248170493793f, 0.027245843530233693f, 0.0003938633246651305f, 1.2873680643879414e-06f);
    V y = x * p / q;
    return blend<V>(abs_lanes(x) > splat<V>(9.02f), copysign_lanes(splat<V>(1), x), y);
  }
}

template <class V>
LITZ_FN V erf_lanes(V x) {
  if constexpr (!is_f32<V>) {
    return erf_libm(x);
  } else {
    V z = x * x;
    V p = polynomial(z, 1.1283791696104042f, 0.1924910105760815f, 0.05559349933775345f, 0.004196749737705302f, 0.00040608682041696326f, 6.601213790724633e-06f);
    V q = polynomial(z, 1.0f, 0.5039241385176898f, 0.11724259070237433f, 0.01621872732782446f, 0.0014084309473815938f, 7.120097184823766e-05f, 2.497193426485983e-07f);
    V y = x * p / q;
    return blend<V>(abs_lanes(x) > splat<V>(3.92f), copysign_lanes(splat<V>(1), x), y);
  }
}

template <class V>
LITZ_FN V erfc_lanes(V x) {
  return erfc_libm(x);
}

LITZ_MATH_UNARY(tanh)
LITZ_MATH_UNARY(erf)
LITZ_MATH_UNARY(erfc)

}  // namespace litz

#endif
