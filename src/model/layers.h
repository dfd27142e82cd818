#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/attention_layer.h"
#include "model/mixture.h"
#include "model/model_writer.h"
#include "ops/norm/scaled_residual.h"

namespace tessera {

/// The values that pass from one layer to the next, or from one program to the next. A value that
/// the model does not have is null. The tensor axis splits the positions of the first three.
struct Boundary {
  Value stream;  ///< the residual stream, [tokens, hidden]
  /// Of the last sublayer, [tokens, hidden], not yet added to the stream. Between two programs only
  /// a model with residual scaling has it: others pass on the sum.
  Value output;
  Value router;  ///< the last router's state, [tokens, router_size], if routers are depth-averaged
  /// Sums over all mixture layers so far: see EarlierLayers. Only programs that train pass them on,
  /// if their load-balance loss pools all layers. The counts have no gradient.
  Value probability_sums, counts;

  /// Returns the values that are not null, in the order above.
  std::vector<Value> values() const;
};

/// Declares, as inputs of this program, the values that another program computed before layer
/// `layer`, and returns them. Before the first layer there is the stream alone. `name` begins the
/// names of the inputs. `tokens` has one dim. The sums for a load-balance loss are not among them:
/// see declare_balance_sums().
Boundary boundary_inputs(ModelWriter& writer, const std::string& name, const Shape& tokens,
                         int64_t layer);

/// Layers [first, end) of a model.
struct LayerRange {
  int64_t first = 0;
  int64_t end = 0;
};

// The units of the parameters outside the layers, and of those of a layer. A layer's experts, and
// its biases that balance a router, are in units of their own, whose names begin with the layer's.
inline constexpr std::string_view kEmbeddingUnit = "embedding";
inline constexpr std::string_view kHeadUnit = "head";
std::string layer_unit(int64_t layer);

/// Declares the embedding table, [vocabulary, hidden], and returns it. A tied head uses the same
/// matrix, also in a program without the embedding.
Value embedding_table(ModelWriter& writer);

/// The residual stream before the first layer.
struct Embedded {
  Value table;   ///< see embedding_table()
  Value stream;  ///< [tokens, hidden]
};
/// Writes the embedding of the tokens, i32 [tokens].
Embedded write_embedding(ModelWriter& writer, Value tokens);

/// Writes pre-norm decoder layers. Each sublayer reads a norm of the residual stream. The operation
/// of the next norm adds the sublayer's output to the stream first, in one pass over memory. With
/// residual scaling, the output and the stream get biases and scales before they are added, and the
/// stream has the accumulation type (ZAYA1, section IV-A).
class LayerWriter {
  /// Scales and biases of the last sublayer's output and of the stream before their addition.
  struct Merge {
    ResidualScale output_scale;
    std::optional<ResidualScale> stream_scale;  // none as long as the stream is the embedding
  };

 public:
  /// Begins with the stream from the embedding, or with the boundary from a program that ended
  /// before layer `layer`.
  LayerWriter(ModelWriter& writer, Value stream) : writer_(writer) { boundary_.stream = stream; }
  LayerWriter(ModelWriter& writer, const Boundary& boundary, int64_t layer)
      : writer_(writer), boundary_(boundary), begins_with_sum_(layer > 0 && !boundary.output) {}

  /// Writes the layers of a range, after those written so far.
  void write(const LayerRange& range, const AttentionInputs& inputs);
  /// Writes the norm after the model's last layer. Returns its result, [tokens, hidden].
  Value final_norm();

  /// Returns the values that the layers written so far pass on to another program, without the sums
  /// for a load-balance loss. Writes the addition of the last output to the stream, where that does
  /// not change the bits.
  Boundary end();
  /// Returns the mixture layers written so far.
  const std::vector<RoutedLayer>& routed() const { return routed_; }

 private:
  std::optional<Merge> merge_before(int64_t layer);
  std::optional<Merge> declare_merge(std::string_view name);
  /// Adds the last sublayer's output to the stream, by `merge` if given. Returns the sum's norm.
  Value normalised(std::string_view name, Keep keep, const std::optional<Merge>& merge);
  /// Writes the layer's feed-forward block, or its mixture of experts. Returns the output.
  Value feed_forward_of(int64_t layer, Value x);

  ModelWriter& writer_;
  Boundary boundary_;
  bool begins_with_sum_ = false;  // another program has added the last output to the stream
  std::vector<RoutedLayer> routed_;
};

/// Writes the table of the rotary embedding's angles, one row per token, and returns it.
Value table_of_angles(ModelWriter& writer, Value positions);

/// Returns the head's matrix, [vocabulary, hidden]; declares it if the program does not have it
/// yet. A tied head's is the embedding table: `table`, or null in a program without the embedding.
Value head_matrix(ModelWriter& writer, Value table);

}  // namespace tessera
