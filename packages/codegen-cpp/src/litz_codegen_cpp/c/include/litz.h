/* Compiled programs of litz in C: no Python, no torch. C99.
 *
 *   litz_model* model;
 *   litz_error error;
 *   if (litz_open("model.litz", NULL, &model, &error)) die(error.message);
 *   const litz_entry* entry = litz_entry_named(model, "forward");
 *   int64_t symbols[1] = {8};                                  a batch of 8, where the first dimension is symbolic
 *   if (litz_output_layout(entry, 0, symbols, &layout, &error)) ...
 *   if (litz_run(entry, symbols, inputs, outputs, &error)) ...
 *   litz_close(model);
 *
 * Every function that can fail returns a litz_code, 0 for success, and writes code and message to `error` if that is
 * not null. No function aborts, prints or exits. Nothing of a file runs before its SHA-256 sum agrees with the manifest.
 *
 * Threads: any number of threads may call litz_run on one model at once. A model has one team of threads, which one call
 * uses at a time; other calls then run on the thread that makes them.
 */
#ifndef LITZ_H
#define LITZ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LITZ_API __attribute__((visibility("default")))
#define LITZ_FORMAT_VERSION 1
#define LITZ_MAX_RANK 16
#define LITZ_MESSAGE_BYTES 512

typedef enum litz_code {
  LITZ_OK = 0,
  LITZ_ERROR_IO = 1,           /* the file cannot be opened, read or mapped */
  LITZ_ERROR_FORMAT = 2,       /* the file is no archive of this format, or is damaged */
  LITZ_ERROR_CHECKSUM = 3,     /* a member has not the SHA-256 sum that the manifest has */
  LITZ_ERROR_VERSION = 4,      /* the file, or a program in it, is of another version than this library */
  LITZ_ERROR_ISA = 5,          /* no program in the file runs on this CPU */
  LITZ_ERROR_UNSUPPORTED = 6,  /* the program calls operators that are not given, or needs Python */
  LITZ_ERROR_WEIGHTS = 7,      /* a weight is missing, or has another dtype or shape */
  LITZ_ERROR_ARGUMENT = 8,     /* an argument of the call does not fit */
  LITZ_ERROR_MEMORY = 9,       /* memory or threads cannot be had */
  LITZ_ERROR_RUN = 10          /* the program found a fault in the values of its inputs, or an operator failed */
} litz_code;

typedef struct litz_error {
  litz_code code;
  char message[LITZ_MESSAGE_BYTES];
} litz_error;

typedef enum litz_dtype {
  LITZ_B1 = 0,
  LITZ_I8, LITZ_I16, LITZ_I32, LITZ_I64,
  LITZ_U8, LITZ_U16, LITZ_U32, LITZ_U64,
  LITZ_F16, LITZ_BF16, LITZ_F32, LITZ_F64,
  LITZ_F8E4M3FN, LITZ_F8E5M2, LITZ_F8E4M3FNUZ, LITZ_F8E5M2FNUZ
} litz_dtype;

typedef struct litz_model litz_model;
typedef struct litz_entry litz_entry; /* a function of a model; lives as long as the model */

/* A weight that the caller has in memory, which has to stay there until litz_close. */
typedef struct litz_weight {
  const char* name;
  const void* data; /* dense, the last dimension fastest */
  size_t bytes;
} litz_weight;

struct litz_operators; /* of litz/operators.h */

typedef struct litz_options {
  int threads;                /* the most that a call uses; 0 for one per CPU of this process */
  int verify_weights;         /* not 0: check the SHA-256 sum of the weights too, which reads all of them */
  const char* weights_path;   /* a safetensors file to take weights from instead of the model's own; may be null */
  const litz_weight* weights; /* weights that come before those of a file */
  size_t weight_count;
  /* What the program calls and does not contain; may be null, and has to stay there until litz_close. */
  const struct litz_operators* operators;
} litz_options;

typedef struct litz_layout {
  litz_dtype dtype;
  int rank;
  int64_t shape[LITZ_MAX_RANK];
  int64_t strides[LITZ_MAX_RANK]; /* in elements */
  size_t bytes;                   /* from the first to the last element */
} litz_layout;

