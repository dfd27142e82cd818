/// Replays the programs of tests/fixtures/distribution, which another implementation of the
/// distribution types judged. tests/reference/distribution_types.py says what the file holds.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/words.h"
#include "program/conversion.h"
#include "program/stricter_programs.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

/// What our message says where a rule refuses, by the fixture's word for the rule.
constexpr auto kReasons = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"views", "cross one of them first"},
    {"invariant", "retype invariant -> replicated"},
    {"whole", "must be whole"},
    {"two labels", "two labels are split"},
    {"pieces", "expected the same pieces"},
    {"lacks label", "it lacks the label"},
    {"terms", "so each rank would add it"},
    {"linear", "the operation is not linear in it"},
    {"product", "it is multiplied by"},
    {"added", "it is added to"},
    {"order", "is split in the order"},
    {"other end", "; expected "},
    {"no conversion", "there is no such conversion"},
    {"not innermost", "join that first"},
});

/// Where we are stricter than the fixture's implementation (see stricter_programs.h).
struct Stricter {
  std::string_view message;
  const std::set<size_t>& programs;
};
const std::array<Stricter, 2>& stricter() {
  static const std::array<Stricter, 2> all{
      {{"such pieces may cut an element of", testing::programs_that_may_cut_elements},
       {"whose extents are known of no operand", testing::programs_with_unknown_sizes}}};
  return all;
}

std::string reason(std::string_view kind) {
  const auto found =
      std::ranges::find(kReasons, kind, &std::pair<std::string_view, std::string_view>::first);
  TESSERA_CHECK(found != kReasons.end(), "the fixture refuses for '{}'", kind);
  return std::string(found->second);
}

const Json& fixture() {
  static const Json json = Json::parse(std::ifstream(std::filesystem::path(TESSERA_SOURCE) /
                                                     "tests/fixtures/distribution/programs.json"));
  return json;
}

Axis axis_of(const Mesh& mesh, const std::string& letter) {
  if (letter == "t") return mesh.tensor();
  if (letter == "c") return mesh.context();
  if (letter == "d") return mesh.data()[0];
  return letter == "e" ? mesh.expert() : mesh.expert_data()[0];
}

Placement placement_of(const std::string& letter) {
  static const std::map<std::string, Placement> placements{{"I", Placement::invariant},
                                                           {"R", Placement::replicated},
                                                           {"S", Placement::sharded},
                                                           {"V", Placement::varying},
                                                           {"P", Placement::partial}};
  return placements.at(letter);
}

Pieces pieces_of(const Json& entry) {
  if (entry.is_string())
    return {.kind = known_word<PieceKind>(entry.get<std::string>(), "kind of pieces")};
  Pieces pieces{.kind = known_word<PieceKind>(entry[0].get<std::string>(), "kind of pieces")};
  if (pieces.kind == PieceKind::uneven) {
    pieces.sizes.assign(entry.begin() + 1, entry.end());
  } else {
    pieces.identity = entry[1];
  }
  return pieces;
}

/// A type as [axis, placement] or [axis, placement, dim, pieces, factor].
TypeOnAxis type_of(const Json& entry) {
  TypeOnAxis type{.placement = placement_of(entry[1])};
  if (!type.split()) return type;
  type.dim = entry[2];
  type.pieces = pieces_of(fixture()["pieces"][entry[3].get<size_t>()]);
  type.factor = entry[4];
  return type;
}

/// One program, and the values that the fixture's implementation gave it so far.
class Replay {
 public:
  explicit Replay(const Json& program)
      : mesh_({.tensor = program["mesh"][0],
               .context = program["mesh"][1],
               .data = {program["mesh"][2].get<int>()},
               .expert = program["mesh"][3]}) {}

  /// Judges an item, compares and goes on from what the fixture says.
  void take(const Json& item) {
    if (item[0] == "leaf") {
      values_.push_back({distribution(item[1]), item[2].get<bool>()});
    } else if (item[0] == "op") {
      take_operation(item);
    } else {
      take_conversion(item);
    }
  }

  /// The rules by which we refused something that the fixture accepts.
  const std::set<size_t>& stricter_rules() const { return stricter_; }

 private:
  struct Judged {
    Distribution distribution;
    bool differentiable = true;
  };

  Distribution distribution(const Json& place) const {
    const Json& entry = fixture()["distributions"][place.get<size_t>()];
    Distribution result(entry[0] == "dense" ? MeshView::dense : MeshView::expert);
    for (size_t i = 1; i < entry.size(); ++i) {
      result = result.with(axis_of(mesh_, entry[i][0]), type_of(entry[i]));
    }
    return result;
  }

