// Tiles of convolutions whose sums a kernel finishes itself, while they are in the cache.
//
// A tile is the sums of some pixels and channels, a row of `step` floats for each pixel. Up to three axes of pixels and three
// summed ones are walked, the last ones fastest; windows tell which elements lie outside of the input and count as zero.
#ifndef LITZ_LIBRARY_TILED_SUMS_H
#define LITZ_LIBRARY_TILED_SUMS_H
#include <litz/library/gemm.h>

namespace litz {

constexpr int64_t TILE_ROWS = 8 * MOST_ROWS;  // pixels of a tile of one panel: its sums are in the L1 cache
constexpr int64_t COPY_BYTES = 48 << 10;      // of gathered rows
constexpr int64_t TILE_CHANNELS = 256;        // of a tile with a filter for each channel
constexpr int TILE_PIXELS = 8;                // of the same, in registers
constexpr int64_t TILE_FLOATS = TILE_ROWS * PANEL > TILE_PIXELS * TILE_CHANNELS ? TILE_ROWS * PANEL : TILE_PIXELS * TILE_CHANNELS;

struct window {
  int64_t pixel, inner;  // the axes
  int64_t stride, dilation, padding, limit;
};

struct tiled_sum {
  int64_t pixels[3], pixel_step[3];  // sizes, and steps in the left operand
  int64_t inner[3], inner_step[3];
  int64_t channels, windows;
  window window_of[2];
  const float* in;
  const float* weight;
};

LITZ_FN int64_t pixel_count(const tiled_sum& of) { return of.pixels[0] * of.pixels[1] * of.pixels[2]; }
LITZ_FN int64_t depth_of(const tiled_sum& of) { return of.inner[0] * of.inner[1] * of.inner[2]; }
LITZ_FN bool in_window(const window& w, const int64_t (&pixel)[3], const int64_t (&inner)[3]) {
  return uint64_t(pixel[w.pixel] * w.stride + inner[w.inner] * w.dilation - w.padding) < uint64_t(w.limit);
}
LITZ_FN bool in_windows(const tiled_sum& of, const int64_t (&pixel)[3], const int64_t (&inner)[3]) {
  bool all = true;
  for (int64_t k = 0; k < of.windows; ++k) all &= in_window(of.window_of[k], pixel, inner);
  return all;
}
LITZ_FN void pixel_of(const tiled_sum& of, int64_t m, int64_t (&pixel)[3]) {
  pixel[2] = m % of.pixels[2];
  pixel[1] = m / of.pixels[2] % of.pixels[1];
  pixel[0] = m / of.pixels[2] / of.pixels[1];
}
LITZ_FN void advance(const tiled_sum& of, int64_t (&pixel)[3]) {
  if (++pixel[2] < of.pixels[2]) return;
  pixel[2] = 0;
  if (++pixel[1] < of.pixels[1]) return;
  pixel[1] = 0;
  ++pixel[0];
}
LITZ_FN const float* element_of(const tiled_sum& of, const int64_t (&pixel)[3]) {
  return of.in + pixel[0] * of.pixel_step[0] + pixel[1] * of.pixel_step[1] + pixel[2] * of.pixel_step[2];
}

// Tiles that are worth a thread, where so many points of all are.
LITZ_FN int64_t tile_grain(int64_t tiles, int64_t points, int64_t grain) {
  return grain * tiles > points ? grain * tiles / points : 1;
}

// --- sums over channels: products with panels

alignas(64) static const float NO_ELEMENTS[DEPTH] = {};

struct walked_rows {
  const tiled_sum* of;
  int64_t chunks, length;
};
static void walked_pointers(const void* self, int64_t m, int64_t segment, int count, const float** rows) {
  const auto* walk = (const walked_rows*)self;
  const tiled_sum& of = *walk->of;
  const int64_t tap = segment / walk->chunks;
  const int64_t inner[3] = {tap / of.inner[1], tap % of.inner[1], 0};
  const int64_t offset = inner[0] * of.inner_step[0] + inner[1] * of.inner_step[1] + segment % walk->chunks * walk->length;
  int64_t pixel[3];
  pixel_of(of, m, pixel);
  for (int r = 0; r < count; ++r, advance(of, pixel))
    rows[r] = in_windows(of, pixel, inner) ? element_of(of, pixel) + offset : NO_ELEMENTS;
}

// The points of a summed axis that are in its windows at a pixel: [low, high).
LITZ_FN void points_inside(const tiled_sum& of, int64_t axis, const int64_t (&pixel)[3], int64_t& low, int64_t& high) {
  low = 0;
  high = of.inner[axis];
  for (int64_t k = 0; k < of.windows; ++k) {
    if (of.window_of[k].inner != axis) continue;
    int64_t inner[3] = {0, 0, 0};
    while (low < high && (inner[axis] = low, !in_window(of.window_of[k], pixel, inner))) ++low;
    while (low < high && (inner[axis] = high - 1, !in_window(of.window_of[k], pixel, inner))) --high;
  }
}

// Copies all elements of rows, one by one. A row has `step` floats.
static void gather_rows(const void* self, int64_t begin, int64_t end, int64_t, int64_t, int64_t step, float* to) {
  const tiled_sum& of = *((const walked_rows*)self)->of;
  const int64_t size0 = of.inner[0], size1 = of.inner[1], size2 = of.inner[2];
  const int64_t step0 = of.inner_step[0], step1 = of.inner_step[1], step2 = of.inner_step[2];
  int64_t pixel[3];
  pixel_of(of, begin, pixel);
  for (int64_t m = begin; m < end; ++m, advance(of, pixel), to += step) {
    const float* start = element_of(of, pixel);
    int64_t low[3], high[3];
    for (int64_t axis = 0; axis < 3; ++axis) points_inside(of, axis, pixel, low[axis], high[axis]);
    const bool all = !low[0] && !low[1] && !low[2] && high[0] == size0 && high[1] == size1 && high[2] == size2;
    float* next = to;
    for (int64_t i = 0; i < size0; ++i)
      for (int64_t j = 0; j < size1; ++j) {
        const float* row = start + i * step0 + j * step1;
        if (all) {
          for (int64_t k = 0; k < size2; ++k) *next++ = row[k * step2];
          continue;
        }
        const bool some = i >= low[0] && i < high[0] && j >= low[1] && j < high[1];
        for (int64_t k = 0; k < size2; ++k) *next++ = some && k >= low[2] && k < high[2] ? row[k * step2] : 0;
      }
  }
}

struct tile_range {
  int64_t begin, end;      // pixels
  int64_t first, last;     // channels
  int64_t step;            // floats of a row of sums
};

// The division of a sum over channels into tiles: of one panel, or of all panels where rows are gathered.
struct panel_tiles {
  int64_t rows, columns;  // numbers of tiles
  int64_t wide;           // panels of a tile
};
LITZ_FN panel_tiles tiles_of_panels(const tiled_sum& of, bool gathered) {
  panel_tiles found;
  const int64_t all = panels(of.channels), pixels = pixel_count(of);
  int64_t most = TILE_ROWS;
  found.wide = 1;
  if (gathered) {
    found.wide = all < 4 ? all : 4;
    const int64_t space = COPY_BYTES / 4 / copied_row(depth_of(of));
    most = TILE_ROWS / found.wide < space ? TILE_ROWS / found.wide : space;
    most = most < 1 ? 1 : most / MOST_ROWS > 0 ? most / MOST_ROWS * MOST_ROWS : most;
  }
  found.columns = (all + found.wide - 1) / found.wide;
  found.rows = (pixels + most - 1) / most;
  // Two or four threads take equal numbers of few tiles.
  if (found.columns * found.rows < 32 && found.columns % 4) found.rows = (found.rows + 3) / 4 * 4;
  if (found.rows > pixels) found.rows = pixels;
  return found;
}
LITZ_FN tile_range tile_of_panels(const tiled_sum& of, const panel_tiles& tiles, int64_t tile) {
  const int64_t row = tile / tiles.columns, panel = tile % tiles.columns * tiles.wide, pixels = pixel_count(of);
  const int64_t last = (panel + tiles.wide) * PANEL;
  return {cell_begin(pixels, tiles.rows, row), cell_begin(pixels, tiles.rows, row + 1), panel * PANEL,
          last < of.channels ? last : of.channels, tiles.wide * PANEL};
}

static __attribute__((noinline)) void sum_panels(const tiled_sum& of, bool gathered, const tile_range& at, float* sums) {
  tile_job job = {};
  walked_rows walk = {&of, 1, 0};
  alignas(64) float copies[COPY_BYTES / 4];
  job.k = depth_of(of);
  if (gathered) {
    job.taps = job.chunks = 1;
    job.length = job.last = job.k;
    job.copy = gather_rows;
  } else {
    job.taps = of.inner[0] * of.inner[1];
    divide_depth(of.inner[2], job.chunks, job.length, job.last);
    job.pointers = walked_pointers;
  }
  walk.chunks = job.chunks;
  walk.length = job.length;
  job.rows = &walk;
  job.n = panels(of.channels) * PANEL;  // the last panel is padded, as are rows of sums
  job.prepacked = of.weight;
  job.out = sums - at.begin * at.step - at.first;
  job.out_row = at.step;
  job.out_column = 1;
  job.alpha = job.beta = 1;
  multiply_tiles(job, at.begin, at.end, at.first / PANEL, panels(at.last), copies);
}

// --- a filter for each channel

struct channel_tiles {
  int64_t rows, columns, chunks;  // rows of pixels, tiles of a row, and tiles along the channels
};
LITZ_FN channel_tiles tiles_of_channels(const tiled_sum& of) {
  return {of.pixels[0] * of.pixels[1], (of.pixels[2] + TILE_PIXELS - 1) / TILE_PIXELS,
          (of.channels + TILE_CHANNELS - 1) / TILE_CHANNELS};
}
LITZ_FN tile_range tile_of_channels(const tiled_sum& of, const channel_tiles& tiles, int64_t tile) {
  const int64_t chunk = tile % tiles.chunks, column = tile / tiles.chunks % tiles.columns;
  const int64_t start = tile / tiles.chunks / tiles.columns * of.pixels[2];
  const int64_t all = panels(of.channels), last = cell_begin(all, tiles.chunks, chunk + 1) * PANEL;
  return {start + cell_begin(of.pixels[2], tiles.columns, column), start + cell_begin(of.pixels[2], tiles.columns, column + 1),
          cell_begin(all, tiles.chunks, chunk) * PANEL, last < of.channels ? last : of.channels, TILE_CHANNELS};
}

// `P` adjacent pixels, for filter points [low, high) of rows and [left, right) of columns.
template <int P>
static void sum_taps(const tiled_sum& of, const float* in, int64_t low, int64_t high, int64_t left, int64_t right,
                     const tile_range& at, float* sums) {
  const int64_t step = of.pixel_step[2];
  for (int64_t c = at.first; c < at.last; c += LITZ_LANES) {
    vec<float> sum[P] = {};
    const int64_t n = at.last - c;
    for (int64_t i = low; i < high; ++i) {
      const float* x = in + i * of.inner_step[1] + left * of.inner_step[2] + c;
      const float* w = of.weight + (i * of.inner[2] + left) * of.channels + c;
      if (n >= LITZ_LANES) {
        for (int64_t j = left; j < right; ++j, x += of.inner_step[2], w += of.channels) {
          const vec<float> factor = load(w);
          const float* element = x;
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p, element += step) sum[p] = mul_add(load(element), factor, sum[p]);
        }
      } else {
        for (int64_t j = left; j < right; ++j, x += of.inner_step[2], w += of.channels) {
          const vec<float> factor = load_partial(w, n);
          const float* element = x;
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p, element += step) sum[p] = mul_add(load_partial(element, n), factor, sum[p]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) store(sums + p * at.step + c - at.first, sum[p]);
  }
}

static __attribute__((noinline)) void sum_channels(const tiled_sum& of, const tile_range& at, float* sums) {
  int64_t pixel[3], low, high, next;
  pixel_of(of, at.begin, pixel);
  points_inside(of, 1, pixel, low, high);
  const int64_t whole = of.inner[2];
  for (int64_t m = at.begin; m < at.end; m += next) {
    // As many pixels together as have all points of a row of the filter, or one that has some.
    int64_t left, right, count = 0;
    for (; count < at.end - m; ++count) {
      int64_t own[3] = {pixel[0], pixel[1], pixel[2] + count};
      points_inside(of, 2, own, left, right);
      if (left > 0 || right < whole) break;
    }
    const float* in = element_of(of, pixel);
    float* to = sums + (m - at.begin) * at.step;
    next = count >= 8 ? 8 : count >= 7 ? 7 : count >= 6 ? 6 : count >= 5 ? 5 : count >= 4 ? 4 : count >= 2 ? 2 : 1;
    if (count > 0) left = 0, right = whole;
    switch (next) {
      case 8: sum_taps<8>(of, in, low, high, left, right, at, to); break;
      case 7: sum_taps<7>(of, in, low, high, left, right, at, to); break;
      case 6: sum_taps<6>(of, in, low, high, left, right, at, to); break;
      case 5: sum_taps<5>(of, in, low, high, left, right, at, to); break;
      case 4: sum_taps<4>(of, in, low, high, left, right, at, to); break;
      case 2: sum_taps<2>(of, in, low, high, left, right, at, to); break;
      default: sum_taps<1>(of, in, low, high, left, right, at, to);
    }
    pixel[2] += next;
  }
}

}  // namespace litz

#endif
