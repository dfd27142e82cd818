// Compressed convolutional attention (ZAYA1, section IV-A and appendix C): the computation of
// queries, keys and values. attention_layer() writes what follows, as for other families.
//
// 1. Queries and keys narrower than the residual stream are projected, and the rows of whole
//    sequences are gathered over the context axis. They are narrow, so each rank can apply the
//    convolutions to whole sequences.
// 2. They go through two causal convolutions over two tokens: one of each channel, one of each
//    head. A mean of queries and keys from before the convolutions is added. Each head is
//    normalised, keys with a temperature, and partly rotated.
// 3. Half of the value columns come from the previous token.
//
// The ranks of the tensor axis split the key heads, each with its query heads. Each rank computes
// all values and takes those of its heads. While decoding, a layer keeps more than the caches of
// keys and values: the last two rows of queries and keys before the convolutions, and the last row
// of delayed values.

#include <string>
#include <vector>

#include "base/error.h"
#include "model/attention_layer.h"
#include "ops/cca/delay.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/collective/convert.h"
#include "ops/linear/linear.h"
#include "ops/rotary/rotary.h"

namespace tessera {
namespace {

/// Writes the queries, keys and values of one layer.
class CompressedHeads {
 public:
  CompressedHeads(ModelWriter& writer, const AttentionInputs& inputs)
      : writer_(writer),
        builder_(writer.builder),
        config_(writer.config),
        inputs_(inputs),
        ranks_(writer.mesh().size(writer.mesh().tensor())) {
    TESSERA_CHECK(config_.kv_heads % ranks_ == 0, "{} key heads over {} ranks", config_.kv_heads,
                  ranks_);
  }

  AttentionHeads write(Value x) {
    split_ = builder_.spec(x).distribution;
    const int64_t hidden = config_.hidden_size;
    const int64_t half_width = width(config_.kv_heads) / 2;  // head_size() is even, see validate()
    const Value query_weight =
        writer_.matrix("query", {width(config_.heads), hidden}, writer_.over_tensor(0));
    const Value key_weight =
        writer_.matrix("key", {width(config_.kv_heads), hidden}, writer_.over_tensor(0));
    const Value current_weight = writer_.matrix("value_current", {half_width, hidden}, {});
    const Value delayed_weight = writer_.matrix("value_delayed", {half_width, hidden}, {});
    const std::vector<Value> projected =
        linears(builder_, x, retyped({query_weight, key_weight}, x));
    const std::vector<Value> values =
        linears(builder_, x, retyped({current_weight, delayed_weight}, x));

    const QueryAndKey narrow{gathered(projected[0]), gathered(projected[1])};
    const QueryAndKey heads = convolved(narrow);
    const Value query = rotated(split_again(heads.query));
    const Value key = rotated(split_again(heads.key));
    // Two statements fix the nodes' order: C++ may evaluate the arguments of a call in any order.
    const Value delayed = gathered(values[1]);
    const Value current = gathered(values[0]);
    const Value joined = split_again(join_values(current, delayed));
    return {.query = query, .key = key, .value = own_key_heads(writer_, joined)};
  }

 private:
  int64_t width(int64_t heads) const { return heads * config_.head_size(); }

  /// Retypes weights for a product with x (see use_like()).
  std::vector<Value> retyped(std::vector<Value> weights, Value x) {
    for (Value& weight : weights) weight = use_like(builder_, weight, x);
    return weights;
  }

  /// Returns the axes that split a sequence's tokens. Decoding has one sequence.
  std::vector<Axis> axes_of_positions() const {
    if (!inputs_.cache_position) return {writer_.mesh().context()};
    return split_.joining_order(0);
  }
  /// Returns the rows of whole sequences, gathered over the axes that split their positions. The
  /// convolutions read across the edges of the pieces.
  Value gathered(Value rows) {
    for (const Axis axis : axes_of_positions()) {
      rows = convert(builder_, rows, axis, Placement::sharded, replicated());
    }
    return rows;
  }
  /// Returns the rows split as they were before gathered().
  Value split_again(Value rows) {
    const std::vector<Axis> axes = axes_of_positions();
    for (size_t i = axes.size(); i-- > 0;) {
      rows = convert(builder_, rows, axes[i], Placement::replicated, split_.on(axes[i]));
    }
    return rows;
  }

