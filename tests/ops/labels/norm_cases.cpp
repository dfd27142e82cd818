#include <optional>

#include "ops/labels/cases.h"
#include "ops/norm/norm.h"
#include "ops/norm/scaled_residual.h"
#include "ops/norm/split_norm.h"

namespace tessera::testing {
namespace {

/// One form of a norm.
struct NormForm {
  NormKind kind = NormKind::rms;
  int rank = 2;
  bool weighted = true;
  bool residual = false;
  bool by_heads = false;
  bool rotated = false;
};

Shape x_shape(const LabelRanges& of, const NormForm& form) {
  const int64_t row = of("channel") * (form.by_heads ? of("head") : 1);
  if (form.rank == 1) return {row};
  return form.rank == 2 ? Shape{of("a"), row} : Shape{of("a"), of("b"), row};
}

void write_norm(Builder& builder, const LabelRanges& of, const NormForm& form) {
  const NormOptions options{.kind = form.kind, .group = form.by_heads ? of("channel") : 0};
  const Value x = declared(builder, x_shape(of, form));
  std::optional<Value> weight, residual;
  if (form.weighted) weight = declared(builder, {of("channel")});
  if (form.residual) residual = declared(builder, x_shape(of, form));
  if (form.rotated) {
    norm_and_rotary(builder, x, weight, options, declared(builder, {of("a"), of("r")}), 6);
  } else {
    norm(builder, x, weight, options, residual);
  }
}

std::string name_of(const NormForm& form, const std::string& suffix) {
  return (form.kind == NormKind::rms ? "rms_norm" : "layer_norm") +
         std::string(form.rotated ? "_rotary" : "") + suffix;
}

/// Adds a norm and its gradient, with a gradient of the sum and without.
void add_norm(std::vector<LabelCase>& cases, const NormForm& form) {
  const std::map<std::string, int64_t> extents{{"a", 4}, {"b", 6},   {"head", 4}, {"channel", 12},
                                               {"r", 4}, {"one", 1}, {"row", 1}};
  cases.push_back({name_of(form, ""), extents, [=](Builder& builder, const LabelRanges& of) {
                     write_norm(builder, of, form);
                   }});
  cases.push_back(
      {name_of(form, "_gradient"), extents, [=](Builder& builder, const LabelRanges& of) {
         write_norm(builder, of, form);
         write_gradient(builder);
       }});
  if (!form.residual) return;
  cases.push_back(
      {name_of(form, "_gradient"), extents, [=](Builder& builder, const LabelRanges& of) {
         write_norm(builder, of, form);
         write_gradient(builder, {0, form.kind == NormKind::layer ? 3U : 2U});
       }});
}

/// Adds the norm of a sum that another program has computed.
void add_norm_of_sum(std::vector<LabelCase>& cases, NormKind kind) {
  cases.push_back({name_of({.kind = kind}, ""),
                   {{"a", 4}, {"channel", 12}, {"one", 1}},
                   [=](Builder& builder, const LabelRanges& of) {
                     const Value sum = declared(builder, {of("a"), of("channel")});
                     norm_of_sum(builder, sum, declared(builder, {of("channel")}), {.kind = kind});
                   }});
}

void write_scaled(Builder& builder, const LabelRanges& of, bool streams) {
  const auto rows = [&] { return declared(builder, {of("a"), of("channel")}); };
  const auto scale = [&] {
    const Value own = declared(builder, {of("channel")});
    return ResidualScale{own, declared(builder, {of("channel")})};
  };
  const Value x = rows();
  const ResidualScale x_scaling = scale();
  std::optional<Value> stream;
  std::optional<ResidualScale> stream_scaling;
  if (streams) {
    stream = rows();
    stream_scaling = scale();
  }
  scaled_residual_norm(builder, x, x_scaling, stream, stream_scaling,
                       declared(builder, {of("channel")}), {});
}

/// Residual scaling, its gradient with a gradient of the stream and without, and the norm of a kept
/// stream.
void add_scaled(std::vector<LabelCase>& cases, bool streams) {
  const std::map<std::string, int64_t> extents{{"a", 4}, {"channel", 12}, {"one", 1}};
  cases.push_back({"scaled_residual_norm", extents, [=](Builder& builder, const LabelRanges& of) {
                     write_scaled(builder, of, streams);
                   }});
  for (const bool stream_gradient : {false, true}) {
    cases.push_back(
        {"scaled_residual_norm_gradient", extents, [=](Builder& builder, const LabelRanges& of) {
           write_scaled(builder, of, streams);
           stream_gradient ? write_gradient(builder, {0, 1}) : write_gradient(builder);
         }});
  }
  if (streams) return;
  cases.push_back({"scaled_residual_norm", extents, [=](Builder& builder, const LabelRanges& of) {
                     write_scaled(builder, of, streams);
                     const Node node = builder.program().nodes().back();
                     const std::vector<Value> kept{{}, node.outputs[1], {}};
                     node.operation->recompute(builder, node, node.inputs, kept);
                   }});
}

/// The steps of a norm whose rows of 12 columns are split, and their gradients.
void add_steps(std::vector<LabelCase>& cases, bool centred, bool weighted) {
  constexpr int64_t kColumns = 12;
  const auto add = [&](const std::string& operation, auto write, std::set<size_t> positive = {}) {
    for (const bool gradient : {false, true}) {
      std::set<size_t> positive_inputs;
      for (const size_t input : positive) positive_inputs.insert(input + (gradient ? 1 : 0));
      cases.push_back({operation + (gradient ? "_gradient" : ""),
                       {{"t", 4}, {"c", kColumns}},
                       [=](Builder& builder, const LabelRanges& of) {
                         write(builder, declared(builder, {of("t"), of("c")}), of);
                         if (gradient) write_gradient(builder);
                       },
                       {},
                       positive_inputs});
    }
  };
  const auto sums_of = [=](Builder& builder, const LabelRanges& of) {
    std::optional<Value> sums;
    if (centred) sums = declared(builder, {of("t")});
    return sums;
  };
  add("scale_rows",
      [=](Builder& builder, Value x, const LabelRanges& of) {
        std::optional<Value> weight;
        if (weighted) weight = declared(builder, {of("c")});
        scale_rows(builder, x, weight,
                   {.squares = declared(builder, {of("t")}),
                    .sums = sums_of(builder, of),
                    .columns = kColumns});
      },
      {1});
  if (weighted) return;
  add("row_squares", [=](Builder& builder, Value x, const LabelRanges& of) {
    row_squares(builder, x, sums_of(builder, of), kColumns);
  });
  if (centred) return;
  add("row_sums", [](Builder& builder, Value x, const LabelRanges&) { row_sums(builder, x); });
}

}  // namespace

std::vector<LabelCase> norm_label_cases() {
  std::vector<LabelCase> cases;
  for (const bool streams : {false, true}) add_scaled(cases, streams);
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) add_norm_of_sum(cases, kind);
  for (const bool centred : {false, true}) {
    for (const bool weighted : {false, true}) add_steps(cases, centred, weighted);
  }
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const bool weighted : {false, true}) {
      for (const bool by_heads : {false, true}) {
        for (const int rank : {1, 2, 3}) {
          for (const bool residual : {false, true}) {
            add_norm(cases, {kind, rank, weighted, residual, by_heads});
          }
        }
        add_norm(cases, {kind, 2, weighted, false, by_heads, true});
      }
    }
  }
  return cases;
}

}  // namespace tessera::testing
