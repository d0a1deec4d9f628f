// Floating-point operations that are one or a few instructions. V is vec<float>, vec<double>, float or double.
//
//   V fma(V a, V b, V c)        a * b + c, rounded once
//   V sqrt(V), rsqrt(V)         correctly rounded; 1 / sqrt(x), under 1.5 ulp
//   V floor(V), ceil(V), trunc(V), round(V)    to an integral value, ties to even; the sign of zero is kept
//   V abs(V), copysign(V magnitude, V sign)
//   V reciprocal(V)             1 / x
//
// For the maths headers, on one machine register of lanes:
//   V mul_add(V a, V b, V c)    fused where the CPU has it in hardware, else two roundings
//   V polynomial(V x, c0, c1 ...)   c0 + c1 x + ... by Horner's rule
//   V scale_by_power(V x, V n)  x * 2^n for integral n, right in the denormal range and at overflow
//   V lesser(V a, V b), greater(V a, V b)    a < b ? a : b and a > b ? a : b: b where either is NaN, or both are equal
//   V keep_nan(V x, V r)        x where x is NaN, else r
//   LITZ_MATH_UNARY(name), LITZ_MATH_BINARY(name)   the four public forms of name_lanes
//   LITZ_LIBM_UNARY(name), LITZ_LIBM_BINARY(name)   name_libm(V), the C library's function called for each lane
#ifndef LITZ_FLOAT_OPS_H
#define LITZ_FLOAT_OPS_H
#include "lanes.h"

#if defined(__FMA__) || defined(LITZ_AVX512) || defined(__aarch64__)
#define LITZ_HAS_FMA 1
#else
#define LITZ_HAS_FMA 0
#endif

// GCC lacks these generic builtins, and Clang at times drops those that name an instruction.
#if defined(__clang__)
#define LITZ_CLANG_HAS(builtin) __has_builtin(builtin)
#else
#define LITZ_CLANG_HAS(builtin) 0
#endif

