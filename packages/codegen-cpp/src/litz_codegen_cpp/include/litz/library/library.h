// What host programs use: memory, and the arguments of routines, which are in the headers beside this one.
//
//   int64_t aligned(int64_t bytes)         the next multiple of the alignment of memory
//   int64_t bounded(bytes, overflow)       the same, and 0 for what is too large or negative
//   int64_t largest({a, b, ...})
//   numbers<2>{{a, b}}.values              an array as an expression
//   void    copy(to, from, int64_t bytes)
//
//   void    litz_multiply(rt, const litz_product*, char* scratch)      out = alpha * left @ right + beta * bias
//   int64_t litz_product_scratch(rt, litz_product, bool prepacked)        bytes of its scratch; pointers are not read
//   int64_t litz_prepacked_bytes(n, k)                                    bytes of a right matrix of k rows and n columns in
//   void    litz_prepack(rt, n, k, right, row, column, prepacked)            the form that products read most quickly
//   void    litz_convolve, litz_attend                                 and likewise their scratch, and prepacked weights
#ifndef LITZ_LIBRARY_H
#define LITZ_LIBRARY_H
#include <litz/arithmetic.h>
#include <litz/runtime.h>

namespace litz {

LITZ_FN int64_t aligned(int64_t bytes) { return (bytes + 63) & ~int64_t(63); }

// Sizes over symbols that a caller gives: `overflow` is set where a result has more than 64 bits, or is too large.
LITZ_FN int64_t checked_sum(int64_t a, int64_t b, bool& overflow) {
  int64_t sum;
  overflow |= __builtin_add_overflow(a, b, &sum);
  return sum;
}
LITZ_FN int64_t checked_product(int64_t a, int64_t b, bool& overflow) {
  int64_t product;
  overflow |= __builtin_mul_overflow(a, b, &product);
  return product;
}
constexpr int64_t MOST_BYTES = int64_t(1) << 60;  // sums of a few have 64 bits, and no machine has so much
LITZ_FN int64_t bounded(int64_t bytes, bool& overflow) {
  overflow |= bytes > MOST_BYTES >> 10;
  return overflow || bytes < 0 ? 0 : aligned(bytes);  // the reach of strides is negative where a tensor is empty
}

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

LITZ_FN void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) __builtin_memcpy(to, from, bytes);
}

// The value of a number that a program returns: 8 bytes, or the first.
LITZ_FN void litz_put(void* to, int64_t value, int64_t bytes) { __builtin_memcpy(to, &value, bytes); }

// True if a tensor of the shape and strides `found` has those of the type, which count where a dimension has two elements.
template <int N>
LITZ_FN bool litz_fits(const int64_t* found, const numbers<N>& promised) {
  bool same = true, empty = false;
  for (int k = 0; k < N / 2; ++k) {
    if (found[k] != promised.values[k]) return false;
    empty |= found[k] == 0;
    same &= found[k] == 1 || found[k + N / 2] == promised.values[k + N / 2];
  }
  return same || empty;
}

// A product of float matrices, or of `batch` of them; strides are in elements.
struct litz_product {
  int64_t batch, m, n, k;
  const void* left;
  int64_t left_batch, left_row, left_column;
  const void* right;
  int64_t right_batch, right_row, right_column;
  const void* bias;  // may be null
  int64_t bias_batch, bias_row, bias_column;
  void* out;
  int64_t out_batch, out_row, out_column;
  float alpha, beta;
  const void* prepacked;  // not null: the right matrix by litz_prepack, the same for the whole batch
};

// A convolution of float, in two dimensions; strides are in elements and have the order batch, channel, row, column.
struct litz_convolution {
  int64_t images, channels, rows, columns;
  int64_t out_channels, out_rows, out_columns;
  int64_t taps[2], stride[2], padding[2], dilation[2], groups;
  const void* in;
  int64_t in_strides[4];
  const void* weight;  // out channels, channels of a group, rows, columns; or by litz_prepack_convolution
  int64_t weight_strides[4];
  bool prepacked;
  const void* bias;  // may be null
  void* out;
  int64_t out_strides[4];
  int32_t activation;  // 0 none, 1 hardswish, 2 silu, 3 sigmoid
};

// Attention: softmax(scale * query @ key^T + mask) @ value; strides have the order batch, head, row, column.
struct litz_attention {
  int64_t batch, heads, queries, keys, width;
  const void *query, *key, *value, *mask;  // the mask may be null
  int64_t query_strides[4], key_strides[4], value_strides[4], mask_strides[4];
  void *out, *logsumexp;  // the latter may be null
  int64_t out_strides[4], logsumexp_strides[3];
  float scale;
  bool causal;
};

}  // namespace litz

#endif
