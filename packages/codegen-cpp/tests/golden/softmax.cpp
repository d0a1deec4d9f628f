#include <litz/accumulate.h>
#include <litz/arithmetic.h>
#include <litz/math_exp.h>
#include <litz/memory.h>
#include <litz/runtime.h>

using namespace litz;

// softmax: amax, sub, exp, sum, div
static void softmax_range(void** buffers, const int64_t* symbols, int64_t* error, int64_t begin, int64_t end) {
  const int64_t n = symbols[0];
  const float* x = (const float*)buffers[0];
  float* o = (float*)buffers[1];
  alignas(64) float e[72];
  for (int64_t i0 = begin; i0 < end; ++i0) {
    max_state<vec<float>> max_0, max_1, max_2, max_3;
    const int64_t r0_whole_0 = 72 / (4 * LITZ_LANES) * (4 * LITZ_LANES);
    const int64_t at_0 = i0*72;
    for (int64_t r0 = 0; r0 < r0_whole_0; r0 += 4 * LITZ_LANES) {
      const vec<float> x_0 = load(x + at_0 + r0);
      const vec<float> x_1 = load(x + at_0 + r0 + LITZ_LANES);
      const vec<float> x_2 = load(x + at_0 + r0 + 2 * LITZ_LANES);
      const vec<float> x_3 = load(x + at_0 + r0 + 3 * LITZ_LANES);
      max_0.add(x_0);
      max_1.add(x_1);
      max_2.add(x_2);
      max_3.add(x_3);
    }
    for (int64_t r0 = r0_whole_0; r0 < 72; r0 += LITZ_LANES) {
      const int64_t left_0 = 72 - r0;
      const vec<float> x_4 = load_partial(x + at_0 + r0, left_0);
      max_0.add(x_4, first_lanes(left_0));
    }
    max_0.merge(max_1);
    max_0.merge(max_2);
    max_0.merge(max_3);
    const auto max_all_0 = collapse(max_0);
    const float max_4 = max_all_0.result();
    sum_state<vec<float>> sum_0, sum_1, sum_2, sum_3;
    const int64_t r0_whole_1 = 72 / (4 * LITZ_LANES) * (4 * LITZ_LANES);
    const vec<float> max_4_all_0 = broadcast<float>(max_4);
    for (int64_t r0 = 0; r0 < r0_whole_1; r0 += 4 * LITZ_LANES) {
      const vec<float> x_5 = load(x + at_0 + r0);
      const vec<float> x_6 = load(x + at_0 + r0 + LITZ_LANES);
      const vec<float> x_7 = load(x + at_0 + r0 + 2 * LITZ_LANES);
      const vec<float> x_8 = load(x + at_0 + r0 + 3 * LITZ_LANES);
      const vec<float> sub_0 = x_5 - max_4_all_0;
      const vec<float> sub_1 = x_6 - max_4_all_0;
      const vec<float> sub_2 = x_7 - max_4_all_0;
      const vec<float> sub_3 = x_8 - max_4_all_0;
      const vec<float> exp_0 = exp(sub_0);
      const vec<float> exp_1 = exp(sub_1);
      const vec<float> exp_2 = exp(sub_2);
      const vec<float> exp_3 = exp(sub_3);
      sum_0.add(exp_0);
      sum_1.add(exp_1);
      sum_2.add(exp_2);
      sum_3.add(exp_3);
      store(e + r0, exp_0);
      store(e + r0 + LITZ_LANES, exp_1);
      store(e + r0 + 2 * LITZ_LANES, exp_2);
      store(e + r0 + 3 * LITZ_LANES, exp_3);
    }
    for (int64_t r0 = r0_whole_1; r0 < 72; r0 += LITZ_LANES) {
      const int64_t left_1 = 72 - r0;
      const vec<float> x_9 = load_partial(x + at_0 + r0, left_1);
      const vec<float> sub_4 = x_9 - max_4_all_0;
      const vec<float> exp_4 = exp(sub_4);
      sum_0.add(exp_4, first_lanes(left_1));
      store_partial(e + r0, left_1, exp_4);
    }
    sum_0.merge(sum_1);
    sum_0.merge(sum_2);
    sum_0.merge(sum_3);
    const auto sum_all_0 = collapse(sum_0);
    const float sum_4 = sum_all_0.result();
    const int64_t r0_whole_2 = 72 / (4 * LITZ_LANES) * (4 * LITZ_LANES);
    const divisor<float> sum_4_divisor_0(sum_4);
    for (int64_t r0 = 0; r0 < r0_whole_2; r0 += 4 * LITZ_LANES) {
      const vec<float> e_0 = load(e + r0);
      const vec<float> e_1 = load(e + r0 + LITZ_LANES);
      const vec<float> e_2 = load(e + r0 + 2 * LITZ_LANES);
      const vec<float> e_3 = load(e + r0 + 3 * LITZ_LANES);
      const vec<float> div_0 = e_0 / sum_4_divisor_0;
      const vec<float> div_1 = e_1 / sum_4_divisor_0;
      const vec<float> div_2 = e_2 / sum_4_divisor_0;
      const vec<float> div_3 = e_3 / sum_4_divisor_0;
      store(o + at_0 + r0, div_0);
      store(o + at_0 + r0 + LITZ_LANES, div_1);
      store(o + at_0 + r0 + 2 * LITZ_LANES, div_2);
      store(o + at_0 + r0 + 3 * LITZ_LANES, div_3);
    }
    for (int64_t r0 = r0_whole_2; r0 < 72; r0 += LITZ_LANES) {
      const int64_t left_2 = 72 - r0;
      const vec<float> e_4 = load_partial(e + r0, left_2);
      const vec<float> div_4 = e_4 / sum_4_divisor_0;
      store_partial(o + at_0 + r0, left_2, div_4);
    }
  }
}

extern "C" int64_t softmax(litz_runtime* rt, void** buffers, const int64_t* symbols) {
  const int64_t n = symbols[0];
  if (n <= 0) return 0;
  return parallel_range(rt, 0, n, 1, softmax_range, buffers, symbols);
}
