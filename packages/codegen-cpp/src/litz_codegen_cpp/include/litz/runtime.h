// What a kernel gets from the process that loads it, and how it uses several threads. A kernel is
//
//   extern "C" int64_t NAME(litz_runtime* rt, void** buffers, const int64_t* symbols)     0, or an error code
//
//   void parallel_for(rt, int64_t begin, int64_t end, int64_t grain, f)   f(int64_t b, int64_t e) on disjoint slices
//        [b, e) of [begin, end), contiguous and one per thread; in one piece where it has fewer than 2 * grain steps
//   void parallel_slots(rt, begin, end, grain, f)      f(b, e, int64_t slot), slots distinct and below slot_count
//   int64_t slot_count(rt, begin, end, grain)          for the partial results of a split reduction
//   void litz_parallel_for(rt, begin, end, grain, void (*fn)(void* context, int64_t b, int64_t e), void* context)
//   void report(int64_t* error, int64_t code)          keeps the first code; callable from any thread
//
// The table's layout is shared with litz_codegen_cpp.runtime.load. Nothing writes to it while kernels run.
#ifndef LITZ_RUNTIME_H
#define LITZ_RUNTIME_H
#include "types.h"

extern "C" {
struct litz_runtime {
  void (*gomp_parallel)(void (*)(void*), void*, unsigned, unsigned);  // null: everything runs serially
  int (*thread_num)(void);
  int (*num_threads_in_region)(void);
  int (*max_threads)(void);
  int64_t threads;  // the most to use; 0 asks max_threads at every region
};
}

namespace litz {

LITZ_FN int64_t slot_count(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain) {
  int64_t steps = end - begin;
  if (!rt->gomp_parallel || steps < 2 * grain || steps < 2) return 1;
  int64_t threads = rt->threads > 0 ? rt->threads : rt->max_threads();
  int64_t useful = grain > 1 ? steps / grain : steps;
  return useful < threads ? useful : threads;
}

template <class F>
struct parallel_region {
  const litz_runtime* rt;
  int64_t begin, steps;
  F* body;

  static void run(void* self) {
    auto* region = (parallel_region*)self;
    int64_t slot = region->rt->thread_num(), slots = region->rt->num_threads_in_region();
    // The first `extra` slices are one step longer. The team may be smaller than asked for, as in nested regions.
    int64_t each = region->steps / slots, extra = region->steps % slots;
    int64_t b = region->begin + slot * each + (slot < extra ? slot : extra);
    int64_t e = b + each + (slot < extra);
    if (b < e) (*region->body)(b, e, slot);
  }
};

template <class F>
static void parallel_slots(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain, F body) {
  if (begin >= end) return;
  int64_t slots = slot_count(rt, begin, end, grain);
  if (slots <= 1) return body(begin, end, int64_t(0));
  parallel_region<F> region = {rt, begin, end - begin, &body};
  rt->gomp_parallel(parallel_region<F>::run, &region, unsigned(slots), 0);
}

template <class F>
LITZ_FN void parallel_for(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain, F body) {
  parallel_slots(rt, begin, end, grain, [&body](int64_t b, int64_t e, int64_t) { body(b, e); });
}

LITZ_FN void report(int64_t* error, int64_t code) {
  int64_t none = 0;
  __atomic_compare_exchange_n(error, &none, code, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace litz

LITZ_FN void litz_parallel_for(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain,
                               void (*fn)(void*, int64_t, int64_t), void* context) {
  litz::parallel_for(rt, begin, end, grain, [=](int64_t b, int64_t e) { fn(context, b, e); });
}

#endif
