// Lane types. No system header is needed: GCC 10 or later, or Clang 12 or later, C++17.
//
//   LITZ_LANES                      lanes of every kernel vector: 16 on AVX-512, 8 on AVX2, else 4; -D overrides
//   LITZ_VECTOR_BYTES               bytes of one machine register
//   vec<T>                          LITZ_LANES lanes of T; where that exceeds a register, `wide` halves
//   mask                            vec<int32_t>, lanes 0 (false) or -1 (true): what a vector of b1 is
//   bf16, f16, b1                   element types of memory only: two 16-bit patterns, and a byte 0 or 1
//   f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz    as well: 8-bit patterns
//   reg<T>                          the register element of memory element T: float for bf16, f16 and f8*, int32_t for b1
//   elem<V>, lane_count<V>          element type and number of lanes of a vector type; of a scalar: itself and 1
//   lane_mask<V>                    what V < V gives: signed integer lanes as wide as V's
//   low(v), high(v), join<V>(l, h)  halves of a vector, and back
//   permute(a, b, indices<...>())   lanes of two registers, those of b numbered on from those of a
//   reverse_lanes(v)                the lanes in reverse order
//   lane(v, i), set_lane(v, i, x)   one lane; i may vary at run time
//   bits_as<To>(from)               the same bits as another type of the same size
//
// Vectors have the operators + - * / % & | ^ << >> ~ and unary -, lane by lane. Comparisons and `select` are in
// lanes.h, which hides the difference between the width of a comparison's lanes and that of a mask.
#ifndef LITZ_TYPES_H
#define LITZ_TYPES_H

typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define LITZ_AVX512 1
#define LITZ_VECTOR_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define LITZ_AVX2 1
#define LITZ_VECTOR_BYTES 32
#else
#define LITZ_VECTOR_BYTES 16
#endif

#ifndef LITZ_LANES
#define LITZ_LANES (LITZ_VECTOR_BYTES / 4)
#endif

#define LITZ_FN static inline __attribute__((always_inline))
#define LITZ_METHOD inline __attribute__((always_inline))
#define LITZ_INLINE __attribute__((always_inline))

// A unit that calls expensive functions many times has one copy of each, not inlined and private to the unit.
#ifdef LITZ_OUTLINE_MATH
#define LITZ_MATH_FN static __attribute__((noinline, unused))
#else
#define LITZ_MATH_FN LITZ_FN
#endif

