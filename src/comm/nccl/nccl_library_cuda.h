#pragma once

#include <string>

#include <nccl.h>

#include "device/shared_library.h"

namespace tessera {

/// The functions of NCCL that links between devices use.
struct NcclLibrary {
  /// Loads NCCL. Throws Error if it is not found or too old.
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
  decltype(ncclAllReduce)* all_reduce;
  decltype(ncclReduceScatter)* reduce_scatter;
  int version = 0;  ///< as ncclGetVersion() returns it: 22809 is 2.28.9

  std::string version_text() const;
  /// Returns NCCL's description of a failure. `communicator` may be null.
  std::string failure(ncclResult_t result, ncclComm_t communicator) const;
};

/// Returns a version in words: "2.28.9".
std::string nccl_version_text(int version);

}  // namespace tessera
