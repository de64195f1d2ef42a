// Small accelerator for tests: torch's key PrivateUse1, with two devices that work asynchronously.
//
// Memory is the host's, and a kernel is the CPU's: it computes at once. A stream is a line of time on which the kernel
// occupies the device later; the processor waits for times, never for results:
//
//     host     launch a ─ launch b ─ ... ─ synchronize ───────────► goes on
//     stream   [work before ][ a        ][ b        ]│ free_s
//
// Events, and the current device and streams of each thread, are as on a GPU. The engine of autograd has a thread for
// each device. A request before the lazy start fails.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::StreamId;

constexpr auto TYPE = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 2;

// Time

double now_s() { // as Python's time.monotonic(), so that processes can compare times
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void wait_until(double time_s) {
  while (now_s() < time_s)
    std::this_thread::sleep_for(std::chrono::duration<double>(time_s - now_s()));
}

struct Timeline {
  std::vector<double> free_s{0.0}; // when each stream has done its work, by its number; 0 is the default stream
  std::vector<std::pair<double, double>> busy; // when a stream worked: from, to
};

std::mutex mutex; // guards the lines of time
Timeline timelines[DEVICES];
std::atomic<bool> started{false};
std::atomic<double> kernel_s{0.0}; // time that each kernel takes on its device
thread_local DeviceIndex current = 0;
thread_local StreamId current_stream[DEVICES] = {};
thread_local int computes = 0; // depth of kernels that run here: their copies between host and device are no work

struct Computing {
  Computing() { ++computes; }
  ~Computing() { --computes; }
};

void occupy(DeviceIndex device, double takes_s) {
  if (takes_s <= 0.0 || computes)
    return;
  std::lock_guard<std::mutex> held(mutex);
  auto& line = timelines[device];
  double& free_s = line.free_s[current_stream[device]];
  const double begins_s = std::max(free_s, now_s());
  free_s = begins_s + takes_s;
  if (!line.busy.empty() && line.busy.back().second == begins_s)
    line.busy.back().second = free_s; // it goes on without a pause
  else
    line.busy.emplace_back(begins_s, free_s);
}

double done_s(DeviceIndex device, StreamId stream) {
  std::lock_guard<std::mutex> held(mutex);
  return timelines[device].free_s[stream];
}

double all_done_s(DeviceIndex device) {
  std::lock_guard<std::mutex> held(mutex);
  const auto& free_s = timelines[device].free_s;
  return *std::max_element(free_s.begin(), free_s.end());
}

void wait_for_stream(DeviceIndex device) {
  wait_until(done_s(device, current_stream[device]));
}

// Devices, streams and events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return TYPE; }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(TYPE, current); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < DEVICES, "there is no toy device ", device.index());
    current = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { current = device.index(); }

  Stream getStream(Device device) const override {
    const DeviceIndex index = device.has_index() ? device.index() : current;
    return Stream(Stream::UNSAFE, Device(TYPE, index), current_stream[index]);
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream getNewStream(Device device, int) const override {
    const DeviceIndex index = device.has_index() ? device.index() : current;
    std::lock_guard<std::mutex> held(mutex);
    auto& free_s = timelines[index].free_s;
    free_s.push_back(0.0);
    return Stream(Stream::UNSAFE, Device(TYPE, index), static_cast<StreamId>(free_s.size() - 1));
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream before = getStream(stream.device());
    current_stream[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const Stream& stream) const override {
    return done_s(stream.device_index(), stream.id()) <= now_s();
  }
  void synchronizeStream(const Stream& stream) const override {
    wait_until(done_s(stream.device_index(), stream.id()));
  }
  void synchronizeDevice(const DeviceIndex device) const override { wait_until(all_done_s(device)); }

  // An event is the time at which the stream has done what it was given before.
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr)
      *event = new double(0.0);
    *static_cast<double*>(*event) = done_s(stream.device_index(), stream.id());
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<double*>(event); }
  void block(void* event, const Stream& stream) const override {
    std::lock_guard<std::mutex> held(mutex);
    double& free_s = timelines[stream.device_index()].free_s[stream.id()];
    free_s = std::max(free_s, *static_cast<double*>(event));
  }
  bool queryEvent(void* event) const override { return *static_cast<double*>(event) <= now_s(); }
  void synchronizeEvent(void* event) const override {
    wait_until(*static_cast<double*>(event));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return started; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { Guard().setDevice(Device(TYPE, device)); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return Guard().exchangeDevice(Device(TYPE, device)).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current : exchangeDevice(device);
  }
};

// Memory

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    TORCH_CHECK(started, "the toy device is used before its lazy start");
    void* data = c10::alloc_cpu(size);
    return {data, data, &c10::free_cpu, Device(TYPE, current)};
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
};

HostMemory memory;
REGISTER_ALLOCATOR(TYPE, &memory);

at::Tensor on_host(const at::Tensor& tensor) { // the same memory, as a tensor of the CPU
  if (!tensor.is_privateuseone())
    return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Kernels

at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<Device> device,
    std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &memory, keys, c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  on_host(target).copy_(on_host(source));
  const DeviceIndex device = (source.is_privateuseone() ? source : target).device().index();
  occupy(device, kernel_s);
  if (!computes && !target.is_privateuseone() && !non_blocking)
    wait_for_stream(device);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  wait_for_stream(tensor.device().index());
  return on_host(tensor).item();
}

DeviceIndex device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const auto& each : arguments) {
    if (each.isTensor() && each.toTensor().is_privateuseone())
      return each.toTensor().device().index();
    if (each.isTensorList() && !each.toTensorVector().empty())
      return device_of({each.toTensorVector().front()});
  }
  return current;
}

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const DeviceIndex device = device_of(torch::jit::last(*stack, op.schema().arguments().size()));
  {
    const Computing here;
    at::native::cpu_fallback(op, stack);
  }
  occupy(device, kernel_s);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("view", at::native::view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

// Functions for tests: toy_device/__init__.py describes them.

at::Tensor busy(int64_t device) {
  std::lock_guard<std::mutex> held(mutex);
  const auto& times = timelines[device].busy;
  at::Tensor table = at::empty({static_cast<int64_t>(times.size()), 2}, at::dtype(at::kDouble));
  std::copy_n(reinterpret_cast<const double*>(times.data()), 2 * times.size(), table.mutable_data_ptr<double>());
  return table;
}

TORCH_LIBRARY(toy_device, m) {
  m.def("start() -> ()", [] { started = true; });
  m.def("work(int device, float seconds) -> ()", [](int64_t device, double takes_s) {
    TORCH_CHECK(started, "the toy device is used before its lazy start");
    occupy(static_cast<DeviceIndex>(device), takes_s);
  });
  m.def("take_per_kernel(float seconds) -> ()", [](double takes_s) { kernel_s = takes_s; });
  m.def("is_idle(int device) -> bool", [](int64_t device) {
    return all_done_s(static_cast<DeviceIndex>(device)) <= now_s();
  });
  m.def("busy(int device) -> Tensor", busy);
}

const bool registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

} // namespace
