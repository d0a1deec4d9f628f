// States of reductions: one per lane (V a vector or mask) or a single one (V a number or bool). A state starts as the
// identity. With S one of
//
//   sum_state<V>  prod_state<V>  min_state<V>  max_state<V>      min and max propagate NaN
//   all_state<V>  any_state<V>  xor_state<V>                     bits of integers; masks and bool
//   argmin_state<V, I>  argmax_state<V, I>                       the first index wins ties, NaN wins over numbers
//   welford_state<V>                                             mean, sum of squared differences, count
//
//   s.add(x)           one more element; argmin and argmax take (x, index)
//   s.add(x, mask m)   of lanes m only; argmin and argmax take (x, index, m)
//   s.add_product(x, y)                 sums of floats: one more product, which is not rounded before it is added
//   s.settle()         sums and counts: close a block, so that a long sum is a sum of block sums
//   s.merge(t)         combine with the elements of t
//   collapse(s)        one state of all lanes
//   s.result(), s.result1(), s.result2()     the combination's values
#ifndef LITZ_ACCUMULATE_H
#define LITZ_ACCUMULATE_H
#include "reduce.h"

#define LITZ_METHOD inline __attribute__((always_inline))

namespace litz {

template <class T>
constexpr T greatest_of() {
  if constexpr (is_float<T>) return T(__builtin_inf());
  else if constexpr (is_signed<T>) return T(~(uint64_t(1) << (sizeof(T) * 8 - 1)));
  else return T(~T(0));
}
template <class T>
constexpr T least_of() {
  if constexpr (is_float<T>) return -T(__builtin_inf());
  else if constexpr (is_signed<T>) return T(uint64_t(1) << (sizeof(T) * 8 - 1));
  else return T(0);
}

template <class V>
struct sum_state {
  V block = splat<V>(0), total = splat<V>(0);
  LITZ_METHOD void add(V x) { block = add_wrapping(block, x); }
  LITZ_METHOD void add(V x, mask m) { add(select(m, x, splat<V>(0))); }
  LITZ_METHOD void add_product(V x, V y) { block = mul_add(x, y, block); }
  LITZ_METHOD void settle() {
    total = add_wrapping(total, block);
    block = splat<V>(0);
  }
  LITZ_METHOD void merge(sum_state s) {
    settle();
    total = add_wrapping(total, s.result());
  }
  LITZ_METHOD V result() const { return add_wrapping(total, block); }
};

#define LITZ_SIMPLE_STATE(name, identity, combined)                    \
  template <class V>                                                   \
  struct name {                                                        \
    V a = splat<V>(identity);                                          \
    LITZ_METHOD void add(V b) { a = combined; }                        \
    LITZ_METHOD void add(V x, mask m) {                                \
      V b = select(m, x, splat<V>(identity));                          \
      a = combined;                                                    \
    }                                                                  \
    LITZ_METHOD void merge(name s) { add(s.a); }                       \
    LITZ_METHOD V result() const { return a; }                         \
  };
LITZ_SIMPLE_STATE(prod_state, 1, mul_wrapping(a, b))
LITZ_SIMPLE_STATE(min_state, greatest_of<elem<V>>(), minimum(a, b))
LITZ_SIMPLE_STATE(max_state, least_of<elem<V>>(), maximum(a, b))
LITZ_SIMPLE_STATE(all_state, elem<V>(-1), a & b)
LITZ_SIMPLE_STATE(any_state, 0, a | b)
LITZ_SIMPLE_STATE(xor_state, 0, a ^ b)
#undef LITZ_SIMPLE_STATE

#define LITZ_COLLAPSE(name, result, lanes)                 \
  template <class V>                                       \
  LITZ_FN name<elem<V>> collapse(const name<V>& s) {       \
    name<elem<V>> r;                                       \
    r.result = lanes;                                      \
    return r;                                              \
  }
LITZ_COLLAPSE(sum_state, total, sum_lanes(s.result()))
LITZ_COLLAPSE(prod_state, a, prod_lanes(s.a))
LITZ_COLLAPSE(min_state, a, min_lanes(s.a))
LITZ_COLLAPSE(max_state, a, max_lanes(s.a))
LITZ_COLLAPSE(all_state, a, and_lanes(s.a))
LITZ_COLLAPSE(any_state, a, or_lanes(s.a))
LITZ_COLLAPSE(xor_state, a, xor_lanes(s.a))
#undef LITZ_COLLAPSE

// The index where no element was added.
template <class I>
constexpr I no_index = greatest_of<I>();

#define LITZ_ARG_STATE(name, start, better)                                                    \
  template <class V, class I>                                                                  \
  struct name {                                                                                \
    V a = splat<V>(start<elem<V>>());                                                          \
    I at = splat<I>(no_index<elem<I>>);                                                        \
    LITZ_METHOD auto wins(V b, I index) const {                                                \
      auto first = lt(index, at), tie = eq(b, a), beats = better(b, a);                        \
      if constexpr (is_float<elem<V>>) {                                                       \
        auto nan = isnan(b), nan_before = isnan(a);                                            \
        return (nan & (not_mask(nan_before) | first)) | (not_mask(nan_before) & (beats | (tie & first))); \
      } else {                                                                                 \
        return beats | (tie & first);                                                          \
      }                                                                                        \
    }                                                                                          \
    template <class M>                                                                         \
    LITZ_METHOD void take(V b, I index, M where) {                                             \
      a = select(where, b, a);                                                                 \
      at = select(where, index, at);                                                           \
    }                                                                                          \
    LITZ_METHOD void add(V b, I index) { take(b, index, wins(b, index)); }                     \
    LITZ_METHOD void add(V b, I index, mask m) { take(b, index, wins(b, index) & m); }         \
    LITZ_METHOD void merge(name s) { add(s.a, s.at); }                                         \
    LITZ_METHOD V result() const { return a; }                                                 \
    LITZ_METHOD I result1() const { return at; }                                               \
  };                                                                                           \
  template <class V, class I>                                                                  \
  LITZ_FN name<elem<V>, elem<I>> collapse(const name<V, I>& s) {                               \
    name<elem<V>, elem<I>> r;                                                                  \
    for (int i = 0; i < LITZ_LANES; ++i) r.add(lane(s.a, i), lane(s.at, i));                   \
    return r;                                                                                  \
  }
LITZ_FN mask not_mask(mask m) { return ~m; }
LITZ_FN bool not_mask(bool m) { return !m; }
LITZ_ARG_STATE(argmin_state, greatest_of, lt)
LITZ_ARG_STATE(argmax_state, least_of, gt)
#undef LITZ_ARG_STATE

// Welford, "Note on a method for calculating corrected sums of squares and products" (1962); states are merged by Chan,
// Golub and LeVeque's formula (1979).
template <class V>
struct welford_state {
  V mean = splat<V>(0), squares = splat<V>(0), count = splat<V>(0);
  LITZ_METHOD void add(V x) {
    count = count + splat<V>(1);
    V before = x - mean;
    mean = mean + before * (splat<V>(1) / count);
    squares = squares + before * (x - mean);
  }
  LITZ_METHOD void add(V x, mask m) {
    welford_state s = *this;
    s.add(x);
    mean = select(m, s.mean, mean);
    squares = select(m, s.squares, squares);
    count = select(m, s.count, count);
  }
  LITZ_METHOD void merge(welford_state s) {
    V both = count + s.count, apart = s.mean - mean;
    V share = blend<V>(both == splat<V>(0), splat<V>(0), s.count / both);
    mean = mean + apart * share;
    squares = squares + s.squares + apart * apart * (count * share);
    count = both;
  }
  LITZ_METHOD V result() const { return mean; }
  LITZ_METHOD V result1() const { return squares; }
  LITZ_METHOD V result2() const { return count; }
};
template <class V>
LITZ_FN welford_state<elem<V>> collapse(const welford_state<V>& s) {
  if constexpr (lane_count<V> > 2) {
    welford_state<half<V>> l, h;
    l.mean = low(s.mean), l.squares = low(s.squares), l.count = low(s.count);
    h.mean = high(s.mean), h.squares = high(s.squares), h.count = high(s.count);
    l.merge(h);
    return collapse(l);
  } else {
    welford_state<elem<V>> l, h;
    l.mean = s.mean[0], l.squares = s.squares[0], l.count = s.count[0];
    h.mean = s.mean[1], h.squares = s.squares[1], h.count = s.count[1];
    l.merge(h);
    return l;
  }
}

}  // namespace litz

#endif
