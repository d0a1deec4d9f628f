// Attention of R rows, fewer than a vector has lanes, by a block of keys at a time: keys and values are read once and in
// order, so that memory is the limit. Lanes are the elements of a head; scores of a row are contiguous, ATTENTION_KEYS apart.
//
// Keys and values are `row` elements apart.
//
//   void attention_few_scores<R, E>(scores, keys, row, queries, n)
//        scores[r][k] = sum over e of keys[k][e] * queries[r][e], k < n
//   bool attention_few_weights<R, D>(scores, n, values, row, greatest, total, factors)      as attention_weights
//   void attention_few_sums<R, D>(sums, values, row, weights, n, factors)
//        sums[r][d] = sums[r][d] * factors[r] + sum over k of values[k][d] * weights[r][k]
#ifndef LITZ_ATTENTION_FEW_H
#define LITZ_ATTENTION_FEW_H
#include "attention.h"

namespace litz {

constexpr int ATTENTION_KEYS = 64;

// The lanes [at, E) of a vector, other lanes 0; all of them in vectors but the last.
template <int E>
LITZ_FN vec<float> attention_element(const float* from, int64_t at) {
  if constexpr (E % LITZ_LANES == 0) return load(from + at);
  else return load_partial(from + at, E - at);
}

template <int KEYS, int E>
LITZ_FN void attention_few_products(float* parts, const float* keys, int64_t stride, const float* query) {
  vec<float> sums[KEYS] = {};
  for (int64_t e = 0; e < E; e += LITZ_LANES) {
    const vec<float> row = attention_element<E>(query, e);
#pragma GCC unroll 4
    for (int k = 0; k < KEYS; ++k) sums[k] = mul_add(attention_element<E>(keys + k * stride, e), row, sums[k]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < KEYS; ++k) store(parts + k * LITZ_LANES, sums[k]);
}
template <int R, int E>
static void attention_few_scores(float* scores, const float* keys, int64_t row, const float* queries, int64_t n) {
  alignas(64) float parts[ATTENTION_KEYS * LITZ_LANES], lanes[LITZ_LANES * ATTENTION_KEYS];
  for (int64_t r = 0; r < R; ++r) {
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) attention_few_products<4, E>(parts + k * LITZ_LANES, keys + k * row, row, queries + r * E);
    for (; k < n; ++k) attention_few_products<1, E>(parts + k * LITZ_LANES, keys + k * row, row, queries + r * E);
    transpose_tile(lanes, ATTENTION_KEYS, parts, LITZ_LANES, n, LITZ_LANES);
    for (k = 0; k < n; k += LITZ_LANES) {
      vec<float> sum = load(lanes + k);
      for (int64_t lane = 1; lane < LITZ_LANES; ++lane) sum = sum + load(lanes + lane * ATTENTION_KEYS + k);
      store(scores + r * ATTENTION_KEYS + k, sum);
    }
  }
}

template <int R, int D>
static bool attention_few_weights(float* scores, int64_t n, const float* values, int64_t stride, float* greatest,
                                  float* total, float* factors) {
  const float least = -__builtin_inff();
  const int64_t whole = (n + LITZ_LANES - 1) / LITZ_LANES * LITZ_LANES;
  alignas(64) float lanes[LITZ_LANES];
  float tops[R];
  bool any = false;
  for (int64_t r = 0; r < R; ++r) {
    float* row = scores + r * ATTENTION_KEYS;
    for (int64_t k = n; k < whole; ++k) row[k] = least;
    vec<float> top = broadcast<float>(least);
    for (int64_t k = 0; k < whole; k += LITZ_LANES) top = maximum(top, load(row + k));
    store(lanes, top);
    tops[r] = least;
    for (int64_t lane = 0; lane < LITZ_LANES; ++lane) tops[r] = maximum(tops[r], lanes[lane]);
    any |= !(tops[r] == least);
  }
  if (!any) {
    int64_t k = 0;
    while (k < n && attention_finite(values + k * stride, D)) ++k;
    if (k == n) return false;
  }
  for (int64_t r = 0; r < R; ++r) {
    float* row = scores + r * ATTENTION_KEYS;
    const float before = greatest[r], top = maximum(before, tops[r]), base = top == least ? 0 : top;
    vec<float> sums = broadcast<float>(0);
    for (int64_t k = 0; k < whole; k += LITZ_LANES) {
      const vec<float> weight = exp(load(row + k) - broadcast<float>(base));
      store(row + k, weight);
      sums = sums + weight;
    }
    store(lanes, sums);
    float sum = 0;
    for (int64_t lane = 0; lane < LITZ_LANES; ++lane) sum += lanes[lane];
    factors[r] = exp(before - base);
    greatest[r] = top;
    total[r] = total[r] * factors[r] + sum;
  }
  return true;
}

// Rows [0, ROWS) of V vectors; the vectors of the last elements are partial.
template <int ROWS, int V, int D>
LITZ_FN void attention_few_tile(float* sums, const float* values, int64_t row, const float* weights, int64_t n, const float* factors, int64_t d) {
  vec<float> tile[ROWS][V];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      tile[i][v] = attention_element<D>(sums + i * D, d + v * LITZ_LANES) * broadcast<float>(factors[i]);
  for (int64_t k = 0; k < n; ++k) {
    vec<float> value[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) value[v] = attention_element<D>(values + k * row, d + v * LITZ_LANES);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      const vec<float> weight = broadcast<float>(weights[i * ATTENTION_KEYS + k]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) tile[i][v] = mul_add(value[v], weight, tile[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t at = d + v * LITZ_LANES;
      if constexpr (D % LITZ_LANES == 0) store(sums + i * D + at, tile[i][v]);
      else store_partial(sums + i * D + at, D - at, tile[i][v]);
    }
}
template <int ROWS, int D>
LITZ_FN void attention_few_rows(float* sums, const float* values, int64_t row, const float* weights, int64_t n, const float* factors) {
  int64_t d = 0;
  for (; d + 4 * LITZ_LANES <= D; d += 4 * LITZ_LANES) attention_few_tile<ROWS, 4, D>(sums, values, row, weights, n, factors, d);
  for (; d < D; d += LITZ_LANES) attention_few_tile<ROWS, 1, D>(sums, values, row, weights, n, factors, d);
}
template <int R, int D>
static void attention_few_sums(float* sums, const float* values, int64_t row, const float* weights, int64_t n, const float* factors) {
  constexpr int WHOLE = R / 4 * 4;
  for (int64_t r = 0; r < WHOLE; r += 4)
    attention_few_rows<4, D>(sums + r * D, values, row, weights + r * ATTENTION_KEYS, n, factors + r);
  if constexpr (R > WHOLE)
    attention_few_rows<R - WHOLE, D>(sums + WHOLE * D, values, row, weights + WHOLE * ATTENTION_KEYS, n, factors + WHOLE);
}

}  // namespace litz

#endif
