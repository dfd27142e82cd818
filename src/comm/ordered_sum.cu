#include "comm/device_kernels.h"
#include "device/packs.h"

namespace tessera {
namespace {

struct Add {
  template <typename T>
  __device__ static T combine(T total, T value) {
    return total + value;
  }
};

/// The larger of two values; NaN if one of them is NaN.
struct Larger {
  template <typename T>
  __device__ static T combine(T total, T value) {
    return total > value || std::isnan(total) ? total : value;
  }
};

/// Each thread reduces `widest` elements, a pack that one access of memory loads. Elements after
/// the last whole pack are reduced one by one. For Add, from left to right in Total:
///   to[i] = addend_0[i] + addend_1[i] + ... + addend_{ranks - 1}[i].
template <typename T, typename Total, typename Combine, int widest>
__global__ void sum_slots(OrderedSum sum) {
  for_my_elements<widest>(sum.elements, [&](int64_t first, auto count) {
    Total totals[count];
    for (int rank = 0; rank < sum.ranks; ++rank) {
      const std::byte* const addend =
          rank == sum.position ? sum.own_addend : sum.slots + rank * sum.slot_bytes;
      const auto pack = load_pack<count>(reinterpret_cast<const T*>(addend) + first, 0);
      for (int i = 0; i < count; ++i) {
        const auto value = static_cast<Total>(pack.values[i]);
        totals[i] = rank == 0 ? value : Combine::combine(totals[i], value);
      }
    }
    Pack<T, count> result;
    for (int i = 0; i < count; ++i) result.values[i] = static_cast<T>(totals[i]);
    store_pack(reinterpret_cast<T*>(sum.to) + first, 0, result);
  });
}

/// Returns whether packs of 16 bytes can be read at an address. Slots always allow it (OrderedSum).
bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

template <typename T, typename Total, typename Combine>
void launch_sum(const OrderedSum& sum, Stream& stream) {
  constexpr int kWidest = kPackSize<T>;
  if (is_aligned(sum.own_addend) && is_aligned(sum.to)) {
    launch(sum_slots<T, Total, Combine, kWidest>, grid_of_elements<kWidest>(sum.elements), stream,
           sum);
  } else {
    launch(sum_slots<T, Total, Combine, 1>, grid_of_elements<1>(sum.elements), stream, sum);
  }
}

}  // namespace

template <typename Vendor>
void ordered_sum_device(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream) {
  const bool adds = reduction != Reduction::maximum;
  if (dtype == DType::f64) {
    adds ? launch_sum<double, double, Add>(sum, stream)
         : launch_sum<double, double, Larger>(sum, stream);
  } else if (dtype == DType::f32) {
    adds ? launch_sum<float, float, Add>(sum, stream)
         : launch_sum<float, float, Larger>(sum, stream);
  } else if (dtype == DType::bf16) {
    launch_sum<BFloat16, float, Add>(sum, stream);
  } else {  // the signed sum wraps as the unsigned one does
    launch_sum<uint32_t, uint32_t, Add>(sum, stream);
  }
}

template void ordered_sum_device<ThisVendor>(const OrderedSum&, Reduction, DType, Stream&);

}  // namespace tessera
