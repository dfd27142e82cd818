#include "ops/cca/delay.h"

#include <algorithm>

#include "ops/cca/delay_kernels.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace tessera {
namespace {

// Joins current and delayed rows (delay.h), and separates the gradient of the joined rows again.
// JoinDelayed::gradient() creates the gradient's operation, which comes first. The kernels only
// copy, so each is both plain and fast.

/// Joins rows on the processor.
///   joined[t] = (current[t], delayed[t - 1]), or (current[t], 0) at a document's start
template <typename T>
void join_rows(const RowsToJoin<T>& delay, int threads) {
  const int64_t width = delay.current_width + delay.delayed_width;
  parallel_ranges(threads, delay.tokens, row_grain(width), [=](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token) {
      T* to = delay.joined + token * width;
      to = std::copy_n(delay.current + token * delay.current_width, delay.current_width, to);
      if (!delay.order.continues_document(token)) {
        std::fill_n(to, delay.delayed_width, static_cast<T>(Compute<T>{0}));
        continue;
      }
      const T* earlier =
          token == 0 ? delay.row_before : delay.delayed + (token - 1) * delay.delayed_width;
      std::copy_n(earlier, delay.delayed_width, to);
    }
  });
}

/// Separates the gradient of joined rows on the processor.
///   current_gradient[t] = joined_gradient[t, :current_width]
///   delayed_gradient[t] = joined_gradient[t + 1, current_width:], or 0 if t + 1 does not follow t
template <typename T>
void separate_rows(const RowsToSeparate<T>& delay, int threads) {
  const int64_t width = delay.current_width + delay.delayed_width;
  parallel_each(threads, delay.tokens, row_grain(width), [=](int64_t token) {
    const T* from = delay.joined + token * width;
    std::copy_n(from, delay.current_width, delay.current + token * delay.current_width);
    T* to = delay.delayed + token * delay.delayed_width;
    if (token + 1 < delay.tokens && delay.order.continues_document(token + 1)) {
      std::copy_n(from + width + delay.current_width, delay.delayed_width, to);
    } else {
      std::fill_n(to, delay.delayed_width, static_cast<T>(Compute<T>{0}));
    }
  });
}

/// Returns the arguments of type Rows for elements of type T, without a row before them.
template <typename Rows, typename T>
Rows delayed_rows(const TokenOrder& order, const Tensor& current, const Tensor& delayed,
                  const Tensor& joined) {
  return {.order = order,
          .tokens = current.shape()[0],
          .current_width = current.shape()[1],
          .delayed_width = delayed.shape()[1],
          .current = current.pointer<T>(),
          .delayed = delayed.pointer<T>(),
          .joined = joined.pointer<T>(),
          .row_before = nullptr};
}

/// inputs: the gradient of the joined rows [tokens, c + e], document starts if given. outputs: the
/// gradients of the current rows [tokens, c] and of the delayed rows [tokens, e].
class JoinDelayedGradient final : public Operation {
 public:
  JoinDelayedGradient(const SequenceInputs& sequences, int64_t current_width)
      : sequences_(sequences), current_width_(current_width) {}
  std::string_view name() const override { return "join_delayed_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return "~(b s!) v!" + sequences_.labels() + " -> (b s) c, (b s) e";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1 + sequences_.count(), "{} inputs", inputs.size());
    const Spec& joined = inputs[0];
    TESSERA_EXPECT(
        *this,
        joined.shape.rank() == 2 && is_floating(joined.dtype) && joined.shape[1] >= current_width_,
        "a gradient {} of {} columns and others", text_of(joined), current_width_);
    sequences_.expect(*this, inputs, joined.shape[0]);
    const int64_t tokens = joined.shape[0];
    return {{{tokens, current_width_}, joined.dtype},
            {{tokens, joined.shape[1] - current_width_}, joined.dtype}};
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        join_delayed_gradient_device<Vendor>(arguments<T>(execution), *execution.stream);
      });
    }
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      separate_rows(arguments<T>(execution), execution.runtime.threads());
    });
  }

 private:
  template <typename T>
  RowsToSeparate<T> arguments(const Execution& execution) const {
    return delayed_rows<RowsToSeparate<T>, T>(sequences_.order(execution.inputs),
                                              execution.outputs[0], execution.outputs[1],
                                              execution.inputs[0]);
  }

  SequenceInputs sequences_;
  int64_t current_width_;
};

