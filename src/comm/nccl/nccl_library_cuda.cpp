#include "comm/nccl/nccl_library_cuda.h"

#include <array>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 1> kNames{"libnccl.so.2"};
/// The oldest version in which communicators of two lanes may have work at once
/// (NCCL_LAUNCH_ORDER_IMPLICIT).
constexpr int kOldestVersion = NCCL_VERSION(2, 26, 2);

}  // namespace

NcclLibrary::NcclLibrary()
    : library(kNames, "ranks on several devices \"cuda\""),
      get_version(library.function<decltype(ncclGetVersion)>("ncclGetVersion")),
      get_error_string(library.function<decltype(ncclGetErrorString)>("ncclGetErrorString")),
      get_last_error(library.function<decltype(ncclGetLastError)>("ncclGetLastError")),
      get_unique_id(library.function<decltype(ncclGetUniqueId)>("ncclGetUniqueId")),
      init_rank(library.function<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig")),
      get_async_error(library.function<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError")),
      abort(library.function<decltype(ncclCommAbort)>("ncclCommAbort")),
      finalize(library.function<decltype(ncclCommFinalize)>("ncclCommFinalize")),
      destroy(library.function<decltype(ncclCommDestroy)>("ncclCommDestroy")),
      group_start(library.function<decltype(ncclGroupStart)>("ncclGroupStart")),
      group_end(library.function<decltype(ncclGroupEnd)>("ncclGroupEnd")),
      send(library.function<decltype(ncclSend)>("ncclSend")),
      receive(library.function<decltype(ncclRecv)>("ncclRecv")),
      all_gather(library.function<decltype(ncclAllGather)>("ncclAllGather")),
      broadcast(library.function<decltype(ncclBroadcast)>("ncclBroadcast")),
      all_reduce(library.function<decltype(ncclAllReduce)>("ncclAllReduce")),
      reduce_scatter(library.function<decltype(ncclReduceScatter)>("ncclReduceScatter")) {
  if (const ncclResult_t result = get_version(&version); result != ncclSuccess) {
    throw Error("{} does not say its version: {}", library.name(), get_error_string(result));
  }
  if (version < kOldestVersion) {
    throw Error("{} is NCCL {}; several ranks on devices need {} or newer", library.name(),
                version_text(), nccl_version_text(kOldestVersion));
  }
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string NcclLibrary::version_text() const { return nccl_version_text(version); }

std::string NcclLibrary::failure(ncclResult_t result, ncclComm_t communicator) const {
  const char* const last = get_last_error(communicator);
  return fmt::format("{} ({})", get_error_string(result),
                     last == nullptr || *last == '\0' ? "NCCL_DEBUG=WARN says more" : last);
}

}  // namespace tessera
