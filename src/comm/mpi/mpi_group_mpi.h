#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/fingerprint.h"
#include "comm/mpi/mpi_progress_mpi.h"
#include "comm/tcp/plane_process.h"
#include "tensor/tensor.h"

namespace tessera {

/// The bytes that a process receives from others in one round, and stages until they are summed or
/// copied into the whole. Larger operands go in several rounds. Sums have two rounds under way, and
/// as much memory for bytes to send. A round fits into a processor's cache of about this size.
inline constexpr int64_t kStagingBytes = int64_t{2} << 20;

/// Memory that is allocated when it is first used, and then kept.
class StagingMemory {
 public:
  std::byte* bytes(int64_t count) {
    if (count > size_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count));
      size_ = count;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t size_ = 0;
};

/// Bytes that are received from another rank, or sent to it.
struct MpiPiece {
  int peer = 0;  ///< the position of the other rank
  std::byte* memory = nullptr;
  int64_t bytes = 0;
};

/// One group of processes, as one lane of this rank uses it: the calls, their waits, and the errors
/// of calls that fail.
///
/// All bytes move by messages of MPI that do not block. A wait polls for a moment, and then yields
/// and sleeps between polls. Meanwhile it finds out whether another rank has failed. If it lasts,
/// it tells the control plane (PlaneWait), which says why it cannot end. One thread makes the
/// calls.
class MpiGroup {
 public:
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  /// Creates the group of `ranks`. `comm` is a communicator of these ranks. MPI keeps it until the
  /// program ends, and the group must be kept as long. Refers to the other arguments.
  MpiGroup(MPI_Comm comm, std::vector<int> ranks, std::string lane, PlaneProcess& plane,
           MpiProgress& progress);

  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::string& text() const { return text_; }
  PlaneProcess& plane() { return plane_; }
  MpiProgress& progress() { return progress_; }

  /// Runs a call. If it throws an error, the group is broken: later calls throw the same at once.
  /// MPI may then still use the memory of `operands`, which is kept.
  template <typename Body>
  void call(const Fingerprint& mark, std::initializer_list<const Tensor*> operands, Body&& body) {
    throw_if_failed();
    call_hash_ = mark.hash();
    plane_.own_calls().note(*calls_, [&](CallRecord& last) { last.begin(mark); });
    try {
      body();
    } catch (const std::exception& error) {
      if (!failure_) failure_ = error.what();
      for (const Tensor* const operand : operands) keep(*operand);
      plane_.own_calls().note(*calls_, [](CallRecord& last) { last.fail(); });
      throw;
    }
    plane_.own_calls().note(*calls_, [](CallRecord& last) { last.end(); });
  }

  /// Breaks the group by an error, if it is not broken yet.
  void fail(std::string_view why) {
    if (!failure_) failure_ = why;
  }
  bool is_broken() const { return failure_.has_value(); }
  /// Throws Error if a call has broken the group.
  void throw_if_failed() const {
    if (failure_) throw Error("{}", *failure_);
  }
  /// Throws Error if the group is broken, or if the work of another rank failed.
  void throw_if_broken() const {
    throw_if_failed();
    if (const auto failure = plane_.failure(lane_)) throw Error("{}", *failure);
  }

  /// Begins to receive bytes within a call, or to send them, and adds the requests. Only messages
  /// of equal calls match, because their tags are hashes of the call and the number of bytes. Open
  /// MPI 4.1 writes a message that is too long past the end of the receiver's memory.
  void receive(uint64_t call, const MpiPiece& piece, std::vector<MPI_Request>& requests);
  void send(uint64_t call, const MpiPiece& piece, std::vector<MPI_Request>& requests);
  /// Returns Fingerprint::hash() of the call that runs, for receive() and send().
  uint64_t call_hash() const { return call_hash_; }
  /// Waits for messages of MPI, which have so many bytes, and clears the list. `peers` are the
  /// positions of the ranks on which the wait depends; in a collective, all others. Throws Error if
  /// the wait cannot end, or if it lasts longer than the timeout; cancels the messages before.
  void wait(const Fingerprint& mark, std::vector<MPI_Request>& messages, int64_t bytes,
            std::span<const int> peers);
  void wait(const Fingerprint& mark, std::vector<MPI_Request>& messages, int64_t bytes) {
    wait(mark, messages, bytes, others_);
  }
  /// Sends and receives pieces within a collective, and waits for them.
  void exchange(const Fingerprint& mark, std::span<const MpiPiece> sends,
                std::span<const MpiPiece> receives);

  /// Returns until when messages that are withdrawn are waited for, as they may be under way. The
  /// first call decides for all messages: the group makes no more calls.
  std::chrono::steady_clock::time_point withdrawal_deadline();
  /// Keeps the memory of a message that MPI may still use.
  void keep(const Tensor& tensor) { kept_.push_back(tensor); }
  /// Memory for the group's calls, which MPI may still use after an error.
  StagingMemory& packed() { return packed_; }    ///< for bytes to send
  StagingMemory& arrived() { return arrived_; }  ///< for bytes of other ranks

 private:
  class ToldWait;

  int tag_of(uint64_t call, int64_t bytes) const;
  void throw_if_stuck(const Fingerprint& mark, std::span<const int> peers,
                      std::chrono::nanoseconds waited, ToldWait& told);

  MPI_Comm comm_;
  uint64_t most_tag_;  // of MPI's messages
  std::vector<int> ranks_;
  std::string lane_;
  std::string text_;
  PlaneProcess& plane_;
  MpiProgress& progress_;
  OwnCalls::GroupCalls* calls_;
  int position_;
  std::vector<int> others_;  // the positions of all ranks but this one
  uint64_t call_hash_ = 0;
  std::vector<MPI_Request> requests_;
  std::optional<std::string> failure_;
  std::optional<std::chrono::steady_clock::time_point> withdrawal_deadline_;
  std::vector<Tensor> kept_;
  StagingMemory packed_;
  StagingMemory arrived_;
};

}  // namespace tessera
