// Models of litz in C++ with libtorch: operators of ATen for programs that call some, and models that take and return
// at::Tensor. C++17, in one header; link liblitz_runtime and libtorch.
//
//   litz::Model model("model.litz");
//   std::vector<at::Tensor> results = model({x});
//
// litz::torch_operators() is for litz_open in programs that use litz.h themselves.
#ifndef LITZ_TORCH_HPP
#define LITZ_TORCH_HPP

#include <litz.h>
#include <litz/operators.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace litz {

// A failure of the runtime.
class Error : public std::runtime_error {
 public:
  explicit Error(const litz_error& error) : std::runtime_error(error.message), code(error.code) {}
  Error(litz_code code, const std::string& message) : std::runtime_error(message), code(code) {}
  litz_code code;
};

namespace detail {

inline at::ScalarType scalar_type(int64_t dtype) {
  static constexpr at::ScalarType known[] = {
      at::kBool,   at::kChar,   at::kShort, at::kInt,      at::kLong,  at::kByte,   at::kUInt16,        at::kUInt32,     at::kUInt64,
      at::kHalf,   at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};
  TORCH_CHECK(dtype >= 0 && dtype < int64_t(std::size(known)), "there is no dtype ", dtype);
  return known[dtype];
}

inline at::Tensor over(void* data, at::IntArrayRef shape, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::from_blob(data, shape, strides, at::TensorOptions().dtype(dtype));
}

// The items of a list follow it, so that the next argument is after all of them.
inline const litz_argument* after(const litz_argument* argument) {
  const litz_argument* next = argument + 1;
  for (int64_t k = 0; argument->kind == LITZ_LIST && k < argument->integer; ++k) next = after(next);
  return next;
}

inline at::Tensor tensor_of(const litz_argument& given) {
  if (given.kind == LITZ_NONE) return {};
  TORCH_CHECK(given.kind == LITZ_TENSOR, "an argument is no tensor");
  const litz_tensor& of = *given.tensor;
  const size_t rank = size_t(of.rank);
  at::Tensor found = over(of.data, {of.shape, rank}, {of.strides, rank}, scalar_type(of.dtype));
  return of.is_complex ? at::view_as_complex(found) : found;
}

inline at::Scalar scalar_of(const litz_argument& given) {
  switch (given.kind) {
    case LITZ_INTEGER: return given.integer;
    case LITZ_TRUTH: return given.integer != 0;
    case LITZ_REAL: return given.real;
    case LITZ_COMPLEX: return c10::complex<double>(given.real, given.imaginary);
    default: TORCH_CHECK(false, "an argument is no number");
  }
}

inline int64_t named(const std::string& name, c10::TypeKind kind) {
  static const std::map<std::string, at::MemoryFormat> formats = {{"contiguous_format", at::MemoryFormat::Contiguous},
                                                                  {"preserve_format", at::MemoryFormat::Preserve},
                                                                  {"channels_last", at::MemoryFormat::ChannelsLast},
                                                                  {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};
  static const std::map<std::string, at::Layout> layouts = {{"strided", at::kStrided}, {"sparse_coo", at::kSparse}, {"_mkldnn", at::kMkldnn}};
  static const std::map<std::string, at::ScalarType> dtypes = {
      {"complex64", at::kComplexFloat}, {"complex128", at::kComplexDouble}, {"complex32", at::kComplexHalf}};
  if (auto at = formats.find(name); at != formats.end() && kind != c10::TypeKind::LayoutType) return int64_t(at->second);
  if (auto at = layouts.find(name); at != layouts.end()) return int64_t(at->second);
  auto at = dtypes.find(name);
  TORCH_CHECK(at != dtypes.end(), "an argument has the unknown name ", name);
  return int64_t(at->second);
}

inline c10::IValue value_of(const litz_argument* given, const c10::TypePtr& wanted);

template <class Item, class Convert>
c10::IValue list_of(const litz_argument* given, int64_t repeated, Convert convert) {
  c10::List<Item> items;
  if (given->kind != LITZ_LIST) {  // one number stands for all dimensions
    for (int64_t k = 0; k < std::max<int64_t>(repeated, 1); ++k) items.push_back(convert(*given));
    return items;
  }
  const litz_argument* item = given + 1;
  for (int64_t k = 0; k < given->integer; ++k, item = after(item)) items.push_back(convert(*item));
  return items;
}

inline c10::IValue list_value(const litz_argument* given, const c10::ListType& type, int64_t repeated) {
  const c10::TypePtr item = type.getElementType();
  switch (item->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return list_of<int64_t>(given, repeated, [](const litz_argument& each) { return scalar_of(each).toLong(); });
    case c10::TypeKind::FloatType:
      return list_of<double>(given, repeated, [](const litz_argument& each) { return scalar_of(each).toDouble(); });
    case c10::TypeKind::BoolType:
      return list_of<bool>(given, repeated, [](const litz_argument& each) { return scalar_of(each).toBool(); });
    case c10::TypeKind::StringType:
      return list_of<std::string>(given, 0, [](const litz_argument& each) { return std::string(each.text); });
    case c10::TypeKind::TensorType:
      return list_of<at::Tensor>(given, 0, tensor_of);
    case c10::TypeKind::OptionalType:
      return list_of<std::optional<at::Tensor>>(given, 0, [](const litz_argument& each) {
        return each.kind == LITZ_NONE ? std::nullopt : std::optional<at::Tensor>(tensor_of(each));
      });
    default: {
      c10::impl::GenericList items(item);
      const litz_argument* next = given + 1;
      for (int64_t k = 0; k < given->integer; ++k, next = after(next)) items.push_back(value_of(next, item));
      return items;
    }
  }
}

// An argument as a value of the type that the schema has.
inline c10::IValue value_of(const litz_argument* given, const c10::TypePtr& wanted) {
  if (given->kind == LITZ_NONE) return wanted->kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor()) : c10::IValue();
  switch (wanted->kind()) {
    case c10::TypeKind::OptionalType: return value_of(given, wanted->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: return list_value(given, *wanted->castRaw<c10::ListType>(), 0);
    case c10::TypeKind::TensorType:
      // Scalars of overloads for tensors are tensors of one element.
      return given->kind == LITZ_TENSOR ? tensor_of(*given) : at::scalar_tensor(scalar_of(*given));
    case c10::TypeKind::NumberType: return scalar_of(*given);
    case c10::TypeKind::FloatType: return scalar_of(*given).toDouble();
    case c10::TypeKind::BoolType: return scalar_of(*given).toBool();
    case c10::TypeKind::StringType: return std::string(given->text);
    case c10::TypeKind::DeviceObjType: return at::Device(given->text);
    default: break;
  }
  if (given->kind == LITZ_DTYPE) return int64_t(scalar_type(given->integer));
  if (given->kind == LITZ_TEXT) return named(given->text, wanted->kind());
  return scalar_of(*given).toLong();
}

inline std::vector<c10::IValue> stack_of(const c10::FunctionSchema& schema, const litz_argument* given, int64_t count) {
  std::vector<c10::IValue> stack;
  std::vector<const litz_argument*> positional;
  std::map<std::string, const litz_argument*> keywords;
  for (const litz_argument* each = given; each < given + count; each = after(each)) {
    if (each->keyword) keywords[each->keyword] = each;
    else positional.push_back(each);
  }
  size_t used = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto by_name = keywords.find(argument.name());
    const litz_argument* chosen = nullptr;
    if (by_name != keywords.end()) chosen = by_name->second;
    else if (!argument.kwarg_only() && used < positional.size()) chosen = positional[used++];
    if (!chosen) {
      TORCH_CHECK(argument.default_value(), "the argument ", argument.name(), " is missing");
      stack.push_back(*argument.default_value());
    } else if (const auto list = argument.real_type()->cast<c10::ListType>(); list && argument.N() && chosen->kind != LITZ_NONE) {
      stack.push_back(list_value(chosen, *list, *argument.N()));
    } else {
      stack.push_back(value_of(chosen, argument.real_type()));
    }
  }
  TORCH_CHECK(used == positional.size(), "there are ", positional.size(), " arguments, and it takes ", used);
  return stack;
}

// The tensors that the stack holds, those of lists included.
inline void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& use) {
  if (value.isTensor()) use(value.toTensor());
  else if (value.isList())
    for (const c10::IValue& item : value.toListRef()) each_tensor(item, use);
}

