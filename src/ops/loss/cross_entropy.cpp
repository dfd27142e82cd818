#include "ops/loss/cross_entropy.h"

#include <cmath>

#include "comm/call_list.h"
#include "comm/communicator.h"
#include "ops/loss/cross_entropy_rows.h"
#include "ops/loss/logit_chunks.h"
#include "ops/loss/loss_rows_kernels.h"
#include "ops/loss/vocabulary_part.h"
#include "ops/support.h"

// The output head and the loss in one operation. For each chunk of tokens, LogitChunks multiplies x
// and the weight into logits. The row functions (cross_entropy_rows.h, or loss_rows.cu on a device)
// turn logits into losses and, in training, overwrite them with their gradient. From that,
// LogitChunks computes the chunk's part of the gradients of x and of the weight. If ranks share the
// vocabulary, each has the logits of its classes, and they all-reduce three numbers for each token.

namespace tessera {
namespace {

/// A chunk of tokens on the processor, with the logits of the rank's classes. Wide is the type of
/// the logits and the results. T is the type of the logits' gradient, which overwrites the logits.
template <typename T, typename Wide>
struct LossChunk {
  int threads;
  int64_t rows;
  int64_t classes;  // of this rank
  const VocabularyPart* part;
  const int32_t* targets;   // [rows], classes of the whole vocabulary; -1: no target
  const Wide* seed;         // [1], the gradient of the loss; null: no gradient is written
  Wide z;                   // the coefficient of the z-loss
  Wide* logits;             // [rows, classes]
  int64_t gradient_stride;  // elements of T from row to row
  Wide* token_loss;         // [rows]: -log p(target), 0 where there is no target
  Wide* log_sum_exp;        // [rows]

  const Wide* logits_of(int64_t row) const { return logits + row * classes; }
  /// Returns a row's target as an index among the rank's classes, or -1 if it is not one of them.
  int32_t rank_target(int64_t row) const { return part->rank_class(targets[row], classes); }
  /// Returns the logit of a row's target, or 0 if the rank does not have it.
  Wide target_logit(int64_t row) const {
    const int32_t target = rank_target(row);
    return target >= 0 ? logits_of(row)[target] : Wide{0};
  }
  template <typename Body>
  void for_each_row(Body&& body) const {
    parallel_each(threads, rows, 1, [&](int64_t row) { body(row); });
  }
};

/// Writes a row's results, given its log-sum-exp and its target's logit.
template <typename Rows, typename T, typename Wide>
void finish_row(const LossChunk<T, Wide>& chunk, int64_t row, Wide log_sum_exp, Wide target_logit) {
  const bool counts = chunk.targets[row] >= 0;
  chunk.log_sum_exp[row] = log_sum_exp;
  chunk.token_loss[row] = counts ? log_sum_exp - target_logit : Wide{0};
  if (chunk.seed == nullptr) return;
  Rows::gradient(chunk.logits_of(row), chunk.classes, log_sum_exp, chunk.rank_target(row),
                 counts ? *chunk.seed : Wide{0}, chunk.z,
                 reinterpret_cast<T*>(chunk.logits) + row * chunk.gradient_stride);
}

/// Computes the losses of a chunk, and the gradient of its logits, on a rank that has all classes.
template <typename Rows, typename T, typename Wide>
void losses_of_chunk(const LossChunk<T, Wide>& chunk) {
  chunk.for_each_row([&](int64_t row) {
    finish_row<Rows>(chunk, row, row_log_sum_exp<Rows>(chunk.logits_of(row), chunk.classes),
                     chunk.target_logit(row));
  });
}

/// Computes the losses and the gradient if ranks share the classes. The ranks all-reduce the
/// largest logit of each row, then the row's sum of exponentials and its target's logit. So all
/// ranks get the same bits. `numbers` is scratch memory for two numbers a row.
template <typename Rows, typename T, typename Wide>
void split_losses_of_chunk(const LossChunk<T, Wide>& chunk, Communicator& ranks,
                           std::string_view name, Wide* numbers) {
  const Tensor largest = Tensor::wrap(chunk.log_sum_exp, {1, chunk.rows}, dtype_of<Wide>);
  chunk.for_each_row([&](int64_t row) {
    chunk.log_sum_exp[row] = Rows::largest(chunk.logits_of(row), chunk.classes);
  });
  ranks.all_reduce(name, largest, largest, Reduction::maximum);
  Wide* const exponential_sums = numbers;
  Wide* const target_logits = numbers + chunk.rows;
  chunk.for_each_row([&](int64_t row) {
    exponential_sums[row] =
        Rows::sum_of_exponentials(chunk.logits_of(row), chunk.classes, chunk.log_sum_exp[row]);
    target_logits[row] = chunk.target_logit(row);
  });
  const Tensor sums = Tensor::wrap(numbers, {2, chunk.rows}, dtype_of<Wide>);
  ranks.all_reduce(name, sums, sums);
  chunk.for_each_row([&](int64_t row) {
    finish_row<Rows>(chunk, row, chunk.log_sum_exp[row] + std::log(exponential_sums[row]),
                     target_logits[row]);
  });
}

/// inputs: x [tokens, hidden], weight [vocabulary, hidden], targets i32 [tokens]; outputs: loss
/// [1], token loss [tokens], log-sum-exp [tokens].
///
/// With gradients, the loss's gradient [1] is a further input, and the gradient of x is a further
/// output. If the weight has a main gradient, this is the last input, to which the weight's
/// gradient is added. Otherwise the weight's gradient is the last output.
class LinearCrossEntropy final : public Operation {
 public:
  /// With `gradients`, the gradients are computed, and with `accumulate` that of the weight is
  /// added to its main gradient.
  LinearCrossEntropy(double z_coefficient, VocabularyPart part, bool gradients, bool accumulate)
      : z_coefficient_(z_coefficient), part_(part), gradients_(gradients), accumulate_(accumulate) {
    TESSERA_CHECK(gradients || !accumulate, "no gradient that could be added");
  }
  std::string_view name() const override { return "linear_cross_entropy"; }

