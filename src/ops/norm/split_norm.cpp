#include "ops/norm/split_norm.h"

#include "comm/piece_indices.h"
#include "ops/collective/convert.h"
#include "ops/norm/split_norm_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// split_norm() makes the program
//   sums = row_sums(x)               for a layer norm, then summed over the ranks
//   squares = row_squares(x, sums)   then summed over the ranks
//   output = scale_rows(x, squares, sums, weight)
// Each of these operations follows its gradient below. The kernels are in split_norm_kernels.h.

/// The attributes of the operations. `centred` is true if the mean is subtracted.
struct Scaling {
  bool centred = false;
  bool weighted = false;
  int64_t columns = 0;
  double epsilon = 0;
};

/// The base of the operations: checks of their operands, and the kernels' view of rows.
class RowOperation : public Operation {
 public:
  explicit RowOperation(const Scaling& scaling = {}) : scaling_(scaling) {}
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{}: devices cannot norm rows that ranks share yet; run on the processor, or with one rank "
        "of the axis that splits them",
        name());
  }

 protected:
  void require_rows(const Spec& x) const {
    TESSERA_EXPECT(*this, x.shape.rank() == 2 && is_floating(x.dtype), "x is {}", text_of(x));
  }
  /// Checks a vector with a number for each row of x: [tokens], in the accumulation type.
  void require_row_numbers(const Spec& numbers, const Spec& x, std::string_view noun) const {
    TESSERA_EXPECT(*this, is_like(numbers, {{x.shape[0]}, accumulation_dtype(x.dtype)}),
                   "{} of {} for x of {}", noun, text_of(numbers), text_of(x));
  }
  static Spec row_numbers(const Spec& x) { return {{x.shape[0]}, accumulation_dtype(x.dtype), {}}; }

  template <typename T>
  SplitRows<T> rows_of(const Execution& execution, const Tensor& x) const {
    SplitRows<T> rows{};
    rows.threads = execution.runtime.threads();
    rows.rows = x.shape()[0];
    rows.width = x.shape()[1];
    rows.columns = static_cast<double>(scaling_.columns);
    rows.epsilon = scaling_.epsilon;
    rows.x = x.data<T>();
    return rows;
  }

  /// Sets the operands of scale_rows(), which are the inputs after x. `input` is the index of x.
  template <typename T>
  void set_operands(SplitRows<T>& rows, std::span<const Tensor> inputs, size_t input) const {
    rows.squares = inputs[++input].data<Compute<T>>();
    if (scaling_.centred) rows.sums = inputs[++input].data<Compute<T>>();
    if (scaling_.weighted) rows.weight = inputs[++input].data<Compute<T>>();
  }

  Scaling scaling_;
};

/// input: the gradient of the sums [tokens]. output: the gradient of x.
class RowSumsGradient final : public RowOperation {
 public:
  explicit RowSumsGradient(Spec x) : x_(std::move(x)) {}
  std::string_view name() const override { return "row_sums_gradient"; }
  std::string labels(std::span<const Spec>) const override { return "~t, ?t c -> t c"; }
  std::vector<Spec> shape_operands() const override { return {x_}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    require_row_numbers(inputs[0], x_, "a gradient");
    return {{x_.shape, x_.dtype}};
  }
  void run(const Execution& execution) const override {
    dispatch_floating(x_.dtype, [&]<typename T>(T) {
      const auto* const gradient = execution.inputs[0].data<Compute<T>>();
      const SplitRows<T> rows = rows_of<T>(execution, execution.outputs[0]);
      T* const result = execution.outputs[0].data<T>();
      // result[r, i] = gradient[r]
      rows.for_each_row([=](int64_t row, const T*) {
        std::fill_n(result + row * rows.width, rows.width, static_cast<T>(gradient[row]));
      });
    });
  }

 private:
  Spec x_;
};

