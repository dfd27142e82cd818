#pragma once

#include <string>

#include <nccl.h>

#include "device/shared_library.h"

namespace tessera {

/// The functions of NCCL that links between devices take, loaded when they are first needed.
struct NcclLibrary {
  /// Throws Error if NCCL is not found, or is older than it must be.
  NcclLibrary();

  SharedLibrary library;
  decltype(ncclGetVersion)* get_version;
  decltype(ncclGetErrorString)* get_error_string;
  decltype(ncclGetLastError)* get_last_error;
  decltype(ncclGetUniqueId)* get_unique_id;
  decltype(ncclCommInitRankConfig)* init_rank;
  decltype(ncclCommGetAsyncError)* get_async_error;
  decltype(ncclCommAbort)* abort;
  decltype(ncclCommFinalize)* finalize;
  decltype(ncclCommDestroy)* destroy;
  decltype(ncclGroupStart)* group_start;
  decltype(ncclGroupEnd)* group_end;
  decltype(ncclSend)* send;
  decltype(ncclRecv)* receive;
  decltype(ncclAllGather)* all_gather;
  decltype(ncclBroadcast)* broadcast;
  int version = 0;  ///< as ncclGetVersion() has it: 22809 is 2.28.9

  std::string version_text() const;
  /// What NCCL says of a failure. `communicator` may be null.
  std::string failure(ncclResult_t result, ncclComm_t communicator) const;
};

/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace tessera
