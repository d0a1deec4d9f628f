// Attention of R rows, fewer than a vector has lanes, by a block of keys at a time: keys and values are read where they
// are, once and in order, so that memory is the limit. Lanes are the elements of a head; scores of a row are contiguous,
// ATTENTION_KEYS apart.
//
// Keys and values are `row` elements apart, of float, bf16 or f16.
//
//   void attention_few_scores<R, E>(scores, keys, row, queries, n)
//        scores[r][k] = sum over e of keys[k][e] * queries[r][e], k < n
//   bool attention_few_weights<R, D>(scores, n, values, row, greatest, total, factors)      as attention_weights
//   void attention_few_sums<R, D>(sums, values, row, weights, n, factors)
//        sums[r][d] = sums[r][d] * factors[r] + sum over k of values[k][d] * weights[r][k]
#ifndef LITZ_ATTENTION_FEW_H
#define LITZ_ATTENTION_FEW_H
#include "attention.h"
#include "reduce.h"

namespace litz {

constexpr int ATTENTION_KEYS = 64;
// Keys and values that are prefetched: 16 KB ahead, by rows, since those of a head may lie apart.
template <int E, class T>
constexpr int64_t attention_ahead = (16 << 10) / (E * int64_t(sizeof(T)));
template <int E, class T>
LITZ_FN void attention_fetch(const T* row) {
  for (int64_t at = 0; at < int64_t(E * sizeof(T)); at += 64) prefetch_stream(row, at);
}
// The most rows of a tile, the keys of a tile, and the most registers of its sums.
#if defined(LITZ_AVX512)
constexpr int ATTENTION_FEW_ROWS = 6, ATTENTION_FEW_KEYS = 4, ATTENTION_FEW_SUMS = 24;
#elif defined(__aarch64__)
constexpr int ATTENTION_FEW_ROWS = 5, ATTENTION_FEW_KEYS = 4, ATTENTION_FEW_SUMS = 20;
#else
constexpr int ATTENTION_FEW_ROWS = 4, ATTENTION_FEW_KEYS = 2, ATTENTION_FEW_SUMS = 8;
#endif
// Rows of a tile: those of all tiles are nearly equal.
template <int R>
constexpr int attention_few_tiles = (R + ATTENTION_FEW_ROWS - 1) / ATTENTION_FEW_ROWS;

// The lanes [at, E) of a vector, other lanes 0; all of them in vectors but the last.
template <int E, class T>
LITZ_FN vec<float> attention_element(const T* from, int64_t at) {
  if constexpr (E % LITZ_LANES == 0) return load(from + at);
  else return load_partial(from + at, E - at);
}
template <int E, class T>
constexpr bool attention_in_pairs = false;
template <int E>
constexpr bool attention_in_pairs<E, bf16> = E % (2 * LITZ_LANES) == 0;

// The products of keys and rows lane by lane: parts[r][k], LITZ_LANES keys of a row next to one another.
template <int ROWS, int KEYS, int E, class T>
LITZ_FN void attention_few_products(float* parts, const T* keys, int64_t row, const float* queries) {
  constexpr bool PAIRS = attention_in_pairs<E, T>;
  vec<float> sums[ROWS][KEYS] = {};
  for (int64_t e = 0; e < E; e += PAIRS ? 2 * LITZ_LANES : LITZ_LANES) {
    vec<float> key[KEYS], more[KEYS];
#pragma GCC unroll 4
    for (int k = 0; k < KEYS; ++k) {
      if constexpr (PAIRS) {
        const auto both = load_pair((const bf16*)keys + k * row + e);
        key[k] = both.lo, more[k] = both.hi;
      } else {
        key[k] = attention_element<E>(keys + k * row, e);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const vec<float> query = attention_element<E>(queries + r * E, e);
#pragma GCC unroll 4
      for (int k = 0; k < KEYS; ++k) sums[r][k] = mul_add(key[k], query, sums[r][k]);
      if constexpr (PAIRS) {
        const vec<float> next = load(queries + r * E + e + LITZ_LANES);
#pragma GCC unroll 4
        for (int k = 0; k < KEYS; ++k) sums[r][k] = mul_add(more[k], next, sums[r][k]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int k = 0; k < KEYS; ++k) store(parts + (r * LITZ_LANES + k) * LITZ_LANES, sums[r][k]);
}

// Sums of the lanes of each vector, of halves of blocks of 2 D lanes at a time; vectors keep their order.
template <int D, class V, int... I>
LITZ_FN V attention_half_sums(V a, V b, indices<I...>) {
  constexpr int n = int(sizeof...(I));
  return permute(a, b, indices<(I / D * 2 * D + I % D)...>()) + permute(a, b, indices<(I / D * 2 * D + I % D + D)...>());
}
template <int D, class V>
LITZ_FN V attention_halved(const float* parts) {
  constexpr int n = lane_count<V>;
  if constexpr (D == n) return raw_load<V>(parts);
  else
    return attention_half_sums<D>(attention_halved<2 * D, V>(parts), attention_halved<2 * D, V>(parts + n / (2 * D) * n),
                             indices_to<n>());
}
// The sums of LITZ_LANES vectors in memory, a lane each.
LITZ_FN vec<float> attention_lane_sums(const float* parts) {
  if constexpr (is_wide<vec<float>>) {
    alignas(64) float lanes[LITZ_LANES];
    for (int k = 0; k < LITZ_LANES; ++k) {
      lanes[k] = 0;
      for (int i = 0; i < LITZ_LANES; ++i) lanes[k] += parts[k * LITZ_LANES + i];
    }
    return load(lanes);
  } else {
    return attention_halved<1, vec<float>>(parts);
  }
}

// Each tile of rows prefetches its share of the keys, so that memory is read all the time.
template <int ROWS, int E, int TILES, class T>
static __attribute__((noinline)) void attention_few_dots(float* scores, const T* keys, int64_t row, const float* queries, int64_t n, int64_t tile) {
  alignas(64) float parts[ROWS * LITZ_LANES * LITZ_LANES];
  for (int64_t first = 0; first < n; first += LITZ_LANES) {
    const T* from = keys + first * row;
    const int64_t count = minimum<int64_t>(LITZ_LANES, n - first);
    int64_t k = 0, next = tile;
    for (; k + ATTENTION_FEW_KEYS <= count; k += ATTENTION_FEW_KEYS) {
      for (; next < k + ATTENTION_FEW_KEYS; next += TILES) attention_fetch<E>(from + (next + attention_ahead<E, T>) * row);
      attention_few_products<ROWS, ATTENTION_FEW_KEYS, E>(parts + k * LITZ_LANES, from + k * row, row, queries);
    }
    for (; k < count; ++k) attention_few_products<ROWS, 1, E>(parts + k * LITZ_LANES, from + k * row, row, queries);
    for (int64_t i = k * LITZ_LANES; i < LITZ_LANES * LITZ_LANES; ++i)
      for (int r = 0; r < ROWS; ++r) parts[r * LITZ_LANES * LITZ_LANES + i] = 0;
    for (int r = 0; r < ROWS; ++r) store(scores + r * ATTENTION_KEYS + first, attention_lane_sums(parts + r * LITZ_LANES * LITZ_LANES));
  }
}
template <int R, int E, class T>
LITZ_FN void attention_few_scores(float* scores, const T* keys, int64_t row, const float* queries, int64_t n) {
  constexpr int TILES = attention_few_tiles<R>, ROWS = R / TILES, TALL = R % TILES;  // the first ones have a row more
  for (int64_t tile = 0; tile < TALL; ++tile) {
    const int64_t first = tile * (ROWS + 1);
    attention_few_dots<ROWS + 1, E, TILES>(scores + first * ATTENTION_KEYS, keys, row, queries + first * E, n, tile);
  }
  for (int64_t tile = TALL; tile < TILES; ++tile) {
    const int64_t first = tile * ROWS + TALL;
    attention_few_dots<ROWS, E, TILES>(scores + first * ATTENTION_KEYS, keys, row, queries + first * E, n, tile);
  }
}

template <int D, class T>
static bool attention_few_finite(const T* values, int64_t row, int64_t n) {
  vec<float> products = broadcast<float>(0);  // those with 0, NaN for infinity
  for (int64_t k = 0; k < n; ++k)
    for (int64_t d = 0; d < D; d += LITZ_LANES)
      products = mul_add(attention_element<D>(values + k * row, d), broadcast<float>(0), products);
  return !any_true(ne(products, products));
}
template <int R, int D, class T>
static bool attention_few_weights(float* scores, int64_t n, const T* values, int64_t stride, float* greatest,
                                  float* total, float* factors) {
  const float least = -__builtin_inff();
  const int64_t whole = (n + LITZ_LANES - 1) / LITZ_LANES * LITZ_LANES;
  float tops[R], sums[R];
  bool any = false;
  for (int64_t r = 0; r < R; ++r) {
    float* row = scores + r * ATTENTION_KEYS;
    for (int64_t k = n; k < whole; ++k) row[k] = least;
    vec<float> top = load(row);
    for (int64_t k = LITZ_LANES; k < whole; k += LITZ_LANES) top = maximum(top, load(row + k));
    tops[r] = max_lanes(top);
    any |= !(tops[r] == least);
  }
  if (!any && attention_few_finite<D>(values, stride, n)) return false;
  for (int64_t r = 0; r < R; ++r) {
    float* row = scores + r * ATTENTION_KEYS;
    tops[r] = maximum(greatest[r], tops[r]);
    const vec<float> base = broadcast<float>(tops[r] == least ? 0 : tops[r]);
    vec<float> sum = broadcast<float>(0);
    for (int64_t k = 0; k < whole; k += LITZ_LANES) {
      const vec<float> weight = exp(load(row + k) - base);
      store(row + k, weight);
      sum = sum + weight;
    }
    sums[r] = sum_lanes(sum);
  }
  for (int64_t r = 0; r < R; r += LITZ_LANES) {
    const vec<float> top = load_partial(tops + r, R - r), base = select(eq(top, broadcast<float>(least)), broadcast<float>(0), top);
    const vec<float> factor = exp(load_partial(greatest + r, R - r) - base);
    store_partial(factors + r, R - r, factor);
    store_partial(greatest + r, R - r, top);
    store_partial(total + r, R - r, mul_add(load_partial(total + r, R - r), factor, load_partial(sums + r, R - r)));
  }
  return true;
}

// Rows [0, ROWS) of V vectors; the vectors of the last elements are partial.
template <int ROWS, int V, int D, int PASSES, class T>
LITZ_FN void attention_few_tile(float* sums, const T* values, int64_t row, const float* weights, int64_t n, const float* factors, int64_t d,
                                int64_t pass) {
  constexpr bool PAIRS = V % 2 == 0 && attention_in_pairs<D, T>;
  vec<float> tile[ROWS][V] = {};  // of this block alone, so that errors of long sums stay small
  for (int64_t k = 0; k < n; ++k) {
    if (k % PASSES == pass) attention_fetch<D>(values + (k + attention_ahead<D, T>) * row);
    vec<float> value[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v += PAIRS ? 2 : 1) {
      const T* at = values + k * row + d + v * LITZ_LANES;
      if constexpr (PAIRS) {
        const auto both = load_pair((const bf16*)at);
        value[v] = both.lo, value[v + 1] = both.hi;
      } else {
        value[v] = attention_element<D>(values + k * row, d + v * LITZ_LANES);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const vec<float> weight = broadcast<float>(weights[i * ATTENTION_KEYS + k]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) tile[i][v] = mul_add(value[v], weight, tile[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const int64_t at = d + v * LITZ_LANES;
      tile[i][v] = mul_add(attention_element<D>(sums + i * D, at), broadcast<float>(factors[i]), tile[i][v]);
      if constexpr (D % LITZ_LANES == 0) store(sums + i * D + at, tile[i][v]);
      else store_partial(sums + i * D + at, D - at, tile[i][v]);
    }
}
template <int ROWS, int D, int TILES, class T>
static __attribute__((noinline)) void attention_few_rows(float* sums, const T* values, int64_t row, const float* weights, int64_t n,
                                                         const float* factors, int64_t tile) {
  constexpr int V = ROWS * 8 <= ATTENTION_FEW_SUMS ? 8 : ROWS * 4 <= ATTENTION_FEW_SUMS ? 4 : 2, STEP = V * LITZ_LANES;
  constexpr int WHOLE = D / STEP, PASSES = TILES * (WHOLE > 0 ? WHOLE : 1);
  int64_t d = 0, pass = tile;
  for (; d + STEP <= D; d += STEP, pass += TILES)
    attention_few_tile<ROWS, V, D, PASSES>(sums, values, row, weights, n, factors, d, pass);
  if constexpr (V > 4)
    for (; d + 4 * LITZ_LANES <= D; d += 4 * LITZ_LANES, pass += TILES)
      attention_few_tile<ROWS, 4, D, PASSES>(sums, values, row, weights, n, factors, d, pass);
  for (; d < D; d += LITZ_LANES, pass += TILES)
    attention_few_tile<ROWS, 1, D, PASSES>(sums, values, row, weights, n, factors, d, pass);
}
template <int R, int D, class T>
LITZ_FN void attention_few_sums(float* sums, const T* values, int64_t row, const float* weights, int64_t n, const float* factors) {
  constexpr int TILES = attention_few_tiles<R>, ROWS = R / TILES, TALL = R % TILES;
  for (int64_t tile = 0; tile < TALL; ++tile) {
    const int64_t first = tile * (ROWS + 1);
    attention_few_rows<ROWS + 1, D, TILES>(sums + first * D, values, row, weights + first * ATTENTION_KEYS, n, factors + first, tile);
  }
  for (int64_t tile = TALL; tile < TILES; ++tile) {
    const int64_t first = tile * ROWS + TALL;
    attention_few_rows<ROWS, D, TILES>(sums + first * D, values, row, weights + first * ATTENTION_KEYS, n, factors + first, tile);
  }
}

}  // namespace litz

#endif
