#include "device/packs.h"
#include "ops/cca/delay_kernels.h"

namespace tessera {
namespace {

/// Joins rows, with a thread for each pack: pack_size elements moved in one access.
template <typename T, int pack_size>
__global__ void join_rows(RowsToJoin<T> delay) {
  const int64_t current = delay.current_width / pack_size;  // packs of a row
  const int64_t delayed = delay.delayed_width / pack_size;
  for_my_elements<1>(delay.tokens * (current + delayed), [&](int64_t index, auto) {
    const int64_t token = index / (current + delayed);
    const int64_t pack = index % (current + delayed);
    Pack<T, pack_size> values{};
    if (pack < current) {
      values = load_pack<pack_size>(delay.current, token * current + pack);
    } else if (delay.order.continues_document(token)) {
      values = token == 0 ? load_pack<pack_size>(delay.row_before, pack - current)
                          : load_pack<pack_size>(delay.delayed,
                                                 (token - 1) * delayed + pack - current);
    }
    store_pack(delay.joined, index, values);
  });
}

/// Separates the gradients of joined rows, with a thread for each pack.
template <typename T, int pack_size>
__global__ void separate_rows(RowsToSeparate<T> delay) {
  const int64_t current = delay.current_width / pack_size;  // packs of a row
  const int64_t delayed = delay.delayed_width / pack_size;
  for_my_elements<1>(delay.tokens * (current + delayed), [&](int64_t index, auto) {
    const int64_t token = index / (current + delayed);
    const int64_t pack = index % (current + delayed);
    if (pack < current) {
      store_pack(delay.current, token * current + pack,
                 load_pack<pack_size>(delay.joined, index));
      return;
    }
    Pack<T, pack_size> values{};
    if (token + 1 < delay.tokens && delay.order.continues_document(token + 1)) {
      values = load_pack<pack_size>(delay.joined, index + current + delayed);
    }
    store_pack(delay.delayed, token * delayed + pack - current, values);
  });
}

/// Calls body(pack_size, grid) with the elements of a pack as a compile-time constant that divides
/// both widths. If full packs do not divide the first, the 1 leads to packs of one element.
template <typename T, typename Rows, typename Body>
void with_joined_packs(const Rows& delay, Body&& body) {
  const int64_t width = delay.current_width + delay.delayed_width;
  const bool fits = delay.current_width % kPackSize<T> == 0;
  with_pack_size<kPackSize<T>>(fits ? delay.delayed_width : 1, [&](auto pack_size) {
    body(pack_size, grid_of_elements<1>(delay.tokens * (width / pack_size)));
  });
}

}  // namespace

template <typename Vendor, typename T>
void join_delayed_device(const RowsToJoin<T>& delay, Stream& stream) {
  with_joined_packs<T>(delay, [&](auto pack_size, const Grid& grid) {
    launch(join_rows<T, pack_size>, grid, stream, delay);
  });
}

template <typename Vendor, typename T>
void join_delayed_gradient_device(const RowsToSeparate<T>& delay, Stream& stream) {
  with_joined_packs<T>(delay, [&](auto pack_size, const Grid& grid) {
    launch(separate_rows<T, pack_size>, grid, stream, delay);
  });
}

template void join_delayed_device<ThisVendor>(const RowsToJoin<float>&, Stream&);
template void join_delayed_device<ThisVendor>(const RowsToJoin<BFloat16>&, Stream&);
template void join_delayed_gradient_device<ThisVendor>(const RowsToSeparate<float>&, Stream&);
template void join_delayed_gradient_device<ThisVendor>(const RowsToSeparate<BFloat16>&, Stream&);

}  // namespace tessera
