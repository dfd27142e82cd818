#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/piece_indices.h"
#include "model/expert_layout.h"
#include "model/model_config.h"
#include "model/parameter.h"
#include "model/token_distribution.h"
#include "ops/norm/norm.h"

namespace tessera {

/// What the layers of a model share while it is written into a program: the builder, the
/// configuration, the element types and the list of parameters.
struct ModelWriter {
  Builder& builder;
  const ModelConfig& config;
  DType compute;             ///< of activations and matrices
  TokenDistribution layout;  ///< of the tokens
  ExpertLayout experts = {};
  bool pins_choices = false;                ///< whether the routers' choices are inputs
  std::optional<Value> given_choices = {};  ///< i32 [tokens, k]: the choices of all routers
  bool trains = false;      ///< whether the forward pass changes biases that balance routers
  Value balance_step = {};  ///< f64 [1], if so: the number of the micro-batch, counted from 1
  ParameterList parameters = {};
  std::string unit = {};  ///< of the parameters declared next

  /// The type of norms, the router and statistics.
  DType wide() const { return accumulation_dtype(compute); }

  const Mesh& mesh() const { return builder.program().mesh(); }
  /// The distribution of a parameter that tensor parallelism splits along a dim, evenly.
  Distribution over_tensor(int dim) const {
    return Distribution().with(mesh().tensor(), sharded(dim));
  }
  /// The same of a dim of `extent` elements that need not divide.
  Distribution over_tensor(int dim, int64_t extent) const {
    return Distribution().with(mesh().tensor(),
                               sharded(dim, nearly_even(extent, mesh().size(mesh().tensor()))));
  }

  /// Declares a matrix [out, in], initialised as the configuration says.
  Value matrix(std::string_view name, const Shape& shape, const Distribution& distribution,
               ParameterRole role = ParameterRole::matrix);
  /// The same for a projection that writes to the residual stream, which "scaled" initialisation
  /// treats differently.
  Value output_matrix(std::string_view name, const Shape& shape, const Distribution& distribution,
                      ParameterRole role = ParameterRole::matrix);

  /// Declares a vector of biases, scales or temperatures in the accumulation type, all `constant`
  /// at first.
  Value vector(std::string_view name, int64_t size, double constant,
               const Distribution& distribution = {});

  /// The residual stream's rows of all positions that the tensor axis splits: what a column-split
  /// linear map reads. Its gradient is summed and split again.
  Value gather_positions(Value stream);
  /// Takes the sum that a row-split linear map left over the tensor axis. Each rank gets it for its
  /// own positions.
  Value scatter_positions(Value partial);

  /// How the family normalises, whole rows with group 0.
  NormOptions norm_options(int64_t group) const;
  /// The weight of a norm of x, used as x needs it; none if norms have no weights.
  std::optional<Value> norm_weight(std::string_view name, int64_t size, Value x);

  /// Writes a norm over rows of `size` entries, with a weight if the family has one.
  NormResult norm(std::string_view name, Value x, int64_t size, int64_t group,
                  std::optional<Value> residual = {});
  /// The same of rows of which each tensor rank has a part, without a residual.
  Value split_norm(std::string_view name, Value x, int64_t size);
  /// Writes a norm of queries or keys without a residual, and their rotation (ops/norm/norm.h).
  Value norm_and_rotary(std::string_view name, Value x, int64_t size, int64_t group, Value table,
                        int64_t head_dim);

 private:
  Value declare_matrix(std::string_view name, const Shape& shape, const Distribution& distribution,
                       ParameterRole role, double deviation);
};

}  // namespace tessera
