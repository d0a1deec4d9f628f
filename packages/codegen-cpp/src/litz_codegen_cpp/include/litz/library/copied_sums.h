// Tiles of convolutions of few input channels, whose elements are copied: in any layout, and with zeros outside of the input.
#ifndef LITZ_LIBRARY_COPIED_SUMS_H
#define LITZ_LIBRARY_COPIED_SUMS_H
#include <litz/library/tiled_sums.h>

namespace litz {

constexpr int64_t COPY_BYTES = 48 << 10;  // of copies

// Elements of the left operand for adjacent pixels of a row: those of a pixel begin `stride` after those of the one before.
struct strip {
  int64_t unit;                       // from one element to the next in the left operand
  int64_t stride, dilation, padding;  // in elements of the strip
  int64_t limit;                      // of positions
};

// The strip of a sum; false where its rows have none, so that each pixel's elements are copied.
LITZ_FN bool strip_of(const tiled_sum& of, strip& found) {
  const window* own = nullptr;
  for (int64_t k = 0; k < of.windows; ++k) {
    const window& each = of.window_of[k];
    if (each.pixel != 2 && each.inner != 2) continue;
    if (each.pixel != each.inner || own) return false;
    own = &each;
  }
  found = {of.inner_step[2], 0, 1, 0, int64_t(1) << 62};
  if (own) {
    found = {own->dilation > 0 ? of.inner_step[2] / own->dilation : 0, own->stride, own->dilation, own->padding, own->limit};
  } else if (found.unit > 0) {
    found.stride = of.pixel_step[2] / found.unit;
  }
  return found.unit > 0 && found.stride > 0 && found.stride * found.unit == of.pixel_step[2] &&
         found.dilation * found.unit == of.inner_step[2];
}

// Elements of a strip for each point of the two slow summed axes. It serves whole register tiles.
LITZ_FN int64_t strip_length(const tiled_sum& of, const strip& s, int64_t pixels) {
  return ((pixels > MOST_ROWS ? pixels : MOST_ROWS) - 1) * s.stride + (of.inner[2] - 1) * s.dilation + 1;
}
LITZ_FN bool strip_fits(const tiled_sum& of, const strip& s, int64_t pixels) {
  return of.inner[0] * of.inner[1] * strip_length(of, s, pixels) <= COPY_BYTES / 4;
}

struct copied_tiles {
  int64_t rows, columns, chunks;  // rows of pixels, tiles of a row, and tiles along the channels
  int64_t wide;                   // panels of a tile
};
LITZ_FN copied_tiles tiles_of_copies(const tiled_sum& of) {
  const int64_t all = panels(of.channels), wide = all < 4 ? all : 4;
  int64_t most = TILE_ROWS / wide;
  strip s;
  if (strip_of(of, s) && strip_fits(of, s, 1)) {
    while (!strip_fits(of, s, most)) --most;
  } else {
    const int64_t space = COPY_BYTES / 4 / copied_row(depth_of(of));
    most = space < 1 ? 1 : space < most ? space : most;
  }
  if (most > MOST_ROWS) most = most / MOST_ROWS * MOST_ROWS;
  return {of.pixels[0] * of.pixels[1], (of.pixels[2] + most - 1) / most, (all + wide - 1) / wide, wide};
}
LITZ_FN tile_range tile_of_copies(const tiled_sum& of, const copied_tiles& tiles, int64_t tile) {
  const int64_t panel = tile % tiles.chunks * tiles.wide, column = tile / tiles.chunks % tiles.columns;
  const int64_t start = tile / tiles.chunks / tiles.columns * of.pixels[2], last = (panel + tiles.wide) * PANEL;
  return {start + cell_begin(of.pixels[2], tiles.columns, column), start + cell_begin(of.pixels[2], tiles.columns, column + 1),
          panel * PANEL, last < of.channels ? last : of.channels, tiles.wide * PANEL, 0, 1};
}

// Copies the strip of the pixels of a tile, with zeros for elements outside of the input.
LITZ_FN void copy_strip(const tiled_sum& of, const strip& s, const tile_range& at, int64_t length, float* to) {
  int64_t pixel[3];
  pixel_of(of, at.begin, pixel);
  const int64_t position = pixel[2] * s.stride - s.padding;
  const int64_t count = (at.end - at.begin - 1) * s.stride + (of.inner[2] - 1) * s.dilation + 1;
  const int64_t before = position < 0 ? -position : 0, after = s.limit - position < count ? s.limit - position : count;
  const float* start = element_of(of, pixel);
  for (int64_t i = 0; i < of.inner[0]; ++i)
    for (int64_t j = 0; j < of.inner[1]; ++j, to += length) {
      const int64_t inner[3] = {i, j, 0};
      bool inside = true;
      for (int64_t k = 0; k < of.windows; ++k)
        if (of.window_of[k].inner != 2) inside &= in_window(of.window_of[k], pixel, inner);
      const float* from = start + i * of.inner_step[0] + j * of.inner_step[1];
      const int64_t low = inside && before < count ? before : count, high = inside && after > low ? after : low;
      __builtin_memset(to, 0, low * int64_t(sizeof(float)));
      if (s.unit == 1) __builtin_memcpy(to + low, from + low, (high - low) * int64_t(sizeof(float)));
      else
        for (int64_t q = low; q < high; ++q) to[q] = from[q * s.unit];
      __builtin_memset(to + high, 0, (length - high) * int64_t(sizeof(float)));
    }
}

// The sums of up to MOST_ROWS adjacent pixels and `V` vectors of channels. `S` is the stride, or 0 for any.
template <int S, int V>
static void multiply_strip(const tiled_sum& of, const strip& s, const float* x, int64_t length, const float* b, int64_t count,
                           float* to, int64_t step) {
  vec<float> sums[MOST_ROWS][V] = {};
  const int64_t stride = S ? S : s.stride, taps = of.inner[0] * of.inner[1], dilation = s.dilation;
  for (int64_t tap = 0; tap < taps; ++tap, x += length) {
    const float* row = x;
    for (int64_t k = 0; k < of.inner[2]; ++k, row += dilation, b += PANEL) {
      vec<float> columns[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) columns[v] = load(b + v * LITZ_LANES);
#pragma GCC unroll 16
      for (int r = 0; r < MOST_ROWS; ++r) {
        const vec<float> element = broadcast<float>(row[r * stride]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sums[r][v] = mul_add(element, columns[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MOST_ROWS; ++r)
    if (r < count)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) store(to + r * step + v * LITZ_LANES, sums[r][v]);
}
template <int V>
LITZ_FN auto multiply_strip_of(int64_t stride) {
  return stride == 1 ? multiply_strip<1, V> : stride == 2 ? multiply_strip<2, V> : multiply_strip<0, V>;
}

// Copies all elements of rows, one by one. A row has `step` floats.
static void gather_rows(const void* self, int64_t begin, int64_t end, int64_t, int64_t, int64_t step, float* to) {
  const tiled_sum& of = *(const tiled_sum*)self;
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

template <int = 0>
LITZ_ROUTINE void sum_copies(const tiled_sum& of, const tile_range& at, float* sums,
                             const pixel_rows* later = nullptr, int64_t laters = 0) {
  alignas(64) float copies[COPY_BYTES / 4];
  strip s;
  const int64_t pixels = at.end - at.begin, depth = depth_of(of);
  tile_job job = job_of(of, at, sums);
  job.later = later;
  job.laters = laters;
  if (!strip_of(of, s) || !strip_fits(of, s, pixels)) {
    job.taps = job.chunks = 1;
    job.length = job.last = job.k;
    job.copy = gather_rows;
    job.rows = &of;
    return multiply_tiles(job, at.begin, at.end, at.first / PANEL, panels(at.last), copies);
  }
  const int64_t length = strip_length(of, s, pixels);
  copy_strip(of, s, at, length, copies);
  for (int64_t c = at.first; c < at.last; c += PANEL) {
    const auto multiply = at.last - c > LITZ_LANES ? multiply_strip_of<VECTORS>(s.stride) : multiply_strip_of<1>(s.stride);
    for (int64_t m = 0; m < pixels; m += MOST_ROWS) {
      // The last register tile is a whole one too, and computes some sums again.
      const int64_t first = m + MOST_ROWS <= pixels || pixels < MOST_ROWS ? m : pixels - MOST_ROWS;
      float* to = sums + first * at.step + c - at.first;
      prefetch_later(job, at.begin + m, at.begin + (m + MOST_ROWS < pixels ? m + MOST_ROWS : pixels), c);
      multiply(of, s, copies + first * s.stride, length, of.weight + c * depth, pixels - first, to, at.step);
    }
  }
}

#ifdef LITZ_PANELS
LITZ_PANELS void sum_copies<0>(const tiled_sum&, const tile_range&, float*, const pixel_rows*, int64_t);
#endif

}  // namespace litz

#endif