  /// A value as an operand with a number of dims, each of one element: types alone decide.
  TypedOperand operand(size_t place, size_t rank) const {
    const std::vector<int64_t> ones(rank, 1);
    const Judged& value = values_[place];
    return {fmt::format("v{}", place),
            {Shape(ones), DType::f64, value.distribution},
            value.differentiable};
  }

  std::vector<Distribution> distributions(const Json& places) const {
    std::vector<Distribution> result;
    for (const Json& place : places) result.push_back(distribution(place));
    return result;
  }

  /// The same with the sizes of uneven pieces divided by what they have in common. They count
  /// elements of a dim here, and of a label in the fixture.
  std::vector<Distribution> with_reduced_sizes(std::vector<Distribution> distributions) const {
    for (Distribution& each : distributions) {
      for (const Axis axis : mesh_.axes_of(each.view())) {
        TypeOnAxis type = each.on(axis);
        int64_t divisor = 0;
        for (const int64_t size : type.pieces.sizes) divisor = std::gcd(divisor, size);
        for (int64_t& size : type.pieces.sizes) size /= divisor;
        each = each.with(axis, type);
      }
    }
    return distributions;
  }

  std::string text(const std::vector<Distribution>& distributions) const {
    std::vector<std::string> texts;
    for (const Distribution& each : distributions) {
      std::string orders;
      for (int dim = 0; dim < Shape::kMaximumRank; ++dim) {
        for (const Axis axis : each.order(dim)) orders += fmt::format(" {}", mesh_.name(axis));
        orders += ";";
      }
      texts.push_back(fmt::format("{} [{}]", each.text(mesh_), orders));
    }
    return fmt::format("{}", fmt::join(texts, " | "));
  }

  /// Compares what a rule gives with what it is to give.
  template <typename Rule>
  void expect_results(const Json& item, const std::vector<Distribution>& expected,
                      const Rule& rule) const {
    try {
      const std::vector<Distribution> results = rule();
      EXPECT_TRUE(with_reduced_sizes(results) == with_reduced_sizes(expected))
          << item << " gives " << text(results) << ", expected " << text(expected);
    } catch (const DistributionError& error) {
      ADD_FAILURE() << item << " is refused: " << error.what() << "; expected " << text(expected);
    }
  }

  template <typename Rule>
  void expect_refusal(const Json& item, const std::string& kind, const Rule& rule) const {
    try {
      ADD_FAILURE() << item << " gives " << text(rule()) << ", expected a refusal: " << kind;
    } catch (const DistributionError& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason(kind))) << item;
    }
  }

  /// Compares what a rule gives with a verdict: a refusal, "!kind", or distributions.
  template <typename Rule>
  void expect_verdict(const Json& item, const Json& verdict, const Rule& rule) const {
    if (verdict.is_string()) {
      expect_refusal(item, verdict.get<std::string>().substr(1), rule);
    } else {
      expect_results(item, distributions(verdict), rule);
    }
  }

  void take_operation(const Json& item) {
    const Labels labels =
        parse_labels(fixture()["labels"][item[1].get<size_t>()].get<std::string>());
    std::vector<TypedOperand> operands;
    for (size_t k = 0; k < labels.inputs.size(); ++k) {
      operands.push_back(operand(item[2][k], labels.inputs[k].dims.size()));
    }
    const Json& verdict = item[3];
    const auto rule = [&] { return derive_distributions(mesh_, "operation", labels, operands); };
    if (!is_stricter(verdict, rule)) expect_verdict(item, verdict, rule);
    if (verdict.is_string()) return;
    const bool differentiable = std::ranges::any_of(operands, &TypedOperand::differentiable);
    for (Distribution& output : distributions(verdict)) {
      values_.push_back({std::move(output), differentiable});
    }
  }

  /// Whether a refusal is one that the fixture's implementation does not know, in a program that is
  /// listed if it accepts it.
  template <typename Rule>
  bool is_stricter(const Json& verdict, const Rule& rule) {
    try {
      rule();
    } catch (const DistributionError& error) {
      for (size_t i = 0; i < stricter().size(); ++i) {
        if (std::string_view(error.what()).find(stricter()[i].message) == std::string::npos)
          continue;
        if (!verdict.is_string()) stricter_.insert(i);
        return true;
      }
    }
    return false;
  }

  void take_conversion(const Json& item) {
    const TypedOperand value = operand(item[1], 0);
    const Conversion conversion{
        axis_of(mesh_, item[2]), placement_of(item[3]),
        item[4].is_string() ? TypeOnAxis{.placement = placement_of(item[4])} : type_of(item[4])};
    const Json& verdict = item[5];
    const auto rule = [&] { return std::vector{converted(mesh_, value, conversion)}; };
    if (!take_known_difference(item, value, conversion, rule)) expect_verdict(item, verdict, rule);
    if (verdict.is_string()) return;
    values_.push_back({distribution(verdict[0]), value.differentiable});
  }

  /// Compares with what we do on purpose where the fixture's implementation does something else.
  /// Says whether this is such a conversion.
  template <typename Rule>
  bool take_known_difference(const Json& item, const TypedOperand& value,
                             const Conversion& conversion, const Rule& rule) const {
    const bool to_invariant = conversion.to.placement == Placement::invariant;
    const bool accepted = !item[5].is_string();
    if (conversion.from == Placement::invariant && to_invariant && (accepted || item.size() > 6)) {
      // It does nothing, so whoever wrote it expected another type.
      expect_refusal(item, "no conversion", rule);
      return true;
    }
    if (item.size() > 6) {
      // A type knows how often its split repeats, so pieces of an inner factor are joined too. A
      // value without gradient is invariant where it is replicated.
      expect_verdict(item, item[6], rule);
      return true;
    }
    if (conversion.from == Placement::replicated && to_invariant && !value.differentiable &&
        accepted) {
      // The other implementation leaves its type as it is: the two are the same there.
      expect_results(item, {distribution(item[5][0]).with(conversion.axis, invariant())}, rule);
      return true;
    }
    return false;
  }

  Mesh mesh_;
  std::vector<Judged> values_;
  std::set<size_t> stricter_;
};

