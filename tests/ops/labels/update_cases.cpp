#include <algorithm>

#include "ops/labels/cases.h"
#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/kept_values.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_passes.h"
#include "ops/update/newton_schulz.h"
#include "ops/update/sum_of_squares.h"

namespace tessera::testing {
namespace {

/// The units f0, f1 and so on, of 6 elements each.
std::string unit_label(size_t unit) { return fmt::format("f{}", unit); }

std::map<std::string, int64_t> extents_of_units(size_t units) {
  std::map<std::string, int64_t> extents{{"u", 1}};
  for (size_t i = 0; i < units; ++i) extents[unit_label(i)] = 6;
  return extents;
}

/// The elements [begin, end) of the whole unit, as a rank sees them.
Section own_section(const LabelRanges& of, size_t unit, int64_t begin, int64_t end) {
  const std::string label = unit_label(unit);
  const auto own_offset = [&](int64_t element) {
    return std::clamp(element, of.begin(label), of.end(label)) - of.begin(label);
  };
  return {static_cast<int>(unit), own_offset(begin), own_offset(end)};
}

void add_adamw(std::vector<LabelCase>& cases, size_t units, bool rounds) {
  const size_t values = rounds ? 5 : 4;
  const DType wide = rounds ? DType::f32 : DType::f64;
  const auto write = [=](Builder& builder, const LabelRanges& of) {
    const Value scale = declared(builder, {1});
    const Value rate = declared(builder, {1});
    const Value step = declared(builder, {1});
    std::vector<AdamWUnit> all;
    std::vector<AdamWSection> sections;
    for (size_t i = 0; i < units; ++i) {
      const auto value = [&](DType dtype) { return declared(builder, {of(unit_label(i))}, dtype); };
      AdamWUnit unit{value(wide), value(wide), value(wide), value(wide), {}};
      if (rounds) unit.weight = value(DType::bf16);
      all.push_back(unit);
      sections.push_back({own_section(of, i, 0, 4), true});
      sections.push_back({own_section(of, i, 4, 6), false});
    }
    adamw(builder, {scale, rate, step}, all, sections, {.weight_decay = 0.1});
  };
  std::set<size_t> positive{0, 1, 2};
  for (size_t i = 0; i < units; ++i) positive.insert(3 + i * values + 2);  // second moments
  cases.push_back({"adamw", extents_of_units(units), write, {}, positive});
}

void add_sum_of_squares(std::vector<LabelCase>& cases, size_t units) {
  const auto sums = static_cast<int64_t>(2 * units);
  std::map<std::string, int64_t> extents = extents_of_units(units);
  extents["u"] = sums;
  cases.push_back({"sum_of_squares", extents, [=](Builder& builder, const LabelRanges& of) {
                     std::vector<Value> all;
                     std::vector<SquaresSection> sections;
                     const auto add = [&](const Section& section) {
                       sections.push_back({section, std::ssize(sections)});
                     };
                     for (size_t i = 0; i < units; ++i) {
                       all.push_back(declared(builder, {of(unit_label(i))}));
                       add(own_section(of, i, 0, 2));
                       add(own_section(of, i, 3, 6));  // element 2 is padding
                     }
                     sum_of_squares(builder, all, sections, sums);
                   }});
}

void add_sums(std::vector<LabelCase>& cases, size_t units) {
  cases.push_back(
      {"add_in_order", extents_of_units(units), [=](Builder& builder, const LabelRanges& of) {
         std::vector<Value> all;
         std::vector<Section> sections;
         for (size_t i = 0; i < units; ++i) {
           all.push_back(declared(builder, {of(unit_label(i))}, DType::f64));
           sections.push_back(own_section(of, i, 0, 6));
         }
         add_in_order(builder, all, sections);
       }});
}

void add_rounding(std::vector<LabelCase>& cases, size_t units) {
  cases.push_back(
      {"round_to_weights", extents_of_units(units), [=](Builder& builder, const LabelRanges& of) {
         std::vector<Value> masters, weights;
         for (size_t i = 0; i < units; ++i) {
           const Shape shape{of(unit_label(i))};
           masters.push_back(declared(builder, shape, DType::f32));
           weights.push_back(declared(builder, shape, DType::bf16));
         }
         round_to_weights(builder, masters, weights);
       }});
}

void add_copies(std::vector<LabelCase>& cases, size_t units) {
  for (const bool scaled : {false, true}) {
    cases.push_back(
        {"copy_kept", extents_of_units(units), [=](Builder& builder, const LabelRanges& of) {
           std::optional<Value> scale;
           if (scaled) scale = declared(builder, {1});
           std::vector<Value> sources, targets;
           for (std::vector<Value>* values : {&sources, &targets}) {
             for (size_t i = 0; i < units; ++i) {
               values->push_back(declared(builder, {of(unit_label(i))}));
             }
           }
           copy_kept(builder, sources, targets, scale);
         }});
  }
}

/// Two matrices, or two of experts, of which one has more rows than columns.
std::map<std::string, int64_t> extents_of_matrices(bool experts) {
  std::map<std::string, int64_t> extents{{"u", 1}, {"r0", 3}, {"c0", 4}, {"r1", 5}, {"c1", 2}};
  if (experts) extents.merge(std::map<std::string, int64_t>{{"e0", 4}, {"e1", 4}});
  return extents;
}

Shape shape_of_matrix(const LabelRanges& of, size_t number) {
  const int64_t rows = of(fmt::format("r{}", number)), columns = of(fmt::format("c{}", number));
  const std::string expert = fmt::format("e{}", number);
  return of.has(expert) ? Shape{of(expert), rows, columns} : Shape{rows, columns};
}

void add_muon(std::vector<LabelCase>& cases, bool experts) {
  const auto extents = extents_of_matrices(experts);
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const DType wide = accumulation_dtype(dtype);
    cases.push_back(
        {"muon_momentum", extents, [=](Builder& builder, const LabelRanges& of) {
           const Value scale = declared(builder, {1});
           std::vector<MuonMomentum> momenta;
           for (const size_t i : {0, 1}) {
             const Shape shape = shape_of_matrix(of, i);
             momenta.push_back({declared(builder, shape, wide), declared(builder, shape, wide)});
           }
           muon_momentum(builder, scale, momenta, 0.9, dtype);
         }});
    cases.push_back({"muon_update", extents, [=](Builder& builder, const LabelRanges& of) {
                       const Value scale = declared(builder, {1});
                       const Value rate = declared(builder, {1});
                       std::vector<MuonMatrix> matrices;
                       for (const size_t i : {0, 1}) {
                         const Shape shape = shape_of_matrix(of, i);
                         matrices.push_back({.update = declared(builder, shape, dtype),
                                             .master = declared(builder, shape, wide),
                                             .weight = {},
                                             .factor = 0.5 + static_cast<double>(i),
                                             .decays = i == 0});
                         if (wide != dtype) {
                           matrices.back().weight = declared(builder, shape, dtype);
                         }
                       }
                       muon_update(builder, {scale, rate}, matrices, 0.1);
                     }});
  }
  const auto declare_both = [](Builder& builder, const LabelRanges& of) {
    return std::vector{declared(builder, shape_of_matrix(of, 0)),
                       declared(builder, shape_of_matrix(of, 1))};
  };
  cases.push_back({"newton_schulz", extents, [=](Builder& builder, const LabelRanges& of) {
                     newton_schulz(builder, declare_both(builder, of), 2);
                   }});
  cases.push_back({"muon_measures", extents, [=](Builder& builder, const LabelRanges& of) {
                     std::vector<MeasuredUpdate> updates;
                     for (const Value value : declare_both(builder, of)) {
                       updates.push_back({value, 0.3});
                     }
                     muon_measures(builder, updates);
                   }});
}

void add_running_sums(std::vector<LabelCase>& cases) {
  const std::map<std::string, int64_t> extents{{"a", 4}, {"b", 6}};
  for (const bool by_element : {false, true}) {
    cases.push_back({"running_sum", extents, [=](Builder& builder, const LabelRanges& of) {
                       const Shape shape{of("a"), of("b")};
                       const Value sum = declared(builder, by_element ? shape : Shape{1});
                       add_to_sum(builder, sum, declared(builder, shape));
                     }});
    cases.push_back({"running_sum",
                     extents,
                     [=](Builder& builder, const LabelRanges& of) {
                       const Shape shape{of("a"), of("b")};
                       const Value sum = declared(builder, by_element ? shape : Shape{1});
                       add_to_sum(builder, sum, declared(builder, shape, DType::i32));
                     },
                     {{1, given_values({"a", "b"}, [](int64_t i) { return 5 * i - 2; })}}});
  }
  for (const bool by_element : {false, true}) {
    cases.push_back({"running_sum", extents, [=](Builder& builder, const LabelRanges& of) {
                       const Value sum = declared(builder, {by_element ? of("a") : 1});
                       add_to_sum(builder, sum, declared(builder, {of("a")}));
                     }});
    cases.back().single = !by_element;  // a sum of one element takes all of a value
  }
}

}  // namespace

std::vector<LabelCase> update_label_cases() {
  std::vector<LabelCase> cases;
  for (const size_t units : {1, 3}) {
    add_adamw(cases, units, false);
    add_adamw(cases, units, true);
    add_sum_of_squares(cases, units);
    add_sums(cases, units);
    add_rounding(cases, units);
    add_copies(cases, units);
  }
  for (const bool experts : {false, true}) add_muon(cases, experts);
  add_running_sums(cases);
  cases.push_back({"zero", {{"a", 4}, {"b", 6}}, [](Builder& builder, const LabelRanges& of) {
                     const Value flat = declared(builder, {of("a")});
                     const Value matrix = declared(builder, {of("a"), of("b")}, DType::f32);
                     zero(builder, std::vector{flat, matrix});
                   }});
  cases.push_back({"clip_gradients",
                   {{"u", 1}},
                   [](Builder& builder, const LabelRanges&) {
                     const Value squares = declared(builder, {1});
                     const Value limit = declared(builder, {1});
                     clip_gradients(builder, squares, limit, std::vector{declared(builder, {1})});
                   },
                   {},
                   {0, 1}});
  return cases;
}

}  // namespace tessera::testing