inline std::string shown(const char* what, at::IntArrayRef sizes) { return c10::str(what, " ", sizes); }

// Gives a tensor as a result: checked, in the strides that the program expects, and in memory of its own.
inline void hand_over(at::Tensor tensor, litz_result& result, const std::vector<at::Tensor>& arguments) {
  TORCH_CHECK(tensor.defined(), "a result is no tensor");
  TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided, "a result is no dense tensor of a CPU");
  tensor = tensor.resolve_conj().resolve_neg();
  if (result.is_complex) tensor = at::view_as_real(tensor);
  const size_t rank = size_t(result.rank);
  const at::IntArrayRef shape(result.shape, rank), strides(result.strides, rank);
  TORCH_CHECK(tensor.scalar_type() == scalar_type(result.dtype), "a result is ", tensor.scalar_type(), ", and the program was compiled for ",
              scalar_type(result.dtype));
  bool fits = tensor.dim() == result.rank, same = true;
  for (size_t k = 0; fits && k < rank; ++k) {
    fits = shape[k] < 0 || shape[k] == tensor.size(int64_t(k));
    same = same && (strides[k] < 0 || tensor.size(int64_t(k)) == 1 || strides[k] == tensor.stride(int64_t(k)));
  }
  TORCH_CHECK(fits, "a result has ", shown("shape", tensor.sizes()), ", and the program was compiled for ", shown("shape", shape));
  const bool known = std::none_of(strides.begin(), strides.end(), [](int64_t stride) { return stride < 0; });
  bool shared = false;
  for (const at::Tensor& each : arguments) shared = shared || (each.defined() && each.has_storage() && each.storage().is_alias_of(tensor.storage()));
  if (tensor.numel() && (shared || !same)) {
    at::Tensor copy = known ? at::empty_strided(tensor.sizes(), strides, tensor.options())
                            : at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    copy.copy_(tensor);
    tensor = std::move(copy);
  }
  for (size_t k = 0; k < rank; ++k) {
    result.found[k] = tensor.size(int64_t(k));
    result.found[rank + k] = tensor.stride(int64_t(k));
  }
  // An empty tensor may have no memory, and a program takes the address of what it does not read.
  static char nothing[64];
  result.data = tensor.numel() ? tensor.data_ptr() : nothing;
  result.owner = new at::Tensor(std::move(tensor));
}

