// A PrivateUse1 device of torch; the numbers below are those of the functions in docs/devices.md.
//
// Its memory is the host's, but every allocation has two addresses: tensors have one that nobody can access, and
// host_address() translates it to the one that copies and launches use. Code that takes a tensor of the device for
// one of the CPU therefore crashes, and kernels that are given the CPU's memory raise an exception.

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;
constexpr size_t kBytes = size_t(4) << 30;  // of addresses: the system provides pages when they are written
constexpr size_t kAlignment = 64;           // litz_ir.device.STORAGE_ALIGNMENT

// --- memory --------------------------------------------------------------------------------------------------------

// The memory of one device: blocks in two ranges of addresses that differ by a constant.
class Memory {
 public:
  explicit Memory(c10::DeviceIndex index)
      : index_(index), host_(mapped(PROT_READ | PROT_WRITE)), device_(mapped(PROT_NONE)) {
    free_[0] = kBytes;
  }

  // First fit. Raises torch's error for exhausted memory.
  void* allocate(size_t nbytes) {
    nbytes = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      const auto [offset, size] = *block;
      if (size < nbytes) continue;
      free_.erase(block);
      if (size > nbytes) free_[offset + nbytes] = size - nbytes;
      used_[offset] = nbytes;
      return device_ + offset;
    }
    TORCH_CHECK_WITH(OutOfMemoryError, false, "device ", int(index_), " has no ", nbytes, " bytes left in one block");
  }

  void release(void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = used_.find(size_t(static_cast<char*>(address) - device_));
    TORCH_INTERNAL_ASSERT(found != used_.end());
    auto [offset, size] = *found;
    used_.erase(found);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset)
      std::prev(next)->second += size;
    else
      free_[offset] = size;
  }

  bool contains(const void* address) const {
    return address >= device_ && address <= device_ + kBytes;
  }

  char* host(const void* address) const { return host_ + (static_cast<const char*>(address) - device_); }

 private:
  static char* mapped(int protection) {
    void* start = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(start != MAP_FAILED, "the host has no ", kBytes, " bytes of addresses left");
    return static_cast<char*>(start);
  }

  const c10::DeviceIndex index_;
  char* const host_;
  char* const device_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset and size of each block
  std::map<size_t, size_t> used_;
};

// Never destroyed: tensors may be freed after everything else.
Memory& memory(c10::DeviceIndex index) {
  static const auto all = new std::array<Memory, kDevices>{Memory(0), Memory(1)};
  return all->at(index);
}

c10::DeviceIndex owner(const void* address) {
  for (c10::DeviceIndex index = 0; index < kDevices; ++index)
    if (memory(index).contains(address)) return index;
  TORCH_CHECK_VALUE(false, address, " is no address of the device's memory");
}

void* host(const void* address) { return address == nullptr ? nullptr : memory(owner(address)).host(address); }

thread_local c10::DeviceIndex current_device = 0;

// 4. Allocator: storages, of torch's tensors and of litz's plans.
struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    const auto index = current_device;
    void* data = nbytes == 0 ? nullptr : memory(index).allocate(nbytes);
    return {data, data, &release, c10::Device(kType, index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t nbytes) const override {
    std::memcpy(host(to), host(from), nbytes);
  }

 private:
  static void release(void* data) {
    if (data != nullptr) memory(owner(data)).release(data);
  }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// --- devices, streams, events --------------------------------------------------------------------------------------

// 2. and 3. Guard: the current device, its streams and events. The device has done its work when a call returns, so that
// a stream is only a number, which launches do not need, and every event has happened when it is recorded.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Device = c10::Device;
  using Stream = c10::Stream;
  using Clock = std::chrono::steady_clock;

  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  Device getDevice() const override { return Device(kType, current_device); }
  void setDevice(Device device) const override {
    TORCH_CHECK_INDEX(device.index() >= 0 && device.index() < kDevices, "there is no device ", device.str());
    current_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { current_device = device.index(); }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }

  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getStream(Device device) const override {
    const auto own = device.has_index() ? device : getDevice();
    return Stream(Stream::UNSAFE, own, streams.at(own.index()));
  }
  Stream getNewStream(Device device, int /*priority*/) const override {
    return Stream(Stream::UNSAFE, device.has_index() ? device : getDevice(), ++last_stream);
  }
  Stream getStreamFromGlobalPool(Device device, bool /*priority*/) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream stream) const override {
    const auto before = getStream(stream.device());
    streams.at(stream.device_index()) = stream.id();
    return before;
  }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}

  void record(void** event, const Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Clock::time_point;
    *static_cast<Clock::time_point*>(*event) = Clock::now();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Clock::time_point*>(event);
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    const auto span = *static_cast<Clock::time_point*>(second) - *static_cast<Clock::time_point*>(first);
    return std::chrono::duration<double, std::milli>(span).count();
  }

 private:
  static thread_local std::array<c10::StreamId, kDevices> streams;
  static std::atomic<c10::StreamId> last_stream;
};

