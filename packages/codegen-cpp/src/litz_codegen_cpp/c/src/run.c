/* Questions about entry points, and their runs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct pool {
  pthread_mutex_t lock;
  buffer* free;
} pool;

static litz_code no_memory(litz_error* error, int64_t bytes) {
  return litz_fail(error, LITZ_ERROR_MEMORY, "no memory for %lld bytes", (long long)bytes);
}

static size_t rounded(size_t bytes) { return (bytes + LITZ_HOST_ALIGNMENT - 1) / LITZ_HOST_ALIGNMENT * LITZ_HOST_ALIGNMENT; }

litz_code pool_create(void** made, litz_error* error) {
  pool* of = calloc(1, sizeof *of);
  if (!of) return no_memory(error, sizeof *of);
  pthread_mutex_init(&of->lock, NULL);
  *made = of;
  return LITZ_OK;
}

void pool_free(void* made) {
  pool* of = made;
  if (!of) return;
  for (buffer *each = of->free, *next; each; each = next) {
    next = each->next;
    free(each);
  }
  pthread_mutex_destroy(&of->lock);
  free(of);
}

/* Memory of at least `bytes` that no other call has; null without memory. */
static buffer* pool_take(pool* of, size_t bytes) {
  pthread_mutex_lock(&of->lock);
  buffer* found = of->free;
  if (found) of->free = found->next;
  pthread_mutex_unlock(&of->lock);
  if (found && found->bytes >= bytes) return found;
  free(found);
  if (bytes > SIZE_MAX / 2) return NULL;
  found = aligned_alloc(LITZ_HOST_ALIGNMENT, LITZ_HOST_ALIGNMENT + rounded(bytes));
  if (found) *found = (buffer){NULL, rounded(bytes)};
  return found;
}

static void pool_give(pool* of, buffer* used) {
  pthread_mutex_lock(&of->lock);
  used->next = of->free;
  of->free = used;
  pthread_mutex_unlock(&of->lock);
}

/* --- questions */

size_t litz_entry_count(const litz_model* model) { return model->entry_count; }
const litz_entry* litz_entry_at(const litz_model* model, size_t position) {
  return position < model->entry_count ? &model->entries[position] : NULL;
}
const litz_entry* litz_entry_named(const litz_model* model, const char* name) {
  for (size_t i = 0; i < model->entry_count; ++i)
    if (name && !strcmp(model->entries[i].name, name)) return &model->entries[i];
  return NULL;
}
const char* litz_entry_name(const litz_entry* entry) { return entry->name; }
const char* litz_entry_isa(const litz_entry* entry) { return entry->program->isa; }
size_t litz_input_count(const litz_entry* entry) { return entry->given_count; }
size_t litz_output_count(const litz_entry* entry) { return (size_t)entry->program->output_count; }
size_t litz_symbol_count(const litz_entry* entry) { return (size_t)entry->program->symbol_count; }
const char* litz_input_name(const litz_entry* entry, size_t position) {
  return position < entry->given_count ? entry->names[position] : NULL;
}
int litz_input_overwritten(const litz_entry* entry, size_t position) {
  return position < entry->given_count && entry->program->inputs[entry->given[position]].overwritten;
}

litz_code litz_symbol_info(const litz_entry* entry, size_t position, litz_symbol* symbol, litz_error* error) {
  if (position >= litz_symbol_count(entry))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu symbols, and none at position %zu", entry->name, litz_symbol_count(entry), position);
  const litz_host_symbol* known = &entry->program->symbols[position];
  *symbol = (litz_symbol){known->name, known->kind, known->low, known->high, known->divisor};
  return LITZ_OK;
}

static litz_code check_symbols(const litz_entry* entry, const int64_t* symbols, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  if (program->symbol_count && !symbols)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s needs the values of %d symbols", entry->name, program->symbol_count);
  for (int32_t i = 0; i < program->symbol_count; ++i) {
    const litz_host_symbol* known = &program->symbols[i];
    if (known->kind == 0 && (symbols[i] < known->low || symbols[i] > known->high || symbols[i] % known->divisor))
      return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s is %lld: it has to be a multiple of %lld from %lld to %lld", known->name,
                       (long long)symbols[i], (long long)known->divisor, (long long)known->low, (long long)known->high);
    if (known->kind == 2 && symbols[i] != 0 && symbols[i] != 1)
      return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s is %lld: it has to be 0 or 1", known->name, (long long)symbols[i]);
  }
  const int64_t violated = program->violated(symbols);
  if (violated >= 0)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s needs sizes for which %s", entry->name, program->equalities[violated]);
  return LITZ_OK;
}

