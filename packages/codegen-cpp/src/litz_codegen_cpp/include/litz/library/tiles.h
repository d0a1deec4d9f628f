// Products of rows of one matrix with panels of another: the inner loops of matmuls, convolutions and attention.
//
// The right matrix is prepacked: panels of PANEL columns, each with all its rows one after another, the last panel padded
// with zeros. Rows of the left matrix are read where they lie. A row is a number of *segments*, contiguous runs of
// elements that may lie anywhere: one after another for a matrix, one for each tap of a filter for a convolution.
#ifndef LITZ_LIBRARY_TILES_H
#define LITZ_LIBRARY_TILES_H
#include <litz/float_ops.h>
#include <litz/memory.h>

#include <litz/library/library.h>

// A routine that is compiled once for many units is a template with hidden instances. Units compile those that they use,
// or LITZ_LINKED declares them, and libraries that units link define LITZ_PANELS or LITZ_CHANNELS as `template`.
#define LITZ_ROUTINE __attribute__((noinline, visibility("hidden")))
#ifdef LITZ_LINKED
#define LITZ_PANELS extern template
#define LITZ_CHANNELS extern template
#endif

namespace litz {

constexpr int VECTORS = 2;
constexpr int64_t PANEL = VECTORS * LITZ_LANES;
// Accumulators, a row of a panel and a broadcast element fill the registers: 32 of them, or 16. On aarch64 elements are
// loaded into registers of their own, and GCC 12 keeps so many of them that it spills accumulators from 11 rows on.
#if defined(LITZ_AVX512)
constexpr int MOST_ROWS = 14;
#elif defined(__aarch64__)
constexpr int MOST_ROWS = 10;
#else
constexpr int MOST_ROWS = 6;
#endif
constexpr int64_t LINE = 16;    // floats of a cache line
constexpr int64_t DEPTH = 512;  // summed elements of a block: a panel of so many rows stays in the L2 cache
constexpr int64_t CHUNK = 240;  // rows of a block, for the same reason

// Writes the start of each of `count` rows from row `m` on in a segment.
typedef void (*row_pointers)(const void* self, int64_t m, int64_t segment, int count, const float** rows);

// Writes elements [at, at + length) of rows [begin, end) to rows of `step` elements.
typedef void (*row_copier)(const void* self, int64_t begin, int64_t end, int64_t at, int64_t length, int64_t step, float* to);

// Rows of floats of a buffer, one for each row of the left matrix, which a kernel reads or writes after the product.
struct pixel_rows {
  const float* start;
  int64_t step;
};

struct tile_job {
  const void* rows;
  row_pointers pointers;
  int64_t taps, chunks;        // segments of a row are taps * chunks
  int64_t length, last;        // elements of a segment, and of the last one of each tap
  int64_t n, k;                // columns of the right matrix, and its rows: elements of all segments
  const float* prepacked;
  float* out;
  int64_t out_row, out_column;
  const float* bias;           // may be null
  int64_t bias_row, bias_column;
  float alpha, beta;           // alpha * product + beta * bias
  int64_t part, parts;         // of all jobs that use the same panels one after another, where not 0
  int64_t ahead;               // elements from one row to the next where rows to come are prefetched, or 0
  const pixel_rows* later;     // prefetched during the product
  int64_t laters;              // their number
  row_copier copy;             // not null: rows are copied, block by block, and not read by `pointers`
};

// Multiplies rows [begin, end) by panels [first, last). `copies` has space for CHUNK rows where
// `copy` is given.
static void multiply_tiles(const tile_job& job, int64_t begin, int64_t end, int64_t first, int64_t last, float* copies);

LITZ_FN int64_t panels(int64_t n) { return (n + PANEL - 1) / PANEL; }
LITZ_FN int64_t copied_row(int64_t length) { return length + 16; }  // rows a power of two apart share cache lines

// The division of `k` elements into segments of at most DEPTH.
LITZ_FN void divide_depth(int64_t k, int64_t& chunks, int64_t& length, int64_t& last) {
  chunks = k <= DEPTH ? 1 : (k + DEPTH - 1) / DEPTH;
  length = (k + chunks - 1) / chunks;
  last = k - (chunks - 1) * length;
}

// One panel of a matrix: `columns` of its columns, of element strides `row` and `column`.
static void prepack_panel(const float* b, int64_t row, int64_t column, int64_t k, int64_t columns, float* prepacked);

// The number of cells, rows by columns, in which `threads` share a product.
struct grid {
  int64_t rows, columns;
};
static grid divide_among(int64_t m, int64_t n, int64_t threads);

LITZ_FN int64_t cell_begin(int64_t size, int64_t cells, int64_t cell) { return size * cell / cells; }

// Threads that are worth using for so many multiplications.
LITZ_FN int64_t useful_threads(const litz_runtime* rt, double multiplications) {
  const int64_t wanted = int64_t(multiplications / 100000) + 1, threads = slot_count(rt, 0, int64_t(1) << 30, 1);
  return wanted < threads ? wanted : threads;
}

}  // namespace litz

#endif
