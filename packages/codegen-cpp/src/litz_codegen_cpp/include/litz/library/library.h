// What host programs use: memory, and the routines of the library, which is compiled once for an instruction set.
//
//   int64_t aligned(int64_t bytes)         the next multiple of the alignment of memory
//   int64_t largest({a, b, ...})
//   numbers({a, b, ...}).values            an array as an expression
//   void    copy(to, from, int64_t bytes)
#ifndef LITZ_LIBRARY_H
#define LITZ_LIBRARY_H
#include <litz/arithmetic.h>
#include <litz/runtime.h>

namespace litz {

LITZ_FN int64_t aligned(int64_t bytes) { return (bytes + 63) & ~int64_t(63); }

template <int N>
LITZ_FN int64_t largest(const int64_t (&values)[N]) {
  int64_t found = values[0];
  for (int64_t value : values) found = value > found ? value : found;
  return found;
}

template <int N>
struct numbers {
  int64_t values[N];
};
template <class... I>
numbers(I...) -> numbers<sizeof...(I)>;

LITZ_FN void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) __builtin_memcpy(to, from, bytes);
}

}  // namespace litz

#endif
