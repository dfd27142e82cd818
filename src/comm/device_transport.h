#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/device_links.h"
#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "tensor/tensor.h"

namespace tessera {

/// Where the work of a call goes whose operands lie in a device's memory. Without a stream the
/// operands lie on the processor.
struct DeviceCall {
  Stream* stream = nullptr;
  /// Memory of the device that the work may use, as large as the functions below say.
  std::span<std::byte> workspace = {};
};

/// The memory in which the parts of all ranks are staged until they are summed or put in their
/// place. Larger operands go through it in rounds.
inline constexpr int64_t kDeviceStagingBytes = int64_t{64} << 20;

/// The bytes of workspace that calls among devices take.
int64_t all_gather_workspace(const PieceLayout& layout, DType dtype,
                             int64_t staging_bytes = kDeviceStagingBytes);
int64_t reduce_scatter_workspace(const PieceLayout& layout, DType dtype,
                                 int64_t staging_bytes = kDeviceStagingBytes);
/// That of fewer elements is not larger.
int64_t all_reduce_workspace(int64_t elements, DType dtype, int ranks,
                             int64_t staging_bytes = kDeviceStagingBytes);

/// Moves and sums what lies in the memory of the devices of a group. The movement is a library's;
/// sums are taken by a kernel in the order of the ranks, as reduce() takes them. So the bits are
/// those of every other transport, whatever the library and its topology. The bytes that a rank
/// receives are those of a ring, too, but for small sums, which every rank takes by itself.
class DeviceTransport {
 public:
  /// Of the rank at `position` of `ranks`. All ranks stage as much.
  DeviceTransport(std::unique_ptr<DeviceLinks> links, int ranks, int position,
                  int64_t staging_bytes = kDeviceStagingBytes)
      : links_(std::move(links)),
        ranks_(ranks),
        position_(position),
        staging_bytes_(staging_bytes) {}

  void all_gather(std::string_view name, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to, const DeviceCall& call);
  void reduce_scatter(std::string_view name, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to, const DeviceCall& call);
  void all_reduce(std::string_view name, Reduction reduction, const Tensor& from, const Tensor& to,
                  const DeviceCall& call);
  void broadcast(std::string_view name, int root, const Tensor& tensor, const DeviceCall& call);
  /// Sends and receives parts, those of 0 bytes left out. Only the ranks that they name need call.
  void exchange(std::string_view name, std::vector<DevicePart> sends,
                std::vector<DevicePart> receives, Stream& stream);

  /// The bytes that calls have asked for from other ranks. What a graph repeats is not counted.
  int64_t received_bytes() const { return received_bytes_; }

 private:
  /// A part of the sum of all ranks: what this rank adds, and where the sum goes.
  struct Addend {
    const std::byte* own;
    std::byte* sum;
    int64_t elements;
  };
  struct Staging {
    std::byte* memory;
    int64_t slot;  // bytes of a rank
    std::byte* of(int rank) const { return memory + rank * slot; }
  };

  void gather_blocks(std::string_view name, const PieceLayout& layout, const Tensor& from,
                     const Tensor& to, Stream& stream);
  void gather_in_rounds(std::string_view name, const PieceLayout& layout, const Tensor& from,
                        const Tensor& to, const DeviceCall& call);
  void scatter_blocks(std::string_view name, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to, const DeviceCall& call);
  void scatter_in_rounds(std::string_view name, const PieceLayout& layout, const Tensor& from,
                         const Tensor& to, const DeviceCall& call);
  /// Gives every rank all addends, and sums them there.
  void reduce_whole(std::string_view name, Reduction reduction, DType dtype, const Addend& addend,
                    const DeviceCall& call);
  void sum(Reduction reduction, DType dtype, const Staging& staging, const Addend& addend,
           Stream& stream) const;

  std::unique_ptr<DeviceLinks> links_;
  int ranks_;
  int position_;
  int64_t staging_bytes_;
  int64_t received_bytes_ = 0;
};

}  // namespace tessera
