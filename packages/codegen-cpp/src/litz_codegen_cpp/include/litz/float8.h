// 8-bit floats as they lie in memory, to and from float, bit for bit as PyTorch converts them. N is f8e4m3fn, f8e5m2,
// f8e4m3fnuz or f8e5m2fnuz. Rounding is to nearest even, denormals are kept in both directions. Beyond the largest number
// lie itself (f8e4m3fn, for infinity too), infinity (f8e5m2) or NaN (the others, which have no sign of zero or NaN).
//
//   vec<float>   widen_N(vec<uint8_t>)         float   widen_N(uint8_t)
//   vec<uint8_t> narrow_N(vec<float>)          uint8_t narrow_N(float)
//   vec<float>   round_N(vec<float>)           float   round_N(float)        the value after a store and a load
//   vec<float>   nextafter_N(vec<float>, vec<float>), also of floats         for floats that hold such numbers
#ifndef LITZ_FLOAT8_H
#define LITZ_FLOAT8_H
#include "memory.h"

namespace litz {

// Bits of the mantissa, bias of the exponent, code of the largest number, code of what lies beyond it.
template <int Mantissa, int Bias, int Largest, int Beyond>
struct float8_format {
  static constexpr int mantissa = Mantissa, bias = Bias, largest = Largest, beyond = Beyond;
  static constexpr int shift = 23 - Mantissa;   // from a code's fields to a float's
  static constexpr bool has_signs = Beyond < 0x80;  // of zero and NaN; else the code of negative zero is NaN
};
template <class T>
struct float8_of;
template <>
struct float8_of<f8e4m3fn> : float8_format<3, 7, 0x7e, 0x7e> {};
template <>
struct float8_of<f8e5m2> : float8_format<2, 15, 0x7b, 0x7c> {};
template <>
struct float8_of<f8e4m3fnuz> : float8_format<3, 8, 0x7f, 0x80> {};
template <>
struct float8_of<f8e5m2fnuz> : float8_format<2, 16, 0x7f, 0x80> {};

template <class V>
using byte_lanes = typename vector_of<uint8_t, lane_count<V>>::type;

// Eight bits to thirty-two and back, of numbers below 256: GCC 12 splits its own conversions into many steps.
#if defined(__SSE2__) && !defined(__clang__)
#define LITZ_BYTES_BY_NAME 1
typedef char v16qi __attribute__((vector_size(16)));
typedef short v8hi __attribute__((vector_size(16)));
typedef int v4si __attribute__((vector_size(16)));
typedef long long v2di __attribute__((vector_size(16)));
#endif
template <class W>
LITZ_FN W extend_bytes(byte_lanes<W> b) {
#if defined(LITZ_BYTES_BY_NAME)
#if defined(LITZ_AVX512)
  typedef int v16si __attribute__((vector_size(64)));
  if constexpr (sizeof(W) == 64) return (W)__builtin_ia32_pmovzxbd512_mask((v16qi)b, v16si{}, -1);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(W) == 32) return (W)__builtin_ia32_pmovzxbd256((v16qi)v2di{bits_as<int64_t>(b), 0});
#endif
  if constexpr (sizeof(W) == 16) {
    v8hi words = (v8hi)__builtin_ia32_punpcklbw128((v16qi)v4si{bits_as<int32_t>(b), 0, 0, 0}, v16qi{});
    return (W)__builtin_ia32_punpcklwd128(words, v8hi{});
  }
#endif
  return convert_lanes<W>(b);
}
template <class W>
LITZ_FN byte_lanes<W> shrink_to_bytes(W w) {
#if defined(LITZ_BYTES_BY_NAME)
  if constexpr (sizeof(W) == 32) {
    v8hi words = __builtin_ia32_packssdw128((v4si)low(w), (v4si)high(w));
    return bits_as<byte_lanes<W>>(((v2di)__builtin_ia32_packuswb128(words, words))[0]);
  }
  if constexpr (sizeof(W) == 16) {
    v8hi words = __builtin_ia32_packssdw128((v4si)w, (v4si)w);
    return bits_as<byte_lanes<W>>(((v4si)__builtin_ia32_packuswb128(words, words))[0]);
  }
#endif
  return convert_lanes<byte_lanes<W>>(w);
}

// The code of each lane, in a lane of the float's width.
template <class F, class V>
LITZ_FN unsigned_lanes<V> float8_codes(V x) {
  typedef unsigned_lanes<V> W;
  typedef lane_mask<V> I;
  W u = (W)x;
  I magnitude = (I)(u & splat<W>(0x7fffffff));
  I even = magnitude >> splat<I>(F::shift) & splat<I>(1);
  I half_step = splat<I>((1 << (F::shift - 1)) - 1 - ((127 - F::bias) << 23));
  I normal = (magnitude + half_step + even) >> splat<I>(F::shift);
  // A float with this exponent has the spacing of the format's denormals, so that the addition rounds as they do.
  constexpr int spaced = (151 - F::bias - F::mantissa) << 23;
  I denormal = (I)((V)magnitude + (V)splat<I>(spaced)) - splat<I>(spaced);
  I code = blend<I>(magnitude < splat<I>((128 - F::bias) << 23), denormal, normal);
  code = blend<I>(code < splat<I>(F::beyond), code, splat<I>(F::beyond));
  W sign = u >> splat<W>(24) & splat<W>(0x80);
  if constexpr (F::has_signs) {
    code = blend<I>(x != x, splat<I>(0x7f), code);
    return (W)code | sign;
  } else {
    code = blend<I>(x != x, splat<I>(0x80), code);
    return (W)code | (W)blend<I>(code == I{}, I{}, (I)sign);
  }
}

