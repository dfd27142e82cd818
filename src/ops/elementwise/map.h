#pragma once

#include "ops/support.h"

namespace tessera {

/// Computes output[i] = function(input[i]) in the input's compute type and converts the result to
/// the output's type. The loops vectorise. Each output depends on its own input alone.
template <typename Function>
void map_elements(const Execution& execution, Function function) {
  const Tensor& input = execution.inputs[0];
  const Tensor& output = execution.outputs[0];
  dispatch_floating(input.dtype(), [&](auto from) {
    dispatch_floating(output.dtype(), [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* x = input.data<From>();
      To* y = output.data<To>();
      parallel_ranges(execution.runtime.threads(), output.elements(), 16384,
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          y[i] = static_cast<To>(
                              static_cast<Compute<To>>(function(static_cast<Compute<From>>(x[i]))));
                        }
                      });
    });
  });
}

/// Computes output[i] = function(first[i], second[i]). Each operand is in its own compute type, and
/// the result is converted to the output's type.
template <typename Function>
void map_pairs(const Execution& execution, Function function) {
  const Tensor& first = execution.inputs[0];
  const Tensor& second = execution.inputs[1];
  const Tensor& output = execution.outputs[0];
  dispatch_floating(first.dtype(), [&](auto first_type) {
    dispatch_floating(second.dtype(), [&](auto second_type) {
      dispatch_floating(output.dtype(), [&](auto output_type) {
        using First = decltype(first_type);
        using Second = decltype(second_type);
        using Output = decltype(output_type);
        const First* x = first.data<First>();
        const Second* y = second.data<Second>();
        Output* z = output.data<Output>();
        parallel_ranges(
            execution.runtime.threads(), output.elements(), 16384,
            [=](int64_t begin, int64_t end, int) {
              for (int64_t i = begin; i < end; ++i) {
                z[i] = static_cast<Output>(static_cast<Compute<Output>>(function(
                    static_cast<Compute<First>>(x[i]), static_cast<Compute<Second>>(y[i]))));
              }
            });
      });
    });
  });
}

}  // namespace tessera