namespace litz {

typedef vector_of<float, 4>::type f32x4;
typedef vector_of<double, 2>::type f64x2;

template <class V>
constexpr bool is_f32 = same<elem<V>, float>;

#define LITZ_PUBLIC_UNARY(fn, name)                                                     \
  template <class V>                                                                    \
  LITZ_FN V name##_halves(V x) {                                                        \
    if constexpr (is_wide<V>) return {name##_halves(x.lo), name##_halves(x.hi)};        \
    else return name##_lanes(x);                                                        \
  }                                                                                     \
  fn vec<float> name(vec<float> x) { return name##_halves(x); }                         \
  fn vec<double> name(vec<double> x) { return name##_halves(x); }                       \
  fn float name(float x) { return name##_lanes(splat<f32x4>(x))[0]; }                   \
  fn double name(double x) { return name##_lanes(splat<f64x2>(x))[0]; }
#define LITZ_PUBLIC_BINARY(fn, name)                                                    \
  template <class V>                                                                    \
  LITZ_FN V name##_halves(V x, V y) {                                                   \
    if constexpr (is_wide<V>) return {name##_halves(x.lo, y.lo), name##_halves(x.hi, y.hi)}; \
    else return name##_lanes(x, y);                                                     \
  }                                                                                     \
  fn vec<float> name(vec<float> x, vec<float> y) { return name##_halves(x, y); }        \
  fn vec<double> name(vec<double> x, vec<double> y) { return name##_halves(x, y); }     \
  fn float name(float x, float y) { return name##_lanes(splat<f32x4>(x), splat<f32x4>(y))[0]; } \
  fn double name(double x, double y) { return name##_lanes(splat<f64x2>(x), splat<f64x2>(y))[0]; }
#define LITZ_MATH_UNARY(name) LITZ_PUBLIC_UNARY(LITZ_MATH_FN, name)
#define LITZ_MATH_BINARY(name) LITZ_PUBLIC_BINARY(LITZ_MATH_FN, name)

#define LITZ_LIBM_UNARY(name)                                             \
  template <class V>                                                      \
  LITZ_FN V name##_libm(V x) {                                            \
    for (int i = 0; i < lane_count<V>; ++i) {                             \
      if constexpr (is_f32<V>) x[i] = __builtin_##name##f(x[i]);          \
      else x[i] = __builtin_##name(x[i]);                                 \
    }                                                                     \
    return x;                                                             \
  }
#define LITZ_LIBM_BINARY(name)                                            \
  template <class V>                                                      \
  LITZ_FN V name##_libm(V x, V y) {                                       \
    for (int i = 0; i < lane_count<V>; ++i) {                             \
      if constexpr (is_f32<V>) x[i] = __builtin_##name##f(x[i], y[i]);    \
      else x[i] = __builtin_##name(x[i], y[i]);                           \
    }                                                                     \
    return x;                                                             \
  }

template <class V>
LITZ_FN V mul_add(V a, V b, V c) {
#if defined(__clang__) && LITZ_HAS_FMA
#pragma clang fp contract(fast)
#endif
#if LITZ_CLANG_HAS(__builtin_elementwise_fma) && LITZ_HAS_FMA
  return __builtin_elementwise_fma(a, b, c);
#else
#if defined(LITZ_AVX512)
  if constexpr (sizeof(V) == 64 && is_f32<V>) return __builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_vfmaddpd512_mask(a, b, c, (char)-1, 4);
  else
#endif
#if defined(__FMA__)
  if constexpr (sizeof(V) == 32 && is_f32<V>) return __builtin_ia32_vfmaddps256(a, b, c);
  else if constexpr (sizeof(V) == 32) return __builtin_ia32_vfmaddpd256(a, b, c);
  else if constexpr (sizeof(V) == 16 && is_f32<V>) return __builtin_ia32_vfmaddps(a, b, c);
  else if constexpr (sizeof(V) == 16) return __builtin_ia32_vfmaddpd(a, b, c);
  else
#elif defined(__aarch64__) && !defined(__clang__)
  if constexpr (sizeof(V) == 16 && is_f32<V>) return __builtin_aarch64_fmav4sf(a, b, c);
  else if constexpr (sizeof(V) == 16) return __builtin_aarch64_fmav2df(a, b, c);
  else
#endif
  return a * b + c;
#endif
}

template <class V>
LITZ_FN V fma_lanes(V a, V b, V c) {
#if LITZ_HAS_FMA
  if constexpr (sizeof(V) >= 16) return mul_add(a, b, c);
#endif
  for (int i = 0; i < lane_count<V>; ++i) {
    if constexpr (is_f32<V>) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    else a[i] = __builtin_fma(a[i], b[i], c[i]);
  }
  return a;
}
template <class V>
LITZ_FN V fma_halves(V a, V b, V c) {
  if constexpr (is_wide<V>) return {fma_halves(a.lo, b.lo, c.lo), fma_halves(a.hi, b.hi, c.hi)};
  else return fma_lanes(a, b, c);
}
LITZ_FN vec<float> fma(vec<float> a, vec<float> b, vec<float> c) { return fma_halves(a, b, c); }
LITZ_FN vec<double> fma(vec<double> a, vec<double> b, vec<double> c) { return fma_halves(a, b, c); }
LITZ_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LITZ_FN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class V>
LITZ_FN V polynomial(V, elem<V> c) {
  return splat<V>(c);
}
template <class V, class... C>
LITZ_FN V polynomial(V x, elem<V> c, C... rest) {
  return mul_add(polynomial(x, elem<V>(rest)...), x, splat<V>(c));
}

template <class V>
LITZ_FN lane_mask<V> sign_bit() {
  typedef lane_mask<V> I;
  return splat<I>(elem<I>(1)) << splat<I>(sizeof(elem<I>) * 8 - 1);
}
template <class V>
LITZ_FN V abs_lanes(V x) {
  if constexpr (is_wide<V>) return {abs_lanes(x.lo), abs_lanes(x.hi)};
  else return (V)((lane_mask<V>)x & ~sign_bit<V>());
}
template <class V>
LITZ_FN V copysign_lanes(V x, V y) {
  lane_mask<V> s = sign_bit<V>();
  return (V)(((lane_mask<V>)x & ~s) | ((lane_mask<V>)y & s));
}

// Whether a comparison holds in no lane, in every lane; 64-bit lanes are seen as pairs.
template <class I>
LITZ_FN bool none_of(I c) {
  if constexpr (is_wide<I>) return none_of(c.lo | c.hi);
  else return sign_bits((typename vector_of<int32_t, sizeof(I) / 4>::type)c) == 0;
}
template <class I>
LITZ_FN bool all_of(I c) {
  return none_of(~c);
}

// GCC takes these to comparisons and blends where registers have 512 bits.
#if defined(LITZ_AVX512) && !defined(__clang__)
#define LITZ_BY_NAME 1
template <class V>
constexpr bool fills_register = sizeof(V) == 64 && !is_wide<V> && is_float<elem<V>>;
// The lanes of a table of 16 floats that the last four bits of each lane of `place` number.
template <class V>
LITZ_FN V table_lanes(V table, V place) {
  typedef int v16si __attribute__((vector_size(64)));
  return __builtin_ia32_permvarsf512_mask(table, (v16si)place, table, (short)-1);
}
#endif

template <class V>
LITZ_FN V lesser(V a, V b) {
  if constexpr (is_wide<V>) return {lesser(a.lo, b.lo), lesser(a.hi, b.hi)};
#if defined(LITZ_BY_NAME)
  else if constexpr (fills_register<V> && is_f32<V>)
    return __builtin_ia32_minps512_mask(a, b, a, (short)-1, 4);
  else if constexpr (fills_register<V>) return __builtin_ia32_minpd512_mask(a, b, a, (char)-1, 4);
#endif
  else return blend<V>(a < b, a, b);
}
template <class V>
LITZ_FN V greater(V a, V b) {
  if constexpr (is_wide<V>) return {greater(a.lo, b.lo), greater(a.hi, b.hi)};
#if defined(LITZ_BY_NAME)
  else if constexpr (fills_register<V> && is_f32<V>)
    return __builtin_ia32_maxps512_mask(a, b, a, (short)-1, 4);
  else if constexpr (fills_register<V>) return __builtin_ia32_maxpd512_mask(a, b, a, (char)-1, 4);
#endif
  else return blend<V>(a > b, a, b);
}
template <class V>
LITZ_FN V keep_nan(V x, V r) {
  if constexpr (is_wide<V>) return {keep_nan(x.lo, r.lo), keep_nan(x.hi, r.hi)};
#if defined(LITZ_BY_NAME)
  // The table says what becomes of each class of x: its last two digits are those of NaN, 1 is x and 0 leaves r.
  else if constexpr (fills_register<V> && is_f32<V>) {
    typedef int v16si __attribute__((vector_size(64)));
    return __builtin_ia32_fixupimmps512_mask(r, x, v16si{} + 0x11, 0, (short)-1, 4);
  } else if constexpr (fills_register<V>) {
    typedef long long v8di __attribute__((vector_size(64)));
    return __builtin_ia32_fixupimmpd512_mask(r, x, v8di{} + 0x11, 0, (char)-1, 4);
  }
#endif
  else return blend<V>(x != x, x, r);
}

// A number that many registers are divided by: x / divisor<T>(d). Where registers have 512 bits and d is between 2^-100
// and 2^100, a product with its reciprocal is corrected once, which rounds as division does (P. Markstein, Computation
// of elementary functions on the IBM RISC System/6000, 1990) unless x is below 2^-100 or x / d beyond 2^127: there the
// last place may differ.
template <class T>
struct divisor {
  vec<T> number, reciprocal;
  bool usual;
  LITZ_METHOD explicit divisor(T d)
      : number(splat<vec<T>>(d)),
        reciprocal(splat<vec<T>>(1 / d)),
        usual((d < 0 ? -d : d) > T(0x1p-100) && (d < 0 ? -d : d) < T(0x1p100)) {}
};
template <class T>
LITZ_FN vec<T> operator/(vec<T> x, divisor<T> d) {
#if defined(LITZ_BY_NAME)
  if constexpr (fills_register<vec<T>> && is_f32<vec<T>>)
    if (__builtin_expect(d.usual, true)) {
      typedef int v16si __attribute__((vector_size(64)));
      vec<T> q = x * d.reciprocal, rest = fma_lanes(-q, d.number, x);
      // Zeros keep their sign, and infinities have no rest: digits two, four and five of the table.
      return __builtin_ia32_fixupimmps512_mask(fma_lanes(rest, d.reciprocal, q), q, v16si{} + 0x110100, 0, (short)-1, 4);
    }
#endif
  return x / d.number;
}

template <class V>
LITZ_FN V sqrt_lanes(V x) {
#if LITZ_CLANG_HAS(__builtin_elementwise_sqrt)
  return __builtin_elementwise_sqrt(x);
#else
#if !defined(__clang__)
#if defined(LITZ_AVX512)
  if constexpr (sizeof(V) == 64 && is_f32<V>) return __builtin_ia32_sqrtps512_mask(x, x, (short)-1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_sqrtpd512_mask(x, x, (char)-1, 4);
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32 && is_f32<V>) return __builtin_ia32_sqrtps256(x);
  else if constexpr (sizeof(V) == 32) return __builtin_ia32_sqrtpd256(x);
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(V) == 16 && is_f32<V>) return __builtin_ia32_sqrtps(x);
  else if constexpr (sizeof(V) == 16) return __builtin_ia32_sqrtpd(x);
#elif defined(__aarch64__)
  if constexpr (sizeof(V) == 16 && is_f32<V>) return __builtin_aarch64_sqrtv4sf(x);
  else if constexpr (sizeof(V) == 16) return __builtin_aarch64_sqrtv2df(x);
#endif
#endif
  for (int i = 0; i < lane_count<V>; ++i) {
    if constexpr (is_f32<V>) x[i] = __builtin_sqrtf(x[i]);
    else x[i] = __builtin_sqrt(x[i]);
  }
  return x;
#endif
}
template <class V>
LITZ_FN V reciprocal_lanes(V x) {
  return splat<V>(1) / x;
}
template <class V>
LITZ_FN V rsqrt_lanes(V x) {
  return splat<V>(1) / sqrt_lanes(x);
}

// Mode is that of x86's rounding instructions: 0 nearest even, 1 down, 2 up, 3 towards zero.
template <int Mode, class V>
LITZ_FN V round_mode(V x) {
  if constexpr (sizeof(V) < 16) {
    typedef typename vector_of<elem<V>, 16 / sizeof(elem<V>)>::type full;
    for (int i = 0; i < lane_count<V>; ++i) x[i] = round_mode<Mode>(splat<full>(x[i]))[0];
    return x;
  }
#if defined(LITZ_AVX512)
  else if constexpr (sizeof(V) == 64 && is_f32<V>)
    return __builtin_ia32_rndscaleps_mask(x, Mode | 8, x, (short)-1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_rndscalepd_mask(x, Mode | 8, x, (char)-1, 4);
#endif
#if defined(__AVX__)
  else if constexpr (sizeof(V) == 32 && is_f32<V>) return __builtin_ia32_roundps256(x, Mode | 8);
  else if constexpr (sizeof(V) == 32) return __builtin_ia32_roundpd256(x, Mode | 8);
#endif
#if defined(__SSE4_1__)
  else if constexpr (sizeof(V) == 16 && is_f32<V>) return __builtin_ia32_roundps(x, Mode | 8);
  else if constexpr (sizeof(V) == 16) return __builtin_ia32_roundpd(x, Mode | 8);
#endif
  else {
    // Adding and taking away the first power of two whose spacing is 1 leaves the nearest integer.
    typedef lane_mask<V> I;
    V big = copysign_lanes(splat<V>(is_f32<V> ? 0x1p23 : 0x1p52), x);
    V r = (x + big) - big;
    V one = splat<V>(1);
    V a = abs_lanes(x);
    if constexpr (Mode == 1) r = blend<V>(r > x, r - one, r);
    if constexpr (Mode == 2) r = blend<V>(r < x, r + one, r);
    if constexpr (Mode == 3) r = blend<V>(abs_lanes(r) > a, r - copysign_lanes(one, x), r);
    I small = a < abs_lanes(big);
    return blend<V>(small, copysign_lanes(r, x), x);
  }
}
template <class V>
LITZ_FN V round_lanes(V x) {
  return round_mode<0>(x);
}
template <class V>
LITZ_FN V floor_lanes(V x) {
  return round_mode<1>(x);
}
template <class V>
LITZ_FN V ceil_lanes(V x) {
  return round_mode<2>(x);
}
template <class V>
LITZ_FN V trunc_lanes(V x) {
  return round_mode<3>(x);
}

LITZ_PUBLIC_UNARY(LITZ_FN, abs)
LITZ_PUBLIC_UNARY(LITZ_FN, sqrt)
LITZ_PUBLIC_UNARY(LITZ_FN, rsqrt)
LITZ_PUBLIC_UNARY(LITZ_FN, reciprocal)
LITZ_PUBLIC_UNARY(LITZ_FN, floor)
LITZ_PUBLIC_UNARY(LITZ_FN, ceil)
LITZ_PUBLIC_UNARY(LITZ_FN, trunc)
LITZ_PUBLIC_UNARY(LITZ_FN, round)
LITZ_PUBLIC_BINARY(LITZ_FN, copysign)

// Integral lanes as integers of the same width, and back. 64-bit ones go through the bits of x + 1.5 2^52, since AVX2
// has no instruction for them; so they are to lie within 2^51.
template <class V>
LITZ_FN lane_mask<V> to_integer(V x) {
  typedef lane_mask<V> I;
  if constexpr (is_f32<V>) {
    return __builtin_convertvector(x, I);
  } else {
    V magic = splat<V>(0x1.8p52);
    return (I)(x + magic) - (I)magic;
  }
}
template <class V>
LITZ_FN V from_integer(lane_mask<V> i) {
  typedef lane_mask<V> I;
  if constexpr (is_f32<V>) {
    return __builtin_convertvector(i, V);
  } else {
    V magic = splat<V>(0x1.8p52);
    return (V)(i + (I)magic) - magic;
  }
}

// 2^n for n in the range of normal numbers.
template <class V>
LITZ_FN V power_of_two(lane_mask<V> n) {
  typedef lane_mask<V> I;
  constexpr int digits = is_f32<V> ? 23 : 52, bias = is_f32<V> ? 127 : 1023;
  return (V)((n + splat<I>(bias)) << splat<I>(digits));
}
template <class V>
LITZ_FN V scale_by_power(V x, V n) {
#if defined(LITZ_AVX512)
  if constexpr (sizeof(V) == 64 && is_f32<V>)
    return __builtin_ia32_scalefps512_mask(x, n, x, (short)-1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_scalefpd512_mask(x, n, x, (char)-1, 4);
  else
#endif
  {
    typedef lane_mask<V> I;
    I k = to_integer(n);
    I first = k >> splat<I>(1);
    return x * power_of_two<V>(first) * power_of_two<V>(k - first);
  }
}

}  // namespace litz

#endif
