// The interface between a kernel and the process that loads it, and the use of several threads. A kernel is
//
//   extern "C" int64_t NAME(litz_runtime* rt, void** buffers, const int64_t* symbols)     0, or an error code
//
//   void parallel_for(rt, int64_t begin, int64_t end, int64_t grain, f)   f(int64_t b, int64_t e) on disjoint slices
//        [b, e) of [begin, end), contiguous and one per thread; in one slice where it has fewer than 2 * grain steps
//   int64_t parallel_range(rt, begin, end, grain, range, buffers, symbols)   the same for the function of a kernel, and
//        returns its error code; compiled once for all kernels of a unit
//   void parallel_slots(rt, begin, end, grain, f)      f(b, e, int64_t slot), slots distinct and below slot_count
//   int64_t slot_count(rt, begin, end, grain)          for the partial results of a split reduction
//   void litz_parallel_for(rt, begin, end, grain, void (*fn)(void* context, int64_t b, int64_t e), void* context)
//   void report(int64_t* error, int64_t code)          keeps the first code; callable from any thread
//
//   bool idle(rt)              true where a kernel that needs one thread leaves its work to another
//   int64_t litz_segment(...)  runs kernels one after another, those that use several threads in one parallel region:
//                              every thread of the team calls every kernel, which assigns it a slice, and all wait at
//                              a barrier before a kernel that depends on other threads
//   int64_t litz_unchanged(...)  compares memory with what it was
//
// runtime_table.h has the table. Nothing writes to it while kernels run: a thread of a team has a copy.
#ifndef LITZ_RUNTIME_H
#define LITZ_RUNTIME_H
#include "types.h"

extern "C" {
#include "runtime_table.h"

typedef int64_t (*litz_kernel)(litz_runtime*, void**, const int64_t*);
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

  // The first `extra` slices are one step longer.
  LITZ_METHOD void slice(int64_t slot, int64_t slots) {
    int64_t each = steps / slots, extra = steps % slots;
    int64_t b = begin + slot * each + (slot < extra ? slot : extra);
    int64_t e = b + each + (slot < extra);
    if (b < e) (*body)(b, e, slot);
  }
  // The team may be smaller than asked for, as in nested regions.
  static void run(void* self) {
    auto* region = (parallel_region*)self;
    region->slice(region->rt->thread_num(), region->rt->num_threads_in_region());
  }
};

template <class F>
static void parallel_slots(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain, F body) {
  if (begin >= end) return;
  int64_t slots = slot_count(rt, begin, end, grain);
  parallel_region<F> region = {rt, begin, end - begin, &body};
  if (rt->useful) {
    if (slots > *rt->useful) *rt->useful = slots;
    return;
  }
  if (rt->slots) {
    slots = slots < rt->slots ? slots : rt->slots;
    if (rt->slot < slots) region.slice(rt->slot, slots);
    return;
  }
  if (slots <= 1) return body(begin, end, int64_t(0));
  rt->gomp_parallel(parallel_region<F>::run, &region, unsigned(slots), 0);
}

template <class F>
LITZ_FN void parallel_for(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain, F body) {
  parallel_slots(rt, begin, end, grain, [&body](int64_t b, int64_t e, int64_t) { body(b, e); });
}

LITZ_FN bool idle(const litz_runtime* rt) { return rt->useful || rt->slot; }

