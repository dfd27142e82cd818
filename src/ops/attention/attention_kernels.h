#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

class Stream;

/// The sizes of one attention (see AttentionShape), for kernels of devices. head_dim is at most
/// kMostHeadDim, and the rows of all heads are at most kMostRows: devices divide 32 bits faster.
struct AttentionSizes {
  int sequences;
  int sequence;
  int keys;
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
};
inline constexpr int kMostHeadDim = 256;
/// So many that the last block's number of a row, or of a key, fits into 32 bits too.
inline constexpr int kMostRows = std::numeric_limits<int>::max() - 1024;

/// The keys that each query attends to, as fill_key_ranges() finds them. Positions are not checked.
struct KeyRangeSearch {
  AttentionSizes sizes;
  const int32_t* document_starts;  // [tokens], or null
  const int32_t* positions;        // [tokens], or null: rows are positions
  const int32_t* key_positions;    // [sequences · keys], or null: rows are positions
  int32_t* begin;                  // [tokens]
  int32_t* end;                    // [tokens]
};

/// attention_plain() with sums in f32.
template <typename T>
struct AttentionForward {
  AttentionSizes sizes;
  const T* q;
  const T* k;
  const T* v;
  const int32_t* begin;
  const int32_t* end;
  T* output;
  float* log_sum_exp;  // [sequences · heads, sequence]
};

/// attention_gradient_plain() with sums in f32.
template <typename T>
struct AttentionBackward {
  AttentionSizes sizes;
  const T* q;
  const T* k;
  const T* v;
  const T* output;
  const float* log_sum_exp;  // [sequences · heads, sequence]
  const T* of_output;
  const int32_t* begin;
  const int32_t* end;
  float* delta;  // [sequences · heads, sequence]: memory for rowsum(dO · O)
  T* of_q;
  T* of_k;
  T* of_v;
};

/// Attention over caches: the new rows are written to them first. Each query's keys are divided
/// into `splits` parts, so that one token keeps a whole device busy, and the parts are joined.
template <typename T>
struct CachedAttentionForward {
  AttentionSizes sizes;     // sequences = 1; sequence = keys = new tokens
  int capacity;             // rows of a cache
  int splits;               // as cached_attention_splits() has it
  const int32_t* position;  // [1]: of the first new token
  const T* q;
  const T* k;
  const T* v;
  T* key_cache;
  T* value_cache;
  float* parts;  // [tokens, heads, splits, head_dim + 2]: memory for sums, their scale and total
  T* output;
};
int64_t cached_attention_splits(int64_t tokens, int64_t heads, int64_t capacity);

/// The kernels of devices, for T = float and BFloat16. They put their work into the stream. All
/// arrays begin on 64 bytes. They are plain: a warp for each row, without the matrix units.
template <typename Vendor>
void key_ranges_device(const KeyRangeSearch& search, Stream& stream);
template <typename Vendor, typename T>
void attention_device(const AttentionForward<T>& attention, Stream& stream);
template <typename Vendor, typename T>
void attention_gradient_device(const AttentionBackward<T>& attention, Stream& stream);
template <typename Vendor, typename T>
void cached_attention_device(const CachedAttentionForward<T>& attention, Stream& stream);

}  // namespace tessera
