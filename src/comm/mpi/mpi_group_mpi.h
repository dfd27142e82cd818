#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/fingerprint.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/processes.h"

namespace tessera {

/// One group of processes as one lane of this rank sees it: how its calls wait for each other, and
/// what they say if they fail.
///
/// A call begins by meet(), in which the ranks compare their fingerprints. It waits for all of them
/// and can end by an error. What comes after it, MPI's collective itself, then finds all ranks
/// there and does not wait for long, unless one of them is stopped or lost in that moment. MPI
/// would then wait for ever: stuck() tells another thread so.
class MpiGroup {
 public:
  /// `data` and `marks` are communicators of these ranks, which MPI keeps until the program ends;
  /// so must this group be kept. Refers to the rest.
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  MpiGroup(MPI_Comm data, MPI_Comm marks, std::vector<int> ranks, std::string lane,
           const Processes& processes, MpiNews& news,
           const std::atomic<std::chrono::milliseconds>& timeout);

  MPI_Comm data() const { return data_; }
  MPI_Comm marks() const { return marks_; }
  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::string& text() const { return text_; }

  /// Runs a call. If it throws Error, the group is broken: later calls throw the same at once.
  template <typename Body>
  void call(const Fingerprint& mark, Body&& body) {
    if (failure_) throw Error("{}", *failure_);
    news_.begin_call(*calls_, mark);
    try {
      body();
    } catch (const Error& error) {
      set_moving(nullptr);
      failure_ = error.what();
      news_.fail_call(*calls_);
      throw;
    }
    set_moving(nullptr);
    news_.end_call(*calls_);
  }

  /// Throws Error if the group is broken, or the work of another rank failed.
  void throw_if_broken() {
    if (failure_) throw Error("{}", *failure_);
    news_.listen();
    if (const auto failure = news_.failure(lane_)) throw Error("{}", *failure);
  }

  /// Waits for all ranks, and compares their calls. Throws Error on all ranks if they differ.
  void meet(const Fingerprint& mark, const PieceLayout* layout = nullptr);
  /// Compares the numbers of rows, by position, after meet().
  void compare_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                    std::span<const int64_t> received);
  /// Waits for messages of MPI, whose other ranks are those at `peers`. Throws Error if they do not
  /// come in time, or have ended.
  void wait(const Fingerprint& mark, std::span<MPI_Request> messages, std::span<const int> peers);

  /// How MPI's collective that runs cannot end.
  struct Stuck {
    std::string error;
    int speaker;  ///< the first rank that waits in it, which is to report it
  };
  /// What keeps MPI's collective of this rank from ending, if it has run for longer than the
  /// timeout; none otherwise. Another thread calls it than that which waits.
  std::optional<Stuck> stuck();

 private:
  void set_moving(const Fingerprint* mark);
  void throw_if_in_vain(const Fingerprint& mark, std::span<const int> peers,
                        std::chrono::nanoseconds waited);
  Stuck timed_out(const std::string& mark, std::span<const int> peers);
  void throw_if_ended(const Fingerprint& mark, std::span<const int> peers);

  MPI_Comm data_;
  MPI_Comm marks_;
  std::vector<int> ranks_;
  std::string lane_;
  std::string text_;
  const Processes& processes_;
  MpiNews& news_;
  const std::atomic<std::chrono::milliseconds>& timeout_;
  MpiNews::GroupCalls* calls_;
  int position_ = 0;
  std::vector<int> all_;  // positions of all ranks but this one
  // The fingerprints of a call. MPI may still use them after a call that was given up.
  uint64_t own_hash_ = 0;
  std::vector<uint64_t> hashes_;  // by position
  std::optional<std::string> failure_;
  std::mutex moving_mutex_;              // of the next two
  const Fingerprint* moving_ = nullptr;  // the call whose collective runs in MPI
  MpiNews::Clock::time_point moving_since_;
};

}  // namespace tessera
