// Indirect indices. I is vec<int64_t>, vec<int32_t>, int64_t or int32_t; size is a scalar.
//
//   I    wrap_index(I i, size)                i, or i + size where i is negative
//   I    clamp_index(I i, size)               into [0, size); 0 where size is 0
//   I    checked_index(I i, size, bool& bad)  the same of a scalar; bad becomes true where it changes i
//   mask or bool  in_range(I i, size)         0 <= i < size
//   int32_t       saturated(int64_t x)        the nearest int32_t
#ifndef LITZ_INDEX_H
#define LITZ_INDEX_H
#include "lanes.h"

namespace litz {

template <class I>
LITZ_FN I wrap_index(I i, int64_t size) {
  I zero = splat<I>(0);
  return blend<I>(i < zero, i + splat<I>(elem<I>(size)), i);
}
template <class I>
LITZ_FN I nearest_index(I i, int64_t size) {
  I zero = splat<I>(0), last = splat<I>(elem<I>(size - 1));
  i = blend<I>(i > last, last, i);
  return blend<I>(i < zero, zero, i);
}
template <class I>
LITZ_FN I checked_index(I i, int64_t size, bool& bad) {
  // A predicted branch, since an address that depends on a comparison would be known late.
  if (__builtin_expect(uint64_t(int64_t(i)) < uint64_t(size), 1)) return i;
  __asm__ volatile("");  // keeps the compiler from turning the branch into a select
  bad = true;
  return nearest_index(i, size);
}
template <class I>
LITZ_FN I clamp_index(I i, int64_t size) {
  if constexpr (is_scalar<I>) {
    bool bad = false;
    return checked_index(i, size, bad);
  } else {
    return nearest_index(i, size);
  }
}
template <class I>
LITZ_FN auto in_range(I i, int64_t size) {
  if constexpr (is_scalar<I>) return i >= 0 && i < size;
  else return as_mask((i >= splat<I>(0)) & (i < splat<I>(elem<I>(size))));
}

LITZ_FN int32_t saturated(int64_t x) {
  const int64_t least = -2147483647 - 1, most = 2147483647;
  return int32_t(x < least ? least : x > most ? most : x);
}

}  // namespace litz

#endif