/* The shapes and strides of all tensors, to be freed by the caller. */
static litz_code all_sizes(const litz_entry* entry, const int64_t* symbols, int64_t** sizes, litz_error* error) {
  *sizes = calloc((size_t)entry->program->size_count + 1, sizeof **sizes);
  if (!*sizes) return no_memory(error, entry->program->size_count * 8);
  entry->program->sizes(symbols, *sizes);
  return LITZ_OK;
}

litz_code litz_symbols_of(const litz_entry* entry, const int64_t* const* shapes, int64_t* symbols, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  int64_t* sizes;
  if ((entry->given_count && !shapes) || (program->symbol_count && !symbols))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu inputs and %d symbols", entry->name, entry->given_count, program->symbol_count);
  for (size_t i = 0; i < entry->given_count; ++i) {
    const litz_host_tensor* tensor = &program->inputs[entry->given[i]];
    for (int32_t k = 0; k < tensor->rank; ++k)
      if (tensor->symbols[k] >= 0) symbols[tensor->symbols[k]] = shapes[i][k];
  }
  litz_code code = check_symbols(entry, symbols, error);
  if (!code) code = all_sizes(entry, symbols, &sizes, error);
  if (code) return code;
  for (size_t i = 0; i < entry->given_count && !code; ++i) {
    const litz_host_tensor* tensor = &program->inputs[entry->given[i]];
    for (int32_t k = 0; k < tensor->rank && !code; ++k)
      if (sizes[tensor->first + k] != shapes[i][k])
        code = litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has size %lld in dimension %d, where %lld is needed", entry->names[i],
                         (long long)shapes[i][k], k, (long long)sizes[tensor->first + k]);
  }
  free(sizes);
  return code;
}

static litz_code layout_of(const litz_entry* entry, const litz_host_tensor* tensor, const int64_t* symbols, litz_layout* layout,
                           litz_error* error) {
  int64_t* sizes;
  litz_code code = check_symbols(entry, symbols, error);
  if (code) return code;
  if (tensor->rank > LITZ_MAX_RANK) return litz_fail(error, LITZ_ERROR_UNSUPPORTED, "a tensor has %d dimensions", tensor->rank);
  if ((code = all_sizes(entry, symbols, &sizes, error))) return code;
  *layout = (litz_layout){.dtype = (litz_dtype)tensor->dtype, .rank = tensor->rank};
  for (int32_t i = 0; i < tensor->rank; ++i) {
    layout->shape[i] = sizes[tensor->first + i];
    layout->strides[i] = sizes[tensor->first + tensor->rank + i];
  }
  const int64_t bytes = tensor_bytes(tensor, sizes);
  free(sizes);
  if (bytes < 0) return litz_fail(error, LITZ_ERROR_ARGUMENT, "a tensor has more elements than memory can have");
  layout->bytes = (size_t)bytes;
  return LITZ_OK;
}

litz_code litz_input_layout(const litz_entry* entry, size_t position, const int64_t* symbols, litz_layout* layout, litz_error* error) {
  if (position >= entry->given_count)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu inputs, and none at position %zu", entry->name, entry->given_count, position);
  return layout_of(entry, &entry->program->inputs[entry->given[position]], symbols, layout, error);
}

litz_code litz_output_layout(const litz_entry* entry, size_t position, const int64_t* symbols, litz_layout* layout, litz_error* error) {
  if (position >= litz_output_count(entry))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu outputs, and none at position %zu", entry->name, litz_output_count(entry), position);
  return layout_of(entry, &entry->program->outputs[position], symbols, layout, error);
}

/* --- runs */

static litz_runtime table_of(const litz_entry* entry) { return team_table(entry->model->threads); }

