#pragma once

#include <optional>
#include <vector>

#include "model/attention_layer.h"
#include "model/mixture.h"
#include "model/model_writer.h"

namespace tessera {

/// What passes from one layer to the next, both [tokens, hidden].
struct Boundary {
  Value stream;  ///< the residual stream
  Value output;  ///< of the last sublayer, which the norm that follows adds to the stream
};

/// Layers [first, end) of a model.
struct LayerRange {
  int64_t first = 0;
  int64_t end = 0;
};

/// The embedding's table, [vocabulary, hidden]: a tied head is the same matrix, also in a program
/// without the embedding.
Value embedding_table(ModelWriter& writer);

/// The embedding of the tokens, i32 [tokens], as what passes to the first layer: a stream without
/// an output.
struct Embedded {
  Value table;   ///< see embedding_table()
  Value stream;  ///< [tokens, hidden]
};
Embedded write_embedding(ModelWriter& writer, Value tokens);

/// Pre-norm decoder layers: each sublayer reads a norm of the residual stream, and the norm that
/// follows adds the sublayer's output to the stream.
class LayerWriter {
 public:
  /// Begins with what comes from the embedding, or from an earlier layer of another program.
  LayerWriter(ModelWriter& writer, Value stream) : writer_(writer), boundary_{stream, {}} {}
  LayerWriter(ModelWriter& writer, const Boundary& boundary)
      : writer_(writer), boundary_(boundary) {}

  void write(const LayerRange& range, const AttentionPlace& place);
  /// The norm behind the last layer: [tokens, hidden], what the head reads.
  Value final_norm();

  /// What the layers written so far pass on.
  const Boundary& boundary() const { return boundary_; }
  /// The mixture layers among them.
  const std::vector<RoutedLayer>& routed() const { return routed_; }

 private:
  Value normalised(std::string_view name, Keep keep);

  ModelWriter& writer_;
  Boundary boundary_;
  std::vector<RoutedLayer> routed_;
};

/// The rotary embedding's angles by token.
Value table_of_angles(ModelWriter& writer, Value positions);

/// The matrix of a head that is not tied, [vocabulary, hidden].
Value write_head_matrix(ModelWriter& writer);

}  // namespace tessera
