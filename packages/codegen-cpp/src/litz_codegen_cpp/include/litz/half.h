// bf16 and f16 as they lie in memory, to and from float. Rounding is to nearest even, NaN stays NaN (quiet), and
// denormals are kept in both directions.
//
//   vec<float>    widen_bf16(vec<uint16_t>)    float    widen_bf16(uint16_t)
//   vec<uint16_t> narrow_bf16(vec<float>)      uint16_t narrow_bf16(float)
//   vec<float>    widen_f16(vec<uint16_t>)     float    widen_f16(uint16_t)
//   vec<uint16_t> narrow_f16(vec<float>)       uint16_t narrow_f16(float)
//   vec<float>    round_bf16(vec<float>)       float    round_bf16(float)    the value after a store and a load
//   vec<float>    round_f16(vec<float>)        float    round_f16(float)
//   wide<vec<float>> round_bf16_pair(vec<float>, vec<float>)      two registers at once
#ifndef LITZ_HALF_H
#define LITZ_HALF_H
#include "float_ops.h"

// Clang converts vectors of its own half type with the CPU's instructions; GCC is given those by name.
#if defined(__clang__) && __clang_major__ >= 15 && (defined(__F16C__) || defined(__aarch64__))
#define LITZ_FLOAT16 1
#endif