/// inputs: current [tokens, c], delayed [tokens, e]; then document starts if given, or last row
/// [1, e] and position if a sequence is continued. output: [tokens, c + e].
class JoinDelayed final : public Operation {
 public:
  explicit JoinDelayed(const SequenceInputs& sequences) : sequences_(sequences) {}
  std::string_view name() const override {
    return sequences_.is_continued() ? "cached_join_delayed" : "join_delayed";
  }

  std::string labels(std::span<const Spec>) const override {
    const std::string tokens = sequences_.token_label();
    const std::string result = sequences_.is_continued() ? "s v, += w e" : "(b s) v";
    return "~" + tokens + " c! + ~" + tokens + " e!" + sequences_.labels() + " -> " + result;
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const size_t expected = 2 + size_t{sequences_.is_continued()} + sequences_.count();
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs; {} are expected", inputs.size(),
                   expected);
    const Spec &current = inputs[0], &delayed = inputs[1];
    TESSERA_EXPECT(*this,
                   current.shape.rank() == 2 && delayed.shape.rank() == 2 &&
                       current.shape[0] == delayed.shape[0] && is_floating(current.dtype) &&
                       current.dtype == delayed.dtype,
                   "current rows {} and delayed rows {}", text_of(current), text_of(delayed));
    sequences_.expect(*this, inputs, current.shape[0]);
    if (sequences_.is_continued()) {
      TESSERA_EXPECT(*this, is_like(inputs[2], {{1, delayed.shape[1]}, delayed.dtype}),
                     "a last row {} for delayed rows {}", text_of(inputs[2]), text_of(delayed));
    }
    return {{{current.shape[0], current.shape[1] + delayed.shape[1]}, current.dtype}};
  }

  std::vector<int> updated_inputs() const override {
    return sequences_.is_continued() ? std::vector<int>{2} : std::vector<int>{};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (sequences_.is_continued()) return result;
    const Spec current = builder.spec(self.inputs[0]);
    std::vector<Value> inputs{cast(builder, output_gradients[0], current.dtype)};
    inputs.insert(inputs.end(), self.inputs.begin() + 2, self.inputs.end());
    const std::vector<Value> gradients = builder.apply(
        std::make_shared<JoinDelayedGradient>(sequences_, current.shape[1]), std::move(inputs));
    std::copy(gradients.begin(), gradients.end(), result.begin());
    return result;
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        join_delayed_device<Vendor>(arguments<T>(execution), *execution.stream);
      });
    } else {
      dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
        join_rows(arguments<T>(execution), execution.runtime.threads());
      });
    }
    if (sequences_.is_continued()) {
      keep_last_rows(execution, execution.inputs[1], execution.inputs[2]);
    }
  }

 private:
  template <typename T>
  RowsToJoin<T> arguments(const Execution& execution) const {
    const std::span<const Tensor> inputs = execution.inputs;
    auto rows = delayed_rows<RowsToJoin<T>, T>(sequences_.order(inputs), inputs[0], inputs[1],
                                               execution.outputs[0]);
    if (sequences_.is_continued()) rows.row_before = inputs[2].pointer<T>();
    return rows;
  }

  SequenceInputs sequences_;
};

}  // namespace

Value join_delayed(Builder& builder, Value current, Value delayed, const SequenceOptions& options) {
  return builder.apply_single(std::make_shared<JoinDelayed>(SequenceInputs(options)),
                              with_documents({current, delayed}, options));
}

Value cached_join_delayed(Builder& builder, Value current, Value delayed, Value last_row,
                          Value position) {
  return builder.apply_single(std::make_shared<JoinDelayed>(SequenceInputs::continued()),
                              {current, delayed, last_row, position});
}

}  // namespace tessera
