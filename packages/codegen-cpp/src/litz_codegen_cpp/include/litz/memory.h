// Loads and stores, with conversion of memory elements to register lanes. T is the element type in memory: any number
// type, bf16 or f16 (float in registers), b1 (mask in vectors, bool in scalars), and with float8.h 8-bit floats.
// R = reg<T>. No pointer needs alignment.
//
//   vec<R> load(const T* p)                                   p[0 .. LITZ_LANES)
//   vec<R> load_partial(const T* p, int64_t n)                p[0 .. n), other lanes 0; n may exceed LITZ_LANES
//   vec<R> load_masked(const T* p, mask m)                    p[i] where m, other lanes 0, nothing read there
//   vec<R> load_strided(const T* p, int64_t stride)           p[i * stride]; any stride, 0 and negative too
//   vec<R> load_strided_partial(const T* p, int64_t stride, int64_t n)
//   vec<R> load_reversed(const T* p)                          p[-i]
//   vec<R> gather(const T* p, vec<int64_t> or vec<int32_t> i)           p[i]
//   vec<R> gather_masked(const T* p, vec<int64_t> or vec<int32_t> i, mask m)   p[i] where m, other lanes 0
//   vec<R> gather_partial(const T* p, vec<int64_t> or vec<int32_t> i, int64_t n)
//   vec<R> load_run(const T* p, int64_t first, int64_t last, F at)      p[at()], for indices whose lanes grow by at most 1,
//                                                             from first to last; also _masked, _partial
//   vec<R> load_turning_run(const T* p, int64_t first, int64_t last, F at)   the same, for lanes that fall by at most 1 too
//   void   prefetch_stream(const T* p, int64_t distance)      the cache line so many bytes behind p, of any memory
//   void   store, store_partial, store_masked, store_strided, store_strided_partial, store_reversed, scatter, scatter_masked,
//          scatter_partial                                    the same arguments, then the value; later lanes win
//   wide<vec<float>> load_pair(const bf16* p)                 p[0 .. 2 LITZ_LANES)
//   void   store_pair(bf16* p, vec<float> lo, vec<float> hi)  p[0 .. 2 LITZ_LANES)
//   float, bool or T  load_scalar(const T* p)                 one element
//   void   store_scalar(T* p, x)
#ifndef LITZ_MEMORY_H
#define LITZ_MEMORY_H
#include "half.h"
#include "raw_memory.h"

