#include "ops/attention/attention.h"
#include "ops/attention/attention_fast.h"
#include "ops/attention/device_attention.h"

namespace tessera {
namespace {

/// inputs: q, k, v, key cache, value cache, position; output: the result.
class CachedAttention final : public Operation {
 public:
  explicit CachedAttention(const AttentionOptions& options) : options_(options) {}
  std::string_view name() const override { return "cached_attention"; }

  std::string labels(std::span<const Spec>) const override {
    return "t! (h d!), t! (g d!), t! (g d!), u! -> t (h d), += s (g d), += s (g d); h=g";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 6, "{} inputs", inputs.size());
    shape(inputs);
    const Spec &key = inputs[1], &key_cache = inputs[3], &value_cache = inputs[4];
    TESSERA_EXPECT(*this,
                   key_cache.shape.rank() == 2 && key_cache.shape[1] == key.shape[1] &&
                       key_cache.dtype == key.dtype && is_like(value_cache, key_cache),
                   "caches {} and {} for keys {}", text_of(key_cache), text_of(value_cache),
                   text_of(key));
    TESSERA_EXPECT(*this, is_like(inputs[5], {{1}, DType::i32}),
                   "a position {}; i32 [1] is expected", text_of(inputs[5]));
    return {inputs[0]};
  }

  /// Returns the cost with a full cache, because the position of the tokens is known only in a run.
  /// All of the cache is read, and the rows of k and v are written to it.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.flops = 2 * product_flops(inputs[0].shape, inputs[3].shape[0]),
            .bytes = operand_bytes(inputs, outputs) +
                     static_cast<double>(inputs[1].bytes() + inputs[2].bytes())};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const DType dtype = inputs[0].dtype;
    const int64_t capacity = inputs[3].shape[0];
    if (target.device != Device::cpu) return part_bytes(shape(inputs), capacity);
    if (!use_plain(target, dtype)) {
      return cached_attention_fast_workspace(target, shape(inputs), dtype, capacity);
    }
    return target.threads * capacity * dtype_size(accumulation_dtype(dtype));
  }

  std::vector<int> updated_inputs() const override { return {3, 4}; }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor &k = execution.inputs[1], &v = execution.inputs[2];
    const Tensor &key_cache = execution.inputs[3], &value_cache = execution.inputs[4];
    const int64_t position = execution.inputs[5].data<int32_t>()[0];
    const int64_t tokens = k.shape()[0], capacity = key_cache.shape()[0];
    TESSERA_EXPECT(*this, position >= 0 && position + tokens <= capacity,
                   "{} tokens at position {} of a cache of {}", tokens, position, capacity);
    key_cache.slice(position, position + tokens).copy_from(k);
    value_cache.slice(position, position + tokens).copy_from(v);
    const AttentionShape sizes = attention_shape(options_, tokens, tokens);
    std::byte* const workspace = execution.workspace.data();
    run_processor_kernel(
        execution, k.dtype(),
        [&]<typename T>(T) {
          return CachedAttentionOperands<T>{.q = execution.inputs[0].data<T>(),
                                            .keys = key_cache.data<T>(),
                                            .values = value_cache.data<T>(),
                                            .output = execution.outputs[0].data<T>(),
                                            .position = position,
                                            .capacity = capacity};
        },
        [&]<typename T>(const CachedAttentionOperands<T>& operands) {
          cached_attention_plain(sizes, operands, reinterpret_cast<Compute<T>*>(workspace),
                                 execution.runtime.threads());
        },
        [&](const auto& operands) {
          cached_attention_fast(execution.runtime, sizes, operands, workspace);
        });
  }

 private:
  AttentionShape shape(std::span<const Spec> inputs) const {
    const int64_t tokens = inputs[0].shape.rank() > 0 ? inputs[0].shape[0] : 0;
    return checked_attention_shape(*this, options_, tokens, inputs);
  }

  /// Returns the bytes of CachedAttentionForward::parts.
  static int64_t part_bytes(const AttentionShape& shape, int64_t capacity) {
    TESSERA_CHECK(shape.head_dim <= kMostHeadDim, "cached attention on a device with heads of {}",
                  shape.head_dim);
    return shape.sequence * shape.heads *
           cached_attention_splits(shape.sequence, shape.heads, capacity) * (shape.head_dim + 2) *
           static_cast<int64_t>(sizeof(float));
  }

  void run_on_device(const Execution& execution) const {
    const auto& inputs = execution.inputs;
    const AttentionShape shape =
        attention_shape(options_, inputs[0].shape()[0], inputs[0].shape()[0]);
    const int64_t capacity = inputs[3].shape()[0];
    on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
      const CachedAttentionForward<T> attention{
          .sizes = kernel_sizes(shape),
          .capacity = static_cast<int>(capacity),
          .splits =
              static_cast<int>(cached_attention_splits(shape.sequence, shape.heads, capacity)),
          .position = inputs[5].pointer<int32_t>(),
          .q = inputs[0].pointer<T>(),
          .k = inputs[1].pointer<T>(),
          .v = inputs[2].pointer<T>(),
          .key_cache = inputs[3].pointer<T>(),
          .value_cache = inputs[4].pointer<T>(),
          .parts = reinterpret_cast<float*>(execution.workspace.data()),
          .output = execution.outputs[0].pointer<T>()};
      cached_attention_device<Vendor>(attention, *execution.stream);
    });
  }

  AttentionOptions options_;
};

}  // namespace

int64_t cached_attention_splits(int64_t tokens, int64_t heads, int64_t capacity) {
  constexpr int64_t kMinKeys = 256;  // of a part: work for all warps of a block
  constexpr int64_t kBlocks = 1024;  // blocks that keep the largest devices busy
  const int64_t wanted = std::max<int64_t>(1, kBlocks / (tokens * heads));
  return std::min(wanted, (capacity + kMinKeys - 1) / kMinKeys);
}

Value cached_attention(Builder& builder, Value q, Value k, Value v, Value key_cache,
                       Value value_cache, Value position, const AttentionOptions& options) {
  return builder.apply_single(std::make_shared<CachedAttention>(options),
                              {q, k, v, key_cache, value_cache, position});
}

}  // namespace tessera
