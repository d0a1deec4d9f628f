/* Weights in the format of safetensors: the length of a JSON header, the header, and dense tensors. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static const struct {
  const char* name; /* of safetensors, in the order of litz_dtype */
  size_t bytes;
} DTYPES[] = {{"BOOL", 1}, {"I8", 1},   {"I16", 2},  {"I32", 4}, {"I64", 8}, {"U8", 1},      {"U16", 2},     {"U32", 4},
              {"U64", 8},  {"F16", 2},  {"BF16", 2}, {"F32", 4}, {"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"", 1},
              {"", 1}};

size_t dtype_bytes(int32_t dtype) {
  return dtype >= 0 && (size_t)dtype < sizeof DTYPES / sizeof *DTYPES ? DTYPES[dtype].bytes : 0;
}

int64_t tensor_bytes(const litz_host_tensor* tensor, const int64_t* sizes) {
  const int64_t *shape = sizes + tensor->first, *strides = shape + tensor->rank;
  int64_t last = 0, reach, bytes;
  for (int32_t i = 0; i < tensor->rank; ++i) {
    if (shape[i] == 0) return 0;
    if (shape[i] < 0 || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return -1;
  }
  if (last < 0 || last == INT64_MAX || __builtin_mul_overflow(last + 1, (int64_t)dtype_bytes(tensor->dtype), &bytes)) return -1;
  return bytes;
}

int tensor_is_dense(const litz_host_tensor* tensor, const int64_t* sizes) {
  const int64_t *shape = sizes + tensor->first, *strides = shape + tensor->rank;
  int64_t step = 1;
  for (int32_t i = tensor->rank - 1; i >= 0; --i) {
    if (shape[i] == 0) return 1;
    if (shape[i] != 1 && strides[i] != step) return 0;
    step *= shape[i];
  }
  return 1;
}

litz_code weights_open(const uint8_t* data, size_t bytes, weights* found, litz_error* error) {
  uint64_t length = 0;
  if (bytes < 8) return litz_fail(error, LITZ_ERROR_FORMAT, "the weights are no safetensors file: too short");
  for (int i = 7; i >= 0; --i) length = length << 8 | data[i];
  if (length > bytes - 8) return litz_fail(error, LITZ_ERROR_FORMAT, "the header of the weights is longer than their file");
  const litz_code code = json_parse((const char*)data + 8, (size_t)length, "the header of the weights", &found->header, error);
  if (code) return code;
  found->data = data + 8 + length;
  found->bytes = bytes - 8 - (size_t)length;
  return LITZ_OK;
}

void weights_close(weights* found) {
  json_free(found->header);
  archive_unmap(&found->sidecar);
}

litz_code weights_find(const weights* from, const char* name, const litz_host_tensor* wanted, const int64_t* sizes,
                       void** data, litz_error* error) {
  const json* about = from->header ? json_member(json_root(from->header), name) : NULL;
  if (!about) return litz_fail(error, LITZ_ERROR_WEIGHTS, "the weight %s is missing: give it, or a file that has it", name);
  const char* dtype = json_text(about, "dtype");
  if (!dtype || strcmp(dtype, DTYPES[wanted->dtype].name))
    return litz_fail(error, LITZ_ERROR_WEIGHTS, "the weight %s is %s, and the program needs %s", name,
                     dtype ? dtype : "of no dtype", DTYPES[wanted->dtype].name);
  const json* shape = json_member(about, "shape");
  size_t size, begin, end, elements = 1;
  int32_t dimension = 0;
  int same = shape && shape->kind == JSON_ARRAY && shape->count == (size_t)wanted->rank;
  for (const json* each = same ? shape->first : NULL; each; each = each->next, ++dimension) {
    same &= json_size(each, &size) && (int64_t)size == sizes[wanted->first + dimension];
    elements *= same ? size : 1;
  }
  if (!same) return litz_fail(error, LITZ_ERROR_WEIGHTS, "the weight %s has another shape than the program needs", name);
  const json* offsets = json_member(about, "data_offsets");
  if (!offsets || offsets->kind != JSON_ARRAY || offsets->count != 2 || !json_size(offsets->first, &begin) ||
      !json_size(offsets->first->next, &end) || begin > end || end > from->bytes ||
      end - begin != elements * dtype_bytes(wanted->dtype))
    return litz_fail(error, LITZ_ERROR_FORMAT, "the weight %s is outside of its file", name);
  *data = (void*)(uintptr_t)(from->data + begin);
  return LITZ_OK;
}
