#include <algorithm>

#include "device/packs.h"
#include "ops/collective/quantise_kernels.h"

namespace tessera {
namespace {

// A block of elements is handled by a team of threads. Each thread has kOwnElements elements of it
// in registers, so that they are read once. A team within a warp has a power of two threads, and
// several teams share a block of threads. A larger team is a block of threads.

constexpr int kOwnElements = 8;
constexpr int kSmallTeamThreads = 256;  // of a block of threads with several teams

/// The consecutive elements of one thread.
struct OwnElements {
  int64_t block;  ///< of the piece
  int member;     ///< the thread's index in its team
  int64_t first;
  int count;    ///< from 0 to kOwnElements
  bool packed;  ///< all kOwnElements are there, and aligned
};

__device__ inline OwnElements own_elements(const QuantisedPiece& piece, int team, bool aligned) {
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  OwnElements own;
  own.block = static_cast<int64_t>(blockIdx.x) * (threads / team) + thread / team;
  own.member = thread % team;
  const int64_t begin = own.block * piece.format.block;
  own.first = begin + own.member * kOwnElements;
  const int64_t end = std::min(begin + piece.format.block, piece.elements);
  own.count = static_cast<int>(std::clamp<int64_t>(end - own.first, 0, kOwnElements));
  own.packed = aligned && own.count == kOwnElements;
  return own;
}

/// Reads this thread's elements; the missing ones are zeros.
template <typename T>
__device__ void load_own(const T* array, const OwnElements& own, float (&values)[kOwnElements]) {
  constexpr int kPack = kPackSize<T>;
  if (own.packed) {
    for (int start = 0; start < kOwnElements; start += kPack) {
      const auto pack = load_pack<kPack>(array + own.first + start, 0);
      for (int i = 0; i < kPack; ++i) values[start + i] = static_cast<float>(pack.values[i]);
    }
  } else {
    for (int i = 0; i < kOwnElements; ++i) {
      values[i] = i < own.count ? static_cast<float>(array[own.first + i]) : 0.0f;
    }
  }
}

template <typename T>
__device__ void store_own(T* array, const OwnElements& own, const float (&values)[kOwnElements]) {
  constexpr int kPack = kPackSize<T>;
  if (own.packed) {
    for (int start = 0; start < kOwnElements; start += kPack) {
      Pack<T, kPack> pack;
      for (int i = 0; i < kPack; ++i) pack.values[i] = round_to<T>(values[start + i]);
      store_pack(array + own.first + start, 0, pack);
    }
  } else {
    for (int i = 0; i < kOwnElements; ++i) {
      if (i < own.count) array[own.first + i] = round_to<T>(values[i]);
    }
  }
}

/// The integers of a thread's elements as they lie in memory: byte 0 is the lowest of the word.
template <int bits>
using IntegerWord = std::conditional_t<bits == 8, uint64_t, uint32_t>;

/// Returns where integer number i of a thread is in its word: the shift of its lowest bit.
template <int bits>
__device__ constexpr int shift_of(int i) {
  return bits == 8 ? 8 * i : 4 * (i ^ 1);
}

template <int bits>
__device__ void store_integers(const QuantisedPiece& piece, const OwnElements& own,
                               const int (&integers)[kOwnElements]) {
  using Word = IntegerWord<bits>;
  constexpr unsigned kMask = bits == 8 ? 255 : 15;
  Word word = 0;
  for (int i = 0; i < kOwnElements; ++i) {
    word |= static_cast<Word>(static_cast<unsigned>(integers[i]) & kMask) << shift_of<bits>(i);
  }
  std::byte* const to = piece.integers + own.first * bits / 8;
  if (own.packed) {
    *reinterpret_cast<Word*>(to) = word;
  } else {
    const int bytes = (own.count * bits + 7) / 8;
    for (int i = 0; i < static_cast<int>(sizeof(Word)); ++i) {
      if (i < bytes) to[i] = static_cast<std::byte>(word >> (8 * i));
    }
  }
}

template <int bits>
__device__ void load_integers(const QuantisedPiece& piece, const OwnElements& own,
                              int (&integers)[kOwnElements]) {
  using Word = IntegerWord<bits>;
  const std::byte* const from = piece.integers + own.first * bits / 8;
  Word word = 0;
  if (own.packed) {
    word = *reinterpret_cast<const Word*>(from);
  } else {
    const int bytes = (own.count * bits + 7) / 8;
    for (int i = 0; i < static_cast<int>(sizeof(Word)); ++i) {
      if (i < bytes) word |= static_cast<Word>(from[i]) << (8 * i);
    }
  }
  for (int i = 0; i < kOwnElements; ++i) {
    const auto low = static_cast<int>(word >> shift_of<bits>(i));
    integers[i] = bits == 8 ? static_cast<int8_t>(low) : ((low & 15) ^ 8) - 8;
  }
}

/// Returns the maximum over the threads of a team, to each of them. All threads of the block of
/// threads must call it.
__device__ inline uint32_t team_max(uint32_t value, int team) {
  if (team > kLanes) {
    return combine_block(value, 0u, [](uint32_t part) { return warp_max(part); });
  }
  for (int mask = team / 2; mask > 0; mask /= 2) {
    value = std::max(value, shuffle_xor(value, mask));
  }
  return value;
}

template <int bits, typename T>
__global__ void quantise_blocks(QuantisedPiece piece, const T* values, FeedbackStep feedback,
                                int team, bool aligned) {
  const OwnElements own = own_elements(piece, team, aligned);
  float y[kOwnElements], error[kOwnElements];
  load_own(values, own, y);
  if (feedback.error != nullptr) {
    load_own(feedback.error, own, error);
    for (int i = 0; i < kOwnElements; ++i) y[i] += error[i];
  }

  uint32_t magnitude = 0;
  for (const float value : y) {
    magnitude = std::max(magnitude, magnitude_bits(value));
  }
  const BlockScale scale = block_scale(team_max(magnitude, team), largest_integer(bits));
  if (own.count == 0) return;
  int integers[kOwnElements];
  for (int i = 0; i < kOwnElements; ++i) {
    const float scaled = without_denormals(y[i]) * scale.factor;
    integers[i] = scale.finite ? static_cast<int>(rintf(scaled)) : 0;
  }
  store_integers<bits>(piece, own, integers);
  if (own.member == 0) piece.scales[own.block] = scale.scale;
  if (own.first == 0) piece.clear_padding();
  if (feedback.error != nullptr && scale.finite) {
    for (int i = 0; i < kOwnElements; ++i) {
      const float restored = static_cast<float>(integers[i]) * scale.scale;
      error[i] = feedback.updated(error[i], y[i], restored);
    }
    store_own(feedback.error, own, error);
  }
}

template <int bits, typename T, bool adds>
__global__ void dequantise_blocks(QuantisedPiece piece, T* values, int team, bool aligned) {
  const OwnElements own = own_elements(piece, team, aligned);
  if (own.count == 0) return;
  int integers[kOwnElements];
  load_integers<bits>(piece, own, integers);
  const float scale = piece.scales[own.block];
  float restored[kOwnElements];
  for (int i = 0; i < kOwnElements; ++i) restored[i] = static_cast<float>(integers[i]) * scale;
  if constexpr (adds) {
    float sums[kOwnElements];
    load_own(values, own, sums);
    for (int i = 0; i < kOwnElements; ++i) restored[i] = sums[i] + restored[i];
  }
  store_own(values, own, restored);
}

/// Returns the number of threads of a team.
int team_of_block(int64_t block) {
  const auto threads = static_cast<int>(ceil_div(block, kOwnElements));
  if (threads > kLanes) return static_cast<int>(round_up(threads, kLanes));
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(threads)));
}

