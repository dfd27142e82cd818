#include "device/packs.h"
#include "ops/cca/delay_kernels.h"

namespace tessera {
namespace {

/// Joins rows (DelayForward), with a thread for each pack: pack_size elements moved in one access.
template <typename T, int pack_size>
__global__ void join_rows(DelayForward<T> delay) {
  const int64_t current = delay.current_width / pack_size;  // packs of a row
  const int64_t delayed = delay.delayed_width / pack_size;
  for_my_elements<1>(delay.tokens * (current + delayed), [&](int64_t index, auto) {
    const int64_t token = index / (current + delayed);
    const int64_t pack = index % (current + delayed);
    Pack<T, pack_size> values{};
    if (pack < current) {
      values = load_pack<pack_size>(delay.current, token * current + pack);
    } else if (delay.order.follows(token)) {
      values = token == 0 ? load_pack<pack_size>(delay.before, pack - current)
                          : load_pack<pack_size>(delay.delayed,
                                                 (token - 1) * delayed + pack - current);
    }
    store_pack(delay.joined, index, values);
  });
}

/// Separates the gradient of joined rows (DelayBackward), with a thread for each pack.
template <typename T, int pack_size>
__global__ void separate_rows(DelayBackward<T> delay) {
  const int64_t current = delay.current_width / pack_size;  // packs of a row
  const int64_t delayed = delay.delayed_width / pack_size;
  for_my_elements<1>(delay.tokens * (current + delayed), [&](int64_t index, auto) {
    const int64_t token = index / (current + delayed);
    const int64_t pack = index % (current + delayed);
    if (pack < current) {
      store_pack(delay.current_gradient, token * current + pack,
                 load_pack<pack_size>(delay.joined_gradient, index));
      return;
    }
    Pack<T, pack_size> values{};
    if (token + 1 < delay.tokens && delay.order.follows(token + 1)) {
      values = load_pack<pack_size>(delay.joined_gradient, index + current + delayed);
    }
    store_pack(delay.delayed_gradient, token * delayed + pack - current, values);
  });
}

/// Calls body(pack_size) with the elements of a pack as a compile-time constant, which divides both
/// widths. If full packs do not divide `current`, the 1 leads to packs of one element.
template <typename T, typename Body>
void with_joined_packs(int64_t current, int64_t delayed, Body&& body) {
  with_pack_size<kPackSize<T>>(current % kPackSize<T> == 0 ? delayed : 1, body);
}

}  // namespace

template <typename Vendor, typename T>
void join_delayed_device(const DelayForward<T>& delay, Stream& stream) {
  with_joined_packs<T>(delay.current_width, delay.delayed_width, [&](auto pack_size) {
    const int64_t packs = delay.tokens * ((delay.current_width + delay.delayed_width) / pack_size);
    launch(join_rows<T, pack_size>, grid_of_elements<1>(packs), stream, delay);
  });
}

template <typename Vendor, typename T>
void join_delayed_gradient_device(const DelayBackward<T>& delay, Stream& stream) {
  with_joined_packs<T>(delay.current_width, delay.delayed_width, [&](auto pack_size) {
    const int64_t packs = delay.tokens * ((delay.current_width + delay.delayed_width) / pack_size);
    launch(separate_rows<T, pack_size>, grid_of_elements<1>(packs), stream, delay);
  });
}

template void join_delayed_device<ThisVendor>(const DelayForward<float>&, Stream&);
template void join_delayed_device<ThisVendor>(const DelayForward<BFloat16>&, Stream&);
template void join_delayed_gradient_device<ThisVendor>(const DelayBackward<float>&, Stream&);
template void join_delayed_gradient_device<ThisVendor>(const DelayBackward<BFloat16>&, Stream&);

}  // namespace tessera
