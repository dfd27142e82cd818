// Parts of one value are added up. Each warp has kWarpElements consecutive elements of the value in
// registers, adds the parts that overlap them in their order, and writes them once. A pack is kSize
// elements, which a thread loads or stores at once.

#include "device/packs.h"
#include "program/join_parts_kernels.h"

namespace tessera {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // per thread

/// The number of elements of the whole that one warp computes. They are consecutive.
template <int size>
constexpr int64_t kWarpElements = int64_t{kLanes} * kPacks* size;

/// Elements [first, end) of the whole as one thread holds them: packs that are kLanes packs apart.
template <typename T, int size>
struct Sums {
  float values[kPacks][size];
  int64_t first;  // of this thread's first pack
  int64_t end;    // of the whole

  __device__ int64_t pack_first(int pack) const { return first + int64_t{pack} * kLanes * size; }

  __device__ void load(const T* whole) {
    for (int pack = 0; pack < kPacks; ++pack) add_pack(pack, whole, 0, end);
  }
  __device__ void add(const typename PartSums<T>::Part& part) {
    for (int pack = 0; pack < kPacks; ++pack) add_pack(pack, part.elements, part.first, part.end);
  }
  __device__ void store(T* whole) const {
    for (int pack = 0; pack < kPacks; ++pack) {
      const int64_t at = pack_first(pack);
      Pack<T, size> result;
      for (int i = 0; i < size; ++i) result.values[i] = round_to<T>(values[pack][i]);
      if (at + size <= end) {
        store_pack(whole + at, 0, result);
      } else {
        for (int i = 0; i < size; ++i) {
          if (at + i < end) whole[at + i] = result.values[i];
        }
      }
    }
  }

 private:
  /// Adds the elements of a part that are within the pack. The part covers [part_first, part_end)
  /// of the whole.
  __device__ void add_pack(int pack, const T* elements, int64_t part_first, int64_t part_end) {
    const int64_t at = pack_first(pack);
    const int64_t offset = at - part_first;
    const T* const from = elements + offset;
    const bool aligned = reinterpret_cast<uintptr_t>(from) % (size * sizeof(T)) == 0;
    if (aligned && offset >= 0 && at + size <= part_end) {
      const auto added = load_pack<size>(from, 0);
      for (int i = 0; i < size; ++i) add_element(pack, i, added.values[i]);
    } else {
      for (int i = 0; i < size; ++i) {
        if (offset + i >= 0 && at + i < part_end) add_element(pack, i, from[i]);
      }
    }
  }
  __device__ void add_element(int pack, int i, T addend) {
    const float sum = values[pack][i] + static_cast<float>(addend);
    values[pack][i] = static_cast<float>(round_to<T>(sum));
  }
};

/// Adds up the parts. Each warp adds those that overlap its elements, so that the whole is written
/// once.
template <typename T, int size>
__global__ void sum_parts(PartSums<T> joined) {
  const int lane = this_lane();
  const int64_t warp_first = warp_of_grid() * kWarpElements<size>;
  if (warp_first >= joined.elements) return;
  Sums<T, size> sums{{}, warp_first + int64_t{lane} * size, joined.elements};
  if (!joined.onto_zeros) sums.load(joined.whole);
  // Each lane tests one part for an overlap, kLanes parts at a time.
  for (int first = 0; first < joined.count; first += kLanes) {
    const int mine = first + lane;
    uint64_t overlapping = ballot(mine < joined.count && joined.parts[mine].end > warp_first &&
                                  joined.parts[mine].first < warp_first + kWarpElements<size>);
    for (; overlapping != 0; overlapping &= overlapping - 1) {  // clears the lowest bit
      sums.add(joined.parts[first + std::countr_zero(overlapping)]);
    }
  }
  sums.store(joined.whole);
}

}  // namespace

template <typename Vendor, typename T>
void sum_parts_device(const PartSums<T>& sums, Stream& stream) {
  constexpr int kSize = kPackSize<T>;
  constexpr int64_t kBlockElements = kThreads / kLanes * kWarpElements<kSize>;
  launch(sum_parts<T, kSize>,
         {.blocks = (sums.elements + kBlockElements - 1) / kBlockElements, .threads = kThreads},
         stream, sums);
}

template void sum_parts_device<ThisVendor>(const PartSums<float>&, Stream&);
template void sum_parts_device<ThisVendor>(const PartSums<BFloat16>&, Stream&);

}  // namespace tessera
