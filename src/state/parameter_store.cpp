#include "state/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"

namespace tessera {
namespace {

/// Parameters of one unit and one type, in the order of declaration.
struct Unit {
  DType dtype;
  std::vector<size_t> members;
  std::vector<int64_t> offsets;  // in elements, by member
  int64_t elements = 0;

  /// Whether the weights are a rounded copy of the masters.
  bool rounds() const { return accumulation_dtype(dtype) != dtype; }
};

std::vector<Unit> group_units(std::span<const ParameterSpec> specs) {
  std::vector<Unit> units;
  std::vector<std::pair<std::string, DType>> keys;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::pair key(specs[i].unit, specs[i].dtype);
    const auto found = std::ranges::find(keys, key);
    const auto at = static_cast<size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      units.push_back({specs[i].dtype, {}, {}, 0});
    }
    Unit& unit = units[at];
    unit.members.push_back(i);
    unit.offsets.push_back(unit.elements);
    unit.elements += MemoryLayout::rounded(specs[i].shape.elements());
  }
  return units;
}

}  // namespace

ParameterStore::ParameterStore(MemoryPool& pool, std::span<const ParameterSpec> specs)
    : parameters_(specs.size()) {
  for (const Unit& unit : group_units(specs)) {
    const DType wide = accumulation_dtype(unit.dtype);
    const Tensor master(pool, {unit.elements}, wide);
    const Tensor gradient(pool, {unit.elements}, wide);
    const Tensor first(pool, {unit.elements}, wide);
    const Tensor second(pool, {unit.elements}, wide);
    const Tensor weight = unit.rounds() ? Tensor(pool, {unit.elements}, unit.dtype) : master;
    for (const Tensor& zero : {gradient, first, second}) zero.fill_zero();
    gradients_.push_back(gradient);
    for (size_t i = 0; i < unit.members.size(); ++i) {
      const ParameterSpec& spec = specs[unit.members[i]];
      const auto view = [&](const Tensor& flat) { return flat.view(unit.offsets[i], spec.shape); };
      parameters_[unit.members[i]] = {spec,           view(weight), view(master),
                                      view(gradient), view(first),  view(second)};
    }
  }
}

std::vector<int64_t> ParameterStore::allocation_sizes(std::span<const ParameterSpec> specs) {
  std::vector<int64_t> sizes;
  for (const Unit& unit : group_units(specs)) {
    const int64_t wide = unit.elements * dtype_size(accumulation_dtype(unit.dtype));
    sizes.insert(sizes.end(), 4, wide);
    if (unit.rounds()) sizes.push_back(unit.elements * dtype_size(unit.dtype));
  }
  return sizes;
}

const ParameterState& ParameterStore::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      parameters_, [&](const ParameterState& state) { return state.spec.name == name; });
  TESSERA_CHECK(found != parameters_.end(), "no parameter is named {}", name);
  return *found;
}

void ParameterStore::initialize(uint64_t seed, int threads) const {
  for (const ParameterState& state : parameters_) {
    tessera::initialize(state.spec, seed, state.master, threads);
  }
  masters_to_weights();
}

void ParameterStore::masters_to_weights() const {
  for (const ParameterState& state : parameters_) {
    if (state.weight.raw() != state.master.raw()) convert(state.master, state.weight);
  }
}

void ParameterStore::zero_gradients(int threads) const {
  for (const Tensor& gradient : gradients_) {
    std::byte* memory = gradient.raw();
    parallel_ranges(threads, gradient.bytes(), 1 << 20, [=](int64_t begin, int64_t end, int) {
      std::memset(memory + begin, 0, static_cast<size_t>(end - begin));
    });
  }
}

}  // namespace tessera
