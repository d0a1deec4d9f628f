// Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011), one block of four words for each counter.
// T is an element type; R = reg<T>. seed and counter are vec<int64_t>, or int64_t for one scalar.
//
//   vec<R> random_uniform<T>(seed, counter)    in [0, 1); as many digits as T holds, so that none rounds to 1
//   vec<R> random_normal<T>(seed, counter)     Box and Muller from the block's first words; not yet rounded to T
//   vec<R> random_bits<T>(seed, counter)       integers of T's range; b1 gives a mask (bool for a scalar)
//
// The seed is the key; the counter's halves are the block's first two words and zero the others.
#ifndef LITZ_PHILOX_H
#define LITZ_PHILOX_H
#include "math_log.h"
#include "math_trig.h"

namespace litz {

// Words live in 64-bit lanes, where a product of two of them is exact.
template <class U>
struct philox_block {
  U w0, w1, w2, w3;
};
template <class U>
LITZ_FN philox_block<U> philox(U seed, U counter) {
  U word = splat<U>(0xffffffff), shift = splat<U>(32);
  U k0 = seed & word, k1 = seed >> shift;
  philox_block<U> b = {counter & word, counter >> shift, splat<U>(0), splat<U>(0)};
  for (int round = 0; round < 10; ++round) {
    U first = b.w0 * splat<U>(0xd2511f53), second = b.w2 * splat<U>(0xcd9e8d57);
    b = {(second >> shift) ^ b.w1 ^ k0, second & word, (first >> shift) ^ b.w3 ^ k1, first & word};
    k0 = (k0 + splat<U>(0x9e3779b9)) & word;
    k1 = (k1 + splat<U>(0xbb67ae85)) & word;
  }
  return b;
}
template <class I>
using unsigned_of = typename vector_of<uint64_t, lane_count<I>>::type;
template <class I>
LITZ_FN philox_block<unsigned_of<I>> philox_at(I seed, I counter) {
  typedef unsigned_of<I> U;
  return philox(bits_as<U>(seed), bits_as<U>(counter));
}

// Digits of the significand, the leading one included.
template <class T>
constexpr int digits = 24;
template <>
constexpr int digits<double> = 53;
template <>
constexpr int digits<f16> = 11;
template <>
constexpr int digits<bf16> = 8;
template <>
constexpr int digits<f8e4m3fn> = 4;
template <>
constexpr int digits<f8e5m2> = 3;
template <>
constexpr int digits<f8e4m3fnuz> = 4;
template <>
constexpr int digits<f8e5m2fnuz> = 3;

template <class T, class U>
LITZ_FN auto unit_interval(U lo, U hi) {
  typedef typename vector_of<reg<T>, lane_count<U>>::type V;
  constexpr int n = digits<T>;
  U bits = n > 32 ? (hi << splat<U>(32) | lo) >> splat<U>((64 - n) & 63) : lo >> splat<U>((32 - n) & 31);
  return convert_lanes<V>(bits) * splat<V>(reg<T>(1) / reg<T>(uint64_t(1) << n));
}

// cos(2 pi v) for v in [0, 1]: turns are exact where radians are not.
template <class V>
LITZ_FN V cos_of_turns(V v) {
  if constexpr (is_wide<V>) {
    return {cos_of_turns(v.lo), cos_of_turns(v.hi)};
  } else if constexpr (!is_f32<V>) {
    return cos_lanes(v * splat<V>(6.283185307179586));
  } else {
    V quarter = round_lanes(v * splat<V>(4));
    V r = mul_add(quarter, splat<V>(-0.25f), v) * splat<V>(6.28318531f);
    return sin_of_quadrant(r, to_integer(quarter) + splat<lane_mask<V>>(1));
  }
}

template <class T, class I>
LITZ_FN auto uniform_lanes(I seed, I counter) {
  auto b = philox_at(seed, counter);
  return unit_interval<T>(b.w0, b.w1);
}
template <class T, class I>
LITZ_FN auto normal_lanes(I seed, I counter) {
  typedef reg<T> R;
  auto b = philox_at(seed, counter);
  auto u = unit_interval<R>(b.w0, b.w1);
  auto v = same<R, double> ? unit_interval<R>(b.w2, b.w3) : unit_interval<R>(b.w1, b.w0);
  typedef decltype(u) V;
  // 1 - u is exact, and u = 0 gives the logarithm of 1, not of 0.
  V radius = sqrt_halves(splat<V>(-2) * log_halves(splat<V>(1) - u));
  return radius * cos_of_turns(v);
}
template <class T, class I>
LITZ_FN auto bits_lanes(I seed, I counter) {
  typedef unsigned_of<I> U;
  typedef typename vector_of<reg<T>, lane_count<I>>::type V;
  auto b = philox_at(seed, counter);
  if constexpr (same<T, b1>) return convert_lanes<V>(U{} - (b.w0 & splat<U>(1)));
  else if constexpr (sizeof(T) == 8) return convert_lanes<V>(b.w0 | b.w1 << splat<U>(32));
  else return convert_lanes<V>(b.w0);
}

#define LITZ_RANDOM(name, lanes)                                                      \
  template <class T>                                                                  \
  LITZ_MATH_FN vec<reg<T>> name(vec<int64_t> seed, vec<int64_t> counter) {            \
    return lanes<T>(seed, counter);                                                   \
  }                                                                                   \
  template <class T>                                                                  \
  LITZ_MATH_FN auto name(int64_t seed, int64_t counter) {                             \
    typedef vector_of<int64_t, 2>::type pair;                                         \
    auto x = lanes<T>(splat<pair>(seed), splat<pair>(counter))[0];                    \
    if constexpr (same<T, b1>) return x != 0;                                         \
    else return reg<T>(x);                                                            \
  }
LITZ_RANDOM(random_uniform, uniform_lanes)
LITZ_RANDOM(random_normal, normal_lanes)
LITZ_RANDOM(random_bits, bits_lanes)
#undef LITZ_RANDOM

}  // namespace litz

#endif
