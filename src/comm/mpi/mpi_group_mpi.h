#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mpi.h>

#include "comm/fingerprint.h"
#include "comm/mpi/mpi_meeting_mpi.h"
#include "comm/mpi/mpi_news_mpi.h"
#include "comm/mpi/shared_mail_mpi.h"
#include "comm/mpi/shared_meeting_mpi.h"
#include "comm/processes.h"
#include "tensor/tensor.h"

namespace tessera {

/// How MpiGroup::wait_for() polls.
struct Polls {
  int brief_polls = 2000;  ///< see wait_until(); by default, they are reads of shared memory
  Backoff::Between between = Backoff::Between::sleeps;
};

/// One group of processes, as one lane of this rank uses it. Its functions wait for the other ranks
/// of a call, and throw the errors of calls that fail.
///
/// A call begins with a *meeting*: all ranks wait for each other, with a timeout, and compare the
/// hashes of their fingerprints. Ranks of one machine meet in memory that they share
/// (SharedMeeting), others by messages (MpiMeeting). Small operands are exchanged with the hashes
/// (meet_small()). For larger operands, one of MPI's collectives follows meet(). All ranks have
/// come by then, so the collective need not wait. But if a rank is stopped or lost at that moment,
/// MPI waits for ever. The watch thread (processes_mpi.cpp) then finds the call by stuck().
///
/// One thread makes the calls. The watch thread may call stuck() at the same time.
class MpiGroup {
 public:
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  /// Creates the group of `ranks`. `data` and `marks` are communicators of these ranks: `data` for
  /// operands, `marks` for meetings. MPI keeps both until the program ends, and the group must be
  /// kept as long. Refers to the other arguments.
  MpiGroup(MPI_Comm data, MPI_Comm marks, std::vector<int> ranks, std::string lane,
           const Processes& processes, MpiNews& news);

  MPI_Comm data() const { return data_; }
  MPI_Comm marks() const { return marks_; }
  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  const std::string& text() const { return text_; }

  /// Runs a call. If it throws an error, the group is broken: later calls throw the same at once.
  template <typename Body>
  void call(const Fingerprint& mark, Body&& body) {
    throw_if_failed();
    news_.note(*calls_, [&](CallRecord& last) { last.begin(mark); });
    try {
      body();
    } catch (const std::exception& error) {
      set_running(nullptr);
      failure_ = error.what();
      news_.note(*calls_, [](CallRecord& last) { last.fail(); });
      throw;
    }
    set_running(nullptr);
    news_.note(*calls_, [](CallRecord& last) { last.end(); });
  }

  bool is_broken() const { return failure_.has_value(); }  ///< by a call
  /// Throws Error if a call has broken the group.
  void throw_if_failed() const {
    if (failure_) throw Error("{}", *failure_);
  }
  /// Throws Error if the group is broken, or if the work of another rank failed.
  void throw_if_broken() {
    throw_if_failed();
    news_.listen();
    if (const auto failure = news_.failure(lane_)) throw Error("{}", *failure);
  }

  /// Waits for all ranks, and compares their calls. Throws Error on all ranks if their calls
  /// differ. One of MPI's collectives may follow.
  void meet(const Fingerprint& mark, const PieceLayout* layout = nullptr) {
    begin_small(0);
    meet_small(mark, layout);
    set_running(&mark);
  }
  /// Meets as meet() does. Also compares the numbers of rows of an all-to-all, by position. Returns
  /// most_rows(), the same number on all ranks.
  int64_t meet_with_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                         std::span<const int64_t> received);

