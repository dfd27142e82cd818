#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// CUTLASS's grouped products (one matrix product per group) for Hopper, compute capability 9.0.
// Each *_cuda.cu file of this folder has one kernel, because nvcc takes most of a minute for one.
// Only builds that have CUTLASS's headers (TESSERA_CUTLASS) contain these files.

/// The matrices of one operand, for all groups. Both arrays are in device memory.
struct GroupedMatrices {
  const void* const* addresses;  ///< [groups], each aligned to 16 bytes
  const int64_t* strides;        ///< [groups]: elements from a row in memory to the next
};

/// D_e = A_e B_e + beta C_e for each group e. A group with m = 0 leaves its D as it is.
struct GroupedCall {
  int groups;
  const int32_t* sizes;  ///< [groups, 3]: m, n and k of each group, in device memory
  GroupedMatrices a;
  GroupedMatrices b;
  GroupedMatrices c;  ///< is read only if beta is not 0
  GroupedMatrices d;
  float beta;
  int multiprocessors;  ///< the number of the device's multiprocessors
  void* workspace;      ///< aligned to 128 bytes
  int64_t workspace_bytes;
  void* stream;  ///< a cudaStream_t
};

/// The result of a call.
struct GroupedOutcome {
  const char* error = nullptr;  ///< CUTLASS's error text, or null if it reported no error
  int64_t workspace_bytes = 0;  ///< the needed bytes; if the call has fewer, nothing ran
};

// The following functions multiply A and B in bf16, and sum in f32.

/// Multiplies A [m, k] and B, which is stored as [n, k], into D [m, n] in bf16. beta must be 0.
GroupedOutcome cutlass_forward(const GroupedCall& call);
/// Multiplies A [m, k] and B [k, n] into D [m, n] in bf16, with C in f32.
GroupedOutcome cutlass_input_gradient(const GroupedCall& call);
/// Multiplies A [m, k] and B [k, n] into D [m, n] in f32, with C in f32.
GroupedOutcome cutlass_wide_input_gradient(const GroupedCall& call);
/// Multiplies A, which is stored as [k, m], and B [k, n] into D [m, n] in f32, with C in f32.
GroupedOutcome cutlass_weight_gradient(const GroupedCall& call);

}  // namespace tessera