template <class F, class V>
LITZ_FN V float8_values(unsigned_lanes<V> codes) {
  typedef unsigned_lanes<V> W;
  typedef lane_mask<V> I;
  // The fields, moved into place, are a float that is a power of two too small; infinity and NaN are larger than any.
  I magnitude = (I)(codes & splat<W>(0x7f)), fields = magnitude << splat<I>(F::shift);
  if constexpr (F::has_signs)
    fields = blend<I>(magnitude > splat<I>(F::largest), fields | splat<I>(0x7f800000), fields);
  W bits = (W)((V)fields * (V)splat<I>((254 - F::bias) << 23)) | (codes & splat<W>(0x80)) << splat<W>(24);
  if constexpr (F::has_signs) return (V)bits;
  else return (V)blend<I>((I)codes == splat<I>(0x80), splat<I>(0x7f800001), (I)bits);
}

template <class F, class V>
LITZ_FN V widen_float8(byte_lanes<V> codes) {
  if constexpr (is_wide<V>) return {widen_float8<F, half<V>>(low(codes)), widen_float8<F, half<V>>(high(codes))};
  else return float8_values<F, V>(extend_bytes<unsigned_lanes<V>>(codes));
}
template <class F, class V>
LITZ_FN byte_lanes<V> narrow_float8(V x) {
  if constexpr (is_wide<V>) return join<byte_lanes<V>>(narrow_float8<F>(x.lo), narrow_float8<F>(x.hi));
  else return shrink_to_bytes(float8_codes<F>(x));
}
template <class F, class V>
LITZ_FN V round_float8(V x) {
  if constexpr (is_wide<V>) return {round_float8<F>(x.lo), round_float8<F>(x.hi)};
  else return float8_values<F, V>(float8_codes<F>(x));
}

// One step along the codes, which are ordered as the numbers are once the sign is worked in.
template <class F, class V>
LITZ_FN V nextafter_float8(V x, V y) {
  if constexpr (is_wide<V>) {
    return {nextafter_float8<F>(x.lo, y.lo), nextafter_float8<F>(x.hi, y.hi)};
  } else {
    typedef lane_mask<V> I;
    I code = (I)float8_codes<F>(x), magnitude = code & splat<I>(0x7f);
    I place = blend<I>(code == magnitude, magnitude, -magnitude) + blend<I>(x < y, splat<I>(1), splat<I>(-1));
    V r = float8_values<F, V>((unsigned_lanes<V>)blend<I>(place < I{}, splat<I>(0x80) - place, place));
    if constexpr (F::has_signs) r = blend<V>(r == V{}, copysign_lanes(r, x), r);
    r = blend<V>(x == y, y, r);
    return blend<V>((x != x) | (y != y), x + y, r);
  }
}

#define LITZ_FLOAT8(N)                                                                                           \
  LITZ_FN vec<float> widen_##N(vec<uint8_t> codes) { return widen_float8<float8_of<N>, vec<float>>(codes); }     \
  LITZ_FN vec<uint8_t> narrow_##N(vec<float> x) { return narrow_float8<float8_of<N>>(x); }                       \
  LITZ_FN vec<float> round_##N(vec<float> x) { return round_float8<float8_of<N>>(x); }                           \
  LITZ_FN vec<float> nextafter_##N(vec<float> x, vec<float> y) { return nextafter_float8<float8_of<N>>(x, y); }  \
  LITZ_FN float widen_##N(uint8_t code) {                                                                        \
    return float8_values<float8_of<N>, f32x4>(splat<unsigned_lanes<f32x4>>(code))[0];                            \
  }                                                                                                              \
  LITZ_FN uint8_t narrow_##N(float x) { return uint8_t(float8_codes<float8_of<N>>(splat<f32x4>(x))[0]); }        \
  LITZ_FN float round_##N(float x) { return round_float8<float8_of<N>>(splat<f32x4>(x))[0]; }                    \
  LITZ_FN float nextafter_##N(float x, float y) {                                                                \
    return nextafter_float8<float8_of<N>>(splat<f32x4>(x), splat<f32x4>(y))[0];                                  \
  }                                                                                                              \
  LITZ_NARROW_ELEMENT(N, uint8_t)
LITZ_FLOAT8(f8e4m3fn)
LITZ_FLOAT8(f8e5m2)
LITZ_FLOAT8(f8e4m3fnuz)
LITZ_FLOAT8(f8e5m2fnuz)
#undef LITZ_FLOAT8

}  // namespace litz

#endif
