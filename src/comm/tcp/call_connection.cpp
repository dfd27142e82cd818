#include "comm/tcp/call_connection.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "comm/tcp/tcp_messages.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kAnswerLook{250};

}  // namespace

CallConnection::CallConnection(TcpSocket socket)
    : socket_(std::move(socket)), listener_([this] { hear_answers(); }) {}

CallConnection::~CallConnection() {
  socket_.shut_down();
  listener_.join();
}

int64_t CallConnection::ask(int group, const WireWriter& request, Given given, Result result,
                            const TcpSocket::Look& look) {
  Question question{.result = result};
  {
    const Lock lock(mutex_);
    throw_if_lost();
    TESSERA_CHECK(questions_.emplace(group, &question).second, "group {} asks twice", group);
  }
  try {
    send(request, given, look);
    end_sending(question);
    await(question, look);
  } catch (const ConnectionLost&) {
    give_up(group, question, std::nullopt);
    throw;
  } catch (const std::exception& error) {
    give_up(group, question, error.what());
    throw;
  }
  if (!question.error.empty()) throw Error("{}", question.error);
  return question.received;
}

void CallConnection::send(const WireWriter& request, Given given, const TcpSocket::Look& look) {
  const Lock lock(sending_);
  send_message(socket_, request, look);
  for (const auto& part : given) socket_.send(part, look);
}

/// Notes that the given bytes are sent, so that the result may be written. A collective in place
/// sends from the memory that its result goes to.
void CallConnection::end_sending(Question& question) {
  {
    const Lock lock(mutex_);
    question.sent = true;
  }
  changed_.notify_all();
}

void CallConnection::await(const Question& question, const TcpSocket::Look& look) {
  Lock lock(mutex_);
  while (!question.answered) {
    throw_if_lost();
    changed_.wait_for(lock, kAnswerLook);
    lock.unlock();
    look();
    lock.lock();
  }
}

/// Shuts the connection down, because its pending bytes are of no use any more. Waits until no
/// thread writes to the result of the request.
void CallConnection::give_up(int group, Question& question, std::optional<std::string> why) {
  end_sending(question);
  Lock lock(mutex_);
  if (!given_up_) given_up_ = std::move(why);
  socket_.shut_down();
  changed_.wait(lock, [&] { return lost_.has_value(); });
  questions_.erase(group);
}

void CallConnection::throw_if_lost() const {
  if (given_up_) throw Error("{}", *given_up_);
  if (lost_) throw ConnectionLost("{}", *lost_);
}

void CallConnection::hear_answers() {
  std::string why;
  try {
    std::vector<std::byte> memory;
    for (;;) {
      WireReader answer = receive_message(socket_, memory);
      hear_answer(answer);
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  {
    const Lock lock(mutex_);
    lost_ = std::move(why);
  }
  changed_.notify_all();
}

void CallConnection::hear_answer(WireReader& answer) {
  const auto group = answer.take<int>();
  std::string error = answer.take_text();
  const auto received = answer.take<int64_t>();
  answer.end();
  Question* question = nullptr;
  {
    Lock lock(mutex_);
    const auto found = questions_.find(group);
    if (found == questions_.end()) throw BadMessage("an answer that nobody waits for");
    question = found->second;
    if (error.empty()) changed_.wait(lock, [&] { return question->sent; });
  }
  if (error.empty()) {
    for (const auto& part : question->result) socket_.receive(part);
  }
  {
    const Lock lock(mutex_);
    question->error = std::move(error);
    question->received = received;
    question->answered = true;
    questions_.erase(group);
  }
  changed_.notify_all();
}

}  // namespace tessera