  std::string labels(std::span<const Spec>) const override {
    if (!gradients_) return "t c!, v! c!, t -> u, t, t";
    return accumulate_ ? "t c!, v! c!, t, u! -> u, t, t, t c, += v c"
                       : "t c!, v! c!, t, u! -> u, t, t, t c, v c";
  }
  /// Returns the types on an axis that splits the vocabulary. Labels cannot state these types,
  /// because the operation itself joins the ranks' results.
  HandRule hand_rule() const override {
    return [gradients = gradients_](Axis, std::span<const TypeOnAxis> inputs) {
      return split_vocabulary_types(inputs, gradients);
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3U + gradients_ + accumulate_, "{} inputs",
                   inputs.size());
    const Spec &x = inputs[0], &weight = inputs[1];
    const Spec& targets = inputs[2];
    TESSERA_EXPECT(*this,
                   x.shape.rank() == 2 && weight.shape.rank() == 2 &&
                       x.shape[1] == weight.shape[1] && x.dtype == weight.dtype,
                   "x is {}, the weight {}", text_of(x), text_of(weight));
    TESSERA_EXPECT(*this, is_like(targets, {{x.shape[0]}, DType::i32}),
                   "the targets are {} for {} tokens", text_of(targets), x.shape[0]);
    const DType wide = accumulation_dtype(x.dtype);
    std::vector<Spec> outputs{{{1}, wide}, {{x.shape[0]}, wide}, {{x.shape[0]}, wide}};
    if (!gradients_) return outputs;
    TESSERA_EXPECT(*this, is_like(inputs[3], {{1}, wide}), "the loss's gradient is {}",
                   text_of(inputs[3]));
    TESSERA_EXPECT(*this, !accumulate_ || is_like(inputs[4], {weight.shape, wide}),
                   "the weight's main gradient is {}", text_of(inputs.back()));
    outputs.push_back(x);
    if (!accumulate_) outputs.push_back({weight.shape, wide});
    return outputs;
  }

  std::vector<Value> gradient(Builder&, const Node& self,
                              std::span<const Value> output_gradients) const override {
    TESSERA_EXPECT(*this, gradients_, "it was built without its gradient");
    TESSERA_EXPECT(*this, output_gradients[0] == self.inputs[3],
                   "the loss is differentiated with another seed than it was built with");
    TESSERA_EXPECT(
        *this, std::ranges::none_of(output_gradients.subspan(1), [](Value v) { return bool(v); }),
        "only the loss has a gradient, not the loss by token");
    std::vector<Value> gradients(self.inputs.size());
    gradients[0] = self.outputs[3];
    gradients[1] = accumulate_ ? self.inputs[4] : self.outputs[4];
    return gradients;
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const double product = product_flops(inputs[0].shape, inputs[1].shape[0]);
    const double backward = gradients_ ? 2 * product : 0;
    Cost cost{.flops = product + backward,
              .backward_flops = backward,
              .bytes = operand_bytes(inputs, outputs, updated_inputs()),
              .wire = {}};
    if (part_.axis) {  // an all-reduce of three numbers for each token
      const double sent = 2.0 * (part_.ranks - 1) / part_.ranks;
      const int64_t bytes = inputs[0].shape[0] * dtype_size(accumulation_dtype(inputs[0].dtype));
      cost.wire = {{{*part_.axis}, sent * 3.0 * static_cast<double>(bytes)}};
    }
    return cost;
  }

  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{4} : std::vector<int>{};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const LogitChunks chunks(inputs[0], inputs[1]);
    const int64_t bytes = chunks.workspace_bytes(target, gradients_);
    if (!part_.axis) return bytes;
    const int64_t rows = chunks.max_rows(target.device);
    if (target.device != Device::cpu) {
      return aligned_bytes(bytes) + aligned_bytes(split_numbers_bytes(rows)) +
             all_reduce_workspace(2 * rows, DType::f32, part_.ranks);
    }
    return aligned_bytes(bytes) + 2 * rows * dtype_size(accumulation_dtype(inputs[0].dtype));
  }

