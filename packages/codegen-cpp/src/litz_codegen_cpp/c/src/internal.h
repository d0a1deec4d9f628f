/* What the files of liblitz_runtime share. */
#ifndef LITZ_INTERNAL_H
#define LITZ_INTERNAL_H

#include <litz.h>
#include <litz/host_program.h>

/* --- error.c: every failure is noted once, where it is found */
litz_code litz_fail(litz_error* error, litz_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- sha256.c */
void litz_sha256(const uint8_t* data, size_t bytes, char hex[65]);

/* --- json.c: a document as a tree; strings are UTF-8 without zero bytes */
typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;
typedef struct json {
  json_kind kind;
  const char* key;   /* in an object */
  const char* text;  /* of a string */
  double number;     /* of an integer, NaN of another number, and 0 or 1 of a bool */
  struct json *first, *next;
  size_t count;      /* of an array or object */
} json;
typedef struct json_document json_document;
litz_code json_parse(const char* text, size_t bytes, const char* what, json_document** document, litz_error* error);
void json_free(json_document* document);
const json* json_root(const json_document* document);
const json* json_member(const json* object, const char* key); /* null if there is none, or no object */
const char* json_text(const json* object, const char* key);   /* of a member; null if it is no string */
int json_size(const json* value, size_t* size);               /* 1 for an integer that a size can be */

/* --- archive.c: a ZIP archive of stored members, mapped into memory */
typedef struct archive {
  const uint8_t* data;
  size_t bytes;
} archive;
typedef struct member {
  const uint8_t* data;
  size_t bytes;
  uint32_t crc;
} member;
litz_code archive_map(const char* path, archive* file, litz_error* error);
void archive_unmap(archive* file);
litz_code archive_find(const archive* file, const char* name, member* found, litz_error* error);
uint32_t archive_crc32(const uint8_t* data, size_t bytes);

/* --- library.c: shared objects of an archive */
typedef struct library {
  void* handle; /* null where none is loaded */
  int file;     /* open as long as the object is loaded: the linker takes objects of one path for one object */
} library;
litz_code library_open(const member* object, const char* name, const char* sha256, library* loaded, litz_error* error);
void library_close(library* loaded);

/* --- weights.c */
typedef struct weights {
  archive sidecar;           /* a file beside the model; empty if there is none */
  json_document* header;
  const uint8_t* data;       /* what the offsets of the header count from */
  size_t bytes;
} weights;
litz_code weights_open(const uint8_t* data, size_t bytes, weights* found, litz_error* error);
litz_code weights_find(const weights* from, const char* name, const litz_host_tensor* wanted, const int64_t* sizes,
                       void** data, litz_error* error);
int64_t tensor_bytes(const litz_host_tensor* tensor, const int64_t* sizes); /* -1 for an overflow */
int tensor_is_dense(const litz_host_tensor* tensor, const int64_t* sizes);
size_t dtype_bytes(int32_t dtype);
void weights_close(weights* found);

/* --- cpu.c */
int cpu_runs(const char* isa); /* 1 if this CPU has the instruction set, or feature, of that name */
int cpu_loads(const uint8_t* object, size_t bytes); /* 0 for an object of another architecture */

/* --- threads.c: one team of threads */
typedef struct team team;
team* team_create(int threads); /* 0 for one per CPU of the process; null without memory */
void team_free(team* of);
/* The table of every call, and of its sizes: the layout of workspaces depends on the number of threads. */
litz_runtime team_table(const team* of);
/* Gives the team to the call that this thread makes; 0 while another call has it, and then this thread runs alone. */
int team_enter(team* of);
void team_leave(team* of, int entered);

/* --- model.c and run.c */
typedef struct buffer {
  struct buffer* next;
  size_t bytes;
} buffer; /* the memory of a call, kept for the next one; begins LITZ_HOST_ALIGNMENT bytes after this */

struct litz_entry {
  struct litz_model* model;
  const char* name;
  library object;
  const litz_host_program_table* program;
  void** bound;           /* the address of each input that is a weight; null for others */
  void** owned;           /* memory of weights that were copied to other strides; null for others */
  const void** operators; /* what the program calls, in the order of its table */
  int32_t* given;         /* positions of the inputs that a call is given */
  const char** names;     /* their names */
  char* overwritten;      /* 1 for one of them that the manifest says is overwritten: it knows what operators write */
  size_t given_count;
  int prepared;           /* 0 if the state needs inputs of a call, so that every call computes it */
  void* state_memory;     /* what prepare computed */
  void* pool;             /* a pthread_mutex_t and free buffers: see run.c */
};
struct litz_model {
  archive file;
  json_document* manifest;
  weights stored;
  team* threads;
  const litz_operators* operators; /* null where none are given */
  litz_entry* entries;
  size_t entry_count;
};
litz_code entry_find_operators(litz_entry* entry, litz_error* error);
litz_code entry_prepare(litz_entry* entry, litz_error* error);
litz_code pool_create(void** pool, litz_error* error);
void pool_free(void* pool);

#endif
