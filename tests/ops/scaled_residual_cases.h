#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/elementwise/elementwise.h"
#include "ops/norm/scaled_residual.h"
#include "support/run_program.h"

namespace tessera::testing {

/// A residual scaling and its norm with their sizes. The inputs are x, its scale and bias, the
/// stream with its scale and bias if there is one, and the weight.
struct ResidualCase {
  int64_t rows = 1;
  int64_t width = 1;
  bool streams = true;          ///< whether there is a stream
  bool stream_gradient = true;  ///< whether the new stream has a gradient
  bool in_place = false;        ///< nothing else reads x, the stream and the results' gradients

  std::vector<RunInput> inputs() const {
    const RunInput vector{{width}, true};
    const RunInput stream{{rows, width}, true};
    std::vector<RunInput> result{{{rows, width}}, vector, vector};
    if (streams) result.insert(result.end(), {stream, vector, vector});
    result.push_back(vector);
    return result;
  }

  ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) {
      const auto own = [&](Value x) { return in_place ? scale(builder, x, 1.0) : x; };
      std::optional<Value> stream;
      std::optional<ResidualScale> stream_scaling;
      if (streams) {
        stream = own(in[3]);
        stream_scaling = ResidualScale{in[4], in[5]};
      }
      const ScaledResidual result = scaled_residual_norm(
          builder, own(in[0]), {in[1], in[2]}, stream, stream_scaling, in.back(), NormOptions{});
      if (!stream_gradient) return std::vector<Value>{own(result.output)};
      return std::vector<Value>{own(result.output), own(result.stream)};
    };
  }

  RunResult run(const RunOptions& options) const {
    return run_program(function(), inputs(), options);
  }
};

/// With and without a stream, and with and without a gradient of the new one.
inline std::vector<ResidualCase> residual_variants(int64_t rows, int64_t width) {
  std::vector<ResidualCase> result;
  for (const bool streams : {false, true}) {
    for (const bool stream_gradient : {false, true}) {
      result.push_back({rows, width, streams, stream_gradient});
    }
  }
  return result;
}

}  // namespace tessera::testing
