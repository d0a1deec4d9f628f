// Convolutions of float: products of rows of pixels, read tap by tap where they lie, with prepacked filters.
#ifndef LITZ_LIBRARY_CONVOLUTION_H
#define LITZ_LIBRARY_CONVOLUTION_H
#include <litz/library/gemm.h>
#include <litz/math_exp.h>

namespace litz {

constexpr int64_t FEW_CHANNELS = 16;  // segments so short are copied to one row, since their pointers would take longer
alignas(64) static const float ZEROS[DEPTH] = {};

// The pixels of a convolution whose channels are adjacent, for one group.
struct pixels {
  const litz_convolution* of;
  const float* start;
  int64_t image, row, column;  // strides
  int64_t group_channels, chunks, length;
};

// The place of an output pixel: its image, and the row and column of its first tap.
struct place {
  int64_t image, row, column, out_row, out_column;
};
LITZ_FN place place_of(const litz_convolution* of, int64_t m) {
  place at;
  at.out_column = m % of->out_columns;
  at.out_row = m / of->out_columns % of->out_rows;
  at.image = m / of->out_columns / of->out_rows;
  at.row = at.out_row * of->stride[0] - of->padding[0];
  at.column = at.out_column * of->stride[1] - of->padding[1];
  return at;
}
LITZ_FN void advance(const litz_convolution* of, place& at) {
  at.column += of->stride[1];
  if (++at.out_column < of->out_columns) return;
  at.out_column = 0;
  at.column = -of->padding[1];
  at.row += of->stride[0];
  if (++at.out_row < of->out_rows) return;
  at.out_row = 0;
  at.row = -of->padding[0];
  ++at.image;
}
LITZ_FN bool inside(int64_t at, int64_t size) { return uint64_t(at) < uint64_t(size); }

static void pixel_pointers(const void* self, int64_t m, int64_t segment, int count, const float** rows) {
  const auto* in = (const pixels*)self;
  const litz_convolution* of = in->of;
  const int64_t tap = segment / in->chunks, offset = segment % in->chunks * in->length;
  const int64_t down = tap / of->taps[1] * of->dilation[0], across = tap % of->taps[1] * of->dilation[1];
  place at = place_of(of, m);
  for (int r = 0; r < count; ++r, advance(of, at)) {
    const int64_t row = at.row + down, column = at.column + across;
    rows[r] = inside(row, of->rows) && inside(column, of->columns)
                  ? in->start + at.image * in->image + row * in->row + column * in->column + offset
                  : ZEROS;
  }
}

static void copy_pixels(const void* self, int64_t begin, int64_t end, int64_t first, int64_t length, int64_t step, float* to) {
  const auto* in = (const pixels*)self;
  const litz_convolution* of = in->of;
  const int64_t channels = in->group_channels;
  if (length == 0) return;  // no channels either
  place at = place_of(of, begin);
  for (int64_t m = begin; m < end; ++m, advance(of, at), to += step) {
    int64_t tap = first / channels, channel = first % channels;
    for (int64_t k = 0; k < length; ++tap, channel = 0) {
      const int64_t count = channels - channel < length - k ? channels - channel : length - k;
      const int64_t row = at.row + tap / of->taps[1] * of->dilation[0], column = at.column + tap % of->taps[1] * of->dilation[1];
      const bool known = inside(row, of->rows) && inside(column, of->columns);
      const float* from = known ? in->start + at.image * in->image + row * in->row + column * in->column + channel : ZEROS;
      for (int64_t i = 0; i < count; ++i) to[k + i] = from[i];
      k += count;
    }
  }
}

LITZ_FN vec<float> activated(vec<float> x, int32_t activation) {
  if (activation == 1) {
    const vec<float> zero = broadcast<float>(0), six = broadcast<float>(6);
    return x * minimum(maximum(x + broadcast<float>(3), zero), six) / six;
  }
  if (activation == 2) return x * sigmoid(x);
  return activation == 3 ? sigmoid(x) : x;
}

static void activate(float* at, int64_t count, int32_t activation) {
  for (int64_t i = 0; i < count; i += LITZ_LANES) {
    if (count - i >= LITZ_LANES) store(at + i, activated(load(at + i), activation));
    else store_partial(at + i, count - i, activated(load_partial(at + i, count - i), activation));
  }
}

LITZ_FN bool is_depthwise(const litz_convolution& of) { return of.groups == of.channels && of.groups == of.out_channels && of.groups > 1; }

// One row of a depthwise convolution whose channels are adjacent; the filter has its channels adjacent too.
static void depthwise_row(const litz_convolution& of, const float* in, int64_t in_row, int64_t in_column, const float* filter,
                          int64_t out_row, float* out, int64_t out_column) {
  const float* bias = (const float*)of.bias;
  for (int64_t column = 0; column < of.out_columns; ++column, out += out_column) {
    const int64_t left = column * of.stride[1] - of.padding[1], top = out_row * of.stride[0] - of.padding[0];
    for (int64_t c = 0; c < of.channels; c += LITZ_LANES) {
      const int64_t n = of.channels - c;
      const bool whole = n >= LITZ_LANES;
      vec<float> sum = !bias ? broadcast<float>(0) : whole ? load(bias + c) : load_partial(bias + c, n);
      for (int64_t i = 0; i < of.taps[0]; ++i) {
        const int64_t row = top + i * of.dilation[0];
        if (!inside(row, of.rows)) continue;
        for (int64_t j = 0; j < of.taps[1]; ++j) {
          const int64_t at = left + j * of.dilation[1];
          if (!inside(at, of.columns)) continue;
          const float *x = in + row * in_row + at * in_column + c, *w = filter + (i * of.taps[1] + j) * of.channels + c;
          sum = whole ? mul_add(load(x), load(w), sum) : mul_add(load_partial(x, n), load_partial(w, n), sum);
        }
      }
      sum = activated(sum, of.activation);
      if (whole) store(out + c, sum);
      else store_partial(out + c, n, sum);
    }
  }
}

// A copy of the input, or none, whose channels are adjacent.
LITZ_FN bool is_copied(const litz_convolution& of) { return of.in_strides[1] != 1 && of.channels > 1; }
LITZ_FN int64_t copy_bytes(const litz_convolution& of) {
  return is_copied(of) ? aligned(of.images * of.rows * of.columns * of.channels * int64_t(sizeof(float))) : 0;
}
static void copy_channels_last(litz_runtime* rt, litz_convolution& of, float* to) {
  const int64_t rows = of.images * of.rows, width = of.columns * of.channels;
  const float* in = (const float*)of.in;
  parallel_for(rt, 0, rows, 32768 / (width + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = in + row / of.rows * of.in_strides[0] + row % of.rows * of.in_strides[2];
      for (int64_t c = 0; c < of.channels; ++c)
        for (int64_t x = 0; x < of.columns; ++x) to[row * width + x * of.channels + c] = from[c * of.in_strides[1] + x * of.in_strides[3]];
    }
  });
  of.in = to;
  const int64_t strides[4] = {of.rows * width, 1, width, of.channels};
  __builtin_memcpy(of.in_strides, strides, sizeof strides);
}

