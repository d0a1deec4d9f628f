// Operations on the lanes of any vector, and on scalars.
//
//   vec<T> broadcast<T>(T x)               every lane x
//   vec<T> iota<T>(T base)                 base, base + 1, ... base + LITZ_LANES - 1
//   mask   first_lanes(int64_t n)          true in lanes 0 .. n - 1
//   mask   broadcast_mask(bool x)          every lane x
//   mask   lt(a, b), le, gt, ge, eq, ne    IEEE comparison, false on NaN (ne: true); bool for scalars
//   V      select(mask m, V a, V b)        m ? a : b; also (bool, scalar, scalar)
//   vec<T> convert<T>(v)                   numbers as x86 eager casts them: float to integer truncates, and what does
//                                          not fit becomes the least integer; narrowing integers wraps; also scalars
//   mask   to_mask(v)                      v != 0, NaN is true; bool for scalars
//   vec<T> from_mask<T>(mask m)            1 where true, 0 elsewhere; also (bool)
//   uint32_t mask_bits(mask m)             bit i is lane i, for up to 32 lanes
//   bool   any_true(mask m), all_true(mask m)
//   mask   &  |  ^  ~                      logic on masks are the operators; scalars use && || ! on bool
#ifndef LITZ_LANES_H
#define LITZ_LANES_H
#include "types.h"

