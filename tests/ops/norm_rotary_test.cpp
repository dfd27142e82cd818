// The norm of queries and keys fused with their rotation, beside the two operations one by one.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/norm/norm.h"
#include "ops/rotary/rotary.h"
#include "support/emulated.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using testing::RunOptions;

/// Rows of heads that are normed and rotated; the function's inputs are x and the weight if there
/// is one.
struct NormRotaryCase {
  NormKind kind = NormKind::rms;
  int64_t tokens = 1;
  int64_t heads = 1;
  int64_t head_dim = 2;
  int64_t channels = 2;
  bool by_heads = false;
  bool weighted = true;
  bool in_place = false;  ///< nothing else reads x, so the output takes its memory

  NormOptions options() const { return {kind, 1e-5, by_heads ? head_dim : 0}; }

  std::vector<testing::RunInput> inputs() const {
    std::vector<testing::RunInput> result{{{tokens, heads * head_dim}}};
    if (weighted) result.push_back({{by_heads ? head_dim : heads * head_dim}, true});
    return result;
  }

  testing::ProgramFunction function(bool fused) const {
    return [*this, fused](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      const Value positions = builder.input("positions", {{tokens}, DType::i32, {}});
      const Value table = rotary_table(builder, positions, {.channels = channels},
                                       accumulation_dtype(builder.spec(in[0]).dtype));
      const Value x = in_place ? scale(builder, in[0], 1.0) : in[0];
      const auto weight = weighted ? std::optional(in[1]) : std::nullopt;
      if (fused) return {norm_and_rotary(builder, x, weight, options(), table, head_dim)};
      return {rotary(builder, norm(builder, x, weight, options()).output, table, head_dim)};
    };
  }

  testing::RunResult run(RunOptions run_options, bool fused) const {
    const Tensor positions({tokens}, DType::i32);
    for (int64_t i = 0; i < tokens; ++i) {
      positions.data<int32_t>()[i] = static_cast<int32_t>(37 * i % 4096);
    }
    run_options.fixed = {{"positions", positions}};
    run_options.backward = !in_place;
    return testing::run_program(function(fused), inputs(), run_options);
  }
};

NormRotaryCase random_norm_rotary() {
  NormRotaryCase variant{.kind = *rc::gen::element(NormKind::rms, NormKind::layer),
                         .tokens = *rc::gen::inRange<int64_t>(1, 30),
                         .heads = *rc::gen::inRange<int64_t>(1, 7),
                         .by_heads = *rc::gen::arbitrary<bool>(),
                         .weighted = *rc::gen::arbitrary<bool>(),
                         .in_place = *rc::gen::arbitrary<bool>()};
  if (*rc::gen::arbitrary<bool>()) {  // whole packs
    variant.channels = *rc::gen::element<int64_t>(16, 32, 64);
    variant.head_dim = variant.channels + *rc::gen::element<int64_t>(0, 8, 64);
  } else {
    variant.channels = 2 * *rc::gen::inRange<int64_t>(1, 20);
    variant.head_dim = variant.channels + *rc::gen::inRange<int64_t>(0, 9);
  }
  return variant;
}

RC_GTEST_PROP(NormRotary, GivesTheBitsOfTheTwoOperations, ()) {
  const NormRotaryCase variant = random_norm_rotary();
  const RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16, DType::f64),
                           .kernels = *rc::gen::element(Kernels::fast, Kernels::plain)};
  RC_ASSERT(variant.run(options, true) == variant.run(options, false));
}

RC_GTEST_PROP(NormRotary, TheDevicesKernelsGiveTheBitsOfTheirTwo, ()) {
  const NormRotaryCase variant = random_norm_rotary();
  RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16), .threads = 1};
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const testing::Emulation& device) {
        options.emulation = device;
        return variant.run(options, true);
      },
      // Tests of the two compare them with the plain kernels.
      [&](const testing::RunResult& fused) { EXPECT_EQ(fused, variant.run(options, false)); });
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(NormRotary, TheDevicesKernelsTakeRowsOfSeveralWarpsAndLongerOnes) {
  // Warps, blocks, and rows that do not fit into a block's registers.
  for (const int64_t heads : {2, 3, 16, 130}) {
    const NormRotaryCase variant{
        .tokens = 3, .heads = heads, .head_dim = 128, .channels = heads == 3 ? 64 : 128};
    for (const int lanes : {32, 64}) {
      for (const testing::DeviceRuns& runs : testing::tested_devices(lanes)) {
        SCOPED_TRACE(testing::describe(runs.front()));
        const RunOptions options{.dtype = DType::bf16, .threads = 1, .emulation = runs.front()};
        EXPECT_EQ(variant.run(options, true), variant.run(options, false)) << heads << " heads";
      }
    }
  }
}

TEST(NormRotary, RefusesWhatDoesNotFit) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 24}, DType::f32, {}});
  const auto table = [&](const char* name, int64_t tokens, int64_t channels, DType dtype) {
    return builder.input(name, {{tokens, channels}, dtype, {}});
  };
  const auto fused = [&](const NormOptions& options, Value rotations, int64_t head_dim) {
    norm_and_rotary(builder, x, {}, options, rotations, head_dim);
  };
  const Value right = table("right", 4, 8, DType::f32);
  EXPECT_NO_THROW(fused({}, right, 8));
  EXPECT_NO_THROW(fused({.group = 12}, right, 12));
  EXPECT_THROW(fused({.group = 12}, right, 8), InternalError);  // a group with half a head
  EXPECT_THROW(fused({}, right, 6), InternalError);             // more channels than a head has
  EXPECT_THROW(fused({}, table("short", 3, 8, DType::f32), 8), InternalError);
  EXPECT_THROW(fused({}, table("odd", 4, 7, DType::f32), 8), InternalError);
  EXPECT_THROW(fused({}, table("wide", 4, 8, DType::f64), 8), InternalError);
}

}  // namespace
}  // namespace tessera
