#include "comm/mpi/mpi_group_mpi.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/most_rows.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/shared_parts_mpi.h"
#include "comm/piece_layout.h"

// The meetings of a group, the waits for its ranks, and the errors of both. Between two polls, a
// wait receives news of ranks that have ended. After the timeout it asks the peers what they do.

namespace tessera {
namespace {

/// The time within which a rank must answer the question what it does.
constexpr std::chrono::seconds kAnswerPatience{3};
constexpr size_t kMostTextBytes = 1024;  // of the description of a call

}  // namespace

MpiGroup::MpiGroup(MPI_Comm data, MPI_Comm marks, std::vector<int> ranks, std::string lane,
                   const Processes& processes, MpiNews& news)
    : data_(data),
      marks_(marks),
      ranks_(std::move(ranks)),
      lane_(std::move(lane)),
      text_(group_text(ranks_, lane_)),
      processes_(processes),
      news_(news),
      calls_(news.add_group(text_)),
      position_(static_cast<int>(std::ranges::find(ranks_, processes.rank()) - ranks_.begin())),
      meeting_(marks, size(), position_) {
  if (size() > 1 && on_one_machine(marks)) {
    shared_ = SharedMeeting::make(marks);
    mail_ = SharedMail::make(marks);
  }
  for (int position = 0; position < size(); ++position) {
    if (position != position_) others_.push_back(position);
  }
}

void MpiGroup::begin_small(int64_t bytes) {
  TESSERA_CHECK(is_small(bytes), "a rank gives {} bytes", bytes);
  if (shared_) {
    shared_->begin();
  } else {
    meeting_.begin(bytes);
  }
}

/// Waits for all ranks, in shared memory or by messages. Returns whether all give the same number.
bool MpiGroup::meet_all(const Fingerprint& mark, uint64_t number, bool blocks) {
  if (!shared_) {
    return meeting_.meet(number, blocks,
                         [&](std::span<MPI_Request> requests) { wait(mark, requests, others_); });
  }
  return shared_->meet(number, blocks, [&](auto&& arrived) { wait_for(mark, arrived, others_); });
}

void MpiGroup::meet_small(const Fingerprint& mark, const PieceLayout* layout, bool blocks) {
  const uint64_t number = std::max<uint64_t>(1, mark.hash());  // 0 stands for a difference
  if (meet_all(mark, number, blocks)) return;
  // All ranks see that their calls differ, so all of them send the texts of their calls.
  std::string text = mark.text();
  if (layout != nullptr) text += fmt::format(" ({})", layout->text());
  text.resize(kMostTextBytes);  // padded with zeros
  std::vector<char> texts(ranks_.size() * kMostTextBytes);
  set_running(&mark);
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

int64_t MpiGroup::meet_with_rows(const Fingerprint& mark, std::span<const int64_t> sent,
                                 std::span<const int64_t> received) {
  const size_t bytes = sent.size_bytes();
  begin_small(static_cast<int64_t>(2 * bytes));
  std::memcpy(own_bytes(), sent.data(), bytes);
  std::memcpy(own_bytes() + bytes, received.data(), bytes);
  meet_small(mark);
  // Each rank gave its `sent` and then its `received`. All ranks have these numbers of all ranks,
  // so all find the same difference.
  const auto count_of = [&](int rank, size_t offset, int peer) {
    int64_t count = 0;
    std::memcpy(&count, bytes_of(rank) + offset + static_cast<size_t>(peer) * sizeof count,
                sizeof count);
    return count;
  };
  std::vector<int64_t> rows(ranks_.size() * ranks_.size());
  for (int to = 0; to < size(); ++to) {
    for (int from = 0; from < size(); ++from) {
      const int64_t given = count_of(from, 0, to);
      const int64_t expected = count_of(to, bytes, from);
      rows[static_cast<size_t>(from) * ranks_.size() + static_cast<size_t>(to)] = given;
      if (given == expected) continue;
      throw Error("{}", different_rows_text(mark, text_, ranks_[static_cast<size_t>(from)], given,
                                            ranks_[static_cast<size_t>(to)], expected));
    }
  }
  set_running(&mark);
  return most_rows(rows, size());
}

void MpiGroup::wait(const Fingerprint& mark, std::span<MPI_Request> messages,
                    std::span<const int> peers, Backoff::Between between) {
  wait_for_messages(
      messages, news_, lane_, [&](auto waited) { throw_if_ended_or_late(mark, peers, waited); },
      between);
}

void MpiGroup::throw_if_ended_or_late(const Fingerprint& mark, std::span<const int> peers,
                                      std::chrono::nanoseconds waited) {
  throw_if_ended(mark, peers);
  if (mark.collective == Collective::message) throw_if_withdrawn(peers);
  if (waited > processes_.timeout()) throw Error("{}", timed_out(mark.text(), peers).error);
}

/// Notes the call whose collective of MPI runs from now on; null if none does.
void MpiGroup::set_running(const Fingerprint* mark) {
  const std::scoped_lock lock(running_mutex_);
  running_ = mark;
  if (mark != nullptr) running_since_ = MpiNews::Clock::now();
}

std::optional<MpiGroup::Stuck> MpiGroup::stuck() {
  std::string mark;
  {
    const std::scoped_lock lock(running_mutex_);
    if (running_ == nullptr || MpiNews::Clock::now() - running_since_ < processes_.timeout())
      return {};
    mark = running_->text();
  }
  return timed_out(mark, others_);
}

/// Throws Error if a rank at `peers` ended without an error, more than kEndGrace ago. Ends by
/// errors are failures, which the waits find (MpiNews::failure()).
void MpiGroup::throw_if_ended(const Fingerprint& mark, std::span<const int> peers) {
  std::vector<int> ranks;
  std::vector<std::string> last_calls;
  const auto before = MpiNews::Clock::now() - kEndGrace;
  const auto rank_at = [&](int position) { return ranks_[static_cast<size_t>(position)]; };
  for (const auto& [rank, end] : news_.ends()) {
    if (!end.error.empty() || end.heard > before) continue;
    if (std::ranges::find(peers, rank, rank_at) == peers.end()) continue;
    ranks.push_back(rank);
    last_calls.push_back(fmt::format("{} has done all of its work", processes_.text(rank)));
  }
  if (!ranks.empty()) throw Error("{}", ended_text(mark, text_, ranks, last_calls));
}

/// Throws Error if a rank at `peers` has withdrawn a message, more than kEndGrace ago. None of its
/// messages in this group moves any more.
void MpiGroup::throw_if_withdrawn(std::span<const int> peers) {
  for (const int position : peers) {
    const auto why = news_.withdrawn(ranks_[static_cast<size_t>(position)], text_);
    if (why) throw Error("{}", *why);
  }
}

/// Returns the error of a call that has timed out, and the rank that reports it. Asks the ranks at
/// `peers` in which calls they wait: a rank that waits in this call is not to blame.
MpiGroup::Stuck MpiGroup::timed_out(const std::string& mark, std::span<const int> peers) {
  std::vector<int> asked;
  for (const int position : peers) asked.push_back(ranks_[static_cast<size_t>(position)]);
  const std::string call = mark + " of " + text_;
  const auto answers = news_.ask(asked, kAnswerPatience);
  std::vector<int> waiting{processes_.rank()};
  std::vector<int> missing;
  std::vector<std::string> last_calls;
  for (const int rank : asked) {
    const auto answer = answers.find(rank);
    if (answer == answers.end()) {
      missing.push_back(rank);
      last_calls.push_back(
          fmt::format("{} does not answer: it is stopped, or gone, or cannot be reached",
                      processes_.text(rank)));
    } else if (std::ranges::find(answer->second.came_to, call) == answer->second.came_to.end()) {
      missing.push_back(rank);
      last_calls.push_back(fmt::format("{} (on {})", answer->second.text,
                                       processes_.hosts()[static_cast<size_t>(rank)]));
    } else {
      waiting.push_back(rank);
    }
  }
  std::ranges::sort(waiting);
  const int reporter = waiting.front();
  if (missing.empty()) {
    return {fmt::format(
                "{} of {}: {} all ranks wait in it, and the network does not carry it. Look at the "
                "links between the machines",
                mark, text_, waited_text(processes_.timeout())),
            reporter};
  }
  return {timeout_text(mark, text_, processes_.timeout(), waiting, missing, last_calls), reporter};
}

}  // namespace tessera
