#include <algorithm>

#include "device/packs.h"
#include "ops/embedding/embedding_kernels.h"

// The lookup of token embeddings on a device, and its gradient in two kernels: the first sorts the
// tokens by id, and the second adds the rows of each id in token order, without atomics.

namespace tessera {
namespace {

/// Looks up rows. Each block copies `block_tokens` rows of `packs` packs. A pack is a few
/// neighbouring elements, which a thread loads at once.
template <typename T, int pack_size>
__global__ void copy_table_rows(EmbeddingForward<T> embedding, int packs, int block_tokens) {
  const int64_t first_token = static_cast<int64_t>(blockIdx.x) * block_tokens;
  const int items = block_tokens * packs;
  for (int item = static_cast<int>(threadIdx.x); item < items;
       item += static_cast<int>(blockDim.x)) {
    const int64_t token = first_token + item / packs;
    if (token >= embedding.tokens) return;
    const int64_t row = embedding.rows.row_of(embedding.ids[token]);
    const int pack = item % packs;
    Pack<T, pack_size> values{};
    if (row >= 0) values = load_pack<pack_size>(embedding.table + row * embedding.hidden, pack);
    store_pack(embedding.output + token * embedding.hidden, pack, values);
  }
}

constexpr int kScanningWarps = 8;  // warps of a block, which count for the same positions

/// Writes the positions to `order`, sorted by their ids. Positions of equal ids stay in order. A
/// lane has a position, and counts the positions that come before it in `order`: it compares the
/// position's id with all ids, of which each warp takes some. So many comparisons cost little
/// beside the model's products, and they need no atomics.
__global__ void order_positions(const int32_t* ids, int64_t tokens, int32_t* order) {
  __shared__ int parts[kScanningWarps][kLanes];
  constexpr int kIds = kPackSize<int32_t>;
  const int lane = this_lane(), warp = this_warp();
  const int64_t position = static_cast<int64_t>(blockIdx.x) * kLanes + lane;
  const bool exists = position < tokens;
  const int32_t id = exists ? ids[position] : 0;
  const int64_t packs = tokens / kIds;
  const int64_t pack_of_position = position / kIds;

  int before = 0;
  for (int64_t p = warp; p < packs; p += kScanningWarps) {
    const auto others = load_pack<kIds>(ids, p);
    const int32_t bound = p < pack_of_position ? id + 1 : id;  // equal ids stay in order
    for (int i = 0; i < kIds; ++i) before += others.values[i] < bound ? 1 : 0;
  }
  // The ids after the last whole pack, and the equal ids before the position in its pack.
  if (warp == 0 && exists) {
    for (int64_t t = packs * kIds; t < tokens; ++t) before += ids[t] < id ? 1 : 0;
    for (int64_t t = pack_of_position * kIds; t < position; ++t) before += ids[t] == id ? 1 : 0;
  }
  parts[warp][lane] = before;
  __syncthreads();
  if (warp != 0 || !exists) return;
  int index = 0;
  for (int part = 0; part < kScanningWarps; ++part) index += parts[part][lane];
  order[index] = static_cast<int32_t>(position);
}

/// Adds rows of the gradient to the table, with a warp for each index of `order` and each kLanes
/// packs of columns. The warp at the first index of an id adds all rows of this id, in order. It
/// loads several rows before it adds them, because otherwise each addition would wait for memory.
template <typename T, int pack_size>
__global__ void add_rows_of_tokens(EmbeddingBackward<T> embedding) {
  constexpr int kRowsAtOnce = 8;
  const int lane = this_lane();
  const int64_t index = warp_of_grid();
  if (index >= embedding.tokens) return;
  const int32_t id = embedding.ids[embedding.order[index]];
  if (index > 0 && embedding.ids[embedding.order[index - 1]] == id) return;
  const int64_t row_of_id = embedding.rows.row_of(id);
  if (row_of_id < 0) return;

  const int64_t pack = static_cast<int64_t>(blockIdx.y) * kLanes + lane;
  const bool exists = pack < embedding.hidden / pack_size;  // other lanes take part in shuffles
  float* const sum = embedding.table + row_of_id * embedding.hidden;
  Pack<float, pack_size> total{};
  if (exists) total = load_pack<pack_size>(sum, pack);
  int count = kLanes;
  for (int64_t first = index; count == kLanes; first += kLanes) {
    const int position = first + lane < embedding.tokens ? embedding.order[first + lane] : -1;
    count = warp_sum(position >= 0 && embedding.ids[position] == id ? 1 : 0);  // the first lanes
    for (int row = 0; row < count; row += kRowsAtOnce) {
      Pack<T, pack_size> rows[kRowsAtOnce];
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const int64_t from = shuffle(position, (row + i) % kLanes);
        rows[i] = {};
        if (exists && row + i < count) {
          rows[i] = load_pack<pack_size>(embedding.gradient + from * embedding.hidden, pack);
        }
      }
      for (int i = 0; i < kRowsAtOnce && row + i < count; ++i) {
        for (int j = 0; j < pack_size; ++j) {
          total.values[j] += static_cast<float>(rows[i].values[j]);
        }
      }
    }
  }
  if (exists) store_pack(sum, pack, total);
}

}  // namespace

template <typename Vendor, typename T>
void embedding_device(const EmbeddingForward<T>& embedding, Stream& stream) {
  constexpr int kBlockThreads = 256;
  with_pack_size<kPackSize<T>>(embedding.hidden, [&](auto pack_size) {
    const auto packs = static_cast<int>(embedding.hidden / pack_size);
    const int block_tokens = std::max(1, kBlockThreads / packs);
    launch(copy_table_rows<T, pack_size>,
           {.blocks = (embedding.tokens + block_tokens - 1) / block_tokens,
            .threads = kBlockThreads},
           stream, embedding, packs, block_tokens);
  });
}

template <typename Vendor, typename T>
void embedding_gradient_device(const EmbeddingBackward<T>& embedding, Stream& stream) {
  launch(order_positions,
         {.blocks = (embedding.tokens + kLanes - 1) / kLanes, .threads = kScanningWarps * kLanes},
         stream, embedding.ids, embedding.tokens, embedding.order);
  constexpr int kWarps = 4;
  with_pack_size<kPackSize<T>>(embedding.hidden, [&](auto pack_size) {
    const int64_t packs = embedding.hidden / pack_size;
    launch(add_rows_of_tokens<T, pack_size>,
           {.blocks = (embedding.tokens + kWarps - 1) / kWarps,
            .threads = kWarps * kLanes,
            .blocks_y = (packs + kLanes - 1) / kLanes},
           stream, embedding);
  });
}

template void embedding_device<ThisVendor>(const EmbeddingForward<float>&, Stream&);
template void embedding_device<ThisVendor>(const EmbeddingForward<BFloat16>&, Stream&);
template void embedding_gradient_device<ThisVendor>(const EmbeddingBackward<float>&, Stream&);
template void embedding_gradient_device<ThisVendor>(const EmbeddingBackward<BFloat16>&, Stream&);

}  // namespace tessera
