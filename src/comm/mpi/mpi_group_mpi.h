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

/// One group of processes, as one lane of this rank uses it. Its functions wait for the other ranks
/// of a call, and throw the errors of calls that fail.
///
/// A call begins with meet(). The ranks then compare the hashes of their fingerprints. meet() waits
/// for all ranks with a timeout, and can end by an error. Ranks of one machine meet in memory that
/// they share (SharedMeeting), others by messages (MpiMeeting). Small operands go with the hashes
/// (meet_small()). For larger ones, one of MPI's collectives follows meet(). All ranks are there,
/// so it does not wait long, unless a rank is stopped or lost at that moment. MPI would then wait
/// for ever: the watch thread finds that by stuck().
///
/// One thread makes the calls. Another may call stuck().
class MpiGroup {
 public:
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  /// Creates the group of `ranks`. `data` and `marks` are communicators of these ranks: for
  /// operands, and for what ranks compare. MPI keeps both until the program ends, and the group
  /// must be kept as long. Refers to the other arguments.
  MpiGroup(MPI_Comm data, MPI_Comm marks, std::vector<int> ranks, std::string lane,
           const Processes& processes, MpiNews& news,
           const std::atomic<std::chrono::milliseconds>& timeout);

  MPI_Comm data() const { return data_; }
  MPI_Comm marks() const { return marks_; }
  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::string& text() const { return text_; }

  /// Runs a call. If the call throws Error, the group is broken: later calls throw the same at
  /// once.
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

  /// Waits for all ranks, and compares their calls. Throws Error on all ranks if they differ. One
  /// of MPI's collectives may follow.
  void meet(const Fingerprint& mark, const PieceLayout* layout = nullptr) {
    begin_small(0);
    meet_small(mark, layout);
    set_moving(&mark);
  }
  /// Meets as meet() does, and compares the numbers of rows of an all-to-all, by position, too.
  void meet_with_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                      std::span<const int64_t> received);

  /// Returns whether ranks can give each other this many bytes as they meet. The result is the same
  /// on all ranks of a call.
  bool is_small(int64_t bytes) const {
    return bytes <= (shared_ ? shared_->most_bytes() : meeting_.most_bytes());
  }
  /// Returns is_small() for the operands of a sum. Each rank reads those of all others from shared
  /// memory, so the limit falls with the number of ranks.
  bool is_small_for_all(int64_t bytes) const {
    return shared_ ? is_small(bytes * size() / 2) : is_small(bytes);
  }
  /// Returns is_small() for bytes that one rank alone gives. Outside shared memory, the other ranks
  /// send as many bytes, which no rank reads, so the limit is lower there.
  bool is_small_of_one(int64_t bytes) const { return is_small(shared_ ? bytes : bytes * size()); }
  /// Returns whether each rank can give each other one a different block of this many bytes.
  bool are_small_blocks(int64_t bytes) const {
    return (shared_ ? shared_->is_direct() : meeting_.is_direct()) && is_small(bytes);
  }
  /// Begins a call in which each rank gives this many bytes to each other rank: the same bytes,
  /// which it writes to own_bytes(), or different ones, which it writes to own_bytes_for(position).
  void begin_small(int64_t bytes);
  std::byte* own_bytes() { return shared_ ? shared_->own() : meeting_.own(); }
  std::byte* own_bytes_for(int position) {
    return shared_ ? shared_->own_for(position) : meeting_.own_for(position);
  }
  /// Meets as meet() does. bytes_of() then has the bytes that the ranks gave. `blocks` says that
  /// they wrote them to own_bytes_for(), not to own_bytes().
  void meet_small(const Fingerprint& mark, const PieceLayout* layout = nullptr,
                  bool blocks = false);
  const std::byte* bytes_of(int position) {
    return shared_ ? shared_->of(position) : meeting_.of(position);
  }

  /// Returns the memory in which ranks compare messages. Null if they are not all on one machine,
  /// or if that machine has no memory for it.
  SharedMail* mail() { return mail_.get(); }
  /// Waits until `is_done()`, which the ranks at `peers` make true. Throws Error if they do not
  /// come in time, or have ended.
  template <typename Done>
  void wait_for(const Fingerprint& mark, Done&& is_done, std::span<const int> peers) {
    constexpr int kBriefLooks = 2000;  // reads of shared memory
    wait_until(is_done, kBriefLooks, news_, lane_, [&](auto waited) {
      try {
        throw_if_hopeless(mark, peers, waited);
      } catch (const Error&) {
        if (!is_done()) throw;  // the ranks may have come while they were asked
      }
    });
  }
  /// Waits for messages of MPI, whose other ranks are those at `peers`. Throws Error if they do not
  /// come in time, or have ended. If the other ranks are known to be in the call, `between` is
  /// `yields`.
  void wait(const Fingerprint& mark, std::span<MPI_Request> messages, std::span<const int> peers,
            Backoff::Between between = Backoff::Between::sleeps);

  /// The reason why a collective of MPI that runs cannot end.
  struct Stuck {
    std::string error;
    int reporter;  ///< the first rank that waits in the collective; it reports the error
  };
  /// Returns why this rank's collective of MPI cannot end, if it has run for longer than the
  /// timeout; none otherwise. The watch thread calls it.
  std::optional<Stuck> stuck();

 private:
  bool meet_all(const Fingerprint& mark, uint64_t number, bool blocks);
  void set_moving(const Fingerprint* mark);
  void throw_if_hopeless(const Fingerprint& mark, std::span<const int> peers,
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
  // Used instead of meeting_ if all ranks are on one machine. Null if not.
  std::unique_ptr<SharedMeeting> shared_;
  std::unique_ptr<SharedMail> mail_;
  std::optional<std::string> failure_;
  std::mutex moving_mutex_;              // guards what follows
  const Fingerprint* moving_ = nullptr;  // the call whose collective of MPI runs; null if none does
  MpiNews::Clock::time_point moving_since_;
};

}  // namespace tessera