  std::vector<std::vector<Axis>> group_axes() const override {
    if (!part_.axis) return {};
    return {{*part_.axis}};
  }
  void list_calls(const CallListing& listing) const override {
    if (!part_.axis) return;
    const DType dtype = accumulation_dtype(listing.inputs[0].dtype);
    LogitChunks(listing.inputs[0], listing.inputs[1])
        .for_each_size(listing.target.device, [&](int64_t rows) {
          listing.group().all_reduce(listing.name, dtype, {1, rows}, Reduction::maximum);
          listing.group().all_reduce(listing.name, dtype, {2, rows});
        });
  }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        run_on_device<Vendor, T>(execution);
      });
    }
    run_processor_kernel(
        execution, execution.inputs[0].dtype(), [](auto type) { return type; },
        [&]<typename T>(T) { run_rows<T, Compute<T>, PlainRows<Compute<T>>>(execution); },
        [&]<typename T>(T) { run_rows<T, float, FastRows>(execution); });
  }

 private:
  /// Returns the memory of the gradients, if they are computed.
  HeadGradients head_gradients(const Execution& execution) const {
    if (!gradients_) return {};
    return {execution.outputs[3], accumulate_ ? execution.inputs[4] : execution.outputs[4]};
  }

  template <typename Vendor, typename T>
  void run_on_device(const Execution& execution) const {
    const Tensor &x = execution.inputs[0], &weight = execution.inputs[1];
    const auto* const targets = execution.inputs[2].template pointer<int32_t>();
    auto* const token_loss = execution.outputs[1].template pointer<float>();
    auto* const log_sum_exp = execution.outputs[2].template pointer<float>();
    const LogitChunks chunks(spec_of(x), spec_of(weight));
    const HeadGradients gradients = head_gradients(execution);
    if (gradients_ && !accumulate_) {
      execution.stream->fill_zero(gradients.weight_gradient.address(),
                                  gradients.weight_gradient.bytes());
    }
    chunks.for_each_on_device(
        execution, gradients_ ? &gradients : nullptr,
        [&](int64_t first, int64_t rows, std::byte* logits) {
          const LossRows<T> loss{
              .rows = rows,
              .vocabulary = weight.shape()[0],
              .logits = reinterpret_cast<const float*>(logits),
              .targets = targets + first,
              .seed = gradients_ ? execution.inputs[3].template pointer<float>() : nullptr,
              .z = static_cast<float>(z_coefficient_),
              .token_loss = token_loss + first,
              .log_sum_exp = log_sum_exp + first,
              .gradient = reinterpret_cast<T*>(logits),
              .gradient_stride = chunks.gradient_stride()};
          part_.axis ? split_rows_on_device<Vendor>(execution, loss, chunks)
                     : loss_rows_device<Vendor>(loss, *execution.stream);
        });
    loss_sum_device<Vendor>({.tokens = execution.inputs[2].elements(),
                             .z = z_coefficient_,
                             .targets = targets,
                             .token_loss = token_loss,
                             .log_sum_exp = log_sum_exp,
                             .loss = execution.outputs[0].template pointer<float>()},
                            *execution.stream);
  }

  /// Returns the bytes of SplitLossRows' `largest` and `sums` for a chunk of `rows` rows.
  static int64_t split_numbers_bytes(int64_t rows) { return 3 * rows * dtype_size(DType::f32); }

  /// Enqueues a chunk's losses if ranks share the vocabulary. The end of the workspace holds the
  /// split numbers, then the memory of the all-reduce.
  template <typename Vendor, typename T>
  void split_rows_on_device(const Execution& execution, const LossRows<T>& loss,
                            const LogitChunks& chunks) const {
    const int64_t max_rows = chunks.max_rows(execution.runtime.target().device);
    const int64_t collective_bytes = all_reduce_workspace(2 * max_rows, DType::f32, part_.ranks);
    const std::span<std::byte> staging =
        execution.workspace.last(static_cast<size_t>(collective_bytes));
    auto* const largest =
        reinterpret_cast<float*>(staging.data() - aligned_bytes(split_numbers_bytes(max_rows)));
    const SplitLossRows<T> split{
        .loss = loss, .first = part_.first, .largest = largest, .sums = largest + loss.rows};
    const DeviceCall call{.stream = execution.stream, .workspace = staging};
    Accelerator* const accelerator = execution.inputs[0].accelerator();
    const auto all_reduce = [&](float* numbers, int64_t rows, Reduction reduction) {
      const Tensor tensor = Tensor::wrap(numbers, {rows, loss.rows}, DType::f32, accelerator);
      execution.group().all_reduce(execution.name, tensor, tensor, reduction, call);
    };
    split_rows_device<Vendor>(SplitLossStep::largest, split, *execution.stream);
    all_reduce(split.largest, 1, Reduction::maximum);
    split_rows_device<Vendor>(SplitLossStep::sums, split, *execution.stream);
    all_reduce(split.sums, 2, Reduction::sum);
    split_rows_device<Vendor>(SplitLossStep::results, split, *execution.stream);
  }

  template <typename T, typename Wide, typename Rows>
  void run_rows(const Execution& execution) const {
    require_indices(execution, "target", execution.inputs[2], -1, part_.all);
    const int32_t* targets = execution.inputs[2].data<int32_t>();
    Wide* token_loss = execution.outputs[1].data<Wide>();
    Wide* log_sum_exp = execution.outputs[2].data<Wide>();
    const LogitChunks chunks(spec_of(execution.inputs[0]), spec_of(execution.inputs[1]));
    const HeadGradients gradients = head_gradients(execution);
    if (gradients_ && !accumulate_) gradients.weight_gradient.fill_zero();
    chunks.for_each(execution, gradients_ ? &gradients : nullptr,
                    [&](int64_t first, int64_t rows, std::byte* logits) {
                      const LossChunk<T, Wide> chunk{
                          .threads = execution.runtime.threads(),
                          .rows = rows,
                          .classes = execution.inputs[1].shape()[0],
                          .part = &part_,
                          .targets = targets + first,
                          .seed = gradients_ ? execution.inputs[3].data<Wide>() : nullptr,
                          .z = static_cast<Wide>(z_coefficient_),
                          .logits = reinterpret_cast<Wide*>(logits),
                          .gradient_stride = chunks.gradient_stride(),
                          .token_loss = token_loss + first,
                          .log_sum_exp = log_sum_exp + first};
                      if (!part_.axis) return losses_of_chunk<Rows>(chunk);
                      // The end of the workspace holds the split numbers.
                      const auto numbers = execution.workspace.last(
                          static_cast<size_t>(2 * chunks.max_rows(Device::cpu)) * sizeof(Wide));
                      split_losses_of_chunk<Rows>(chunk, execution.group(), execution.name,
                                                  reinterpret_cast<Wide*>(numbers.data()));
                    });
    // loss = Σ token_loss + z_coefficient · log_sum_exp², over tokens with a target. One thread
    // computes it, so its bits do not depend on the number of threads.
    double total = 0;
    for (int64_t token = 0; token < execution.inputs[2].elements(); ++token) {
      if (targets[token] < 0) continue;
      const double sum = log_sum_exp[token];
      total += static_cast<double>(token_loss[token]) + z_coefficient_ * sum * sum;
    }
    execution.outputs[0].data<Wide>()[0] = static_cast<Wide>(total);
  }

  double z_coefficient_;
  VocabularyPart part_;
  bool gradients_;
  bool accumulate_;
};

}  // namespace

CrossEntropy linear_cross_entropy(Builder& builder, Value x, Value weight, Value targets,
                                  double z_coefficient) {
  const auto operation = std::make_shared<LinearCrossEntropy>(
      z_coefficient, vocabulary_part(builder.program(), weight), false, false);
  const std::vector<Value> outputs = builder.apply(operation, {x, weight, targets});
  return {outputs[0], outputs[1]};
}

CrossEntropy linear_cross_entropy_with_gradient(Builder& builder, Value x, Value weight,
                                                Value targets, Value seed, double z_coefficient) {
  std::vector<Value> inputs{x, weight, targets, seed};
  const Value main = builder.main_gradient(weight);
  if (main) inputs.push_back(main);
  const auto operation = std::make_shared<LinearCrossEntropy>(
      z_coefficient, vocabulary_part(builder.program(), weight), true, bool(main));
  const std::vector<Value> outputs = builder.apply(operation, std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
