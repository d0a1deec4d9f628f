// Arithmetic that C++ operators lack or define otherwise. V is vec<T> or T for any number type T; I for integer T.
//
//   V minimum(V, V), maximum(V, V)        NaN if either is NaN, as torch.minimum; of masks take & and |
//   V fmin(V, V), fmax(V, V)              the other operand where one is NaN, the first of equals, as torch.fmin
//   I floor_div(I a, I b), remainder(I a, I b)     Python's signs; a zero divisor gives 0 and traps nothing
//   I trunc_div(I a, I b), fmod(I a, I b)          C's signs; likewise. For floats see math_divide.h
//   I shift_left(I a, I b), shift_right(I a, I b)  b below 0 or past the width: 0, or for a signed right shift the sign
//   V neg(V), abs(V)                      integers wrap
//   V sign(V)                             -1, 0 or 1; NaN gives 0, as torch.sign
//   mask or bool  isnan(V), isinf(V), signbit(V)
//   V add_wrapping(V, V), sub_wrapping, mul_wrapping       + - * that wrap for signed scalars too
#ifndef LITZ_ARITHMETIC_H
#define LITZ_ARITHMETIC_H
#include "float_ops.h"

namespace litz {

template <class V>
constexpr bool is_signed = elem<V>(-1) < elem<V>(0);

// Signed overflow is undefined, of scalars and of lanes; unsigned arithmetic of at least int's width is not. Scalars that
// are narrower than int are computed as int.
template <class T>
struct wrapping {
  typedef T scalar;
  typedef T lane;
};
#define LITZ_WRAPS(T, Scalar, Lane) \
  template <>                       \
  struct wrapping<T> {              \
    typedef Scalar scalar;          \
    typedef Lane lane;              \
  };
LITZ_WRAPS(int8_t, int8_t, uint8_t)
LITZ_WRAPS(int16_t, int16_t, uint16_t)
LITZ_WRAPS(int32_t, uint32_t, uint32_t)
LITZ_WRAPS(int64_t, uint64_t, uint64_t)
LITZ_WRAPS(uint16_t, uint32_t, uint16_t)
#undef LITZ_WRAPS

#define LITZ_WRAPPING(name, op)                                                          \
  template <class V>                                                                     \
  LITZ_FN V name(V a, V b) {                                                             \
    if constexpr (is_scalar<V>) {                                                        \
      typedef typename wrapping<V>::scalar W;                                            \
      return V(W(a) op W(b));                                                            \
    } else {                                                                             \
      typedef typename vector_of<typename wrapping<elem<V>>::lane, lane_count<V>>::type W; \
      return bits_as<V>(bits_as<W>(a) op bits_as<W>(b));                                 \
    }                                                                                    \
  }
LITZ_WRAPPING(add_wrapping, +)
LITZ_WRAPPING(sub_wrapping, -)
LITZ_WRAPPING(mul_wrapping, *)
#undef LITZ_WRAPPING

template <class V>
LITZ_FN V minimum(V a, V b) {
  if constexpr (is_float<elem<V>>) return keep_nan(a, lesser(a, b));
  else return lesser(a, b);
}
template <class V>
LITZ_FN V maximum(V a, V b) {
  if constexpr (is_float<elem<V>>) return keep_nan(a, greater(a, b));
  else return greater(a, b);
}
template <class V>
LITZ_FN V fmin(V a, V b) {
  V least = lesser(b, a);
  if constexpr (is_float<elem<V>>) return blend<V>(a != a, b, least);
  else return least;
}
template <class V>
LITZ_FN V fmax(V a, V b) {
  V greatest = greater(b, a);
  if constexpr (is_float<elem<V>>) return blend<V>(a != a, b, greatest);
  else return greatest;
}

template <class V>
LITZ_FN V neg(V a) {
  if constexpr (is_float<elem<V>>) return -a;
  else return sub_wrapping(splat<V>(0), a);
}
template <class V>
LITZ_FN V abs(V a) {
  if constexpr (is_signed<V>) return blend<V>(a < splat<V>(0), neg(a), a);
  else return a;
}
template <class V>
LITZ_FN V sign(V a) {
  V zero = splat<V>(0), one = splat<V>(1);
  V r = blend<V>(a > zero, one, zero);
  if constexpr (is_signed<V>) return blend<V>(a < zero, neg(one), r);
  else return r;
}

template <class V>
LITZ_FN auto isnan(V a) {
  return as_mask(a != a);
}
template <class V>
LITZ_FN auto isinf(V a) {
  return as_mask(abs(a) == splat<V>(__builtin_inf()));
}
template <class V>
LITZ_FN auto signbit(V a) {
  if constexpr (!is_float<elem<V>>) return as_mask(a < splat<V>(0));
  else if constexpr (is_scalar<V>) return bool(__builtin_signbit(a));
  else return as_mask(bits_as<lane_mask<V>>(a) < lane_mask<V>{});
}

// Division where b is neither 0 nor, for signed lanes, -1. Integers of up to 32 bits divide exactly in double.
template <class V>
LITZ_FN V safe_divide(V a, V b) {
  if constexpr (is_scalar<V> || sizeof(elem<V>) == 8) {
    return V(a / b);
  } else {
    typedef typename vector_of<double, lane_count<V>>::type D;
    return convert_lanes<V>(convert_lanes<D>(a) / convert_lanes<D>(b));
  }
}
template <class V>
LITZ_FN V trunc_div(V a, V b) {
  V zero = splat<V>(0), one = splat<V>(1);
  if constexpr (is_signed<V>) {
    V minus_one = splat<V>(-1);
    V q = safe_divide(a, blend<V>(b == zero, one, blend<V>(b == minus_one, one, b)));
    return blend<V>(b == zero, zero, blend<V>(b == minus_one, neg(a), q));
  } else {
    return blend<V>(b == zero, zero, safe_divide(a, blend<V>(b == zero, one, b)));
  }
}
template <class V>
LITZ_FN V fmod(V a, V b) {
  V r = sub_wrapping(a, mul_wrapping(trunc_div(a, b), b));
  return blend<V>(b == splat<V>(0), b, r);
}
template <class V>
LITZ_FN V floor_div(V a, V b) {
  V q = trunc_div(a, b);
  if constexpr (is_signed<V>) {
    V zero = splat<V>(0);
    V r = sub_wrapping(a, mul_wrapping(q, b));
    V lower = sub_wrapping(q, splat<V>(1));
    q = blend<V>(b == zero, zero, blend<V>(r == zero, q, blend<V>((r ^ b) < zero, lower, q)));
  }
  return q;
}
template <class V>
LITZ_FN V remainder(V a, V b) {
  V r = fmod(a, b);
  if constexpr (is_signed<V>) {
    V zero = splat<V>(0);
    r = blend<V>(r == zero, r, blend<V>((r ^ b) < zero, add_wrapping(r, b), r));
  }
  return r;
}

template <class V>
LITZ_FN V shift_left(V a, V b) {
  V zero = splat<V>(0), width = splat<V>(sizeof(elem<V>) * 8);
  V n = blend<V>(b < width, blend<V>(b < zero, zero, b), zero);
  V r;
  if constexpr (is_scalar<V>) r = V(uint64_t(a) << n);
  else r = a << n;
  return blend<V>(b < width, blend<V>(b < zero, zero, r), zero);
}
template <class V>
LITZ_FN V shift_right(V a, V b) {
  V zero = splat<V>(0), last = splat<V>(sizeof(elem<V>) * 8 - 1);
  V n = blend<V>(b > last, last, blend<V>(b < zero, last, b));
  V r = V(a >> n);
  if constexpr (is_signed<V>) return r;
  else return blend<V>(b > last, zero, r);
}

}  // namespace litz

#endif
