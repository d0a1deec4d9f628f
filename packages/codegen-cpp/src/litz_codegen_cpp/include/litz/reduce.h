// One scalar from the lanes of a vector. V is vec<T> for any number type T.
//
//   T    sum_lanes(V), prod_lanes(V)          by halves, so that the result does not depend on how it is compiled
//   T    min_lanes(V), max_lanes(V)           NaN if any lane is NaN
//   T    and_lanes(V), or_lanes(V), xor_lanes(V)    integers and masks
//   bool any_lanes(mask), all_lanes(mask)
#ifndef LITZ_REDUCE_H
#define LITZ_REDUCE_H
#include "arithmetic.h"

namespace litz {

#define LITZ_REDUCE(name, combined)                          \
  template <class V>                                         \
  LITZ_FN elem<V> name(V v) {                                \
    if constexpr (lane_count<V> == 1) {                      \
      return v[0];                                           \
    } else if constexpr (lane_count<V> == 2 && !is_wide<V>) { \
      elem<V> a = v[0], b = v[1];                            \
      return elem<V>(combined);                              \
    } else {                                                 \
      half<V> a = low(v), b = high(v);                       \
      return name(half<V>(combined));                        \
    }                                                        \
  }
LITZ_REDUCE(sum_lanes, add_wrapping(a, b))
LITZ_REDUCE(prod_lanes, mul_wrapping(a, b))
LITZ_REDUCE(min_lanes, minimum(a, b))
LITZ_REDUCE(max_lanes, maximum(a, b))
LITZ_REDUCE(and_lanes, a & b)
LITZ_REDUCE(or_lanes, a | b)
LITZ_REDUCE(xor_lanes, a ^ b)
#undef LITZ_REDUCE

LITZ_FN bool any_lanes(mask m) { return any_true(m); }
LITZ_FN bool all_lanes(mask m) { return all_true(m); }

}  // namespace litz

#endif