// Elements between output pixels; where rows have one pixel, the stride of a column may be any number.
LITZ_FN int64_t pixel_stride(const litz_convolution& of) { return of.out_columns == 1 && of.out_rows > 1 ? of.out_strides[2] : of.out_strides[3]; }
// Images whose output pixels are equally far apart are one image.
LITZ_FN bool is_merged(const litz_convolution& of) {
  return of.images == 1 || of.out_strides[0] == of.out_rows * of.out_columns * pixel_stride(of);
}

struct division {
  int64_t batches, pixels;  // pixels of a batch: of one image, or of all
  grid cells;
  int64_t copies;           // bytes of the rows that a cell copies
};
static division division_of(const litz_runtime* rt, const litz_convolution& of) {
  const bool merged = is_merged(of);
  const int64_t image = of.out_rows * of.out_columns, channels = of.channels / of.groups, columns = of.out_channels / of.groups;
  division found = {(merged ? 1 : of.images) * of.groups, merged ? of.images * image : image, {1, 1}, 0};
  if (found.batches <= 0 || found.pixels <= 0) return found;
  const int64_t depth = of.taps[0] * of.taps[1] * channels;
  const int64_t threads = useful_threads(rt, double(of.images) * image * of.out_channels * depth);
  if (found.batches < threads) found.cells = divide_among(found.pixels, columns, (threads + found.batches - 1) / found.batches);
  if (channels < FEW_CHANNELS) {
    int64_t chunks, length, last;
    divide_depth(depth, chunks, length, last);
    found.copies = aligned((found.pixels < CHUNK ? found.pixels : CHUNK) * copied_row(length) * int64_t(sizeof(float)));
  }
  return found;
}

