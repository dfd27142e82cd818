#include <algorithm>

#include "device/kernel.h"
#include "ops/rotary/rotary_kernels.h"
#include "ops/rotary/rotated_pack.h"

namespace tessera {
namespace {

constexpr int kHeadsOfThread = 4;  // heads that share the sines and cosines in a thread's registers

/// The division of one token's work among threads. A pack is a few neighbouring channels, which a
/// thread loads at once. A column is a pack of the first half of a head's rotated channels together
/// with the pack of the second half, or a pack of the other channels. Each thread has one column of
/// a few heads.
struct TokenWork {
  int rotated_columns;
  int columns;  // rotated columns, and columns of the channels that are copied
  int groups;   // of kHeadsOfThread heads
};

/// Rotates (see rotary_plain()) one column of the heads [heads_begin, heads_end) of a token.
template <typename T, int pack_size>
__device__ void rotate_heads(const RotaryArguments<T>& rotary, int64_t token, int heads_begin,
                             int heads_end, int column) {
  const int half = static_cast<int>(rotary.channels / 2);
  const float* const cosines = rotary.table + token * rotary.channels;
  const auto cosine = load_pack<pack_size>(cosines, column);
  auto sine = load_pack<pack_size>(cosines + half, column);
  for (float& value : sine.values) value = rotary.inverse ? -value : value;
  for (int head = heads_begin; head < heads_end; ++head) {
    const int64_t start = (token * rotary.heads + head) * rotary.head_dim;
    const auto firsts = load_pack<pack_size>(rotary.x + start, column);
    const auto seconds = load_pack<pack_size>(rotary.x + start + half, column);
    store_pack(rotary.output + start, column, rotated_pack(true, firsts, seconds, cosine, sine));
    store_pack(rotary.output + start + half, column,
               rotated_pack(false, seconds, firsts, cosine, sine));
  }
}

/// Rotates `block_tokens` tokens in each block, whose threads take the tokens' columns in turn.
template <typename T, int pack_size>
__global__ void rotary_kernel(RotaryArguments<T> rotary, TokenWork work, int block_tokens) {
  const int token_items = work.groups * work.columns;
  const int64_t first_token = static_cast<int64_t>(blockIdx.x) * block_tokens;
  const int items = block_tokens * token_items;
  for (int item = static_cast<int>(threadIdx.x); item < items;
       item += static_cast<int>(blockDim.x)) {
    const int64_t token = first_token + item / token_items;
    if (token >= rotary.tokens) return;
    const int column = item % work.columns;
    const int heads_begin = item % token_items / work.columns * kHeadsOfThread;
    const int heads_end = heads_begin + kHeadsOfThread < rotary.heads
                              ? heads_begin + kHeadsOfThread
                              : static_cast<int>(rotary.heads);
    if (column < work.rotated_columns) {
      rotate_heads<T, pack_size>(rotary, token, heads_begin, heads_end, column);
      continue;
    }
    for (int head = heads_begin; head < heads_end; ++head) {
      const int64_t start = (token * rotary.heads + head) * rotary.head_dim + rotary.channels;
      const int pack = column - work.rotated_columns;
      store_pack(rotary.output + start, pack, load_pack<pack_size>(rotary.x + start, pack));
    }
  }
}

template <typename T, int pack_size>
void rotate(const RotaryArguments<T>& rotary, Stream& stream) {
  constexpr int kBlockThreads = 256;
  const bool copies = rotary.output != rotary.x;
  TokenWork work{};
  work.rotated_columns = static_cast<int>(rotary.channels / 2 / pack_size);
  const int64_t copied_channels = copies ? rotary.head_dim - rotary.channels : 0;
  work.columns = work.rotated_columns + static_cast<int>(copied_channels / pack_size);
  work.groups = static_cast<int>((rotary.heads + kHeadsOfThread - 1) / kHeadsOfThread);
  const int block_tokens = std::max(1, kBlockThreads / (work.groups * work.columns));
  launch(rotary_kernel<T, pack_size>,
         {.blocks = (rotary.tokens + block_tokens - 1) / block_tokens, .threads = kBlockThreads},
         stream, rotary, work, block_tokens);
}

struct SineAndCosine {
  float sine, cosine;
};
/// Returns the sine and the cosine of an angle of at most an eighth of a turn, within one unit in
/// the last place. CUDA's sincosf() would also compile a slow path for large angles.
__device__ SineAndCosine sine_and_cosine(float angle) {
  const float square = angle * angle;
  const float sine = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f);
  const float cosine = (2.443315711809948e-5f * square - 1.388731625493765e-3f) * square;
  return {sine * square * angle + angle,
          (cosine + 4.166664568298827e-2f) * square * square - 0.5f * square + 1.0f};
}

/// Writes the table, with one thread per token and frequency.
__global__ void rotary_table_kernel(RotaryTable32 table, RotarySteps steps) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = index / steps.count;
  if (token >= table.tokens) return;
  const int pair = static_cast<int>(index % steps.count);
  // The angle in 2^-64 turns. Whole turns overflow and drop out.
  const auto position = static_cast<uint64_t>(static_cast<int64_t>(table.positions[token]));
  const uint64_t angle = position * steps.frequencies[pair];
  // The nearest quarter of a turn, and the angle from there, at most an eighth of a turn.
  constexpr uint64_t kEighth = uint64_t{1} << 61;
  const auto quarter = static_cast<int>((angle + kEighth) >> 62);
  const auto remainder = static_cast<int64_t>(angle - (static_cast<uint64_t>(quarter) << 62));
  constexpr float kRadians = 6.283185307f / 18446744073709551616.0f;  // of 2^-64 turns
  const auto [sine, cosine] = sine_and_cosine(static_cast<float>(remainder) * kRadians);
  // A quarter turn turns the cosine into minus the sine, and the sine into the cosine.
  const bool exchanged = quarter % 2 == 1;
  float* const row = table.table + token * table.channels + steps.first + pair;
  const float unsigned_cosine = exchanged ? sine : cosine;
  const float unsigned_sine = exchanged ? cosine : sine;
  row[0] = quarter == 1 || quarter == 2 ? -unsigned_cosine : unsigned_cosine;
  row[table.channels / 2] = quarter >= 2 ? -unsigned_sine : unsigned_sine;
}

}  // namespace

template <typename Vendor, typename T>
void rotary_device(const RotaryArguments<T>& rotary, Stream& stream) {
  constexpr int kSize = kPackSize<T>;
  if (rotary.channels % (2 * kSize) == 0 && rotary.head_dim % kSize == 0) {
    rotate<T, kSize>(rotary, stream);
  } else {
    rotate<T, 1>(rotary, stream);
  }
}

template <typename Vendor>
void rotary_table_device(const RotaryTable32& table, const RotarySteps& steps, Stream& stream) {
  constexpr int kBlockThreads = 256;
  const int64_t threads = table.tokens * steps.count;
  launch(rotary_table_kernel,
         {.blocks = (threads + kBlockThreads - 1) / kBlockThreads, .threads = kBlockThreads},
         stream, table, steps);
}

template void rotary_device<ThisVendor>(const RotaryArguments<float>&, Stream&);
template void rotary_device<ThisVendor>(const RotaryArguments<BFloat16>&, Stream&);
template void rotary_table_device<ThisVendor>(const RotaryTable32&, const RotarySteps&, Stream&);

}  // namespace tessera
