#include "ops/embedding/embedding.h"

#include <cstring>

#include "comm/piece_indices.h"
#include "ops/embedding/embedding_kernels.h"
#include "ops/indices.h"
#include "ops/row_piece.h"
#include "ops/support.h"

// The lookup of token embeddings and its gradient. Ids count the rows of the whole table. A rank
// may have only some of these rows; then it looks up, and adds to, those alone.

namespace tessera {
namespace {

/// Returns whether the rank's table of `rows` rows has a row; `row` counts from the table's first.
/// The casts make one comparison of two: a negative row becomes a huge one.
bool is_held(int64_t row, int64_t rows) {
  return static_cast<uint64_t>(row) < static_cast<uint64_t>(rows);
}

/// inputs: ids i32 [tokens], gradient [tokens, hidden] and, if `accumulate`, the table's main
/// gradient [rows, hidden], which run() adds to. Otherwise there is one output of that shape.
class EmbeddingGradient final : public Operation {
 public:
  EmbeddingGradient(Spec table, int64_t first_row, bool accumulate)
      : table_(std::move(table)), first_row_(first_row), accumulate_(accumulate) {}
  std::string_view name() const override { return "embedding_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return accumulate_ ? "t, ~t c, ?v c -> += v c" : "t, ~t c, ?v c -> v c";
  }
  std::vector<Spec> shape_operands() const override { return {table_}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == (accumulate_ ? 3U : 2U) && inputs[0].shape[0] == inputs[1].shape[0],
        "ids and a gradient that fit, and a main gradient where it accumulates");
    const Spec& gradient = inputs[1];
    const Spec table{{table_.shape[0], gradient.shape[1]}, accumulation_dtype(gradient.dtype)};
    if (!accumulate_) return {table};
    TESSERA_EXPECT(*this, is_like(inputs[2], table), "adds {} into {}", table.shape.text(),
                   inputs[2].shape.text());
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const DType wide = accumulation_dtype(inputs[1].dtype);
    const Spec rows{inputs[1].shape, wide, {}};  // rows of the table, one per token
    return {.bytes = operand_bytes(inputs.first(2), std::vector{rows, rows}) +
                     operand_bytes({}, outputs)};
  }
  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{2} : std::vector<int>{};
  }

  /// Returns the bytes of the tokens' positions, which only a device sorts by id.
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return target.device == Device::cpu ? 0 : inputs[0].bytes();
  }

  /// Adds rows of the gradient to the table. Each thread has a range of columns and walks the
  /// tokens in order. So no two threads write the same element, and the rows of a repeated token
  /// are added in the same order whatever the number of threads.
  ///   table[ids[t] - first_row, h] += gradient[t, h]
  void run(const Execution& execution) const override {
    const Tensor& ids = execution.inputs[0];
    const Tensor& gradient = execution.inputs[1];
    const Tensor& table = accumulate_ ? execution.inputs[2] : execution.outputs[0];
    if (execution.stream != nullptr) return run_on_device(execution, table);
    if (!accumulate_) table.fill_zero();
    const int64_t tokens = ids.elements();
    const int64_t hidden = gradient.shape()[1];
    const int64_t rows = table.shape()[0];
    const int64_t first_row = first_row_;
    dispatch_floating(gradient.dtype(), [&]<typename T>(T) {
      using Wide = Compute<T>;
      const int32_t* id = ids.data<int32_t>();
      const T* from = gradient.data<T>();
      Wide* to = table.data<Wide>();
      parallel_ranges(execution.runtime.threads(), hidden, 64,
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t t = 0; t < tokens; ++t) {
                          const int64_t row = id[t] - first_row;
                          if (!is_held(row, rows)) continue;
                          const T* source = from + t * hidden;
                          Wide* target = to + row * hidden;
                          for (int64_t h = begin; h < end; ++h) {
                            target[h] += static_cast<Wide>(source[h]);
                          }
                        }
                      });
    });
  }

 private:
  void run_on_device(const Execution& execution, const Tensor& table) const {
    const Tensor& gradient = execution.inputs[1];
    if (!accumulate_) execution.stream->fill_zero(table.address(), table.bytes());
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      dispatch_device(gradient.dtype(), [&]<typename T>(T) {
        const EmbeddingBackward<T> embedding{
            .tokens = gradient.shape()[0],
            .hidden = gradient.shape()[1],
            .rows = {.first = first_row_, .count = table.shape()[0]},
            .ids = execution.inputs[0].pointer<int32_t>(),
            .gradient = gradient.pointer<T>(),
            .order = reinterpret_cast<int32_t*>(execution.workspace.data()),
            .table = table.pointer<Compute<T>>()};
        embedding_gradient_device<Vendor>(embedding, *execution.stream);
      });
    });
  }

  Spec table_;
  int64_t first_row_;
  bool accumulate_;
};

