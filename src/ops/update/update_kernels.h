#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"

namespace tessera {

class Stream;

/// A table in device memory, for one launch over parts of several flat values. A row describes one
/// part. Blocks are assigned to the rows in order, one for each Row::kPerBlock elements of a row.
template <typename Row>
struct DeviceTable {
  const Row* rows = nullptr;  // [count]
  int64_t count = 0;
  int64_t blocks = 0;  // the blocks of all rows
};

// Rows of tables. `count` is in elements. put_table() (device_table.h) sets `first_block`. All
// members have 8 bytes, so there is no padding and equal tables have equal bytes. Flat values begin
// on 64 bytes, so the arrays of a row are aligned alike.

struct ZeroRow {
  static constexpr int64_t kPerBlock = 65536;
  int64_t first_block;
  int64_t count;  // in bytes
  std::byte* start;
};

struct SquaresRow {
  static constexpr int64_t kPerBlock = 4096;  // kSquaresElements
  int64_t first_block;
  int64_t count;
  int64_t first_sum;
  const float* values;
};

/// Sums to add up. Each sum counts as one block, so `first_block` is the index of the row's first
/// sum among the sums of all rows.
struct SumsRow {
  static constexpr int64_t kPerBlock = 1;
  /// The number of sums, of all rows together, that a block adds up in the first of two stages.
  static constexpr int64_t kPerFirstStageBlock = 8192;
  /// Returns the blocks of the first stage for `sums` sums.
  static int64_t first_stage_blocks(int64_t sums) {
    return (sums + kPerFirstStageBlock - 1) / kPerFirstStageBlock;
  }
  int64_t first_block;
  int64_t count;
  const double* values;
};

struct RoundRow {
  static constexpr int64_t kPerBlock = 16384;
  int64_t first_block;
  int64_t count;
  const float* master;
  BFloat16* weight;
};

struct AdamWRow {
  static constexpr int64_t kPerBlock = 16384;
  int64_t first_block;
  int64_t count;
  int64_t decays;  // 0 or 1
  const float* gradient;
  float* first_moment;
  float* second_moment;
  float* master;
  BFloat16* weight;  // null if the master is the weight
};

/// The factors of one AdamW step, and memory for the coefficients that elements need.
struct AdamWFactors {
  const double* scale;
  const double* learning_rate;
  const double* step;
  double beta1, beta2, epsilon, weight_decay;
  float* coefficients;                      // [kCoefficients], written and read by the kernels
  static constexpr int kCoefficients = 16;  // room for the StepCoefficients of adamw.cu
};

/// The inputs of clip_device().
struct ClipInputs {
  static constexpr int kMostLosses = 64;
  const double* squares;
  const double* limit;
  std::array<const double*, kMostLosses> losses{};
  int count = 0;  // of the losses
};

// Device kernels. They put their work into the stream. All pointers are to device memory.

template <typename Vendor>
void zero_device(const DeviceTable<ZeroRow>& values, Stream& stream);
/// Writes the sum of the squares of each kPerBlock elements of a section, in f64, from the
/// section's first sum on.
template <typename Vendor>
void sum_of_squares_device(const DeviceTable<SquaresRow>& sections, double* sums, Stream& stream);
/// Writes sum = the sum of all sections of sums, in a fixed order. `partial` has an element for
/// each block of the first stage. It is not used if there is only one block.
template <typename Vendor>
void add_in_order_device(const DeviceTable<SumsRow>& sections, double* partial, double* sum,
                         Stream& stream);
template <typename Vendor>
void clip_device(const ClipInputs& inputs, double* norm, double* scale, Stream& stream);
template <typename Vendor>
void adamw_device(const AdamWFactors& factors, const DeviceTable<AdamWRow>& sections,
                  Stream& stream);
template <typename Vendor>
void round_device(const DeviceTable<RoundRow>& units, Stream& stream);
/// Writes target = source, both [count], unless scale[0] is NaN.
template <typename Vendor>
void copy_if_finite_device(const double* scale, int64_t count, const float* source, float* target,
                           Stream& stream);
/// Adds value[i] to sum[i], or all values to sum[0] if `sums` is 1. T is int32_t, float or double.
template <typename Vendor, typename T>
void running_sum_device(double* sum, int64_t sums, const T* value, int64_t count, Stream& stream);

}  // namespace tessera
