#include "state/parameter_store.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/words.h"

namespace tessera {
namespace {

/// Returns the name of a unit's value in the programs. Without masters the weights are the masters
/// themselves. The sum over the ranks is taken in the memory of the main gradient, so both kinds of
/// gradient have one name.
std::string unit_value_name(const ParameterUnit& unit, Kept kind, bool has_masters) {
  switch (kind) {
    case Kept::weight:
      return unit.name;
    case Kept::gradient:
    case Kept::summed_gradient:
      return "gradient:" + unit.name;
    case Kept::master:
      return has_masters ? master_name(unit) : unit.name;
    case Kept::first_moment:
      return first_moment_name(unit);
    case Kept::second_moment:
      return second_moment_name(unit);
  }
  throw InternalError("a kind of kept tensors without a name");
}

/// Returns whether there are tensors of this kind of a unit's parameters.
bool has_tensor(const ParameterUnit& unit, Kept kind, OptimizerName updated_by) {
  switch (kind) {
    case Kept::weight:
    case Kept::master:
      return true;
    case Kept::gradient:
    case Kept::summed_gradient:
      return unit.has_gradients();
    case Kept::first_moment:
      return unit.has_moments();
    case Kept::second_moment:
      return unit.has_moments() && (!unit.has_gradients() || updated_by == OptimizerName::adamw);
  }
  throw InternalError("a kind of kept tensors that no rule knows");
}

}  // namespace

std::string KeptTensor::name() const {
  if (kind == Kept::weight) return parameter->name;
  return fmt::format("{}:{}", word(kind), parameter->name);
}

std::string KeptTensor::saved_group() const {
  TESSERA_CHECK(kind >= Kept::master, "{} is not saved", name());
  return kind == Kept::master ? "parameters" : "optimizer";
}

std::string KeptTensor::saved_name() const {
  return kind == Kept::master ? parameter->name : fmt::format("{}.{}", parameter->name, word(kind));
}

ParameterStore::ParameterStore(Executor& executor, const UpdateProgram& update, int update_number,
                               int rounding_number, const ParameterList& parameters)
    : executor_(executor),
      update_(update),
      update_number_(update_number),
      rounding_number_(rounding_number),
      parameters_(parameters.specs()),
      units_(parameters.units()),
      shard_({update.program.mesh(), update.program.rank()}, parameters, update.sharing) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto unit = static_cast<size_t>(parameters_[i].unit_index);
    for (size_t kind = 0; kind < kWordsOf<Kept>.size(); ++kind) {
      const auto kept = static_cast<Kept>(kind);
      if (!has_tensor(units_[unit], kept, update.updated_by[unit])) continue;
      tensors_.push_back({.parameter = &parameters_[i],
                          .index = i,
                          .kind = kept,
                          .dtype = kept == Kept::weight ? units_[unit].dtype
                                                        : accumulation_dtype(units_[unit].dtype),
                          .distribution = shard_.distribution(i, kept),
                          .pieces = shard_.pieces(i, kept)});
      if (shard_.holds(i)) tensors_.back().memory = memory_of(tensors_.back());
    }
  }
}

/// Returns this rank's memory of a tensor, in the executor's memory of its unit.
Tensor ParameterStore::memory_of(const KeptTensor& tensor) const {
  const ParameterSpec& spec = *tensor.parameter;
  const ParameterUnit& unit = units_[static_cast<size_t>(spec.unit_index)];
  const std::string name = value_name(tensor);
  const Tensor& unit_memory = executor_.tensor(name, update_number_);
  TESSERA_CHECK(unit_memory.dtype() == tensor.dtype, "{} is {}; expected {}", name,
                dtype_name(unit_memory.dtype()), dtype_name(tensor.dtype));
  if (!shard_.shared_out(tensor.index, tensor.kind)) {
    return unit_memory.view(spec.unit_offset, spec.piece_shape);
  }
  // The summed gradient is in the memory of the main gradient, and a master that is the weight
  // itself in that of the weights. These may hold more of the unit than this rank's piece.
  Kept memory_kind = tensor.kind;
  if (tensor.kind == Kept::summed_gradient) memory_kind = Kept::gradient;
  if (name == unit.name) memory_kind = Kept::weight;
  const ElementRun held = shard_.held(tensor.index, tensor.kind);
  const int64_t first = shard_.offset_in(tensor.index, memory_kind) + held.begin;
  return unit_memory.view(held.length == 0 ? 0 : first, {held.length});
}

std::vector<const KeptTensor*> ParameterStore::tensors(std::initializer_list<Kept> kinds) const {
  std::vector<const KeptTensor*> tensors = tensors_of_all_stages(kinds);
  std::erase_if(tensors, [&](const KeptTensor* tensor) { return !shard_.holds(tensor->index); });
  return tensors;
}

std::vector<const KeptTensor*> ParameterStore::tensors_of_all_stages(
    std::initializer_list<Kept> kinds) const {
  executor_.synchronize();  // the caller may read and write the memory
  std::vector<const KeptTensor*> tensors;
  for (const KeptTensor& tensor : tensors_) {
    if (std::ranges::find(kinds, tensor.kind) != kinds.end()) tensors.push_back(&tensor);
  }
  return tensors;
}

Tensor ParameterStore::memory(std::string_view parameter, Kept kind) const {
  const auto found = std::ranges::find(parameters_, parameter, &ParameterSpec::name);
  TESSERA_CHECK(found != parameters_.end(), "no parameter is named {}", parameter);
  executor_.synchronize();
  for (const KeptTensor& tensor : tensors_) {
    if (tensor.parameter == &*found && tensor.kind == kind) return tensor.memory;
  }
  return {};
}

std::string ParameterStore::value_name(const KeptTensor& tensor) const {
  const auto unit = static_cast<size_t>(tensor.parameter->unit_index);
  return unit_value_name(units_[unit], tensor.kind, shard_.has_masters(unit));
}

void ParameterStore::initialize(uint64_t seed, int threads) const {
  for (const KeptTensor* tensor : tensors({Kept::master})) {
    tensor->for_each_piece([&](const TensorPiece& piece, const Tensor& master) {
      const bool on_device = master.accelerator() != nullptr;
      const Tensor values = on_device ? Tensor(master.shape(), master.dtype()) : master;
      tessera::initialize(*tensor->parameter, seed, piece, values, threads);
      if (on_device) upload({values.raw(), static_cast<size_t>(values.bytes())}, master);
    });
  }
  masters_to_weights();
}

void ParameterStore::forget_errors() const {
  std::set<std::string> forgotten;
  for (int program = 0; program < std::ssize(executor_.plan().programs); ++program) {
    const std::vector<ValueInfo>& values = executor_.program(program).values();
    for (size_t id = 0; id < values.size(); ++id) {
      const ValueInfo& info = values[id];
      if (info.kind != ValueKind::state || !info.name.starts_with(kErrorPrefix)) continue;
      if (!forgotten.insert(info.name).second) continue;
      const Tensor& error = executor_.tensor(Value{static_cast<int>(id)}, program);
      if (error.accelerator() == nullptr) {
        error.fill_zero();
      } else {
        const Tensor zeros(error.shape(), error.dtype());
        zeros.fill_zero();
        upload({zeros.raw(), static_cast<size_t>(zeros.bytes())}, error);
      }
    }
  }
}

void ParameterStore::masters_to_weights() const {
  executor_.run({.segment = Segment::whole, .program = rounding_number_});
  executor_.synchronize();
}

}  // namespace tessera
