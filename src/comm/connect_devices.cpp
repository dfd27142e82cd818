#include "comm/connect_devices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/words.h"
#include "comm/emulated_links.h"
#include "comm/nccl/nccl_links.h"
#include "comm/share.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(Device device) {
  if (device == Device::hip) require_device_links(Device::hip);
  throw InternalError(fmt::format("ranks cannot be joined on the device {}", word(device)));
}

std::unique_ptr<DeviceLinks> make_links([[maybe_unused]] Communicator& group,
                                        const std::function<Communicator()>& make_group,
                                        Accelerator& accelerator,
                                        [[maybe_unused]] std::chrono::milliseconds timeout) {
  if (accelerator.device() == Device::emulated) return emulated_links(make_group());
#if defined(TESSERA_CUDA)
  if (accelerator.device() == Device::cuda) return nccl_links(group, accelerator, timeout);
#endif
  refuse(accelerator.device());
}

std::unique_ptr<DevicePosts> make_posts([[maybe_unused]] Communicator& group,
                                        [[maybe_unused]] std::span<const int> peers,
                                        const std::function<Communicator()>& make_group,
                                        Accelerator& accelerator,
                                        [[maybe_unused]] std::chrono::milliseconds timeout) {
  if (accelerator.device() == Device::emulated) return emulated_posts(make_group());
#if defined(TESSERA_CUDA)
  if (accelerator.device() == Device::cuda) return nccl_posts(group, peers, accelerator, timeout);
#endif
  refuse(accelerator.device());
}

/// Sums the numbers of require_right_sums() in one way.
std::optional<std::string> error_of_sums(Communicator& group, Accelerator& accelerator,
                                         Reduction reduction) {
  // Too many elements for a small sum, at least kAlignment for each rank, and an odd number: the
  // all-reduce in rank order has slices and a remainder (DeviceTransport), and so both its paths.
  const int64_t elements = int64_t{20'003} + 64 * group.size();
  std::vector<float> numbers(static_cast<size_t>(elements));
  // Whole numbers, whose sums f32 represents exactly.
  const auto addend = [](int position, int64_t element) {
    return static_cast<float>((position + 1) * (element % 97 + 1));
  };
  for (int64_t i = 0; i < elements; ++i) {
    numbers[static_cast<size_t>(i)] = addend(group.position(), i);
  }
  const int64_t workspace_bytes =
      all_reduce_workspace(elements, DType::f32, group.size(), reduction);
  const auto memory = accelerator.allocate(elements * dtype_size(DType::f32));
  const auto workspace = accelerator.allocate(std::max<int64_t>(workspace_bytes, 1));
  accelerator.upload(std::as_bytes(std::span(numbers)), memory->address());
  const Tensor sum = Tensor::wrap(memory->address(), {elements}, DType::f32, &accelerator);
  const auto stream = accelerator.make_stream();
  group.all_reduce("the self-test of devices", sum, sum, reduction,
                   {.stream = stream.get(),
                    .workspace = {static_cast<std::byte*>(workspace->address()),
                                  static_cast<size_t>(workspace_bytes)}});
  stream->synchronize();
  accelerator.readback(memory->address(), std::as_writable_bytes(std::span(numbers)));
  for (int64_t i = 0; i < elements; ++i) {
    float expected = 0;
    for (int position = 0; position < group.size(); ++position) expected += addend(position, i);
    const float found = numbers[static_cast<size_t>(i)];
    if (found == expected) continue;
    return fmt::format(
        "the devices of {} do not add up right: element {} of the self-test ({}) is {}, not {}. "
        "Look at the links between the devices, and at the version of the library that uses them",
        ranks_text(group.ranks()), i, word(reduction), found, expected);
  }
  return std::nullopt;
}

}  // namespace

void connect_devices(Communicator& group, const std::function<Communicator()>& make_group,
                     Accelerator& accelerator, std::chrono::milliseconds timeout) {
  group.use_devices(make_links(group, make_group, accelerator, timeout));
  require_right_sums(group, accelerator);
}

void connect_posts(Communicator& group, std::span<const int> peers,
                   const std::function<Communicator()>& make_group, Accelerator& accelerator,
                   std::chrono::milliseconds timeout) {
  group.use_device_posts(make_posts(group, peers, make_group, accelerator, timeout));
}

void require_device_links(Device device) {
  if (device == Device::hip) {
    throw Error(
        "several ranks on the device \"hip\" need AMD's RCCL, which this version does not call; "
        "give --ranks 1, or run.device \"cpu\"");
  }
#if defined(TESSERA_CUDA)
  if (device == Device::cuda) require_nccl();
#endif
}

void require_right_sums(Communicator& group, Accelerator& accelerator) {
  for (const Reduction reduction : {Reduction::sum, Reduction::unordered_sum}) {
    throw_on_all(group, error_of_sums(group, accelerator, reduction));
  }
}

}  // namespace tessera