/// input: x [tokens, columns]. output: [tokens].
class RowSums final : public RowOperation {
 public:
  std::string_view name() const override { return "row_sums"; }
  std::string labels(std::span<const Spec>) const override { return "~t c -> t"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    require_rows(inputs[0]);
    return {row_numbers(inputs[0])};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return {builder.apply_single(std::make_shared<RowSumsGradient>(builder.spec(self.inputs[0])),
                                 {output_gradients[0]})};
  }
  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      sum_rows(rows_of<T>(execution, execution.inputs[0]), execution.outputs[0].data<Compute<T>>());
    });
  }
};

/// inputs: the gradient of the squares [tokens], x [tokens, columns] and, if the norm is centred,
/// the sums of x [tokens]. output: the gradient of x.
class RowSquaresGradient final : public RowOperation {
 public:
  using RowOperation::RowOperation;
  std::string_view name() const override { return "row_squares_gradient"; }
  std::string labels(std::span<const Spec>) const override {
    return scaling_.centred ? "~t, t c, t -> t c" : "~t, ~t c -> t c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2U + scaling_.centred, "{} inputs", inputs.size());
    require_rows(inputs[1]);
    require_row_numbers(inputs[0], inputs[1], "a gradient");
    return {inputs[1]};
  }
  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[1].dtype(), [&]<typename T>(T) {
      SplitRows<T> rows = rows_of<T>(execution, execution.inputs[1]);
      if (scaling_.centred) rows.sums = execution.inputs[2].data<Compute<T>>();
      square_rows_gradient(rows, execution.inputs[0].data<Compute<T>>(),
                           execution.outputs[0].data<T>());
    });
  }
};

/// inputs: x [tokens, columns] and, if the norm is centred, its sums [tokens]. output: [tokens].
class RowSquares final : public RowOperation {
 public:
  using RowOperation::RowOperation;
  std::string_view name() const override { return "row_squares"; }
  std::string labels(std::span<const Spec>) const override {
    return scaling_.centred ? "t c, t -> t" : "t c -> t";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1U + scaling_.centred && scaling_.columns > 0,
                   "{} inputs, {} columns", inputs.size(), scaling_.columns);
    require_rows(inputs[0]);
    if (scaling_.centred) require_row_numbers(inputs[1], inputs[0], "sums");
    return {row_numbers(inputs[0])};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> inputs{output_gradients[0], self.inputs[0]};
    if (scaling_.centred) inputs.push_back(self.inputs[1]);
    std::vector<Value> gradients(self.inputs.size());
    gradients[0] =
        builder.apply_single(std::make_shared<RowSquaresGradient>(scaling_), std::move(inputs));
    return gradients;
  }
  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      SplitRows<T> rows = rows_of<T>(execution, execution.inputs[0]);
      if (scaling_.centred) rows.sums = execution.inputs[1].data<Compute<T>>();
      square_rows(rows, execution.outputs[0].data<Compute<T>>());
    });
  }
};

/// inputs: the output's gradient [tokens, columns], then the inputs of ScaleRows. outputs: the
/// gradients of the inputs of ScaleRows.
class ScaleRowsGradient final : public RowOperation {
 public:
  using RowOperation::RowOperation;
  std::string_view name() const override { return "scale_rows_gradient"; }
  std::string labels(std::span<const Spec>) const override {
    const std::string optional_labels =
        std::string(scaling_.centred ? ", t" : "") + (scaling_.weighted ? ", c" : "");
    return "~t c, t c, t" + optional_labels + " -> t c, t" + optional_labels;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this,
        inputs.size() == 3U + scaling_.centred + scaling_.weighted && is_like(inputs[0], inputs[1]),
        "a gradient that fits x is needed");
    return {inputs.begin() + 1, inputs.end()};
  }
  int in_place_input(int output) const override { return output == 0 ? 0 : -1; }
  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[1].dtype(), [&]<typename T>(T) {
      SplitRows<T> rows = rows_of<T>(execution, execution.inputs[1]);
      set_operands(rows, execution.inputs, 1);
      size_t output = 1;
      ScaledRowsGradients<T> gradients{};
      gradients.output_gradient = execution.inputs[0].data<T>();
      gradients.x_gradient = execution.outputs[0].data<T>();
      gradients.squares_gradient = execution.outputs[output].data<Compute<T>>();
      if (scaling_.centred) {
        gradients.sums_gradient = execution.outputs[++output].data<Compute<T>>();
      }
      if (scaling_.weighted) {
        gradients.weight_gradient = execution.outputs[++output].data<Compute<T>>();
      }
      scaled_rows_gradient(rows, gradients);
    });
  }
};