namespace litz {

template <class V>
using unsigned_lanes = typename vector_of<uint32_t, lane_count<V>>::type;
template <class V>
using half_lanes = typename vector_of<uint16_t, lane_count<V>>::type;

// Sixteen bits to thirty-two; GCC 12 splits its own conversion into steps of four lanes.
template <class V>
LITZ_FN unsigned_lanes<V> extend_lanes(half_lanes<V> h) {
#if defined(LITZ_AVX512) && !defined(__clang__)
  if constexpr (sizeof(V) == 64) {
    typedef short v16hi __attribute__((vector_size(32)));
    typedef int v16si __attribute__((vector_size(64)));
    return (unsigned_lanes<V>)__builtin_ia32_pmovzxwd512_mask((v16hi)h, v16si{}, -1);
  }
#endif
  return convert_lanes<unsigned_lanes<V>>(h);
}

template <class V>
LITZ_FN V widen_bf16_lanes(half_lanes<V> h) {
  if constexpr (is_wide<V>)
    return {widen_bf16_lanes<half<V>>(low(h)), widen_bf16_lanes<half<V>>(high(h))};
  else
    return bits_as<V>(extend_lanes<V>(h) << splat<unsigned_lanes<V>>(16));
}

// The upper halves of the result's lanes are the rounded numbers; the lower ones are of no use.
template <class V>
LITZ_FN unsigned_lanes<V> rounded_bf16_bits(V x) {
  typedef unsigned_lanes<V> W;
  typedef lane_mask<V> I;
  W u = (W)x;
  W rounded = u + splat<W>(0x7fff) + (u >> splat<W>(16) & splat<W>(1));
#if defined(LITZ_BY_NAME)
  if constexpr (fills_register<V>)  // classes of x and what becomes of them: NaN made quiet (2), others left as they are
    return (W)__builtin_ia32_fixupimmps512_mask((V)rounded, x, I{} + 0x22, 0, (short)-1, 4);
#endif
  W quiet = u | splat<W>(0x400000);
  return (W)blend<I>(x != x, (I)quiet, (I)rounded);
}

template <class V>
LITZ_FN half_lanes<V> narrow_bf16_lanes(V x) {
  if constexpr (is_wide<V>) {
    return join<half_lanes<V>>(narrow_bf16_lanes(x.lo), narrow_bf16_lanes(x.hi));
  }
  else {
#if defined(__AVX512BF16__) && defined(LITZ_BY_NAME)
    // The instruction takes denormals for zeros: it serves where there are none.
    constexpr int denormal = 0x20;
    if constexpr (fills_register<V>)
      if (__builtin_expect(!__builtin_ia32_fpclassps512_mask(x, denormal, (short)-1), true))
        return bits_as<half_lanes<V>>(__builtin_ia32_cvtneps2bf16_v16sf(x));
#endif
    return convert_lanes<half_lanes<V>>(rounded_bf16_bits(x) >> splat<unsigned_lanes<V>>(16));
  }
}

template <class V>
LITZ_FN V round_bf16_lanes(V x) {
  if constexpr (is_wide<V>)
    return {round_bf16_lanes(x.lo), round_bf16_lanes(x.hi)};
  else
    return bits_as<V>(rounded_bf16_bits(x) & splat<unsigned_lanes<V>>(0xffff0000));
}

template <class V>
LITZ_FN V widen_f16_lanes(half_lanes<V> h) {
  if constexpr (is_wide<V>) {
    return {widen_f16_lanes<half<V>>(low(h)), widen_f16_lanes<half<V>>(high(h))};
  }
#if defined(LITZ_FLOAT16)
  else {
    typedef _Float16 native __attribute__((vector_size(sizeof(h))));
    return __builtin_convertvector((native)h, V);
  }
#else
#if defined(LITZ_AVX512)
  else if constexpr (sizeof(V) == 64) {
    typedef short v16hi __attribute__((vector_size(32)));
    typedef float v16sf __attribute__((vector_size(64)));
    return (V)__builtin_ia32_vcvtph2ps512_mask((v16hi)h, v16sf{}, -1, 4);
  }
#endif
#if defined(__F16C__)
  else if constexpr (sizeof(V) == 32) {
    typedef short v8hi __attribute__((vector_size(16)));
    return (V)__builtin_ia32_vcvtph2ps256((v8hi)h);
  }
#endif
  else {
    // A product by 2^112 is exact and turns half's exponents, denormals included, into float's.
    typedef unsigned_lanes<V> W;
    W w = convert_lanes<W>(h);
    W magnitude = (w & splat<W>(0x7fff)) << splat<W>(13);
    V scaled = (V)magnitude * splat<V>(0x1p112f);
    V body = blend(scaled >= splat<V>(0x1p16f), (V)(magnitude | splat<W>(0x7f800000)), scaled);
    return (V)((W)body | (w & splat<W>(0x8000)) << splat<W>(16));
  }
#endif
}

template <class V>
LITZ_FN half_lanes<V> narrow_f16_lanes(V x) {
  if constexpr (is_wide<V>) {
    return join<half_lanes<V>>(narrow_f16_lanes(x.lo), narrow_f16_lanes(x.hi));
  }
#if defined(LITZ_FLOAT16)
  else {
    typedef _Float16 native __attribute__((vector_size(sizeof(half_lanes<V>))));
    return (half_lanes<V>)__builtin_convertvector(x, native);
  }
#else
#if defined(LITZ_AVX512)
  else if constexpr (sizeof(V) == 64) {
    typedef float v16sf __attribute__((vector_size(64)));
    typedef short v16hi __attribute__((vector_size(32)));
    return (half_lanes<V>)__builtin_ia32_vcvtps2ph512_mask((v16sf)x, 0, v16hi{}, -1);
  }
#endif
#if defined(__F16C__)
  else if constexpr (sizeof(V) == 32) {
    typedef float v8sf __attribute__((vector_size(32)));
    return (half_lanes<V>)__builtin_ia32_vcvtps2ph256((v8sf)x, 0);
  }
#endif
  else {
    typedef unsigned_lanes<V> W;
    typedef lane_mask<V> I;
    W u = (W)x;
    W magnitude = u & splat<W>(0x7fffffff);
    V a = (V)magnitude;
    // A float in [0.5, 1) has the spacing of half's denormals, so that the addition rounds as half does.
    W denormal = (W)(a + splat<V>(0.5f)) - splat<W>(0x3f000000);
    W even = magnitude >> splat<W>(13) & splat<W>(1);
    W normal = (magnitude - splat<W>(112u << 23) + splat<W>(0xfff) + even) >> splat<W>(13);
    I r = blend<I>(a < splat<V>(0x1p-14f), (I)denormal, (I)normal);
    r = blend<I>(a >= splat<V>(65520.0f), splat<I>(0x7c00), r);
    r = blend<I>(x != x, (I)((magnitude >> splat<W>(13) & splat<W>(0x3ff)) | splat<W>(0x7e00)), r);
    return convert_lanes<half_lanes<V>>((W)r | (u >> splat<W>(16) & splat<W>(0x8000)));
  }
#endif
}

template <class V>
LITZ_FN V round_f16_lanes(V x) {
  return widen_f16_lanes<V>(narrow_f16_lanes(x));
}

#define LITZ_HALF(name)                                                                                \
  LITZ_FN vec<float> widen_##name(vec<uint16_t> h) { return widen_##name##_lanes<vec<float>>(h); }     \
  LITZ_FN vec<uint16_t> narrow_##name(vec<float> x) { return narrow_##name##_lanes<vec<float>>(x); }   \
  LITZ_FN vec<float> round_##name(vec<float> x) { return round_##name##_lanes(x); }                    \
  LITZ_FN float widen_##name(uint16_t h) {                                                             \
    typedef vector_of<float, 4>::type quad;                                                            \
    return widen_##name##_lanes<quad>(splat<half_lanes<quad>>(h))[0];                                  \
  }                                                                                                    \
  LITZ_FN uint16_t narrow_##name(float x) {                                                            \
    return narrow_##name##_lanes(splat<vector_of<float, 4>::type>(x))[0];                              \
  }                                                                                                    \
  LITZ_FN float round_##name(float x) { return widen_##name(narrow_##name(x)); }
