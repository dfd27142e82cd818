#pragma once

#include <optional>
#include <vector>

#include "model/attention_layer.h"
#include "model/mixture.h"
#include "model/model_writer.h"

namespace tessera {

/// The values that pass from one layer to the next, both [tokens, hidden]. The tensor axis splits
/// their positions.
struct Boundary {
  Value stream;  ///< the residual stream
  Value output;  ///< of the last sublayer; the next norm adds it to the stream
};

/// Layers [first, end) of a model.
struct LayerRange {
  int64_t first = 0;
  int64_t end = 0;
};

/// Declares the embedding table, [vocabulary, hidden]. A tied head uses the same matrix, also in a
/// program without the embedding.
Value embedding_table(ModelWriter& writer);

/// The embedding of the tokens, i32 [tokens], as it passes to the first layer: a stream without a
/// sublayer's output.
struct Embedded {
  Value table;   ///< see embedding_table()
  Value stream;  ///< [tokens, hidden]
};
Embedded write_embedding(ModelWriter& writer, Value tokens);

/// Writes pre-norm decoder layers. Each sublayer reads a norm of the residual stream, and the next
/// norm adds the sublayer's output to the stream.
class LayerWriter {
 public:
  /// Begins with the stream from the embedding, or with the boundary of an earlier layer in another
  /// program.
  LayerWriter(ModelWriter& writer, Value stream) : writer_(writer), boundary_{stream, {}} {}
  LayerWriter(ModelWriter& writer, const Boundary& boundary)
      : writer_(writer), boundary_(boundary) {}

  void write(const LayerRange& range, const AttentionPlace& place);
  /// Writes the norm after the last layer. Its result, [tokens, hidden], is what the head reads.
  Value final_norm();

  /// What the layers written so far pass on.
  const Boundary& boundary() const { return boundary_; }
  /// The mixture layers written so far.
  const std::vector<RoutedLayer>& routed() const { return routed_; }

 private:
  Value normalised(std::string_view name, Keep keep);

  ModelWriter& writer_;
  Boundary boundary_;
  std::vector<RoutedLayer> routed_;
};

/// Writes the table of the rotary embedding's angles, one row per token.
Value table_of_angles(ModelWriter& writer, Value positions);

/// The positions of the keys that a rank's queries see, those of all ranks of the context axis. It
/// is gathered once for all layers. None if the axis has one rank.
std::optional<Value> gathered_positions(ModelWriter& writer, Value positions);

/// Declares the matrix of a head that is not tied, [vocabulary, hidden].
Value write_head_matrix(ModelWriter& writer);

}  // namespace tessera
