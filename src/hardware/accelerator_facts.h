#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/words.h"
#include "device/accelerator.h"
#include "program/target.h"
#include "tensor/dtype.h"

namespace tessera {

/// The source of a figure about a machine.
enum class Origin {
  data_sheet,   ///< the maker's data sheet; nothing was measured
  publication,  ///< a publication of someone who uses such a machine
  driver,       ///< the driver of the device in this machine
};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Origin>{"data sheet", "publication",
                                                                  "driver"};

/// A figure about a machine, and its source.
template <typename Number>
struct Figure {
  Number value = 0;
  Origin origin = Origin::data_sheet;
  bool operator==(const Figure&) const = default;
};

/// The peak of matrix products with operands of a dtype, in FLOP/s, without sparsity.
struct PeakRate {
  DType dtype = DType::bf16;
  Figure<double> flops;
  bool operator==(const PeakRate&) const = default;
};

/// A link of an accelerator to others or to the processor.
struct LinkFacts {
  std::string name;         ///< "NVLink 4, all links together"
  Figure<double> each_way;  ///< bytes per second in each direction
  bool operator==(const LinkFacts&) const = default;
};

/// What is known about an accelerator without measuring. Each figure names its source. A data
/// sheet's GB are read as 10^9 bytes, the least that they can mean.
struct AcceleratorFacts {
  std::string name;  ///< of the product: "NVIDIA H200 SXM"
  Device device = Device::cuda;
  std::string architecture;  ///< the compiler's name for it: "sm_90", "gfx942"
  Figure<int> lanes;         ///< threads of a warp
  Figure<int> multiprocessors;
  Figure<int64_t> memory_bytes;
  std::optional<Figure<double>> memory_bandwidth;  ///< bytes per second; no driver reports it
  std::vector<PeakRate> peaks;
  /// The peak of products of f32 whose operands are rounded to TF32, without sparsity.
  std::optional<Figure<double>> tf32_flops = {};
  std::vector<LinkFacts> links;

  bool operator==(const AcceleratorFacts&) const = default;
};

/// The warning of reports that contain measurements on the emulated device: those of
/// `tessera bench` and of a run. A hardware file has no warning; it names the device.
inline constexpr std::string_view kEmulatedFigures =
    "the device is emulated: the figures show that the measurement works and mean nothing else";

/// Returns the facts that the driver reports about an accelerator.
AcceleratorFacts facts_of(const Accelerator& accelerator);

/// Returns the target that programs on this accelerator are planned for.
Target target_of(const AcceleratorFacts& facts);

/// Returns a text such as "NVIDIA H200 SXM, 131.3 GiB (data sheet)".
std::string describe(const AcceleratorFacts& facts);

/// Returns the facts as the member "accelerator" of a hardware file.
nlohmann::ordered_json accelerator_json(const AcceleratorFacts& facts);
/// Reads facts from that member. `path` is its path within the file. Throws Error, which names the
/// path, if something in it is missing, unknown or not what it should be.
AcceleratorFacts parse_accelerator(const nlohmann::json& json, const std::string& path);

}  // namespace tessera
