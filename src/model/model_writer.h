#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/piece_indices.h"
#include "model/expert_layout.h"
#include "model/model_config.h"
#include "model/parameter.h"
#include "ops/norm/norm.h"

namespace tessera {

/// The distribution of a model's tokens over the ranks of a stage. Tokens are sequences ×
/// positions, in one dim 0. The levels of the data axis split the sequences. The context axis
/// splits the positions.
///
/// The tensor axis splits the positions once more, but only between the parallel parts of a layer
/// (sequence parallelism, Korthikanti et al. 2022): in the residual stream, norms, routers. Before
/// attention, a feed-forward block and the head they are gathered over that axis.
struct TokenDistribution {
  Distribution tokens;   ///< of ids, and of values that each tensor rank has for all its tokens
  TypeOnAxis positions;  ///< the type on the tensor axis of the residual stream

  /// Returns the distribution of the residual stream.
  Distribution stream(const Mesh& mesh) const { return tokens.with(mesh.tensor(), positions); }
};

/// Returns the distribution of a batch of `sequences` sequences, counted over all ranks. Throws
/// Error, with the numbers, if they do not divide over the data axis.
TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences);

/// The context in which the layers of a model are written into a program: the builder, the
/// configuration, the dtypes and the parameters declared so far. Layers use it to declare their
/// parameters and to write the parts that all of them share. The builder and the configuration must
/// outlive it.
struct ModelWriter {
  Builder& builder;
  const ModelConfig& config;
  DType compute;             ///< the dtype of activations and matrices
  TokenDistribution layout;  ///< the distribution of the tokens
  ExpertLayout experts = {};
  bool pins_choices = false;  ///< true if each router's choices are an input of the program
  std::optional<Value> given_choices = {};  ///< i32 [tokens, k], for all routers
  bool changes_biases = false;  ///< true if the forward pass changes the routers' balance biases
  Value balance_step = {};      ///< f64 [1]: the micro-batch's number, if a controller balances
  ParameterList parameters = {};
  std::string unit = {};  ///< the unit of the parameters declared next

  /// Returns the dtype of norms, the router and statistics.
  DType wide() const { return accumulation_dtype(compute); }

  const Mesh& mesh() const { return builder.program().mesh(); }
  /// Returns the distribution of a parameter that the tensor axis splits evenly along a dim.
  Distribution over_tensor(int dim) const {
    return Distribution().with(mesh().tensor(), sharded(dim));
  }
  /// Returns the distribution of a parameter that the tensor axis splits along a dim of `extent`
  /// elements, which need not divide: the pieces are nearly even.
  Distribution over_tensor(int dim, int64_t extent) const {
    return Distribution().with(mesh().tensor(),
                               sharded(dim, nearly_even(extent, mesh().size(mesh().tensor()))));
  }

  /// Declares a matrix [out, in], initialised as the configuration says, and returns it. Its
  /// deviation is the configured one over `divisor`.
  Value matrix(std::string_view name, const Shape& shape, const Distribution& distribution,
               ParameterRole role = ParameterRole::matrix, double divisor = 1);
  /// Declares the matrix of a projection into the residual stream and returns it. "scaled"
  /// initialisation divides the deviation of such matrices (see InitializationRule).
  Value output_matrix(std::string_view name, const Shape& shape, const Distribution& distribution,
                      ParameterRole role = ParameterRole::matrix);

  /// Declares a vector of biases, scales or temperatures in the accumulation dtype, whose first
  /// values are all `constant`, and returns it.
  Value vector(std::string_view name, int64_t size, double constant,
               const Distribution& distribution = {});

  /// Writes an all-gather of the residual stream's rows over the tensor axis, which splits their
  /// positions. Returns all rows, for a column-split linear map. Its gradient is a reduce-scatter.
  Value gather_positions(Value stream);
  /// Writes a reduce-scatter, over the tensor axis, of the result of a row-split linear map.
  /// Returns the sums for this rank's own positions.
  Value scatter_positions(Value partial);

  /// Returns the options of the family's norm over groups of `group` entries (0: whole rows).
  NormOptions norm_options(int64_t group) const;
  /// Declares the weight of a norm of x, [size], and returns it in the distribution that x needs
  /// (see use_like()). Returns none if the family's norms have no weights.
  std::optional<Value> norm_weight(std::string_view name, int64_t size, Value x);

  /// Writes the family's norm of x over groups of `group` entries (0: whole rows), with a weight of
  /// `size` entries if the family has weights. A `residual` is added to x first.
  NormResult norm(std::string_view name, Value x, int64_t size, int64_t group,
                  std::optional<Value> residual = {});
  /// Writes the family's norm of whole rows of a sum that another program has computed
  /// (ops/norm/norm.h).
  NormResult norm_of_sum(std::string_view name, Value sum, int64_t size);
  /// Writes the family's norm over whole rows of `size` entries. Each tensor rank has a part of
  /// each row.
  Value split_norm(std::string_view name, Value x, int64_t size);
  /// Writes the norm of queries or keys as norm() does, followed by their rotation
  /// (ops/norm/norm.h).
  Value norm_and_rotary(std::string_view name, Value x, int64_t size, int64_t group, Value table,
                        int64_t head_dim);
};

}  // namespace tessera
