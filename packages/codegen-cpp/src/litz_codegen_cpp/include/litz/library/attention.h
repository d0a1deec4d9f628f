// Attention of float, a block of keys at a time, with sums that are rescaled when a maximum grows (Dao et al., 2022).
#ifndef LITZ_LIBRARY_ATTENTION_H
#define LITZ_LIBRARY_ATTENTION_H
#include <litz/library/gemm.h>
#include <litz/math_exp.h>
#include <litz/math_log.h>

namespace litz {

constexpr int64_t QUERIES = 4 * MOST_ROWS;  // rows of a block
constexpr int64_t KEYS = 256;               // columns of a block: a multiple of PANEL
static_assert(KEYS % PANEL == 0, "blocks are whole panels");
constexpr float LEAST = -__builtin_inff();

struct strided_rows {
  const float* start;
  int64_t row, length;
};
static void strided_pointers(const void* self, int64_t m, int64_t segment, int count, const float** rows) {
  const auto* of = (const strided_rows*)self;
  for (int r = 0; r < count; ++r) rows[r] = of->start + (m + r) * of->row + segment * of->length;
}
static void copy_strided(const void* self, int64_t begin, int64_t end, int64_t at, int64_t length, int64_t step, float* to) {
  const auto* of = (const strided_rows*)self;  // `length` of a row's elements is their stride here
  for (int64_t m = begin; m < end; ++m, to += step)
    for (int64_t k = 0; k < length; ++k) to[k] = of->start[m * of->row + (at + k) * of->length];
}

// The memory that one thread has.
struct attention_memory {
  float *keys, *values;  // prepacked
  float *scores, *sums;  // of a block of queries: KEYS and `width` columns
  float *query;          // a block of queries whose elements are not adjacent
  float *most, *total;   // of each row: the maximum so far, and the sum of exponentials
};
static int64_t place_memory(const litz_attention& of, char* start, attention_memory* found) {
  int64_t end = 0;
  const auto take = [&](int64_t elements) {
    float* at = (float*)(start + end);
    end += aligned(elements * int64_t(sizeof(float)));
    return at;
  };
  attention_memory all;
  all.keys = take(litz_prepacked_bytes(of.keys, of.width) / int64_t(sizeof(float)));
  all.values = take(litz_prepacked_bytes(of.width, of.keys) / int64_t(sizeof(float)));
  all.scores = take(QUERIES * KEYS);
  all.sums = take(QUERIES * of.width);
  all.query = take(QUERIES * copied_row(of.width));
  all.most = take(QUERIES);
  all.total = take(QUERIES);
  if (found) *found = all;
  return end;
}

static void prepack_matrix(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* prepacked) {
  for (int64_t panel = 0; panel < panels(n); ++panel)
    prepack_panel(b + panel * PANEL * column, row, column, k, n - panel * PANEL, prepacked + panel * PANEL * k);
}

// Scores of a row become exponentials; returns the factor by which its earlier sums shrink.
static float exponentials(float* scores, int64_t count, int64_t padded, float& most, float& total) {
  for (int64_t j = count; j < padded; ++j) scores[j] = LEAST;
  vec<float> highest = broadcast<float>(most);
  for (int64_t j = 0; j < padded; j += LITZ_LANES) highest = maximum(highest, load(scores + j));
  float now = lane(highest, 0);
  for (int i = 1; i < LITZ_LANES; ++i) now = maximum(now, lane(highest, i));
  const float base = now == LEAST ? 0 : now;  // a row without any key yet
  vec<float> sum = broadcast<float>(0);
  for (int64_t j = 0; j < padded; j += LITZ_LANES) {
    const vec<float> value = exp(load(scores + j) - broadcast<float>(base));
    store(scores + j, value);
    sum = sum + value;
  }
  const float factor = exp(most - base);
  float added = 0;
  for (int i = 0; i < LITZ_LANES; ++i) added += lane(sum, i);
  total = total * factor + added;
  most = now;
  return factor;
}

// The scores of `count` queries from `first` on with `keys` keys from `key` on, and what they add to the sums.
static void attend_block(const litz_attention& of, const attention_memory& in, const strided_rows& query, const float* mask,
                         int64_t first, int64_t count, int64_t key, int64_t keys) {
  tile_job scores = {};
  scores.rows = &query;
  scores.pointers = strided_pointers;
  scores.taps = 1;
  divide_depth(of.width, scores.chunks, scores.length, scores.last);
  scores.n = keys;
  scores.k = of.width;
  scores.prepacked = in.keys + key * of.width;
  scores.out = in.scores;
  scores.out_row = KEYS;
  scores.out_column = 1;
  scores.alpha = of.scale;
  multiply_tiles(scores, 0, count, 0, panels(keys), nullptr);
  const int64_t padded = (keys + LITZ_LANES - 1) / LITZ_LANES * LITZ_LANES;
  for (int64_t r = 0; r < count; ++r) {
    float* row = in.scores + r * KEYS;
    const int64_t seen = of.causal ? first + r + 1 - key : keys;
    const int64_t known = seen < 0 ? 0 : seen < keys ? seen : keys;
    if (mask)
      for (int64_t j = 0; j < known; ++j) row[j] += mask[(first + r) * of.mask_strides[2] + (key + j) * of.mask_strides[3]];
    const float factor = exponentials(row, known, padded, in.most[r], in.total[r]);
    float* sums = in.sums + r * of.width;
    if (key)
      for (int64_t j = 0; j < of.width; ++j) sums[j] *= factor;
  }
  const strided_rows weights = {in.scores, KEYS, KEYS};
  tile_job sums = {};
  sums.rows = &weights;
  sums.pointers = strided_pointers;
  sums.taps = sums.chunks = 1;
  sums.length = sums.last = keys;
  sums.n = of.width;
  sums.k = of.keys;
  sums.prepacked = in.values + key * PANEL;
  sums.out = in.sums;
  sums.out_row = of.width;
  sums.out_column = 1;
  sums.bias = key ? in.sums : nullptr;
  sums.bias_row = of.width;
  sums.bias_column = 1;
  sums.alpha = sums.beta = 1;
  multiply_tiles(sums, 0, count, 0, panels(of.width), nullptr);
}

static void attend_rows(const litz_attention& of, const attention_memory& in, int64_t batch, int64_t head, int64_t first) {
  const int64_t count = of.queries - first < QUERIES ? of.queries - first : QUERIES;
  const float* start = (const float*)of.query + batch * of.query_strides[0] + head * of.query_strides[1] + first * of.query_strides[2];
  int64_t chunks, length, last;
  divide_depth(of.width, chunks, length, last);
  strided_rows query = {start, of.query_strides[2], length};
  if (of.query_strides[3] != 1) {
    const strided_rows source = {start, of.query_strides[2], of.query_strides[3]};
    copy_strided(&source, 0, count, 0, of.width, copied_row(of.width), in.query);
    query = {in.query, copied_row(of.width), length};
  }
  const float* mask = of.mask ? (const float*)of.mask + batch * of.mask_strides[0] + head * of.mask_strides[1] : nullptr;
  for (int64_t r = 0; r < count; ++r) {
    in.most[r] = LEAST;
    in.total[r] = 0;
  }
  const int64_t seen = of.causal && first + count < of.keys ? first + count : of.keys;
  for (int64_t key = 0; key < seen; key += KEYS) attend_block(of, in, query, mask, first, count, key, seen - key < KEYS ? seen - key : KEYS);
  float* out = (float*)of.out + batch * of.out_strides[0] + head * of.out_strides[1] + first * of.out_strides[2];
  for (int64_t r = 0; r < count; ++r, out += of.out_strides[2]) {
    const float factor = in.total[r] == 0 ? 0 : 1 / in.total[r];
    const float* sums = in.sums + r * of.width;
    for (int64_t j = 0; j < of.width; ++j) out[j * of.out_strides[3]] = seen ? sums[j] * factor : 0;
    if (!of.logsumexp) continue;
    float* to = (float*)of.logsumexp + batch * of.logsumexp_strides[0] + head * of.logsumexp_strides[1];
    to[(first + r) * of.logsumexp_strides[2]] = in.most[r] + log(in.total[r]);
  }
}

static int64_t slots_of(const litz_runtime* rt, const litz_attention& of) {
  const int64_t items = of.batch * of.heads * ((of.queries + QUERIES - 1) / QUERIES);
  const int64_t threads = useful_threads(rt, 2.0 * of.batch * of.heads * of.queries * of.keys * of.width);
  return items < threads ? items : threads;
}

static int64_t litz_attention_scratch(const litz_runtime* rt, int64_t batch, int64_t heads, int64_t queries, int64_t keys,
                                          int64_t width) {
  litz_attention of = {};
  of.batch = batch;
  of.heads = heads;
  of.queries = queries;
  of.keys = keys;
  of.width = width;
  return slots_of(rt, of) * place_memory(of, nullptr, nullptr);
}

static void litz_attend(litz_runtime* rt, const litz_attention* given, char* scratch) {
  const litz_attention of = *given;
  const int64_t blocks = (of.queries + QUERIES - 1) / QUERIES, items = of.batch * of.heads * blocks, slots = slots_of(rt, of);
  parallel_for(rt, 0, slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      attention_memory in;
      place_memory(of, scratch + slot * place_memory(of, nullptr, nullptr), &in);
      int64_t prepacked = -1;
      for (int64_t item = cell_begin(items, slots, slot); item < cell_begin(items, slots, slot + 1); ++item) {
        const int64_t pair = item / blocks, batch = pair / of.heads, head = pair % of.heads;
        if (pair != prepacked) {
          const float* key = (const float*)of.key + batch * of.key_strides[0] + head * of.key_strides[1];
          const float* value = (const float*)of.value + batch * of.value_strides[0] + head * of.value_strides[1];
          prepack_matrix(key, of.key_strides[3], of.key_strides[2], of.width, of.keys, in.keys);
          prepack_matrix(value, of.value_strides[2], of.value_strides[3], of.keys, of.width, in.values);
          prepacked = pair;
        }
        attend_rows(of, in, batch, head, item % blocks * QUERIES);
      }
    }
  });
}

}  // namespace litz

#endif
