#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_library_cuda.h"
#include "comm/nccl/nccl_links.h"
#include "comm/throw_on_all.h"

namespace tessera {
namespace {

/// The data that the first rank of a group broadcasts to the others.
struct Invitation {
  int32_t version = 0;
  ncclUniqueId id{};  // the address at which NCCL joins the ranks
};

/// Links by NCCL. NCCL's communicator does not block: calls return at once, and check() polls until
/// NCCL has accepted them. While the host waits for the device, check_work() polls NCCL's errors,
/// the state of the group and the time. On a failure, fail() aborts the work.
class NcclLinks final : public DeviceLinks {
 public:
  NcclLinks(Communicator& group, Accelerator& accelerator, std::chrono::milliseconds timeout)
      : group_(group), timeout_(timeout) {
    Invitation invitation;
    std::optional<std::string> failure;
    try {
      nccl_.emplace();
      if (group.position() == 0) {
        invitation.version = nccl_->version;
        check(nccl_->get_unique_id(&invitation.id), "make an address for the ranks");
      }
    } catch (const Error& error) {
      failure = error.what();
    }
    throw_on_all(group, failure);
    group.broadcast("the address of NCCL", 0,
                    Tensor::wrap(&invitation, {int64_t{sizeof invitation}}, DType::u8));
    if (nccl_->version != invitation.version) {
      failure = fmt::format("it has NCCL {}, and rank {} has {}; all ranks need the same version",
                            nccl_->version_text(), group.ranks().front(),
                            nccl_version_text(invitation.version));
    }
    throw_on_all(group, failure);
    wait_check_ = accelerator.wait_checks().add(
        [this](std::chrono::nanoseconds waited) { check_work(waited); });
    try {
      join(invitation.id);
    } catch (...) {
      end();
      throw;
    }
  }
  ~NcclLinks() override { end(); }

  void all_gather(std::string_view name, const std::byte* from, std::byte* to, int64_t bytes,
                  Stream& stream) override {
    begin(name);
    check(nccl_->all_gather(from, to, static_cast<size_t>(bytes), ncclUint8, communicator_,
                            handle(stream)),
          "gather");
  }

  void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                 Stream& stream) override {
    begin(name);
    check(nccl_->broadcast(memory, memory, static_cast<size_t>(bytes), ncclUint8, root,
                           communicator_, handle(stream)),
          "broadcast");
  }

  void exchange(std::string_view name, std::span<const DeviceBuffer> sends,
                std::span<const DeviceBuffer> receives, Stream& stream) override {
    begin(name);
    // NCCL only notes the calls between group_start() and group_end(), and begins them at the end.
    // So group_end() follows even if a call fails.
    check(nccl_->group_start(), "begin an exchange");
    ncclResult_t failure = ncclSuccess;
    const auto note = [&](ncclResult_t result) {
      const bool failed = result != ncclSuccess && result != ncclInProgress;
      if (failed && failure == ncclSuccess) failure = result;
    };
    for (const DeviceBuffer& buffer : receives) {
      note(nccl_->receive(buffer.memory, static_cast<size_t>(buffer.bytes), ncclUint8, buffer.peer,
                          communicator_, handle(stream)));
    }
    for (const DeviceBuffer& buffer : sends) {
      note(nccl_->send(buffer.memory, static_cast<size_t>(buffer.bytes), ncclUint8, buffer.peer,
                       communicator_, handle(stream)));
    }
    const ncclResult_t ended = nccl_->group_end();
    check(failure != ncclSuccess ? failure : ended, "exchange");
  }

 private:
  static cudaStream_t handle(Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

  /// Joins the other ranks. NCCL waits for them in the background, and this rank polls it.
  void join(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    last_call_ = "the meeting of all ranks";
    check(nccl_->init_rank(&communicator_, group_.size(), id, group_.position(), &config),
          "join the ranks of the group");
  }

  /// Begins a call: notes its name for errors. Throws if an earlier call or the work failed.
  void begin(std::string_view name) {
    if (failure_) throw Error("{}", *failure_);
    last_call_ = name;
  }

  /// Waits until NCCL has accepted a call. If NCCL refuses the call or takes too long, throws Error
  /// and aborts the work. `what` completes "NCCL cannot ...".
  void check(ncclResult_t result, const char* what) {
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
                       nccl_->version_text(), what, last_call_, ranks_text(group_.ranks()),
                       nccl_->failure(result, communicator_)));
    }
  }

  /// Throws Error if the device's work has failed or takes too long. The host's waits run this.
  void check_work(std::chrono::nanoseconds waited) {
    if (failure_) throw Error("{}", *failure_);
    if (communicator_ == nullptr) return;  // not joined yet
    ncclResult_t result = ncclSuccess;
    const ncclResult_t query = nccl_->get_async_error(communicator_, &result);
    if (query != ncclSuccess) result = query;
    if (result != ncclSuccess && result != ncclInProgress) {
      fail(fmt::format("rank {}: NCCL {} failed in '{}' among {}: {}", rank(),
                       nccl_->version_text(), last_call_, ranks_text(group_.ranks()),
                       nccl_->failure(result, communicator_)));
    }
    fail_if_broken();
    if (waited > timeout_) fail(timeout_text("end the device's work"));
  }

  /// Aborts the work if a call of the group or the work of another rank failed.
  void fail_if_broken() {
    try {
      group_.throw_if_broken();
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  std::string timeout_text(const char* what) const {
    return fmt::format(
        "rank {}: after {:g} s NCCL could not {} ('{}' was given last among {}, and what a graph "
        "repeats has no name here): a rank of these does not come, the network does not carry it, "
        "or a step takes longer than run.rank_timeout. Look at the machines of these ranks and at "
        "the links between them; NCCL_DEBUG=INFO says which it uses",
        rank(), std::chrono::duration<double>(timeout_).count(), what, last_call_,
        ranks_text(group_.ranks()));
  }

  int rank() const { return group_.ranks()[static_cast<size_t>(group_.position())]; }

  /// Aborts the device's work, which would otherwise wait for ever, and throws Error. NCCL's abort
  /// returns only when no graph holds a call any more, and graphs are destroyed before links. So
  /// the abort runs on a thread, for which end() waits.
  [[noreturn]] void fail(std::string text) {
    failure_ = std::move(text);
    if (communicator_ != nullptr) {
      aborts_ = std::jthread(
          [abort = nccl_->abort, communicator = communicator_] { (void)abort(communicator); });
      communicator_ = nullptr;
    }
    throw Error("{}", *failure_);
  }

  /// Waits for the remaining work, unless some work failed, and releases NCCL's communicator.
  void end() noexcept {
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

  Communicator& group_;
  std::chrono::milliseconds timeout_;
  std::optional<NcclLibrary> nccl_;
  ncclComm_t communicator_ = nullptr;
  std::string last_call_;               // the name of the last call, for messages
  std::optional<std::string> failure_;  // the first one, which all later calls throw
  std::shared_ptr<void> wait_check_;    // calls check_work() while it lives
  std::jthread aborts_;                 // aborts the communicator
};

}  // namespace

void require_nccl() {
  // Communicators of two lanes may have work at once, whose order must be the same on all ranks.
  // From 2.26 on NCCL ensures this order, if the variable is set before NCCL is loaded.
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  const NcclLibrary nccl;
}

std::unique_ptr<DeviceLinks> nccl_links(Communicator& group, Accelerator& accelerator,
                                        std::chrono::milliseconds timeout) {
  return std::make_unique<NcclLinks>(group, accelerator, timeout);
}

}  // namespace tessera