thread_local std::array<c10::StreamId, kDevices> Guard::streams{};
std::atomic<c10::StreamId> Guard::last_stream{0};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// 7. Hooks: torch.accelerator, and storages that change their size.
void resize(c10::StorageImpl& storage, size_t nbytes) {
  const c10::impl::VirtualGuardImpl guard(kType);
  const auto before = guard.exchangeDevice(storage.device());
  auto data = allocator.allocate(nbytes);
  guard.setDevice(before);
  if (const auto kept = std::min(nbytes, storage.nbytes())) allocator.copy_data(data.get(), storage.data(), kept);
  storage.set_data_ptr(std::move(data));
  storage.set_nbytes(nbytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice(c10::Device(kType, index)); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return Guard().exchangeDevice(c10::Device(kType, index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device : exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void* data) const override { return c10::Device(kType, owner(data)); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

// --- operators -----------------------------------------------------------------------------------------------------

// The device that a factory function is asked for, current while this object lives.
class Here {
 public:
  explicit Here(std::optional<c10::Device> device) : before_(current_device) {
    if (device && device->has_index()) Guard().setDevice(*device);
  }
  ~Here() { current_device = before_; }

 private:
  const c10::DeviceIndex before_;
};

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// 5. Tensors without contents.
at::Tensor empty(
    at::IntArrayRef shape, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const Here here(device);
  return at::detail::empty_generic(shape, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef shape, at::IntArrayRef strides, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>) {
  const Here here(device);
  return at::detail::empty_strided_generic(shape, strides, &allocator, kKeys, c10::dtype_or_default(dtype));
}

// A tensor over the same elements at the address where the host may access them.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().type() != kType) return tensor;
  const auto options = tensor.options().device(at::kCPU);
  return at::from_blob(host(tensor.data_ptr()), tensor.sizes(), tensor.strides(), options);
}

// 6. Copies, between devices and on one, of any strides and dtypes.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  on_host(target).copy_(on_host(source));
  return target;
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef shape, std::optional<at::MemoryFormat> format) {
  auto* const tensor = self.unsafeGetTensorImpl();
  const auto need = at::detail::computeStorageNbytesContiguous(shape, self.itemsize(), self.storage_offset());
  if (need > self.storage().nbytes()) resize(*self.storage().unsafeGetStorageImpl(), need);
  tensor->set_sizes_contiguous(shape);
  if (format) tensor->empty_tensor_restride(*format);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (target.sizes() != source.sizes()) resize_(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}

// Convolutions, which torch leaves to the device.
at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  const auto added = bias && bias->defined() ? std::optional<at::Tensor>(on_host(*bias)) : std::nullopt;
  return at::convolution(
             on_host(input), on_host(weight), added, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const std::array<int64_t, 1> bias{weight.size(transposed ? 1 : 0) * (transposed ? groups : 1)};
  const auto [of_input, of_weight, of_bias] = at::convolution_backward(
      on_host(gradient), on_host(input), on_host(weight), bias, stride, padding, dilation, transposed, output_padding,
      groups, wanted);
  const auto moved = [&](const at::Tensor& each) { return each.defined() ? each.to(input.device()) : each; };
  return {moved(of_input), moved(of_weight), moved(of_bias)};
}

// Batch normalisation, whose schema does not say that it overwrites the running statistics: the fallback would lose
// them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, bool training,
    double momentum, double epsilon) {
  const auto there = [](const std::optional<at::Tensor>& each) {
    return each && each->defined() ? std::optional<at::Tensor>(on_host(*each)) : std::nullopt;
  };
  const auto [output, mean, deviation] = at::native_batch_norm(
      on_host(input), there(weight), there(bias), there(running_mean), there(running_var), training, momentum, epsilon);
  return {output.to(input.device()), mean.to(input.device()), deviation.to(input.device())};
}

// 8. Views and storages of tensors: torch's own functions, which touch no memory.
at::Tensor& set_storage(
    at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef shape, at::IntArrayRef strides) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, shape, strides);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("native_batch_norm", native_batch_norm);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
}

// 9. All other operators, on copies in the CPU's memory.
void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("register_hooks", [] { at::RegisterPrivateUse1HooksInterface(new Hooks); }, "Register the hooks, once.");
  m.def("device_count", [] { return int(kDevices); }, "Return the number of devices.");
  m.def(
      "host_address",
      [](uintptr_t address) {
        const auto* const start = reinterpret_cast<void*>(address);
        if (start == nullptr) return uintptr_t(0);
        const auto index = owner(start);
        TORCH_CHECK_VALUE(index == current_device, "the memory is of device ", int(index), ", device ",
                          int(current_device), " is current");
        return reinterpret_cast<uintptr_t>(host(start));
      },
      "Return the host's address of memory of the current device; raise ValueError for any other memory.");
}