namespace litz {

enum bf16 : uint16_t {};
enum f16 : uint16_t {};
enum f8e4m3fn : uint8_t {};
enum f8e5m2 : uint8_t {};
enum f8e4m3fnuz : uint8_t {};
enum f8e5m2fnuz : uint8_t {};
enum b1 : uint8_t {};

template <class H>
struct wide {
  H lo, hi;
};

template <class T, int N, bool Fits = (sizeof(T) * N <= LITZ_VECTOR_BYTES)>
struct vector_of {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T, int N>
struct vector_of<T, N, false> {
  typedef wide<typename vector_of<T, N / 2>::type> type;
};

template <class T>
struct reg_of {
  typedef T type;
};
#define LITZ_NARROW(T)    \
  template <>             \
  struct reg_of<T> {      \
    typedef float type;   \
  };
LITZ_NARROW(bf16)
LITZ_NARROW(f16)
LITZ_NARROW(f8e4m3fn)
LITZ_NARROW(f8e5m2)
LITZ_NARROW(f8e4m3fnuz)
LITZ_NARROW(f8e5m2fnuz)
#undef LITZ_NARROW
template <>
struct reg_of<b1> {
  typedef int32_t type;
};

template <class T>
using reg = typename reg_of<T>::type;
template <class T>
using vec = typename vector_of<T, LITZ_LANES>::type;
using mask = vec<int32_t>;

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;
template <class V>
constexpr bool is_scalar = false;
template <class V>
constexpr bool is_wide = false;
template <class H>
constexpr bool is_wide<wide<H>> = true;

template <class T>
struct without_reference {
  typedef T type;
};
template <class T>
struct without_reference<T&> {
  typedef T type;
};
template <class V>
V& reference_to();

template <class V>
struct elem_of {
  typedef typename without_reference<decltype(reference_to<V>()[0])>::type type;
};
template <class H>
struct elem_of<wide<H>> : elem_of<H> {};

#define LITZ_SCALAR(T)                    \
  template <>                             \
  struct elem_of<T> {                     \
    typedef T type;                       \
  };                                      \
  template <>                             \
  constexpr bool is_scalar<T> = true;
LITZ_SCALAR(bool)
LITZ_SCALAR(float)
LITZ_SCALAR(double)
LITZ_SCALAR(int8_t)
LITZ_SCALAR(int16_t)
LITZ_SCALAR(int32_t)
LITZ_SCALAR(int64_t)
LITZ_SCALAR(uint8_t)
LITZ_SCALAR(uint16_t)
LITZ_SCALAR(uint32_t)
LITZ_SCALAR(uint64_t)
#undef LITZ_SCALAR

template <class V>
using elem = typename elem_of<V>::type;
template <class V>
constexpr int lane_count = sizeof(V) / sizeof(elem<V>);
template <class V>
using half = typename vector_of<elem<V>, lane_count<V> / 2>::type;

#define LITZ_WIDE_BINARY(op)                                  \
  template <class H>                                          \
  LITZ_FN wide<H> operator op(wide<H> a, wide<H> b) {         \
    return {a.lo op b.lo, a.hi op b.hi};                      \
  }                                                           \
  template <class H>                                          \
  LITZ_FN wide<H>& operator op##=(wide<H>& a, wide<H> b) {    \
    return a = a op b;                                        \
  }
LITZ_WIDE_BINARY(+)
LITZ_WIDE_BINARY(-)
LITZ_WIDE_BINARY(*)
LITZ_WIDE_BINARY(/)
LITZ_WIDE_BINARY(%)
LITZ_WIDE_BINARY(&)
LITZ_WIDE_BINARY(|)
LITZ_WIDE_BINARY(^)
LITZ_WIDE_BINARY(<<)
LITZ_WIDE_BINARY(>>)
#undef LITZ_WIDE_BINARY

#define LITZ_WIDE_COMPARE(op)                                                  \
  template <class H>                                                           \
  LITZ_FN auto operator op(wide<H> a, wide<H> b)->wide<decltype(a.lo op b.lo)> { \
    return {a.lo op b.lo, a.hi op b.hi};                                       \
  }
LITZ_WIDE_COMPARE(<)
LITZ_WIDE_COMPARE(<=)
LITZ_WIDE_COMPARE(>)
LITZ_WIDE_COMPARE(>=)
LITZ_WIDE_COMPARE(==)
LITZ_WIDE_COMPARE(!=)
#undef LITZ_WIDE_COMPARE

template <class H>
LITZ_FN wide<H> operator-(wide<H> a) {
  return {-a.lo, -a.hi};
}
template <class H>
LITZ_FN wide<H> operator~(wide<H> a) {
  return {~a.lo, ~a.hi};
}

template <class V>
using lane_mask = decltype(V() < V());

template <class To, class From>
LITZ_FN To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits_as keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

// Vectors that are parts of one another: through shuffles where the compiler has them, so that both stay in registers.
template <int... I>
struct indices {};
template <class T, T... I>
struct sequence {
  typedef indices<int(I)...> type;
};
#if defined(__clang__)
template <int N>
using indices_to = typename __make_integer_seq<sequence, int, N>::type;
#else
template <int N>
using indices_to = indices<__integer_pack(N)...>;
#endif

#if defined(__clang__) || __GNUC__ >= 12
template <class V, int... I>
LITZ_FN half<V> pick_low(V v, indices<I...>) {
  return __builtin_shufflevector(v, v, I...);
}
template <class V, int... I>
LITZ_FN half<V> pick_high(V v, indices<I...>) {
  return __builtin_shufflevector(v, v, (I + int(sizeof...(I)))...);
}
template <class V, int... I>
LITZ_FN V concatenate(half<V> l, half<V> h, indices<I...>) {
  return __builtin_shufflevector(l, h, I...);
}
template <class V, int... I>
LITZ_FN V permute(V a, V b, indices<I...>) {
  return __builtin_shufflevector(a, b, I...);
}
#else
template <class V, class I>
LITZ_FN half<V> pick_low(V v, I) {
  half<V> r;
  __builtin_memcpy(&r, &v, sizeof r);
  return r;
}
template <class V, class I>
LITZ_FN half<V> pick_high(V v, I) {
  half<V> r;
  __builtin_memcpy(&r, (char*)&v + sizeof r, sizeof r);
  return r;
}
template <class V, class I>
LITZ_FN V concatenate(half<V> l, half<V> h, I) {
  half<V> both[2] = {l, h};
  V r;
  __builtin_memcpy(&r, both, sizeof r);
  return r;
}
template <class V, int... I>
LITZ_FN V permute(V a, V b, indices<I...>) {
  return __builtin_shuffle(a, b, lane_mask<V>{I...});
}
#endif
template <class V, int... I>
LITZ_FN V reverse_register(V v, indices<I...>) {
  return permute(v, v, indices<(int(sizeof...(I)) - 1 - I)...>());
}

template <class V>
LITZ_FN half<V> low(V v) {
  if constexpr (is_wide<V>) return v.lo;
  else return pick_low(v, indices_to<lane_count<V> / 2>());
}
template <class V>
LITZ_FN half<V> high(V v) {
  if constexpr (is_wide<V>) return v.hi;
  else return pick_high(v, indices_to<lane_count<V> / 2>());
}
template <class V>
LITZ_FN V join(half<V> l, half<V> h) {
  if constexpr (is_wide<V>) return {l, h};
  else return concatenate<V>(l, h, indices_to<lane_count<V>>());
}

template <class V>
LITZ_FN V reverse_lanes(V v) {
  if constexpr (is_wide<V>) return {reverse_lanes(v.hi), reverse_lanes(v.lo)};
  else return reverse_register(v, indices_to<lane_count<V>>());
}

template <class V>
LITZ_FN elem<V> lane(V v, int i) {
  if constexpr (is_wide<V>) {
    constexpr int n = lane_count<V> / 2;
    return i < n ? lane(v.lo, i) : lane(v.hi, i - n);
  } else {
    return v[i];
  }
}
template <class V>
LITZ_FN void set_lane(V& v, int i, elem<V> x) {
  if constexpr (is_wide<V>) {
    constexpr int n = lane_count<V> / 2;
    if (i < n) set_lane(v.lo, i, x);
    else set_lane(v.hi, i - n, x);
  } else {
    v[i] = x;
  }
}

}  // namespace litz

#endif