typedef struct litz_symbol {
  const char* name;
  int kind;          /* 0 integer, 1 float (its value is passed as the bits of a double), 2 bool */
  int64_t low, high; /* INT64_MIN and INT64_MAX for open ends */
  int64_t divisor;
  int computed;      /* 1 for one that the program computes from values: what is passed for it is ignored */
} litz_symbol;

/* Opens a model and prepares its programs: what depends on weights alone is computed here, once.
 * `options` may be null. Writes the model, or null, to `*model`. */
LITZ_API litz_code litz_open(const char* path, const litz_options* options, litz_model** model, litz_error* error);
/* Closes a model, which may be null. No call may be running. */
LITZ_API void litz_close(litz_model* model);

LITZ_API size_t litz_entry_count(const litz_model* model);
LITZ_API const litz_entry* litz_entry_at(const litz_model* model, size_t position);        /* null outside */
LITZ_API const litz_entry* litz_entry_named(const litz_model* model, const char* name);    /* null if there is none */
LITZ_API const char* litz_entry_name(const litz_entry* entry);
LITZ_API const char* litz_entry_isa(const litz_entry* entry); /* the instruction set of the chosen program */

LITZ_API size_t litz_input_count(const litz_entry* entry); /* tensors that a call is given, without weights */
LITZ_API size_t litz_output_count(const litz_entry* entry);
LITZ_API size_t litz_symbol_count(const litz_entry* entry);
LITZ_API const char* litz_input_name(const litz_entry* entry, size_t position);  /* null outside */
LITZ_API int litz_input_rank(const litz_entry* entry, size_t position);          /* -1 outside */
LITZ_API int litz_input_overwritten(const litz_entry* entry, size_t position);   /* 1 if a run writes to it */
LITZ_API int litz_input_is_complex(const litz_entry* entry, size_t position);    /* 1 if its last dimension is (real, */
LITZ_API int litz_output_is_complex(const litz_entry* entry, size_t position);   /* imaginary) of a complex tensor */
LITZ_API int litz_output_is_late(const litz_entry* entry, size_t position);      /* 1 if its size depends on values */
/* A symbol. Their order is that in which the inputs have them as sizes; `name` is torch's. */
LITZ_API litz_code litz_symbol_info(const litz_entry* entry, size_t position, litz_symbol* symbol, litz_error* error);

/* The symbols' values for inputs of these shapes, one array of sizes per input; checks all sizes. Symbols that no size
 * of an input is keep the values that they have in `symbols`. */
LITZ_API litz_code litz_symbols_of(const litz_entry* entry, const int64_t* const* shapes, int64_t* symbols,
                                   litz_error* error);
/* The layout that an input or output has for these values of the symbols. */
LITZ_API litz_code litz_input_layout(const litz_entry* entry, size_t position, const int64_t* symbols,
                                     litz_layout* layout, litz_error* error);
LITZ_API litz_code litz_output_layout(const litz_entry* entry, size_t position, const int64_t* symbols,
                                      litz_layout* layout, litz_error* error);
/* Bytes of temporary memory that a call takes. */
LITZ_API litz_code litz_workspace(const litz_entry* entry, const int64_t* symbols, size_t* bytes, litz_error* error);

/* Runs the entry point. `inputs` and `outputs` have the address of each first element, of memory in the layouts above;
 * outputs overlap neither inputs nor each other. `symbols` may be null where there are none. */
LITZ_API litz_code litz_run(const litz_entry* entry, const int64_t* symbols, void* const* inputs, void* const* outputs,
                            litz_error* error);

/* Takes an output whose size depends on values: copies it, since it is gone when this returns. Not 0: the run fails. */
typedef int (*litz_receive)(void* receiver, size_t position, const litz_layout* layout, const void* data);
/* The same for programs with such outputs, whose addresses in `outputs` are ignored. */
LITZ_API litz_code litz_run_receiving(const litz_entry* entry, const int64_t* symbols, void* const* inputs,
                                      void* const* outputs, litz_receive receive, void* receiver, litz_error* error);

#ifdef __cplusplus
}
#endif
#endif