LITZ_FN void report(int64_t* error, int64_t code) {
  int64_t none = 0;
  __atomic_compare_exchange_n(error, &none, code, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

typedef void (*range_function)(void** buffers, const int64_t* symbols, int64_t* error, int64_t begin, int64_t end);

// Not inlined: what divides a range among threads takes longer to compile than many a kernel does.
static __attribute__((noinline)) int64_t parallel_range(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain,
                                                        range_function range, void** buffers, const int64_t* symbols) {
  int64_t error = 0;
  parallel_for(rt, begin, end, grain, [&](int64_t b, int64_t e) { range(buffers, symbols, &error, b, e); });
  return error;
}

// The result of a run: 0, or a kernel's error code and its position times 256.
struct kernel_run {
  const litz_runtime* rt;
  int64_t count;
  const litz_kernel* kernels;
  void*** buffers;
  const int64_t* const* symbols;
  const uint8_t* waits;
  int64_t failure;

  LITZ_METHOD int64_t call(int64_t k, litz_runtime* table) {
    const int64_t code = kernels[k](table, buffers[k], symbols[k]);
    return code ? k * 256 + code : 0;
  }
  static void member(void* self) {
    auto* run = (kernel_run*)self;
    litz_runtime own = *run->rt;
    own.slot = own.thread_num();
    own.slots = own.num_threads_in_region();
    for (int64_t k = 0; k < run->count; ++k) {
      if (run->waits[k]) {
        own.barrier();
        // All threads see failures of earlier kernels; a failure of a faster thread in a later kernel is ignored.
        const int64_t failure = __atomic_load_n(&run->failure, __ATOMIC_RELAXED);
        if (failure && failure / 256 < k) return;
      }
      if (const int64_t failure = run->call(k, &own)) report(&run->failure, failure);
    }
  }
};

}  // namespace litz

// Where waits[k] is not 0, kernel k begins when all kernels before it have ended; else it is independent of them.
// Weak, since units that are linked into one library all have it.
extern "C" __attribute__((weak)) int64_t litz_segment(litz_runtime* rt, int64_t count, const litz_kernel* kernels, void*** buffers,
                                const int64_t* const* symbols, const uint8_t* waits) {
  litz::kernel_run run = {rt, count, kernels, buffers, symbols, waits, 0};
  if (count > 1 && rt->gomp_parallel && rt->barrier) {
    int64_t useful = 1;
    litz_runtime asking = *rt;
    asking.useful = &useful;
    for (int64_t k = 0; k < count; ++k) run.call(k, &asking);
    if (useful > 1) {
      rt->gomp_parallel(litz::kernel_run::member, &run, unsigned(useful), 0);
      return run.failure;
    }
  }
  for (int64_t k = 0; k < count; ++k)
    if (const int64_t failure = run.call(k, rt)) return failure;
  return 0;
}

// Elements of memory that `litz_unchanged` compares: at `positions`, or adjacent ones where there are none.
struct litz_memory_part {
  const char* memory;
  const int64_t* positions;
  const char* expected;
  int64_t count, width;
};

namespace litz {

constexpr int64_t COMPARED_BYTES = 1 << 16;  // worth a thread
constexpr int64_t COMPARED_AHEAD = 32;  // elements that are prefetched, since each is in a line of its own

LITZ_FN void prefetch_part(const litz_memory_part& part) {
  const int64_t bytes = part.count * part.width;
  for (int64_t k = 0; k < COMPARED_AHEAD && (part.positions ? k < part.count : k * 64 < bytes); ++k)
    __builtin_prefetch(part.memory + (part.positions ? part.positions[k] * part.width : k * 64));
}
template <class T>
LITZ_FN bool is_unchanged(const litz_memory_part& part) {
  const T *memory = (const T*)part.memory, *expected = (const T*)part.expected;
  T found = 0;
  for (int64_t k = 0; k < part.count; ++k) {
    __builtin_prefetch(memory + part.positions[k + COMPARED_AHEAD < part.count ? k + COMPARED_AHEAD : k]);
    found |= memory[part.positions[k]] ^ expected[k];
  }
  return !found;
}
LITZ_FN bool is_unchanged(const litz_memory_part& part) {
  if (!part.positions) return !__builtin_memcmp(part.memory, part.expected, part.count * part.width);
  return part.width == 1   ? is_unchanged<uint8_t>(part)
         : part.width == 2 ? is_unchanged<uint16_t>(part)
         : part.width == 4 ? is_unchanged<uint32_t>(part)
                           : is_unchanged<uint64_t>(part);
}

}  // namespace litz

// Returns whether all parts have the expected bytes. Threads take the next part.
extern "C" __attribute__((weak)) int64_t litz_unchanged(const litz_runtime* rt, const litz_memory_part* parts, int64_t count) {
  int64_t bytes = 0, next = 0, changed = 0;
  for (int64_t k = 0; k < count; ++k) bytes += parts[k].count * (parts[k].positions ? 64 : parts[k].width);
  const auto compare = [&](int64_t, int64_t, int64_t) {
    for (int64_t k, last = -1; (k = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < count; last = k) {
      if (last < 0) litz::prefetch_part(parts[k]);
      for (int64_t ahead = 1; ahead <= 2; ++ahead)
        if (k + ahead < count) litz::prefetch_part(parts[k + ahead]);
      if (!litz::is_unchanged(parts[k])) __atomic_store_n(&changed, 1, __ATOMIC_RELAXED);
    }
  };
  litz::parallel_slots(rt, 0, bytes, litz::COMPARED_BYTES, compare);
  return !changed;
}

LITZ_FN void litz_parallel_for(const litz_runtime* rt, int64_t begin, int64_t end, int64_t grain,
                               void (*fn)(void*, int64_t, int64_t), void* context) {
  litz::parallel_for(rt, begin, end, grain, [=](int64_t b, int64_t e) { fn(context, b, e); });
}

#endif
