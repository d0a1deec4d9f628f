// Matmuls of float, as blocks of rows by panels of prepacked columns (Goto and van de Geijn, 2008).
#ifndef LITZ_LIBRARY_GEMM_H
#define LITZ_LIBRARY_GEMM_H
#include <litz/library/tiles.h>

namespace litz {

// Finishes `count` rows whose sums are in memory, element by element: strides and sizes that vectors do not have.
static __attribute__((noinline)) void finish_elements(const tile_job& job, const float* sums, int count, bool first, int64_t m,
                                                      int64_t column) {
  const int64_t n = job.n - column < PANEL ? job.n - column : PANEL;
  for (int r = 0; r < count; ++r, sums += PANEL) {
    float* to = job.out + (m + r) * job.out_row + column * job.out_column;
    for (int64_t i = 0; i < n; ++i, to += job.out_column) {
      float value = sums[i] * job.alpha;
      if (!first) value += *to;
      else if (job.bias) value += job.beta * job.bias[(m + r) * job.bias_row + (column + i) * job.bias_column];
      *to = value;
    }
  }
}

// Prefetches a panel's width of rows that are accessed after the product.
LITZ_FN void prefetch_later(const tile_job& job, int64_t m, int64_t end, int64_t column) {
  for (int64_t i = 0; i < job.laters; ++i) {
    const float* row = job.later[i].start + m * job.later[i].step + column;
    for (int64_t r = m; r < end; ++r, row += job.later[i].step)
      for (int64_t v = 0; v < PANEL; v += LINE) __builtin_prefetch(row + v, 1, 2);
  }
}

// R rows from `m` on by one panel, for segments [begin, end). Each step prefetches a line at `ahead`, which moves on by
// `step_ahead` floats.
template <int R>
static void multiply_tile(const tile_job& job, int64_t m, int64_t begin, int64_t end, int64_t panel, const float* b,
                          const float* ahead, int64_t step_ahead) {
  vec<float> sums[R][VECTORS] = {};
  const float* rows[R];
  for (int64_t segment = begin; segment < end; ++segment) {
    job.pointers(job.rows, m, segment, R, rows);
    const int64_t length = (segment + 1) % job.chunks ? job.length : job.last;
    for (int64_t k = 0; k < length;) {
      if (job.ahead)
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) __builtin_prefetch(rows[r] + k + R * job.ahead, 0, 2);
      const int64_t stop = k + LINE < length ? k + LINE : length;
      for (; k < stop; ++k, b += PANEL, ahead += step_ahead) {
        vec<float> columns[VECTORS];
        __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; ++v) columns[v] = load(b + v * LITZ_LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const vec<float> element = broadcast<float>(rows[r][k]);
#pragma GCC unroll 2
          for (int v = 0; v < VECTORS; ++v) sums[r][v] = mul_add(element, columns[v], sums[r][v]);
        }
      }
    }
  }
  const int64_t column = panel * PANEL;
  const bool first = begin == 0, biased = first && job.bias;
  if (job.n - column < PANEL || job.out_column != 1 || (biased && job.bias_column != 1)) {
    alignas(64) float elements[R * PANEL];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < VECTORS; ++v) store(elements + r * PANEL + v * LITZ_LANES, sums[r][v]);
    return finish_elements(job, elements, R, first, m, column);
  }
  const vec<float> alpha = broadcast<float>(job.alpha), beta = broadcast<float>(first ? job.beta : 1);
  const int64_t step = first ? job.bias_row : job.out_row;
  float* to = job.out + m * job.out_row + column;
  const float* more = first ? job.bias + m * step + column : to;
  const bool plain = first && !job.bias;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; ++v) {
      vec<float> sum = sums[r][v] * alpha;
      if (!plain) sum = mul_add(load(more + r * step + v * LITZ_LANES), beta, sum);
      store(to + r * job.out_row + v * LITZ_LANES, sum);
    }
}

typedef void (*tile_function)(const tile_job&, int64_t, int64_t, int64_t, int64_t, const float*,
                              const float*, int64_t);
template <int R>
LITZ_FN tile_function tile_of(int rows) {
  if constexpr (R == 1) return multiply_tile<1>;
  else return rows == R ? multiply_tile<R> : tile_of<R - 1>(rows);
}

struct copied_rows {
  const float* start;
  int64_t first, row;
};
static void copied_pointers(const void* self, int64_t m, int64_t, int count, const float** rows) {
  const auto* copies = (const copied_rows*)self;
  for (int r = 0; r < count; ++r) rows[r] = copies->start + (m - copies->first + r) * copies->row;
}

