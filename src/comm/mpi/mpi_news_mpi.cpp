#include "comm/mpi/mpi_news_mpi.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "comm/call_errors.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/rank_groups.h"

namespace tessera {
namespace {

// The kinds of news, which are the tags of their messages. The bytes are a text.
constexpr int kWorkFailed = 1;
constexpr int kOwnEnd = 2;     // the rank has ended, by an error of its own or without one
constexpr int kCausedEnd = 3;  // the rank has ended because of another rank's error
constexpr int kQuestion = 4;   // asks a rank what it does; the number of the question
constexpr int kAnswer = 5;     // lines: that number, Answer::text, and each of Answer::came_to
constexpr int kWithdrawn =
    6;  // lines: the group in which the rank withdrew a message, and the error

}  // namespace

void Backoff::wait() {
  if (between_ == Between::yields || waited() < std::chrono::milliseconds(2)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool are_done(std::span<MPI_Request> requests) {
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  return done != 0;
}

void cancel(std::span<MPI_Request> messages) {
  for (MPI_Request& message : messages) {
    if (message == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&message);
    MPI_Request_free(&message);
  }
}

MpiNews::MpiNews(MPI_Comm world)
    : world_(world), rank_(position_in(world)), ranks_(ranks_of(world)) {}

MpiNews::GroupCalls* MpiNews::add_group(std::string group) {
  const std::scoped_lock lock(mutex_);
  groups_.push_back({std::move(group), {}});
  return &groups_.back();
}

void MpiNews::tell_work_failed(std::string_view why) {
  const std::scoped_lock lock(mutex_);
  if (work_failure_) return;
  work_failure_ = failed_text(rank_, why);
  tell_all(kWorkFailed, *work_failure_);
}

void MpiNews::tell_end(const End& end) {
  const std::scoped_lock lock(mutex_);
  if (!ends_.emplace(rank_, end).second) return;
  tell_all(end.is_cause ? kOwnEnd : kCausedEnd, end.error);
}

/// Sends a text to all other ranks. The caller holds the lock.
void MpiNews::tell_all(int kind, std::string_view text) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) tell(rank, kind, text);
  }
}

/// Begins to send a text to a rank. The caller holds the lock.
void MpiNews::tell(int rank, int kind, std::string_view text) {
  sent_.push_back({std::string(text), MPI_REQUEST_NULL});
  Sent& sent = sent_.back();
  sent.request = begin_send(sent.bytes.data(), std::ssize(sent.bytes), rank, kind, world_);
  // Frees the memory of messages that MPI has sent by now.
  std::erase_if(sent_, [](Sent& earlier) {
    int done = 0;
    MPI_Test(&earlier.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

void MpiNews::tell_withdrawn(std::span<const int> ranks, std::string_view group,
                             std::string_view why) {
  const std::scoped_lock lock(mutex_);
  for (const int rank : ranks) {
    if (rank != rank_) tell(rank, kWithdrawn, fmt::format("{}\n{}", group, why));
  }
}

MpiNews::Work::Work(MpiNews& news, std::function<void()> work)
    : news_(news), work_(std::move(work)) {
  const std::scoped_lock lock(news_.works_mutex_);
  news_.works_.push_back(this);
}

MpiNews::Work::~Work() {
  const std::scoped_lock lock(news_.works_mutex_);
  std::erase(news_.works_, this);
}

void MpiNews::listen() {
  receive_messages();
  do_works();
}

void MpiNews::do_works() {
  const std::unique_lock lock(works_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const Work* const work : works_) work->work_();
}

void MpiNews::receive_messages() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread listens, or is about to release the lock
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &found, &message, &status),
              "MPI_Improbe");
    if (found == 0) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<size_t>(bytes), '\0');
    check_mpi(MPI_Mrecv(text.data(), bytes, MPI_BYTE, &message, &status), "MPI_Mrecv");
    handle(status.MPI_SOURCE, status.MPI_TAG, text);
  }
}

