#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <nccl.h>

#include "comm/communicator.h"
#include "comm/nccl/nccl_library_cuda.h"
#include "device/accelerator.h"

namespace tessera {

/// One communicator of NCCL, of all ranks of a group or of some. It does not block: calls return at
/// once, and check() polls until NCCL has accepted them. While the host waits for the device, the
/// errors of NCCL, the state of the group and the time are polled. On a failure, the work of the
/// communicator is aborted, and all later calls throw the same Error.
class NcclCommunicator {
 public:
  /// Creates the communicator of the rank at `position` of `ranks`, which are ranks of the group.
  /// Refers to the group.
  NcclCommunicator(std::shared_ptr<const NcclLibrary> nccl, Communicator& group,
                   std::vector<int> ranks, int position, std::chrono::milliseconds timeout);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// Waits for the remaining work, unless some work failed.
  ~NcclCommunicator();

  /// Joins the other ranks, which all call it with the address `id`.
  void join(const ncclUniqueId& id, Accelerator& accelerator);

  const NcclLibrary& library() const { return *nccl_; }
  ncclComm_t handle() const { return communicator_; }

  /// Begins a call: notes its name for errors. Throws if an earlier call or the work failed.
  void begin(std::string_view name);
  /// Waits until NCCL has accepted a call. If NCCL refuses the call or takes too long, throws Error
  /// and aborts the work. `what` completes "NCCL cannot ...".
  void check(ncclResult_t result, const char* what);

 private:
  void check_work(std::chrono::nanoseconds waited);
  void fail_if_broken();
  [[noreturn]] void fail(std::string text);
  std::string timeout_text(const char* what) const;
  int rank() const { return ranks_[static_cast<size_t>(position_)]; }

  std::shared_ptr<const NcclLibrary> nccl_;
  Communicator& group_;
  std::vector<int> ranks_;
  int position_;
  std::chrono::milliseconds timeout_;
  ncclComm_t communicator_ = nullptr;
  std::string last_call_;               // the name of the last call, for messages
  std::optional<std::string> failure_;  // the first one, which all later calls throw
  std::shared_ptr<void> wait_check_;    // calls check_work() while it lives
  std::jthread aborts_;                 // aborts the communicator
};

/// Returns an address at which NCCL joins ranks. Throws Error that names this rank.
ncclUniqueId new_nccl_address(const NcclLibrary& nccl, int rank);

/// Returns the vendor's stream.
inline cudaStream_t nccl_stream(Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

}  // namespace tessera
