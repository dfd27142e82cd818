#include "device/packs.h"
#include "ops/attention/repeat_heads_kernels.h"

namespace tessera {
namespace {

/// Repeats heads, with a thread for each pack of a repeated head.
template <typename T, int pack_size>
__global__ void copy_heads(HeadCopies<T> copies) {
  const int64_t packs = copies.head_dim / pack_size;
  for_my_elements<1>(copies.heads * copies.times * packs, [&](int64_t pack, auto) {
    const int64_t head = pack / packs / copies.times;
    store_pack(copies.to, pack, load_pack<pack_size>(copies.from, head * packs + pack % packs));
  });
}

/// Adds the copies of each head in their order, with a thread for each pack of a head.
template <typename T, int pack_size>
__global__ void add_heads(HeadCopies<T> copies) {
  const int64_t packs = copies.head_dim / pack_size;
  for_my_elements<1>(copies.heads * packs, [&](int64_t pack, auto) {
    const int64_t head = pack / packs;
    Pack<float, pack_size> sum{};
    for (int64_t copy = 0; copy < copies.times; ++copy) {
      const int64_t from = (head * copies.times + copy) * packs + pack % packs;
      const auto values = load_pack<pack_size>(copies.from, from);
      for (int i = 0; i < pack_size; ++i) sum.values[i] += static_cast<float>(values.values[i]);
    }
    Pack<T, pack_size> results;
    for (int i = 0; i < pack_size; ++i) results.values[i] = round_to<T>(sum.values[i]);
    store_pack(copies.to, pack, results);
  });
}

}  // namespace

template <typename Vendor, typename T>
void repeat_heads_device(const HeadCopies<T>& copies, bool sums, Stream& stream) {
  with_pack_size<kPackSize<T>>(copies.head_dim, [&](auto pack_size) {
    const int64_t heads = sums ? copies.heads : copies.heads * copies.times;
    launch(sums ? add_heads<T, pack_size> : copy_heads<T, pack_size>,
           grid_of_elements<1>(heads * (copies.head_dim / pack_size)), stream, copies);
  });
}

template void repeat_heads_device<ThisVendor>(const HeadCopies<float>&, bool, Stream&);
template void repeat_heads_device<ThisVendor>(const HeadCopies<BFloat16>&, bool, Stream&);

}  // namespace tessera