/// Notes what another rank tells, or answers its question. The caller holds the lock.
void MpiNews::handle(int from, int kind, const std::string& text) {
  switch (kind) {
    case kWorkFailed:
      if (!work_failure_) work_failure_ = text;
      break;
    case kOwnEnd:
    case kCausedEnd:
      ends_.emplace(from, End{text, kind == kOwnEnd, Clock::now()});
      break;
    case kQuestion: {
      const Answer own = own_answer();
      std::string lines = text + "\n" + own.text;
      for (const std::string& call : own.came_to) lines += "\n" + call;
      tell(from, kAnswer, lines);
      break;
    }
    case kAnswer: {
      // An answer to an earlier question, which nobody waits for any more, says what was then.
      size_t end = text.find('\n');
      if (text.substr(0, end) != std::to_string(question_)) break;
      Answer answer;
      const size_t text_begin = end + 1;
      end = text.find('\n', text_begin);
      answer.text = text.substr(text_begin, end - text_begin);
      while (end != std::string::npos) {
        const size_t begin = end + 1;
        end = text.find('\n', begin);
        answer.came_to.push_back(text.substr(begin, end - begin));
      }
      answers_[from] = std::move(answer);
      break;
    }
    case kWithdrawn: {
      const size_t end = text.find('\n');
      withdrawn_.emplace(std::pair(from, text.substr(0, end)),
                         End{.error = text.substr(end + 1), .heard = Clock::now()});
      break;
    }
    default:
      throw InternalError(fmt::format("rank {} tells news of kind {}", from, kind));
  }
}

std::optional<std::string> MpiNews::failure(std::string_view lane) {
  const std::scoped_lock lock(mutex_);
  if (work_failure_ && lane != kControlLane) return work_failure_;
  return failure_of_other();
}

std::optional<std::string> MpiNews::withdrawn(int rank, const std::string& group) {
  const std::scoped_lock lock(mutex_);
  const auto found = withdrawn_.find({rank, group});
  const bool counts = found != withdrawn_.end() && found->second.heard < Clock::now() - kEndGrace;
  return counts ? std::optional(found->second.error) : std::nullopt;
}

bool MpiNews::has_heard(std::string_view error) {
  const std::scoped_lock lock(mutex_);
  return error == work_failure_ || error == failure_of_other();
}

/// Returns the failure of the other rank that ended first by an error of its own, more than
/// kEndGrace ago. The caller holds the lock.
std::optional<std::string> MpiNews::failure_of_other() const {
  const auto before = Clock::now() - kEndGrace;
  const std::pair<const int, End>* earliest = nullptr;
  for (const auto& entry : ends_) {
    const bool counts = entry.first != rank_ && !entry.second.error.empty() &&
                        entry.second.is_cause && entry.second.heard < before;
    if (counts && (earliest == nullptr || entry.second.heard < earliest->second.heard))
      earliest = &entry;
  }
  if (earliest == nullptr) return std::nullopt;
  return failed_text(earliest->first, earliest->second.error);
}

std::map<int, MpiNews::End> MpiNews::ends() {
  const std::scoped_lock lock(mutex_);
  return ends_;
}

MpiNews::Answer MpiNews::own_answer() const {
  Answer answer;
  std::vector<LastCall> calls;
  for (const GroupCalls& group : groups_) {
    calls.push_back(group.last.last(group.group));
    const CallState state = calls.back().state;
    const bool came = state == CallState::inside || state == CallState::failed;
    if (came) answer.came_to.push_back(calls.back().with_group());
  }
  answer.text = calls_text(rank_, calls);
  return answer;
}

std::map<int, MpiNews::Answer> MpiNews::ask(std::span<const int> ranks,
                                            std::chrono::milliseconds patience) {
  const std::scoped_lock asking(asking_);
  size_t asked = 0;
  {
    const std::scoped_lock lock(mutex_);
    answers_.clear();
    ++question_;
    for (const int rank : ranks) {
      if (rank == rank_) continue;
      tell(rank, kQuestion, std::to_string(question_));
      ++asked;
    }
  }
  for (Backoff backoff; backoff.waited() < patience; backoff.wait()) {
    listen();
    const std::scoped_lock lock(mutex_);
    if (answers_.size() == asked) break;
  }
  const std::scoped_lock lock(mutex_);
  return answers_;
}

}  // namespace tessera
