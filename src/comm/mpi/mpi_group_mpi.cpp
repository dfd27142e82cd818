#include "comm/mpi/mpi_group_mpi.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/call_errors.h"
#include "comm/mpi/backoff.h"
#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

/// The polls before a wait looks at anything else: most waits end within these microseconds.
constexpr int kBriefPolls = 200;
/// How long a rank waits before it tells the control plane.
constexpr std::chrono::milliseconds kMoment{1000};
/// How long after its timeout a rank waits for the control plane to say why.
constexpr std::chrono::seconds kVerdictPatience{10};
/// The longest wait, in an error, for the end of messages that may be under way.
constexpr std::chrono::milliseconds kMovePatience{500};

/// The most bytes of one message of MPI, which counts them in int.
constexpr int64_t kMostMessageBytes = int64_t{1} << 30;
/// The bytes that MPI sends without asking the receiver before: Open MPI's limit is 4 KiB between
/// processes of a machine, with its own header. A few such messages are faster than one that asks.
constexpr int64_t kEagerBytes = 4000;
constexpr int64_t kSplitBytes = 3 * kEagerBytes;

/// Returns the largest tag that MPI has for messages.
uint64_t most_tag(MPI_Comm comm) {
  int* most = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, &most, &found), "MPI_Comm_get_attr");
  constexpr int kLeast = 32767;
  return static_cast<uint64_t>(found != 0 ? *most : kLeast);
}

/// Calls begin_message(offset, bytes) for the messages of MPI in which so many bytes go.
template <typename BeginMessage>
void for_each_message(int64_t bytes, BeginMessage&& begin_message) {
  const int64_t most = bytes <= kSplitBytes ? kEagerBytes : kMostMessageBytes;
  for (int64_t begin = 0; begin < bytes; begin += most) {
    begin_message(begin, static_cast<int>(std::min(most, bytes - begin)));
  }
}

}  // namespace

/// A wait that the control plane may know.
class MpiGroup::ToldWait {
 public:
  explicit ToldWait(PlaneProcess& plane) : plane_(plane) {}
  ~ToldWait() {
    if (number_) plane_.end_wait(*number_);
  }
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;

  bool is_told() const { return number_.has_value(); }
  void tell(PlaneWait wait) {
    number_ = wait.number = plane_.own_calls().next_wait();
    plane_.begin_wait(std::move(wait));
  }
  /// Returns why the wait cannot end; none if that is not known.
  std::optional<std::string> verdict() const { return plane_.own_calls().verdict(*number_); }

 private:
  PlaneProcess& plane_;
  std::optional<int64_t> number_;
};

MpiGroup::MpiGroup(MPI_Comm comm, std::vector<int> ranks, std::string lane, PlaneProcess& plane,
                   MpiProgress& progress)
    : comm_(comm),
      most_tag_(most_tag(comm)),
      ranks_(std::move(ranks)),
      lane_(std::move(lane)),
      text_(group_text(ranks_, lane_)),
      plane_(plane),
      progress_(progress),
      calls_(plane.own_calls().add_group(text_)),
      position_(static_cast<int>(std::ranges::find(ranks_, plane.rank()) - ranks_.begin())) {
  for (int position = 0; position < size(); ++position) {
    if (position != position_) others_.push_back(position);
  }
}

int MpiGroup::tag_of(uint64_t call, int64_t bytes) const {
  return static_cast<int>(hash(std::as_bytes(std::span(&bytes, 1)), call) % most_tag_);
}

void MpiGroup::receive(uint64_t call, const MpiPiece& piece, std::vector<MPI_Request>& requests) {
  const int tag = tag_of(call, piece.bytes);
  for_each_message(piece.bytes, [&](int64_t begin, int bytes) {
    check_mpi(MPI_Irecv(piece.memory + begin, bytes, MPI_BYTE, piece.peer, tag, comm_,
                        &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
  });
}

void MpiGroup::send(uint64_t call, const MpiPiece& piece, std::vector<MPI_Request>& requests) {
  const int tag = tag_of(call, piece.bytes);
  for_each_message(piece.bytes, [&](int64_t begin, int bytes) {
    check_mpi(MPI_Isend(piece.memory + begin, bytes, MPI_BYTE, piece.peer, tag, comm_,
                        &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  });
}

void MpiGroup::wait(const Fingerprint& mark, std::vector<MPI_Request>& messages, int64_t bytes,
                    std::span<const int> peers) {
  // A message that was withdrawn may arrive, but its memory may have been used for something else.
  const auto is_withdrawn = [&] {
    return mark.collective == Collective::message && std::ranges::any_of(peers, [&](int peer) {
             return plane_.own_calls().has_withdrawn(ranks_[static_cast<size_t>(peer)], text_);
           });
  };
  for (int polls = 0; polls < kBriefPolls; ++polls) {
    if (!are_done(messages)) continue;
    if (is_withdrawn()) break;
    return messages.clear();
  }
  ToldWait told(plane_);
  try {
    for (Backoff backoff(bytes); !are_done(messages) || is_withdrawn(); backoff.wait()) {
      throw_if_stuck(mark, peers, backoff.waited(), told);
    }
  } catch (...) {
    cancel(messages);
    throw;
  }
  messages.clear();
}

void MpiGroup::throw_if_stuck(const Fingerprint& mark, std::span<const int> peers,
                              std::chrono::nanoseconds waited, ToldWait& told) {
  if (const auto failure = plane_.failure(lane_)) throw Error("{}", *failure);
  const auto rank_at = [&](int position) { return ranks_[static_cast<size_t>(position)]; };
  if (mark.collective == Collective::message) {
    for (const int peer : peers) {
      const auto why = plane_.own_calls().withdrawn(rank_at(peer), text_);
      if (why) throw Error("{}", *why);
    }
  }
  const std::chrono::milliseconds timeout = plane_.timeout();
  if (!told.is_told() && waited > std::min(kMoment, timeout / 2)) {
    PlaneWait wait{
        .ranks = ranks_,
        .lane = lane_,
        .mark = {std::string(mark.name), mark},
        .timeout = timeout,
        .remaining = std::max(std::chrono::ceil<std::chrono::milliseconds>(timeout - waited),
                              std::chrono::milliseconds(0))};
    std::ranges::transform(peers, std::back_inserter(wait.needs), rank_at);
    told.tell(std::move(wait));
  }
  if (!told.is_told()) return;
  if (const auto why = told.verdict()) throw Error("{}", *why);
  if (waited > timeout + kVerdictPatience) {
    throw Error("{} of {}: {}, {}, through which the ranks meet, does not say why", mark.text(),
                text_, waited_text(timeout), plane_.text(0));
  }
}

std::chrono::steady_clock::time_point MpiGroup::withdrawal_deadline() {
  if (!withdrawal_deadline_) {
    withdrawal_deadline_ = std::chrono::steady_clock::now() + kMovePatience;
  }
  return *withdrawal_deadline_;
}

void MpiGroup::exchange(const Fingerprint& mark, std::span<const MpiPiece> sends,
                        std::span<const MpiPiece> receives) {
  // Sends begin first, because other ranks wait for them.
  for (const MpiPiece& piece : sends) send(call_hash_, piece, requests_);
  int64_t bytes = 0;
  for (const MpiPiece& piece : receives) {
    receive(call_hash_, piece, requests_);
    bytes += piece.bytes;
  }
  wait(mark, requests_, bytes);
}

}  // namespace tessera
