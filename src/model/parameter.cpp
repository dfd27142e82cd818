// The parameters of a model: their declaration in units, their first values, and the names of the
// values that training keeps for them. A *unit* is one flat parameter of a program. Each parameter
// of the model is a view of its unit, at its offset there.

#include "model/parameter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/parallel.h"
#include "base/random.h"
#include "base/round_up.h"
#include "program/view.h"
#include "tensor/alignment.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

// Two attempts of an element use random numbers so far apart, farther than any element's index.
constexpr uint64_t kAttemptStride = uint64_t{1} << 48;
constexpr uint64_t kMaxAttempts = 1000;  // each succeeds with a probability of at least 2/3

/// Returns the normal number of an element: the first attempt within the cutoff.
double truncated_normal(const CounterRandom& random, uint64_t element, double cutoff) {
  double value = random.normal(element);
  if (cutoff <= 0) return value;
  for (uint64_t attempt = 1; std::abs(value) > cutoff && attempt < kMaxAttempts; ++attempt) {
    value = random.normal(element + attempt * kAttemptStride);
  }
  return std::clamp(value, -cutoff, cutoff);
}

/// Returns the normal number of an element for a cutoff below 1. Few normal numbers are within such
/// a cutoff, so an attempt is a uniform number within it, accepted with the probability
/// exp(-value^2 / 2).
double narrowly_truncated_normal(const CounterRandom& random, uint64_t element, double cutoff) {
  double value = 0;
  for (uint64_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    value = cutoff * (2 * random.uniform(element + 2 * attempt * kAttemptStride) - 1);
    const double chance = random.uniform(element + (2 * attempt + 1) * kAttemptStride);
    if (chance < std::exp(-value * value / 2)) return value;
  }
  return value;
}

/// Returns the shape of a rank's piece. Throws Error, which names the parameter, if none fits.
Shape shape_of_piece(const Program& program, const std::string& name, const Shape& shape,
                     const Distribution& distribution) {
  try {
    return TensorPiece(program.mesh(), distribution, shape, program.rank()).shape();
  } catch (const Error& error) {
    throw Error("{} {} cannot be split over {}: {}", name, shape.text(), program.mesh().text(),
                error.what());
  }
}

/// Returns the distribution of a unit's flat memory, given that of its parameters.
Distribution flat_distribution(const Mesh& mesh, const Distribution& distribution) {
  Distribution flat(distribution.view());
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    const TypeOnAxis& type = distribution.on(axis);
    flat = flat.with(axis, type.split() ? sharded(0, {.kind = PieceKind::flat}) : type);
  }
  return flat;
}

/// Returns the part of a unit's name that lists the axes which split it: "/tensor".
std::string split_axes(const Mesh& mesh, const Distribution& flat) {
  std::string text;
  for (const Axis axis : mesh.axes_of(flat.view())) {
    if (flat.on(axis).split()) text += "/" + mesh.name(axis);
  }
  return text;
}

}  // namespace

bool is_hidden_matrix(ParameterRole role, const Shape& shape) {
  if (role == ParameterRole::expert) return shape.rank() == 3;
  const bool hidden = role == ParameterRole::matrix || role == ParameterRole::router ||
                      role == ParameterRole::router_hidden;
  return hidden && shape.rank() == 2;
}

