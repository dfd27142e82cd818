#pragma once

#include <functional>
#include <string>

#include "plan/blocks/block_measurement.h"
#include "tensor/dtype.h"

namespace tessera {

/// Writes an operation with random inputs and names its outputs. Inputs whose gradients are to be
/// computed are parameters or results of other operations.
using BlockWriter = std::function<std::vector<Value>(BlockProgram&, Builder&, DType)>;

/// Whether an operation multiplies matrices of its type. Where it does and the processor cannot,
/// its benchmarks are left out and named on standard error.
enum class Products { none, needed };

/// Registers the benchmarks NAME/forward/TYPE and NAME/backward/TYPE for bf16 and f32, on as many
/// threads as OpenMP has. They report the bytes of all operands and, where there are matrix
/// products, floating-point operations a second.
void register_block(const std::string& name, const BlockWriter& write, Products products);

/// Registers NAME/TYPE of a program that is run forward only: of an operation whose gradient is
/// taken on the way, or that is itself one of the backward pass.
void register_forward(const std::string& name, const BlockWriter& write, Products products);

}  // namespace tessera