namespace litz {

// The memory form of an element, and its conversion to and from a register.
template <class T>
struct element {
  typedef T stored;
  typedef T scalar;
  LITZ_FN vec<T> unpack(vec<T> v) { return v; }
  LITZ_FN vec<T> pack(vec<T> v) { return v; }
  LITZ_FN T unpack_scalar(T x) { return x; }
  LITZ_FN T pack_scalar(T x) { return x; }
};
#define LITZ_NARROW_ELEMENT(T, bits)                                      \
  template <>                                                             \
  struct element<T> {                                                     \
    typedef bits stored;                                                  \
    typedef float scalar;                                                 \
    LITZ_FN vec<float> unpack(vec<bits> v) { return widen_##T(v); }       \
    LITZ_FN vec<bits> pack(vec<float> v) { return narrow_##T(v); }        \
    LITZ_FN float unpack_scalar(bits x) { return widen_##T(x); }          \
    LITZ_FN bits pack_scalar(float x) { return narrow_##T(x); }           \
  };
LITZ_NARROW_ELEMENT(bf16, uint16_t)
LITZ_NARROW_ELEMENT(f16, uint16_t)
template <>
struct element<b1> {
  typedef uint8_t stored;
  typedef bool scalar;
  LITZ_FN mask unpack(vec<uint8_t> v) { return convert_lanes<mask>(v) != mask{}; }
  LITZ_FN vec<uint8_t> pack(mask m) { return from_mask<uint8_t>(m); }
  LITZ_FN bool unpack_scalar(uint8_t x) { return x != 0; }
  LITZ_FN uint8_t pack_scalar(bool x) { return x; }
};

template <class T>
using stored = typename element<T>::stored;
template <class T>
using scalar = typename element<T>::scalar;

LITZ_FN uint32_t bits_below(int64_t n) { return uint32_t((uint64_t(1) << (n < LITZ_LANES ? n : LITZ_LANES)) - 1); }

template <class V, int... I>
LITZ_FN V collect(const elem<V>* p, int64_t stride, indices<I...>) {
  return V{p[I * stride]...};
}
// p[0], p[2], …: the second load ends at the last element that is used.
template <class V, int... I>
LITZ_FN V every_other(const elem<V>* p, indices<I...>) {
  constexpr int n = sizeof...(I);
  return permute(raw_load<V>(p), raw_load<V>(p + (n - 1)), indices<(I < n / 2 ? 2 * I : 2 * I + 1)...>());
}
template <class V>
LITZ_FN V raw_load_strided(const elem<V>* p, int64_t stride) {
  if constexpr (is_wide<V>) {
    constexpr int n = lane_count<V> / 2;
    return {raw_load_strided<half<V>>(p, stride), raw_load_strided<half<V>>(p + n * stride, stride)};
  } else {
    if (__builtin_constant_p(stride) && stride == 2) return every_other<V>(p, indices_to<lane_count<V>>());
    return collect<V>(p, stride, indices_to<lane_count<V>>());
  }
}

template <class V, class X, int... I>
LITZ_FN V collect_at(const elem<V>* p, X at, indices<I...>) {
  return V{p[lane(at, I)]...};
}
// Rows: lane type and bytes of the vector, lane type of the indices, type of the mask argument, name of the gather.
#if defined(LITZ_AVX512)
#define LITZ_GATHERS(row)                                 \
  row(float, 64, int, unsigned short, gathersiv16sf)      \
  row(float, 32, long long, unsigned char, gatherdiv16sf) \
  row(double, 64, int, unsigned char, gathersiv8df)       \
  row(double, 64, long long, unsigned char, gatherdiv8df)
#else
#define LITZ_GATHERS(row)
#endif
template <class V, class X>
LITZ_FN V raw_gather(const elem<V>* p, X at) {
  if constexpr (is_wide<V>) return {raw_gather<half<V>>(p, low(at)), raw_gather<half<V>>(p, high(at))};
  else if constexpr (is_wide<X> && sizeof(elem<V>) >= 4)
    return join<V>(raw_gather<half<V>>(p, low(at)), raw_gather<half<V>>(p, high(at)));
#define LITZ_ROW(type, bytes, index, bits, gather)                                                            \
  else if constexpr (sizeof(V) == bytes && sizeof(elem<V>) == sizeof(type) && sizeof(elem<X>) == sizeof(index)) { \
    typedef type native __attribute__((vector_size(bytes)));                                                  \
    typedef index places __attribute__((vector_size(bytes / sizeof(type) * sizeof(index))));                  \
    return (V)__builtin_ia32_##gather(native{}, p, (places)at, (bits)-1, sizeof(type));                       \
  }
  LITZ_GATHERS(LITZ_ROW)
#undef LITZ_ROW
  else return collect_at<V>(p, at, indices_to<lane_count<V>>());
}
// True where the machine gathers lanes of a mask, and accesses no others.
template <class V, class X>
LITZ_FN constexpr bool gathers_lanes() {
  if constexpr (is_wide<V>) return gathers_lanes<half<V>, half<X>>();
  else if constexpr (is_wide<X> && sizeof(elem<V>) >= 4) return gathers_lanes<half<V>, half<X>>();
#define LITZ_ROW(type, bytes, index, bits, gather) \
  else if constexpr (sizeof(V) == bytes && sizeof(elem<V>) == sizeof(type) && sizeof(elem<X>) == sizeof(index)) return true;
  LITZ_GATHERS(LITZ_ROW)
#undef LITZ_ROW
  else return false;
}
template <class V, class X>
LITZ_FN V raw_gather_bits(const elem<V>* p, X at, uint32_t active) {
  constexpr int count = lane_count<V> / 2;
  if constexpr (is_wide<V>)
    return {raw_gather_bits<half<V>>(p, low(at), active & ((1u << count) - 1)),
            raw_gather_bits<half<V>>(p, high(at), active >> count)};
  else if constexpr (is_wide<X> && sizeof(elem<V>) >= 4)
    return join<V>(raw_gather_bits<half<V>>(p, low(at), active & ((1u << count) - 1)),
                   raw_gather_bits<half<V>>(p, high(at), active >> count));
#define LITZ_ROW(type, bytes, index, bits, gather)                                                            \
  else if constexpr (sizeof(V) == bytes && sizeof(elem<V>) == sizeof(type) && sizeof(elem<X>) == sizeof(index)) { \
    typedef type native __attribute__((vector_size(bytes)));                                                  \
    typedef index places __attribute__((vector_size(bytes / sizeof(type) * sizeof(index))));                  \
    return (V)__builtin_ia32_##gather(native{}, p, (places)at, (bits)active, sizeof(type));                   \
  }
  LITZ_GATHERS(LITZ_ROW)
#undef LITZ_ROW
  else return V{};
}
// Without such an instruction, lanes outside the mask read the element of a lane inside: no address is made of their
// indices.
template <class V, class X>
LITZ_FN V raw_gather_lanes(const elem<V>* p, X at, mask m) {
  uint32_t bits = mask_bits(m);
  if constexpr (gathers_lanes<V, X>()) return raw_gather_bits<V>(p, at, bits);
  if (bits == 0) return V{};
  at = select(m, at, splat<X>(lane(at, __builtin_ctz(bits))));
  return select(m, raw_gather<V>(p, at), V{});
}
template <class V, class X>
LITZ_FN void raw_scatter_lanes(elem<V>* p, X at, V v, uint32_t bits) {
  elem<X> places[lane_count<V>];
  elem<V> lanes[lane_count<V>];
  raw_store(places, at);
  raw_store(lanes, v);
  for (int i = 0; i < lane_count<V>; ++i)
    if (bits >> i & 1) p[places[i]] = lanes[i];
}

template <class T>
LITZ_FN vec<reg<T>> load(const T* p) {
  return element<T>::unpack(raw_load<vec<stored<T>>>(p));
}
template <class T>
LITZ_FN void prefetch_stream(const T* p, int64_t distance) {
  __builtin_prefetch((const char*)p + distance);
}
template <class T>
LITZ_FN vec<reg<T>> load_masked(const T* p, mask m) {
  return element<T>::unpack(raw_load_lanes<vec<stored<T>>>(p, mask_bits(m)));
}
template <class T>
LITZ_FN vec<reg<T>> load_partial(const T* p, int64_t n) {
  return element<T>::unpack(raw_load_lanes<vec<stored<T>>>(p, bits_below(n)));
}
template <class T>
LITZ_FN vec<reg<T>> load_strided(const T* p, int64_t stride) {
  return element<T>::unpack(raw_load_strided<vec<stored<T>>>((const stored<T>*)p, stride));
}
template <class T>
LITZ_FN vec<reg<T>> load_strided_partial(const T* p, int64_t stride, int64_t n) {
  stored<T> lanes[LITZ_LANES];
  for (int i = 0; i < LITZ_LANES; ++i) lanes[i] = i < n ? ((const stored<T>*)p)[i * stride] : stored<T>(0);
  return element<T>::unpack(raw_load<vec<stored<T>>>(lanes));
}
template <class T>
LITZ_FN vec<reg<T>> load_reversed(const T* p) {
  return element<T>::unpack(reverse_lanes(raw_load<vec<stored<T>>>(p - (LITZ_LANES - 1))));
}
template <class T, class X>
LITZ_FN vec<reg<T>> gather(const T* p, X at) {
  return element<T>::unpack(raw_gather<vec<stored<T>>>((const stored<T>*)p, at));
}
template <class T, class X>
LITZ_FN vec<reg<T>> gather_masked(const T* p, X at, mask m) {
  return element<T>::unpack(raw_gather_lanes<vec<stored<T>>>((const stored<T>*)p, at, m));
}
template <class T, class X>
LITZ_FN vec<reg<T>> gather_partial(const T* p, X at, int64_t n) {
  return gather_masked(p, at, first_lanes(n));
}

// Lanes that grow by at most 1 each are contiguous if the last is LITZ_LANES - 1 from the first.
LITZ_FN bool is_run(int64_t first, int64_t last) { return last - first == LITZ_LANES - 1; }
template <class T, class F>
LITZ_FN vec<reg<T>> load_run(const T* p, int64_t first, int64_t last, F at) {
  return __builtin_expect(is_run(first, last), true) ? load(p + first) : gather(p, at());
}
template <class T, class F>
LITZ_FN vec<reg<T>> load_run_masked(const T* p, int64_t first, int64_t last, mask m, F at) {
  return __builtin_expect(is_run(first, last), true) ? load_masked(p + first, m) : gather_masked(p, at(), m);
}
template <class T, class F>
LITZ_FN vec<reg<T>> load_run_partial(const T* p, int64_t first, int64_t last, int64_t n, F at) {
  return __builtin_expect(is_run(first, last), true) ? load_partial(p + first, n) : gather_partial(p, at(), n);
}
template <class T, class F>
LITZ_FN vec<reg<T>> load_turning_run(const T* p, int64_t first, int64_t last, F at) {
  return is_run(last, first) ? load_reversed(p + first) : load_run(p, first, last, at);
}
template <class T, class F>
LITZ_FN vec<reg<T>> load_turning_run_masked(const T* p, int64_t first, int64_t last, mask m, F at) {
  return load_run_masked(p, first, last, m, at);
}
template <class T, class F>
LITZ_FN vec<reg<T>> load_turning_run_partial(const T* p, int64_t first, int64_t last, int64_t n, F at) {
  return load_run_partial(p, first, last, n, at);
}
template <class T>
LITZ_FN scalar<T> load_scalar(const T* p) {
  return element<T>::unpack_scalar(*(const stored<T>*)p);
}

template <class T>
LITZ_FN void store(T* p, vec<reg<T>> v) {
  raw_store(p, element<T>::pack(v));
}
template <class T>
LITZ_FN void store_masked(T* p, mask m, vec<reg<T>> v) {
  raw_store_lanes(p, element<T>::pack(v), mask_bits(m));
}
template <class T>
LITZ_FN void store_partial(T* p, int64_t n, vec<reg<T>> v) {
  raw_store_lanes(p, element<T>::pack(v), bits_below(n));
}
template <class T>
LITZ_FN void store_strided_partial(T* p, int64_t stride, int64_t n, vec<reg<T>> v) {
  stored<T> lanes[LITZ_LANES];
  raw_store(lanes, element<T>::pack(v));
  for (int64_t i = 0; i < LITZ_LANES && i < n; ++i) ((stored<T>*)p)[i * stride] = lanes[i];
}
template <class T>
LITZ_FN void store_strided(T* p, int64_t stride, vec<reg<T>> v) {
  store_strided_partial(p, stride, LITZ_LANES, v);
}
template <class T>
LITZ_FN void store_reversed(T* p, vec<reg<T>> v) {
  raw_store(p - (LITZ_LANES - 1), reverse_lanes(element<T>::pack(v)));
}
template <class T, class X>
LITZ_FN void scatter_masked(T* p, X at, mask m, vec<reg<T>> v) {
  raw_scatter_lanes((stored<T>*)p, at, element<T>::pack(v), mask_bits(m));
}
template <class T, class X>
LITZ_FN void scatter_partial(T* p, X at, int64_t n, vec<reg<T>> v) {
  raw_scatter_lanes((stored<T>*)p, at, element<T>::pack(v), bits_below(n));
}
template <class T, class X>
LITZ_FN void scatter(T* p, X at, vec<reg<T>> v) {
  scatter_partial(p, at, LITZ_LANES, v);
}
template <class T>
LITZ_FN void store_scalar(T* p, scalar<T> x) {
  *(stored<T>*)p = element<T>::pack_scalar(x);
}

LITZ_FN wide<vec<float>> load_pair(const bf16* p) {
#if defined(LITZ_BF16_PAIRS)
  const packed_halves both = raw_load<packed_halves>(p);
  return {widen_bf16_half(both, 0), widen_bf16_half(both, LITZ_LANES)};
#else
  return {load(p), load(p + LITZ_LANES)};
#endif
}
LITZ_FN void store_pair(bf16* p, vec<float> lo, vec<float> hi) {
#if defined(LITZ_BF16_PAIRS)
  packed_halves narrow;
  if (__builtin_expect(narrow_bf16_pair(lo, hi, narrow), true)) return raw_store(p, narrow);
#endif
  store(p, lo);
  store(p + LITZ_LANES, hi);
}

}  // namespace litz

#endif