/// Returns a grid with a team for each block of a piece.
Grid grid_of_teams(const QuantisedPiece& piece, int team) {
  const int threads = team > kLanes ? team : kSmallTeamThreads;
  return {.blocks = ceil_div(piece.blocks(), threads / team), .threads = threads};
}

/// Returns whether the elements of all threads begin at multiples of 16 bytes, if an array does.
bool is_packed(const QuantisedPiece& piece, const void* array) {
  return piece.format.block % kOwnElements == 0 && reinterpret_cast<uintptr_t>(array) % 16 == 0;
}

}  // namespace

template <typename Vendor, typename T>
void quantise_device(const QuantisedPiece& piece, const T* values, const FeedbackStep& feedback,
                     Stream& stream) {
  const int team = team_of_block(piece.format.block);
  const bool aligned = is_packed(piece, values) && is_packed(piece, feedback.error);
  with_bits(piece.format.type, [&](auto bits) {
    launch(quantise_blocks<bits, T>, grid_of_teams(piece, team), stream, piece, values, feedback,
           team, aligned);
  });
}

template <typename Vendor, typename T>
void dequantise_device(const QuantisedPiece& piece, T* values, bool adds, Stream& stream) {
  const int team = team_of_block(piece.format.block);
  const auto start = [&](auto kernel) {
    launch(kernel, grid_of_teams(piece, team), stream, piece, values, team,
           is_packed(piece, values));
  };
  with_bits(piece.format.type, [&](auto bits) {
    if constexpr (std::is_same_v<T, float>) {
      if (adds) return start(dequantise_blocks<bits, T, true>);
    }
    start(dequantise_blocks<bits, T, false>);
  });
}

template void quantise_device<ThisVendor>(const QuantisedPiece&, const float*, const FeedbackStep&,
                                          Stream&);
template void quantise_device<ThisVendor>(const QuantisedPiece&, const BFloat16*,
                                          const FeedbackStep&, Stream&);
template void dequantise_device<ThisVendor>(const QuantisedPiece&, float*, bool, Stream&);
template void dequantise_device<ThisVendor>(const QuantisedPiece&, BFloat16*, bool, Stream&);

}  // namespace tessera
