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
int litz_input_rank(const litz_entry* entry, size_t position) {
  return position < entry->given_count ? entry->program->inputs[entry->given[position]].rank : -1;
}
int litz_input_overwritten(const litz_entry* entry, size_t position) {
  return position < entry->given_count &&
         (entry->overwritten[position] || entry->program->inputs[entry->given[position]].overwritten);
}

int litz_input_is_complex(const litz_entry* entry, size_t position) {
  return position < entry->given_count && entry->program->inputs[entry->given[position]].is_complex;
}
int litz_output_is_complex(const litz_entry* entry, size_t position) {
  return position < litz_output_count(entry) && entry->program->outputs[position].is_complex;
}
int litz_output_is_late(const litz_entry* entry, size_t position) {
  return position < litz_output_count(entry) && entry->program->outputs[position].late;
}

litz_code litz_symbol_info(const litz_entry* entry, size_t position, litz_symbol* symbol, litz_error* error) {
  if (position >= litz_symbol_count(entry))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu symbols, and none at position %zu", entry->name, litz_symbol_count(entry), position);
  const litz_host_symbol* known = &entry->program->symbols[position];
  *symbol = (litz_symbol){known->name, known->kind, known->low, known->high, known->divisor, known->late};
  return LITZ_OK;
}

static litz_code check_symbols(const litz_entry* entry, const int64_t* symbols, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  if (program->symbol_count && !symbols)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s needs the values of %d symbols", entry->name, program->symbol_count);
  for (int32_t i = 0; i < program->symbol_count; ++i) {
    const litz_host_symbol* known = &program->symbols[i];
    if (known->late) continue;
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

/* The layout of a tensor whose shape and strides are `sizes`. */
static litz_code read_layout(const litz_host_tensor* tensor, const int64_t* shape, litz_layout* layout, litz_error* error) {
  if (tensor->rank > LITZ_MAX_RANK) return litz_fail(error, LITZ_ERROR_UNSUPPORTED, "a tensor has %d dimensions", tensor->rank);
  *layout = (litz_layout){.dtype = (litz_dtype)tensor->dtype, .rank = tensor->rank};
  for (int32_t i = 0; i < tensor->rank; ++i) {
    layout->shape[i] = shape[i];
    layout->strides[i] = shape[tensor->rank + i];
  }
  litz_host_tensor alone = *tensor;
  alone.first = 0;
  const int64_t bytes = tensor_bytes(&alone, shape);
  if (bytes < 0) return litz_fail(error, LITZ_ERROR_ARGUMENT, "a tensor has more elements than memory can have");
  layout->bytes = (size_t)bytes;
  return LITZ_OK;
}

static litz_code layout_of(const litz_entry* entry, const litz_host_tensor* tensor, const int64_t* symbols, litz_layout* layout,
                           litz_error* error) {
  int64_t* sizes;
  litz_code code = check_symbols(entry, symbols, error);
  if (!code) code = all_sizes(entry, symbols, &sizes, error);
  if (code) return code;
  code = read_layout(tensor, sizes + tensor->first, layout, error);
  free(sizes);
  return code;
}

litz_code litz_input_layout(const litz_entry* entry, size_t position, const int64_t* symbols, litz_layout* layout, litz_error* error) {
  if (position >= entry->given_count)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu inputs, and none at position %zu", entry->name, entry->given_count, position);
  return layout_of(entry, &entry->program->inputs[entry->given[position]], symbols, layout, error);
}

litz_code litz_output_layout(const litz_entry* entry, size_t position, const int64_t* symbols, litz_layout* layout, litz_error* error) {
  if (position >= litz_output_count(entry))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s has %zu outputs, and none at position %zu", entry->name, litz_output_count(entry), position);
  if (entry->program->outputs[position].late)
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "the size of output %zu of %s depends on values: litz_run_receiving gives it", position, entry->name);
  return layout_of(entry, &entry->program->outputs[position], symbols, layout, error);
}

/* --- what a run asks of the runtime */

typedef struct dynamic_block {
  void* memory;      /* allocated here; null where */
  void* owner;       /* an operator owns it */
} dynamic_block;

typedef struct run_services {
  litz_host_services table; /* first, since programs pass its address */
  const litz_entry* entry;
  dynamic_block* blocks;
  litz_receive receive;
  void* receiver;
  char message[LITZ_MESSAGE_BYTES]; /* of the operator that failed */
} run_services;

static void drop(litz_host_services* table, int64_t number) {
  run_services* of = (run_services*)table;
  dynamic_block* block = &of->blocks[number];
  const litz_operators* operators = of->entry->model->operators;
  if (block->owner) operators->release(operators->context, block->owner);
  free(block->memory);
  *block = (dynamic_block){NULL, NULL};
}

static char* take(litz_host_services* table, int64_t number, int64_t bytes) {
  run_services* of = (run_services*)table;
  drop(table, number);
  if (bytes < 0 || (uint64_t)bytes > SIZE_MAX / 2) return NULL;
  return of->blocks[number].memory = aligned_alloc(LITZ_HOST_ALIGNMENT, rounded((size_t)bytes + 1));
}

static int64_t call(litz_host_services* table, int32_t position, const litz_argument* arguments, int64_t argument_count,
                    litz_result* results, int64_t result_count, int64_t number) {
  run_services* of = (run_services*)table;
  const litz_operators* operators = of->entry->model->operators;
  for (int64_t i = 0; i < result_count; ++i) drop(table, number + i);
  const int failure = operators->call(operators->context, of->entry->operators[position], arguments, argument_count, results,
                                      result_count, of->message, sizeof of->message);
  for (int64_t i = 0; i < result_count; ++i) of->blocks[number + i].owner = results[i].owner;
  return failure ? LITZ_HOST_CALL_FAULT : 0;
}

static int64_t deliver(litz_host_services* table, int32_t output, const int64_t* sizes, const void* data) {
  run_services* of = (run_services*)table;
  litz_layout layout;
  litz_error error = {LITZ_OK, ""};
  if (!read_layout(&of->entry->program->outputs[output], sizes, &layout, &error) &&
      !of->receive(of->receiver, (size_t)output, &layout, data))
    return 0;
  snprintf(of->message, sizeof of->message, "%s", error.code ? error.message : "its receiver refused it");
  return LITZ_HOST_CALL_FAULT;
}

static void services_begin(run_services* of, const litz_entry* entry, void* blocks) {
  *of = (run_services){.table = {call, take, drop, deliver}, .entry = entry, .blocks = blocks};
  memset(blocks, 0, sizeof(dynamic_block) * (size_t)entry->program->dynamic_count);
}

static void services_end(run_services* of) {
  for (int64_t i = 0; i < of->entry->program->dynamic_count; ++i) drop(&of->table, i);
}

litz_code entry_find_operators(litz_entry* entry, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  const litz_operators* operators = entry->model->operators;
  if (program->operator_count && !operators)
    return litz_fail(error, LITZ_ERROR_UNSUPPORTED,
                     "%s calls %s, which its program does not contain: give litz_options.operators, such as those of litz_torch.hpp",
                     entry->name, program->operators[0].target);
  entry->operators = calloc((size_t)program->operator_count + 1, sizeof *entry->operators);
  if (!entry->operators) return no_memory(error, program->operator_count * (int64_t)sizeof *entry->operators);
  for (int32_t i = 0; i < program->operator_count; ++i) {
    const litz_host_operator* wanted = &program->operators[i];
    entry->operators[i] = operators->find(operators->context, wanted->name, wanted->overload);
    if (!entry->operators[i])
      return litz_fail(error, LITZ_ERROR_UNSUPPORTED, "%s calls %s, and no operator of that name is registered: load its library first",
                       entry->name, wanted->target);
  }
  return LITZ_OK;
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
static litz_code failed(const run_services* services, int64_t result, litz_error* error) {
  const litz_entry* entry = services->entry;
  const litz_host_program_table* program = entry->program;
  const int64_t step = result / LITZ_HOST_STEP, fault = result % LITZ_HOST_STEP;
  const char *what = "an unknown fault", *where = step >= 0 && step < program->step_count ? program->steps[step] : "a step";
  if (fault == LITZ_HOST_CALL_FAULT) return litz_fail(error, LITZ_ERROR_RUN, "%s in %s: %s", where, entry->name, services->message);
  if (fault == LITZ_HOST_NO_MEMORY) return litz_fail(error, LITZ_ERROR_MEMORY, "no memory for %s in %s", where, entry->name);
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
  const size_t blocks = rounded(sizeof(dynamic_block) * (size_t)program->dynamic_count);
  buffer* memory = pool_take(entry->pool, blocks + (size_t)needed);
  if (!entry->state_memory || !memory) {
    if (memory) pool_give(entry->pool, memory);
    return no_memory(error, bytes + needed);
  }
  char* const start = (char*)memory + LITZ_HOST_ALIGNMENT;
  run_services services;
  services_begin(&services, entry, start);
  const int entered = team_enter(entry->model->threads);
  const int64_t result = program->prepare(&table, &services.table, entry->bound, entry->state_memory, start + blocks);
  team_leave(entry->model->threads, entered);
  services_end(&services);
  pool_give(entry->pool, memory);
  return result ? failed(&services, result, error) : LITZ_OK;
}

static litz_code run_in(run_services* services, const int64_t* symbols, void* const* inputs, void* const* outputs, char* memory,
                        size_t state_bytes, litz_error* error) {
  const litz_entry* entry = services->entry;
  const litz_host_program_table* program = entry->program;
  void** all = (void**)memory;
  char* state = memory + rounded(sizeof(void*) * (size_t)program->input_count);
  char* workspace = state + rounded(state_bytes);
  int64_t result = 0;
  if (program->input_count) memcpy(all, entry->bound, sizeof(void*) * (size_t)program->input_count);
  for (size_t i = 0; i < entry->given_count; ++i) all[entry->given[i]] = inputs[i];
  litz_runtime table = table_of(entry);
  const int entered = team_enter(entry->model->threads);
  if (!entry->prepared) result = program->prepare(&table, &services->table, all, state, workspace);
  if (!result) result = program->run(&table, &services->table, symbols, all, outputs, entry->prepared ? entry->state_memory : state, workspace);
  team_leave(entry->model->threads, entered);
  return result ? failed(services, result, error) : LITZ_OK;
}

litz_code litz_run(const litz_entry* entry, const int64_t* symbols, void* const* inputs, void* const* outputs, litz_error* error) {
  return litz_run_receiving(entry, symbols, inputs, outputs, NULL, NULL, error);
}

litz_code litz_run_receiving(const litz_entry* entry, const int64_t* symbols, void* const* inputs, void* const* outputs,
                             litz_receive receive, void* receiver, litz_error* error) {
  const litz_host_program_table* program = entry->program;
  litz_code code = check_symbols(entry, symbols, error);
  if (code) return code;
  if ((entry->given_count && !inputs) || (program->output_count && !outputs))
    return litz_fail(error, LITZ_ERROR_ARGUMENT, "%s needs %zu inputs and %d outputs", entry->name, entry->given_count, program->output_count);
  for (int32_t i = 0; i < program->output_count && !receive; ++i)
    if (program->outputs[i].late)
      return litz_fail(error, LITZ_ERROR_UNSUPPORTED, "the size of output %d of %s depends on values: use litz_run_receiving", i, entry->name);
  const litz_runtime table = table_of(entry);
  const int64_t state = entry->prepared ? 0 : program->state_bytes(&table), run = program->run_bytes(&table, symbols);
  const int64_t prepare = entry->prepared ? 0 : program->prepare_bytes(&table);
  if (state < 0 || run < 0 || prepare < 0) return no_memory(error, run);
  const size_t blocks = rounded(sizeof(dynamic_block) * (size_t)program->dynamic_count);
  const size_t bytes = blocks + rounded(sizeof(void*) * (size_t)program->input_count) + rounded((size_t)state) +
                       (size_t)(run > prepare ? run : prepare);
  buffer* memory = pool_take(entry->pool, bytes);
  if (!memory) return no_memory(error, (int64_t)bytes);
  char* const start = (char*)memory + LITZ_HOST_ALIGNMENT;
  run_services services;
  services_begin(&services, entry, start);
  services.receive = receive;
  services.receiver = receiver;
  code = run_in(&services, symbols, inputs, outputs, start + blocks, (size_t)state, error);
  services_end(&services);
  pool_give(entry->pool, memory);
  return code;
}