void initialize(const ParameterSpec& spec, uint64_t seed, const TensorPiece& piece,
                const Tensor& values, int threads) {
  TESSERA_CHECK(piece.whole() == spec.shape && values.shape() == piece.shape(),
                "first values of {} {}: a piece {} of {}", spec.name, spec.shape.text(),
                values.shape().text(), piece.whole().text());
  const Initialization& rule = spec.initialization;
  const CounterRandom random(seed, spec.name);
  dispatch_wide(values.dtype(), [&](auto type) {
    using Wide = decltype(type);
    Wide* out = values.data<Wide>();
    constexpr int64_t kGrain = 4096;  // elements that are worth another thread
    parallel_ranges(threads, values.elements(), kGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t element = piece.element_of_whole(i);
        double drawn = rule.constant;
        if (rule.deviation > 0) {
          const bool narrow = rule.cutoff > 0 && rule.cutoff < 1;
          const auto draw = narrow ? narrowly_truncated_normal : truncated_normal;
          drawn = rule.deviation * draw(random, static_cast<uint64_t>(element), rule.cutoff);
        } else if (rule.last_element && element + 1 == piece.whole().elements()) {
          drawn = *rule.last_element;
        }
        // Rounded to f32 for every type, so an f64 model begins exactly as the f32 one.
        out[i] = static_cast<Wide>(static_cast<float>(drawn));
      }
    });
  });
}

Value ParameterList::declare(Builder& builder, std::string_view name, const Shape& shape,
                             const Distribution& distribution, DType dtype, ParameterRole role,
                             const Initialization& initialization, std::string unit,
                             ChangedBy changed_by) {
  const Program& program = builder.program();
  const std::string qualified = builder.qualified(name);
  const Shape piece = shape_of_piece(program, qualified, shape, distribution);
  const size_t index = find_unit(builder, qualified, unit, dtype, is_hidden_matrix(role, shape),
                                 distribution, changed_by);
  OpenUnit& open = open_[index];
  const int64_t offset = open.elements;
  // A multiple of kAlignment elements is a whole number of cache lines in every dtype.
  const int64_t padded = round_up(piece.elements(), kAlignment);
  open.elements += padded;
  if (open.is_cut) {
    TESSERA_CHECK(open.elements <= units_[index].elements, "the unit {} has {} elements, not {}",
                  units_[index].name, units_[index].elements, open.elements);
  } else {
    units_[index].elements = open.elements;
    builder.grow(open.whole, padded);
  }
  specs_.push_back({.name = qualified,
                    .shape = shape,
                    .distribution = distribution,
                    .piece_shape = piece,
                    .dtype = dtype,
                    .role = role,
                    .initialization = initialization,
                    .unit = std::move(unit),
                    .unit_index = static_cast<int>(index),
                    .unit_offset = offset});
  values_.push_back(view(builder, open.whole, offset, piece, distribution, qualified));
  return values_.back();
}

size_t ParameterList::find_unit(Builder& builder, const std::string& parameter,
                                const std::string& unit, DType dtype, bool matrices,
                                const Distribution& distribution, ChangedBy changed_by) {
  const Mesh& mesh = builder.program().mesh();
  const Distribution flat = flat_distribution(mesh, distribution);
  const std::string name = fmt::format("{}/{}{}{}", unit, dtype_name(dtype), split_axes(mesh, flat),
                                       matrices ? "/matrices" : "");
  const auto find = [&] { return std::ranges::find(units_, name, &ParameterUnit::name); };
  auto found = find();
  if (found == units_.end() && declare_cut_units(builder, unit)) found = find();
  const auto index = static_cast<size_t>(found - units_.begin());
  if (found != units_.end()) {
    TESSERA_CHECK(found->changed_by == changed_by, "'{}' is changed otherwise than the unit {}",
                  parameter, name);
    if (found->distribution == flat) return index;
    throw DistributionError(fmt::format(
        "'{}' would lie in the unit '{}', which is {}, as {}; expected parameters of one unit to "
        "lie alike, in one view of the mesh",
        parameter, name, found->distribution.text(mesh), flat.text(mesh)));
  }
  units_.push_back({.name = name,
                    .dtype = dtype,
                    .matrices = matrices,
                    .distribution = flat,
                    .value = builder.parameter(name, {{0}, dtype, flat}),
                    .gradient_distribution = {},
                    .changed_by = changed_by});
  open_.push_back({.whole = units_.back().value});
  return index;
}

