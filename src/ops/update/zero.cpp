#include "ops/update/zero.h"

#include <cstring>
#include <numeric>

#include "ops/support.h"

namespace tessera {
namespace {

class Zero final : public Operation {
 public:
  explicit Zero(size_t count) : count_(count) {}
  std::string_view name() const override { return "zero"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == count_, "{} values", inputs.size());
    return {};
  }
  /// The values are only written.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    return {.bytes = operand_bytes(inputs, {})};
  }
  std::vector<int> updated_inputs() const override {
    std::vector<int> all(count_);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  void run(const Execution& execution) const override {
    for (const Tensor& value : execution.inputs) {
      std::byte* memory = value.raw();
      parallel_ranges(execution.runtime.threads(), value.bytes(), 1 << 20,
                      [=](int64_t begin, int64_t end, int) {
                        std::memset(memory + begin, 0, static_cast<size_t>(end - begin));
                      });
    }
  }

 private:
  size_t count_;
};

}  // namespace

void zero(Builder& builder, std::span<const Value> values) {
  builder.apply(std::make_shared<Zero>(values.size()), {values.begin(), values.end()});
}

}  // namespace tessera
