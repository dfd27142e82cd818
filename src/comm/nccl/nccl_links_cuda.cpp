#include <array>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/nccl/nccl_library_cuda.h"
#include "comm/nccl/nccl_links.h"

namespace tessera {
namespace {

/// What the first rank of a group tells the others.
struct Invitation {
  int32_t version = 0;
  ncclUniqueId id{};
};

/// Has the same error on all ranks: that of the first rank that has one.
void throw_any(Communicator& group, const std::optional<std::string>& own) {
  constexpr int64_t kLongest = 1024;
  std::string text = own.value_or("");
  text.resize(kLongest);
  std::string all(static_cast<size_t>(kLongest * group.size()), '\0');
  group.all_gather("whether NCCL is there", even_pieces(kLongest * group.size(), group.size()),
                   Tensor::wrap(text.data(), {kLongest}, DType::u8),
                   Tensor::wrap(all.data(), {kLongest * group.size()}, DType::u8));
  for (int position = 0; position < group.size(); ++position) {
    const std::string of_rank = all.c_str() + position * kLongest;
    if (of_rank.empty()) continue;
    throw Error("rank {}: {}", group.ranks()[static_cast<size_t>(position)], of_rank);
  }
}

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
    throw_any(group, failure);
    group.broadcast("the address of NCCL", 0,
                    Tensor::wrap(&invitation, {int64_t{sizeof invitation}}, DType::u8));
    if (nccl_->version != invitation.version) {
      failure = fmt::format("it has NCCL {}, and rank {} has {}; all ranks need the same version",
                            nccl_->version_text(), group.ranks().front(),
                            nccl_version_text(invitation.version));
    }
    throw_any(group, failure);
    join(invitation.id);
    look_ = accelerator.looks().add([this](std::chrono::nanoseconds waited) { look(waited); });
  }

  /// Gives what is left of the work the time that it needs, unless some of it failed.
  ~NcclLinks() override {
    if (communicator_ == nullptr) return;
    if (!failure_) (void)nccl_->finalize(communicator_);
    try {
      if (!failure_) check(ncclInProgress, "end");
      (void)nccl_->destroy(communicator_);
    } catch (const Error&) {  // it was aborted; a destructor has nobody to tell
    }
  }

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

  void exchange(std::string_view name, std::span<const DevicePart> sends,
                std::span<const DevicePart> receives, Stream& stream) override {
    begin(name);
    // What stands between the two is only noted, and begun at the end.
    check(nccl_->group_start(), "begin an exchange");
    for (const DevicePart& part : receives) {
      check_noted(nccl_->receive(part.memory, static_cast<size_t>(part.bytes), ncclUint8, part.peer,
                                 communicator_, handle(stream)),
                  "receive");
    }
    for (const DevicePart& part : sends) {
      check_noted(nccl_->send(part.memory, static_cast<size_t>(part.bytes), ncclUint8, part.peer,
                              communicator_, handle(stream)),
                  "send");
    }
    check(nccl_->group_end(), "exchange");
  }

 private:
  static cudaStream_t handle(Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

  /// Meets the other ranks. NCCL waits for them in the background, and this rank looks at it.
  void join(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    last_ = "the meeting of all ranks";
    check(nccl_->init_rank(&communicator_, group_.size(), id, group_.position(), &config),
          "join the ranks of the group");
  }

  void begin(std::string_view name) {
    if (failure_) throw Error("{}", *failure_);
    last_ = name;
  }

  void check_noted(ncclResult_t result, const char* what) {
    if (result != ncclInProgress) check(result, what);
  }

  /// Waits until NCCL has taken a call. Throws Error, and aborts what is under way, if it fails or
  /// takes too long.
  void check(ncclResult_t result, const char* what) {
    const auto begun = std::chrono::steady_clock::now();
    while (result == ncclInProgress) {
      const ncclResult_t asked = nccl_->get_async_error(communicator_, &result);
      if (asked != ncclSuccess) result = asked;
      if (result != ncclInProgress) break;
      const auto waited = std::chrono::steady_clock::now() - begun;
      if (waited > timeout_) fail(timeout_text(what));
      group_.throw_if_broken();
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    if (result != ncclSuccess) {
      fail(fmt::format("rank {}: NCCL {} cannot {} ('{}' among {}): {}", rank(),
                       nccl_->version_text(), what, last_, ranks_text(group_.ranks()),
                       nccl_->failure(result, communicator_)));
    }
  }

  /// Looks at the work while the host waits for it.
  void look(std::chrono::nanoseconds waited) {
    if (failure_) throw Error("{}", *failure_);
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = nccl_->get_async_error(communicator_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result != ncclSuccess && result != ncclInProgress) {
      fail(fmt::format("rank {}: NCCL {} failed in '{}' among {}: {}", rank(),
                       nccl_->version_text(), last_, ranks_text(group_.ranks()),
                       nccl_->failure(result, communicator_)));
    }
    try {
      group_.throw_if_broken();
    } catch (const Error& error) {
      fail(error.what());
    }
    if (waited > timeout_) fail(timeout_text("end the device's work"));
  }

  std::string timeout_text(const char* what) const {
    return fmt::format(
        "rank {}: after {:g} s NCCL could not {} ('{}' is the last call among {}): a rank of these "
        "does not come, or the network does not carry it. Look at the machines of these ranks and "
        "at the links between them; NCCL_DEBUG=INFO says which it uses",
        rank(), std::chrono::duration<double>(timeout_).count(), what, last_,
        ranks_text(group_.ranks()));
  }

  int rank() const { return group_.ranks()[static_cast<size_t>(group_.position())]; }

  /// Ends the device's work, which would otherwise wait for ever.
  [[noreturn]] void fail(std::string text) {
    failure_ = std::move(text);
    if (communicator_ != nullptr) (void)nccl_->abort(std::exchange(communicator_, nullptr));
    throw Error("{}", *failure_);
  }

  Communicator& group_;
  std::chrono::milliseconds timeout_;
  std::optional<NcclLibrary> nccl_;
  ncclComm_t communicator_ = nullptr;
  std::string last_;  // name of the last call
  std::optional<std::string> failure_;
  std::shared_ptr<void> look_;
};

}  // namespace

std::unique_ptr<DeviceLinks> nccl_links(Communicator& group, Accelerator& accelerator,
                                        std::chrono::milliseconds timeout) {
  return std::make_unique<NcclLinks>(group, accelerator, timeout);
}

}  // namespace tessera