namespace litz {

template <class V>
LITZ_FN V splat(elem<V> x) {
  if constexpr (is_wide<V>) {
    half<V> h = splat<half<V>>(x);
    return {h, h};
  } else {
    return x - V{};  // not V{} + x, which turns -0.0 into 0.0
  }
}
template <class T>
LITZ_FN vec<T> broadcast(T x) {
  return splat<vec<T>>(x);
}

template <class V, int... I>
LITZ_FN V count_lanes(indices<I...>) {
  return V{elem<V>(I)...};
}
template <class V>
LITZ_FN V lane_numbers() {
  if constexpr (is_wide<V>) {
    half<V> h = lane_numbers<half<V>>();
    return {h, h + splat<half<V>>(lane_count<V> / 2)};
  } else {
    return count_lanes<V>(indices_to<lane_count<V>>());
  }
}

// A number that the optimiser cannot see. GCC 12 evaluates `m ? a : 0` wrongly where m and a are constants and the lanes
// of m differ, which here they do by their numbers alone.
template <class T>
LITZ_FN T opaque(T x) {
  asm("" : "+r"(x));
  return x;
}
template <class T>
LITZ_FN vec<T> iota(T base) {
  return lane_numbers<vec<T>>() + broadcast<T>(opaque(base));
}

// Element by element with __builtin_convertvector's rules, whatever the two widths.
template <class R, class V>
LITZ_FN R convert_lanes(V v) {
  if constexpr (same<R, V>) return v;
  else if constexpr (is_wide<R> || is_wide<V>)
    return join<R>(convert_lanes<half<R>>(low(v)), convert_lanes<half<R>>(high(v)));
  else return __builtin_convertvector(v, R);
}

// A select by a mask as wide as the values, native or wide; the vector maths works on these.
template <class V>
LITZ_FN V blend(lane_mask<V> c, V a, V b) {
  if constexpr (is_wide<V>) return {blend(c.lo, a.lo, b.lo), blend(c.hi, a.hi, b.hi)};
  else return c ? a : b;
}
template <class T>
constexpr bool is_float = same<T, float> || same<T, double>;

// The integer type through which a float becomes T: the one whose conversion instruction eager's cast uses.
template <class T>
struct cast_through {
  typedef T type;
};
template <>
struct cast_through<int8_t> {
  typedef int32_t type;
};
template <>
struct cast_through<int16_t> {
  typedef int32_t type;
};
template <>
struct cast_through<uint8_t> {
  typedef int64_t type;
};
template <>
struct cast_through<uint16_t> {
  typedef int64_t type;
};
template <>
struct cast_through<uint32_t> {
  typedef int64_t type;
};

// Compilers may take a float cast to an integer and back for its truncation: another value beyond the integers.
template <class I, class S>
LITZ_FN I truncated(S x) {
  I i = I(x);
  __asm__("" : "+r"(i));
  return i;
}
template <class T, class S>
LITZ_FN T convert_scalar(S x) {
  constexpr bool truncates = is_float<S> && !is_float<T> && !same<T, bool>;
  if constexpr (same<T, bool>) return x != 0;
  else if constexpr (truncates && same<T, uint64_t>)
    return x >= S(0x1p63) ? uint64_t(truncated<int64_t>(x - S(0x1p63))) ^ uint64_t(1) << 63
                          : uint64_t(truncated<int64_t>(x));
  else if constexpr (truncates) return T(truncated<typename cast_through<T>::type>(x));
  else return T(x);
}
// Bytes as int32 by one instruction, which GCC 12 takes element by element.
template <class V>
LITZ_FN vec<int32_t> widened_bytes(V v) {
#if defined(__clang__) || !defined(__AVX2__)
  return convert_lanes<vec<int32_t>>(v);
#else
  typedef char bytes __attribute__((vector_size(16)));
  bytes all = {};
  __builtin_memcpy(&all, &v, sizeof v);
#if defined(LITZ_AVX512)
  typedef int native __attribute__((vector_size(64)));
  if constexpr (same<elem<V>, int8_t>) return (vec<int32_t>)__builtin_ia32_pmovsxbd512_mask(all, native{}, 0xffff);
  else return (vec<int32_t>)__builtin_ia32_pmovzxbd512_mask(all, native{}, 0xffff);
#else
  if constexpr (same<elem<V>, int8_t>) return (vec<int32_t>)__builtin_ia32_pmovsxbd256(all);
  else return (vec<int32_t>)__builtin_ia32_pmovzxbd256(all);
#endif
#endif
}
template <class T, class S>
LITZ_FN vec<T> convert_vector(vec<S> v) {
  constexpr bool truncates = is_float<S> && !is_float<T>;
  if constexpr (truncates && same<T, uint64_t>) {
    auto upper = v >= splat<vec<S>>(S(0x1p63));
    vec<S> low = blend<vec<S>>(upper, v - splat<vec<S>>(S(0x1p63)), v);
    vec<int64_t> top = convert_lanes<vec<int64_t>>(upper) << splat<vec<int64_t>>(63);
    return bits_as<vec<T>>(convert_lanes<vec<int64_t>>(low) ^ top);
  } else if constexpr (truncates && same<T, uint8_t> && same<S, float>) {
    // A float beyond int32's range is a multiple of 256, as is what the conversion makes of it.
    return convert_lanes<vec<T>>(convert_lanes<vec<int32_t>>(v));
  } else if constexpr (truncates) {
    return convert_lanes<vec<T>>(convert_lanes<vec<typename cast_through<T>::type>>(v));
  } else if constexpr (sizeof(S) == 1 && (same<T, float> || same<T, int32_t>)) {
    return convert_lanes<vec<T>>(widened_bytes(v));
  } else {
    return convert_lanes<vec<T>>(v);
  }
}

template <class T>
LITZ_FN T convert(bool x) {
  return T(x);
}
#define LITZ_CONVERT(S)                                                          \
  template <class T>                                                             \
  LITZ_FN T convert(S x) {                                                       \
    return convert_scalar<T, S>(x);                                              \
  }                                                                              \
  template <class T>                                                             \
  LITZ_FN vec<T> convert(vec<S> v) {                                             \
    return convert_vector<T, S>(v);                                              \
  }
LITZ_CONVERT(float)
LITZ_CONVERT(double)
LITZ_CONVERT(int8_t)
LITZ_CONVERT(int16_t)
LITZ_CONVERT(int32_t)
LITZ_CONVERT(int64_t)
LITZ_CONVERT(uint8_t)
LITZ_CONVERT(uint16_t)
LITZ_CONVERT(uint32_t)
LITZ_CONVERT(uint64_t)
#undef LITZ_CONVERT

template <class C>
LITZ_FN auto as_mask(C c) {
  if constexpr (same<C, bool>) return c;
  else return convert_lanes<mask>(c);
}

#define LITZ_COMPARE(name, op)        \
  template <class V>                  \
  LITZ_FN auto name(V a, V b) {       \
    return as_mask(a op b);           \
  }
LITZ_COMPARE(lt, <)
LITZ_COMPARE(le, <=)
LITZ_COMPARE(gt, >)
LITZ_COMPARE(ge, >=)
LITZ_COMPARE(eq, ==)
LITZ_COMPARE(ne, !=)
#undef LITZ_COMPARE

template <class V>
LITZ_FN V select(mask m, V a, V b) {
  return blend(convert_lanes<lane_mask<V>>(m), a, b);
}
template <class T>
LITZ_FN T select(bool c, T a, T b) {
  return c ? a : b;
}

template <class V>
LITZ_FN auto to_mask(V v) {
  return as_mask(v != V{});
}
template <class T>
LITZ_FN vec<T> from_mask(mask m) {
  if constexpr (is_float<T>) return select(m, broadcast<T>(1), vec<T>{});
  else return convert_lanes<vec<T>>(m) & broadcast<T>(1);
}
template <class T>
LITZ_FN T from_mask(bool c) {
  return T(c);
}
LITZ_FN mask first_lanes(int64_t n) {
  int32_t bounded = n < LITZ_LANES ? int32_t(n) : LITZ_LANES;
  return lane_numbers<mask>() < broadcast<int32_t>(opaque(bounded));
}
LITZ_FN mask broadcast_mask(bool x) { return broadcast<int32_t>(-int32_t(x)); }

template <class M>
LITZ_FN uint32_t sign_bits(M m) {
  if constexpr (is_wide<M>) return sign_bits(m.lo) | sign_bits(m.hi) << (lane_count<M> / 2);
#if defined(LITZ_AVX512)
  else if constexpr (sizeof(M) == 64) {
    typedef int v16si __attribute__((vector_size(64)));
    return uint16_t(__builtin_ia32_cvtd2mask512((v16si)m));
  }
#endif
#if defined(__AVX__)
  else if constexpr (sizeof(M) == 32) {
    typedef float v8sf __attribute__((vector_size(32)));
    return __builtin_ia32_movmskps256((v8sf)m);
  }
#endif
#if defined(__SSE__)
  else if constexpr (sizeof(M) == 16) {
    typedef float v4sf __attribute__((vector_size(16)));
    return __builtin_ia32_movmskps((v4sf)m);
  }
#endif
  else {
    uint32_t bits = 0;
    for (int i = 0; i < lane_count<M>; ++i) bits |= uint32_t(m[i] & 1) << i;
    return bits;
  }
}
LITZ_FN uint32_t mask_bits(mask m) { return sign_bits(m); }
LITZ_FN bool any_true(mask m) { return mask_bits(m) != 0; }
LITZ_FN bool all_true(mask m) { return mask_bits(m) == uint32_t(~uint64_t(0) >> (64 - LITZ_LANES)); }

}  // namespace litz

#endif
