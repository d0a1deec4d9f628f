/* Opening of models: the manifest, the choice of programs, and their weights. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct opening {
  litz_model* model;
  const char* path;
  const litz_options* options;
  const json* manifest;
  litz_error* error;
} opening;

static litz_code malformed(const opening* of, const char* what) {
  return litz_fail(of->error, LITZ_ERROR_FORMAT, "the manifest is malformed: %s", what);
}

static litz_code out_of_memory(const opening* of) {
  return litz_fail(of->error, LITZ_ERROR_MEMORY, "no memory for the model");
}

static litz_code read_manifest(opening* of) {
  member found;
  size_t version;
  litz_code code = archive_find(&of->model->file, "manifest.json", &found, of->error);
  if (code) return code;
  if (archive_crc32(found.data, found.bytes) != found.crc)
    return litz_fail(of->error, LITZ_ERROR_CHECKSUM, "manifest.json is damaged: its CRC-32 does not agree");
  code = json_parse((const char*)found.data, found.bytes, "manifest.json", &of->model->manifest, of->error);
  if (code) return code;
  of->manifest = json_root(of->model->manifest);
  const char* format = json_text(of->manifest, "format");
  if (!format || strcmp(format, "litz model")) return malformed(of, "its format is not \"litz model\"");
  if (!json_size(json_member(of->manifest, "version"), &version)) return malformed(of, "it has no version");
  if (version != LITZ_FORMAT_VERSION)
    return litz_fail(of->error, LITZ_ERROR_VERSION, "the file has version %zu of the format, and this library reads %d",
                     version, LITZ_FORMAT_VERSION);
  return LITZ_OK;
}

static const char* sum_of(const opening* of, const char* name) {
  return json_text(json_member(json_member(of->manifest, "files"), name), "sha256");
}

/* --- weights */

static int is_plain_name(const char* name) { return *name && *name != '.' && !strchr(name, '/') && !strchr(name, '\\'); }

/* A file of this name beside the model. */
static litz_code map_beside(opening* of, const char* name) {
  const char* slash = strrchr(of->path, '/');
  const size_t folder = slash ? (size_t)(slash - of->path) + 1 : 0, bytes = folder + strlen(name) + 1;
  char* path = malloc(bytes);
  if (!path) return out_of_memory(of);
  snprintf(path, bytes, "%.*s%s", (int)folder, of->path, name);
  const litz_code code = archive_map(path, &of->model->stored.sidecar, of->error);
  free(path);
  return code;
}

static litz_code open_weights(opening* of) {
  weights* stored = &of->model->stored;
  const char* name = json_text(json_member(of->manifest, "weights"), "file");
  const char* path = of->options->weights_path;
  member inside = {NULL, 0, 0};
  litz_code code;
  if (path) {
    code = archive_map(path, &stored->sidecar, of->error);
  } else {
    if (!name) return LITZ_OK;
    if (!is_plain_name(name)) return malformed(of, "the name of its weights is no plain name");
    if (!archive_find(&of->model->file, name, &inside, NULL)) code = LITZ_OK;
    else code = map_beside(of, name);
    if (code == LITZ_ERROR_IO && of->options->weight_count) { /* what is not given is missed below */
      if (of->error) *of->error = (litz_error){LITZ_OK, ""};
      return LITZ_OK;
    }
  }
  if (code) return code;
  const uint8_t* data = inside.data ? inside.data : stored->sidecar.data;
  const size_t bytes = inside.data ? inside.bytes : stored->sidecar.bytes;
  const char* sum = name ? sum_of(of, name) : NULL;
  if (of->options->verify_weights && !path) {
    char found[65];
    if (!sum) return malformed(of, "it has no sum of its weights");
    litz_sha256(data, bytes, found);
    if (strcmp(sum, found)) return litz_fail(of->error, LITZ_ERROR_CHECKSUM, "%s has the SHA-256 sum %s, and the manifest has %s", name, found, sum);
  }
  return weights_open(data, bytes, stored, of->error);
}

/* Copies a dense tensor to one of other strides, dimension by dimension. */
static void spread(char* to, const char** from, const int64_t* shape, const int64_t* strides, int32_t rank, size_t each) {
  if (!rank) {
    memcpy(to, *from, each);
    *from += each;
    return;
  }
  for (int64_t i = 0; i < *shape; ++i) spread(to + i * *strides * (int64_t)each, from, shape + 1, strides + 1, rank - 1, each);
}

