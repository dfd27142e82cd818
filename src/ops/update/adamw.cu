#include "ops/update/device_piece.h"

namespace tessera {
namespace {

/// The coefficients that all elements of a step share, each rounded once.
struct StepCoefficients {
  float beta1, beta2, epsilon, keep_decayed, step_size, inverse_correction2, scale;
};
static_assert(sizeof(StepCoefficients) <= AdamWFactors::kCoefficients * sizeof(float));

__global__ void find_coefficients(AdamWFactors factors) {
  if (threadIdx.x != 0) return;
  const double rate = *factors.learning_rate, step = *factors.step;
  *reinterpret_cast<StepCoefficients*>(factors.coefficients) = {
      static_cast<float>(factors.beta1),
      static_cast<float>(factors.beta2),
      static_cast<float>(factors.epsilon),
      static_cast<float>(1.0 - rate * factors.weight_decay),
      static_cast<float>(rate / (1.0 - pow(factors.beta1, step))),
      static_cast<float>(1.0 / (1.0 - pow(factors.beta2, step))),
      static_cast<float>(*factors.scale)};
}

__global__ void adamw_pieces(const float* coefficients, DeviceTable<AdamWRow> sections) {
  const auto c = *reinterpret_cast<const StepCoefficients*>(coefficients);
  if (std::isnan(c.scale)) return;
  const Piece<AdamWRow> piece = piece_of_block(sections);
  const AdamWRow& row = piece.row;
  const float keep = row.decays != 0 ? c.keep_decayed : 1.0f;
  for_elements_of_piece(row.gradient + piece.begin, piece.count, [&](int offset, auto size) {
    const int64_t first = piece.begin + offset;
    const auto gradient = load_pack<size>(row.gradient + first, 0);
    auto first_moment = load_pack<size>(row.first_moment + first, 0);
    auto second_moment = load_pack<size>(row.second_moment + first, 0);
    auto master = load_pack<size>(row.master + first, 0);
    Pack<BFloat16, size> weight;
    for (int i = 0; i < size; ++i) {
      const float g = c.scale * gradient.values[i];
      const float m = c.beta1 * first_moment.values[i] + (1 - c.beta1) * g;
      const float v = c.beta2 * second_moment.values[i] + (1 - c.beta2) * g * g;
      const float w = keep * master.values[i] -
                      c.step_size * m / (sqrtf(v * c.inverse_correction2) + c.epsilon);
      first_moment.values[i] = m;
      second_moment.values[i] = v;
      master.values[i] = w;
      weight.values[i] = round_to<BFloat16>(w);
    }
    store_pack(row.first_moment + first, 0, first_moment);
    store_pack(row.second_moment + first, 0, second_moment);
    store_pack(row.master + first, 0, master);
    if (row.weight != nullptr) store_pack(row.weight + first, 0, weight);
  });
}

}  // namespace

template <typename Vendor>
void adamw_device(const AdamWFactors& factors, const DeviceTable<AdamWRow>& sections,
                  Stream& stream) {
  launch(find_coefficients, {.threads = kLanes}, stream, factors);
  launch(adamw_pieces, grid_of_pieces(sections), stream, factors.coefficients, sections);
}

template void adamw_device<ThisVendor>(const AdamWFactors&, const DeviceTable<AdamWRow>&, Stream&);

}  // namespace tessera