// One cell of one group of one batch.
static void convolve_cell(const litz_convolution& of, const division& by, const float* filters, int64_t item, float* copies) {
  const int64_t each = by.cells.rows * by.cells.columns, batch = item / each / of.groups, group = item / each % of.groups;
  const int64_t row = item % each / by.cells.columns, column = item % each % by.cells.columns;
  const int64_t channels = of.channels / of.groups, columns = of.out_channels / of.groups, taps = of.taps[0] * of.taps[1];
  tile_job job = {};
  pixels in = {&of, (const float*)of.in + batch * of.in_strides[0] + group * channels, of.in_strides[0], of.in_strides[2],
               of.in_strides[3], channels, 1, 0};
  if (by.copies) {
    job.taps = 1;
    divide_depth(taps * channels, job.chunks, job.length, job.last);
    job.copy = copy_pixels;
  } else {
    job.taps = taps;
    divide_depth(channels, job.chunks, job.length, job.last);
    job.pointers = pixel_pointers;
  }
  in.chunks = job.chunks;
  in.length = job.length;
  job.rows = &in;
  job.n = columns;
  job.k = taps * channels;
  job.prepacked = filters + group * panels(columns) * PANEL * job.k;
  job.out = (float*)of.out + batch * of.out_strides[0] + group * columns * of.out_strides[1];
  job.out_row = pixel_stride(of);
  job.out_column = of.out_strides[1];
  job.bias = of.bias ? (const float*)of.bias + group * columns : nullptr;
  job.bias_column = 1;
  job.alpha = job.beta = 1;
  const int64_t begin = cell_begin(by.pixels, by.cells.rows, row), end = cell_begin(by.pixels, by.cells.rows, row + 1);
  const int64_t first = cell_begin(panels(columns), by.cells.columns, column);
  const int64_t last = cell_begin(panels(columns), by.cells.columns, column + 1);
  multiply_tiles(job, begin, end, first, last, copies);
  if (!of.activation) return;
  const int64_t stop = last * PANEL < columns ? last * PANEL : columns;
  for (int64_t m = begin; m < end; ++m)
    if (job.out_column == 1) activate(job.out + m * job.out_row + first * PANEL, stop - first * PANEL, of.activation);
    else
      for (int64_t c = first * PANEL; c < stop; ++c) activate(job.out + m * job.out_row + c * job.out_column, 1, of.activation);
}

static int64_t litz_prepacked_convolution_bytes(int64_t out_channels, int64_t group_channels, int64_t taps, int64_t groups) {
  if (group_channels == 1 && out_channels == groups && groups > 1) return taps * groups * int64_t(sizeof(float));
  return groups * litz_prepacked_bytes(out_channels / groups, taps * group_channels);
}