/// inputs: table [rows, hidden], ids i32 [tokens]. output: [tokens, hidden], which is partial over
/// the ranks: the row of an id is zeros on all ranks but the one that has it.
class Embedding final : public Operation {
 public:
  explicit Embedding(RowsOfTable rows) : rows_(rows) {}
  std::string_view name() const override { return "embedding"; }

  std::string labels(std::span<const Spec>) const override { return "~v c, t -> t c"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2, "a table and ids");
    const Spec& table = inputs[0];
    const Spec& ids = inputs[1];
    TESSERA_EXPECT(*this, table.shape.rank() == 2 && is_floating(table.dtype), "the table is {}",
                   text_of(table));
    TESSERA_EXPECT(*this, ids.shape.rank() == 1 && ids.dtype == DType::i32, "the ids are {}",
                   text_of(ids));
    return {{{ids.shape[0], table.shape[1]}, table.dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const Spec table = builder.spec(self.inputs[0]);
    if (const Value main = builder.main_gradient(self.inputs[0])) {
      builder.apply(std::make_shared<EmbeddingGradient>(table, rows_.first, true),
                    {self.inputs[1], output_gradients[0], main});
      return {main, Value{}};
    }
    return {builder.apply_single(std::make_shared<EmbeddingGradient>(table, rows_.first, false),
                                 {self.inputs[1], output_gradients[0]}),
            Value{}};
  }

  Cost cost(std::span<const Spec>, std::span<const Spec> outputs) const override {
    return {.bytes = 2.0 * static_cast<double>(outputs[0].bytes())};
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    require_indices(execution, "id", execution.inputs[1], 0, rows_.all);
    const Tensor& table = execution.inputs[0];
    const int32_t* ids = execution.inputs[1].data<int32_t>();
    const Tensor& output = execution.outputs[0];
    const int64_t row_bytes = table.shape()[1] * dtype_size(table.dtype());
    const int64_t rows = table.shape()[0];
    const int64_t first_row = rows_.first;
    const std::byte* from = table.raw();
    std::byte* to = output.raw();
    // output[t, h] = table[ids[t] - first_row, h], or 0 if the rank does not have that row
    parallel_each(execution.runtime.threads(), output.shape()[0], row_grain(output.shape()[1]),
                  [=](int64_t t) {
                    const int64_t row = ids[t] - first_row;
                    const auto bytes = static_cast<size_t>(row_bytes);
                    if (is_held(row, rows)) {
                      std::memcpy(to + t * row_bytes, from + row * row_bytes, bytes);
                    } else {
                      std::memset(to + t * row_bytes, 0, bytes);
                    }
                  });
  }

 private:
  void run_on_device(const Execution& execution) const {
    on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
      const Tensor& table = execution.inputs[0];
      const Tensor& output = execution.outputs[0];
      const EmbeddingForward<T> embedding{.tokens = output.shape()[0],
                                          .hidden = output.shape()[1],
                                          .rows = {.first = rows_.first, .count = table.shape()[0]},
                                          .table = table.pointer<T>(),
                                          .ids = execution.inputs[1].pointer<int32_t>(),
                                          .output = output.pointer<T>()};
      embedding_device<Vendor>(embedding, *execution.stream);
    });
  }

  RowsOfTable rows_;
};

}  // namespace

Value embedding(Builder& builder, Value table, Value ids) {
  const Program& program = builder.program();
  const Spec& spec = program.spec(table);
  return embedding_of_rows(
      builder, table, ids,
      {.first = first_row(program, table),
       .all = logical_extent(program.mesh(), spec.distribution, 0, spec.shape[0])});
}

Value embedding_of_rows(Builder& builder, Value table, Value ids, RowsOfTable rows) {
  return builder.apply_single(std::make_shared<Embedding>(rows), {table, ids});
}

}  // namespace tessera
