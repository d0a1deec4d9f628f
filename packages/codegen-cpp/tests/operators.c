/* Operators for tests of the C runtime: test::nonzero, test::fail and test::transposed. */
#include <litz.h>
#include <litz/operators.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int live;        /* results that are not released */
double last;     /* the second argument of the last call, if it is a number */

static const char* const NAMES[] = {"test::nonzero", "test::fail", "test::transposed"};

static const void* find(void* context, const char* name, const char* overload) {
  (void)context;
  for (int i = 0; i < 3; ++i)
    if (!strcmp(name, NAMES[i]) && !*overload) return NAMES[i];
  return NULL;
}

static void give(litz_result* result, const int64_t* sizes, int64_t* data) {
  memcpy(result->found, sizes, sizeof(int64_t) * 2 * (size_t)result->rank);
  result->data = result->owner = data;
  __atomic_fetch_add(&live, 1, __ATOMIC_SEQ_CST);
}

/* The positions of nonzero elements of a dense matrix of bytes, the fastest dimension first; `transposed` is wrong. */
static int call(void* context, const void* found, const litz_argument* arguments, int64_t count, litz_result* results,
                int64_t result_count, char* message, int64_t bytes) {
  (void)context;
  if (count > 1) last = arguments[1].kind == LITZ_REAL ? arguments[1].real : (double)arguments[1].integer;
  if (found == NAMES[1]) return snprintf(message, (size_t)bytes, "no such luck with %lld results", (long long)result_count), 1;
  const litz_tensor* mask = arguments[0].tensor;
  const int64_t rows = mask->shape[0], columns = mask->shape[1];
  int64_t hits = 0;
  const uint8_t* at = mask->data;
  for (int64_t i = 0; i < rows * columns; ++i) hits += at[i];
  int64_t* data = malloc(sizeof(int64_t) * (size_t)(2 * hits + 1));
  for (int64_t i = 0, k = 0; i < rows * columns; ++i)
    if (at[i]) data[k] = i / columns, data[hits + k++] = i % columns;
  const int64_t right[] = {hits, 2, 1, hits}, wrong[] = {hits, 2, 2, 1};
  give(&results[0], found == NAMES[2] ? wrong : right, data);
  return 0;
}

static void release(void* context, void* owner) {
  (void)context;
  free(owner);
  __atomic_fetch_sub(&live, 1, __ATOMIC_SEQ_CST);
}

const litz_operators operators = {NULL, find, call, release};
