// Tiles of convolutions whose sums a kernel finishes itself, while they are in the cache.
//
// A tile is the sums of some pixels and channels, a row of `step` floats for each pixel. Up to three axes of pixels and three
// summed ones are walked, the last ones fastest; windows tell which elements lie outside of the input and count as zero.
#ifndef LITZ_LIBRARY_TILED_SUMS_H
#define LITZ_LIBRARY_TILED_SUMS_H
#include <litz/library/gemm.h>

namespace litz {

constexpr int64_t TILE_ROWS = 8 * MOST_ROWS;  // pixels of a tile of one panel: its sums are in the L1 cache
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

// The first element of each pixel of a tile, and a bit for each filter point of two axes that is inside of the input.
struct walked_rows {
  int64_t taps, chunks, length;  // filter points of the second axis, and segments of a filter point
  int64_t first;                 // pixel
  int64_t step[2];
  const float* start[TILE_ROWS];
  uint64_t inside[2][TILE_ROWS];
};
LITZ_FN uint64_t first_bits(int64_t count) { return count <= 0 ? 0 : count >= 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1; }

// The filter points of an axis that are inside at a point of the pixels' axis.
LITZ_FN uint64_t points_of_window(const window& w, int64_t pixel, int64_t count) {
  const int64_t before = w.padding - pixel * w.stride;  // the first position is that far outside
  if (w.dilation == 1) return first_bits(before + w.limit < count ? before + w.limit : count) & ~first_bits(before);
  uint64_t found = 0;
  for (int64_t k = 0; k < count; ++k) found |= uint64_t(uint64_t(k * w.dilation - before) < uint64_t(w.limit)) << k;
  return found;
}
LITZ_FN void walk_pixels(const tiled_sum& of, int64_t begin, int64_t end, walked_rows& walk) {
  int64_t pixel[3];
  pixel_of(of, begin, pixel);
  for (int64_t k = 0; k < end - begin; ++k, advance(of, pixel)) {
    uint64_t inside[2] = {~uint64_t(0), ~uint64_t(0)};
    for (int64_t i = 0; i < of.windows; ++i) {
      const window& w = of.window_of[i];
      inside[w.inner] &= points_of_window(w, pixel[w.pixel], of.inner[w.inner]);
    }
    walk.start[k] = element_of(of, pixel);
    walk.inside[0][k] = inside[0];
    walk.inside[1][k] = inside[1];
  }
}
static void walked_pointers(const void* self, int64_t m, int64_t segment, int count, const float** rows) {
  const auto& walk = *(const walked_rows*)self;
  const int64_t tap = segment / walk.chunks, i = tap / walk.taps, j = tap % walk.taps, at = m - walk.first;
  const int64_t offset = i * walk.step[0] + j * walk.step[1] + segment % walk.chunks * walk.length;
  const float* const* start = walk.start + at;
  const uint64_t *above = walk.inside[0] + at, *across = walk.inside[1] + at;
  for (int r = 0; r < count; ++r) {
    const float* row = start[r] + offset;
    rows[r] = above[r] >> i & across[r] >> j & 1 ? row : NO_ELEMENTS;
  }
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

struct tile_range {
  int64_t begin, end;      // pixels
  int64_t first, last;     // channels
  int64_t step;            // floats of a row of sums
  int64_t part, parts;     // of the tiles that use the same weights one after another
};

// The division of a sum over channels into tiles of one panel.
struct panel_tiles {
  int64_t rows, columns;  // numbers of tiles
  bool by_panel;          // tiles of a panel follow one another, not those of a row
};
LITZ_FN panel_tiles tiles_of_panels(const tiled_sum& of) {
  panel_tiles found;
  const int64_t pixels = pixel_count(of);
  found.columns = panels(of.channels);
  found.rows = (pixels + TILE_ROWS - 1) / TILE_ROWS;
  // Two or four threads take equal numbers of few tiles.
  if (found.columns * found.rows < 32 && found.columns % 4) found.rows = (found.rows + 3) / 4 * 4;
  if (found.rows > pixels) found.rows = pixels;
  // Each thread reads its share of one operand, and all of the smaller one.
  found.by_panel = of.inner[0] * of.inner[1] * of.channels > pixels;
  return found;
}
LITZ_FN tile_range tile_of_panels(const tiled_sum& of, const panel_tiles& tiles, int64_t tile) {
  const int64_t row = tiles.by_panel ? tile % tiles.rows : tile / tiles.columns;
  const int64_t panel = tiles.by_panel ? tile / tiles.rows : tile % tiles.columns;
  const int64_t pixels = pixel_count(of), last = (panel + 1) * PANEL;
  return {cell_begin(pixels, tiles.rows, row), cell_begin(pixels, tiles.rows, row + 1), panel * PANEL,
          last < of.channels ? last : of.channels, PANEL, row, tiles.by_panel ? tiles.rows : 1};
}

// The job of a tile's sums, but for its rows.
LITZ_FN tile_job job_of(const tiled_sum& of, const tile_range& at, float* sums) {
  tile_job job = {};
  job.k = depth_of(of);
  job.n = panels(of.channels) * PANEL;  // the last panel is padded, as are rows of sums
  job.prepacked = of.weight;
  job.out = sums - at.begin * at.step - at.first;
  job.out_row = at.step;
  job.out_column = 1;
  job.alpha = job.beta = 1;
  job.part = at.part;
  job.parts = at.parts;
  return job;
}

// One vector of channels of a panel, for MOST_ROWS pixels at a time; the last ones are computed together with pixels before them.
static void multiply_half_panel(const tile_job& job, int64_t begin, int64_t end, int64_t panel) {
  for (int64_t at = begin; at < end; at += MOST_ROWS) {
    const int64_t m = at + MOST_ROWS <= end ? at : end - MOST_ROWS, segments = job.taps * job.chunks;
    prefetch_later(job, m, m + MOST_ROWS, panel * PANEL);
    const float* rows[MOST_ROWS];
    const float* b = job.prepacked + panel * job.k * PANEL;
    vec<float> sums[MOST_ROWS] = {};
    for (int64_t segment = 0; segment < segments; ++segment) {
      job.pointers(job.rows, m, segment, MOST_ROWS, rows);
      const int64_t length = (segment + 1) % job.chunks ? job.length : job.last;
      for (int64_t k = 0; k < length; ++k, b += PANEL) {
        const vec<float> column = load(b);
#pragma GCC unroll 16
        for (int r = 0; r < MOST_ROWS; ++r) sums[r] = mul_add(broadcast<float>(rows[r][k]), column, sums[r]);
      }
    }
    float* to = job.out + m * job.out_row + panel * PANEL;
#pragma GCC unroll 16
    for (int r = 0; r < MOST_ROWS; ++r) store(to + r * job.out_row, sums[r]);
  }
}

// Returns whether all pixels are equally far apart.
LITZ_FN bool is_matrix(const tiled_sum& of) {
  const int64_t row = of.pixels[2] * of.pixel_step[2];
  return (of.pixels[1] == 1 || of.pixel_step[1] == row) && (of.pixels[0] == 1 || of.pixel_step[0] == of.pixels[1] * row);
}

template <int = 0>
LITZ_ROUTINE void sum_panels(const tiled_sum& of, const tile_range& at, float* sums,
                             const pixel_rows* later = nullptr, int64_t laters = 0) {
  tile_job job = job_of(of, at, sums);
  job.later = later;
  job.laters = laters;
  job.ahead = at.parts > 1 || pixel_count(of) <= TILE_ROWS ? 0 : of.pixel_step[2];
  walked_rows walk;
  job.taps = of.inner[0] * of.inner[1];
  divide_depth(of.inner[2], job.chunks, job.length, job.last);
  const matrix_rows matrix = {of.in, of.pixel_step[2], 1, job.length};
  const bool plain = job.taps == 1 && !of.windows && is_matrix(of);
  job.pointers = plain ? matrix_pointers : walked_pointers;
  job.rows = plain ? (const void*)&matrix : &walk;
  if (!plain) {
    walk.taps = of.inner[1];
    walk.chunks = job.chunks;
    walk.length = job.length;
    walk.first = at.begin;
    walk.step[0] = of.inner_step[0];
    walk.step[1] = of.inner_step[1];
    walk_pixels(of, at.begin, at.end, walk);
  }
  const int64_t panel = at.first / PANEL;
  if (at.last - at.first <= LITZ_LANES && at.end - at.begin >= MOST_ROWS) multiply_half_panel(job, at.begin, at.end, panel);
  else multiply_tiles(job, at.begin, at.end, panel, panels(at.last), nullptr);
}

// --- a filter for each channel

// A row of pixels is divided into groups of nearly equal length, whose sums are in registers together.
LITZ_FN constexpr int64_t row_groups(int64_t pixels) { return (pixels + MOST_ROWS - 1) / MOST_ROWS; }

struct channel_tiles {
  int64_t rows, columns, chunks;  // rows of pixels, tiles of a row, and tiles along the channels
  int64_t groups, step;           // groups of pixels and channels of a tile
};
LITZ_FN channel_tiles tiles_of_channels(const tiled_sum& of) {
  const int64_t chunks = (of.channels + TILE_CHANNELS - 1) / TILE_CHANNELS;
  const int64_t step = (panels(of.channels) + chunks - 1) / chunks * PANEL;
  const int64_t groups = row_groups(of.pixels[2]), longest = (of.pixels[2] + groups - 1) / groups;
  const int64_t most = TILE_FLOATS / step / longest;
  return {of.pixels[0] * of.pixels[1], (groups + most - 1) / most, chunks, most, step};
}
LITZ_FN tile_range tile_of_channels(const tiled_sum& of, const channel_tiles& tiles, int64_t tile) {
  const int64_t chunk = tile % tiles.chunks, column = tile / tiles.chunks % tiles.columns;
  const int64_t start = tile / tiles.chunks / tiles.columns * of.pixels[2], groups = row_groups(of.pixels[2]);
  const int64_t first = column * tiles.groups, end = first + tiles.groups < groups ? first + tiles.groups : groups;
  const int64_t all = panels(of.channels), last = cell_begin(all, tiles.chunks, chunk + 1) * PANEL;
  return {start + cell_begin(of.pixels[2], groups, first), start + cell_begin(of.pixels[2], groups, end),
          cell_begin(all, tiles.chunks, chunk) * PANEL, last < of.channels ? last : of.channels, tiles.step, first, groups};
}

// The pixels of every row that have all points of the windows along it: [low, high).
LITZ_FN void pixels_inside(const tiled_sum& of, int64_t& low, int64_t& high) {
  low = 0;
  high = of.pixels[2];
  for (int64_t k = 0; k < of.windows; ++k) {
    const window& w = of.window_of[k];
    if (w.pixel != 2) continue;
    const int64_t first = w.padding > 0 ? w.padding : 0, last = w.limit - 1 + w.padding - (of.inner[w.inner] - 1) * w.dilation;
    if (w.stride <= 0 || w.dilation < 0 || last < 0) {
      high = 0;
      continue;
    }
    const int64_t from = (first + w.stride - 1) / w.stride, until = last / w.stride + 1;
    if (from > low) low = from;
    if (until < high) high = until;
  }
}

// The filter points inside at a pixel: rows [low, high) and columns [left, right).
struct filter_points {
  int64_t low, high, left, right;
};
LITZ_FN filter_points filter_points_at(const tiled_sum& of, const int64_t (&pixel)[3]) {
  filter_points found;
  int64_t none, some;
  points_inside(of, 0, pixel, none, some);
  points_inside(of, 1, pixel, found.low, found.high);
  points_inside(of, 2, pixel, found.left, found.right);
  if (none == some) found.high = found.low;
  return found;
}

// `P` adjacent pixels with these filter points, for channels from `from` on.
template <int P>
static void sum_taps(const tiled_sum& of, const float* in, const filter_points& points, const tile_range& at, int64_t from,
                     float* sums) {
  const int64_t low = points.low, high = points.high, left = points.left, right = points.right;
  const int64_t step = of.pixel_step[2];
  for (int64_t c = from; c < at.last; c += LITZ_LANES) {
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

// The same for rows of `K` filter points, of which `S` are as far apart as pixels: elements are read once for all pixels.
// `inside` has a bit for each element that is inside of the input.
template <int K, int S, int P, bool WHOLE>
LITZ_FN void sum_row(const tiled_sum& of, const float* in, int64_t low, int64_t high, uint64_t inside, int64_t count, float* to,
                     int64_t to_step, int64_t c) {
  const int64_t column = of.inner_step[2], row = of.inner_step[1], channels = of.channels;
  const auto read = [&](const float* at) {
    if constexpr (WHOLE) return load(at);
    else return load_partial(at, count);
  };
  vec<float> sum[P] = {};
  const float* x = in + low * row + c;
  const float* w = of.weight + low * K * channels + c;
  for (int64_t i = low; i < high; ++i, x += row, w += K * channels) {
    vec<float> factor[K];
    const float* element = x;
#pragma GCC unroll 8
    for (int j = 0; j < K; ++j) factor[j] = read(w + j * channels);
#pragma GCC unroll 40
    for (int q = 0; q < (P - 1) * S + K; ++q, element += column) {
      if (!(inside >> q & 1)) continue;
      const vec<float> value = read(element);
#pragma GCC unroll 8
      for (int j = 0; j < K; ++j)
        if (q >= j && (q - j) % S == 0 && (q - j) / S < P) sum[(q - j) / S] = mul_add(value, factor[j], sum[(q - j) / S]);
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) store(to + p * to_step, sum[p]);
}

template <int K, int S, int P>
static void sum_group(const tiled_sum& of, const float* in, int64_t pixel, int64_t low, int64_t high, const tile_range& at,
                      float* sums) {
  constexpr int64_t LENGTH = (P - 1) * S + K;
  uint64_t inside = ~uint64_t(0);
  for (int64_t k = 0; k < of.windows; ++k) {
    if (of.window_of[k].inner == 2) inside &= points_of_window(of.window_of[k], pixel, LENGTH);
  }
  for (int64_t c = at.first; c < at.last; c += LITZ_LANES) {
    const int64_t n = at.last - c;
    if (n >= LITZ_LANES) sum_row<K, S, P, true>(of, in, low, high, inside, n, sums + c - at.first, at.step, c);
    else sum_row<K, S, P, false>(of, in, low, high, inside, n, sums + c - at.first, at.step, c);
  }
}

// Tiles of rows of `W` pixels and filters with rows as in `sum_row`.
template <int K, int S, int W>
static __attribute__((noinline)) void sum_adjacent(const tiled_sum& of, const tile_range& at, float* sums) {
  constexpr int64_t GROUPS = row_groups(W);
  constexpr int P = int((W + GROUPS - 1) / GROUPS);
  int64_t pixel[3], none, some, low, high;
  pixel_of(of, at.begin, pixel);
  points_inside(of, 0, pixel, none, some);
  points_inside(of, 1, pixel, low, high);
  if (none == some) high = low;
  for (int64_t m = at.begin, group = at.part; m < at.end; ++group) {
    const int64_t size = cell_begin(W, GROUPS, group + 1) - cell_begin(W, GROUPS, group);
    const float* in = element_of(of, pixel);
    if (size == P) sum_group<K, S, P>(of, in, pixel[2], low, high, at, sums);
    else if constexpr (P > 1) sum_group<K, S, P - 1>(of, in, pixel[2], low, high, at, sums);
    m += size;
    pixel[2] += size;
    sums += size * at.step;
  }
}

template <int = 0>
LITZ_ROUTINE void sum_channels(const tiled_sum& of, const tile_range& at, float* sums) {
  int64_t pixel[3], first, last, next;
  pixel_of(of, at.begin, pixel);
  pixels_inside(of, first, last);
  filter_points points;
  bool alike = false;  // `points` are those of the pixels [first, last)
  for (int64_t m = at.begin; m < at.end; m += next) {
    int64_t count = 1;
    if (pixel[2] >= first && pixel[2] < last) {
      count = last - pixel[2] < at.end - m ? last - pixel[2] : at.end - m;
      if (!alike) points = filter_points_at(of, pixel);
      alike = true;
    } else {
      points = filter_points_at(of, pixel);
      alike = false;
    }
    const float* in = element_of(of, pixel);
    float* to = sums + (m - at.begin) * at.step;
    next = count >= 8 ? 8 : count >= 7 ? 7 : count >= 6 ? 6 : count >= 5 ? 5 : count >= 4 ? 4 : count >= 2 ? 2 : 1;
    switch (next) {
      case 8: sum_taps<8>(of, in, points, at, at.first, to); break;
      case 7: sum_taps<7>(of, in, points, at, at.first, to); break;
      case 6: sum_taps<6>(of, in, points, at, at.first, to); break;
      case 5: sum_taps<5>(of, in, points, at, at.first, to); break;
      case 4: sum_taps<4>(of, in, points, at, at.first, to); break;
      case 2: sum_taps<2>(of, in, points, at, at.first, to); break;
      default: sum_taps<1>(of, in, points, at, at.first, to);
    }
    pixel[2] += next;
  }
}

#ifdef LITZ_PANELS
LITZ_PANELS void sum_panels<0>(const tiled_sum&, const tile_range&, float*, const pixel_rows*, int64_t);
#endif
#ifdef LITZ_CHANNELS
LITZ_CHANNELS void sum_channels<0>(const tiled_sum&, const tile_range&, float*);
#endif

}  // namespace litz

#endif
