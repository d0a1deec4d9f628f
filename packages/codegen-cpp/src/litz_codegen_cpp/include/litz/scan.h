// Scans of lanes in registers: lane k of a result combines lanes 0 .. k, in as many steps as the number of lanes has
// bits. Lanes are combined in another order than one after another.
//
//   V      lanes_behind<D>(V before, V v)    v moved up by D lanes; its first lanes are the last ones of `before`
//   V      last_lane(V v)                    the last lane in every lane
//   void   scan_steps(f)                     f(step<D>) for the distances D = 1, 2, 4 .. of a scan of LITZ_LANES lanes
//   running<Op, V> r;                        a scan along consecutive vectors, from the identity
//   V      r.next(V v)                       v combined with all lanes before
//
// Op is one of scan_sum, scan_prod, scan_min, scan_max, scan_all, scan_any, scan_xor; the last three combine bits.
#ifndef LITZ_SCAN_H
#define LITZ_SCAN_H
#include "accumulate.h"

namespace litz {

template <int D, class V, int... I>
LITZ_FN V shift_lanes(V before, V v, indices<I...>) {
  return permute(before, v, indices<(I + int(sizeof...(I)) - D)...>());
}
template <class V, int... I>
LITZ_FN V repeat_last(V v, indices<I...>) {
  return permute(v, v, indices<(I * 0 + int(sizeof...(I)) - 1)...>());
}

template <int D, class V>
LITZ_FN V lanes_behind(V before, V v) {
  if constexpr (D == 0) {
    return v;
  } else if constexpr (is_wide<V>) {
    constexpr int n = lane_count<V> / 2;
    if constexpr (D < n) return {lanes_behind<D>(before.hi, v.lo), lanes_behind<D>(v.lo, v.hi)};
    else return {lanes_behind<D - n>(before.lo, before.hi), lanes_behind<D - n>(before.hi, v.lo)};
  } else {
    return shift_lanes<D>(before, v, indices_to<lane_count<V>>());
  }
}

template <class V>
LITZ_FN V last_lane(V v) {
  if constexpr (is_wide<V>) {
    half<V> h = last_lane(v.hi);
    return {h, h};
  } else {
    return repeat_last(v, indices_to<lane_count<V>>());
  }
}

template <int D>
struct step {
  static constexpr int lanes = D;
};
template <int D = 1, class F>
LITZ_FN void scan_steps(F f) {
  if constexpr (D < LITZ_LANES) {
    f(step<D>());
    scan_steps<2 * D>(f);
  }
}

#define LITZ_SCAN_OP(name, start, combined)      \
  struct name {                                  \
    template <class T>                           \
    static constexpr T identity() {              \
      return T(start);                           \
    }                                            \
    template <class V>                           \
    LITZ_FN V of(V a, V b) {                     \
      return combined;                           \
    }                                            \
  };
LITZ_SCAN_OP(scan_sum, 0, add_wrapping(a, b))
LITZ_SCAN_OP(scan_prod, 1, mul_wrapping(a, b))
LITZ_SCAN_OP(scan_min, greatest_of<T>(), minimum(a, b))
LITZ_SCAN_OP(scan_max, least_of<T>(), maximum(a, b))
LITZ_SCAN_OP(scan_all, -1, a & b)
LITZ_SCAN_OP(scan_any, 0, a | b)
LITZ_SCAN_OP(scan_xor, 0, a ^ b)
#undef LITZ_SCAN_OP

template <class Op, int D, class V>
LITZ_FN V scan_register(V v) {
  if constexpr (D < lane_count<V>)
    return scan_register<Op, 2 * D>(Op::of(lanes_behind<D>(splat<V>(Op::template identity<elem<V>>()), v), v));
  else return v;
}
template <class Op, class V>
LITZ_FN V scan_lanes(V v) {
  if constexpr (is_wide<V>) {
    half<V> lo = scan_lanes<Op>(v.lo);
    return {lo, Op::of(last_lane(lo), scan_lanes<Op>(v.hi))};
  } else {
    return scan_register<Op, 1>(v);
  }
}

// Partial products of factors with large exponents overflow or vanish where the product from the first factor on does
// not: 0 * 1e200 * 1e200 is 0, and NaN in another order. Those factors are multiplied one after another.
template <class V>
LITZ_FN auto exponents_within(V v, uint64_t low, uint64_t high) {
  typedef vec<uint64_t> bits;
  // Doubles in order of their sizes, with the sign bit shifted out; the difference wraps below `low`.
  const bits own = bits_as<bits>(v);
  return le(own + own - splat<bits>(low << 53), splat<bits>(((high - low) << 53) - 1));
}
template <class V>
LITZ_FN bool keeps_range(V before, V factors, V products) {
  constexpr uint64_t one = 1023, most = 1022 / lane_count<V>, normal = 1, infinite = 2047;
  if (lane(before, 0) == 0) return all_true(exponents_within(factors, 0, one + most));
  return all_true(exponents_within(factors, one - most, one + most) & exponents_within(products, normal, infinite));
}
template <class V>
LITZ_FN V multiply_in_order(V before, V v) {
  elem<V> lanes[lane_count<V>], product = lane(before, 0);
  raw_store(lanes, v);
  for (auto& each : lanes) each = product *= each;
  return raw_load<V>(lanes);
}

template <class Op, class V>
struct running {
  V before = splat<V>(Op::template identity<elem<V>>());
  LITZ_METHOD V next(V v) {
    // The total of a vector does not depend on those before it, so that only one combination delays the next vector.
    V own = scan_lanes<Op>(v), all = Op::of(before, own);
    if constexpr (same<Op, scan_prod> && same<elem<V>, double>) {
      if (!keeps_range(before, v, all)) {
        all = multiply_in_order(before, v);
        before = last_lane(all);
        return all;
      }
    }
    before = Op::of(before, last_lane(own));
    return all;
  }
};

}  // namespace litz

#endif
