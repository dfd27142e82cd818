#include "ops/norm/norm_team.h"

namespace tessera {
namespace {

/// Normalises one row per team, in these steps:
///   1. load the row, add the residual if there is one, and write the sum;
///   2. take the statistics: the mean square, or the mean and then the variance;
///   3. write the normalised row, rotated if `rotates`.
/// Steps load a row again if it does not fit into the team's registers. Such rows are not rotated
/// here, because a pack and its partner may be in different cuts (teams, packs, cuts: norm_team.h).
template <typename T, int pack_size, typename Team, bool fits, bool rotates>
__global__ void __launch_bounds__(kMostRowThreads)
    norm_rows(NormForward<T> norm, NormRotation<T> rotation) {
  static_assert(fits || !rotates);
  const int packs = static_cast<int>(norm.width / pack_size);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Team::count() + Team::index();
  if (row >= norm.rows) return;  // all threads of the team do
  const int64_t start = row * norm.width;
  const T* x = norm.x + start;
  HeldPacks<Team, T, pack_size> values;
  [[maybe_unused]] const RowRotation row_rotation(rotation, start);
  [[maybe_unused]] HeldPacks<Team, T, pack_size> partners;
  if constexpr (rotates) {
    for_held<Team>(0, packs, [&](int held, int p) {
      partners.packs[held] = load_pack<pack_size>(x, row_rotation.template partner<pack_size>(p));
    });
  }

  float total = 0;
  for_each_cut<Team, fits>(packs, [&](int cut) {
    values.load(x, cut, packs);
    if (norm.residual != nullptr) {
      HeldPacks<Team, T, pack_size> added;
      added.load(norm.residual + start, cut, packs);
      for_held<Team>(cut, packs, [&](int held, int p) {
        for (int i = 0; i < pack_size; ++i) {
          T& value = values.packs[held].values[i];
          value = round_to<T>(static_cast<float>(value) +
                              static_cast<float>(added.packs[held].values[i]));
        }
        store_pack(norm.sum + start, p, values.packs[held]);
      });
    }
    for_held<Team>(cut, packs, [&](int held, int) {
      for (int i = 0; i < pack_size; ++i) {
        const auto value = static_cast<float>(values.packs[held].values[i]);
        total += norm.mean != nullptr ? value : value * value;
      }
    });
  });
  if constexpr (rotates) Team::synchronize();  // the output may overwrite x
  if (norm.residual != nullptr) x = norm.sum + start;
  const auto width = static_cast<float>(norm.width);
  float mean = 0;
  float row_sum = Team::sum(total);  // of squares; of a layer norm, of elements
  if (norm.mean != nullptr) {
    mean = row_sum / width;
    total = 0;
    for_each_cut<Team, fits>(packs, [&](int cut) {
      if constexpr (!fits) values.load(x, cut, packs);
      for_held<Team>(cut, packs, [&](int held, int) {
        for (int i = 0; i < pack_size; ++i) {
          const float centred = static_cast<float>(values.packs[held].values[i]) - mean;
          total += centred * centred;
        }
      });
    });
    row_sum = Team::sum(total);  // of squares
  }
  const float inverse = 1.0f / sqrtf(row_sum / width + static_cast<float>(norm.epsilon));
  if (Team::member() == 0) {
    norm.inverse[row] = inverse;
    if (norm.mean != nullptr) norm.mean[row] = mean;
  }
  const auto normalised = [&](const Pack<T, pack_size>& pack, int p) {
    const Pack<float, pack_size> weights = weights_of_pack<pack_size>(norm.weight, p);
    Pack<T, pack_size> results;
    for (int i = 0; i < pack_size; ++i) {
      const auto value = static_cast<float>(pack.values[i]);
      results.values[i] = round_to<T>((value - mean) * inverse * weights.values[i]);
    }
    return results;
  };
  for_each_cut<Team, fits>(packs, [&](int cut) {
    if constexpr (!fits) values.load(x, cut, packs);
    for_held<Team>(cut, packs, [&](int held, int p) {
      Pack<T, pack_size> results = normalised(values.packs[held], p);
      if constexpr (rotates) {
        const int partner = row_rotation.template partner<pack_size>(p);
        results = row_rotation.rotated(p, results, normalised(partners.packs[held], partner), 1.0f);
      }
      store_pack(norm.output + start, p, results);
    });
  });
}

}  // namespace

template <typename Vendor, typename T>
void norm_device(const NormForward<T>& norm, const NormRotation<T>& rotation, Stream& stream) {
  bool rotation_done = rotation.table == nullptr;  // nothing is left to rotate
  for_row_width<T>(
      norm.rows, norm.width, [&](auto pack_size, auto team, auto fits, const Grid& grid) {
        using Team = decltype(team);
        if constexpr (fits) {
          if (!rotation_done && rotates_packs(rotation, pack_size)) {
            rotation_done = true;
            return launch(norm_rows<T, pack_size, Team, true, true>, grid, stream, norm, rotation);
          }
        }
        launch(norm_rows<T, pack_size, Team, fits, false>, grid, stream, norm, rotation);
      });
  if (!rotation_done) {
    rotary_device<Vendor>(rotation.arguments(false, norm.output, norm.output), stream);
  }
}

template void norm_device<ThisVendor>(const NormForward<float>&, const NormRotation<float>&,
                                      Stream&);
template void norm_device<ThisVendor>(const NormForward<BFloat16>&, const NormRotation<BFloat16>&,
                                      Stream&);

}  // namespace tessera