inline void release(void*, void* owner) noexcept { delete static_cast<at::Tensor*>(owner); }

inline const void* find(void*, const char* name, const char* overload) noexcept {
  static std::mutex lock;
  static std::map<std::pair<std::string, std::string>, c10::OperatorHandle> found;  // its entries stay where they are
  try {
    const std::lock_guard<std::mutex> held(lock);
    const std::pair<std::string, std::string> key(name, overload);
    if (auto known = found.find(key); known != found.end()) return &known->second;
    const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    return handle ? &found.emplace(key, *handle).first->second : nullptr;
  } catch (...) {
    return nullptr;
  }
}

inline void run(const c10::OperatorHandle& handle, const litz_argument* given, int64_t count, litz_result* results, int64_t result_count) {
  const c10::InferenceMode mode;
  std::vector<c10::IValue> stack = stack_of(handle.schema(), given, count);
  std::vector<at::Tensor> arguments;
  for (const c10::IValue& each : stack) each_tensor(each, [&](const at::Tensor& tensor) { arguments.push_back(tensor); });
  handle.callBoxed(stack);
  std::vector<c10::IValue> returned;
  if (stack.size() == 1 && stack[0].isList()) returned = stack[0].toListRef().vec();
  else returned = std::move(stack);
  for (int64_t k = 0; k < result_count; ++k) {
    if (!results[k].wanted) continue;
    TORCH_CHECK(size_t(k) < returned.size() && returned[size_t(k)].isTensor(), "it returns no tensor at position ", k);
    hand_over(returned[size_t(k)].toTensor(), results[k], arguments);
    // Later results of the same memory are copied: the program may overwrite this one.
    arguments.push_back(*static_cast<at::Tensor*>(results[k].owner));
  }
}