static litz_code bind_weight(opening* of, litz_entry* entry, const char* name, size_t position, const int64_t* sizes) {
  const litz_host_tensor* wanted = &entry->program->inputs[position];
  const int64_t *shape = sizes + wanted->first, bytes = tensor_bytes(wanted, sizes);
  const size_t each = dtype_bytes(wanted->dtype);
  size_t elements = 1;
  void* data = NULL;
  for (int32_t i = 0; i < wanted->rank; ++i) elements *= (size_t)shape[i];
  for (size_t i = 0; i < of->options->weight_count; ++i) {
    const litz_weight* given = &of->options->weights[i];
    if (!given->name || strcmp(given->name, name)) continue;
    if (!given->data || given->bytes != elements * each)
      return litz_fail(of->error, LITZ_ERROR_WEIGHTS, "the weight %s was given with %zu bytes and has %zu", name, given->bytes, elements * each);
    data = (void*)(uintptr_t)given->data;
  }
  if (!data) {
    const litz_code code = weights_find(&of->model->stored, name, wanted, sizes, &data, of->error);
    if (code) return code;
  }
  if (!tensor_is_dense(wanted, sizes)) {
    const char* from = data;
    data = bytes < 0 ? NULL : calloc(1, bytes ? (size_t)bytes : 1);
    if (!data) return out_of_memory(of);
    entry->owned[position] = data;
    spread(data, &from, shape, shape + wanted->rank, wanted->rank, each);
  }
  entry->bound[position] = data;
  return LITZ_OK;
}

static litz_code bind_weights(opening* of, litz_entry* entry, const json* about) {
  const litz_host_program_table* program = entry->program;
  const size_t count = (size_t)program->input_count;
  int64_t *sizes = calloc((size_t)program->size_count + 1, sizeof *sizes),
          *symbols = calloc((size_t)program->symbol_count + 1, sizeof *symbols);
  litz_code code = sizes && symbols ? LITZ_OK : out_of_memory(of);
  const json* listed = json_member(about, "weights");
  if (!code) program->sizes(symbols, sizes); /* no size of a weight depends on a symbol */
  for (const json* each = listed ? listed->first : NULL; each && !code; each = each->next) {
    const char* name = json_text(each, "name");
    size_t position;
    if (!name || !json_size(json_member(each, "position"), &position) || position >= count ||
        program->inputs[position].dtype < 0 || entry->bound[position])
      code = malformed(of, "a weight has no name, or is no input of its program");
    else code = bind_weight(of, entry, name, position, sizes);
  }
  /* Tensors that the program contains: its last inputs, by their names in the program. */
  listed = json_member(about, "constants");
  for (const json* each = listed ? listed->first : NULL; each && !code; each = each->next)
    for (size_t i = 0; i < count && !code; ++i)
      if (each->key && each->kind == JSON_STRING && program->inputs[i].dtype >= 0 && !entry->bound[i] &&
          !strcmp(program->inputs[i].name, each->key))
        code = bind_weight(of, entry, each->text, i, sizes);
  free(sizes);
  free(symbols);
  return code;
}

/* The inputs that a call is given: tensors that are no weights, by the names that the manifest has for them. */
static litz_code list_inputs(opening* of, litz_entry* entry, const json* about) {
  const json* named = json_member(about, "inputs");
  named = named ? named->first : NULL;
  for (int32_t i = 0; i < entry->program->input_count; ++i) {
    if (entry->program->inputs[i].dtype < 0 || entry->bound[i]) continue;
    while (named && json_text(named, "kind") && strcmp(json_text(named, "kind"), "tensor")) named = named->next;
    const char* name = json_text(named, "name");
    if (!name) return malformed(of, "an input has no name");
    const json* overwritten = json_member(named, "overwritten");
    entry->overwritten[entry->given_count] = overwritten && overwritten->kind == JSON_BOOL && overwritten->number != 0;
    entry->given[entry->given_count] = i;
    entry->names[entry->given_count++] = name;
    named = named->next;
  }
  return LITZ_OK;
}

/* --- programs */

static litz_code choose_program(opening* of, const json* about, const char* entry, const json** chosen) {
  char known[256] = "";
  const json *programs = json_member(about, "programs"), *without_host = NULL;
  *chosen = NULL;
  for (const json* each = programs ? programs->first : NULL; each && !*chosen; each = each->next) {
    const char *device = json_text(each, "device"), *isa = json_text(each, "isa");
    if (!device || !isa) return malformed(of, "a program has no device or instruction set");
    const size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s %s", used ? ", " : "", device, isa);
    if (strcmp(device, "cpu") || !cpu_runs(isa)) continue;
    if (json_text(each, "host")) *chosen = each;
    else without_host = each;
  }
  if (*chosen) return LITZ_OK;
  if (!without_host)
    return litz_fail(of->error, LITZ_ERROR_ISA, "%s has programs for %s, and this CPU runs none of them", entry, *known ? known : "nothing");
  const char* refusal = json_text(without_host, "host_refusal");
  if (refusal) return litz_fail(of->error, LITZ_ERROR_UNSUPPORTED, "%s needs torch: %s", entry, refusal);
  const json* calls = json_member(about, "calls");
  const char* first = calls && calls->kind == JSON_ARRAY && calls->first ? calls->first->text : NULL;
  return litz_fail(of->error, LITZ_ERROR_UNSUPPORTED, "%s has no host program for this CPU, since it needs Python; it calls %s. litz_codegen_cpp.host.refusals says why", entry,
                   first ? first : "no operator");
}