static void litz_prepack_convolution(int64_t out_channels, int64_t group_channels, int64_t rows, int64_t columns,
                                      int64_t groups, const void* weight, numbers<4> strides, const void* scale,
                                      int64_t scale_stride, void* prepacked) {
  const int64_t each = out_channels / groups, taps = rows * columns, depth = taps * group_channels;
  const bool depthwise = group_channels == 1 && out_channels == groups && groups > 1;
  const int64_t* step = strides.values;
  float* to = (float*)prepacked;
  if (!depthwise) __builtin_memset(prepacked, 0, litz_prepacked_convolution_bytes(out_channels, group_channels, taps, groups));
  for (int64_t out = 0; out < out_channels; ++out) {
    const float factor = scale ? ((const float*)scale)[out * scale_stride] : 1;
    const int64_t group = out / each, column = out % each;
    float* panel = to + (group * panels(each) + column / PANEL) * PANEL * depth + column % PANEL;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t c = 0; c < group_channels; ++c) {
        const float value = ((const float*)weight)[out * step[0] + c * step[1] + tap / columns * step[2] + tap % columns * step[3]];
        (depthwise ? to[tap * groups + out] : panel[(tap * group_channels + c) * PANEL]) = value * factor;
      }
  }
}

static int64_t litz_convolution_scratch(const litz_runtime* rt, litz_convolution of) {
  const int64_t prepacked = of.prepacked ? 0 : aligned(litz_prepacked_convolution_bytes(of.out_channels, of.channels / of.groups,
                                                                              of.taps[0] * of.taps[1], of.groups));
  if (is_depthwise(of)) {
    const int64_t out = of.out_strides[1] == 1 ? 0 : of.images * of.out_rows * of.out_columns * of.channels * int64_t(sizeof(float));
    return prepacked + copy_bytes(of) + aligned(out);
  }
  const division by = division_of(rt, of);
  return prepacked + copy_bytes(of) + by.batches * by.cells.rows * by.cells.columns * by.copies;
}

static void convolve_depthwise(litz_runtime* rt, const litz_convolution& of, const float* filter, float* temporary) {
  const bool direct = of.out_strides[1] == 1;  // else a row is made in temporary memory, and its elements moved
  const int64_t width = of.out_columns * of.channels;
  parallel_for(rt, 0, of.images * of.out_rows, 16384 / (width * of.taps[0] * of.taps[1] + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t image = item / of.out_rows, row = item % of.out_rows;
      float* out = (float*)of.out + image * of.out_strides[0] + row * of.out_strides[2];
      float* to = direct ? out : temporary + item * width;
      depthwise_row(of, (const float*)of.in + image * of.in_strides[0], of.in_strides[2], of.in_strides[3], filter, row, to,
                    direct ? of.out_strides[3] : of.channels);
      for (int64_t x = 0; x < of.out_columns && !direct; ++x)
        for (int64_t c = 0; c < of.channels; ++c) out[x * of.out_strides[3] + c * of.out_strides[1]] = to[x * of.channels + c];
    }
  });
}

static void litz_convolve(litz_runtime* rt, const litz_convolution* given, char* scratch) {
  litz_convolution of = *given;
  if (of.images <= 0 || of.out_rows <= 0 || of.out_columns <= 0 || of.out_channels <= 0) return;
  const float* filters = (const float*)of.weight;
  if (!of.prepacked) {
    const int64_t* s = of.weight_strides;
    litz_prepack_convolution(of.out_channels, of.channels / of.groups, of.taps[0], of.taps[1], of.groups, of.weight,
                          numbers<4>{{s[0], s[1], s[2], s[3]}}, nullptr, 0, scratch);
    filters = (const float*)scratch;
    scratch += aligned(litz_prepacked_convolution_bytes(of.out_channels, of.channels / of.groups, of.taps[0] * of.taps[1], of.groups));
  }
  if (is_copied(of)) {
    const int64_t bytes = copy_bytes(of);
    copy_channels_last(rt, of, (float*)scratch);
    scratch += bytes;
  }
  if (is_depthwise(of)) return convolve_depthwise(rt, of, filters, (float*)scratch);
  const division by = division_of(rt, of);
  parallel_for(rt, 0, by.batches * by.cells.rows * by.cells.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) convolve_cell(of, by, filters, item, (float*)(scratch + item * by.copies));
  });
}

}  // namespace litz

#endif
