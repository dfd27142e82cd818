// Adds up parts of one value, the *whole*: whole[first + e] += part[e], rounded to T after each
// part. Each warp holds the sums of kWarpElements consecutive elements in registers, adds the parts
// that overlap these elements one after the other, and writes the sums once. A pack is `pack_size`
// elements, which a thread loads or stores at once.

#include "device/packs.h"
#include "program/join_parts_kernels.h"

namespace tessera {
namespace {

constexpr int kThreads = 256;
constexpr int kThreadPacks = 4;  // the packs of one thread

/// The number of consecutive elements of the whole that one warp computes.
template <int pack_size>
constexpr int64_t kWarpElements = int64_t{kLanes} * kThreadPacks * pack_size;

/// The sums of one thread: kThreadPacks packs of the whole, from `first` on, kLanes packs apart.
template <typename T, int pack_size>
struct Sums {
  float values[kThreadPacks][pack_size];
  int64_t first;  // the index of the first pack's first element in the whole
  int64_t whole_end;

  __device__ int64_t pack_first(int k) const { return first + int64_t{k} * kLanes * pack_size; }

  __device__ void load(const T* whole) {
    for (int k = 0; k < kThreadPacks; ++k) add_pack(k, whole, 0, whole_end);
  }
  __device__ void add(const typename PartSums<T>::Part& part) {
    for (int k = 0; k < kThreadPacks; ++k) add_pack(k, part.elements, part.first, part.end);
  }
  __device__ void store(T* whole) const {
    for (int pack = 0; pack < kThreadPacks; ++pack) {
      const int64_t begin = pack_first(pack);
      Pack<T, pack_size> result;
      for (int i = 0; i < pack_size; ++i) result.values[i] = round_to<T>(values[pack][i]);
      if (begin + pack_size <= whole_end) {
        store_pack(whole + begin, 0, result);
      } else {
        for (int i = 0; i < pack_size; ++i) {
          if (begin + i < whole_end) whole[begin + i] = result.values[i];
        }
      }
    }
  }

 private:
  /// Adds the elements of a part, [part_first, part_end) of the whole, that are in the pack.
  __device__ void add_pack(int pack, const T* elements, int64_t part_first, int64_t part_end) {
    const int64_t begin = pack_first(pack);
    const int64_t offset = begin - part_first;
    const T* const source = elements + offset;
    // A part may begin at any element, and a pack is loaded only from an aligned address.
    const bool aligned = reinterpret_cast<uintptr_t>(source) % (pack_size * sizeof(T)) == 0;
    if (aligned && offset >= 0 && begin + pack_size <= part_end) {
      const auto added = load_pack<pack_size>(source, 0);
      for (int i = 0; i < pack_size; ++i) add_element(pack, i, added.values[i]);
    } else {
      for (int i = 0; i < pack_size; ++i) {
        if (offset + i >= 0 && begin + i < part_end) add_element(pack, i, source[i]);
      }
    }
  }
  __device__ void add_element(int pack, int i, T addend) {
    const float sum = values[pack][i] + static_cast<float>(addend);
    values[pack][i] = static_cast<float>(round_to<T>(sum));
  }
};

/// Adds up the parts that overlap the warp's elements, and writes these elements of the whole.
template <typename T, int pack_size>
__global__ void sum_parts(PartSums<T> joined) {
  const int lane = this_lane();
  const int64_t warp_first = warp_of_grid() * kWarpElements<pack_size>;
  if (warp_first >= joined.whole_elements) return;
  Sums<T, pack_size> sums{{}, warp_first + int64_t{lane} * pack_size, joined.whole_elements};
  if (!joined.onto_zeros) sums.load(joined.whole);
  // Each lane tests one part for an overlap, kLanes parts at a time.
  for (int first_part = 0; first_part < joined.part_count; first_part += kLanes) {
    const int tested = first_part + lane;
    uint64_t overlapping =
        ballot(tested < joined.part_count && joined.parts[tested].end > warp_first &&
               joined.parts[tested].first < warp_first + kWarpElements<pack_size>);
    for (; overlapping != 0; overlapping &= overlapping - 1) {  // clears the lowest bit
      sums.add(joined.parts[first_part + std::countr_zero(overlapping)]);
    }
  }
  sums.store(joined.whole);
}

}  // namespace

template <typename Vendor, typename T>
void sum_parts_device(const PartSums<T>& sums, Stream& stream) {
  constexpr int kSize = kPackSize<T>;
  constexpr int64_t kBlockElements = kThreads / kLanes * kWarpElements<kSize>;
  const int64_t blocks = (sums.whole_elements + kBlockElements - 1) / kBlockElements;
  launch(sum_parts<T, kSize>, {.blocks = blocks, .threads = kThreads}, stream, sums);
}

template void sum_parts_device<ThisVendor>(const PartSums<float>&, Stream&);
template void sum_parts_device<ThisVendor>(const PartSums<BFloat16>&, Stream&);

}  // namespace tessera