litz_code litz_workspace(const litz_entry* entry, const int64_t* symbols, size_t* bytes, litz_error* error) {
  const litz_runtime table = table_of(entry);
  const litz_code code = check_symbols(entry, symbols, error);
  if (!code) *bytes = (size_t)entry->program->run_bytes(&table, symbols);
  return code;
}

/* A failure of the program: the position of a step, and what it found. */
static litz_code failed(const litz_entry* entry, int64_t result, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  const int64_t step = result / LITZ_HOST_STEP, fault = result % LITZ_HOST_STEP;
  const char *what = "an unknown fault", *where = step >= 0 && step < program->step_count ? program->steps[step] : "a step";
  for (int32_t i = 0; i < program->fault_count; ++i)
    if (program->faults[i].code == fault) what = program->faults[i].message;
  return litz_fail(error, LITZ_ERROR_RUN, "%s in %s: %s (code %lld)", where, entry->name, what, (long long)fault);
}

litz_code entry_prepare(litz_entry* entry, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  litz_code code = pool_create(&entry->pool, error);
  if (code) return code;
  for (int32_t i = 0; i < program->prepared_count; ++i)
    if (!entry->bound[program->prepared[i]]) return LITZ_OK; /* every call prepares for itself */
  entry->prepared = 1;
  litz_runtime table = table_of(entry);
  const int64_t bytes = program->state_bytes(&table), needed = program->prepare_bytes(&table);
  entry->state_memory = aligned_alloc(LITZ_HOST_ALIGNMENT, rounded((size_t)bytes + 1));
  buffer* memory = pool_take(entry->pool, (size_t)needed);
  if (!entry->state_memory || !memory) {
    if (memory) pool_give(entry->pool, memory);
    return no_memory(error, bytes + needed);
  }
  const int entered = team_enter(entry->model->threads);
  const int64_t result = program->prepare(&table, entry->bound, entry->state_memory, (char*)memory + LITZ_HOST_ALIGNMENT);
  team_leave(entry->model->threads, entered);
  pool_give(entry->pool, memory);
  return result ? failed(entry, result, error) : LITZ_OK;
}

static litz_code run_in(const litz_entry* entry, const int64_t* symbols, void* const* inputs, void* const* outputs, char* memory,
                        size_t state_bytes, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  void** all = (void**)memory;
  char* state = memory + rounded(sizeof(void*) * (size_t)program->input_count);
  char* workspace = state + rounded(state_bytes);
  int64_t result = 0;
  if (program->input_count) memcpy(all, entry->bound, sizeof(void*) * (size_t)program->input_count);
  for (size_t i = 0; i < entry->given_count; ++i) all[entry->given[i]] = inputs[i];
  litz_runtime table = table_of(entry);
  const int entered = team_enter(entry->model->threads);
  if (!entry->prepared) result = program->prepare(&table, all, state, workspace);
  if (!result) result = program->run(&table, symbols, all, outputs, entry->prepared ? entry->state_memory : state, workspace);
  team_leave(entry->model->threads, entered);
  return result ? failed(entry, result, error) : LITZ_OK;
}

litz_code litz_run(const litz_entry* entry, const int64_t* symbols, void* const* inputs, void* const* outputs, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  litz_code code = check_symbols(entry, symbols, error);
  if (code) return code;
  if ((entry->given_count && !inputs) || (program->output_count && !outputs))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s needs %zu inputs and %d outputs", entry->name, entry->given_count, program->output_count);
  const litz_runtime table = table_of(entry);
  const int64_t state = entry->prepared ? 0 : program->state_bytes(&table), run = program->run_bytes(&table, symbols);
  const int64_t prepare = entry->prepared ? 0 : program->prepare_bytes(&table);
  if (state < 0 || run < 0 || prepare < 0) return no_memory(error, run);
  const size_t bytes = rounded(sizeof(void*) * (size_t)program->input_count) + rounded((size_t)state) +
                       (size_t)(run > prepare ? run : prepare);
  buffer* memory = pool_take(entry->pool, bytes);
  if (!memory) return no_memory(error, (int64_t)bytes);
  code = run_in(entry, symbols, inputs, outputs, (char*)memory + LITZ_HOST_ALIGNMENT, (size_t)state, error);
  pool_give(entry->pool, memory);
  return code;
}
