#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"

namespace tessera {

class Stream;

/// Parts of several flat values that one launch handles: a table in the device's memory. The blocks
/// are dealt out to the rows in order, kOfBlock of a row's elements to each.
template <typename Row>
struct DeviceTable {
  const Row* rows = nullptr;  // [count]
  int64_t count = 0;
  int64_t blocks = 0;  // of all rows
};

// Rows of tables. `first_block` is set by put_table() (device_table.h). All have 8-byte members
// alone: without padding, equal tables are equal bytes. Flat values begin on 64 bytes.

struct ZeroRow {
  static constexpr int64_t kOfBlock = 65536;
  int64_t first_block;
  int64_t count;  // bytes
  std::byte* start;
};

struct SquaresRow {
  static constexpr int64_t kOfBlock = 4096;  // kSquaresElements
  int64_t first_block;
  int64_t count;
  int64_t first_sum;
  const float* values;
};

/// Sums that are added up. `first_block` is their place among those of all rows.
struct SumsRow {
  static constexpr int64_t kOfBlock = 1;
  /// How many sums of all rows together a block adds up, in the first of two stages.
  static constexpr int64_t kOfFirstStage = 8192;
  /// Returns the blocks of the first stage for so many sums.
  static int64_t first_stage_blocks(int64_t sums) {
    return (sums + kOfFirstStage - 1) / kOfFirstStage;
  }
  int64_t first_block;
  int64_t count;
  const double* values;
};

struct RoundRow {
  static constexpr int64_t kOfBlock = 16384;
  int64_t first_block;
  int64_t count;
  const float* master;
  BFloat16* weight;
};

struct AdamWRow {
  static constexpr int64_t kOfBlock = 16384;
  int64_t first_block;
  int64_t count;
  int64_t decays;  // 0 or 1
  const float* gradient;
  float* first_moment;
  float* second_moment;
  float* master;
  BFloat16* weight;  // null if the master is the weight
};

/// The factors of one AdamW step, and what the elements need of them.
struct AdamWFactors {
  const double* scale;
  const double* learning_rate;
  const double* step;
  double beta1, beta2, epsilon, weight_decay;
  float* coefficients;  // [kCoefficients], written and read by the kernels
  static constexpr int kCoefficients = 16;
};

/// The inputs of one clipping.
struct ClipInputs {
  static constexpr int kMostLosses = 64;
  const double* squares;
  const double* limit;
  std::array<const double*, kMostLosses> losses{};
  int count = 0;
};

/// The kernels of devices. They put their work into the stream. All pointers are the device's.

template <typename Vendor>
void zero_device(const DeviceTable<ZeroRow>& values, Stream& stream);
/// The sum of the squares of each kOfBlock elements of a section, in f64, from the section's first
/// sum on.
template <typename Vendor>
void sum_of_squares_device(const DeviceTable<SquaresRow>& sections, double* sums, Stream& stream);
/// sum = the sum of all sections of sums, in one order. `partial` has an element for each
/// block of the first stage; it is not used if there is one.
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
/// target = source, both [count], unless scale[0] is NaN.
template <typename Vendor>
void copy_if_finite_device(const double* scale, int64_t count, const float* source, float* target,
                           Stream& stream);
/// sum[i] += value[i], or sum[0] += all of them, added in one order. T is int32_t, float or double.
template <typename Vendor, typename T>
void running_sum_device(double* sum, int64_t sums, const T* value, int64_t count, Stream& stream);

}  // namespace tessera
