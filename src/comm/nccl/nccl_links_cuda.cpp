#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_communicator_cuda.h"
#include "comm/nccl/nccl_library_cuda.h"
#include "comm/nccl/nccl_links.h"
#include "comm/share.h"

namespace tessera {
namespace {

/// The data that the first rank of a group broadcasts to the others.
struct Invitation {
  int32_t version = 0;
  ncclUniqueId id{};  // the address at which NCCL joins the ranks
};

/// Makes the communicator of all ranks of a group, which all call it.
std::unique_ptr<NcclCommunicator> join_all(Communicator& group, Accelerator& accelerator,
                                           std::chrono::milliseconds timeout) {
  const int rank = group.ranks()[static_cast<size_t>(group.position())];
  std::shared_ptr<const NcclLibrary> nccl;
  Invitation invitation;
  std::optional<std::string> failure;
  try {
    nccl = std::make_shared<NcclLibrary>();
    if (group.position() == 0) invitation = {nccl->version, new_nccl_address(*nccl, rank)};
  } catch (const Error& error) {
    failure = error.what();
  }
  throw_on_all(group, failure);
  group.broadcast("the address of NCCL", 0,
                  Tensor::wrap(&invitation, {int64_t{sizeof invitation}}, DType::u8));
  if (nccl->version != invitation.version) {
    failure = fmt::format("it has NCCL {}, and rank {} has {}; all ranks need the same version",
                          nccl->version_text(), group.ranks().front(),
                          nccl_version_text(invitation.version));
  }
  throw_on_all(group, failure);
  auto all = std::make_unique<NcclCommunicator>(
      nccl, group, std::vector<int>(group.ranks().begin(), group.ranks().end()), group.position(),
      timeout);
  all->join(invitation.id, accelerator);
  return all;
}

/// Returns NCCL's type for elements that ranks sum (can_reduce()).
ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    default:
      throw InternalError(fmt::format("NCCL sums no {}", dtype_name(dtype)));
  }
}

class NcclLinks final : public DeviceLinks {
 public:
  explicit NcclLinks(std::unique_ptr<NcclCommunicator> all)
      : all_(std::move(all)), nccl_(all_->library()) {}

  void all_gather(std::string_view name, const std::byte* from, std::byte* to, int64_t bytes,
                  Stream& stream) override {
    all_->begin(name);
    all_->check(nccl_.all_gather(from, to, static_cast<size_t>(bytes), ncclUint8, all_->handle(),
                                 nccl_stream(stream)),
                "gather");
  }

  void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                 Stream& stream) override {
    all_->begin(name);
    all_->check(nccl_.broadcast(memory, memory, static_cast<size_t>(bytes), ncclUint8, root,
                                all_->handle(), nccl_stream(stream)),
                "broadcast");
  }

  void all_reduce(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                  int64_t elements, Stream& stream) override {
    all_->begin(name);
    all_->check(nccl_.all_reduce(from, to, static_cast<size_t>(elements), nccl_type(dtype), ncclSum,
                                 all_->handle(), nccl_stream(stream)),
                "sum");
  }

  void reduce_scatter(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                      int64_t elements, Stream& stream) override {
    all_->begin(name);
    all_->check(nccl_.reduce_scatter(from, to, static_cast<size_t>(elements), nccl_type(dtype),
                                     ncclSum, all_->handle(), nccl_stream(stream)),
                "sum and scatter");
  }

  void exchange(std::string_view name, std::span<const DeviceBuffer> sends,
                std::span<const DeviceBuffer> receives, Stream& stream) override {
    all_->begin(name);
    // NCCL only notes the calls between group_start() and group_end(), and begins them at the end.
    // So group_end() follows even if a call fails.
    all_->check(nccl_.group_start(), "begin an exchange");
    ncclResult_t failure = ncclSuccess;
    const auto note = [&](ncclResult_t result) {
      const bool failed = result != ncclSuccess && result != ncclInProgress;
      if (failed && failure == ncclSuccess) failure = result;
    };
    for (const DeviceBuffer& buffer : receives) {
      note(nccl_.receive(buffer.memory, static_cast<size_t>(buffer.bytes), ncclUint8, buffer.peer,
                         all_->handle(), nccl_stream(stream)));
    }
    for (const DeviceBuffer& buffer : sends) {
      note(nccl_.send(buffer.memory, static_cast<size_t>(buffer.bytes), ncclUint8, buffer.peer,
                      all_->handle(), nccl_stream(stream)));
    }
    const ncclResult_t ended = nccl_.group_end();
    all_->check(failure != ncclSuccess ? failure : ended, "exchange");
  }

 private:
  std::unique_ptr<NcclCommunicator> all_;
  const NcclLibrary& nccl_;
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
  return std::make_unique<NcclLinks>(join_all(group, accelerator, timeout));
}

}  // namespace tessera
