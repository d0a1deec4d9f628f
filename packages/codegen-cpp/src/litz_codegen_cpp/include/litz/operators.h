/* Operators that host programs call and do not contain. Whoever opens a model gives the functions, such as those of
 * litz_torch.hpp. C99 and C++17; fixed-width integers have to be declared before.
 *
 * All functions may be called by several threads at once. None may throw.
 */
#ifndef LITZ_OPERATORS_H
#define LITZ_OPERATORS_H

typedef struct litz_tensor {
  void* data;              /* the first element */
  const int64_t* shape;
  const int64_t* strides;  /* in elements */
  int32_t dtype;           /* a litz_dtype */
  int32_t rank;
  int32_t is_complex;      /* 1 for a complex tensor: the last dimension is the real and the imaginary part */
} litz_tensor;

typedef enum litz_kind {
  LITZ_NONE = 0,
  LITZ_INTEGER,  /* `integer` */
  LITZ_REAL,     /* `real` */
  LITZ_TRUTH,    /* `integer`, 0 or 1 */
  LITZ_COMPLEX,  /* `real` and `imaginary` */
  LITZ_TEXT,     /* `text`; also names of layouts, memory formats and complex dtypes, and devices */
  LITZ_DTYPE,    /* `integer`, a litz_dtype */
  LITZ_TENSOR,   /* `tensor` */
  LITZ_LIST      /* `integer` items, which follow, each with its own items after it */
} litz_kind;

typedef struct litz_argument {
  int32_t kind;
  const char* keyword;  /* of a keyword argument; null for the next position */
  int64_t integer;
  double real, imaginary;
  const char* text;
  const litz_tensor* tensor;
} litz_argument;

typedef struct litz_result {
  const int64_t* shape;    /* that it has to have; -1 for a size that depends on values */
  const int64_t* strides;  /* likewise: the callee copies a result of others */
  int64_t* found;          /* where its shape and then its strides are written */
  int32_t dtype;
  int32_t rank;
  int32_t is_complex;
  int32_t wanted;          /* 0 for a result that nothing reads */
  void* data;              /* written by the callee: memory that shares nothing with that of arguments, */
  void* owner;             /* and what frees it, for `release` */
} litz_result;

typedef struct litz_operators {
  void* context;
  /* Returns the operator of a name, such as "aten::sort", and overload, such as "stable" or ""; null if there is none. */
  const void* (*find)(void* context, const char* name, const char* overload);
  /* Calls an operator. Returns 0, or 1 after writing a message of at most `bytes` bytes. */
  int (*call)(void* context, const void* found, const litz_argument* arguments, int64_t argument_count, litz_result* results,
              int64_t result_count, char* message, int64_t bytes);
  void (*release)(void* context, void* owner);
} litz_operators;

#endif
