// Transposed copies of small tiles, in squares that fit registers, so that each cache line is read and written once.
//
//   void transpose_tile(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t runs, int64_t length)
//       to[j * to_stride + i] = from[i * from_stride + j]     for i < runs, j < length
#ifndef LITZ_TRANSPOSE_H
#define LITZ_TRANSPOSE_H
#include "memory.h"

namespace litz {

template <int D, class V, int... I>
LITZ_FN void exchange(V& a, V& b, indices<I...>) {
  constexpr int n = int(sizeof...(I));
  const V first = permute(a, b, indices<(I & D ? n + I - D : I)...>());
  b = permute(a, b, indices<(I & D ? n + I : I + D)...>());
  a = first;
}
template <int D, class V, int... I>
LITZ_FN void exchange_all(V* v, indices<I...>) {
  (exchange<D>(v[I / D * 2 * D + I % D], v[I / D * 2 * D + I % D + D], indices_to<lane_count<V>>()), ...);
}
// Rows of a square become its columns: blocks of D lanes change places with those of the register D further on.
template <int D, class V>
LITZ_FN void transpose_registers(V* v) {
  if constexpr (D > 0) {
    exchange_all<D>(v, indices_to<lane_count<V> / 2>());
    transpose_registers<D / 2>(v);
  }
}

template <class V, int... I>
LITZ_FN void transpose_square(elem<V>* to, int64_t to_stride, const elem<V>* from, int64_t from_stride, indices<I...>) {
  V v[] = {raw_load<V>(from + I * from_stride)...};
  transpose_registers<lane_count<V> / 2>(v);
  (raw_store(to + I * to_stride, v[I]), ...);
}
// The same for the part of a square at the end of a tile; no other element is touched.
template <class V, int... I>
LITZ_FN void transpose_part(elem<V>* to, int64_t to_stride, const elem<V>* from, int64_t from_stride, int64_t runs,
                            int64_t length, indices<I...>) {
  const uint32_t along = bits_below(length), across = bits_below(runs);
  V v[] = {(I < runs ? raw_load_lanes<V>(from + I * from_stride, along) : V{})...};
  transpose_registers<lane_count<V> / 2>(v);
  ((I < length ? raw_store_lanes(to + I * to_stride, v[I], across) : void()), ...);
}

// The widest register of elements with at most LITZ_LANES lanes.
template <class V, bool Wide = is_wide<V>>
struct native_of {
  typedef V type;
};
template <class V>
struct native_of<V, true> : native_of<half<V>> {};

template <class E>
static __attribute__((noinline, unused)) void transpose_elements(E* to, int64_t to_stride, const E* from,
                                                                 int64_t from_stride, int64_t runs, int64_t length) {
  typedef typename native_of<vec<E>>::type V;
  constexpr int n = lane_count<V>;
  for (int64_t i = 0; i < runs; i += n) {
    for (int64_t j = 0; j < length; j += n) {
      E* target = to + j * to_stride + i;
      const E* source = from + i * from_stride + j;
      if (i + n <= runs && j + n <= length) transpose_square<V>(target, to_stride, source, from_stride, indices_to<n>());
      else transpose_part<V>(target, to_stride, source, from_stride, runs - i, length - j, indices_to<n>());
    }
  }
}
// Elements are moved as integers of their size.
template <int Bytes>
struct bits_of_size;
#define LITZ_BITS(T)                 \
  template <>                        \
  struct bits_of_size<sizeof(T)> {   \
    typedef T type;                  \
  };
LITZ_BITS(uint8_t)
LITZ_BITS(uint16_t)
LITZ_BITS(uint32_t)
LITZ_BITS(uint64_t)
#undef LITZ_BITS
template <class T>
LITZ_FN void transpose_tile(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t runs, int64_t length) {
  typedef typename bits_of_size<sizeof(T)>::type E;
  transpose_elements<E>((E*)to, to_stride, (const E*)from, from_stride, runs, length);
}

}  // namespace litz

#endif