TEST(DistributionFixture, IsJudgedAlike) {
  const Json& programs = fixture()["programs"];
  std::array<std::set<size_t>, 2> found;
  for (size_t i = 0; i < programs.size(); ++i) {
    SCOPED_TRACE(fmt::format("program {}", i));
    Replay replay(programs[i]);
    for (const Json& item : programs[i]["items"]) replay.take(item);
    for (const size_t rule : replay.stricter_rules()) found[rule].insert(i);
  }
  for (size_t rule = 0; rule < found.size(); ++rule) {
    EXPECT_EQ(found[rule], stricter()[rule].programs)
        << stricter()[rule].message << ": " << fmt::format("{}", fmt::join(found[rule], ", "));
  }
}

/// How often each refusal, each conversion that is accepted, and each placement of an operation's
/// outputs occurs.
std::map<std::string, int> occurrences() {
  std::map<std::string, int> counts;
  for (const Json& program : fixture()["programs"]) {
    for (const Json& item : program["items"]) {
      if (item[0] == "leaf") continue;
      const Json& verdict = item[item[0] == "op" ? 3 : 5];
      if (verdict.is_string()) {
        ++counts[verdict];
      } else if (item[0] == "convert") {
        const Json& to = item[4].is_string() ? item[4] : item[4][1];
        ++counts[item[3].get<std::string>() + to.get<std::string>()];
      } else {
        std::set<std::string> placements;
        for (const Json& place : verdict) {
          const Json& distribution = fixture()["distributions"][place.get<size_t>()];
          for (size_t i = 1; i < distribution.size(); ++i) placements.insert(distribution[i][1]);
        }
        for (const std::string& placement : placements) ++counts[placement];
      }
    }
  }
  return counts;
}

TEST(DistributionFixture, BreaksAndKeepsEachRuleOften) {
  const std::map<std::string, int> counts = occurrences();
  const auto count = [&](const std::string& what) {
    const auto found = counts.find(what);
    return found == counts.end() ? 0 : found->second;
  };
  for (const auto& [kind, message] : kReasons) {
    EXPECT_GE(count(fmt::format("!{}", kind)), 60) << kind;
  }
  EXPECT_GE(count("!inner factor"), 30);
  for (const char* conversion :
       {"IR", "IS", "IP", "RI", "RS", "RP", "PI", "PR", "PS", "SI", "SR", "SP", "SS", "VR", "PV"}) {
    EXPECT_GE(count(conversion), 25) << conversion;
  }
  for (const char* placement : {"R", "S", "V", "P"}) EXPECT_GE(count(placement), 400) << placement;
}

}  // namespace
}  // namespace tessera
