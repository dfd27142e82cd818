#include "comm/nccl/nccl_communicator_cuda.h"

#include <utility>

#include "base/error.h"

namespace tessera {

NcclCommunicator::NcclCommunicator(std::shared_ptr<const NcclLibrary> nccl, Communicator& group,
                                   std::vector<int> ranks, int position,
                                   std::chrono::milliseconds timeout)
    : nccl_(std::move(nccl)),
      group_(group),
      ranks_(std::move(ranks)),
      position_(position),
      timeout_(timeout) {}

NcclCommunicator::~NcclCommunicator() {
  wait_check_.reset();
  if (communicator_ != nullptr) {
    try {
      check(nccl_->finalize(communicator_), "end");
      (void)nccl_->destroy(communicator_);
      communicator_ = nullptr;
    } catch (const Error&) {  // a destructor cannot throw it; check() has aborted the work
    }
  }
  if (aborts_.joinable()) aborts_.join();
}

/// NCCL waits for the other ranks in the background, and this rank polls it.
void NcclCommunicator::join(const ncclUniqueId& id, Accelerator& accelerator) {
  wait_check_ = accelerator.wait_checks().add(
      [this](std::chrono::nanoseconds waited) { check_work(waited); });
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  last_call_ = "the meeting of all ranks";
  check(nccl_->init_rank(&communicator_, static_cast<int>(ranks_.size()), id, position_, &config),
        "join the ranks of the group");
}

void NcclCommunicator::begin(std::string_view name) {
  if (failure_) throw Error("{}", *failure_);
  last_call_ = name;
}

void NcclCommunicator::check(ncclResult_t result, const char* what) {
  const auto begun = std::chrono::steady_clock::now();
  while (result == ncclInProgress) {
    const ncclResult_t query = nccl_->get_async_error(communicator_, &result);
    if (query != ncclSuccess) result = query;
    if (result != ncclInProgress) break;
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > timeout_) fail(timeout_text(what));
    fail_if_broken();
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  if (result != ncclSuccess) {
    fail(fmt::format("rank {}: NCCL {} cannot {} ('{}' among {}): {}", rank(),
                     nccl_->version_text(), what, last_call_, ranks_text(ranks_),
                     nccl_->failure(result, communicator_)));
  }
}

/// Throws Error if the device's work has failed or takes too long. The host's waits run this.
void NcclCommunicator::check_work(std::chrono::nanoseconds waited) {
  if (failure_) throw Error("{}", *failure_);
  if (communicator_ == nullptr) return;  // not joined yet
  ncclResult_t result = ncclSuccess;
  const ncclResult_t query = nccl_->get_async_error(communicator_, &result);
  if (query != ncclSuccess) result = query;
  if (result != ncclSuccess && result != ncclInProgress) {
    fail(fmt::format("rank {}: NCCL {} failed in '{}' among {}: {}", rank(), nccl_->version_text(),
                     last_call_, ranks_text(ranks_), nccl_->failure(result, communicator_)));
  }
  fail_if_broken();
  if (waited > timeout_) fail(timeout_text("end the device's work"));
}

/// Aborts the work if a call of the group or the work of another rank failed.
void NcclCommunicator::fail_if_broken() {
  try {
    group_.throw_if_broken();
  } catch (const Error& error) {
    fail(error.what());
  }
}

std::string NcclCommunicator::timeout_text(const char* what) const {
  return fmt::format(
      "rank {}: after {:g} s NCCL could not {} ('{}' was given last among {}, and what a graph "
      "repeats has no name here): a rank of these does not come, the network does not carry it, "
      "or a step takes longer than run.rank_timeout. Look at the machines of these ranks and at "
      "the links between them; NCCL_DEBUG=INFO says which it uses",
      rank(), std::chrono::duration<double>(timeout_).count(), what, last_call_,
      ranks_text(ranks_));
}

/// Aborts the device's work, which would otherwise wait for ever, and throws Error. NCCL's abort
/// returns only when no graph holds a call any more, and graphs are destroyed before links. So the
/// abort runs on a thread, for which the destructor waits.
void NcclCommunicator::fail(std::string text) {
  failure_ = std::move(text);
  if (communicator_ != nullptr) {
    aborts_ = std::jthread(
        [abort = nccl_->abort, communicator = communicator_] { (void)abort(communicator); });
    communicator_ = nullptr;
  }
  throw Error("{}", *failure_);
}

ncclUniqueId new_nccl_address(const NcclLibrary& nccl, int rank) {
  ncclUniqueId id{};
  const ncclResult_t result = nccl.get_unique_id(&id);
  if (result == ncclSuccess) return id;
  throw Error("rank {}: NCCL {} cannot make an address for the ranks: {}", rank,
              nccl.version_text(), nccl.failure(result, nullptr));
}

}  // namespace tessera
