// The table of a process's threads that kernels are called with, in C and in C++. int64_t has to be declared before.
// Its layout is shared with litz_codegen_cpp.runtime.load.
#ifndef LITZ_RUNTIME_TABLE_H
#define LITZ_RUNTIME_TABLE_H

typedef struct litz_runtime {
  void (*gomp_parallel)(void (*)(void*), void*, unsigned, unsigned);  // null: everything runs serially
  int (*thread_num)(void);
  int (*num_threads_in_region)(void);
  int (*max_threads)(void);
  void (*barrier)(void);  // null: every kernel has a region of its own
  int64_t threads;        // the most to use; 0 asks max_threads at every region
  int64_t slot, slots;    // within a team: which of how many threads calls; slots is 0 outside
  int64_t* useful;        // not null: kernels do nothing but raise this to the number of threads they would use
} litz_runtime;

#endif
