/* The interface between liblitz_runtime and a compiled program: what a host object exports. C99 and C++17.
 *
 * A host object is a shared library of one program: kernels, routines and the steps that call them, compiled for one
 * instruction set. It needs the C library alone, and exports one object of data, LITZ_HOST_SYMBOL. Nothing of it runs
 * before the runtime calls one of the functions in that object. What it does not contain, it calls by litz_host_services.
 *
 * Sizes are in elements, memory in bytes. `symbols` has a value for each symbol of the program, in its order: integers,
 * and the bits of a double for a float. `inputs` has the address of the first element of each input, `outputs` likewise.
 * Memory is aligned to LITZ_HOST_ALIGNMENT.
 */
#ifndef LITZ_HOST_PROGRAM_H
#define LITZ_HOST_PROGRAM_H

#define LITZ_HOST_ABI 2u
#define LITZ_HOST_SYMBOL "litz_host_program"
#define LITZ_HOST_ALIGNMENT 64
/* A result of run and prepare: 0, or the position of the step that failed times this, plus its error code. */
#define LITZ_HOST_STEP 256
/* Error codes beside those of kernels. */
#define LITZ_HOST_NO_MEMORY 2
#define LITZ_HOST_LAYOUT_FAULT 253  /* a result of an operator has other strides than the program was compiled for */
#define LITZ_HOST_CHECK_FAULT 254   /* an assertion about values does not hold; the name of the step is its message */
#define LITZ_HOST_CALL_FAULT 255    /* an operator failed; litz_host_services.call noted why */

#include "operators.h"
#include "runtime_table.h"

/* What the runtime does for one run. Memory that a run asks for has a number below `dynamic_count`, under which there is one
 * block at a time; all blocks are freed when the run ends. */
typedef struct litz_host_services {
  /* Calls an operator by its position in the table, whose results get the numbers from `first` on.
   * Returns 0 or LITZ_HOST_CALL_FAULT. */
  int64_t (*call)(struct litz_host_services* of, int32_t position, const litz_argument* arguments, int64_t argument_count,
                  litz_result* results, int64_t result_count, int64_t first);
  char* (*take)(struct litz_host_services* of, int64_t number, int64_t bytes);  /* null without memory */
  void (*drop)(struct litz_host_services* of, int64_t number);
  /* Gives a result whose size was not known before: its shape and strides, and its first element. 0, or CALL_FAULT. */
  int64_t (*deliver)(struct litz_host_services* of, int32_t output, const int64_t* sizes, const void* data);
} litz_host_services;

typedef struct litz_host_tensor {
  const char* name;
  int32_t dtype;           /* a litz_dtype */
  int32_t rank;
  int32_t first;           /* where its shape begins in the result of `sizes`; its strides follow */
  int32_t overwritten;     /* 1 for an input that a run writes to */
  int32_t is_complex;      /* 1 for pairs that are a complex tensor */
  int32_t late;            /* 1 for an output whose size is known only after the run, which is delivered */
  const int32_t* symbols;  /* for each dimension the symbol that it is, or -1 */
} litz_host_tensor;

typedef struct litz_host_symbol {
  const char* name;
  int32_t kind;  /* 0 integer, 1 float, 2 bool */
  int64_t low, high, divisor;
  int32_t late;  /* 1 for one that the program computes: callers pass anything */
} litz_host_symbol;

typedef struct litz_host_operator {
  const char* target;    /* by the plan's name, such as aten.sort.stable */
  const char* name;      /* aten::sort */
  const char* overload;  /* stable */
} litz_host_operator;

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
  int32_t input_count, output_count, symbol_count, equality_count, size_count, prepared_count, step_count, fault_count,
      operator_count, dynamic_count;
  const litz_host_tensor* inputs;
  const litz_host_tensor* outputs;
  const litz_host_symbol* symbols;
  const char* const* equalities;
  const int32_t* prepared;  /* the inputs that `prepare` reads */
  const char* const* steps;
  const litz_host_fault* faults;
  const litz_host_operator* operators;
  /* Writes shape and strides of all inputs, then outputs. */
  void (*sizes)(const int64_t* symbols, int64_t* sizes);
  /* -1, or the first equality that does not hold. */
  int64_t (*violated)(const int64_t* symbols);
  /* Bytes of the state that prepare writes, and of the workspaces of prepare and run. */
  int64_t (*state_bytes)(const litz_runtime* rt);
  int64_t (*prepare_bytes)(const litz_runtime* rt);
  int64_t (*run_bytes)(const litz_runtime* rt, const int64_t* symbols);
  /* Computes what depends on the inputs in `prepared` alone; the others may be null. */
  int64_t (*prepare)(litz_runtime* rt, litz_host_services* services, void* const* inputs, char* state, char* workspace);
  int64_t (*run)(litz_runtime* rt, litz_host_services* services, const int64_t* symbols, void* const* inputs, void* const* outputs,
                 const char* state, char* workspace);
} litz_host_program_table;

#endif