  /// Returns the sequences and documents that convolutions must not cross.
  SequenceOptions sequences() {
    const Mesh& mesh = writer_.mesh();
    SequenceOptions options{.sequence = inputs_.sequence * mesh.size(mesh.context())};
    if (inputs_.document_starts) options.document_starts = gathered(*inputs_.document_starts);
    return options;
  }

  /// Declares a state of `rows` rows like those of `like`.
  Value state(std::string_view name, int64_t rows, Value like) {
    Spec spec = builder_.spec(like);
    spec.shape = spec.shape.with_dim(0, rows);
    return builder_.state(builder_.qualified(name), spec);
  }

  /// Writes the convolutions, the mean of queries and keys, and the norm of each head.
  QueryAndKey convolved(const QueryAndKey& narrow) {
    const Convolved query = convolve("query", narrow.query, config_.heads);
    const Convolved key = convolve("key", narrow.key, config_.kv_heads);
    const Value temperature =
        writer_.vector("temperature", config_.kv_heads, 1, writer_.over_tensor(0));
    return mean_skip_norm(builder_, narrow, {query.rows, key.rows}, {query.bias, key.bias},
                          use_like(builder_, temperature, narrow.key),
                          {.head_dim = config_.head_size()});
  }

  /// Rows after the two convolutions, and the bias of the second, which mean_skip_norm() adds.
  struct Convolved {
    Value rows;
    Value bias;
  };

  /// Writes both convolutions of queries or keys.
  Convolved convolve(const std::string& name, Value x, int64_t heads) {
    const Distribution split = writer_.over_tensor(0);
    const Value first = convolution(name + "_depthwise.weight", {width(heads), 2}, writer_.wide());
    const Value first_bias = writer_.vector(name + "_depthwise.bias", width(heads), 0, split);
    const Value second = convolution(name + "_grouped.weight",
                                     {width(heads), config_.head_size(), 2}, writer_.compute);
    const Value second_bias = writer_.vector(name + "_grouped.bias", width(heads), 0, split);
    const Value taps =
        taps_of(name, x, use_like(builder_, first, x), use_like(builder_, first_bias, x));
    return {grouped_convolution(builder_, taps, use_like(builder_, second, x), heads / ranks_),
            use_like(builder_, second_bias, x)};
  }

  /// Declares the weights of a convolution.
  Value convolution(const std::string& name, const Shape& shape, DType dtype) {
    return writer_.parameters.declare(
        builder_, name, shape, writer_.over_tensor(0), dtype, ParameterRole::convolution,
        {.deviation = config_.initialization_deviation, .cutoff = config_.initialization_cutoff},
        writer_.unit);
  }

  /// Writes the first convolution. Its results, *taps*, are y[t - 1] and y[t] of each channel, so
  /// that the second convolution is one matrix product for each head.
  Value taps_of(const std::string& name, Value x, Value weight, Value bias) {
    if (!inputs_.cache_position) return depthwise_taps(builder_, x, weight, bias, sequences());
    return cached_depthwise_taps(builder_, x, weight, bias, state("last_" + name, 2, x),
                                 *inputs_.cache_position);
  }

  /// Joins the two halves of the value columns, [tokens, key heads · head_dim].
  Value join_values(Value current, Value delayed) {
    if (!inputs_.cache_position) return join_delayed(builder_, current, delayed, sequences());
    return cached_join_delayed(builder_, current, delayed, state("last_delayed", 1, delayed),
                               *inputs_.cache_position);
  }

  Value rotated(Value x) { return rotary(builder_, x, inputs_.rotary_table, config_.head_size()); }

  ModelWriter& writer_;
  Builder& builder_;
  const ModelConfig& config_;
  const AttentionInputs& inputs_;
  const int64_t ranks_;
  Distribution split_;  // of the tokens
};

}  // namespace

AttentionHeads compressed_heads(ModelWriter& writer, Value x, const AttentionInputs& inputs) {
  return CompressedHeads(writer, inputs).write(x);
}

}  // namespace tessera