inline int call(void*, const void* found, const litz_argument* given, int64_t count, litz_result* results, int64_t result_count,
                char* message, int64_t bytes) noexcept {
  const auto note = [&](const char* text) {
    if (bytes > 0) std::snprintf(message, size_t(bytes), "%s", text);
    return 1;
  };
  try {
    run(*static_cast<const c10::OperatorHandle*>(found), given, count, results, result_count);
    return 0;
  } catch (const c10::Error& error) {
    return note(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return note(error.what());
  } catch (...) {
    return note("it threw what is no std::exception");
  }
}

}  // namespace detail

// The operators of this process, by torch's dispatcher.
inline const litz_operators* torch_operators() {
  static const litz_operators table = {nullptr, detail::find, detail::call, detail::release};
  return &table;
}

// A function of a model of tensors. Any number of threads may call it at once.
class Function {
 public:
  explicit Function(const litz_entry* entry) : entry_(entry) {}

  // The results for tensors, and numbers by the names of their symbols. A tensor of other strides than the program's is
  // copied, and copied back if the program overwrites it. Results that are numbers are tensors without dimensions.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& given, const std::map<std::string, at::Scalar>& numbers = {}) const {
    const c10::InferenceMode mode;
    const size_t count = litz_input_count(entry_), results = litz_output_count(entry_);
    if (given.size() != count)
      throw Error(LITZ_ERROR_ARGUMENT, c10::str(litz_entry_name(entry_), " takes ", count, " tensors, not ", given.size()));
    std::vector<at::Tensor> tensors;
    std::vector<const int64_t*> shapes;
    for (size_t k = 0; k < count; ++k) {
      tensors.push_back(plain(given[k], k));
      shapes.push_back(tensors.back().sizes().data());
    }
    const std::vector<int64_t> symbols = symbols_of(shapes, numbers);
    std::vector<void*> inputs;
    for (size_t k = 0; k < count; ++k) {
      const litz_layout layout = layout_of(litz_input_layout, k, symbols);
      tensors[k] = conform(tensors[k], layout, k);
      inputs.push_back(tensors[k].data_ptr());
    }
    std::vector<at::Tensor> found(results);
    std::vector<void*> outputs(results, nullptr);
    for (size_t k = 0; k < results; ++k) {
      if (litz_output_is_late(entry_, k)) continue;
      found[k] = empty(layout_of(litz_output_layout, k, symbols));
      outputs[k] = found[k].data_ptr();
    }
    litz_error error;
    if (litz_run_receiving(entry_, symbols.data(), inputs.data(), outputs.data(), receive, &found, &error)) throw Error(error);
    for (size_t k = 0; k < count; ++k) settle(given[k], tensors[k], k);
    for (size_t k = 0; k < results; ++k)
      if (litz_output_is_complex(entry_, k)) found[k] = at::view_as_complex(found[k]);
    return found;
  }

 private:
  using Layouts = litz_code (*)(const litz_entry*, size_t, const int64_t*, litz_layout*, litz_error*);

  litz_layout layout_of(Layouts ask, size_t position, const std::vector<int64_t>& symbols) const {
    litz_layout layout;
    litz_error error;
    if (ask(entry_, position, symbols.data(), &layout, &error)) throw Error(error);
    return layout;
  }

  static at::Tensor empty(const litz_layout& layout) {
    const size_t rank = size_t(layout.rank);
    return at::empty_strided({layout.shape, rank}, {layout.strides, rank}, at::TensorOptions().dtype(detail::scalar_type(layout.dtype)));
  }

  // A result whose size depends on values.
  static int receive(void* receiver, size_t position, const litz_layout* layout, const void* data) noexcept {
    try {
      at::Tensor& found = (*static_cast<std::vector<at::Tensor>*>(receiver))[position];
      found = empty(*layout);
      if (found.numel()) std::memcpy(found.data_ptr(), data, layout->bytes);
      return 0;
    } catch (...) {
      return 1;
    }
  }

  // A tensor as the program sees it: pairs for a complex one, without conjugate and negative bits.
  at::Tensor plain(const at::Tensor& given, size_t position) const {
    const bool pairs = litz_input_is_complex(entry_, position);
    if (!given.defined() || !given.device().is_cpu() || given.layout() != at::kStrided || given.is_complex() != pairs)
      throw Error(LITZ_ERROR_ARGUMENT, c10::str(litz_input_name(entry_, position), " has to be a dense ", pairs ? "complex " : "", "tensor of a CPU"));
    if (given.dim() + pairs != litz_input_rank(entry_, position))
      throw Error(LITZ_ERROR_ARGUMENT, c10::str(litz_input_name(entry_, position), " has to have ",
                                                litz_input_rank(entry_, position) - int(pairs), " dimensions, not ", given.dim()));
    const at::Tensor resolved = given.resolve_conj().resolve_neg();
    return pairs ? at::view_as_real(resolved) : resolved;
  }

  std::vector<int64_t> symbols_of(const std::vector<const int64_t*>& shapes, const std::map<std::string, at::Scalar>& numbers) const {
    std::vector<int64_t> symbols(litz_symbol_count(entry_) + 1);
    litz_error error;
    litz_symbol about;
    for (size_t k = 0; k + 1 < symbols.size(); ++k) {
      if (litz_symbol_info(entry_, k, &about, &error)) throw Error(error);
      const auto given = numbers.find(about.name);
      if (given == numbers.end()) continue;
      const double real = about.kind == 1 ? given->second.toDouble() : 0;
      if (about.kind == 1) std::memcpy(&symbols[k], &real, sizeof real);
      else symbols[k] = given->second.toLong();
    }
    if (litz_symbols_of(entry_, shapes.data(), symbols.data(), &error)) throw Error(error);
    return symbols;
  }

  at::Tensor conform(const at::Tensor& given, const litz_layout& layout, size_t position) const {
    const at::IntArrayRef strides(layout.strides, size_t(layout.rank));
    if (given.scalar_type() != detail::scalar_type(layout.dtype))
      throw Error(LITZ_ERROR_ARGUMENT, c10::str(litz_input_name(entry_, position), " has to be ", detail::scalar_type(layout.dtype), ", not ",
                                                given.scalar_type()));
    bool same = true;
    for (int64_t k = 0; k < given.dim(); ++k) same = same && (given.size(k) == 1 || given.stride(k) == strides[size_t(k)]);
    if (same || !given.numel()) return given;
    return empty(layout).copy_(given);
  }

  // Copies back to an overwritten tensor that the program had a copy of.
  void settle(const at::Tensor& given, const at::Tensor& used, size_t position) const {
    if (!litz_input_overwritten(entry_, position)) return;
    const at::Tensor whole = given.is_complex() ? at::view_as_complex(used) : used;
    if (!given.storage().is_alias_of(used.storage())) at::Tensor(given).copy_(whole);
  }

  const litz_entry* entry_;
};

// An open model: its function `forward`, and others by name.
class Model {
 public:
  explicit Model(const std::string& path, litz_options options = {}) {
    litz_error error;
    if (!options.operators) options.operators = torch_operators();
    if (litz_open(path.c_str(), &options, &model_, &error)) throw Error(error);
  }
  Model(Model&& other) noexcept : model_(std::exchange(other.model_, nullptr)) {}
  Model& operator=(Model&& other) noexcept {
    std::swap(model_, other.model_);
    return *this;
  }
  ~Model() { litz_close(model_); }

  Function function(const std::string& name) const {
    const litz_entry* entry = litz_entry_named(model_, name.c_str());
    if (!entry) throw Error(LITZ_ERROR_ARGUMENT, "the model has no function " + name);
    return Function(entry);
  }
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& given, const std::map<std::string, at::Scalar>& numbers = {}) const {
    return function("forward")(given, numbers);
  }
  const litz_model* get() const { return model_; }

 private:
  litz_model* model_ = nullptr;
};

}  // namespace litz

#endif