LITZ_HALF(bf16)
LITZ_HALF(f16)
#undef LITZ_HALF

#if defined(__AVX512BF16__) && defined(LITZ_BY_NAME) && LITZ_LANES == 16
#define LITZ_BF16_PAIRS 1
// Two registers narrowed into one. False where a lane is denormal, which the instruction takes for zero.
typedef short packed_halves __attribute__((vector_size(64)));
LITZ_FN bool narrow_bf16_pair(vec<float> lo, vec<float> hi, packed_halves& narrow) {
  constexpr int denormal = 0x20;
#if __GNUC__ >= 13
  narrow = (packed_halves)__builtin_ia32_cvtne2ps2bf16_v32bf(hi, lo);
#else
  narrow = (packed_halves)__builtin_ia32_cvtne2ps2bf16_v32hi(hi, lo);
#endif
  if (__builtin_expect(!__builtin_ia32_ptestnmw512(narrow, packed_halves{} + 0x7fff, -1), true)) return true;
  return !(__builtin_ia32_fpclassps512_mask(lo, denormal, (short)-1) |
           __builtin_ia32_fpclassps512_mask(hi, denormal, (short)-1));
}
// The numbers of one half, each in the upper half of its lane.
LITZ_FN vec<float> widen_bf16_half(packed_halves narrow, short start) {
  const packed_halves places = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  constexpr unsigned upper = 0xaaaaaaaa;
  return bits_as<vec<float>>(__builtin_ia32_permvarhi512_mask(narrow, places + start, packed_halves{}, upper));
}
#endif

LITZ_FN wide<vec<float>> round_bf16_pair(vec<float> lo, vec<float> hi) {
#if defined(LITZ_BF16_PAIRS)
  packed_halves narrow;
  if (__builtin_expect(narrow_bf16_pair(lo, hi, narrow), true))
    return {widen_bf16_half(narrow, 0), widen_bf16_half(narrow, LITZ_LANES)};
#endif
  return {round_bf16(lo), round_bf16(hi)};
}

}  // namespace litz

#endif