bool ParameterList::declare_cut_units(Builder& builder, const std::string& part) {
  if (cut_units_ == nullptr) return false;
  const Program& program = builder.program();
  std::vector<CutUnit> declared;
  const DType matrices = dtype_of_matrices(cut_units_->units);
  for (size_t i = 0; i < cut_units_->units.size(); ++i) {
    const UnitPieces& pieces = cut_units_->pieces[i];
    if (!pieces.is_cut() || !cut_units_->units[i].name.starts_with(part + "/")) continue;
    ParameterUnit unit = cut_units_->units[i];
    TESSERA_CHECK(std::ranges::find(units_, unit.name, &ParameterUnit::name) == units_.end(),
                  "the unit {} is declared already", unit.name);
    const int64_t stored = pieces.weights.is_cut()
                               ? pieces.weights.run_of(program.mesh(), program.rank()).length
                               : unit.elements;
    unit.value = builder.parameter(
        unit.name, {{stored}, unit.dtype, pieces.weights.distribution(unit.distribution)});
    declared.push_back({.stored = unit.value,
                        .pieces = pieces,
                        .name = unit.name,
                        .may_be_quantised = unit.dtype == matrices});
    units_.push_back(std::move(unit));
  }
  if (declared.empty()) return false;
  const auto scope = builder.scope(part, Block::other);
  if (trains_ && !version_ && cut_units_->has_copies()) version_ = weights_version(builder);
  CutUnitOptions options = cut_units_->options;
  if (!trains_) options.weights_wire = {};  // an evaluation is that of the weights as they are
  for (const Value whole : use_cut_units(builder, declared, options, version_)) {
    open_.push_back({.whole = whole, .elements = 0, .is_cut = true});
  }
  return true;
}

void ParameterList::note_gradients(const Program& program) {
  for (size_t i = 0; i < units_.size(); ++i) {
    ParameterUnit& unit = units_[i];
    if (!unit.has_gradients() || open_[i].is_cut) continue;  // those of cut units are known
    const Value gradient = program.main_gradient(unit.value);
    TESSERA_CHECK(bool(gradient), "the unit {} has no gradient", unit.name);
    unit.gradient_distribution = program.spec(gradient).distribution;
  }
}

void ParameterList::note_stages(
    int stages, const std::function<bool(int stage, const ParameterSpec& parameter)>& has) {
  std::vector<bool> noted(units_.size(), false);
  for (const ParameterSpec& spec : specs_) {
    std::vector<int> having;
    for (int stage = 0; stage < stages; ++stage) {
      if (has(stage, spec)) having.push_back(stage);
    }
    const auto index = static_cast<size_t>(spec.unit_index);
    TESSERA_CHECK(!having.empty(), "no pipeline stage has {}", spec.name);
    TESSERA_CHECK(!noted[index] || units_[index].stages == having,
                  "{} is on other pipeline stages than its unit", spec.name);
    noted[index] = true;
    units_[index].stages = std::move(having);
  }
}

DType dtype_of_matrices(std::span<const ParameterUnit> units) {
  DType narrowest = DType::f64;
  for (const ParameterUnit& unit : units) {
    if (dtype_size(unit.dtype) < dtype_size(narrowest)) narrowest = unit.dtype;
  }
  return narrowest;
}

Value weights_version(Builder& builder) {
  return builder.state("weights_version", {{1}, DType::i32, {}});
}

std::string master_name(const ParameterUnit& unit) { return "master:" + unit.name; }

std::string first_moment_name(const ParameterUnit& unit) { return "first_moment:" + unit.name; }

std::string second_moment_name(const ParameterUnit& unit) { return "second_moment:" + unit.name; }

std::string working_name(std::string_view stored_name) {
  return fmt::format("working:{}", stored_name);
}

bool is_rounded(const ParameterUnit& unit) { return accumulation_dtype(unit.dtype) != unit.dtype; }

int64_t ParameterList::elements() const {
  int64_t total = 0;
  for (const ParameterSpec& spec : specs_) total += spec.shape.elements();
  return total;
}

}  // namespace tessera
