/* The interface between liblitz_runtime and a compiled program: what a host object exports. C99 and C++17.
 *
 * A host object is a shared library of one program: kernels, routines and the steps that call them, compiled for one
 * instruction set. It needs the C library alone, and exports one object of data, LITZ_HOST_SYMBOL. Nothing of it runs
 * before the runtime calls one of the functions in that object.
 *
 * Sizes are in elements, memory in bytes. `symbols` has a value for each symbol of the program, in its order: integers,
 * and the bits of a double for a float. `inputs` has the address of the first element of each input, `outputs` likewise.
 * Memory is aligned to LITZ_HOST_ALIGNMENT.
 */
#ifndef LITZ_HOST_PROGRAM_H
#define LITZ_HOST_PROGRAM_H

#define LITZ_HOST_ABI 1u
#define LITZ_HOST_SYMBOL "litz_host_program"
#define LITZ_HOST_ALIGNMENT 64
/* A result of run and prepare: 0, or the position of the step that failed times this, plus its error code. */
#define LITZ_HOST_STEP 256

#include "runtime_table.h"

typedef struct litz_host_tensor {
  const char* name;
  int32_t dtype;           /* a litz_dtype */
  int32_t rank;
  int32_t first;           /* where its shape begins in the result of `sizes`; its strides follow */
  int32_t overwritten;     /* 1 for an input that a run writes to */
  const int32_t* symbols;  /* for each dimension the symbol that it is, or -1 */
} litz_host_tensor;

typedef struct litz_host_symbol {
  const char* name;
  int32_t kind;  /* 0 integer, 1 float, 2 bool */
  int64_t low, high, divisor;
} litz_host_symbol;

typedef struct litz_host_fault {
  int64_t code;
  const char* message;
} litz_host_fault;

typedef struct litz_host_program_table {
  uint32_t abi;
  uint32_t bytes;        /* of this object */
  const char* name;
  const char* isa;       /* avx512, avx2, neon or scalar */
  const char* features;  /* further ones that it needs, separated by spaces */
  int32_t input_count, output_count, symbol_count, equality_count, size_count, prepared_count, step_count, fault_count;
  const litz_host_tensor* inputs;
  const litz_host_tensor* outputs;
  const litz_host_symbol* symbols;
  const char* const* equalities;
  const int32_t* prepared;  /* the inputs that `prepare` reads */
  const char* const* steps;
  const litz_host_fault* faults;
  /* Writes shape and strides of all inputs, then outputs. */
  void (*sizes)(const int64_t* symbols, int64_t* sizes);
  /* -1, or the first equality that does not hold. */
  int64_t (*violated)(const int64_t* symbols);
  /* Bytes of the state that prepare writes, and of the workspaces of prepare and run. */
  int64_t (*state_bytes)(const litz_runtime* rt);
  int64_t (*prepare_bytes)(const litz_runtime* rt);
  int64_t (*run_bytes)(const litz_runtime* rt, const int64_t* symbols);
  /* Computes what depends on the inputs in `prepared` alone; the others may be null. */
  int64_t (*prepare)(litz_runtime* rt, void* const* inputs, char* state, char* workspace);
  int64_t (*run)(litz_runtime* rt, const int64_t* symbols, void* const* inputs, void* const* outputs,
                 const char* state, char* workspace);
} litz_host_program_table;

#endif
