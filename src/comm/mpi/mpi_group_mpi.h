#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/fingerprint.h"
#include "comm/mpi/mpi_meeting_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/mpi/shared_mail_mpi.h"
#include "comm/mpi/shared_meeting_mpi.h"
#include "comm/processes.h"

namespace tessera {

/// One group of processes as one lane of this rank sees it: how its calls wait for each other, and
/// what they say if they fail.
///
/// A call begins by meet(), in which the ranks compare their fingerprints. It waits for all of them
/// and can end by an error. Ranks of one machine do so in memory that they share, others by
/// messages. Small operands go with the fingerprints. For others MPI's collective comes after it.
/// It finds all ranks there and does not wait for long, unless one of them is stopped or lost in
/// that moment. MPI would then wait for ever: stuck() tells another thread so.
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
    } catch (const std::exception& error) {
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
  /// MPI's collectives may come after it.
  void meet(const Fingerprint& mark, const PieceLayout* layout = nullptr) {
    begin_small(0);
    meet_small(mark, layout);
    set_moving(&mark);
  }
  /// The same with the numbers of rows of an all-to-all, by position, which are compared too.
  void meet_with_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                      std::span<const int64_t> received);

  /// Whether ranks can give each other so many bytes as they meet. All ranks of a call find the
  /// same.
  bool is_small(int64_t bytes) const {
    return bytes <= (shared_ ? shared_->most_bytes() : meeting_.most_bytes());
  }
  /// The same for bytes of which each rank takes those of all others to sum them, so that their
  /// number counts.
  bool is_small_for_all(int64_t bytes) const {
    return shared_ ? is_small(bytes * size() / 2) : is_small(bytes);
  }
  /// The same for bytes that one rank alone has. In letters the others give as many, which nobody
  /// reads.
  bool is_small_of_one(int64_t bytes) const { return is_small(shared_ ? bytes : bytes * size()); }
  /// The same for other bytes to each rank.
  bool are_small_blocks(int64_t bytes) const {
    return (shared_ ? shared_->is_direct() : meeting_.is_direct()) && is_small(bytes);
  }
  /// Begins a call in which each rank gives so many bytes to each: those in own_bytes() to all, or
  /// those in own_bytes_for() to the rank at a position.
  void begin_small(int64_t bytes);
  std::byte* own_bytes() { return shared_ ? shared_->own() : meeting_.own(); }
  std::byte* own_bytes_for(int position) {
    return shared_ ? shared_->own_for(position) : meeting_.own_for(position);
  }
  /// Meets, as meet() does. What the ranks gave is in bytes_of() then.
  void meet_small(const Fingerprint& mark, const PieceLayout* layout = nullptr,
                  bool blocks = false);
  const std::byte* bytes_of(int position) {
    return shared_ ? shared_->of(position) : meeting_.of(position);
  }

  /// How ranks agree about messages, if all are on one machine; null otherwise.
  SharedMail* mail() { return mail_.get(); }
  /// Waits until `is_done()`, which the ranks at `peers` bring about. Throws Error if they do not
  /// come in time, or have ended.
  template <typename Done>
  void wait_for(const Fingerprint& mark, Done&& is_done, std::span<const int> peers) {
    constexpr int kBriefLooks = 2000;  // in memory
    wait_until(is_done, kBriefLooks, news_, lane_, [&](auto waited) {
      try {
        throw_if_in_vain(mark, peers, waited);
      } catch (const Error&) {
        if (!is_done()) throw;  // they may have come while they were asked
      }
    });
  }
  /// Waits for messages of MPI, whose other ranks are those at `peers`. Throws Error if they do not
  /// come in time, or have ended. `there` says that the others are known to be there: then it
  /// waits without sleep.
  void wait(const Fingerprint& mark, std::span<MPI_Request> messages, std::span<const int> peers,
            bool there = false);

  /// How MPI's collective that runs cannot end.
  struct Stuck {
    std::string error;
    int speaker;  ///< the first rank that waits in it, which is to report it
  };
  /// What keeps MPI's collective of this rank from ending, if it has run for longer than the
  /// timeout; none otherwise. Another thread calls it than that which waits.
  std::optional<Stuck> stuck();

 private:
  bool meet_all(const Fingerprint& mark, uint64_t number, bool blocks);
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
  int position_;
  std::vector<int> all_;  // positions of all ranks but this one
  MpiMeeting meeting_;
  // In its place, if all ranks are on one machine.
  std::unique_ptr<SharedMeeting> shared_;
  std::unique_ptr<SharedMail> mail_;
  std::optional<std::string> failure_;
  std::mutex moving_mutex_;              // of the next two
  const Fingerprint* moving_ = nullptr;  // the call whose collective runs in MPI
  MpiNews::Clock::time_point moving_since_;
};

}  // namespace tessera