static litz_code check_program(opening* of, const litz_host_program_table* program, const char* isa, const char* name) {
  if (program->abi != LITZ_HOST_ABI || program->bytes != sizeof *program)
    return litz_fail(of->error, LITZ_ERROR_VERSION, "%s was compiled for version %u of the host interface, and this library has %u",
                     name, program->abi, LITZ_HOST_ABI);
  if (strcmp(program->isa, isa)) return malformed(of, "a program has another instruction set than its object");
  char feature[32];
  for (const char* at = program->features; *at;) {
    const size_t length = strcspn(at, " ");
    snprintf(feature, sizeof feature, "%.*s", (int)length, at);
    if (!cpu_runs(feature)) return litz_fail(of->error, LITZ_ERROR_ISA, "%s needs %s, which this CPU has not", name, feature);
    at += length + (at[length] == ' ');
  }
  return LITZ_OK;
}

static litz_code load_program(opening* of, litz_entry* entry, const json* about) {
  const json* chosen;
  member object;
  litz_code code = choose_program(of, about, entry->name, &chosen);
  if (code) return code;
  const char *name = json_text(chosen, "host"), *sum = sum_of(of, name);
  if (!sum) return malformed(of, "it has no sum of a program");
  if ((code = archive_find(&of->model->file, name, &object, of->error))) return code;
  if (!cpu_loads(object.data, object.bytes))
    return litz_fail(of->error, LITZ_ERROR_ISA, "%s was compiled for another architecture than this CPU's", name);
  if ((code = library_open(&object, name, sum, &entry->object, of->error))) return code;
  entry->program = dlsym(entry->object.handle, LITZ_HOST_SYMBOL);
  if (!entry->program) return litz_fail(of->error, LITZ_ERROR_FORMAT, "%s has no host program", name);
  return check_program(of, entry->program, json_text(chosen, "isa"), name);
}

static litz_code open_entry(opening* of, litz_entry* entry, const json* about) {
  entry->model = of->model;
  entry->name = about->key;
  litz_code code = load_program(of, entry, about);
  if (code) return code;
  if ((code = entry_find_operators(entry, of->error))) return code;
  const size_t count = (size_t)entry->program->input_count + 1;
  entry->bound = calloc(count, sizeof *entry->bound);
  entry->owned = calloc(count, sizeof *entry->owned);
  entry->given = calloc(count, sizeof *entry->given);
  entry->names = calloc(count, sizeof *entry->names);
  entry->overwritten = calloc(count, sizeof *entry->overwritten);
  if (!entry->overwritten || !entry->bound || !entry->owned || !entry->given || !entry->names) return out_of_memory(of);
  if ((code = bind_weights(of, entry, about))) return code;
  if ((code = list_inputs(of, entry, about))) return code;
  return entry_prepare(entry, of->error);
}

litz_code litz_open(const char* path, const litz_options* options, litz_model** model, litz_error* error) {
  static const litz_options plain = {0, 0, NULL, NULL, 0, NULL};
  if (!model) return litz_fail(error, LITZ_ERROR_ARGUMENT, "litz_open needs a place for the model");
  *model = NULL;
  if (!path) return litz_fail(error, LITZ_ERROR_ARGUMENT, "litz_open needs a path");
  opening of = {calloc(1, sizeof(litz_model)), path, options ? options : &plain, NULL, error};
  if (!of.model) return out_of_memory(&of);
  of.model->operators = of.options->operators;
  litz_code code = archive_map(path, &of.model->file, error);
  if (!code) code = read_manifest(&of);
  if (!code) code = open_weights(&of);
  if (!code && !(of.model->threads = team_create(of.options->threads))) code = out_of_memory(&of);
  const json* entries = json_member(of.manifest, "entry_points");
  if (!code && (!entries || entries->kind != JSON_OBJECT || !entries->count)) code = malformed(&of, "it has no entry points");
  if (!code && !(of.model->entries = calloc(entries->count, sizeof(litz_entry)))) code = out_of_memory(&of);
  for (const json* each = code ? NULL : entries->first; each && !code; each = each->next)
    code = open_entry(&of, &of.model->entries[of.model->entry_count++], each);
  if (code) litz_close(of.model);
  else *model = of.model;
  return code;
}

void litz_close(litz_model* model) {
  if (!model) return;
  for (size_t i = 0; i < model->entry_count; ++i) {
    litz_entry* entry = &model->entries[i];
    for (int32_t k = 0; entry->owned && k < entry->program->input_count; ++k) free(entry->owned[k]);
    free(entry->owned);
    free(entry->bound);
    free(entry->operators);
    free(entry->given);
    free(entry->names);
    free(entry->overwritten);
    free(entry->state_memory);
    pool_free(entry->pool);
    library_close(&entry->object);
  }
  free(model->entries);
  team_free(model->threads);
  weights_close(&model->stored);
  json_free(model->manifest);
  archive_unmap(&model->file);
  free(model);
}
