/* Runs an MLP from model.litz in C: usage `mlp MODEL BATCH THREADS < inputs > outputs`, floats of this machine.
 *
 * Reads BATCH rows of the input, and writes the rows of the output. With THREADS above 1 so many threads run the model
 * at once, and their results have to be equal. An error is a line on the standard error stream, and status 1. */
#include <inttypes.h>
#include <litz.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct call {
  const litz_entry* entry;
  const int64_t* symbols;
  void* input;
  void* output;
  litz_error error;
} call;

static void* run(void* of_call) {
  call* mine = of_call;
  litz_run(mine->entry, mine->symbols, &mine->input, &mine->output, &mine->error);
  return NULL;
}

static int fail(const litz_error* error) {
  fprintf(stderr, "mlp: error %d: %s\n", (int)error->code, error->message);
  return 1;
}

int main(int count, char** arguments) {
  if (count != 4) return fprintf(stderr, "usage: mlp MODEL BATCH THREADS\n"), 2;
  const int threads = atoi(arguments[3]);
  if (threads < 1 || threads > 64) return fprintf(stderr, "mlp: 1 to 64 threads\n"), 2;
  litz_error error = {LITZ_OK, ""};
  litz_model* model;
  if (litz_open(arguments[1], NULL, &model, &error)) return fail(&error);
  const litz_entry* entry = litz_entry_at(model, 0);

  /* The batch is the only symbol, if there is one; the layouts follow from it. */
  int64_t symbols[1] = {atoll(arguments[2])};
  litz_layout in, out;
  if (litz_input_layout(entry, 0, symbols, &in, &error) || litz_output_layout(entry, 0, symbols, &out, &error)) return fail(&error);
  fprintf(stderr, "mlp: %s for %s, input %s of %" PRId64 " rows\n", litz_entry_name(entry), litz_entry_isa(entry),
          litz_input_name(entry, 0), in.shape[0]);
  void* input = malloc(in.bytes);
  if (!input || fread(input, 1, in.bytes, stdin) != in.bytes) return fprintf(stderr, "mlp: the input is too short\n"), 1;

  call calls[64];
  pthread_t ids[64];
  for (int i = 0; i < threads; ++i) {
    calls[i] = (call){entry, symbols, input, malloc(out.bytes), {LITZ_OK, ""}};
    if (!calls[i].output || pthread_create(&ids[i], NULL, run, &calls[i])) return fprintf(stderr, "mlp: no thread\n"), 1;
  }
  int status = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    if (calls[i].error.code) status = fail(&calls[i].error);
    else if (memcmp(calls[0].output, calls[i].output, out.bytes)) fprintf(stderr, "mlp: results differ\n"), status = 1;
  }
  if (!status && fwrite(calls[0].output, 1, out.bytes, stdout) != out.bytes) status = 1;
  for (int i = 0; i < threads; ++i) free(calls[i].output);
  free(input);
  litz_close(model);
  return status;
}