/// inputs: x [tokens, columns], squares [tokens], sums [tokens] if centred, weight [columns] if
/// weighted. output: as x.
class ScaleRows final : public RowOperation {
 public:
  using RowOperation::RowOperation;
  std::string_view name() const override { return "scale_rows"; }
  std::string labels(std::span<const Spec>) const override {
    return std::string(scaling_.centred ? "t c, t, t" : "~t c, t") +
           (scaling_.weighted ? ", ~c" : "") + " -> t c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2U + scaling_.centred + scaling_.weighted, "{} inputs",
                   inputs.size());
    TESSERA_EXPECT(*this, scaling_.columns > 0 && scaling_.epsilon > 0,
                   "{} columns and an epsilon of {}; both must be positive", scaling_.columns,
                   scaling_.epsilon);
    const Spec& x = inputs[0];
    require_rows(x);
    require_row_numbers(inputs[1], x, "squares");
    if (scaling_.centred) require_row_numbers(inputs[2], x, "sums");
    if (scaling_.weighted) {
      const Spec& weight = inputs.back();
      TESSERA_EXPECT(*this, is_like(weight, {{x.shape[1]}, accumulation_dtype(x.dtype)}),
                     "a weight of {} for x of {}", text_of(weight), text_of(x));
    }
    return {x};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> inputs{output_gradients[0]};
    inputs.insert(inputs.end(), self.inputs.begin(), self.inputs.end());
    return builder.apply(std::make_shared<ScaleRowsGradient>(scaling_), std::move(inputs));
  }
  int in_place_input(int) const override { return 0; }
  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      SplitRows<T> rows = rows_of<T>(execution, execution.inputs[0]);
      set_operands(rows, execution.inputs, 0);
      scale_all_rows(rows, execution.outputs[0].data<T>());
    });
  }
};

}  // namespace

Value row_sums(Builder& builder, Value x) {
  return builder.apply_single(std::make_shared<RowSums>(), {x});
}

Value row_squares(Builder& builder, Value x, std::optional<Value> sums, int64_t columns) {
  std::vector<Value> inputs{x};
  if (sums) inputs.push_back(*sums);
  const Scaling scaling{.centred = sums.has_value(), .columns = columns};
  return builder.apply_single(std::make_shared<RowSquares>(scaling), std::move(inputs));
}

Value scale_rows(Builder& builder, Value x, std::optional<Value> weight,
                 const RowStatistics& statistics) {
  std::vector<Value> inputs{x, statistics.squares};
  if (statistics.sums) inputs.push_back(*statistics.sums);
  if (weight) inputs.push_back(*weight);
  const Scaling scaling{statistics.sums.has_value(), weight.has_value(), statistics.columns,
                        statistics.epsilon};
  return builder.apply_single(std::make_shared<ScaleRows>(scaling), std::move(inputs));
}

Value split_norm(Builder& builder, Value x, std::optional<Value> weight, Axis axis,
                 const NormOptions& options) {
  TESSERA_CHECK(options.group == 0, "a split norm of groups of {}; whole rows are expected",
                options.group);
  const Spec spec = builder.spec(x);
  RowStatistics statistics{
      .squares = {},
      .sums = {},
      .columns = logical_extent(builder.program().mesh(), spec.distribution, 1, spec.shape[1]),
      .epsilon = options.epsilon};
  const auto sum_over_ranks = [&](Value sums) {
    return convert(builder, sums, axis, Placement::partial, replicated());
  };
  if (options.kind == NormKind::layer) statistics.sums = sum_over_ranks(row_sums(builder, x));
  statistics.squares = sum_over_ranks(row_squares(builder, x, statistics.sums, statistics.columns));
  return scale_rows(builder, x, weight, statistics);
}

}  // namespace tessera
