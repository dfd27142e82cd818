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

/// The stream and the workspace of a call on operands in a device's memory. If the stream is null,
/// the operands are in the processor's memory.
struct DeviceCall {
  Stream* stream = nullptr;
  /// Memory of the device for the work, of as many bytes as the functions below return.
  std::span<std::byte> workspace = {};
};

/// The size of the staging memory. Elements that arrive from all ranks are in this memory until
/// they are summed or copied into the whole. Larger operands go through the memory in rounds.
inline constexpr int64_t kDeviceStagingBytes = int64_t{64} << 20;

/// Returns the bytes of workspace that a call on devices needs.
int64_t all_gather_workspace(const PieceLayout& layout, DType dtype,
                             int64_t staging_bytes = kDeviceStagingBytes);
int64_t reduce_scatter_workspace(const PieceLayout& layout, DType dtype,
                                 Reduction reduction = Reduction::sum,
                                 int64_t staging_bytes = kDeviceStagingBytes);
/// Returns the bytes for an all-reduce. An all-reduce of fewer elements never needs more.
int64_t all_reduce_workspace(int64_t elements, DType dtype, int ranks,
                             Reduction reduction = Reduction::sum,
                             int64_t staging_bytes = kDeviceStagingBytes);

/// Moves and sums operands in the memory of the devices of a group. A library moves them
/// (DeviceLinks). A kernel sums them in rank order (ordered_sum()), as reduce() does. So the bits
/// are those of every other transport, whatever the library and its topology.
///
/// The library itself takes unordered sums, in the type of the elements and without a workspace:
/// all-reduces, and reduce-scatters into equal pieces that follow each other in rank order. Other
/// pieces are summed in rank order, because the library cannot scatter them.
///
/// For a sum, each rank receives from the others the addends of its own piece, and sums them. An
/// all-reduce has a *slice* of the elements for each rank instead of a piece, and then gathers the
/// slices. Both work in rounds. A *slot* is the staging memory for one rank in a round. A rank
/// receives as many bytes as in a ring, except in small sums and in the few elements after the
/// slices: each rank gets all addends of these and sums them by itself.
class DeviceTransport {
 public:
  /// Creates the transport of a rank among `ranks`. All ranks give the same `staging_bytes`.
  DeviceTransport(std::unique_ptr<DeviceLinks> links, int ranks, int position,
                  int64_t staging_bytes = kDeviceStagingBytes)
      : links_(std::move(links)),
        ranks_(ranks),
        position_(position),
        staging_bytes_(staging_bytes) {}

  void all_gather(std::string_view name, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to, const DeviceCall& call);
  void reduce_scatter(std::string_view name, Reduction reduction, const PieceLayout& layout,
                      const Tensor& from, const Tensor& to, const DeviceCall& call);
  void all_reduce(std::string_view name, Reduction reduction, const Tensor& from, const Tensor& to,
                  const DeviceCall& call);
  void broadcast(std::string_view name, int root, const Tensor& tensor, const DeviceCall& call);
  /// Sends and receives buffers, except those of 0 bytes. Only the ranks at both ends call it.
  void exchange(std::string_view name, std::vector<DeviceBuffer> sends,
                std::vector<DeviceBuffer> receives, Stream& stream);

  /// Returns the bytes that this rank's calls receive from others. Repeats of a graph do not count.
  /// Sums of the library count as those of a ring.
  int64_t received_bytes() const { return received_bytes_; }

 private:
  /// This rank's operands of a sum: its addend, and the memory of the sum.
  struct SumOperands {
    const std::byte* own_addend;
    std::byte* sum;
    int64_t elements;
  };
  /// Staging memory with one slot for each rank.
  struct Staging {
    std::byte* memory;
    int64_t slot_bytes;
    std::byte* slot(int rank) const { return memory + rank * slot_bytes; }
  };

  template <typename Send, typename Receive>
  void exchange_with_others(std::string_view name, Send&& send, Receive&& receive, Stream& stream);
  void gather_contiguous(std::string_view name, const PieceLayout& layout, const Tensor& from,
                         const Tensor& to, Stream& stream);
  void gather_in_rounds(std::string_view name, const PieceLayout& layout, const Tensor& from,
                        const Tensor& to, const DeviceCall& call);
  void scatter_contiguous(std::string_view name, Reduction reduction, const PieceLayout& layout,
                          const Tensor& from, const Tensor& to, const DeviceCall& call);
  void scatter_in_rounds(std::string_view name, const PieceLayout& layout, const Tensor& from,
                         const Tensor& to, const DeviceCall& call);
  /// Gives every rank all addends. Each rank then takes the whole sum by itself.
  void reduce_whole(std::string_view name, Reduction reduction, DType dtype,
                    const SumOperands& operands, const DeviceCall& call);
  void sum(Reduction reduction, DType dtype, const Staging& staging, const SumOperands& operands,
           Stream& stream) const;

  std::unique_ptr<DeviceLinks> links_;
  int ranks_;
  int position_;
  int64_t staging_bytes_;
  int64_t received_bytes_ = 0;
};

}  // namespace tessera
