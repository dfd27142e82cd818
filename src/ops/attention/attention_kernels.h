#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

class Stream;

/// The sizes of one attention (see AttentionShape), for kernels of devices. head_dim is at most
/// kMostHeadDim, and the rows of all heads are at most kMostRows. So 32-bit integers suffice, which
/// devices divide faster.
struct AttentionSizes {
  int sequences;
  int sequence;  // queries of one sequence
  int keys;      // keys of one sequence
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
};
inline constexpr int kMostHeadDim = 256;
/// Threads without work compute indices past the last row or key, for which the 1024 leave room.
inline constexpr int kMostRows = std::numeric_limits<int>::max() - 1024;

/// The arguments of the search for the keys that each query attends to (see fill_key_ranges()).
/// Positions are not checked.
struct KeyRangeSearch {
  AttentionSizes sizes;
  const int32_t* document_starts;  // [tokens], or null
  const int32_t* positions;        // [tokens], or null: rows are positions
  const int32_t* key_positions;    // [sequences · keys], or null: rows are positions
  int32_t* begin;                  // [tokens]
  int32_t* end;                    // [tokens]
};

/// The operands of attention, forward and backward.
template <typename T>
struct AttentionOperands {
  AttentionSizes sizes;
  const T* q;
  const T* k;
  const T* v;
  const int32_t* begin;  // [tokens]: the ranges of keys (see KeyRanges)
  const int32_t* end;
};

/// The arguments of attention_plain() with sums in f32.
template <typename T>
struct AttentionForward : AttentionOperands<T> {
  T* output;
  float* log_sum_exp;  // [sequences · heads, sequence]
};

/// The arguments of attention_gradient_plain() with sums in f32.
template <typename T>
struct AttentionBackward : AttentionOperands<T> {
  const T* output;
  const float* log_sum_exp;  // [sequences · heads, sequence]
  const T* output_gradient;
  float* delta;  // [sequences · heads, sequence]: scratch for rowsum(dO · O)
  T* q_gradient;
  T* k_gradient;
  T* v_gradient;
};

/// The arguments of attention over caches. Kernels write the new rows to the caches, attend to
/// `splits` parts of each query's keys, so that one token keeps a device busy, and join the parts.
template <typename T>
struct CachedAttentionForward {
  AttentionSizes sizes;     // sequences = 1; sequence = keys = new tokens
  int capacity;             // rows of a cache
  int splits;               // the result of cached_attention_splits()
  const int32_t* position;  // [1]: the index of the first new token
  const T* q;
  const T* k;
  const T* v;
  T* key_cache;
  T* value_cache;
  float* parts;  // [tokens, heads, splits, head_dim + 2]: RunningSoftmax's sum, greatest, total
  T* output;
};
/// Returns the number of parts into which the keys of each query are divided.
int64_t cached_attention_splits(int64_t tokens, int64_t heads, int64_t capacity);

/// The functions below enqueue kernels on a device's stream, for T = float and BFloat16. All arrays
/// are aligned to 64 bytes. The kernels are plain: they do not use the matrix units.
template <typename Vendor>
void key_ranges_device(const KeyRangeSearch& search, Stream& stream);
template <typename Vendor, typename T>
void attention_device(const AttentionForward<T>& attention, Stream& stream);
template <typename Vendor, typename T>
void attention_gradient_device(const AttentionBackward<T>& attention, Stream& stream);
template <typename Vendor, typename T>
void cached_attention_device(const CachedAttentionForward<T>& attention, Stream& stream);

}  // namespace tessera