static void multiply_block(const tile_job& job, int64_t begin, int64_t end, int64_t segment, int64_t stop, int64_t at,
                           int64_t length, int64_t first, int64_t last) {
  const int64_t count = (end - begin + MOST_ROWS - 1) / MOST_ROWS;
  for (int64_t panel = first; panel < last; ++panel) {
    const float* b = job.prepacked + (panel * job.k + at) * PANEL;
    // The tiles of all parts share the prefetches of what is multiplied next.
    const float* next = b + (panel + 1 < last ? job.k : length) * PANEL;
    const int64_t shares = job.parts > 1 ? job.parts * count : count, share = job.part * count;
    const int64_t each = (length + shares - 1) / shares * PANEL, step = (PANEL + shares - 1) / shares;
    for (int64_t tile = 0; tile < count; ++tile) {  // of nearly equal heights, since flat ones wait for sums
      const int64_t m = begin + cell_begin(end - begin, count, tile), until = begin + cell_begin(end - begin, count, tile + 1);
      if (segment == 0) prefetch_later(job, m, until, panel * PANEL);
      tile_of<MOST_ROWS>(int(until - m))(job, m, segment, stop, panel, b, next + (share + tile) * each, step);
    }
  }
}

static void multiply_tiles(const tile_job& job, int64_t begin, int64_t end, int64_t first, int64_t last, float* copies) {
  const int64_t segments = job.taps * job.chunks;
  // Taps of a block, of nearly equal blocks.
  const int64_t blocks = job.k / (DEPTH + DEPTH / 2) + 1;
  const int64_t together = job.copy || job.chunks > 1 ? 1 : (job.taps + blocks - 1) / blocks;
  for (int64_t m = begin; m < end; m += CHUNK) {
    const int64_t until = m + CHUNK < end ? m + CHUNK : end;
    int64_t at = 0;
    for (int64_t segment = 0; segment < segments;) {
      const int64_t stop = segment + together < segments ? segment + together : segments;
      int64_t length = 0;
      for (int64_t s = segment; s < stop; ++s) length += (s + 1) % job.chunks ? job.length : job.last;
      if (job.copy) {
        job.copy(job.rows, m, until, at, length, copied_row(job.length), copies);
        const copied_rows source = {copies, m, copied_row(job.length)};
        tile_job own = job;
        own.rows = &source;
        own.pointers = copied_pointers;
        own.copy = nullptr;
        multiply_block(own, m, until, segment, stop, at, length, first, last);
      } else {
        multiply_block(job, m, until, segment, stop, at, length, first, last);
      }
      at += length;
      segment = stop;
    }
  }
}

static void prepack_panel(const float* b, int64_t row, int64_t column, int64_t k, int64_t columns, float* prepacked) {
  constexpr int64_t ROWS = 16;
  for (int64_t at = 0; at < k; at += ROWS) {
    const int64_t end = at + ROWS < k ? at + ROWS : k;
    if (column == 1) {
      for (int64_t i = at; i < end; ++i)
        for (int64_t v = 0; v < PANEL; v += LITZ_LANES)
          store(prepacked + i * PANEL + v, columns - v >= LITZ_LANES ? load(b + i * row + v)
                                        : columns > v             ? load_partial(b + i * row + v, columns - v)
                                                                  : broadcast<float>(0));
      continue;
    }
    for (int64_t j = 0; j < PANEL; ++j)
      for (int64_t i = at; i < end; ++i) prepacked[i * PANEL + j] = j < columns ? b[i * row + j * column] : 0;
  }
}

