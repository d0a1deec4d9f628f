// Loads and stores of any vector type at any alignment, whole or of chosen lanes; memory.h builds on them. Lanes whose
// bit is clear are neither read nor written.
//
//   V    raw_load<V>(const void* p)                     void raw_store(void* p, V v)
//   V    raw_load_lanes<V>(const void* p, uint32_t bits)  void raw_store_lanes(void* p, V v, uint32_t bits)
#ifndef LITZ_RAW_MEMORY_H
#define LITZ_RAW_MEMORY_H
#include "lanes.h"

namespace litz {

template <class V>
LITZ_FN V raw_load(const void* p) {
  if constexpr (is_wide<V>) {
    return {raw_load<half<V>>(p), raw_load<half<V>>((const char*)p + sizeof(V) / 2)};
  } else {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
}

template <class V>
LITZ_FN void raw_store(void* p, V v) {
  if constexpr (is_wide<V>) {
    raw_store(p, v.lo);
    raw_store((char*)p + sizeof(V) / 2, v.hi);
  } else {
    __builtin_memcpy(p, &v, sizeof v);
  }
}

// Compilers disagree on whether these take pointers to lanes or to vectors.
struct any_pointer {
  void* p;
  template <class T>
  LITZ_METHOD operator T*() const {
    return (T*)p;
  }
};

// Rows: lane type, bytes of the vector and of a lane, type of the mask argument, names of the masked load and store.
#if defined(LITZ_AVX512)
#define LITZ_MASKED_MOVES(row)                                             \
  row(char, 64, 1, unsigned long long, loaddquqi512_mask, storedquqi512_mask) \
  row(char, 32, 1, unsigned, loaddquqi256_mask, storedquqi256_mask)        \
  row(char, 16, 1, unsigned short, loaddquqi128_mask, storedquqi128_mask)  \
  row(short, 64, 2, unsigned, loaddquhi512_mask, storedquhi512_mask)       \
  row(short, 32, 2, unsigned short, loaddquhi256_mask, storedquhi256_mask) \
  row(short, 16, 2, unsigned char, loaddquhi128_mask, storedquhi128_mask)  \
  row(int, 64, 4, unsigned short, loaddqusi512_mask, storedqusi512_mask)   \
  row(int, 32, 4, unsigned char, loaddqusi256_mask, storedqusi256_mask)    \
  row(int, 16, 4, unsigned char, loaddqusi128_mask, storedqusi128_mask)    \
  row(long long, 64, 8, unsigned char, loaddqudi512_mask, storedqudi512_mask) \
  row(long long, 32, 8, unsigned char, loaddqudi256_mask, storedqudi256_mask) \
  row(long long, 16, 8, unsigned char, loaddqudi128_mask, storedqudi128_mask)
#else
#define LITZ_MASKED_MOVES(row)
#endif

// Lanes -1 where the bit is set, 0 elsewhere.
template <class I>
LITZ_FN I spread_bits(uint32_t bits) {
  I bit = splat<I>(1) << lane_numbers<I>();
  return (splat<I>(elem<I>(bits)) & bit) == bit;
}

template <class V>
LITZ_FN V raw_load_lanes(const void* p, uint32_t bits) {
  constexpr int n = lane_count<V>;
  if constexpr (is_wide<V>) {
    const char* second = (const char*)p + sizeof(V) / 2;
    return {raw_load_lanes<half<V>>(p, bits), raw_load_lanes<half<V>>(second, bits >> (n / 2))};
  }
#define LITZ_ROW(type, bytes, size, bits_type, load, store)                          \
  else if constexpr (sizeof(V) == bytes && sizeof(elem<V>) == size) {                \
    typedef type native __attribute__((vector_size(bytes)));                         \
    return (V)__builtin_ia32_##load(any_pointer{(void*)p}, native{}, (bits_type)bits);      \
  }
  LITZ_MASKED_MOVES(LITZ_ROW)
#undef LITZ_ROW
#if defined(LITZ_AVX2)
  else if constexpr (sizeof(V) == 32 && sizeof(elem<V>) == 4) {
    typedef int native __attribute__((vector_size(32)));
    return (V)__builtin_ia32_maskloadd256((const native*)p, (native)spread_bits<lane_mask<V>>(bits));
  }
  else if constexpr (sizeof(V) == 32 && sizeof(elem<V>) == 8) {
    typedef long long native __attribute__((vector_size(32)));
    return (V)__builtin_ia32_maskloadq256((const native*)p, (native)spread_bits<lane_mask<V>>(bits));
  }
#endif
  else {
    elem<V> lanes[n];
    for (int i = 0; i < n; ++i) lanes[i] = bits >> i & 1 ? ((const elem<V>*)p)[i] : elem<V>(0);
    return raw_load<V>(lanes);
  }
}

template <class V>
LITZ_FN void raw_store_lanes(void* p, V v, uint32_t bits) {
  constexpr int n = lane_count<V>;
  if constexpr (is_wide<V>) {
    raw_store_lanes(p, v.lo, bits);
    raw_store_lanes((char*)p + sizeof(V) / 2, v.hi, bits >> (n / 2));
  }
#define LITZ_ROW(type, bytes, size, bits_type, load, store)                          \
  else if constexpr (sizeof(V) == bytes && sizeof(elem<V>) == size) {                \
    typedef type native __attribute__((vector_size(bytes)));                         \
    __builtin_ia32_##store(any_pointer{p}, (native)v, (bits_type)bits);                    \
  }
  LITZ_MASKED_MOVES(LITZ_ROW)
#undef LITZ_ROW
#if defined(LITZ_AVX2)
  else if constexpr (sizeof(V) == 32 && sizeof(elem<V>) == 4) {
    typedef int native __attribute__((vector_size(32)));
    __builtin_ia32_maskstored256((native*)p, (native)spread_bits<lane_mask<V>>(bits), (native)v);
  }
  else if constexpr (sizeof(V) == 32 && sizeof(elem<V>) == 8) {
    typedef long long native __attribute__((vector_size(32)));
    __builtin_ia32_maskstoreq256((native*)p, (native)spread_bits<lane_mask<V>>(bits), (native)v);
  }
#endif
  else {
    for (int i = 0; i < n; ++i)
      if (bits >> i & 1) ((elem<V>*)p)[i] = v[i];
  }
}

}  // namespace litz

#endif