  /// Returns whether ranks can give each other this many bytes in a meeting. The result is the same
  /// on all ranks of a call.
  bool is_small(int64_t bytes) const {
    return bytes <= (shared_ ? shared_->max_bytes() : meeting_.max_bytes());
  }
  /// Returns is_small() for the operands of a sum. Each rank reads the operands of all others from
  /// shared memory, so the limit falls with the number of ranks.
  bool is_small_for_all(int64_t bytes) const {
    return shared_ ? is_small(bytes * size() / 2) : is_small(bytes);
  }
  /// Returns is_small() for bytes that only one rank gives. By messages, the other ranks send as
  /// many bytes that no rank reads, so the limit is lower there.
  bool is_small_of_one(int64_t bytes) const { return is_small(shared_ ? bytes : bytes * size()); }
  /// Returns whether each rank can give each other rank a different block of this many bytes.
  bool are_small_blocks(int64_t bytes) const {
    return (shared_ ? shared_->is_direct() : meeting_.is_direct()) && is_small(bytes);
  }
  /// Begins a call in which each rank gives this many bytes to each other rank. The rank writes
  /// them to own_bytes() if they are the same for all, or else to own_bytes_for(position).
  void begin_small(int64_t bytes);
  std::byte* own_bytes() { return shared_ ? shared_->own_bytes() : meeting_.own_bytes(); }
  std::byte* own_bytes_for(int position) {
    return shared_ ? shared_->own_bytes_for(position) : meeting_.own_bytes_for(position);
  }
  /// Meets as meet() does. bytes_of() then returns the bytes that a rank gave. `blocks` says that
  /// the ranks wrote to own_bytes_for(), not to own_bytes().
  void meet_small(const Fingerprint& mark, const PieceLayout* layout = nullptr,
                  bool blocks = false);
  const std::byte* bytes_of(int position) {
    return shared_ ? shared_->bytes_of(position) : meeting_.bytes_of(position);
  }

  /// Returns the memory in which ranks compare messages. Null if the ranks are not all on one
  /// machine, or if that machine has no memory for it.
  SharedMail* mail() { return mail_.get(); }
  /// Waits until `is_done()`, which the ranks at `peers` make true. Throws Error if a peer does not
  /// come in time or has ended.
  template <typename Done>
  void wait_for(const Fingerprint& mark, Done&& is_done, std::span<const int> peers,
                const Polls& polls = {}) {
    const auto look = [&](auto waited) {
      try {
        throw_if_ended_or_late(mark, peers, waited);
      } catch (const Error&) {
        if (!is_done()) throw;  // the ranks may have come while they were asked
      }
    };
    wait_until(is_done, polls.brief_polls, news_, lane_, look, polls.between);
  }
  /// Waits for messages of MPI to or from the ranks at `peers`. Throws Error if a peer does not
  /// come in time or has ended. `between` is `yields` if the peers are known to be in the call.
  void wait(const Fingerprint& mark, std::span<MPI_Request> messages, std::span<const int> peers,
            Backoff::Between between = Backoff::Between::sleeps);

  /// Keeps the memory of a message that MPI may still use, because the message did not end.
  void keep(const Tensor& tensor, std::unique_ptr<std::byte[]> headers) {
    kept_tensors_.push_back(tensor);
    kept_headers_.push_back(std::move(headers));
  }

  /// The reason why a collective of MPI that runs cannot end.
  struct Stuck {
    std::string error;
    int reporter;  ///< the rank that reports the error: the first that waits in the collective
  };
  /// Returns why this rank's collective of MPI cannot end, if it has run for longer than the
  /// timeout; none otherwise. The watch thread calls it.
  std::optional<Stuck> stuck();

 private:
  bool meet_all(const Fingerprint& mark, uint64_t number, bool blocks);
  void set_running(const Fingerprint* mark);
  void throw_if_ended_or_late(const Fingerprint& mark, std::span<const int> peers,
                              std::chrono::nanoseconds waited);
  Stuck timed_out(const std::string& mark, std::span<const int> peers);
  void throw_if_ended(const Fingerprint& mark, std::span<const int> peers);
  void throw_if_withdrawn(std::span<const int> peers);

  MPI_Comm data_;
  MPI_Comm marks_;
  std::vector<int> ranks_;
  std::string lane_;
  std::string text_;
  const Processes& processes_;
  MpiNews& news_;
  MpiNews::GroupCalls* calls_;
  int position_;
  std::vector<int> others_;  // the positions of all ranks but this one
  MpiMeeting meeting_;
  // Used instead of messages if all ranks are on one machine; otherwise null.
  std::unique_ptr<SharedMeeting> shared_;
  std::unique_ptr<SharedMail> mail_;
  std::optional<std::string> failure_;
  std::vector<Tensor> kept_tensors_;
  std::vector<std::unique_ptr<std::byte[]>> kept_headers_;
  std::mutex running_mutex_;  // guards what follows
  const Fingerprint* running_ =
      nullptr;  // the call whose collective of MPI runs; null if none does
  MpiNews::Clock::time_point running_since_;
};

}  // namespace tessera
