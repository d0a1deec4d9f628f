// Attention a block of R queries by a block of keys at a time. Queries are the lanes: scores of a key are contiguous, so
// that maxima and sums are taken lane by lane, and neither keys nor values are transposed. R is a multiple of LITZ_LANES.
//
//   void attention_queries<R, E>(to, from, count)             to[e][r] = from[r][e], 0 for r >= count
//   void attention_clear(sums, n)                              sums[i] = 0, i < n
//   void attention_start(greatest, total, queries)             no key has been seen
//   void attention_scores<R, E>(scores, keys, queries, n)     scores[k][r] = sum over e of keys[k][e] * queries[e][r], k < n
//   bool attention_weights<R>(scores, n, values, elements, greatest, total, factors)
//        scores become exponentials relative to the greatest so far; factors are those by which earlier sums shrink;
//        false, and nothing changes, where all scores are minus infinity and all values are finite, so that they add 0
//   void attention_sums<R, D>(sums, values, weights, n, factors)
//        sums[d][r] = sums[d][r] * factors[r] + sum over k of values[k][d] * weights[k][r]
//   void attention_sums<R, D>(sums, values, weights, n)        the same with factors of 1
//
// Dao et al., "FlashAttention" (2022).
#ifndef LITZ_ATTENTION_H
#define LITZ_ATTENTION_H
#include "float_ops.h"
#include "math_exp.h"
#include "transpose.h"

