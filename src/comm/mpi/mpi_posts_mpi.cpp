#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/backoff.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/mpi_moves_mpi.h"

namespace tessera {
namespace {

class MpiPost final : public TransportPost {
 public:
  MpiPost(MpiGroup& group, const MarkedMessage& message, bool sent)
      : TransportPost(message, sent), group_(group) {
    std::byte* const memory = tensor().raw();
    const uint64_t call = mark().hash();
    if (sent) {
      group.send(call, {peer(), memory, tensor().bytes()}, requests);
    } else {
      group.receive(call, {peer(), memory, tensor().bytes()}, requests);
    }
    group.progress().begin_message();
  }
  ~MpiPost() override {
    group_.progress().end_message();
    if (requests.empty()) return;
    try {
      withdraw();
    } catch (const std::exception&) {  // of MPI: a destructor cannot throw it
      group_.keep(tensor());
    }
  }

  std::vector<MPI_Request> requests;

 private:
  /// Withdraws the message, unless it moves now.
  void withdraw() {
    if (!sent()) {
      for (MPI_Request& request : requests) {
        if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
      }
    }
    const auto deadline = group_.withdrawal_deadline();
    std::vector<MPI_Status> statuses(requests.size());
    int done = 0;
    for (Backoff backoff;; backoff.wait()) {
      check_mpi(
          MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data()),
          "MPI_Testall");
      if (done != 0 || Backoff::Clock::now() > deadline) break;
    }
    const auto is_cancelled = [](const MPI_Status& status) {
      int cancelled = 0;
      MPI_Test_cancelled(&status, &cancelled);
      return cancelled != 0;
    };
    if (done != 0 && (sent() || std::ranges::none_of(statuses, is_cancelled))) return;
    if (done == 0) {
      cancel(requests);
      group_.keep(tensor());
    }
    if (group_.is_broken()) return;
    // Later messages of these ranks cannot move: MPI would match them with this one.
    const auto rank_at = [&](int position) {
      return group_.ranks()[static_cast<size_t>(position)];
    };
    const std::string why = withdrawn_text(mark(), group_.text(), rank_at(group_.position()));
    group_.fail(why);
    if (peer() != group_.position()) {
      group_.plane().withdraw({rank_at(peer()), group_.text(), why});
    }
  }

  MpiGroup& group_;
};

}  // namespace

std::unique_ptr<TransportPost> post_by_mpi(MpiGroup& group, const MarkedMessage& message,
                                           bool sent) {
  return std::make_unique<MpiPost>(group, message, sent);
}

void wait_for_posts(MpiGroup& group, std::span<TransportPost* const> posts) {
  for (TransportPost* const posted : posts) {
    auto& post = static_cast<MpiPost&>(*posted);
    const int peer = post.peer();
    const std::span<const int> peers(&peer, peer == group.position() ? 0 : 1);
    group.wait(post.mark(), post.requests, post.tensor().bytes(), peers);
  }
}

}  // namespace tessera
