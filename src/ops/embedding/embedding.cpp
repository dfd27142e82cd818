#include "ops/embedding/embedding.h"

#include <cstring>

#include "comm/piece_indices.h"
#include "ops/embedding/embedding_kernels.h"
#include "ops/support.h"

// The lookup of token embeddings and its gradient. Ids count the rows of the whole table. A rank
// may have only some of these rows; then it looks up, and adds to, those alone.

namespace tessera {
namespace {

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
    const Tensor& gradient = execution.inputs[1];
    const Tensor& table = accumulate_ ? execution.inputs[2] : execution.outputs[0];
    if (!accumulate_ && execution.stream == nullptr) table.fill_zero();
    if (!accumulate_ && execution.stream != nullptr) {
      execution.stream->fill_zero(table.address(), table.bytes());
    }
    const auto arguments = [&]<typename T>(T) -> EmbeddingBackward<T> {
      return {.tokens = gradient.shape()[0],
              .hidden = gradient.shape()[1],
              .rows = {.first = first_row_, .count = table.shape()[0]},
              .ids = execution.inputs[0].pointer<int32_t>(),
              .gradient = gradient.pointer<T>(),
              .order = reinterpret_cast<int32_t*>(execution.workspace.data()),
              .table = table.pointer<Compute<T>>()};
    };
    const auto kernel = [&]<typename T>(const EmbeddingBackward<T>& embedding) {
      parallel_ranges(execution.runtime.threads(), embedding.hidden, 64,
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t t = 0; t < embedding.tokens; ++t) {
                          const int64_t row = embedding.rows.row_of(embedding.ids[t]);
                          if (row < 0) continue;
                          const T* source = embedding.gradient + t * embedding.hidden;
                          Compute<T>* target = embedding.table + row * embedding.hidden;
                          for (int64_t h = begin; h < end; ++h) {
                            target[h] += static_cast<Compute<T>>(source[h]);
                          }
                        }
                      });
    };
    run_kernel(
        execution, gradient.dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& embedding) {
          embedding_gradient_device<Vendor>(embedding, *execution.stream);
        },
        kernel, kernel);
  }

 private:
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
    const Spec &table = inputs[0], &ids = inputs[1];
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
    const Tensor &table = execution.inputs[0], &output = execution.outputs[0];
    const int64_t tokens = output.shape()[0], hidden = output.shape()[1];
    const TableRows rows{.first = rows_.first, .count = table.shape()[0]};
    const auto* const ids = execution.inputs[1].pointer<int32_t>();
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        const EmbeddingForward<T> embedding{
            tokens, hidden, rows, table.pointer<T>(), ids, output.pointer<T>()};
        embedding_device<Vendor>(embedding, *execution.stream);
      });
    }
    require_indices(execution, "id", execution.inputs[1], 0, rows_.all);
    const auto row_bytes = static_cast<size_t>(hidden * dtype_size(table.dtype()));
    const std::byte* from = table.raw();
    std::byte* to = output.raw();
    // output[t, h] = table[ids[t] - first row, h], or 0 if the rank does not have that row
    parallel_each(execution.runtime.threads(), tokens, row_grain(hidden), [=](int64_t t) {
      const int64_t row = rows.row_of(ids[t]);
      std::byte* result = to + static_cast<size_t>(t) * row_bytes;
      if (row >= 0) {
        std::memcpy(result, from + static_cast<size_t>(row) * row_bytes, row_bytes);
      } else {
        std::memset(result, 0, row_bytes);
      }
    });
  }

 private:
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