namespace litz {

// Accumulators, two registers of lanes and a broadcast element fill the registers: 32 of them, or 16. On aarch64 several
// elements are in registers of their own, as in library/tiles.h.
#if defined(LITZ_AVX512)
constexpr int ATTENTION_ROWS = 14;
#elif defined(__aarch64__)
constexpr int ATTENTION_ROWS = 10;
#else
constexpr int ATTENTION_ROWS = 6;
#endif

// Rows [0, ROWS) of a tile: sums[i] += left[i * row + k * step] * right[k * R + lane], over `n` points k.
template <int ROWS, int V, int R>
LITZ_FN void attention_tile(vec<float> (&sums)[ROWS][V], const float* left, int64_t row, int64_t step, const float* right,
                            int64_t n) {
  for (int64_t k = 0; k < n; ++k, right += R) {
    vec<float> lanes[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) lanes[v] = load(right + v * LITZ_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const vec<float> element = broadcast<float>(left[i * row + k * step]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sums[i][v] = mul_add(element, lanes[v], sums[i][v]);
    }
  }
}

template <int R>
constexpr int attention_vectors = R % (2 * LITZ_LANES) == 0 ? 2 : 1;

template <int ROWS, int R, int E>
static __attribute__((noinline)) void attention_score_tile(float* scores, const float* keys, const float* queries) {
  constexpr int V = attention_vectors<R>;
  for (int64_t lane = 0; lane < R; lane += V * LITZ_LANES) {
    vec<float> sums[ROWS][V] = {};
    attention_tile<ROWS, V, R>(sums, keys, E, 1, queries + lane, E);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) store(scores + i * R + lane + v * LITZ_LANES, sums[i][v]);
  }
}
template <int ROWS, int R, int E>
LITZ_FN void attention_score_rows(int rows, float* scores, const float* keys, const float* queries) {
  if constexpr (ROWS > 0) {
    if (rows == ROWS) attention_score_tile<ROWS, R, E>(scores, keys, queries);
    else attention_score_rows<ROWS - 1, R, E>(rows, scores, keys, queries);
  }
}
template <int R, int E>
static void attention_scores(float* scores, const float* keys, const float* queries, int64_t n) {
  const int64_t tiles = (n + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
  for (int64_t tile = 0; tile < tiles; ++tile) {  // of nearly equal heights, since flat ones wait for sums
    const int64_t first = n * tile / tiles, last = n * (tile + 1) / tiles;
    attention_score_rows<ATTENTION_ROWS, R, E>(int(last - first), scores + first * R, keys + first * E, queries);
  }
}

static bool attention_finite(const float* values, int64_t elements) {
  vec<float> products = broadcast<float>(0);  // those with 0, NaN for infinity
  const int64_t whole = elements / LITZ_LANES * LITZ_LANES;
  for (int64_t i = 0; i < whole; i += LITZ_LANES) products = mul_add(load(values + i), broadcast<float>(0), products);
  for (int64_t i = whole; i < elements; ++i) products = products + broadcast<float>(values[i] * 0);
  return !any_true(ne(products, products));
}

template <int R>
static bool attention_weights(float* scores, int64_t n, const float* values, int64_t elements, float* greatest, float* total,
                              float* factors) {
  const vec<float> least = broadcast<float>(-__builtin_inff()), zero = broadcast<float>(0);
  alignas(64) float tops[R];
  bool any = false;
  for (int64_t lane = 0; lane < R; lane += LITZ_LANES) {
    vec<float> top = least;
    for (int64_t k = 0; k < n; ++k) top = maximum(top, load(scores + k * R + lane));
    store(tops + lane, top);
    any |= any_true(ne(top, least));
  }
  if (!any && attention_finite(values, elements)) return false;
  for (int64_t lane = 0; lane < R; lane += LITZ_LANES) {
    const vec<float> before = load(greatest + lane), top = maximum(before, load(tops + lane));
    const vec<float> base = select(eq(top, least), zero, top);  // rows without any key yet
    vec<float> sum = zero;
    for (int64_t k = 0; k < n; ++k) {
      const vec<float> weight = exp(load(scores + k * R + lane) - base);
      store(scores + k * R + lane, weight);
      sum = sum + weight;
    }
    const vec<float> factor = exp(before - base);
    store(factors + lane, factor);
    store(greatest + lane, top);
    store(total + lane, mul_add(load(total + lane), factor, sum));
  }
  return true;
}

template <int ROWS, int R, int D, bool SHRINK>
LITZ_FN void attention_sum_tile(float* sums, const float* values, const float* weights, int64_t n, const float* factors) {
  constexpr int V = attention_vectors<R>;
  for (int64_t lane = 0; lane < R; lane += V * LITZ_LANES) {
    vec<float> tile[ROWS][V];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const int64_t at = lane + v * LITZ_LANES;
        tile[i][v] = load(sums + i * R + at);
        if constexpr (SHRINK) tile[i][v] = tile[i][v] * load(factors + at);
      }
    attention_tile<ROWS, V, R>(tile, values, 1, D, weights + lane, n);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) store(sums + i * R + lane + v * LITZ_LANES, tile[i][v]);
  }
}
template <int R, int D, bool SHRINK>
static void attention_sum_tiles(float* sums, const float* values, const float* weights, int64_t n, const float* factors) {
  constexpr int TILES = (D + ATTENTION_ROWS - 1) / ATTENTION_ROWS, ROWS = (D + TILES - 1) / TILES, WHOLE = D / ROWS, REST = D % ROWS;
  for (int64_t d = 0; d < WHOLE * ROWS; d += ROWS)
    attention_sum_tile<ROWS, R, D, SHRINK>(sums + d * R, values + d, weights, n, factors);
  if constexpr (REST > 0)
    attention_sum_tile<REST, R, D, SHRINK>(sums + WHOLE * ROWS * R, values + WHOLE * ROWS, weights, n, factors);
}
template <int R, int D>
LITZ_FN void attention_sums(float* sums, const float* values, const float* weights, int64_t n, const float* factors) {
  attention_sum_tiles<R, D, true>(sums, values, weights, n, factors);
}
template <int R, int D>
LITZ_FN void attention_sums(float* sums, const float* values, const float* weights, int64_t n) {
  attention_sum_tiles<R, D, false>(sums, values, weights, n, nullptr);
}

LITZ_FN void attention_clear(float* sums, int64_t n) { __builtin_memset(sums, 0, sizeof(float) * n); }

LITZ_FN void attention_start(float* greatest, float* total, int64_t queries) {
  for (int64_t r = 0; r < queries; ++r) greatest[r] = -__builtin_inff();
  __builtin_memset(total, 0, sizeof(float) * queries);
}

template <int R, int E>
static void attention_queries(float* to, const float* from, int64_t count) {
  if (count < R) __builtin_memset(to, 0, sizeof(float) * R * E);
  transpose_tile(to, R, from, E, count, E);
}

}  // namespace litz

#endif
