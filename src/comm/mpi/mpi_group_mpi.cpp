#include "comm/mpi/mpi_group_mpi.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/piece_layout.h"

namespace tessera {
namespace {

/// How long a rank that does not come has to say what it does.
constexpr std::chrono::seconds kAnswerPatience{3};
constexpr size_t kMostTextBytes = 1024;

}  // namespace

MpiGroup::MpiGroup(MPI_Comm data, MPI_Comm marks, std::vector<int> ranks, std::string lane,
                   const Processes& processes, MpiNews& news,
                   const std::atomic<std::chrono::milliseconds>& timeout)
    : data_(data),
      marks_(marks),
      ranks_(std::move(ranks)),
      lane_(std::move(lane)),
      text_(group_text(ranks_, lane_)),
      processes_(processes),
      news_(news),
      timeout_(timeout),
      calls_(news.add_group(text_)),
      hashes_(ranks_.size()) {
  for (int position = 0; position < size(); ++position) {
    if (ranks_[static_cast<size_t>(position)] == processes.rank()) {
      position_ = position;
    } else {
      all_.push_back(position);
    }
  }
}

void MpiGroup::meet(const Fingerprint& mark, const PieceLayout* layout) {
  own_hash_ = mark.hash();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&own_hash_, 1, MPI_UINT64_T, hashes_.data(), 1, MPI_UINT64_T, marks_,
                           &request),
            "MPI_Iallgather");
  wait_for(std::span(&request, 1), news_, lane_,
           [&](auto waited) { throw_if_in_vain(mark, all_, waited); });
  const auto differs = [&](uint64_t hash) { return hash != own_hash_; };
  set_moving(&mark);
  if (std::ranges::none_of(hashes_, differs)) return;
  // All ranks see that, so all of them say what they called.
  std::string text = mark.text();
  if (layout != nullptr) text += fmt::format(" ({})", layout->text());
  text.resize(kMostTextBytes);  // with zeros behind it
  std::vector<char> texts(ranks_.size() * kMostTextBytes);
  check_mpi(MPI_Allgather(text.data(), kMostTextBytes, MPI_CHAR, texts.data(), kMostTextBytes,
                          MPI_CHAR, marks_),
            "MPI_Allgather");
  std::vector<std::string> calls;
  for (size_t position = 0; position < ranks_.size(); ++position) {
    const char* begin = texts.data() + position * kMostTextBytes;
    calls.push_back(fmt::format("{} made {}", processes_.text(ranks_[position]),
                                std::string_view(begin, ::strnlen(begin, kMostTextBytes))));
  }
  throw Error("{}", disagreement_text(text_, calls));
}

void MpiGroup::compare_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                            std::span<const int64_t> received) {
  std::vector<int64_t> of_others(ranks_.size());
  check_mpi(MPI_Alltoall(sent.data(), 1, MPI_INT64_T, of_others.data(), 1, MPI_INT64_T, marks_),
            "MPI_Alltoall");
  // from, how many it sends, to, how many that one receives; of the last rank that finds a
  // difference
  std::array<int64_t, 4> difference{-1, 0, 0, 0};
  for (size_t from = 0; from < ranks_.size(); ++from) {
    if (of_others[from] == received[from]) continue;
    difference = {ranks_[from], of_others[from], processes_.rank(), received[from]};
  }
  int finder = difference[0] < 0 ? -1 : position_;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &finder, 1, MPI_INT, MPI_MAX, marks_), "MPI_Allreduce");
  if (finder < 0) return;
  check_mpi(MPI_Bcast(difference.data(), 4, MPI_INT64_T, finder, marks_), "MPI_Bcast");
  throw Error("{}", rows_text(mark, text_, static_cast<int>(difference[0]), difference[1],
                              static_cast<int>(difference[2]), difference[3]));
}

void MpiGroup::wait(const Fingerprint& mark, std::span<MPI_Request> messages,
                    std::span<const int> peers) {
  wait_for_messages(messages, news_, lane_,
                    [&](auto waited) { throw_if_in_vain(mark, peers, waited); });
}

void MpiGroup::throw_if_in_vain(const Fingerprint& mark, std::span<const int> peers,
                                std::chrono::nanoseconds waited) {
  throw_if_ended(mark, peers);
  if (waited > timeout_.load()) throw Error("{}", timed_out(mark.text(), peers).error);
}

void MpiGroup::set_moving(const Fingerprint* mark) {
  const std::scoped_lock lock(moving_mutex_);
  moving_ = mark;
  if (mark != nullptr) moving_since_ = MpiNews::Clock::now();
}

std::optional<MpiGroup::Stuck> MpiGroup::stuck() {
  std::string mark;
  {
    const std::scoped_lock lock(moving_mutex_);
    if (moving_ == nullptr || MpiNews::Clock::now() - moving_since_ < timeout_.load()) return {};
    mark = moving_->text();
  }
  return timed_out(mark, all_);
}

void MpiGroup::throw_if_ended(const Fingerprint& mark, std::span<const int> peers) {
  std::vector<int> ranks;
  std::vector<std::string> last;
  const auto before = MpiNews::Clock::now() - kEndMoment;
  for (const auto& [rank, end] : news_.ends()) {
    const auto is_peer = [&, own = rank](int at) { return ranks_[static_cast<size_t>(at)] == own; };
    if (!end.error.empty() || end.heard > before || std::ranges::none_of(peers, is_peer)) continue;
    ranks.push_back(rank);
    last.push_back(fmt::format("{} has done all of its work", processes_.text(rank)));
  }
  if (!ranks.empty()) throw Error("{}", ended_text(mark, text_, ranks, last));
}

/// Asks all others of the group what they do. Those that wait in this call are there.
MpiGroup::Stuck MpiGroup::timed_out(const std::string& mark, std::span<const int> peers) {
  std::vector<int> asked;
  for (const int position : peers) asked.push_back(ranks_[static_cast<size_t>(position)]);
  const std::string call = mark + " of " + text_;
  const auto answers = news_.ask(asked, kAnswerPatience);
  std::vector<int> there{processes_.rank()};
  std::vector<int> not_there;
  std::vector<std::string> last;
  for (const int rank : asked) {
    const auto answer = answers.find(rank);
    if (answer == answers.end()) {
      not_there.push_back(rank);
      last.push_back(fmt::format("{} does not answer: it is stopped, or gone, or cannot be reached",
                                 processes_.text(rank)));
    } else if (std::ranges::find(answer->second.came_to, call) == answer->second.came_to.end()) {
      not_there.push_back(rank);
      last.push_back(fmt::format("{} (on {})", answer->second.text,
                                 processes_.hosts()[static_cast<size_t>(rank)]));
    } else {
      there.push_back(rank);
    }
  }
  std::ranges::sort(there);
  const int speaker = there.front();
  if (not_there.empty()) {
    return {fmt::format(
                "{} of {}: after {:g} s all ranks wait in it, and the network does not carry it. "
                "Look at the links between the machines",
                mark, text_, std::chrono::duration<double>(timeout_.load()).count()),
            speaker};
  }
  return {timeout_text(mark, text_, timeout_.load(), there, not_there, last), speaker};
}

}  // namespace tessera