static grid divide_among(int64_t m, int64_t n, int64_t threads) {
  const int64_t tall = (m + MOST_ROWS - 1) / MOST_ROWS, wide = panels(n);
  grid best = {1, 1};
  int64_t least = -1;
  for (int64_t rows = 1; rows <= threads && rows <= tall; ++rows) {
    const int64_t columns = threads / rows < wide ? threads / rows : wide;
    const int64_t each_rows = (tall + rows - 1) / rows, each_columns = (wide + columns - 1) / columns;
    // The largest cell decides the time; of equal ones, that which reads least.
    const int64_t cost = each_rows * each_columns * 4096 + each_rows + each_columns;
    if (least < 0 || cost < least) {
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

struct matrix_rows {
  const float* start;
  int64_t row, column, length;
};
static void matrix_pointers(const void* self, int64_t m, int64_t segment, int count, const float** rows) {
  const auto* of = (const matrix_rows*)self;
  const float* at = of->start + m * of->row + segment * of->length;
  for (int r = 0; r < count; ++r) rows[r] = at + r * of->row;
}
static void copy_matrix(const void* self, int64_t begin, int64_t end, int64_t at, int64_t length, int64_t step, float* to) {
  const auto* of = (const matrix_rows*)self;
  for (int64_t m = begin; m < end; ++m, to += step) {
    const float* from = of->start + m * of->row + at * of->column;
    if (of->column == 1) __builtin_memcpy(to, from, length * int64_t(sizeof(float)));
    else
      for (int64_t k = 0; k < length; ++k) to[k] = from[k * of->column];
  }
}

static bool reads_in_place(const litz_product& of) {
  // Rows that are a multiple of 4 KB apart have one place in the L1 cache.
  return of.left_column == 1 && (of.left_row % 1024 || of.m <= 8);
}

static grid cells_of(const litz_runtime* rt, const litz_product& of) {
  if (of.batch <= 0 || of.m <= 0 || of.n <= 0) return {1, 1};
  const int64_t threads = useful_threads(rt, double(of.batch) * of.m * of.n * of.k);
  return of.batch >= threads ? grid{1, 1} : divide_among(of.m, of.n, threads / of.batch);
}

static int64_t copies_bytes(const litz_product& of) {
  int64_t chunks, length, last;
  divide_depth(of.k, chunks, length, last);
  return aligned((of.m < CHUNK ? of.m : CHUNK) * copied_row(length) * int64_t(sizeof(float)));
}

static int64_t litz_prepacked_bytes(int64_t n, int64_t k) { return panels(n) * PANEL * k * int64_t(sizeof(float)); }

static void litz_prepack(litz_runtime* rt, int64_t n, int64_t k, const void* b, int64_t row, int64_t column, void* prepacked) {
  parallel_for(rt, 0, panels(n), 65536 / (k * PANEL + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      prepack_panel((const float*)b + panel * PANEL * column, row, column, k, n - panel * PANEL, (float*)prepacked + panel * k * PANEL);
  });
}

static int64_t litz_product_scratch(const litz_runtime* rt, litz_product of, bool prepacked) {
  const grid cells = cells_of(rt, of);
  return (prepacked ? 0 : of.batch * litz_prepacked_bytes(of.n, of.k)) + of.batch * cells.rows * cells.columns * copies_bytes(of);
}

static void litz_multiply(litz_runtime* rt, const litz_product* given, char* scratch) {
  const litz_product of = *given;
  if (of.batch <= 0 || of.m <= 0 || of.n <= 0) return;
  const float* prepacked = (const float*)of.prepacked;
  const int64_t wide = panels(of.n), step = of.prepacked ? 0 : wide * PANEL * of.k;
  if (!prepacked) {
    prepacked = (const float*)scratch;
    parallel_for(rt, 0, of.batch * wide, 65536 / (of.k * PANEL + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t batch = item / wide, panel = item % wide;
        const float* right = (const float*)of.right + batch * of.right_batch + panel * PANEL * of.right_column;
        prepack_panel(right, of.right_row, of.right_column, of.k, of.n - panel * PANEL, (float*)scratch + item * of.k * PANEL);
      }
    });
    scratch += of.batch * litz_prepacked_bytes(of.n, of.k);
  }
  const grid cells = cells_of(rt, of);
  const int64_t each = cells.rows * cells.columns, copies = copies_bytes(of);
  parallel_for(rt, 0, of.batch * each, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t batch = item / each, cell = item % each, row = cell / cells.columns, column = cell % cells.columns;
      tile_job job = {};
      job.taps = 1;
      divide_depth(of.k, job.chunks, job.length, job.last);
      job.n = of.n;
      job.k = of.k;
      job.prepacked = prepacked + batch * step;
      job.out = (float*)of.out + batch * of.out_batch;
      job.out_row = of.out_row;
      job.out_column = of.out_column;
      job.bias = of.bias && of.beta != 0 ? (const float*)of.bias + batch * of.bias_batch : nullptr;
      job.bias_row = of.bias_row;
      job.bias_column = of.bias_column;
      job.alpha = of.alpha;
      job.beta = of.beta;
      const matrix_rows left = {(const float*)of.left + batch * of.left_batch, of.left_row, of.left_column, job.length};
      job.rows = &left;
      job.pointers = matrix_pointers;
      job.copy = reads_in_place(of) ? nullptr : copy_matrix;
      multiply_tiles(job, cell_begin(of.m, cells.rows, row), cell_begin(of.m, cells.rows, row + 1),
                     cell_begin(wide, cells.columns, column), cell_begin(wide, cells.columns, column + 1),
                     (float*)(scratch + item * copies));
    }
  });
}

}  // namespace litz

#endif
